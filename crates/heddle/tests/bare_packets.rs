//! A link without headers and addresses, like a TUN interface: no neighbour is solicited, no address is tested, no
//! router is heard, and TCP and UDP work as over Ethernet; with all offloads of a link, and with faults.

mod world;

use every_arch::every_arch;
use heddle::device::Framing;
use heddle::{Architecture, mem};
use observe::{Counter, DropReason};
use world::transfer::{datagrams, transfer, variants};
use world::{World, WorldConfig};

/// Links of bare packets.
fn links() -> [mem::MemConfig; 3] {
    variants(mem::MemConfig { framing: Framing::Packet, ..Default::default() })
}

#[every_arch]
fn segments_and_datagrams_of_both_families_need_no_neighbour(arch: Architecture) {
    for link in links() {
        let mut world = World::with(arch, |_| {}, link);
        transfer(&mut world);
        // The second is larger than the link, and crosses it in fragments.
        datagrams(&mut world, &[b"question", &[7; 5000]]);
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
