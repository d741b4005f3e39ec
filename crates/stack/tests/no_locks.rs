//! One thread owns the stack, or the flows that it polls: arrivals, user calls and transmissions take no lock of any
//! class and execute no read-modify-write. Counted by the lock profile and by a platform that counts atomic operations
//! ([`testbed::counting`]), over both families.
//!
//! Connections are open before anything is counted here. `no_locks/internet.rs` counts for the work of IP itself.

#[path = "no_locks/internet.rs"]
mod internet;

use std::net::SocketAddr;
use std::sync::Arc;

use every_arch::every_arch;
use pktbuf::PktBuf;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::handler::{Conn, ConnectionHandler};
use stack::socket::{ListenerShared, PollSet, Readiness, TcpSocket, UdpShared};
use sync::LockClass;
use testbed::counting::{Counting, Spent, spent};
use testbed::frames::{self, Datagram, Ends, ISS, Segment, TcpOptions, tcp_of};
use testbed::node::{Node, NodeConfig, received, send};
use wire::tcp::TcpFlags;

const PORT: u16 = 80;
/// Uncounted rounds at the start: tables and queues then have their final size.
const WARM: u32 = 4;
/// Counted rounds.
const ROUNDS: u32 = 8;

/// A node whose peer is known.
fn node(arch: Architecture) -> Node<Counting> {
    let mut node = Node::<Counting>::with_known_peer(NodeConfig::new(arch));
    node.exchange(&frames::neighbour_solicitation());
    node
}

/// A connection, and the peer's end of it.
struct Echo {
    ends: Ends,
    socket: Arc<TcpSocket<Counting>>,
    /// Bytes that the peer has sent, and its acknowledgement number.
    sent: u32,
    acknowledged: u32,
    /// The user finds out by this set.
    set: Option<Arc<PollSet<Counting>>>,
}

impl Echo {
    fn open(node: &mut Node<Counting>, ends: Ends) -> Echo {
        let listener = node.listen(PORT, 8);
        let most = TcpOptions::new(&[2, 4, 0x05, 0x78]);
        let answers = node.exchange(&Segment::syn(2000, PORT).options(most).frame_over(ends));
        let acknowledged = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
        let mut segment = Echo::segment(ends, 0, acknowledged, b"");
        segment.flags = TcpFlags::ACK;
        node.exchange(&segment.frame_over(ends));
        Echo { ends, socket: listener.accept().expect("a child waits"), sent: 0, acknowledged, set: None }
    }

    fn segment(_: Ends, at: u32, ack: u32, data: &[u8]) -> Segment<'_> {
        let seq = ISS.wrapping_add(1).wrapping_add(at);
        Segment { data, ..Segment::ack((2000, PORT), seq, ack) }.and(TcpFlags::PSH)
    }

    /// A segment arrives; its user is notified, reads it, finds no more, and writes an answer, which is sent.
    fn round(&mut self, node: &mut Node<Counting>) -> Spent {
        node.put(&Self::segment(self.ends, self.sent, self.acknowledged, b"question").frame_over(self.ends));
        let events = &mut Vec::with_capacity(8);
        let ((), spent) = spent(|| {
            assert_eq!(node.driver.poll(), 1);
            self.set.iter().for_each(|set| assert_eq!(set.try_wait(events, 8), 1));
            assert!(self.socket.ready.get().contains(Readiness::READABLE));
            let receive = || node.call(&self.socket, Call::Receive(tcp::Receive { max: 100 }));
            assert_eq!(received(receive()).expect("data").0, b"question");
            assert_eq!(received(receive()), None);
            assert!(!self.socket.ready.get().contains(Readiness::READABLE));
            assert!(matches!(node.call(&self.socket, send(b"answer")), Reply::Sent(Ok(_))));
        });
        self.sent += 8;
        let frames = node.settle();
        let answer = frames.iter().filter_map(|frame| tcp_of(frame)).next_back().expect("an answer");
        assert_eq!(answer.1, b"answer");
        self.acknowledged = answer.0.seq.0.wrapping_add(6);
        spent
    }
}

