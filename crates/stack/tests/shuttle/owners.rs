//! Several cells, and calls from event notifications: batches for more than one owner, calls made on the owner's own
//! thread, several pollers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dev::mem::{self, MemConfig};
use stack::call::{Call, Reply};
use stack::flow::Target;
use stack::socket::readiness::Watch;
use stack::socket::{ListenerShared, PollSet, Readiness, TcpSocket};
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::{Condvar, Lock, LockClass, LockKind, Platform, ThreadClass};
use testbed::frames::{PEER, STACK, Segment, datagram};
use testbed::node::{START, send};
use wire::tcp::TcpFlags;

use super::models::{PORT, Running, accept, segment};

/// Cells, where there is one for each processor.
const CELLS: usize = 2;

/// Turns that a thread lets others have before its call, so that the call comes late in many schedules.
const TURNS: usize = 150;

/// Ports of peers from `from` on, one for each cell.
fn ports<P: Platform>(stack: &Stack<P>, to: u16, from: u16) -> [u16; CELLS] {
    let cell = |port: u16| stack.flow((STACK, to).into(), (PEER, port).into()).index(CELLS);
    [0, 1].map(|wanted| (from..).find(|port| cell(*port) == wanted).expect("a port"))
}

/// A batch with a SYN for each of two cells: both are answered, whichever thread has the cell, although no later event
/// wakes a thread.
pub fn several_owners<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start_on(arch, CELLS);
    let ports = ports(&running.stack, PORT, 2000);
    running.peer.put_all(&ports.map(|port| Segment::syn(port, PORT).frame()));
    let mut left = ports.to_vec();
    while !left.is_empty() {
        let from = running.peer.expect(|header, _| left.contains(&header.dst_port).then_some(header.dst_port));
        left.retain(|port| *port != from);
    }
    running.stack.unlisten(&listener);
    running.end();
}

/// Notified of a listener's child, resets it from the notification.
struct Resets<P: Platform> {
    stack: Stack<P>,
    listener: Arc<ListenerShared<P>>,
}

impl<P: Platform> Watch for Resets<P> {
    fn ready(&self, _: Readiness, _level: Readiness) {
        while let Some(child) = self.listener.accept() {
            let target: Target = child.target();
            self.stack.call(&target, Call::Abort(tcp::Abort));
        }
    }
}

/// A call from an event notification, on the thread that owns the connection if there is one: the resulting segment
/// reaches a sleeping peer.
pub fn call_on_the_owners_thread<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start_on(arch, 1);
    listener.ready.watch(Arc::new(Resets { stack: running.stack.clone(), listener: listener.clone() }));
    let next = running.peer.connect(2000).expect("the listener is open");
    let last = Segment {
        flags: TcpFlags::ACK,
        ack: next,
        seq: testbed::frames::ISS.wrapping_add(1),
        ..Segment::syn(2000, PORT)
    };
    running.peer.put(last);
    running.peer.expect(|header, _| header.flags.contains(TcpFlags::RST).then_some(()));
    running.stack.unlisten(&listener);
    // Otherwise a watch and its listener would keep each other alive.
    listener.ready.watch(Arc::new(Deaf));
    running.end();
}

/// What users were told, and a thread that waits for it.
struct Told<P: Platform> {
    /// The connections with users that were notified of data, in order, when their calls were done.
    connections: Lock<Vec<usize>, P>,
    grew: Condvar<P>,
    /// A user was told something while it was told something else.
    at_once: AtomicBool,
}

impl<P: Platform> Told<P> {
    fn new() -> Arc<Self> {
        let connections = Lock::new(LockKind::Blocking, LockClass::Control, Vec::new());
        Arc::new(Told { connections, grew: Condvar::new(), at_once: AtomicBool::new(false) })
    }

    fn tell(&self, index: usize) {
        self.connections.lock().push(index);
        self.grew.notify_one();
    }

    /// Sleeps until the users of this many connections have been told, and their calls are done.
    fn wait_for(&self, count: usize) -> Vec<usize> {
        self.grew.wait_while(self.connections.lock(), |told| told.len() < count).clone()
    }
}

/// Notified of a connection's data for the first time, writes to another connection.
struct Writes<P: Platform> {
    index: usize,
    stack: Stack<P>,
    to: Target,
    first: AtomicBool,
    told: Arc<Told<P>>,
    /// A thread is in the notification.
    is_told: AtomicBool,
    /// Turns that it lets other threads have before it writes.
    turns: usize,
}

impl<P: Platform> Writes<P> {
    fn is_readable(&self, raised: Readiness) {
        if raised.contains(Readiness::READABLE) && self.first.swap(false, Ordering::Relaxed) {
            (0..self.turns).for_each(|_| P::yield_now());
            let reply = self.stack.call(&self.to, send(b"told"));
            assert!(matches!(reply, Reply::Sent(Ok(_))), "the connection takes text");
            self.told.tell(self.index);
        }
    }
}

