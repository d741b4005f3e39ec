//! Invariants of every architecture that a single thread can show: a stale timer has no effect (G8), and a receiver of
//! an event may call back into the stack (G4: no lock is held, no thread waits for itself).

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use every_arch::every_arch;
use observe::Counter;
use stack::call::{Call, Reply};
use stack::place::connection::Connections;
use stack::place::locked::LockedConnection;
use stack::socket::readiness::Watch;
use stack::socket::{Readiness, TcpSocket};
use stack::{Architecture, Stack};
use sync::Real;
use testbed::frames::{Ends, ISS, PEER, STACK, Segment, neighbour_solicitation, tcp_of};
use testbed::limit::{HANG, within};
use testbed::node::{Node, NodeConfig, received, send};
use testbed::panicking::{MARK, PanickingDevice, mute};
use wire::tcp::TcpFlags;

const PORT: u16 = 80;

/// A connection to the peer at `peer`: its socket, and the stack's next sequence number.
fn open(node: &mut Node<Real>, peer: u16) -> (Arc<TcpSocket<Real>>, u32) {
    let listener = node.listen(PORT, 8);
    let answers = node.exchange(&Segment::syn(peer, PORT).frame());
    let theirs = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
    node.exchange(&segment(peer, 0, theirs, b"").frame());
    let socket = listener.accept().expect("a child waits");
    node.stack.unlisten(&listener);
    (socket, theirs)
}

/// The peer's data `at` bytes into its stream.
fn segment(peer: u16, at: u32, ack: u32, data: &[u8]) -> Segment<'_> {
    let seq = ISS.wrapping_add(1).wrapping_add(at);
    Segment { data, ..Segment::ack((peer, PORT), seq, ack) }.and(TcpFlags::PSH)
}

/// The retransmission timer of data that has been acknowledged is still in the wheel. It fires and finds nothing due.
#[every_arch]
fn a_timer_that_was_overtaken_has_no_effect(arch: Architecture) {
    let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
    let (socket, next) = open(&mut node, 2000);
    node.call(&socket, send(b"text"));
    assert_eq!(node.settle().len(), 1);
    assert_eq!(node.stack.stats().timers, 1, "the retransmission timer");
    assert!(node.exchange(&segment(2000, 0, next.wrapping_add(4), b"").frame()).is_empty());
    assert_eq!(node.stack.stats().timers, 1, "its entry is left where it is");
    let before = node.stack.stats().counters;
    assert!(node.pass(Duration::from_secs(10), Duration::from_millis(1)).is_empty(), "nothing is sent");
    let counted = node.stack.stats().counters - before;
    let names: Vec<Counter> = Counter::ALL.iter().copied().filter(|counter| counted.get(*counter) != 0).collect();
    assert_eq!(names, [Counter::TimersFired], "nothing is counted but that the entry fired");
    assert_eq!(node.stack.stats().timers, 0, "nothing is armed");
}

/// The timer of a SYN is cancelled when the SYN is acknowledged. Connections that are opened together would otherwise
/// leave entries that all fire a second later and find nothing due.
#[every_arch]
fn an_open_that_is_answered_leaves_no_timer(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
        node.exchange(&neighbour_solicitation());
        let socket =
            node.stack.connect(None, SocketAddr::new(ends.src, PORT), &Default::default()).expect("a free port");
        let sent = node.settle();
        let (syn, _) = sent.iter().find_map(|frame| tcp_of(frame)).expect("a SYN");
        assert_eq!(node.stack.stats().timers, 1, "the SYN's");
        let answer = Segment::ack((PORT, syn.src_port), ISS, syn.seq.0.wrapping_add(1)).and(TcpFlags::SYN);
        assert_eq!(node.exchange(&answer.frame_over(ends)).len(), 1, "the handshake is complete");
        assert!(socket.ready.get().contains(Readiness::CONNECTED));
        assert_eq!(node.stack.stats().timers, 0);
        let sent = node.pass(Duration::from_secs(10), Duration::from_millis(10));
        assert!(sent.iter().all(|frame| tcp_of(frame).is_none()));
        assert_eq!(node.stack.stats().counters.get(Counter::TimersFired), 0);
    }
}

