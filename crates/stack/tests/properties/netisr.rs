//! Work streams (FreeBSD: `netisr.c`): which thread processes a packet under which policies, when one is processed
//! directly, how many may wait, and their order.
//!
//! Two receive queues and three CPUs, so that a flow's queue does not say its CPU. The thread of the test polls both
//! queues: where a packet is processed directly, by that thread.

use std::net::SocketAddr;
use std::sync::Arc;

use dev::{Device, QueuePair, mem};
use observe::{Counter, DropReason};
use pktbuf::PktBuf;
use stack::call::{Call, Reply};
use stack::socket::ListenerShared;
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::LockClass::PcbHeaderIn;
use testbed::frames::{self, Datagram, Ends};
use testbed::node::START;
use wire::tcp::TcpFlags;

use crate::agents::ToldBy;
use crate::bench::{Connection, PORT, Reporting};
use crate::scene::{Observed, Scene, State, TEST};

const QUEUES: usize = 2;
const CPUS: usize = 3;
/// Packets that may wait in a work stream (`net.isr.defaultqlimit`).
const LIMIT: usize = 256;
/// Every way to dispatch with every policy that matters to it.
const ALL: [&str; 7] = [
    "netisr:direct",
    "netisr:hybrid",
    "netisr:hybrid+source",
    "netisr:hybrid+cpu",
    "netisr:deferred",
    "netisr:deferred+source",
    "netisr:deferred+cpu",
];

struct TwoQueues {
    scene: Arc<Scene>,
    stack: Stack<Observed>,
    drivers: Vec<Driver<Observed>>,
    far: Vec<QueuePair>,
    listener: Arc<ListenerShared<Observed>>,
    ends: Ends,
}

impl TwoQueues {
    fn new(arch: &str, ends: Ends) -> TwoQueues {
        let scene = Scene::new();
        let (near, mut far) = mem::pair::<Observed>(mem::MemConfig { queues: QUEUES, ..Default::default() });
        let config = StackConfig {
            seed: Some(1),
            cpus: CPUS,
            own_threads: true,
            clock: Clock::Virtual(VirtualClock::new(START)),
            ..StackConfig::new(Architecture::named(arch))
        };
        let addresses = vec![(frames::STACK.into(), 24), ("fd00::1".parse().expect("an address"), 64)];
        let device = Box::new(Reporting(Box::new(near)));
        let interface = InterfaceConfig { device, addresses, gateways: vec![], addressing: Addressing::default() };
        let (stack, drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        let any = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), PORT);
        let listener = stack.listen(any, 64, Default::default()).expect("the port is free");
        let mut bench = TwoQueues { scene, stack, drivers, far: far.take_queues(), listener, ends };
        for frame in [frames::arp_request(), frames::neighbour_solicitation()] {
            bench.exchange(&frame);
        }
        bench
    }

    fn put(&mut self, frame: &[u8]) {
        let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
        assert!(self.far[0].tx.transmit(buffer).is_ok(), "there is room");
        self.far[0].tx.flush();
    }

    /// Delivers a frame, and runs everything until the stack rests; returns what it sent.
    fn exchange(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.put(frame);
        self.settle()
    }

    fn settle(&mut self) -> Vec<Vec<u8>> {
        let (mut sent, mut batch) = (Vec::new(), Vec::new());
        let mut idle = 0;
        while idle < 2 {
            let taken: usize = self.drivers.iter_mut().map(Driver::poll).sum();
            drop(self.scene.until(State::own_threads_sleep));
            self.far.iter_mut().for_each(|pair| while pair.rx.receive(&mut batch, 64) > 0 {});
            idle = if taken == 0 && batch.is_empty() && self.stack.is_quiescent() { idle + 1 } else { 0 };
            sent.extend(batch.drain(..).map(|frame| frame.to_vec()));
        }
        sent
    }

    /// A peer's port with a flow that arrives on this queue and hashes to this CPU.
    fn port(&self, to: u16, (queue, cpu): (usize, usize), from: u16) -> u16 {
        let hash = |port: u16| self.stack.flow((self.ends.dst, to).into(), (self.ends.src, port).into());
        (from..).find(|port| (hash(*port).index(QUEUES), hash(*port).index(CPUS)) == (queue, cpu)).expect("a port")
    }

    fn connect(&mut self, on: (usize, usize)) -> Connection {
        self.connect_from(on, 2000)
    }

    fn connect_from(&mut self, on: (usize, usize), from: u16) -> Connection {
        let (port, listener) = (self.port(PORT, on, from), self.listener.clone());
        let connection = Connection::open((self.ends, port), &listener, |frame| self.exchange(frame));
        self.scene.state().sent.clear();
        connection
    }

    /// Delivers a frame to the thread that polls `queue`, which does not wait for another thread.
    fn bring(&mut self, frame: &[u8], queue: usize) {
        self.put(frame);
        assert_eq!(self.drivers[queue].poll(), 1, "it arrives on this queue");
    }

    /// The swi of `cpu` is stopped in the device, while it processes a packet of a connection of its own.
    fn stop_the_swi(&mut self, cpu: usize) {
        let mut busy = self.connect_from((0, cpu), 30_000);
        self.scene.close(busy.port);
        self.bring(&fin(&mut busy), 0);
        let state = self.scene.until(|state| !state.stopped.is_empty());
        assert!(state.stopped.contains(&swi(cpu)), "{:?}", *state);
    }

    fn read(&self, connection: &Connection) -> Vec<u8> {
        match self.stack.call(&connection.socket.target(), Call::Receive(tcp::Receive { max: 1 << 20 })) {
            Reply::Received(Ok(got)) => got.data.iter().flat_map(|data| data.to_vec()).collect(),
            _ => Vec::new(),
        }
    }

    fn misordered(&self) -> u64 {
        self.stack.stats().counters.get(Counter::OutOfOrderAtEntry)
    }
}