impl<P: Platform> Watch for Writes<P> {
    fn ready(&self, raised: Readiness, _level: Readiness) {
        if self.is_told.swap(true, Ordering::Relaxed) {
            self.told.at_once.store(true, Ordering::Relaxed);
            return self.is_readable(raised);
        }
        self.is_readable(raised);
        self.is_told.store(false, Ordering::Relaxed);
    }
}

/// Two connections, each watched by a user that writes to the other one.
struct Couple<P: Platform> {
    running: Running<P>,
    listener: Arc<ListenerShared<P>>,
    sockets: [Arc<TcpSocket<P>>; CELLS],
    /// Text for each.
    frames: [Vec<u8>; CELLS],
    /// The end of each stream, after the text.
    ends: [Vec<u8>; CELLS],
    told: Arc<Told<P>>,
}

impl<P: Platform> Couple<P> {
    /// In this many cells.
    fn start(arch: Architecture, cells: usize) -> Self {
        Self::with_turns(arch, cells, 0)
    }

    /// The users let other threads have this many turns before they write.
    fn with_turns(arch: Architecture, cells: usize, turns: usize) -> Self {
        let (mut running, listener) = Running::<P>::start_on(arch, cells);
        let (told, ports) = (Told::new(), ports(&running.stack, PORT, 2000));
        let both = ports.map(|port| {
            let next = running.peer.connect(port).expect("the listener is open");
            running.peer.put(segment(port, next, b""));
            let text = segment(port, next, b"data");
            let end = Segment { seq: text.seq.wrapping_add(4), ..segment(port, next, b"").and(TcpFlags::FIN) };
            (accept(&listener), text.frame(), end.frame())
        });
        let sockets = [0, 1].map(|index| both[index].0.clone());
        for [index, other] in [[0, 1], [1, 0]] {
            let (stack, to, told) = (running.stack.clone(), sockets[other].target(), told.clone());
            let (first, is_told) = (AtomicBool::new(true), AtomicBool::new(false));
            let watch = Writes { index, stack, to, first, told, is_told, turns };
            sockets[index].ready.watch(Arc::new(watch));
        }
        let (frames, ends) = (both.clone().map(|(_, text, _)| text), both.map(|(.., end)| end));
        Couple { running, listener, sockets, frames, ends, told }
    }

    /// A thread that makes this call of a connection.
    fn caller(&self, index: usize, call: impl FnOnce() -> Call<P> + Send + 'static) -> P::JoinHandle {
        let (stack, target) = (self.running.stack.clone(), self.sockets[index].target());
        P::spawn("caller", None, ThreadClass::Application, move || drop(stack.call(&target, call())))
    }

    fn end(self) {
        for socket in &self.sockets {
            // Otherwise a watch and its stack would keep each other alive.
            socket.ready.watch(Arc::new(Deaf));
            self.running.stack.call(&socket.target(), Call::Abort(tcp::Abort));
        }
        self.running.stack.unlisten(&self.listener);
        self.running.end();
    }
}

/// Data for each of two connections, in one cell or two, whose users are notified and write to the other one, while threads
/// call as well: whichever threads run the events and notify the users, each notification ends.
pub fn notified_users_call_each_other<P: Platform>(arch: Architecture, cells: usize) {
    let mut couple = Couple::<P>::start(arch, cells);
    let callers = [0, 1].map(|index| couple.caller(index, || send(b"text")));
    couple.running.peer.put_all(&couple.frames.clone());
    callers.into_iter().for_each(|caller| P::join(caller).expect("the caller ends well"));
    couple.told.wait_for(CELLS);
    couple.end();
}

/// Where the thread that tells users has no cell meanwhile, or leaves the upcalls to the end, a user is not told
/// something in the middle of something else: neither by another thread nor while its own call waits. So what a
/// thread has on its stack has a bound, however much arrives.
pub fn users_are_told_one_thing_at_a_time<P: Platform>(arch: Architecture) {
    let mut couple = Couple::<P>::start(arch, CELLS);
    couple.running.peer.put_all(&couple.frames.clone());
    couple.running.peer.put_all(&couple.ends.clone());
    couple.told.wait_for(CELLS);
    assert!(!couple.told.at_once.load(Ordering::Relaxed), "a user is told something while it is told something else");
    couple.end();
}

/// Notified of a connection's data for the first time, waits until a thread has made its call.
struct Awaits<P: Platform> {
    first: AtomicBool,
    called: Arc<Told<P>>,
    told: Arc<Told<P>>,
}

impl<P: Platform> Watch for Awaits<P> {
    fn ready(&self, raised: Readiness, _level: Readiness) {
        if raised.contains(Readiness::READABLE) && self.first.swap(false, Ordering::Relaxed) {
            self.called.wait_for(1);
            self.told.tell(1);
        }
    }
}

