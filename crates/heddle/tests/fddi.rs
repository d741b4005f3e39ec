//! Two stacks on an FDDI ring: echoes, datagrams and connections over both families, with the segments that the MTU of 4352 bytes
//! allows, with the offloads of a link, with faults, and as a capture shows them.

mod world;

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};

use every_arch::every_arch;
use heddle::config::Config;
use heddle::device::Framing;
use heddle::{Architecture, Interface, Stack, mem};
use observe::{Counter, DropReason};
use testbed::limit::HANG;
use wire::{Headers, tcp};
use world::transfer::{datagrams, transfer, variants};
use world::{World, WorldConfig};

/// Frame control, two addresses, LLC, organisation and type.
const HEADER: usize = 21;
/// RFC 1390, RFC 2467 section 2.
const MTU: usize = 4352;

/// FDDI rings.
fn links() -> [mem::MemConfig; 3] {
    variants(mem::MemConfig::fddi())
}

/// Memory that a capture is written to.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("unpoisoned").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[every_arch]
fn connections_and_datagrams_of_both_families_cross_the_ring(arch: Architecture) {
    for link in links() {
        let mut world = World::with(arch, |_| {}, link);
        transfer(&mut world);
        // A whole frame, and a datagram in fragments.
        datagrams(&mut world, &[&[5; 4300], &[7; 9000]]);
        let counters = world.counters();
        let asked = [Counter::ArpRequestsOut, Counter::NeighbourSolicitsOut].map(|counter| counters.get(counter));
        assert!(asked.iter().all(|asked| *asked > 0), "neighbours are asked for: {asked:?}");
        let dropped: Vec<_> = counters.drops().filter(|(_, count)| *count > 0).collect();
        assert_eq!(dropped, [], "nothing is lost on the way");
    }
}

/// The largest segment of each family has as much data as the MTU leaves: 4312 bytes and 4292. Its announcement says so
/// (RFC 9293 section 3.7.1), and the capture has the link type of FDDI.
#[every_arch]
fn segments_fill_the_frames_of_fddi(arch: Architecture) {
    let memory = Memory::default();
    let recorder: Option<Box<dyn Write + Send>> = Some(Box::new(memory.clone()));
    let tcp = Config { timestamps: false, ..Config::default() };
    let mut world =
        World::on(WorldConfig { link: mem::MemConfig::fddi(), tcp, recorder, ..WorldConfig::new([arch; 2]) });
    transfer(&mut world);
    // The capture is complete once its device has gone.
    drop(world);
    let capture = Cursor::new(memory.0.lock().expect("unpoisoned").clone());
    let (mut announced, mut longest, mut types) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for frame in dev::pcap::Reader::new(capture).expect("a capture") {
        let frame = frame.expect("a frame");
        assert_eq!(frame.link_type, 10, "LINKTYPE_FDDI");
        assert_eq!((frame.data[0], &frame.data[13..19]), (0x50, &[0xaa, 0xaa, 3, 0, 0, 0][..]));
        *types.entry([frame.data[19], frame.data[20]]).or_insert(0) += 1;
        let headers = Headers::of(Framing::Fddi, &frame.data);
        if !headers.is_tcp() {
            continue;
        }
        let header = tcp::parse(&frame.data[headers.transport()..headers.end()]).expect("a segment");
        announced.entry(headers.is_v6()).or_insert_with(Vec::new).extend(header.options.mss);
        let most = longest.entry(headers.is_v6()).or_insert(0);
        *most = frame.data.len().max(*most);
    }
    assert_eq!(announced, BTreeMap::from([(false, vec![4312; 2]), (true, vec![4292; 2])]));
    assert_eq!(longest, BTreeMap::from([(false, HEADER + MTU), (true, HEADER + MTU)]));
    assert_eq!(types.keys().collect::<Vec<_>>(), [&[0x08, 0x00], &[0x08, 0x06], &[0x86, 0xdd]]);
}

#[every_arch]
fn losses_and_damage_are_made_good_on_the_ring_too(arch: Architecture) {
    let faults = "both loss 1% corrupt 1% reorder 2% dup 1% truncate 1% pad 1% delay 2ms".parse();
    let link = mem::MemConfig::fddi();
    let terms = WorldConfig { link, faults: faults.expect("a plan of faults"), ..WorldConfig::new([arch; 2]) };
    let mut world = World::on(terms);
    transfer(&mut world);
    let (counters, injected) = (world.counters(), world.injected());
    assert!(injected.get(Counter::FaultsCorrupted) > 0 && injected.get(Counter::FaultsTruncated) > 0);
    let damaged = [DropReason::TcpBadChecksum, DropReason::IpBadChecksum].map(|reason| counters.dropped(reason));
    assert!(damaged.iter().sum::<u64>() > 0, "damage was noticed");
}

/// Echoes of each family, in a frame and in fragments, by stacks with the threads of their architecture.
#[every_arch]
fn an_echo_crosses_the_ring_and_comes_back(arch: Architecture) {
    let (a, b) = mem::pair(mem::MemConfig::fddi());
    let stack = |device, addresses: [&str; 2]| {
        let interface = Interface::new(device).addresses(addresses).expect("addresses");
        Stack::builder().interface(interface).architecture(arch).cpus(2).build().expect("it builds")
    };
    let (near, far) = (stack(a, ["10.0.0.1/24", "fd00::1/64"]), stack(b, ["10.0.0.2/24", "fd00::2/64"]));
    for address in ["10.0.0.2", "fd00::2"].map(|text| text.parse().expect("an address")) {
        for len in [0, 56, 4200, 20_000] {
            let pong = near.ping(address, 1, len, HANG).expect("a way").expect("an answer");
            assert_eq!((pong.from, pong.len), (address, len));
        }
    }
    drop(far);
}
