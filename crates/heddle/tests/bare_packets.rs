//! A link without headers and addresses, like a TUN interface: no neighbour is solicited, no address is tested, no
//! router is heard, and TCP and UDP work as over Ethernet; with all offloads of a link, and with faults.

mod world;

use std::net::SocketAddr;

use every_arch::every_arch;
use heddle::device::Framing;
use heddle::{Architecture, UdpSocket, mem};
use observe::{Counter, DropReason};
use world::transfer::{SERVERS, transfer};
use world::{World, WorldConfig};

const CLIENTS: [&str; 2] = ["10.0.0.2:4711", "[fd00::2]:4711"];

/// Links of bare packets: plain, with two queues, with all offloads.
fn links() -> [mem::MemConfig; 3] {
    let bare = mem::MemConfig { framing: Framing::Packet, ..Default::default() };
    let offloads =
        mem::MemConfig { segmentation: Some(65_000), coalescing: true, checksum_offload: true, ..bare.clone() };
    [bare.clone(), mem::MemConfig { queues: 2, ..bare }, offloads]
}

#[every_arch]
fn segments_and_datagrams_of_both_families_need_no_neighbour(arch: Architecture) {
    for link in links() {
        let mut world = World::with(arch, |_| {}, link);
        transfer(&mut world);
        for (server, client) in SERVERS.into_iter().zip(CLIENTS) {
            let at = |data: &str| data.parse::<SocketAddr>().expect("an address");
            let here = UdpSocket::bind(&world.a, at(server)).expect("the port is free");
            let there = UdpSocket::bind(&world.b, at(client)).expect("the port is free");
            [&here, &there].iter().for_each(|socket| socket.set_nonblocking(true).expect("set"));
            let mut buffer = [0; 9000];
            // The second is larger than the link, and crosses it in fragments.
            for data in [&b"question"[..], &[7; 5000]] {
                assert_eq!(there.send_to(data, at(server)).expect("sent"), data.len());
                world.settle();
                let (count, from) = here.recv_from(&mut buffer).expect("it is there");
                assert_eq!((&buffer[..count], from), (data, at(client)));
                here.send_to(&buffer[..count], from).expect("sent");
                world.settle();
                let (count, from) = there.recv_from(&mut buffer).expect("it is there");
                assert_eq!((&buffer[..count], from), (data, at(server)));
            }
        }
        let counters = world.counters();
        let asked = [Counter::ArpRequestsOut, Counter::NeighbourSolicitsOut].map(|counter| counters.get(counter));
        assert_eq!(asked, [0, 0]);
        let dropped: Vec<_> = counters.drops().filter(|(_, count)| *count > 0).collect();
        assert_eq!(dropped, [], "nothing is lost on the way");
    }
}

#[every_arch]
fn losses_and_damage_are_made_good_without_a_link_header_too(arch: Architecture) {
    let faults = "both loss 1% corrupt 1% reorder 2% dup 1% truncate 1% pad 1% delay 2ms".parse();
    let link = links()[0].clone();
    let terms = WorldConfig { link, faults: faults.expect("a plan of faults"), ..WorldConfig::new([arch; 2]) };
    let mut world = World::on(terms);
    transfer(&mut world);
    let (counters, injected) = (world.counters(), world.injected());
    assert!(injected.get(Counter::FaultsCorrupted) > 0 && injected.get(Counter::FaultsTruncated) > 0);
    let damaged = [DropReason::TcpBadChecksum, DropReason::IpBadChecksum].map(|reason| counters.dropped(reason));
    assert!(damaged.iter().sum::<u64>() > 0, "damage was noticed");
}
