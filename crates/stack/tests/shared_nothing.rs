//! The defining property of `shared-nothing`, on two cores: threads that each poll a queue pair. `connp-t:lwkt` has it too, and
//! `shared_nothing/lwkt.rs` shows what its cores do with their queues. A core answers the
//! segments that it receives, serves its connections and opens new ones alone: no message, no lock and no
//! read-modify-write for data, and no cache line that the other core writes too. Lines are those of the platform's
//! atomics ([`testbed::counting`]); the rest of a cell is plain memory, of which each cell refuses a second thread.

#[path = "shared_nothing/lwkt.rs"]
mod lwkt;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

use dev::mem::{self, MemConfig};
use dev::{Device, QueuePair, Wake};
use every_arch::every_arch;
use observe::Time;
use pktbuf::PktBuf;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, Readiness, TcpSocket};
use stack::{Addressing, Architecture, Clock, Driver, DriverLayout, InterfaceConfig, Stack, StackConfig, VirtualClock};
use testbed::counting::{Counting, Spent, spent, written};
use testbed::frames::{self, Ends, ISS, Segment, TcpOptions, tcp_of};
use testbed::node::{START, received, send};
use wire::tcp::{Header, TcpFlags};

const CORES: usize = 2;
const PORT: u16 = 80;
/// Rounds of an echo at the start that do not count: tables and queues then have their final size.
const WARM: usize = 4;
const ROUNDS: usize = 8;
/// Connections that each core opens.
const OPENS: usize = 24;

/// The far ends of the stack's queues.
struct Peer(Vec<QueuePair>);

impl Peer {
    /// Sends a frame by a device. The device chooses the queue.
    fn put(&mut self, device: usize, frame: &[u8]) {
        let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
        assert!(self.0[device].tx.transmit(buffer).is_ok(), "there is room");
        self.0[device].tx.flush();
    }

    /// The segments that the stack has sent.
    fn segments(&mut self) -> Vec<(Header, Vec<u8>)> {
        let mut frames = Vec::new();
        self.0.iter_mut().for_each(|pair| while pair.rx.receive(&mut frames, 64) > 0 {});
        frames.iter().filter_map(|frame| tcp_of(frame)).map(|(header, data)| (header, data.to_vec())).collect()
    }
}

/// One thread with its driver.
struct Core<'a> {
    index: usize,
    stack: Stack<Counting>,
    driver: Driver<Counting>,
    peer: &'a Mutex<Peer>,
    listener: &'a Arc<ListenerShared<Counting>>,
    all: &'a Barrier,
}