/// While an owner waits for another one, it does what threads ask of its own cell, however late they ask: the other
/// owner's user may be waiting for such a thread.
pub fn an_owner_that_waits_is_called<P: Platform>(arch: Architecture) {
    let mut couple = Couple::<P>::start(arch, CELLS);
    let (called, first, told) = (Told::new(), AtomicBool::new(true), couple.told.clone());
    couple.sockets[1].ready.watch(Arc::new(Awaits { first, called: called.clone(), told }));
    let (stack, target) = (couple.running.stack.clone(), couple.sockets[0].target());
    let caller = P::spawn("caller", None, ThreadClass::Application, move || {
        (0..TURNS).for_each(|_| P::yield_now());
        drop(stack.call(&target, send(b"text")));
        called.tell(0);
    });
    couple.running.peer.put_all(&couple.frames.clone());
    P::join(caller).expect("the caller ends well");
    couple.told.wait_for(CELLS);
    couple.end();
}

/// Where all segments wait in one queue, users are told in their order, although several threads drain it.
pub fn users_are_told_in_order<P: Platform>(arch: Architecture) {
    let mut couple = Couple::<P>::start(arch, 1);
    let callers = [0, 1].map(|index| couple.caller(index, || send(b"text")));
    let frames = couple.frames.clone();
    frames.iter().for_each(|frame| couple.running.peer.put_all(std::slice::from_ref(frame)));
    callers.into_iter().for_each(|caller| P::join(caller).expect("the caller ends well"));
    assert_eq!(couple.told.wait_for(CELLS), [0, 1], "users are told out of order");
    couple.end();
}

/// The stack is switched while the users of connections in one cell or two are told and call it: no notification is lost.
pub fn users_are_told_although_it_is_switched<P: Platform>(from: Architecture, to: Architecture, cells: usize) {
    // The threads of the architecture may have been stopped by then.
    let mut couple = Couple::<P>::with_turns(from, cells, 4 * TURNS);
    couple.running.peer.put_all(&couple.frames.clone());
    couple.running.stack.set_architecture(to).expect("it switches");
    couple.told.wait_for(CELLS);
    couple.end();
}

struct Deaf;

impl Watch for Deaf {
    fn ready(&self, _: Readiness, _level: Readiness) {}
}

/// A batch with a datagram for each of two sockets in two cells, each watched by a thread that sleeps in its own poll
/// set: both wake.
pub fn several_pollers<P: Platform>(arch: Architecture) {
    let (mut running, listener) = Running::<P>::start_on(arch, CELLS);
    let pollers = [53, 54].map(|port| {
        let socket = running.stack.bind_udp(SocketAddr::new(STACK.into(), port)).expect("the port is free");
        let set = PollSet::<P>::new(false).expect("a set");
        socket.ready.register(&socket, &set, usize::from(port));
        let poller = P::spawn("poller", None, ThreadClass::Receive, move || {
            let mut events = Vec::new();
            // Writable from the beginning.
            while !events.iter().any(|event: &stack::socket::PollEvent| event.ready.contains(Readiness::READABLE)) {
                set.wait(&mut events, 4, None);
            }
        });
        (socket, poller)
    });
    let frames = [53, 54].map(|to| datagram(ports(&running.stack, to, 3000)[usize::from(to) % CELLS], to, b"text"));
    running.peer.put_all(&frames);
    for (socket, poller) in pollers {
        P::join(poller).expect("the poller ends well");
        running.stack.unbind_udp(&socket);
    }
    running.stack.unlisten(&listener);
    running.end();
}

/// Two threads that poll, each with a cell of its own, ask for an answer of each cell at the same time. Each reads its mail
/// while it waits for the other, or while it gives its cell up: both get their answers.
pub fn owners_ask_each_other<P: Platform>(arch: Architecture) {
    let (near, _far) = mem::pair::<P>(MemConfig { queues: CELLS, ring_frames: 8, ..MemConfig::default() });
    let clock = Clock::Virtual(VirtualClock::new(START));
    let config = StackConfig { seed: Some(1), cpus: CELLS, clock, own_threads: false, ..StackConfig::new(arch) };
    let addresses = vec![(STACK.into(), 24)];
    let interface =
        InterfaceConfig { device: Box::new(near), addresses, gateways: vec![], addressing: Addressing::default() };
    let (stack, drivers) = Stack::<P>::build(config, vec![interface]).expect("the stack builds");
    let core = |mut driver: Driver<P>| {
        let stack = stack.clone();
        P::spawn("core", None, ThreadClass::Receive, move || {
            driver.poll();
            assert_eq!(stack.stats().connections, 0);
        })
    };
    let cores: Vec<_> = drivers.into_iter().map(core).collect();
    cores.into_iter().for_each(|core| P::join(core).expect("a core ends well"));
}
