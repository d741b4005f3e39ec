//! The channel between a connection's user and the thread that owns the connection: its cost, and that its user
//! observes the same as a user that makes calls. The architecture has its own threads; the test's thread receives for
//! it, is the peer, and is the user.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use every_arch::every_arch;
use pktbuf::Chunk;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::channel::Channel;
use stack::socket::{Readiness, TcpSocket};
use sync::profile::{ProfileTable, ThreadCounters};
use sync::walk::{WalkStep, record};
use sync::{LockKind, Platform, Real, Step, ThreadClass};
use tcp::{Chunks, Received};
use testbed::frames::{Ends, ISS, Segment, TcpOptions, neighbour_solicitation, tcp_of};
use testbed::node::{Node, NodeConfig};
use wire::tcp::TcpFlags;

const PORT: u16 = 80;
const PEER_PORT: u16 = 2000;
const BUFFER: u32 = 16 << 10;
/// The timestamps option of the peer's segments. Its clock stands still.
const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0];

static PROFILE: ProfileTable<Awake> = ProfileTable::new();
static FUTEX_CALLS: AtomicU64 = AtomicU64::new(0);
static EVENTS: AtomicU64 = AtomicU64::new(0);

/// The real machine under a load that never ends: a thread that waits for another takes turns until it is answered. It
/// counts messages, wake-ups, the calls that would enter the kernel, and the events of TCP.
#[derive(Clone, Copy, Debug, Default)]
struct Awake;

impl Platform for Awake {
    const TURNS_BEFORE_SLEEP: u32 = u32::MAX;
    const CHARGED: bool = true;
    type Cell<T> = <Real as Platform>::Cell<T>;
    sync::forward_platform!(Real: atomics doorbell spawn join spin now random thread fences held);

    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        FUTEX_CALLS.fetch_add(1, Ordering::Relaxed);
        Real::futex_wait(atom, expected, timeout);
    }
    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        FUTEX_CALLS.fetch_add(1, Ordering::Relaxed);
        Real::futex_wake(atom, n);
    }
    fn work(step: Step, n: usize) {
        if step == Step::Event {
            EVENTS.fetch_add(n as u64, Ordering::Relaxed);
        }
    }
    fn lock_counters() -> Option<&'static ThreadCounters> {
        Some(PROFILE.slot(Awake::thread_index()))
    }
}

/// A connection with its user's channel, and its peer.
struct User<P: Platform> {
    node: Node<P>,
    ends: Ends,
    socket: Arc<TcpSocket<P>>,
    channel: Box<Channel<P>>,
    /// The peer's next sequence number and acknowledgement.
    seq: u32,
    ack: u32,
}

impl<P: Platform> User<P> {
    fn new(arch: Architecture, ends: Ends) -> User<P> {
        User::with_buffers(BUFFER, arch, ends)
    }

    fn with_buffers(bytes: u32, arch: Architecture, ends: Ends) -> User<P> {
        // A lock of this kind never sleeps, so that only the hand-off can.
        let lock_kind = Some(LockKind::Ttas);
        let mut config = NodeConfig { cpus: 2, own_threads: true, lock_kind, ..NodeConfig::new(arch) };
        config.tcp.send_buffer.initial = bytes;
        config.tcp.send_buffer.max = bytes;
        config.tcp.receive_buffer.initial = bytes;
        config.tcp.receive_buffer.max = bytes;
        let mut node = Node::<P>::with_known_peer(config);
        node.exchange(&neighbour_solicitation());
        let listener = node.listen(PORT, 4);
        let answers =
            node.exchange(&Segment::syn(PEER_PORT, PORT).options(TcpOptions::new(&TIMESTAMPS)).frame_over(ends));
        let ack = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
        let seq = ISS.wrapping_add(1);
        let established = Segment { window: 60_000, ..Segment::ack((PEER_PORT, PORT), seq, ack) };
        node.exchange(&established.options(TcpOptions::new(&TIMESTAMPS)).frame_over(ends));
        let socket = listener.accept().expect("a child waits");
        let channel = node.stack.open_channel(&socket).expect("another thread owns the connection");
        node.settle();
        User { node, ends, socket, channel, seq, ack }
    }

