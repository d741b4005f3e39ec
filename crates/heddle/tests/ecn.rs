//! Congestion notification between two whole stacks: the negotiated ECN works in both directions under every
//! architecture.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use every_arch::every_arch;
use heddle::{Architecture, Connect, TcpListener, TcpStream};
use tcp::config::Ecn;
use tcp::ecn::EcnMode;
use world::World;

fn transfer(world: &mut World, mut from: &TcpStream, mut to: &TcpStream, len: usize) {
    let data: Vec<u8> = (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (mut sent, mut received, mut buffer) = (0, Vec::new(), vec![0; 1 << 16]);
    for _ in 0..5000 {
        match from.write(&data[sent..]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        world.pass(Duration::from_millis(1));
        match to.read(&mut buffer) {
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        if received.len() == len {
            break;
        }
    }
    assert!(received == data, "{} of {len} bytes", received.len());
}

#[every_arch]
fn both_kinds_between_two_stacks(arch: Architecture) {
    for (ecn, mode) in
        [(Ecn::Request, EcnMode::Classic), (Ecn::Accurate, EcnMode::Accurate), (Ecn::Accept, EcnMode::Off)]
    {
        for address in ["10.0.0.1:80", "[fd00::1]:80"] {
            let mut world = World::with(arch, |config| config.ecn = ecn, Default::default());
            let listener = TcpListener::bind(&world.a, address).unwrap();
            listener.set_nonblocking(true).unwrap();
            let client = Connect::new().start(&world.b, address).unwrap();
            world.settle();
            let (server, _) = listener.accept().unwrap();
            server.set_nonblocking(true).unwrap();
            transfer(&mut world, &client, &server, 200_000);
            transfer(&mut world, &server, &client, 200_000);
            for end in [&client, &server] {
                let status = end.status().expect("a connection");
                assert_eq!((status.ecn, status.marks.delivered_ce), (mode, 0), "{address}");
            }
        }
    }
}