/// The thread of a CPU's work stream.
fn swi(cpu: usize) -> String {
    format!("heddle-ni{cpu}")
}

/// The peer's FIN with payload: it is answered at once.
fn fin(connection: &mut Connection) -> Vec<u8> {
    connection.segment(TcpFlags::FIN | TcpFlags::PSH, b"the end")
}

/// `netisr_dispatch_src` and `netisr_select_cpuid`: the thread that processes a packet for the stream of `cpu`, which the
/// thread of `queue` brings.
fn processed_by(arch: &str, queue: usize, cpu: usize) -> String {
    let cpu = if arch.ends_with("+source") { queue } else { cpu };
    match arch.split('+').next() {
        Some("netisr:direct") => TEST.to_owned(),
        Some("netisr:hybrid") if cpu == queue => TEST.to_owned(),
        _ => swi(cpu),
    }
}

/// `NETISR_POLICY_SOURCE`, `_FLOW`, `_CPU`, and the three ways to dispatch, for segments of all queues and CPUs.
#[test]
fn a_segment_is_processed_by_the_thread_that_the_policies_choose() {
    for (ends, arch) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| ALL.map(|arch| (ends, arch))) {
        let mut bench = TwoQueues::new(arch, ends);
        for (queue, cpu) in (0..QUEUES).flat_map(|queue| (0..CPUS).map(move |cpu| (queue, cpu))) {
            let mut connection = bench.connect((queue, cpu));
            bench.bring(&fin(&mut connection), queue);
            bench.settle();
            let state = bench.scene.state();
            assert_eq!(state.senders(connection.port), [processed_by(arch, queue, cpu)], "{arch}: {queue}, {cpu}");
        }
    }
}

/// "It's possible for a protocol not to have a good idea about where to process a packet": a datagram has no hash, so that
/// `flow` falls back to its source; with `cpu` its protocol says the CPU of the port that it is for, whatever its flow.
#[test]
fn a_datagram_without_a_hash_goes_by_its_source_unless_its_protocol_says_a_cpu() {
    const UDP_PORT: u16 = 53;
    let home = usize::from(UDP_PORT) % CPUS;
    for (ends, arch) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| ALL.map(|arch| (ends, arch))) {
        let mut bench = TwoQueues::new(arch, ends);
        let socket = bench.stack.bind_udp(SocketAddr::new(ends.dst, UDP_PORT)).expect("the port is free");
        let told = Arc::new(ToldBy::default());
        socket.ready.watch(told.clone());
        for queue in 0..QUEUES {
            told.0.lock().expect("no test has failed in it").clear();
            let from = bench.port(UDP_PORT, (queue, (home + 1) % CPUS), 2000);
            bench.bring(&Datagram::new(from, UDP_PORT, b"text").frame_over(ends), queue);
            bench.settle();
            assert!(bench.stack.receive_udp(&socket).is_ok(), "it was delivered");
            let cpu = if arch.ends_with("+cpu") { home } else { queue };
            let told = told.0.lock().expect("no test has failed in it");
            let by: Vec<&str> = told.iter().map(|by| if by.starts_with("heddle-ni") { by } else { TEST }).collect();
            assert_eq!(by, [processed_by(arch, queue, cpu)], "{arch}: queue {queue}");
        }
        bench.stack.unbind_udp(&socket);
    }
}