    /// The peer's next segment.
    fn frame(&mut self, flags: TcpFlags, data: &[u8]) -> Vec<u8> {
        let segment = Segment { data, window: 60_000, ..Segment::ack((PEER_PORT, PORT), self.seq, self.ack) };
        self.seq = self.seq.wrapping_add(data.len() as u32);
        segment.and(flags).options(TcpOptions::new(&TIMESTAMPS)).frame_over(self.ends)
    }

    /// The peer sends its next segment; returns the stack's.
    fn peer(&mut self, flags: TcpFlags, data: &[u8]) -> Vec<Vec<u8>> {
        let frame = self.frame(flags, data);
        let sent = self.node.exchange(&frame);
        self.heard(&sent);
        sent
    }

    /// The peer acknowledges the data of these frames in its next segment; returns the data.
    fn heard(&mut self, frames: &[Vec<u8>]) -> Vec<u8> {
        let mut all = Vec::new();
        for (header, data) in frames.iter().filter_map(|frame| tcp_of(frame)) {
            if header.seq.0 == self.ack {
                self.ack = self.ack.wrapping_add(data.len() as u32);
                all.extend_from_slice(data);
            }
        }
        all
    }

    fn send(&self, data: &[u8]) -> Option<Result<usize, tcp::Error>> {
        let mut send = tcp::Send { chunks: Chunks::from_buf([Chunk::shared(data.into())]) };
        let sent = self.node.stack.send_over(&self.channel, &self.socket, &mut send);
        if let Some(Ok(accepted)) = sent {
            assert_eq!(accepted + send.chunks.iter().map(Chunk::len).sum::<usize>(), data.len(), "no byte is lost");
        }
        sent
    }

    /// The data of one receive, and whether the stream has ended.
    fn receive(&self, max: usize) -> Result<(Vec<u8>, bool), tcp::Error> {
        let mut received = Received::default();
        let event = tcp::Receive { max };
        match self.node.stack.receive_over(&self.channel, &self.socket, event, &mut received) {
            Some(Ok(())) => Ok((received.data.iter().flat_map(|data| data.to_vec()).collect(), received.end)),
            Some(Err(error)) => Err(error),
            None => panic!("the connection is gone"),
        }
    }

    fn is(&self, bits: Readiness) -> bool {
        self.socket.ready.get().contains(bits)
    }
}

/// Issue 12: "RPC: at most 4 messages and no futex call per RPC under load". A request costs two at each end: the segment
/// and the data that is posted.
#[every_arch(only(connp_t, connp_t_spsc))]
fn a_request_costs_two_messages_at_each_end_and_no_futex_call(arch: Architecture) {
    const REQUESTS: u64 = 100;
    for ends in Ends::BOTH_FAMILIES {
        let (messages, wakes, futex_calls) = Awake::spawn_and_count(move || {
            let mut user = User::<Awake>::new(arch, ends);
            let before = (PROFILE.handoffs(), FUTEX_CALLS.load(Ordering::Relaxed));
            for _ in 0..REQUESTS {
                user.peer(TcpFlags::PSH, &[b'q'; 64]);
                assert_eq!(user.receive(100), Ok((vec![b'q'; 64], false)));
                assert_eq!(user.receive(100), Err(tcp::Error::WouldBlock));
                assert_eq!(user.send(&[b'a'; 64]), Some(Ok(64)));
                let sent = user.node.settle();
                assert_eq!(user.heard(&sent), [b'a'; 64]);
            }
            let (profile, calls) = (PROFILE.handoffs(), FUTEX_CALLS.load(Ordering::Relaxed));
            (profile.handoffs - before.0.handoffs, profile.wakes_sent - before.0.wakes_sent, calls - before.1)
        });
        assert_eq!((messages, wakes, futex_calls), (2 * REQUESTS, 0, 0), "{ends:?}");
    }
}

