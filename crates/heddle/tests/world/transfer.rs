//! Data between the stacks of a [`World`] over both families, by connections and by datagrams, and the links that it crosses.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use heddle::{Connect, TcpListener, TcpStream, UdpSocket, mem};

use super::World;

/// `a`, over each family.
const SERVERS: [&str; 2] = ["10.0.0.1:80", "[fd00::1]:80"];
/// `b`, over each family.
const CLIENTS: [&str; 2] = ["10.0.0.2:4711", "[fd00::2]:4711"];
const DATA: usize = 150_000;

/// This link as it is, with two queues, and with all offloads.
pub fn variants(link: mem::MemConfig) -> [mem::MemConfig; 3] {
    let offloads =
        mem::MemConfig { segmentation: Some(65_000), coalescing: true, checksum_offload: true, ..link.clone() };
    [link.clone(), mem::MemConfig { queues: 2, ..link }, offloads]
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
pub fn transfer(world: &mut World) {
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

/// Datagrams of these bytes from `b` to `a` over each family, and back.
pub fn datagrams(world: &mut World, all: &[&[u8]]) {
    for (server, client) in SERVERS.into_iter().zip(CLIENTS) {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let here = UdpSocket::bind(&world.a, at(server)).expect("the port is free");
        let there = UdpSocket::bind(&world.b, at(client)).expect("the port is free");
        [&here, &there].iter().for_each(|socket| socket.set_nonblocking(true).expect("set"));
        let mut buffer = [0; 9000];
        for data in all {
            for (from, source, to, target) in [(&there, client, &here, server), (&here, server, &there, client)] {
                assert_eq!(from.send_to(data, at(target)).expect("sent"), data.len());
                world.settle();
                let (count, sender) = to.recv_from(&mut buffer).expect("it is there");
                assert_eq!((&buffer[..count], sender), (*data, at(source)));
            }
        }
    }
}