/// Runs the cores with `devices` devices of this many queues each, each core on a thread of its own.
fn on_cores<R: Send>(
    arch: Architecture,
    (devices, queues): (u8, usize),
    work: impl Fn(&mut Core<'_>) -> R + Sync,
) -> Vec<R> {
    let links = (0..devices).map(|_| mem::pair::<Counting>(MemConfig { queues, ..MemConfig::default() }));
    let (near, far): (Vec<_>, Vec<_>) = links.unzip();
    let drivers = if devices == 1 { DriverLayout::PerIndex } else { DriverLayout::PerDevice };
    let clock = Clock::Virtual(VirtualClock::new(START));
    let config = StackConfig { seed: Some(1), cpus: CORES, clock, drivers, ..StackConfig::new(arch) };
    // With several devices, only the first has the peer.
    let addresses = |n| match n {
        0 => vec![(frames::STACK.into(), 24), ("fd00::1".parse().expect("an address"), 64)],
        _ => vec![([10, 1, n, 1].into(), 24)],
    };
    let interface = |(n, device)| InterfaceConfig {
        device: Box::new(device) as Box<dyn Device>,
        addresses: addresses(n),
        gateways: vec![],
        addressing: Addressing::default(),
    };
    let (stack, mut drivers) =
        Stack::build(config, (0..).zip(near).map(interface).collect()).expect("the stack builds");
    assert_eq!(drivers.len(), CORES);
    let mut peer = Peer(far.into_iter().flat_map(|mut device| device.take_queues()).collect());
    for known in [frames::arp_request(), frames::neighbour_solicitation()] {
        peer.put(0, &known);
        drivers.iter_mut().for_each(|driver| _ = driver.poll());
    }
    peer.segments();
    // Other threads poll from now on.
    drivers.iter_mut().for_each(Driver::rest);
    let any = "[::]:80".parse().expect("an address");
    let listener = stack.listen(any, 64, Default::default()).expect("the port is free");
    let (all, peer) = (Barrier::new(CORES), Mutex::new(peer));
    thread::scope(|scope| {
        let core = |(index, driver)| {
            let mut core = Core { index, stack: stack.clone(), driver, peer: &peer, listener: &listener, all: &all };
            let work = &work;
            scope.spawn(move || {
                core.driver.poll();
                core.all.wait();
                let result = catch_unwind(AssertUnwindSafe(|| work(&mut core)));
                // A thread that has ended would leave its number to the next.
                core.all.wait();
                result.unwrap_or_else(|panic| resume_unwind(panic))
            })
        };
        let threads: Vec<_> = drivers.into_iter().enumerate().map(core).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.collect()
    })
}

/// The peer's end of a connection.
struct Connection {
    ends: Ends,
    port: u16,
    socket: Arc<TcpSocket<Counting>>,
    sent: u32,
    acknowledged: u32,
}

impl Core<'_> {
    /// Runs `work` while no other core runs: work that needs another core would never end.
    fn alone<R>(&mut self, work: impl FnOnce(&mut Self, &mut Peer) -> R) -> R {
        let peer = self.peer;
        let mut peer = peer.lock().unwrap_or_else(PoisonError::into_inner);
        work(self, &mut peer)
    }

    /// Opens a connection to port 81 of the peer. It is in this core's cell, and no message was sent.
    fn open_at_home(&self, ends: Ends) -> Arc<TcpSocket<Counting>> {
        let remote = SocketAddr::new(ends.src, 81);
        let (opened, spent) = spent(|| self.stack.connect(None, remote, &Default::default()));
        let socket = opened.expect("a port is free");
        assert_eq!((socket.target().index(CORES), spent.handoffs), (self.index, 0));
        socket
    }

    /// A port of the peer, from `from` on, whose flow a device with a queue for each core gives to core `index`.
    fn port_of(&self, index: usize, ends: Ends, from: u16) -> u16 {
        let (local, remote) = (SocketAddr::new(ends.dst, PORT), |port| SocketAddr::new(ends.src, port));
        let mut ports = from..;
        ports.find(|port| self.stack.flow(local, remote(*port)).index(CORES) == index).expect("a port")
    }

    /// The cost of a frame that arrives and is processed by the core.
    fn receive(&mut self, peer: &mut Peer, frame: &[u8]) -> Spent {
        peer.put(0, frame);
        let (taken, spent) = spent(|| self.driver.poll());
        assert_eq!(taken, 1, "its own queue has the frame");
        spent
    }

    /// A connection of the peer that this core receives, accepts and answers without a message.
    fn accept(&mut self, peer: &mut Peer, ends: Ends) -> Connection {
        let (port, acknowledged) = self.shake_hands(peer, ends, 2000);
        let socket = self.listener.accept().expect("a child waits");
        Connection { ends, port, socket, sent: 0, acknowledged }
    }

    /// The peer opens a connection that this core receives, from the first port of such a flow from `from` on. The port, and
    /// the next byte that the peer expects.
    fn shake_hands(&mut self, peer: &mut Peer, ends: Ends, from: u16) -> (u16, u32) {
        let port = self.port_of(self.index, ends, from);
        let most = TcpOptions::new(&[2, 4, 0x05, 0x78]);
        let mut handoffs = self.receive(peer, &Segment::syn(port, PORT).options(most).frame_over(ends)).handoffs;
        let acknowledged = peer.segments()[0].0.seq.0.wrapping_add(1);
        let ack = Segment::ack((port, PORT), ISS.wrapping_add(1), acknowledged);
        handoffs += self.receive(peer, &Segment { flags: TcpFlags::ACK, ..ack }.frame_over(ends)).handoffs;
        assert_eq!(handoffs, 0, "a listener on each core");
        (port, acknowledged)
    }

    /// Opens a connection, and the peer answers; neither takes a message.
    fn open_and_connect(&mut self, peer: &mut Peer, ends: Ends) -> Arc<TcpSocket<Counting>> {
        let socket = self.open_at_home(ends);
        let syn = peer.segments().pop().expect("a SYN").0;
        let answer = Segment {
            flags: TcpFlags::SYN | TcpFlags::ACK,
            seq: ISS,
            ack: syn.seq.0.wrapping_add(1),
            ..Segment::syn(81, syn.src_port)
        };
        assert_eq!(self.receive(peer, &answer.frame_over(ends)).handoffs, 0);
        assert!(socket.ready.get().contains(Readiness::WRITABLE), "the connection is open");
        socket
    }

    /// A segment arrives; its user, on the same core, reads it, finds no more, and writes an answer.
    fn echo(&mut self, peer: &mut Peer, connection: &mut Connection) -> Spent {
        let Connection { ends, port, socket, sent, acknowledged } = connection;
        let seq = ISS.wrapping_add(1).wrapping_add(*sent);
        let segment = Segment { data: b"question", ..Segment::ack((*port, PORT), seq, *acknowledged) };
        peer.put(0, &segment.and(TcpFlags::PSH).frame_over(*ends));
        let ((), spent) = spent(|| {
            assert_eq!(self.driver.poll(), 1);
            assert!(socket.ready.get().contains(Readiness::READABLE));
            let receive = || self.stack.call(&socket.target(), Call::Receive(tcp::Receive { max: 100 }));
            assert_eq!(received(receive()).expect("data").0, b"question");
            assert_eq!(received(receive()), None);
            assert!(matches!(self.stack.call(&socket.target(), send(b"answer")), Reply::Sent(Ok(_))));
        });
        let answers = peer.segments();
        assert_eq!(answers.last().expect("an answer").1, b"answer");
        *sent += 8;
        *acknowledged = answers.last().expect("an answer").0.seq.0.wrapping_add(6);
        spent
    }
}

