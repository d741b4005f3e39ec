//! A TUN interface: bare packets between Heddle and the kernel's TCP and UDP, over both families, with offloads and
//! without.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use heddle::device::{Device, Framing};
use heddle::tap::{Offloads, Tap, TapOptions};
use heddle::{ALL_ARCHITECTURES, Interface, Stack};
use testbed::limit::HANG;

use crate::namespace::in_namespace;
use crate::process::run;

const INTERFACE: &str = "tun0";
const KERNEL: [&str; 2] = ["10.8.0.1", "fd08::1"];
const OURS: [&str; 2] = ["10.8.0.2", "fd08::2"];
const DATA: usize = 3 << 20;

/// A stack on a new TUN interface, in the calling thread's namespace.
fn stack(arch: &str, offloads: Offloads) -> Stack {
    let options = TapOptions { queues: 2, offloads, framing: Framing::Packet, ..TapOptions::default() };
    let tun = Tap::open(INTERFACE, options).expect("the device opens");
    assert_eq!(tun.capabilities().framing, Framing::Packet);
    run(&["ip", "addr", "add", &format!("{}/24", KERNEL[0]), "dev", INTERFACE]);
    run(&["ip", "addr", "add", &format!("{}/64", KERNEL[1]), "dev", INTERFACE, "nodad"]);
    let interface = Interface::new(tun).address(format!("{}/24", OURS[0]).as_str()).expect("an address");
    let interface = interface.address(format!("{}/64", OURS[1]).as_str()).expect("an address");
    Stack::builder().interface(interface).architecture(arch).cpus(2).build().expect("the stack builds")
}

fn pattern() -> Vec<u8> {
    (0..DATA).map(|at| (at % 253) as u8).collect()
}

/// Sends the pattern and reads it back, at once.
fn echo(mut writer: impl Write + Send, mut reader: impl Read) {
    let mut came = vec![0; DATA];
    thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&pattern()).expect("written"));
        reader.read_exact(&mut came).expect("read");
    });
    assert!(came == pattern(), "what comes back is what was sent");
}

fn copy(mut from: impl Read, mut to: impl Write) {
    let mut buffer = vec![0; 1 << 16];
    let mut left = DATA;
    while left > 0 {
        let count = from.read(&mut buffer).expect("read");
        assert!(count > 0, "{left} bytes are missing");
        to.write_all(&buffer[..count]).expect("written");
        left -= count;
    }
}

/// Connections both ways, and datagrams, over the family of these addresses.
fn talk(stack: &Stack, kernel: IpAddr, ours: IpAddr) {
    let kernels = TcpListener::bind((kernel, 0)).expect("a listener");
    let server = heddle::TcpListener::bind(stack, SocketAddr::new(ours, 7)).expect("a listener");
    // The namespace is the calling thread's: the kernel's sockets are opened here.
    let client = TcpStream::connect((ours, 7)).expect("Heddle answers");
    client.set_read_timeout(Some(HANG)).expect("a time-out");
    let (served, _) = server.accept().expect("a connection");
    thread::scope(|scope| {
        scope.spawn(|| copy(&served, &served));
        echo(&client, &client);
    });
    let client =
        heddle::TcpStream::connect(stack, kernels.local_addr().expect("an address")).expect("the kernel answers");
    let (served, from) = kernels.accept().expect("a connection");
    assert_eq!(from.ip(), ours);
    thread::scope(|scope| {
        scope.spawn(|| copy(&served, &served));
        echo(&client, &client);
    });
    let kernels = UdpSocket::bind((kernel, 0)).expect("a socket");
    kernels.set_read_timeout(Some(HANG)).expect("a time-out");
    let socket = heddle::UdpSocket::bind(stack, SocketAddr::new(ours, 9)).expect("a socket");
    let mut buffer = [0; 9000];
    // The second crosses the link in fragments.
    for data in [&b"question"[..], &[7; 5000]] {
        kernels.send_to(data, (ours, 9)).expect("sent");
        let (count, from) = socket.recv_from(&mut buffer).expect("it comes");
        assert_eq!((&buffer[..count], from), (data, kernels.local_addr().expect("an address")));
        socket.send_to(&buffer[..count], from).expect("sent");
        let (count, from) = kernels.recv_from(&mut buffer).expect("it comes back");
        assert_eq!((&buffer[..count], from), (data, SocketAddr::new(ours, 9)));
    }
}

#[test]
fn the_kernels_tcp_and_udp_are_reached_by_bare_packets() {
    in_namespace(&[], |_| {
        for (at, arch) in ALL_ARCHITECTURES.iter().enumerate() {
            let offloads = [Offloads::All, Offloads::None, Offloads::Checksum][at % 3];
            let stack = stack(arch, offloads);
            for family in 0..2 {
                talk(&stack, KERNEL[family].parse().expect("an address"), OURS[family].parse().expect("an address"));
            }
            drop(stack);
        }
    });
}
