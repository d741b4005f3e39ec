//! Methods with the name of one in `std::net` have the same signature and behaviour: each test body here runs over
//! std's sockets on the kernel's loopback and over Heddle's. Only constructors differ, because a socket of Heddle
//! belongs to a stack.

mod pair;

use std::collections::BTreeSet;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use heddle::{Architecture, Stack};
use pair::stacks;
use testbed::limit::{HANG, within};

/// Long enough to be measured.
const SHORT: Duration = Duration::from_millis(20);

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

/// The kernel's loopback.
struct Kernel;

impl Kernel {
    fn new() -> Kernel {
        Kernel
    }

    fn listen(&self) -> std::net::TcpListener {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap()
    }

    fn connect(&self, address: SocketAddr) -> std::net::TcpStream {
        std::net::TcpStream::connect_timeout(&address, HANG).unwrap()
    }

    /// An address of this host that no other socket has: a port that is free there stays free, while other tests open
    /// sockets.
    fn own_address() -> Ipv4Addr {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        Ipv4Addr::new(127, 0, 77, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// An address without a listener.
    fn refused(&self) -> std::io::Error {
        let free = std::net::TcpListener::bind((Kernel::own_address(), 0)).unwrap().local_addr().unwrap();
        std::net::TcpStream::connect(free).unwrap_err()
    }

    fn datagrams(&self) -> (std::net::UdpSocket, std::net::UdpSocket) {
        let bind = || std::net::UdpSocket::bind((Kernel::own_address(), 0)).unwrap();
        (bind(), bind())
    }

    fn broadcast(&self) -> &str {
        "127.255.255.255:9"
    }

    /// A member of 239.1.2.3 on the interface by which the other socket of this host sends.
    fn member_and_sender(&self) -> (std::net::UdpSocket, std::net::UdpSocket) {
        let (member, sender) = ("0.0.0.0:0", "127.0.0.1:0");
        let bind = |address| std::net::UdpSocket::bind(address).unwrap();
        let (member, sender) = (bind(member), bind(sender));
        member.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST).unwrap();
        (member, sender)
    }
}

/// Two stacks on a link in memory.
struct Heddle(Stack, Stack);

impl Heddle {
    fn new() -> Heddle {
        let (server, client) = stacks(Architecture::default());
        Heddle(server, client)
    }

    fn listen(&self) -> heddle::TcpListener {
        heddle::TcpListener::bind(&self.0, "10.0.0.1:0").unwrap()
    }

    fn connect(&self, address: SocketAddr) -> heddle::TcpStream {
        heddle::TcpStream::connect_timeout(&self.1, address, HANG).unwrap()
    }

    fn refused(&self) -> std::io::Error {
        heddle::TcpStream::connect(&self.1, "10.0.0.1:9").unwrap_err().into()
    }

    fn datagrams(&self) -> (heddle::UdpSocket, heddle::UdpSocket) {
        let bind = |stack: &Stack, address| heddle::UdpSocket::bind(stack, address).unwrap();
        (bind(&self.0, "10.0.0.1:0"), bind(&self.1, "10.0.0.2:0"))
    }

    fn broadcast(&self) -> &str {
        "10.0.0.255:9"
    }

    fn member_and_sender(&self) -> (heddle::UdpSocket, heddle::UdpSocket) {
        let bind = |address| heddle::UdpSocket::bind(&self.0, address).unwrap();
        let (member, sender) = (bind("0.0.0.0:0"), bind("10.0.0.1:0"));
        member.join_multicast_v4(&GROUP, &Ipv4Addr::new(10, 0, 0, 1)).unwrap();
        (member, sender)
    }
}

/// One body over both.
macro_rules! like_std {
    ($(fn $name:ident($net:ident) $body:block)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn std() {
                let $net = Kernel::new();
                within(move || $body);
            }

            #[test]
            fn heddle() {
                let $net = Heddle::new();
                within(move || $body);
            }
        }
    )*};
}

