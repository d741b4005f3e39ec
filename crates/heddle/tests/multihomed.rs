//! A stack with two different devices: the first has segmentation offload and large frames, the second has neither, and
//! a small queue. Properties of one must not be applied to the other.

mod pair;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use every_arch::every_arch;
use heddle::device::Device;
use heddle::{Architecture, Cidr, Interface, Stack, TcpListener, TcpStream, UdpSocket, mem};
use observe::{Counter, Counters, DropReason};
use pair::pattern;
use testbed::limit::within;
use testbed::order_check::OrderCheck;

const TEXT: usize = 1 << 20;

/// The stack with two devices, their counters, and its neighbours on the first and on the second.
fn stacks(arch: Architecture) -> (Stack, [Arc<Counters>; 2], [Stack; 2]) {
    let wide = mem::MemConfig {
        queues: 2,
        mtu: 9000,
        segmentation: Some(65_000),
        checksum_offload: true,
        coalescing: true,
        ..Default::default()
    };
    let (first, far) = mem::pair(wide);
    let (second, near) = mem::pair(mem::MemConfig { ring_frames: 64, ..Default::default() });
    let counters = [&first, &second].map(|device| device.counters().expect("it counts"));
    let both = Stack::builder()
        .interface(Interface::new(first).addresses(["10.0.0.1/24", "fd00::1/64"]).expect("addresses"))
        .interface(Interface::new(second).addresses(["10.0.1.1/24", "fd01::1/64"]).expect("addresses"))
        .architecture(arch)
        .cpus(2);
    let alone = |device, cidrs: [&str; 2]| {
        Stack::builder()
            .interface(Interface::new(device).addresses(cidrs).expect("addresses"))
            .architecture(arch)
            .cpus(2)
            .build()
    };
    let neighbours = [alone(far, ["10.0.0.2/24", "fd00::2/64"]), alone(near, ["10.0.1.2/24", "fd01::2/64"])];
    (both.build().expect("the stack builds"), counters, neighbours.map(|built| built.expect("the stack builds")))
}

/// Moves data both ways at once over a connection with these ends.
fn exchange(ends: &[TcpStream; 2], seed: usize) {
    thread::scope(|scope| {
        for (end, stream) in ends.iter().enumerate() {
            scope.spawn(move || {
                let mut stream = stream;
                stream.write_all(&pattern(seed + end, TEXT)).expect("written");
            });
            scope.spawn(move || {
                let (mut stream, mut came) = (stream, vec![0; TEXT]);
                stream.read_exact(&mut came).expect("read");
                assert!(came == pattern(seed + (1 - end), TEXT), "what arrives is what was sent");
            });
        }
    });
}

/// A connection to `listener` at `address`, from `from`.
fn connected(from: &Stack, listener: &TcpListener, address: &str) -> [TcpStream; 2] {
    let client = TcpStream::connect(from, address).expect("the listener answers");
    let (server, peer) = listener.accept().expect("a connection waits");
    assert_eq!(peer, client.local_addr().unwrap());
    [client, server]
}

/// One listener for all addresses serves both neighbours, connections to either use the right device, and all of them
/// at once carry their data over devices of different kinds.
#[every_arch]
fn every_connection_is_made_for_its_own_device(arch: Architecture) {
    within(move || {
        let (both, devices, neighbours) = stacks(arch);
        let listener = TcpListener::bind(&both, "0.0.0.0:80").expect("the port is free");
        let mut connections = Vec::new();
        for (net, neighbour) in neighbours.iter().enumerate() {
            connections.push(connected(neighbour, &listener, &format!("10.0.{net}.1:80")));
            let theirs = TcpListener::bind(neighbour, "0.0.0.0:80").expect("the port is free");
            connections.push(connected(&both, &theirs, &format!("10.0.{net}.2:80")));
        }
        thread::scope(|scope| {
            for (seed, ends) in connections.into_iter().enumerate() {
                scope.spawn(move || exchange(&ends, 2 * seed));
            }
        });
        assert_eq!(both.stats().counters.dropped(DropReason::TooBigToSend), 0);
        for device in devices {
            assert_eq!(
                device.snapshot().dropped(DropReason::FrameTooLong),
                0,
                "what leaves by a device is made for it"
            );
        }
    });
}