/// Returns the data that it receives, in the cell.
struct Answer;

impl ConnectionHandler<Counting> for Answer {
    fn data(&mut self, conn: &mut Conn<'_, Counting>, data: PktBuf) {
        assert_eq!(&data[..], b"question");
        assert_eq!(conn.send(b"answer"), Ok(6));
    }
}

/// A segment arrives, and its connection's handler answers it.
#[every_arch(only(up, shared_nothing, connp_t_lwkt))]
fn the_owners_handlers_take_no_lock_and_no_read_modify_write(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let any = "[::]:80".parse().expect("an address");
        let make = |_: &_| Box::new(Answer) as Box<dyn ConnectionHandler<Counting>>;
        let _listener = node.stack.listen_with_handlers(any, 8, Default::default(), make).expect("the port is free");
        let most = TcpOptions::new(&[2, 4, 0x05, 0x78]);
        let answers = node.exchange(&Segment::syn(2000, PORT).options(most).frame_over(ends));
        let mut acknowledged = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
        let mut opening = Echo::segment(ends, 0, acknowledged, b"");
        opening.flags = TcpFlags::ACK;
        node.exchange(&opening.frame_over(ends));
        for round in 0..WARM + ROUNDS {
            node.put(&Echo::segment(ends, 8 * round, acknowledged, b"question").frame_over(ends));
            let ((), spent) = spent(|| assert_eq!(node.driver.poll(), 1));
            assert!(round < WARM || spent == Spent::NOTHING, "{spent:?}");
            let frames = node.settle();
            let sent: Vec<_> = frames.iter().filter_map(|frame| tcp_of(frame)).collect();
            let [(header, b"answer")] = sent[..] else { panic!("one answer, and not {sent:?}") };
            acknowledged = header.seq.0.wrapping_add(6);
        }
    }
}

/// A datagram arrives; its user is notified, takes it, finds no more, and answers.
fn datagram_round(node: &mut Node<Counting>, socket: &UdpShared<Counting>, ends: Ends) -> Spent {
    node.put(&Datagram::new(2000, PORT, b"question").frame_over(ends));
    let ((), spent) = spent(|| {
        assert_eq!(node.driver.poll(), 1);
        assert!(socket.ready.get().contains(Readiness::READABLE));
        assert_eq!(&*node.stack.receive_udp(socket).expect("a datagram").buf, b"question");
        assert_eq!(node.stack.receive_udp(socket).err(), Some(udp::ReceiveError::WouldBlock));
        assert!(!socket.ready.get().contains(Readiness::READABLE));
        let answer = PktBuf::from_slice(b"answer").expect("a packet buffer");
        assert_eq!(node.stack.send_udp(socket, answer, Some(SocketAddr::new(ends.src, 2000))), Ok(6));
    });
    let sent = node.settle();
    assert!(sent.len() == 1 && sent[0].ends_with(b"answer"), "{sent:?}");
    spent
}

#[every_arch(only(up, shared_nothing, connp_t_lwkt))]
fn the_owners_echo_over_tcp_takes_no_lock_and_no_read_modify_write(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let mut echo = Echo::open(&mut node, ends);
        (0..WARM).for_each(|_| drop(echo.round(&mut node)));
        for _ in 0..ROUNDS {
            assert_eq!(echo.round(&mut node), Spent::NOTHING);
        }
    }
}

