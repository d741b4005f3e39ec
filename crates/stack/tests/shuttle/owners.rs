//! Several cells, and calls from event notifications: batches for more than one owner, calls made on the owner's own
//! thread, several pollers.

use std::net::SocketAddr;
use std::sync::Arc;

use dev::mem::{self, MemConfig};
use stack::call::Call;
use stack::flow::Target;
use stack::socket::readiness::Watch;
use stack::socket::{ListenerShared, PollSet, Readiness};
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::{Platform, ThreadClass};
use testbed::frames::{PEER, STACK, Segment, datagram};
use testbed::node::START;
use wire::tcp::TcpFlags;

use super::models::{PORT, Running};

/// Cells, where there is one for each processor.
const CELLS: usize = 2;

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