impl Awake {
    /// Runs `body` where nothing else counts: one test at a time.
    fn spawn_and_count<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
        static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (give, take) = std::sync::mpsc::channel();
        let thread = Awake::spawn("user", None, ThreadClass::Application, move || {
            give.send(body()).expect("the test waits");
        });
        Awake::join(thread).expect("the user ends well");
        take.recv().expect("the user has ended")
    }
}

/// Posted data leaves before a FIN that is requested later, in the order in which it was posted; later data is refused.
#[every_arch(only(connp_t, connp_t_spsc))]
fn posted_data_keeps_its_place_before_the_calls_after_it(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        for piece in [&b"one "[..], b"two ", b"three"] {
            assert_eq!(user.send(piece), Some(Ok(piece.len())));
        }
        user.channel.end_sending();
        let shut = user.node.call(&user.socket, Call::Shutdown(tcp::Shutdown::Write));
        assert!(matches!(shut, Reply::ShutDown(Ok(()))));
        let mut sent = user.node.settle();
        let mut data = user.heard(&sent);
        // Small segments wait for the acknowledgement of the first.
        while data.len() < 13 {
            sent = user.peer(TcpFlags::ACK, b"");
            let before = data.len();
            data.extend(sent.iter().filter_map(|frame| tcp_of(frame)).flat_map(|(_, data)| data.to_vec()));
            assert!(data.len() > before, "nothing more is sent: {data:?}");
        }
        assert_eq!(data, b"one two three");
        let (last, _) = sent.iter().filter_map(|frame| tcp_of(frame)).next_back().expect("a segment");
        assert!(last.flags.contains(TcpFlags::FIN), "the FIN follows the data");
        assert_eq!(user.send(b"late"), Some(Err(tcp::Error::Shutdown)));
    }
}

/// The credit is the room in the send buffer: without any, nothing is taken and the socket is not writable, until
/// acknowledgements have made room. Everything that was taken arrives once.
#[every_arch(only(connp_t, connp_t_spsc))]
fn a_sender_without_credit_becomes_writable_when_data_is_acknowledged(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        let stream: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut taken, mut arrived, mut stalls) = (0, Vec::new(), 0);
        while arrived.len() < stream.len() {
            while taken < stream.len() {
                let piece = &stream[taken..stream.len().min(taken + 3000)];
                let accepted = user.send(piece).expect("there").expect("no failure");
                taken += accepted;
                let sent = user.node.settle();
                arrived.extend(user.heard(&sent));
                // A run that was begun within the limit may be filled (`SendAccounting::Runs`).
                assert!(taken - arrived.len() <= BUFFER as usize + 65_215, "more is taken than there is room for");
                if accepted < piece.len() {
                    break;
                }
            }
            if taken < stream.len() {
                stalls += 1;
            }
            assert!(stalls < 1000, "a writable socket takes no data");
            let sent = user.peer(TcpFlags::ACK, b"");
            arrived.extend(sent.iter().filter_map(|frame| tcp_of(frame)).flat_map(|(_, data)| data.to_vec()));
            while taken < stream.len() && !user.is(Readiness::WRITABLE) {
                let sent = user.peer(TcpFlags::ACK, b"");
                let more = !sent.is_empty() || user.is(Readiness::WRITABLE);
                assert!(more, "all is acknowledged, and the socket is not writable");
                arrived.extend(sent.iter().filter_map(|frame| tcp_of(frame)).flat_map(|(_, data)| data.to_vec()));
            }
        }
        assert!(stalls > 1, "the buffer was full {stalls} times");
        assert_eq!(arrived, stream);
    }
}

