//! The time to live of IPv4 and the hop limit of IPv6 in sent frames, in virtual time.

mod world;

use std::io::Write;
use std::sync::{Arc, Mutex};

use every_arch::every_arch;
use heddle::device::pcap::{Direction, Reader};
use heddle::{Architecture, Connect, TcpListener, UdpSocket};
use world::{World, WorldConfig};

/// A recording of the device of `a`.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<u8>>>);

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panicked").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A world with a recording first device.
fn recorded(arch: Architecture) -> (World, Capture) {
    let capture = Capture::default();
    (World::on(WorldConfig { recorder: Some(Box::new(capture.clone())), ..WorldConfig::new([arch; 2]) }), capture)
}

impl Capture {
    /// Transport protocol and hop limit of each packet that `a` sent, of those that carry UDP or TCP.
    fn sent(&self) -> Vec<(u8, u8)> {
        let bytes = self.0.lock().expect("no writer panicked").clone();
        let frames = Reader::new(&bytes[..]).expect("a capture").map(|frame| frame.expect("a frame"));
        let of_packet = |frame: &[u8]| match frame[12..14] {
            [0x08, 0x00] => (frame[14 + 9], frame[14 + 8]),
            [0x86, 0xdd] => (frame[14 + 6], frame[14 + 7]),
            _ => (0, 0),
        };
        let sent = frames.filter(|frame| frame.direction == Direction::Outbound).map(|frame| of_packet(&frame.data));
        sent.filter(|(protocol, _)| [6, 17].contains(protocol)).collect()
    }
}

/// ip(7), `IP_TTL`: "Set or retrieve the current time-to-live field that is used in every packet sent from this
/// socket." ipv6(7), `IPV6_UNICAST_HOPS`: the same. RFC 1122 section 4.1.4: the application must be able to set it for
/// UDP.
#[every_arch]
fn datagrams_leave_with_what_was_set(arch: Architecture) {
    let (mut world, capture) = recorded(arch);
    for (from, to) in [("10.0.0.1:0", "10.0.0.2:9"), ("[fd00::1]:0", "[fd00::2]:9")] {
        let socket = UdpSocket::bind(&world.a, from).expect("it is free");
        socket.send_to(b"x", to).expect("a route");
        socket.set_ttl(7).expect("in range");
        socket.send_to(b"x", to).expect("a route");
        world.settle();
    }
    drop(world);
    assert_eq!(capture.sent(), [(17, 64), (17, 7), (17, 64), (17, 7)]);
}

/// ip(7): a listener's, too: it sends the SYN-ACK, and accepted connections inherit its options.
#[every_arch]
fn a_listener_answers_with_what_was_set(arch: Architecture) {
    for address in ["10.0.0.1:80", "[fd00::1]:80"] {
        let (mut world, capture) = recorded(arch);
        let listener = TcpListener::bind(&world.a, address).expect("it is free");
        listener.set_nonblocking(true).expect("it can");
        listener.set_ttl(9).expect("in range");
        let _client = Connect::new().start(&world.b, address).expect("a route");
        world.settle();
        let (mut server, _) = listener.accept().expect("a connection waits");
        listener.set_ttl(10).expect("in range");
        server.write_all(b"x").expect("there is room");
        world.settle();
        assert_eq!(server.ttl().expect("it lives"), 9);
        drop(world);
        drop((server, listener));
        let sent = capture.sent();
        assert!(sent.len() >= 2 && sent.iter().all(|packet| *packet == (6, 9)), "{address}: {sent:?}");
    }
}