/// A call that takes some of what there is leaves the socket ready; one that would block does not, until there is more.
#[every_arch]
fn a_socket_stays_ready_until_a_call_would_block(arch: Architecture) {
    let mut config = NodeConfig::new(arch);
    config.tcp.send_buffer.initial = 8 << 10;
    config.tcp.send_buffer.max = 8 << 10;
    let mut node = Node::<Real>::with_known_peer(config);
    let (socket, next) = open(&mut node, 2000);
    let is = |bit| socket.ready.get().contains(bit);
    assert_eq!([is(Readiness::READABLE), is(Readiness::WRITABLE)], [false, true]);
    for at in 0..3 {
        node.exchange(&segment(2000, 1000 * at, next, &[7; 1000]).frame());
    }
    let receive = |node: &Node<Real>| received(node.call(&socket, Call::Receive(tcp::Receive { max: 1000 })));
    for _ in 0..3 {
        assert!(is(Readiness::READABLE));
        assert_eq!(receive(&node), Some((vec![7; 1000], false)));
    }
    assert_eq!((receive(&node), is(Readiness::READABLE)), (None, false));
    let accepted = |reply| match reply {
        Reply::Sent(Ok(sent)) => (sent.accepted, sent.rest.is_empty()),
        _ => panic!("the connection is gone"),
    };
    assert_eq!(accepted(node.call(&socket, send(&[1; 1000]))), (1000, true));
    assert!(is(Readiness::WRITABLE), "there is room");
    let (_, all) = accepted(node.call(&socket, send(&[1; 100_000])));
    assert_eq!((all, is(Readiness::WRITABLE)), (false, false));
    let mut sent = node.settle();
    while let Some((header, data)) = sent.iter().filter_map(|frame| tcp_of(frame)).next_back() {
        let end = header.seq.0.wrapping_add(data.len() as u32);
        sent = node.exchange(&segment(2000, 3000, end, b"").frame());
    }
    assert!(is(Readiness::WRITABLE), "there is room again");
}

/// The bytes that statistics give for a connection are those of its entry in the slab, of its socket, and of what is kept
/// beside the entry where it has locks of its own.
#[every_arch]
fn a_connection_counts_with_the_memory_that_it_takes(arch: Architecture) {
    let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
    let sockets = [2000, 2001, 2002].map(|peer| open(&mut node, peer).0);
    let mut bytes = Vec::new();
    for socket in &sockets {
        bytes.push(node.stack.stats().bytes);
        node.call(socket, Call::Abort(tcp::Abort));
        node.settle();
    }
    let has_locks = ["msgp", "msgp-pool", "netisr", "softint", "backlog", "steal"].contains(&arch.family());
    // With the two counts of an `Arc`.
    let beside = if has_locks { size_of::<LockedConnection<Real>>() + 2 * size_of::<usize>() } else { 0 };
    let each = Connections::<Real>::ENTRY + size_of::<TcpSocket<Real>>() + beside;
    assert_eq!([bytes[0] - bytes[1], bytes[1] - bytes[2]], [each; 2], "{arch}");
}

/// A panic of the stack in one of its events ends a connection, and another one when that sends its reset: the account of
/// memory is what it was.
#[every_arch]
fn a_connection_that_panics_leaves_the_account(arch: Architecture) {
    mute();
    let mut switch = None;
    let mut node = Node::<Real>::with_device(NodeConfig { contain: true, ..NodeConfig::new(arch) }, |near| {
        let (device, plant) = PanickingDevice::new(near);
        switch = Some(plant);
        Box::new(device)
    });
    let switch = switch.expect("the device is wrapped");
    node.exchange(&testbed::frames::arp_request());
    let (socket, theirs) = open(&mut node, 2000);
    let memory = |node: &Node<Real>| node.stack.shared().control().memory();
    let before = memory(&node);
    for part in 0..20 {
        node.exchange(&segment(2000, part * 1000, theirs, &[7; 1000]).frame());
    }
    assert!(memory(&node) > before + 20_000, "{arch}: nobody reads");
    switch.transmit.store(1, Ordering::Relaxed);
    switch.reset.store(1, Ordering::Relaxed);
    let _ = catch_unwind(AssertUnwindSafe(|| node.call(&socket, send(MARK))));
    node.settle();
    assert_eq!([&switch.transmit, &switch.reset].map(|left| left.load(Ordering::Relaxed)), [0, 0], "{arch}");
    assert_eq!((node.stack.stats().connections, memory(&node)), (0, before), "{arch}");
}

/// A connection dies with a timer pending, and another takes its slot before that fires.
#[every_arch]
fn a_timer_does_not_outlive_its_connection(arch: Architecture) {
    let mut node = Node::<Real>::with_known_peer(NodeConfig { cpus: 1, ..NodeConfig::new(arch) });
    let (first, _) = open(&mut node, 2000);
    node.call(&first, send(b"never acknowledged"));
    node.call(&first, Call::Abort(tcp::Abort));
    node.settle();
    // Under an architecture with many cells only the same peer is sure to use the same cell.
    let (second, _) = open(&mut node, 2000);
    assert_eq!(first.target().key.slot, second.target().key.slot, "the slot is used again");
    assert_ne!(first.target().key.generation, second.target().key.generation);
    let sent = node.stack.stats().counters.get(Counter::SegmentsOut);
    assert!(node.pass(Duration::from_secs(30), Duration::from_millis(1)).is_empty());
    let stats = node.stack.stats();
    assert_eq!((stats.connections, stats.timers), (1, 0));
    assert_eq!(stats.counters.get(Counter::SegmentsOut), sent);
    assert_eq!(stats.counters.get(Counter::Retransmits), 0);
    assert!(matches!(node.call(&first, Call::Status(tcp::Status)), Reply::Gone), "the old name finds nothing");
    assert!(matches!(node.call(&second, Call::Status(tcp::Status)), Reply::Status(_)));
}