/// DragonFly's sends are asynchronous: a user without credit is refused at once. It asks for room by one message, however often
/// it tries, and becomes writable when there is some.
#[every_arch(only(connp_t, connp_t_spsc))]
fn a_sender_without_credit_does_not_wait_for_the_owner(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (messages, accepted) = Awake::spawn_and_count(move || {
            let mut user = User::<Awake>::new(arch, ends);
            let (mut messages, mut accepted) = (Vec::new(), usize::MAX);
            while accepted > 0 || messages.len() < 5 {
                let before = PROFILE.handoffs().handoffs;
                let (sent, walk) = record(|| user.send(&[1; 3000]));
                accepted = sent.expect("there").expect("no failure");
                assert!(!waits(&walk), "{accepted} bytes accepted");
                if accepted == 0 {
                    messages.push(PROFILE.handoffs().handoffs - before);
                    assert!(!user.is(Readiness::WRITABLE));
                }
                let sent = user.node.settle();
                user.heard(&sent);
            }
            while !user.is(Readiness::WRITABLE) {
                let sent = user.peer(TcpFlags::ACK, b"");
                assert!(
                    !sent.is_empty() || user.is(Readiness::WRITABLE),
                    "all is acknowledged, and it is not writable"
                );
            }
            (messages, user.send(&[2; 3000]))
        });
        assert_eq!((&messages[..], accepted), (&[1, 0, 0, 0, 0][..], Some(Ok(3000))), "{ends:?}");
    }
}

/// Whether the thread has waited for an answer.
fn waits(walk: &[WalkStep]) -> bool {
    walk.iter().any(|step| matches!(step, WalkStep::Note { text, .. } if text.starts_with("the caller waits")))
}

/// The grant is a count of bytes that grows with what was appended: a user never waits for the owner while the connection has room,
/// however much it has sent before.
#[every_arch(only(connp_t, connp_t_spsc))]
fn a_user_whose_data_is_acknowledged_never_waits_for_the_owner(arch: Architecture) {
    const PIECE: usize = 1000;
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        for _ in 0..3 * BUFFER as usize / PIECE {
            let (sent, walk) = record(|| user.send(&[7; PIECE]));
            assert_eq!((sent, waits(&walk)), (Some(Ok(PIECE)), false));
            let sent = user.node.settle();
            user.heard(&sent);
            user.peer(TcpFlags::ACK, b"");
        }
        let call = || user.node.call(&user.socket, Call::Receive(tcp::Receive { max: 1 }));
        assert!(waits(&record(call).1), "the caller waits");
    }
}

/// The events of TCP for an acknowledgement that acknowledges nothing.
fn events_of_an_acknowledgement(user: &mut User<Awake>) -> u64 {
    let before = EVENTS.load(Ordering::Relaxed);
    user.peer(TcpFlags::ACK, b"");
    EVENTS.load(Ordering::Relaxed) - before
}

/// While the window is small, the connection learns what its user has read, though all data is in the ring: the window opens. Once
/// all is read there is nothing to learn, and an acknowledgement costs as many events as before.
#[every_arch(only(connp_t, connp_t_spsc))]
fn a_user_that_reads_the_ring_opens_a_small_window(arch: Architecture) {
    const ROOM: u32 = 4096;
    for ends in Ends::BOTH_FAMILIES {
        let (window, [before, after]) = Awake::spawn_and_count(move || {
            let mut user = User::<Awake>::with_buffers(ROOM, arch, ends);
            let before = events_of_an_acknowledgement(&mut user);
            // Fills the ring, and leaves nothing in the connection.
            (0..4).for_each(|_| _ = user.peer(TcpFlags::PSH, &[b'q'; 1000]));
            let mut window = None;
            for _ in 0..4 {
                assert_eq!(user.receive(1000), Ok((vec![b'q'; 1000], false)));
                let sent = user.node.settle();
                window = sent
                    .iter()
                    .filter_map(|frame| tcp_of(frame))
                    .map(|(header, _)| header.window)
                    .next_back()
                    .or(window);
            }
            (window, [before, events_of_an_acknowledgement(&mut user)])
        });
        assert!(window.is_some_and(|window| u32::from(window) > ROOM / 2), "{window:?}");
        assert_eq!(before, after);
    }
}

