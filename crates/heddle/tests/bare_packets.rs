//! A link without headers and addresses, like a TUN interface: no neighbour is solicited, no address is tested, no
//! router is heard, and TCP and UDP work as over Ethernet; with all offloads of a link, and with faults.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use every_arch::every_arch;
use heddle::device::Framing;
use heddle::{Architecture, Connect, TcpListener, TcpStream, UdpSocket, mem};
use observe::{Counter, DropReason};
use world::{World, WorldConfig};

const SERVERS: [&str; 2] = ["10.0.0.1:80", "[fd00::1]:80"];
const CLIENTS: [&str; 2] = ["10.0.0.2:4711", "[fd00::2]:4711"];
const DATA: usize = 150_000;

/// Links of bare packets: plain, with two queues, with all offloads.
fn links() -> [mem::MemConfig; 3] {
    let bare = mem::MemConfig { framing: Framing::Packet, ..Default::default() };
    let offloads =
        mem::MemConfig { segmentation: Some(65_000), coalescing: true, checksum_offload: true, ..bare.clone() };
    [bare.clone(), mem::MemConfig { queues: 2, ..bare }, offloads]
}

fn pattern() -> Vec<u8> {
    (0..DATA).map(|at| (at % 251) as u8).collect()
}

fn bytes_there(mut stream: &TcpStream, into: &mut Vec<u8>) {
    let mut buffer = [0; 65_536];
    loop {
        match stream.read(&mut buffer) {
            Ok(count) => into.extend(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
        if into.len() >= DATA {
            return;
        }
    }
}

/// A connection from `b` to `a` over each family, and data both ways at once.
fn transfer(world: &mut World) {
    for server in SERVERS.map(|data| data.parse::<SocketAddr>().expect("an address")) {
        let listener = TcpListener::bind(&world.a, server).expect("the port is free");
        listener.set_nonblocking(true).expect("set");
        let mut client = Connect::new().start(&world.b, server).expect("a route");
        let (data, mut accepted) = (pattern(), None);
        let (mut sent, mut came) = ([0, 0], [Vec::new(), Vec::new()]);
        let end = world.clock.now() + Duration::from_secs(600);
        while came.iter().any(|came| came.len() < DATA) {
            assert!(world.clock.now() < end, "{server}: {sent:?} sent");
            if accepted.is_none()
                && let Ok((stream, peer)) = listener.accept()
            {
                assert_eq!(peer, client.local_addr().expect("an address"));
                stream.set_nonblocking(true).expect("set");
                accepted = Some(stream);
            }
            sent[0] += client.write(&data[sent[0]..]).unwrap_or(0);
            bytes_there(&client, &mut came[0]);
            if let Some(server) = &mut accepted {
                sent[1] += server.write(&data[sent[1]..]).unwrap_or(0);
                bytes_there(server, &mut came[1]);
            }
            world.settle();
            world.step(end);
        }
        assert!(came[0] == data && came[1] == data, "{server}: what arrives is what was sent");
    }
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