/// Seastar, IX, mTCP: an echo costs no lock, no read-modify-write and no message on any core, and no two cores write one
/// line for it.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn cores_serve_their_connections_without_a_shared_line(arch: Architecture) {
    let lines = on_cores(arch, (1, CORES), |core| {
        core.alone(|core, peer| {
            let mut lines = BTreeSet::new();
            for ends in Ends::BOTH_FAMILIES {
                let mut connection = core.accept(peer, ends);
                (0..WARM).for_each(|_| _ = core.echo(peer, &mut connection));
                for _ in 0..ROUNDS {
                    let (spent, here) = written(|| core.echo(peer, &mut connection));
                    assert_eq!(spent, Spent::NOTHING, "core {}", core.index);
                    lines.extend(here);
                }
            }
            lines
        })
    });
    assert!(lines.iter().all(|lines| !lines.is_empty()), "writes are seen");
    let shared: Vec<_> = lines[0].intersection(&lines[1]).collect();
    assert!(shared.is_empty(), "{} of {} lines are written by both cores", shared.len(), lines[0].len());
}

/// A core accepts the connections that it has received, and leaves the others to the cores that have received them, if these
/// accept, too. It takes those of a core that never accepts.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn a_core_accepts_what_it_has_received_and_what_others_never_accept(arch: Architecture) {
    const EACH: usize = 4;
    let ends = Ends::PEER_TO_STACK;
    let run = |other_accepts: bool| {
        on_cores(arch, (1, CORES), |core| {
            core.alone(|core, peer| {
                let mut from = 2000;
                for _ in 0..EACH {
                    from = core.shake_hands(peer, ends, from).0 + 1;
                }
            });
            core.all.wait();
            let homes = |core: &mut Core<'_>, count| -> Vec<usize> {
                let next = |_| core.listener.accept().map(|socket| socket.target().index(CORES));
                (0..count).map_while(next).collect()
            };
            let accepts = other_accepts || core.index == 0;
            let own = core.alone(|core, _| homes(core, if accepts { EACH - 1 } else { 0 }));
            core.all.wait();
            // Each that has accepted has one left.
            let rest = if core.index == 0 { core.alone(|core, _| homes(core, 2 * EACH)) } else { vec![] };
            (own, rest)
        })
    };
    let both = run(true);
    for (index, (own, _)) in both.iter().enumerate() {
        assert_eq!(*own, [index; EACH - 1]);
    }
    assert_eq!(both[0].1, [0], "the last one is the other core's");
    assert_eq!(run(false)[0].1, [0, 1, 1, 1, 1], "the other core never accepts");
}