/// Data and then the end of the stream; each piece once, in order; and no data left means not readable.
#[every_arch(only(connp_t, connp_t_spsc))]
fn what_was_received_is_taken_in_order_and_then_the_end(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        assert_eq!(user.receive(100), Err(tcp::Error::WouldBlock));
        assert!(!user.is(Readiness::READABLE));
        for piece in [&b"one "[..], b"two ", b"three"] {
            user.peer(TcpFlags::PSH, piece);
            assert!(user.is(Readiness::READABLE));
        }
        user.peer(TcpFlags::FIN | TcpFlags::ACK, b" four");
        let mut data = Vec::new();
        loop {
            let (piece, end) = user.receive(5).expect("data or the end");
            data.extend(piece);
            if end {
                break;
            }
        }
        assert_eq!(data, b"one two three four");
    }
}

/// A user that reads nothing closes the window, as without a channel; if it then reads, the window opens, and it gets
/// every byte.
#[every_arch(only(connp_t, connp_t_spsc))]
fn an_unread_ring_closes_the_window_and_reading_opens_it(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        let (mut sent, mut window) = (Vec::new(), BUFFER as usize);
        while window >= 1000 {
            let data = vec![(sent.len() / 1000) as u8; 1000];
            let answers = user.peer(TcpFlags::PSH, &data);
            sent.extend(data);
            let last = answers.iter().filter_map(|frame| tcp_of(frame)).next_back();
            window = last.map_or(window - 1000, |(header, _)| usize::from(header.window));
            assert!(sent.len() <= BUFFER as usize * 3 / 2, "data in the ring takes no room from the window");
        }
        let (mut data, mut opened) = (Vec::new(), false);
        while let Ok((piece, _)) = user.receive(4000) {
            data.extend(piece);
            let answers = user.node.settle();
            opened |= answers.iter().filter_map(|frame| tcp_of(frame)).any(|(header, _)| header.window > 1000);
        }
        assert!(opened, "reading opens the window");
        assert_eq!(data, sent);
        assert!(!user.is(Readiness::READABLE));
        user.peer(TcpFlags::PSH, b"more");
        assert_eq!(user.receive(4000), Ok((b"more".to_vec(), false)));
    }
}

/// The reason of a failure comes with the next call, once, after the data that was delivered before it.
#[every_arch(only(connp_t, connp_t_spsc))]
fn a_failure_comes_with_the_next_call(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        user.peer(TcpFlags::PSH, b"last");
        user.peer(TcpFlags::RST, b"");
        assert!(user.is(Readiness::CLOSED));
        assert_eq!(user.receive(100), Ok((b"last".to_vec(), false)));
        assert_eq!(user.receive(100), Err(tcp::Error::Reset));
        assert_eq!(user.send(b"x"), Some(Err(tcp::Error::NotConnected)));
    }
}

/// RFC 9293, 3.6.1: closing with unread data notifies the peer of the loss by a reset; data in a ring is no exception.
#[every_arch(only(connp_t, connp_t_spsc))]
fn closing_with_an_unread_ring_resets(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        for last in [TcpFlags::NONE, TcpFlags::FIN] {
            let mut user = User::<Real>::new(arch, ends);
            user.peer(TcpFlags::PSH | last, b"unread");
            user.node.call(&user.socket, Call::Close(tcp::Close));
            let sent = user.node.settle();
            let mut flags = sent.iter().filter_map(|frame| Some(tcp_of(frame)?.0.flags));
            assert!(flags.any(|flags| flags.contains(TcpFlags::RST)), "{last:?}");
        }
    }
}

/// Where nothing is unread, closing is orderly.
#[every_arch(only(connp_t, connp_t_spsc))]
fn closing_with_an_empty_ring_ends_the_stream(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        user.peer(TcpFlags::PSH, b"read");
        assert_eq!(user.receive(100), Ok((b"read".to_vec(), false)));
        user.node.call(&user.socket, Call::Close(tcp::Close));
        let sent = user.node.settle();
        let flags: Vec<TcpFlags> = sent.iter().filter_map(|frame| Some(tcp_of(frame)?.0.flags)).collect();
        assert!(flags.iter().any(|flags| flags.contains(TcpFlags::FIN)), "{flags:?}");
        assert!(!flags.iter().any(|flags| flags.contains(TcpFlags::RST)), "{flags:?}");
    }
}