/// A receive thread stops, and another one drives the stack from then on: arrivals, timers and calls.
#[every_arch]
fn another_thread_drives_the_stack_once_the_first_has_stopped(arch: Architecture) {
    let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
    let (socket, next) = open(&mut node, 2000);
    node.driver.rest();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            node.call(&socket, send(b"text"));
            assert_eq!(node.settle().len(), 1, "a call is run");
            let again = node.pass(Duration::from_secs(2), Duration::from_millis(1));
            assert!(!again.is_empty(), "timers are run");
            node.exchange(&segment(2000, 0, next.wrapping_add(4), b"an answer").frame());
            let reply = node.call(&socket, Call::Receive(tcp::Receive { max: 100 }));
            assert_eq!(received(reply), Some((b"an answer".to_vec(), false)));
        });
    });
}

/// On each event, reads at once, on the notifying thread, and answers.
struct Reader {
    stack: Stack<Real>,
    socket: Arc<TcpSocket<Real>>,
    data: Mutex<Vec<u8>>,
    told: AtomicUsize,
    heard: Mutex<mpsc::Sender<usize>>,
}

impl Watch for Reader {
    fn ready(&self, _: Readiness, level: Readiness) {
        self.told.fetch_add(1, Ordering::Relaxed);
        sync::lock_order::assert_none_held::<Real>("somebody is told");
        if !level.contains(Readiness::READABLE) {
            return;
        }
        let reply = self.stack.call(&self.socket.target(), Call::Receive(tcp::Receive { max: 1000 }));
        if let Reply::Received(Ok(got)) = reply {
            let data: Vec<u8> = got.data.iter().flat_map(|data| data.to_vec()).collect();
            self.stack.call(&self.socket.target(), send(&data));
            let mut whole = self.data.lock().unwrap();
            whole.extend(data);
            // The receiver may be gone.
            let _ = self.heard.lock().unwrap().send(whole.len());
        }
    }
}

fn reader(node: &Node<Real>, socket: &Arc<TcpSocket<Real>>) -> (Arc<Reader>, mpsc::Receiver<usize>) {
    let (heard, hears) = mpsc::channel();
    let (stack, socket) = (node.stack.clone(), socket.clone());
    let reader = Reader { stack, socket, data: Mutex::default(), told: AtomicUsize::new(0), heard: Mutex::new(heard) };
    (Arc::new(reader), hears)
}

/// The thread that ran a segment reports its event; a call from there does not wait for an answer of that same thread.
#[every_arch]
fn a_call_to_oneself_does_not_deadlock(arch: Architecture) {
    within(move || {
        let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
        let (socket, next) = open(&mut node, 2000);
        let (reader, _) = reader(&node, &socket);
        socket.ready.watch(reader.clone());
        let echoed = node.exchange(&segment(2000, 0, next, b"one ").frame());
        assert!(echoed.iter().filter_map(|frame| tcp_of(frame)).any(|(_, data)| data == b"one "));
        node.exchange(&segment(2000, 4, next.wrapping_add(4), b"two").frame());
        assert_eq!(*reader.data.lock().unwrap(), b"one two");
        assert!(reader.told.load(Ordering::Relaxed) >= 2);
        socket.ready.deregister();
    });
}

/// Writes on another connection when its own first becomes readable.
struct WritesOn {
    stack: Stack<Real>,
    other: Arc<TcpSocket<Real>>,
    told: AtomicUsize,
}

impl Watch for WritesOn {
    fn ready(&self, _: Readiness, level: Readiness) {
        if level.contains(Readiness::READABLE) && self.told.fetch_add(1, Ordering::Relaxed) == 0 {
            let reply = self.stack.call(&self.other.target(), send(b"reaction"));
            assert!(matches!(reply, Reply::Sent(Ok(_))));
        }
    }
}