like_std! {
    fn addresses_of_a_connection(net) {
        let listener = net.listen();
        let client = net.connect(listener.local_addr().unwrap());
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(server.peer_addr().unwrap(), peer);
        assert_eq!(client.peer_addr().unwrap(), listener.local_addr().unwrap());
        assert_eq!(server.local_addr().unwrap(), listener.local_addr().unwrap());
        assert!(listener.take_error().unwrap().is_none());
        assert!(client.take_error().unwrap().is_none());
    }

    fn a_refused_connection(net) {
        assert_eq!(net.refused().kind(), ErrorKind::ConnectionRefused);
    }

    fn incoming_connections(net) {
        let listener = net.listen();
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(net.connect(listener.local_addr().unwrap()));
        }
        // Flows that arrive by different queues are accepted in any order.
        let accepted: BTreeSet<_> =
            listener.incoming().take(3).map(|stream| stream.unwrap().peer_addr().unwrap()).collect();
        assert_eq!(accepted, clients.iter().map(|client| client.local_addr().unwrap()).collect());
    }

    fn a_listener_without_connections_would_block(net) {
        let listener = net.listen();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let other = listener.try_clone().unwrap();
        assert_eq!(other.local_addr().unwrap(), listener.local_addr().unwrap());
        listener.set_nonblocking(false).unwrap();
        let client = net.connect(other.local_addr().unwrap());
        assert_eq!(other.accept().unwrap().1, client.local_addr().unwrap());
    }

    fn options_of_a_connection(net) {
        let listener = net.listen();
        let client = net.connect(listener.local_addr().unwrap());
        assert!(!client.nodelay().unwrap());
        client.set_nodelay(true).unwrap();
        assert!(client.nodelay().unwrap());
        assert_eq!(client.ttl().unwrap(), 64);
        client.set_ttl(7).unwrap();
        assert_eq!(client.ttl().unwrap(), 7);
        for wrong in [0, 256] {
            assert_eq!(client.set_ttl(wrong).unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
        }
        assert_eq!((client.read_timeout().unwrap(), client.write_timeout().unwrap()), (None, None));
        client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        client.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
        assert_eq!(client.read_timeout().unwrap(), Some(Duration::from_secs(2)));
        assert_eq!(client.write_timeout().unwrap(), Some(Duration::from_secs(3)));
        assert_eq!(client.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(client.set_write_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
        client.set_read_timeout(None).unwrap();
        assert_eq!(client.read_timeout().unwrap(), None);
    }

    fn reads_that_time_out(net) {
        let listener = net.listen();
        let mut client = net.connect(listener.local_addr().unwrap());
        let (_server, _) = listener.accept().unwrap();
        client.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(client.peek(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        client.set_read_timeout(None).unwrap();
        client.set_nonblocking(true).unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(client.peek(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    fn what_was_looked_at_is_read_again(net) {
        let listener = net.listen();
        let mut client = net.connect(listener.local_addr().unwrap());
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"hello").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(client.peek(&mut buffer[..2]).unwrap(), 2);
        assert_eq!(&buffer[..2], b"he");
        assert_eq!(client.peek(&mut buffer).unwrap(), 5, "all that is there");
        server.write_all(b" world").unwrap();
        // Later data is seen too; the two may arrive separately.
        while client.peek(&mut buffer).unwrap() < 11 {}
        assert_eq!(&buffer[..11], b"hello world");
        let mut clone = client.try_clone().unwrap();
        clone.read_exact(&mut buffer[..6]).unwrap();
        assert_eq!(&buffer[..6], b"hello ");
        assert_eq!(client.peek(&mut buffer).unwrap(), 5);
        assert_eq!(client.read(&mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"world");
        drop(server);
        assert_eq!(client.peek(&mut buffer).unwrap(), 0, "the end");
        assert_eq!(client.read(&mut buffer).unwrap(), 0);
    }

    fn several_buffers_are_written_and_filled_in_order(net) {
        let listener = net.listen();
        let mut client = net.connect(listener.local_addr().unwrap());
        let (mut server, _) = listener.accept().unwrap();
        let parts = [b"he".as_slice(), b"", b"l", b"lo, world"].map(IoSlice::new);
        assert_eq!(client.write_vectored(&parts).unwrap(), 12);
        let (mut one, mut none, mut two, mut rest) = ([0; 1], [0; 0], [0; 3], [0; 20]);
        let mut buffers = [&mut one[..], &mut none, &mut two, &mut rest].map(IoSliceMut::new);
        assert_eq!(server.read_vectored(&mut buffers).unwrap(), 12, "not only the first buffer");
        assert_eq!((&one, &two, &rest[..8]), (b"h", b"ell", b"o, world".as_slice()));
        client.write_all(b"again").unwrap();
        let mut buffers = [&mut none[..], &mut two].map(IoSliceMut::new);
        assert_eq!(server.read_vectored(&mut buffers).unwrap(), 3);
        assert_eq!(server.read(&mut rest).unwrap(), 2, "what did not fit is read next");
        assert_eq!((&two, &rest[..2]), (b"aga", b"in".as_slice()));
        assert_eq!(server.read_vectored(&mut []).unwrap(), 0, "and does not wait");
        assert_eq!(server.read_vectored(&mut [IoSliceMut::new(&mut none)]).unwrap(), 0);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.read_vectored(&mut [IoSliceMut::new(&mut rest)]).unwrap(), 0, "the end");
    }

    fn shutdown_ends_one_direction(net) {
        let listener = net.listen();
        let mut client = net.connect(listener.local_addr().unwrap());
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"last words").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut came = Vec::new();
        server.read_to_end(&mut came).unwrap();
        assert_eq!(came, b"last words");
        server.write_all(b"answer").unwrap();
        drop(server);
        came.clear();
        client.read_to_end(&mut came).unwrap();
        assert_eq!(came, b"answer");
    }

    fn datagrams_between_sockets(net) {
        let (one, two) = net.datagrams();
        let (first, second) = (one.local_addr().unwrap(), two.local_addr().unwrap());
        assert_eq!(one.send_to(b"question", second).unwrap(), 8);
        let mut buffer = [0; 16];
        assert_eq!(two.peek_from(&mut buffer[..3]).unwrap(), (3, first), "a look takes nothing, even where it cuts");
        assert_eq!(two.peek_from(&mut buffer).unwrap(), (8, first));
        assert_eq!(two.recv_from(&mut buffer).unwrap(), (8, first));
        assert_eq!(&buffer[..8], b"question");
        assert_eq!(two.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        two.connect(first).unwrap();
        one.connect(second).unwrap();
        assert_eq!(two.peer_addr().unwrap(), first);
        assert_eq!(two.send(b"answer").unwrap(), 6);
        assert_eq!(two.send(b"").unwrap(), 0);
        let other = one.try_clone().unwrap();
        assert_eq!(other.peek(&mut buffer).unwrap(), 6);
        assert_eq!(one.recv(&mut buffer).unwrap(), 6);
        assert_eq!(&buffer[..6], b"answer");
        assert_eq!(other.recv(&mut buffer).unwrap(), 0, "a datagram may be empty");
    }

    fn options_of_a_datagram_socket(net) {
        let (one, _two) = net.datagrams();
        assert_eq!((one.read_timeout().unwrap(), one.write_timeout().unwrap()), (None, None));
        one.set_read_timeout(Some(SHORT)).unwrap();
        one.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
        assert!(one.read_timeout().unwrap().unwrap() >= SHORT, "the kernel counts in ticks");
        assert_eq!(one.write_timeout().unwrap(), Some(Duration::from_secs(3)));
        assert_eq!(one.recv_from(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(one.peek_from(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(one.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
        one.set_read_timeout(None).unwrap();
        one.set_nonblocking(true).unwrap();
        assert_eq!(one.recv_from(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(one.multicast_ttl_v4().unwrap(), 1);
        one.set_multicast_ttl_v4(3).unwrap();
        assert_eq!(one.multicast_ttl_v4().unwrap(), 3);
        assert_eq!(one.ttl().unwrap(), 64);
        one.set_ttl(7).unwrap();
        assert_eq!(one.ttl().unwrap(), 7);
        for wrong in [0, 256] {
            assert_eq!(one.set_ttl(wrong).unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
        }
        assert_eq!((one.ttl().unwrap(), one.multicast_ttl_v4().unwrap()), (7, 3));
        assert!(one.take_error().unwrap().is_none());
    }

    fn the_error_of_a_datagram_is_taken_once(net) {
        let (one, two) = net.datagrams();
        let gone = two.local_addr().unwrap();
        drop(two);
        one.connect(gone).unwrap();
        assert_eq!(one.send(b"anybody there?").unwrap(), 14);
        let mut taken = None;
        // The answer comes from another host, or a substitute for one.
        while taken.is_none() {
            taken = one.take_error().unwrap();
        }
        assert_eq!(taken.unwrap().kind(), ErrorKind::ConnectionRefused);
        assert!(one.take_error().unwrap().is_none());
        one.set_nonblocking(true).unwrap();
        assert_eq!(one.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock, "and by no other call");
    }

    fn datagrams_to_a_group_come_back_to_its_members(net) {
        let (member, sender) = net.member_and_sender();
        let to = SocketAddr::new(GROUP.into(), member.local_addr().unwrap().port());
        assert!(sender.multicast_loop_v4().unwrap());
        let mut buffer = [0; 16];
        for data in [b"one".as_slice(), b"", b"three"] {
            assert_eq!(sender.send_to(data, to).unwrap(), data.len());
            assert_eq!(member.recv_from(&mut buffer).unwrap(), (data.len(), sender.local_addr().unwrap()));
            assert_eq!(&buffer[..data.len()], data);
        }
        sender.set_multicast_loop_v4(false).unwrap();
        assert!(!sender.multicast_loop_v4().unwrap());
        assert!(member.multicast_loop_v4().unwrap(), "each socket has its own");
        sender.set_multicast_loop_v4(true).unwrap();
        assert!(sender.multicast_loop_v4().unwrap());
        // Of the other family, which the socket cannot use.
        assert!(sender.multicast_loop_v6().is_err() && sender.set_multicast_loop_v6(false).is_err());
    }

    fn connections_inherit_what_their_listener_says(net) {
        let listener = net.listen();
        assert_eq!(listener.ttl().unwrap(), 64);
        listener.set_ttl(9).unwrap();
        assert_eq!(listener.ttl().unwrap(), 9);
        for wrong in [0, 256] {
            assert_eq!(listener.set_ttl(wrong).unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
        }
        let client = net.connect(listener.local_addr().unwrap());
        let (server, _) = listener.accept().unwrap();
        assert_eq!((server.ttl().unwrap(), client.ttl().unwrap()), (9, 64));
        listener.set_ttl(10).unwrap();
        assert_eq!(server.ttl().unwrap(), 9);
    }

    fn a_broadcast_must_be_allowed(net) {
        let (one, _two) = net.datagrams();
        assert!(!one.broadcast().unwrap());
        let refused = one.send_to(b"all", net.broadcast()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert_eq!(one.connect(net.broadcast()).unwrap_err().kind(), ErrorKind::PermissionDenied);
        one.set_broadcast(true).unwrap();
        assert!(one.broadcast().unwrap());
        assert_eq!(one.send_to(b"all", net.broadcast()).unwrap(), 3);
    }
}