/// A datagram that fits one device and not the other is fragmented for the other.
#[every_arch]
fn datagrams_are_cut_for_the_device_by_which_they_leave(arch: Architecture) {
    within(move || {
        let (both, _, neighbours) = stacks(arch);
        let ours = UdpSocket::bind(&both, "0.0.0.0:53").expect("the port is free");
        for (net, neighbour) in neighbours.iter().enumerate() {
            let theirs = UdpSocket::bind(neighbour, "0.0.0.0:53").expect("the port is free");
            let text = pattern(net, 8000);
            ours.send_to(&text, format!("10.0.{net}.2:53")).expect("sent");
            let mut buffer = vec![0; 9000];
            let (length, from) = theirs.recv_from(&mut buffer).expect("a datagram");
            assert_eq!(from, SocketAddr::new(format!("10.0.{net}.1").parse().unwrap(), 53));
            assert!(buffer[..length] == text);
        }
    });
}

/// An address belongs to the host and not to the device (RFC 1122 section 3.3.4.2, the weak model, as in Linux): a
/// neighbour on the first device reaches the address of the second, and is answered from there.
#[every_arch]
fn the_address_of_one_device_is_reached_by_way_of_the_other(arch: Architecture) {
    within(move || {
        let (both, _, [neighbour, _]) = stacks(arch);
        neighbour.set_route(0, "10.0.1.0/24 via 10.0.0.1").expect("a route");
        let listener = TcpListener::bind(&both, "0.0.0.0:80").expect("the port is free");
        let [client, server] = connected(&neighbour, &listener, "10.0.1.1:80");
        assert_eq!(server.local_addr().unwrap(), "10.0.1.1:80".parse().unwrap());
        exchange(&[client, server], 0);
    });
}

/// A connection that a SYN cookie has made has not looked up its route before it sends its first data: this data leaves
/// by the device without segmentation, in segments that fit it, though the first device would take super-segments.
#[every_arch]
fn the_first_data_after_a_syn_cookie_is_made_for_its_device(arch: Architecture) {
    within(move || {
        let (both, [_, second], [_, neighbour]) = stacks(arch);
        both.set_knob("tcp_syncookies", "2").expect("a knob");
        let listener = TcpListener::bind(&both, "[::]:80").expect("the port is free");
        for address in ["10.0.1.1:80", "[fd01::1]:80"] {
            let [client, server] = connected(&neighbour, &listener, address);
            let text = pattern(1, TEXT);
            thread::scope(|scope| {
                scope.spawn(|| (&server).write_all(&text).expect("written"));
                let mut came = vec![0; TEXT];
                (&client).read_exact(&mut came).expect("read");
                assert!(came == text, "what arrives is what was sent");
            });
            assert_eq!(second.snapshot().dropped(DropReason::FrameTooLong), 0, "{address}");
        }
        assert_eq!(both.stats().counters.get(Counter::SynCookiesIn), 2, "by cookies");
    });
}

/// A connection moves from the device with super-segments to the one without and back, while data is in flight.
#[every_arch]
fn a_route_leads_a_connection_from_one_device_to_the_other(arch: Architecture) {
    within(move || {
        let wide = mem::MemConfig { segmentation: Some(65_000), coalescing: true, ..Default::default() };
        let ((first, far), (second, near)) = (mem::pair(wide), mem::pair(mem::MemConfig::default()));
        let build = |first, second: Box<dyn Device>, host| {
            let cidr = |net| Cidr::new([10, 0, net, host].into(), 24).expect("a prefix");
            let on_first = Interface::new(first).address(cidr(0)).expect("an address");
            let on_second = Interface::new(second).address(cidr(1)).expect("an address");
            let builder = Stack::builder().interface(on_first).interface(on_second).architecture(arch).cpus(2);
            builder.build().expect("the stack builds")
        };
        let counters = second.counters().expect("it counts");
        let (second, seen) = OrderCheck::new(second);
        let (ours, theirs) = (build(first, Box::new(second), 1), build(far, Box::new(near), 2));
        let listener = TcpListener::bind(&theirs, "0.0.0.0:80").expect("the port is free");
        let ends = connected(&ours, &listener, "10.0.0.2:80");
        let mut by_second = 0;
        for round in 0..4 {
            thread::scope(|scope| {
                scope.spawn(|| exchange(&ends, 2 * round));
                match round % 2 {
                    0 => ours.set_route(1, "10.0.0.2/32 via 10.0.1.2").expect("a route"),
                    _ => ours.remove_route("10.0.0.2/32").expect("a route"),
                }
            });
            let before = std::mem::replace(&mut by_second, seen.sent.load(Ordering::Relaxed));
            exchange(&ends, 0);
            let now = seen.sent.load(Ordering::Relaxed);
            assert_eq!(now > by_second, round % 2 == 0, "{before}, {by_second}, {now} segments in round {round}");
        }
        assert_eq!(counters.snapshot().dropped(DropReason::FrameTooLong), 0);
    });
}