/// One batch has segments for two cells. Notified of the first, a user makes a call on the second connection, whose
/// segment may still be queued for this very thread: the thread does that work before it waits for the answer.
#[every_arch]
fn a_call_into_a_cell_whose_work_waits_does_not_deadlock(arch: Architecture) {
    within(move || {
        let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
        let peers = [0, 1].map(|cell| {
            let flow = |port: u16| node.stack.flow((STACK, PORT).into(), (PEER, port).into());
            (2000..).find(|port| flow(*port).index(2) == cell).expect("a port")
        });
        let sockets = peers.map(|peer| open(&mut node, peer));
        for ((socket, _), (other, _)) in sockets.iter().zip(sockets.iter().rev()) {
            let (stack, other) = (node.stack.clone(), other.clone());
            socket.ready.watch(Arc::new(WritesOn { stack, other, told: AtomicUsize::new(0) }));
        }
        for (peer, (_, next)) in peers.into_iter().zip(&sockets) {
            node.put(&segment(peer, 0, *next, b"text").frame());
        }
        let sent = node.settle();
        let reactions = sent.iter().filter_map(|frame| tcp_of(frame)).filter(|(_, data)| *data == b"reaction");
        let mut to: Vec<u16> = reactions.map(|(header, _)| header.dst_port).collect();
        to.sort_unstable();
        let mut expected = peers;
        expected.sort_unstable();
        assert_eq!(to, expected);
        sockets.iter().for_each(|(socket, _)| socket.ready.deregister());
    });
}

/// The same for an event caused by another thread's call, which the owner runs as a message.
#[every_arch]
fn a_call_from_within_a_call_does_not_deadlock(arch: Architecture) {
    within(move || {
        let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
        let (socket, _) = open(&mut node, 2000);
        let (reader, _) = reader(&node, &socket);
        socket.ready.watch(reader.clone());
        let told = reader.told.load(Ordering::Relaxed);
        let (stack, target) = (node.stack.clone(), socket.target());
        let caller = std::thread::spawn(move || drop(stack.call(&target, Call::Abort(tcp::Abort))));
        while !caller.is_finished() {
            node.settle();
            std::thread::yield_now();
        }
        caller.join().unwrap();
        node.settle();
        assert!(reader.told.load(Ordering::Relaxed) >= told);
        socket.ready.deregister();
    });
}

/// The same with the architecture's own threads: the protocol thread or worker is notified.
#[every_arch]
fn a_protocol_thread_may_call_itself(arch: Architecture) {
    within(move || {
        let mut node = Node::<Real>::with_known_peer(NodeConfig { own_threads: true, ..NodeConfig::new(arch) });
        let listener = node.listen(PORT, 8);
        node.put(&Segment::syn(2000, PORT).frame());
        let next = expect(&mut node, |header, _| header.flags.contains(TcpFlags::SYN)).wrapping_add(1);
        node.put(&segment(2000, 0, next, b"").frame());
        node.driver.poll();
        listener.ready.wait(Readiness::ACCEPTABLE, Some(HANG));
        let socket = listener.accept().expect("a child waits");
        let (reader, hears) = reader(&node, &socket);
        socket.ready.watch(reader.clone());
        node.put(&segment(2000, 0, next, b"text").frame());
        node.driver.poll();
        assert_eq!(hears.recv_timeout(HANG), Ok(4));
        expect(&mut node, |_, data| data == b"text");
        socket.ready.deregister();
    });
}

/// Two threads each poll a stack and call the other's. Neither waits for ever for a thread that waits for it.
#[every_arch]
fn threads_that_poll_may_call_each_others_stacks(arch: Architecture) {
    const CALLS: usize = 200;
    within(move || {
        let done = AtomicUsize::new(0);
        let ((to_first, by_first), (to_second, by_second)) = (mpsc::channel(), mpsc::channel());
        let polls_and_calls = |mine: mpsc::Sender<Stack<Real>>, theirs: mpsc::Receiver<Stack<Real>>| {
            let mut node = Node::<Real>::with_known_peer(NodeConfig { own_threads: true, ..NodeConfig::new(arch) });
            node.settle();
            mine.send(node.stack.clone()).expect("the other thread listens");
            let other = theirs.recv().expect("the other thread has a stack");
            for _ in 0..CALLS {
                assert_eq!(other.stats().connections, 0);
            }
            done.fetch_add(1, Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < 2 {
                node.settle();
                std::thread::yield_now();
            }
            node.driver.rest();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| polls_and_calls(to_first, by_second));
            scope.spawn(|| polls_and_calls(to_second, by_first));
        });
    });
}

/// Polls until the stack sends a segment that matches; returns its sequence number.
fn expect(node: &mut Node<Real>, like: impl Fn(&wire::tcp::Header, &[u8]) -> bool) -> u32 {
    loop {
        node.driver.poll();
        let mut sent = Vec::new();
        node.collect(&mut sent);
        let found = sent.iter().filter_map(|frame| tcp_of(frame)).find(|(header, data)| like(header, data));
        if let Some((header, _)) = found {
            return header.seq.0;
        }
        std::thread::yield_now();
    }
}