/// Of what two cores write to set connections up and to accept them, they have the readiness of the listener in common.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn cores_set_connections_up_beside_each_other(arch: Architecture) {
    // Sockets are kept: the memory of one that is gone may be given to the other core.
    let cores = on_cores(arch, (1, CORES), |core| {
        let (mut lines, mut sockets) = (BTreeSet::new(), Vec::new());
        core.alone(|core, peer| {
            for round in 0..WARM + ROUNDS {
                for ends in Ends::BOTH_FAMILIES {
                    let from = 2000 + 100 * round as u16;
                    let (socket, here) = written(|| {
                        core.shake_hands(peer, ends, from);
                        core.listener.accept().expect("a child waits")
                    });
                    if round >= WARM {
                        lines.extend(here);
                    }
                    core.stack.call(&socket.target(), Call::Abort(tcp::Abort));
                    peer.segments();
                    sockets.push(socket);
                }
            }
        });
        (lines, sockets)
    });
    let [first, second] = [0, 1].map(|core: usize| &cores[core].0);
    let shared: Vec<_> = first.intersection(second).collect();
    assert!(shared.len() <= 1, "{} of {} lines are written by both cores", shared.len(), first.len());
}

/// The connections that a core opens are its own, and so are their answers; it opens them without a message. No two cores
/// write one line for it.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn what_a_core_opens_comes_home(arch: Architecture) {
    // An open that is another core's waits for it.
    let cores = testbed::limit::within(move || {
        on_cores(arch, (1, CORES), |core| {
            // Sockets are kept: the memory of one that is gone may be given to the other core.
            let (mut lines, mut sockets) = (BTreeSet::new(), Vec::new());
            core.alone(|core, peer| {
                for ends in Ends::BOTH_FAMILIES {
                    for round in 0..OPENS {
                        let (socket, here) = written(|| core.open_and_connect(peer, ends));
                        if round >= WARM {
                            lines.extend(here);
                        }
                        core.stack.call(&socket.target(), Call::Abort(tcp::Abort));
                        peer.segments();
                        sockets.push(socket);
                    }
                }
            });
            (lines, sockets)
        })
    });
    let [first, second] = [0, 1].map(|core: usize| &cores[core].0);
    assert!(!first.is_empty() && !second.is_empty(), "writes are seen");
    let shared: Vec<_> = first.intersection(second).collect();
    assert!(shared.is_empty(), "{} of {} lines are written by both cores", shared.len(), first.len());
}

/// Also where its device brings it the flows of all cells: it opens those that belong to its own.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn a_core_opens_no_connection_of_another_cores_cell(arch: Architecture) {
    testbed::limit::within(move || {
        on_cores(arch, (2, 1), |core| {
            if core.index == 1 {
                return;
            }
            core.alone(|core, _| {
                for ends in Ends::BOTH_FAMILIES {
                    (0..OPENS).for_each(|_| drop(core.open_at_home(ends)));
                }
            });
        });
    });
}

