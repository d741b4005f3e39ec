//! Requirements of RFC 9293 on the application interface: the Differentiated Services field of both directions, and
//! soft errors.

mod world;

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use every_arch::every_arch;
use heddle::{Architecture, Connect, Readiness, TcpListener, TcpStream};
use world::World;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn connect(world: &mut World, server: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(&world.a, address(server)).expect("the port is free");
    listener.set_nonblocking(true).unwrap();
    let client = Connect::new().start(&world.b, address(server)).expect("the open starts");
    world.settle();
    let (accepted, _) = listener.accept().expect("it is established");
    accepted.set_nonblocking(true).unwrap();
    (client, accepted)
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//= type=test
//# TCP implementations MAY pass the most recently received Differentiated Services field up to the application (MAY-9).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//= type=test
//# TCP implementations SHOULD pass the current Differentiated Services field value without change to the IP layer, when
//# it sends segments on the connection (SHLD-22).
#[every_arch]
fn the_class_that_one_application_sets_reaches_the_other(arch: Architecture) {
    for server in ["10.0.0.1:80", "[fd00::1]:80"] {
        let mut world = World::new(arch);
        let (mut client, server) = connect(&mut world, server);
        for class in [0xb8, 0x28, 0] {
            client.set_traffic_class(class).expect("set");
            client.set_hop_limit(Some(7)).expect("set");
            assert_eq!(client.traffic_class().expect("alive"), class);
            assert_eq!(client.hop_limit().expect("alive"), Some(7));
            client.write_all(&[1; 1000]).expect("there is room");
            world.settle();
            let buffers = server.receive_buffers(10_000).expect("text");
            assert_eq!(buffers.last().map(|buffer| buffer.meta().traffic_class & !3), Some(class));
        }
        assert!(client.set_hop_limit(Some(0)).is_err());
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
//= type=test
//# There MUST be a mechanism for reporting soft TCP error conditions to the application (MUST-47).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# TCP implementations SHOULD inform the application of the delivery problem (unless such information has been disabled
//# by the application; see the "Asynchronous Reports" section (Section 3.9.1.8)), when R1 is reached and before R2
//# (SHLD-9).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
//= type=test
//# However, an application program that does not want to receive such ERROR_REPORT calls SHOULD be able to effectively
//# disable these calls (SHLD-20).
#[every_arch]
fn an_application_hears_that_nobody_answers_unless_it_does_not_want_to(arch: Architecture) {
    for wanted in [true, false] {
        let mut world = World::new(arch);
        let (mut client, server) = connect(&mut world, "10.0.0.1:80");
        client.set_error_reports(wanted).expect("set");
        assert!(client.soft_error().expect("alive").is_none());
        // The other stack has disappeared silently.
        let drivers = world.drivers();
        let alone = drivers.len() - 1;
        client.write_all(b"is anybody there?").expect("there is room");
        for _ in 0..300 {
            world.clock.advance(Duration::from_millis(10));
            world.drivers()[alone].poll();
        }
        assert_eq!(client.readiness().contains(Readiness::SOFT_ERROR), wanted);
        let error = client.soft_error().expect("alive").expect("something is wrong");
        assert!(error.to_string().contains("10.0.0.1:80"), "{error} names the peer");
        assert!(!client.readiness().contains(Readiness::SOFT_ERROR), "told once");
        drop(server);
    }
}