/// The data of a segment is in the ring at the end of its batch, each time.
#[every_arch(only(connp_t, connp_t_spsc))]
fn each_segment_is_delivered_with_its_batch(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        for piece in [b"1", b"2", b"3", b"4", b"5", b"6"] {
            user.peer(TcpFlags::PSH, piece);
            assert!(user.is(Readiness::READABLE));
            assert_eq!(user.receive(100), Ok((piece.to_vec(), false)));
            assert_eq!(user.receive(100), Err(tcp::Error::WouldBlock));
        }
    }
}

/// Segments of a connection that wait in the device together are one message, and all their data is in the ring at the end of the batch.
#[every_arch(only(connp_t, connp_t_spsc))]
fn segments_that_arrive_together_are_one_message(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (messages, data) = Awake::spawn_and_count(move || {
            let mut user = User::<Awake>::new(arch, ends);
            let before = PROFILE.handoffs().handoffs;
            for piece in [b"one ", b"two ", b"last"] {
                let frame = user.frame(TcpFlags::PSH, piece);
                user.node.put(&frame);
            }
            user.node.settle();
            assert!(user.is(Readiness::READABLE));
            (PROFILE.handoffs().handoffs - before, user.receive(100))
        });
        assert_eq!((messages, data), (1, Ok((b"one two last".to_vec(), false))), "{ends:?}");
    }
}

/// A call does not overtake the ring: its user takes from there first. When that is empty, the connection answers.
#[every_arch(only(connp_t, connp_t_spsc))]
fn a_call_does_not_overtake_the_ring(arch: Architecture) {
    let receive = || Call::Receive(tcp::Receive { max: 100 });
    let peek = || Call::Peek(tcp::Peek { max: 100, follows_data: false });
    let in_order = || Call::ReceiveInOrder(tcp::ReceiveInOrder { max: 100 });
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        for piece in [b"1", b"2", b"3", b"4", b"5", b"6"] {
            user.peer(TcpFlags::PSH, piece);
        }
        // The ring has four items: the rest is still in the connection.
        let answer = user.node.call(&user.socket, receive());
        assert!(matches!(answer, Reply::Received(Err(tcp::Error::WouldBlock))));
        let answer = user.node.call(&user.socket, peek());
        assert!(matches!(answer, Reply::Peeked(Err(tcp::Error::WouldBlock))));
        let answer = user.node.call(&user.socket, in_order());
        assert!(matches!(answer, Reply::ReceivedInOrder(Err(tcp::Error::WouldBlock))));
        user.peer(TcpFlags::FIN, b"");
        let mut data = Vec::new();
        loop {
            let (piece, end) = user.receive(100).expect("data or the end");
            data.extend(piece);
            if end {
                break;
            }
        }
        assert_eq!(data, b"123456");
        let answer = user.node.call(&user.socket, peek());
        assert!(matches!(answer, Reply::Peeked(Ok(_))), "the end");
        let answer = user.node.call(&user.socket, in_order());
        assert!(matches!(answer, Reply::ReceivedInOrder(Ok(_))), "the end");
        let answer = user.node.call(&user.socket, receive());
        assert!(matches!(answer, Reply::Received(Ok(received)) if received.end));
    }
}

/// Data in the ring when the stack changes its architecture is read after the change, and posted data has been sent.
#[every_arch(only(connp_t, connp_t_spsc))]
fn a_change_of_architecture_loses_nothing(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::<Real>::new(arch, ends);
        user.peer(TcpFlags::PSH, b"before");
        assert_eq!(user.send(b"posted"), Some(Ok(6)));
        let sent = user.node.settle();
        assert_eq!(user.heard(&sent), b"posted");
        user.node.driver.rest();
        user.node.stack.switch(Architecture::named("connp-l:4")).expect("at rest");
        user.peer(TcpFlags::PSH, b" and after");
        let mut data = Vec::new();
        while let Ok((piece, _)) = user.receive(100) {
            data.extend(piece);
        }
        assert_eq!(data, b"before and after");
        assert_eq!(user.send(b"later"), Some(Ok(5)));
        let sent = user.node.settle();
        assert_eq!(user.heard(&sent), b"later");
    }
}