/// "We are willing to direct dispatch only if three conditions hold": while the swi processes a packet, what the thread of
/// its own CPU brings waits behind it; once the stream is idle, it is processed directly again.
#[test]
fn hybrid_defers_a_packet_for_its_own_cpu_while_the_swi_runs() {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new("netisr:hybrid", ends);
        let opens = bench.scene.opens();
        let mut connection = bench.connect((1, 1));
        bench.stop_the_swi(1);
        bench.bring(&connection.data(b"first "), 1);
        bench.bring(&connection.data(b"second "), 1);
        assert_eq!(bench.scene.state().senders(connection.port), [""; 0], "neither was processed");
        assert!(bench.read(&connection).is_empty() && !bench.stack.is_quiescent(), "they wait");
        drop(opens);
        bench.settle();
        let senders = bench.scene.state().senders(connection.port).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert!(!senders.is_empty() && senders.iter().all(|by| *by == swi(1)), "{senders:?}");
        bench.scene.state().sent.clear();
        bench.bring(&fin(&mut connection), 1);
        assert_eq!(bench.scene.state().senders(connection.port), [TEST], "the stream was idle");
        assert_eq!(bench.read(&connection), b"first second the end");
        assert_eq!(bench.misordered(), 0);
    }
}

/// A stream's packets change from deferred to directly processed while they arrive: the flow keeps its order (O1).
#[test]
fn hybrid_keeps_the_order_of_a_flow_when_it_changes_between_the_two() {
    const SEGMENTS: u8 = 200;
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new("netisr:hybrid", ends);
        let mut opens = Some(bench.scene.opens());
        let mut connection = bench.connect((1, 1));
        bench.stop_the_swi(1);
        for n in 0..SEGMENTS {
            bench.bring(&connection.data(&[n]), 1);
            if n == 20 {
                opens = None;
            }
        }
        bench.settle();
        drop(opens);
        assert_eq!(bench.read(&connection), (0..SEGMENTS).collect::<Vec<_>>());
        assert_eq!(bench.misordered(), 0);
        let senders = bench.scene.state().senders(connection.port).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert!(senders.iter().all(|by| *by == swi(1) || by == TEST), "{senders:?}");
    }
}

/// `netisr_queue_workstream`: "if (npwp->nw_len < npwp->nw_limit)", else the packet is freed and counted (`nw_qdrops`). The
/// stream goes on, and other streams are not concerned.
#[test]
fn a_full_work_stream_drops_and_counts() {
    const BEYOND: usize = 44;
    for (ends, arch) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| [ALL[1], ALL[4]].map(|arch| (ends, arch))) {
        let mut bench = TwoQueues::new(arch, ends);
        let opens = bench.scene.opens();
        let (mut connection, mut other) = (bench.connect((0, 1)), bench.connect((0, 2)));
        bench.stop_the_swi(1);
        let segments: Vec<Vec<u8>> = (0..LIMIT + BEYOND).map(|n| connection.data(&[n as u8])).collect();
        segments[..LIMIT].iter().for_each(|segment| bench.bring(segment, 0));
        let dropped = |bench: &TwoQueues| bench.stack.stats().counters.dropped(DropReason::InputQueueFull);
        assert_eq!(dropped(&bench), 0, "{arch}");
        segments[LIMIT..].iter().for_each(|segment| bench.bring(segment, 0));
        assert_eq!(dropped(&bench), BEYOND as u64, "{arch}");
        bench.bring(&fin(&mut other), 0);
        // Up to the device, in which the other thread is stopped.
        drop(bench.scene.until(|state| state.sleeps(&swi(2), &[PcbHeaderIn])));
        assert_eq!(dropped(&bench), BEYOND as u64, "the stream of another CPU has room");
        drop(opens);
        bench.settle();
        segments[LIMIT..].iter().for_each(|segment| drop(bench.exchange(segment)));
        let all: Vec<u8> = (0..LIMIT + BEYOND).map(|n| n as u8).collect();
        assert_eq!(bench.read(&connection), all, "{arch}: what was dropped is accepted when it is sent again");
        assert_eq!(bench.misordered(), 0, "{arch}");
    }
}

/// What waits when the architecture is changed is processed by the next one, in its order (G9): the swi ends with the packet
/// that it processes.
#[test]
fn packets_that_wait_are_processed_under_the_next_architecture() {
    for (ends, next) in
        Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| Architecture::all().map(move |next| (ends, next)))
    {
        let mut bench = TwoQueues::new("netisr:deferred", ends);
        let mut connection = bench.connect((0, 1));
        let opens = bench.scene.opens();
        bench.stop_the_swi(1);
        for data in [&b"one "[..], b"two ", b"three"] {
            bench.bring(&connection.data(data), 0);
        }
        bench.drivers.iter_mut().for_each(Driver::rest);
        bench.scene.state().sent.clear();
        let stack = bench.stack.clone();
        let switches = bench.scene.spawn("switches", move || drop(stack.switch(next).expect("it can be switched")));
        drop(bench.scene.until(|state| state.done.contains(&swi(0))));
        drop(opens);
        switches.join();
        bench.settle();
        let by_swi = bench.scene.state().sent.iter().any(|sent| sent.to == connection.port && sent.by == swi(1));
        assert!(!by_swi || next.family() == "netisr", "{next}");
        assert_eq!(bench.read(&connection), b"one two three", "{next}");
        assert_eq!(bench.misordered(), 0, "{next}");
    }
}
