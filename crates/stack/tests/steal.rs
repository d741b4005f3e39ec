//! The defining property of `steal` (ZygOS), on two cores: threads that each poll a queue pair on request of the test.
//! Ready connections wait in the queue of their home core; an idle core takes one; a connection is in one core's hands
//! at a time, and its data stays in order.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use dev::mem::{self, MemConfig};
use dev::{Device, QueuePair};
use every_arch::every_arch;
use pktbuf::PktBuf;
use stack::socket::handler::{Conn, ConnectionHandler};
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::Real;
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::START;
use wire::tcp::TcpFlags;

const CORES: usize = 2;
const PORT: u16 = 80;

/// The thread of the test, which is no core.
const TEST: usize = usize::MAX;

/// A callback with data: the peer's port, the data, and the core that ran it.
type Ran = (u16, String, usize);

/// The test's record of the handlers.
#[derive(Default)]
struct Stage {
    ran: Mutex<Vec<Ran>>,
    /// Where handlers are that the test has stopped, the oldest first: dropping one lets it go on.
    stopped: Mutex<VecDeque<Sender<()>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records its data, and stops if the data requests it.
struct Recorded {
    stage: Arc<Stage>,
    entered: Sender<()>,
}

impl ConnectionHandler<Real> for Recorded {
    fn data(&mut self, conn: &mut Conn<'_, Real>, data: PktBuf) {
        let text = String::from_utf8(data.to_vec()).expect("the test sends text");
        let core = thread::current().name().and_then(|name| name.strip_prefix("core ")?.parse().ok()).unwrap_or(TEST);
        let stops = text.starts_with("stop");
        locked(&self.stage.ran).push((conn.peer_addr().port(), text, core));
        if stops {
            let (resume, stopped) = channel::<()>();
            locked(&self.stage.stopped).push_back(resume);
            self.entered.send(()).expect("the test waits");
            let _ = stopped.recv();
        }
    }
}

/// A thread that polls on request.
struct Core {
    poll: Sender<()>,
    polled: Receiver<()>,
}

impl Core {
    fn start(index: usize, mut driver: Driver<Real>) -> Core {
        let ((poll, orders), (done, polled)) = (channel(), channel());
        let work = move || {
            while orders.recv().is_ok() {
                driver.poll();
                if done.send(()).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name(format!("core {index}")).spawn(work).expect("a thread");
        Core { poll, polled }
    }

    /// It begins to poll.
    fn begin(&self) {
        self.poll.send(()).expect("the core lives");
    }

    /// It has polled.
    fn end(&self) {
        self.polled.recv().expect("the core lives");
    }
}

struct Cores {
    stack: Stack<Real>,
    cores: Vec<Core>,
    peer: Vec<QueuePair>,
    stage: Arc<Stage>,
    entered: Receiver<()>,
    ends: Ends,
}

/// The peer's end of a connection.
struct Peer {
    port: u16,
    sent: u32,
    next: u32,
}

impl Cores {
    fn new(arch: Architecture, ends: Ends) -> Cores {
        let (near, mut far) = mem::pair::<Real>(MemConfig { queues: CORES, ..MemConfig::default() });
        let clock = Clock::Virtual(VirtualClock::new(START));
        let config = StackConfig { seed: Some(1), cpus: CORES, clock, ..StackConfig::new(arch) };
        let addresses = vec![(frames::STACK.into(), 24), ("fd00::1".parse().expect("an address"), 64)];
        let interface =
            InterfaceConfig { device: Box::new(near), addresses, gateways: vec![], addressing: Addressing::default() };
        let (stack, drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        let cores = drivers.into_iter().enumerate().map(|(index, driver)| Core::start(index, driver)).collect();
        let (stage, (enters, entered)) = (Arc::new(Stage::default()), channel());
        let mut cores = Cores { stack, cores, peer: far.take_queues(), stage: stage.clone(), entered, ends };
        for known in [frames::arp_request(), frames::neighbour_solicitation()] {
            cores.put(&known);
            (0..CORES).for_each(|core| cores.poll(core));
        }
        let any = "[::]:80".parse().expect("an address");
        let make = move |_: &_| Box::new(Recorded { stage: stage.clone(), entered: enters.clone() }) as Box<_>;
        cores.stack.listen_with_handlers(any, 64, Default::default(), make).expect("the port is free");
        cores
    }

    /// Sends a frame. The device chooses the queue.
    fn put(&mut self, frame: &[u8]) {
        let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
        assert!(self.peer[0].tx.transmit(buffer).is_ok(), "there is room");
        self.peer[0].tx.flush();
    }

    fn poll(&self, core: usize) {
        self.cores[core].begin();
        self.cores[core].end();
    }

    /// A connection from a port, from `from` on, with this home core.
    fn connect(&mut self, home: usize, from: u16) -> Peer {
        let (local, ends) = (SocketAddr::new(self.ends.dst, PORT), self.ends);
        let at_home = |port: &u16| self.stack.flow(local, SocketAddr::new(ends.src, *port)).index(CORES) == home;
        let port = (from..).find(at_home).expect("a port");
        self.put(&Segment::syn(port, PORT).frame_over(ends));
        self.poll(home);
        let mut sent = Vec::new();
        self.peer.iter_mut().for_each(|pair| while pair.rx.receive(&mut sent, 64) > 0 {});
        let answer = sent.iter().filter_map(|frame| tcp_of(frame)).find(|(header, _)| header.dst_port == port);
        let next = answer.expect("a SYN-ACK").0.seq.0.wrapping_add(1);
        let ack = Segment::ack((port, PORT), ISS.wrapping_add(1), next);
        self.put(&Segment { flags: TcpFlags::ACK, ..ack }.frame_over(ends));
        self.poll(home);
        Peer { port, sent: 1, next }
    }

    /// The peer's next data arrives at the device.
    fn say(&mut self, peer: &mut Peer, data: &str) {
        let segment = Segment::ack((peer.port, PORT), ISS.wrapping_add(peer.sent), peer.next);
        peer.sent += data.len() as u32;
        let frame = Segment { data: data.as_bytes(), ..segment }.and(TcpFlags::PSH).frame_over(self.ends);
        self.put(&frame);
    }

    /// A core polls, and stops in a handler.
    fn stop(&self, core: usize) {
        self.cores[core].begin();
        self.entered.recv().expect("a handler stops");
    }

    /// The handler that stopped first continues, and its core ends the poll.
    fn resume(&self, core: usize) {
        drop(locked(&self.stage.stopped).pop_front());
        self.cores[core].end();
    }

    /// The callbacks since the last look.
    fn ran(&self) -> Vec<Ran> {
        std::mem::take(&mut *locked(&self.stage.ran))
    }
}

impl Peer {
    fn ran(&self, data: &str, core: usize) -> Ran {
        (self.port, data.to_owned(), core)
    }
}

fn over_both(test: impl Fn(Ends) + Send + Sync + 'static) {
    testbed::limit::within(move || Ends::BOTH_FAMILIES.into_iter().for_each(&test));
}

/// "An idle core takes one connection": while the home core runs a handler, another one runs those of the connections
/// that wait, one in each poll, the oldest first.
#[every_arch(only(steal))]
fn an_idle_core_takes_one_connection_from_a_busy_one(arch: Architecture) {
    over_both(move |ends| {
        let mut cores = Cores::new(arch, ends);
        let [mut a, mut b, mut c] = [2000, 3000, 4000].map(|from| cores.connect(0, from));
        cores.say(&mut a, "stop");
        cores.say(&mut b, "one");
        cores.say(&mut c, "one");
        cores.stop(0);
        cores.poll(1);
        assert_eq!(cores.ran(), [a.ran("stop", 0), b.ran("one", 1)]);
        cores.poll(1);
        assert_eq!(cores.ran(), [c.ran("one", 1)]);
        cores.resume(0);
        assert_eq!(cores.ran(), []);
    });
}

/// A core with ready connections of its own is not idle.
#[every_arch(only(steal))]
fn a_core_runs_its_own_connections_first(arch: Architecture) {
    over_both(move |ends| {
        let mut cores = Cores::new(arch, ends);
        let [mut a, mut b] = [2000, 3000].map(|from| cores.connect(0, from));
        let mut own = cores.connect(1, 4000);
        cores.say(&mut a, "stop");
        cores.say(&mut b, "one");
        cores.stop(0);
        cores.say(&mut own, "own");
        cores.poll(1);
        assert_eq!(cores.ran(), [a.ran("stop", 0), own.ran("own", 1)]);
        cores.resume(0);
        assert_eq!(cores.ran(), [b.ran("one", 0)], "the home core comes to it at last");
    });
}

/// "Exclusively": while a thief runs a connection's handler, new data is processed at home and makes the connection
/// ready, no more; it is read after the handler has returned, in its order.
#[every_arch(only(steal))]
fn one_core_has_a_connection_and_its_data_stays_in_order(arch: Architecture) {
    over_both(move |ends| {
        let mut cores = Cores::new(arch, ends);
        let [mut a, mut b] = [2000, 3000].map(|from| cores.connect(0, from));
        cores.say(&mut a, "stop");
        cores.say(&mut b, "stop");
        cores.stop(0);
        cores.stop(1);
        assert_eq!(cores.ran(), [a.ran("stop", 0), b.ran("stop", 1)]);
        cores.resume(0);
        for data in ["one", "two"] {
            cores.say(&mut b, data);
            cores.poll(0);
            assert_eq!(cores.ran(), [], "another core has the connection");
        }
        cores.resume(1);
        assert_eq!(cores.ran(), [], "it waits for its turn");
        cores.poll(0);
        let ran = cores.ran();
        assert!(ran.iter().all(|(port, _, core)| (*port, *core) == (b.port, 0)), "{ran:?}");
        assert_eq!(ran.into_iter().map(|(_, data, _)| data).collect::<String>(), "onetwo");
        (0..CORES).for_each(|core| cores.poll(core));
        assert_eq!(cores.ran(), [], "it was ready once");
    });
}

/// A core that sleeps is woken where a busy one has more connections ready than it runs, and one alone is left to its core.
#[every_arch(only(steal))]
fn a_sleeping_core_is_called_for_what_a_busy_one_leaves(arch: Architecture) {
    over_both(move |ends| {
        for (waiting, woken) in [(1, false), (2, true)] {
            let mut cores = Cores::new(arch, ends);
            let mut peers: Vec<_> = (0..waiting).map(|n| cores.connect(0, 2000 + 1000 * n)).collect();
            let alarms = cores.stack.shared().links().alarms();
            alarms.park(1, || observe::Time::MAX);
            let bell = Arc::new(Bell::default());
            alarms.add_wakers(1, std::iter::once(bell.clone() as Arc<dyn dev::Wake>));
            cores.say(&mut peers[0], "stop");
            peers[1..].iter_mut().for_each(|peer| cores.say(peer, "one"));
            cores.stop(0);
            assert_eq!(*locked(&bell.0) > 0, woken, "{waiting} ready");
            cores.resume(0);
        }
    });
}

/// A switch carries over events that handlers have not received, and the next architecture delivers them.
#[every_arch(only(steal))]
fn what_waits_at_a_switch_is_run_after_it(arch: Architecture) {
    over_both(move |ends| {
        let mut cores = Cores::new(arch, ends);
        let [mut a, mut b] = [2000, 3000].map(|from| cores.connect(0, from));
        cores.say(&mut a, "stop");
        cores.say(&mut b, "stop");
        cores.stop(0);
        cores.stop(1);
        cores.resume(0);
        cores.say(&mut b, "one");
        cores.poll(0);
        cores.resume(1);
        assert_eq!(cores.ran(), [a.ran("stop", 0), b.ran("stop", 1)]);
        cores.stack.switch(Architecture::named("giant")).expect("no core polls");
        assert_eq!(cores.ran(), [b.ran("one", TEST)], "where the next architecture runs it");
    });
}

/// Counts the wake-ups of a thread.
#[derive(Default)]
struct Bell(Mutex<usize>);

impl dev::Wake for Bell {
    fn wake(&self) {
        *locked(&self.0) += 1;
    }
}