/// The poll set's lock is reserved for the thread that causes the edges and takes the events, after some uses.
#[every_arch(only(up, shared_nothing, connp_t_lwkt))]
fn the_owners_watched_echo_takes_the_poll_sets_lock_and_no_read_modify_write(arch: Architecture) {
    const UNTIL_RESERVED: u32 = 40;
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let mut echo = Echo::open(&mut node, ends);
        let set = PollSet::new(false).expect("a set without a descriptor");
        echo.socket.ready.register(&echo.socket, &set, 0);
        set.try_wait(&mut Vec::new(), 8);
        echo.set = Some(set);
        (0..UNTIL_RESERVED).for_each(|_| drop(echo.round(&mut node)));
        let expected = Spent { locks: vec![(LockClass::SocketBuffer, 2)], ..Spent::NOTHING };
        for _ in 0..ROUNDS {
            assert_eq!(echo.round(&mut node), expected);
        }
    }
}

#[every_arch(only(up, shared_nothing, connp_t_lwkt))]
fn the_owners_echo_over_udp_takes_no_lock_and_no_read_modify_write(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let socket = node.stack.bind_udp(SocketAddr::new(ends.dst, PORT)).expect("the port is free");
        (0..WARM).for_each(|_| drop(datagram_round(&mut node, &socket, ends)));
        for _ in 0..ROUNDS {
            assert_eq!(datagram_round(&mut node, &socket, ends), Spent::NOTHING);
        }
    }
}

/// A user that calls accept repeatedly takes no lock, so it does not delay arriving connections. A connection that has
/// arrived is found, even by a call before the listener's notification.
#[every_arch]
fn to_accept_where_no_connection_waits_takes_no_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let listener = node.listen(PORT, 8);
        let nothing = |listener: &ListenerShared<Counting>| {
            let (accepted, spent) = spent(|| listener.accept());
            assert!(accepted.is_none() && spent == Spent::NOTHING, "{spent:?}");
        };
        nothing(&listener);
        for round in 0..2 {
            let from = 2000 + round;
            let answers = node.exchange(&Segment::syn(from, PORT).frame_over(ends));
            nothing(&listener);
            let next = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
            node.exchange(&Segment::ack((from, PORT), ISS.wrapping_add(1), next).frame_over(ends));
            assert!(listener.ready.get().contains(Readiness::ACCEPTABLE));
            let (accepted, spent) = spent(|| listener.accept());
            assert!(accepted.is_some());
            assert!(spent.locks.iter().any(|(class, _)| *class == LockClass::AcceptQueue), "{spent:?}");
            nothing(&listener);
        }
        // The readiness of a connection that another thread took first is cleared, once.
        listener.ready.raise(Readiness::ACCEPTABLE);
        assert!(listener.accept().is_none() && listener.ready.get().is_empty());
        nothing(&listener);
    }
}

/// `adaptive` pays for exclusion in a group that is shared, and not in one that is at home, once its thread has claimed the transmit queue.
#[test]
fn a_group_at_home_takes_no_lock_and_no_read_modify_write() {
    /// More than the windows until a claim have entries.
    const MOST: usize = 20_000;
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(Architecture::named("adaptive"));
        let mut echo = Echo::open(&mut node, ends);
        assert_ne!(echo.round(&mut node), Spent::NOTHING);
        let is_claimed = |node: &Node<Counting>| node.stack.queue_claims().iter().any(|claims| claims.since.is_some());
        let rounds = (0..MOST).take_while(|_| {
            echo.round(&mut node);
            !is_claimed(&node)
        });
        assert!(rounds.count() < MOST, "{:?}", node.stack.decisions());
        for _ in 0..ROUNDS {
            assert_eq!(echo.round(&mut node), Spent::NOTHING);
        }
    }
}

/// The counters work: where threads share the stack, the same echo takes locks.
#[every_arch(except(up, shared_nothing, connp_t_lwkt))]
fn others_pay_for_what_they_share(arch: Architecture) {
    let ends = Ends::PEER_TO_STACK;
    let mut node = node(arch);
    let mut echo = Echo::open(&mut node, ends);
    let spent = echo.round(&mut node);
    assert!(spent.read_modify_writes > 0, "{spent:?}");
    assert!(spent.locks.iter().any(|(class, _)| *class == LockClass::DeviceTx), "{spent:?}");
}