/// Seastar: a segment that reaches the wrong core goes to the right one as a message, and that one answers it. Here each
/// core polls a device, so that half of the flows of a device are the other core's.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn a_segment_at_the_wrong_core_is_answered_by_the_right_one(arch: Architecture) {
    on_cores(arch, (2, 1), |core| {
        let ends = Ends::PEER_TO_STACK;
        let port = core.port_of(1, ends, 2000);
        if core.index == 0 {
            core.alone(|core, peer| {
                assert_eq!(core.receive(peer, &Segment::syn(port, PORT).frame_over(ends)).handoffs, 1);
                assert!(peer.segments().is_empty(), "it is not answered here");
            });
        }
        core.all.wait();
        if core.index == 1 {
            core.alone(|core, peer| {
                core.driver.poll();
                // The queue by which the answer leaves is the first core's.
                assert!(peer.segments().is_empty(), "it uses no queue of another core");
            });
        }
        core.all.wait();
        if core.index == 0 {
            core.alone(|core, peer| {
                core.driver.poll();
                let sent = peer.segments();
                assert!(sent.len() == 1 && sent[0].0.flags.contains(TcpFlags::SYN | TcpFlags::ACK), "{sent:?}");
            });
        }
    });
}

/// A core that sleeps is woken for a segment that another one has received.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn a_segment_at_the_wrong_core_wakes_the_right_one(arch: Architecture) {
    let bell = Arc::new(Bell::default());
    on_cores(arch, (2, 1), |core| {
        let ends = Ends::PEER_TO_STACK;
        let stack = core.stack.clone();
        let alarms = stack.shared().links().alarms();
        if core.index == 1 {
            alarms.add_wakers(core.index, std::iter::once(bell.clone() as Arc<dyn Wake>));
            assert_eq!(alarms.park(core.index, || Time::MAX), Time::MAX);
        }
        core.all.wait();
        if core.index == 0 {
            let syn = Segment::syn(core.port_of(1, ends, 2000), PORT).frame_over(ends);
            core.alone(|core, peer| assert_eq!(core.receive(peer, &syn).handoffs, 1));
        }
        core.all.wait();
        if core.index == 1 {
            assert_eq!(bell.0.load(Ordering::Relaxed), 1, "it sleeps until it is woken");
            alarms.unpark(core.index);
        }
    });
}

/// Counts how often a thread is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cell without an owner is used by any thread: what arrives for a core that has stopped is answered where it arrives.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn a_segment_for_a_core_that_has_stopped_is_answered_where_it_arrives(arch: Architecture) {
    on_cores(arch, (2, 1), |core| {
        let ends = Ends::PEER_TO_STACK;
        if core.index == 1 {
            core.driver.rest();
        }
        core.all.wait();
        if core.index == 0 {
            let syn = Segment::syn(core.port_of(1, ends, 2000), PORT).frame_over(ends);
            core.alone(|core, peer| {
                assert_eq!(core.receive(peer, &syn).handoffs, 0);
                let sent = peer.segments();
                assert!(sent.len() == 1 && sent[0].0.flags.contains(TcpFlags::SYN | TcpFlags::ACK), "{sent:?}");
            });
        }
    });
}

/// Two cores that wait for each other's answers read their mail meanwhile.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn cores_that_ask_each_other_get_their_answers(arch: Architecture) {
    testbed::limit::within(move || {
        let done = AtomicUsize::new(0);
        on_cores(arch, (1, CORES), |core| {
            for _ in 0..500 {
                assert_eq!(core.stack.stats().connections, 0);
            }
            // Another core may have questions left, which this one reads when it polls.
            done.fetch_add(1, Ordering::SeqCst);
            while done.load(Ordering::SeqCst) < CORES {
                core.driver.poll();
                thread::yield_now();
            }
        });
    });
}
