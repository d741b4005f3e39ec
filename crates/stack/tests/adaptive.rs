//! The defining properties of `adaptive`, on two cores, which are threads that each poll a queue pair on request of the test, in
//! virtual time: a group goes home to the thread that has almost all of its entries, becomes shared where others have many, moves
//! from a busy receive thread to one that sleeps, comes back where that made things worse, and the log says why. There are few groups
//! where all are at home, and more where they are shared.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use dev::mem::{self, MemConfig};
use dev::{Device, QueuePair};
use observe::Time;
use path::VECTOR_LEN;
use pktbuf::PktBuf;
use stack::call::Call;
use stack::socket::handler::{Conn, ConnectionHandler, HandlerMessage, HandlerRef};
use stack::socket::{ListenerShared, TcpSocket};
use stack::{
    Addressing, Architecture, Clock, DecisionMeasure, DecisionOutcome, DecisionReason, Driver, GroupDecision,
    GroupNumber, GroupPlace, InterfaceConfig, NumberOutcome, NumberReason, Stack, StackConfig, VirtualClock,
};
use sync::walk::{self, WalkStep};
use sync::{LockClass, Real};
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::{START, received, send};
use wire::tcp::TcpFlags;

const CORES: usize = 2;
/// Groups of `adaptive` with that many receive threads.
const GROUPS: usize = 16 * CORES;
const PORT: u16 = 80;
/// More entries than the windows up to a decision that is not on trial any more.
const ENOUGH: usize = 2500;
/// Entries after which a receive thread looks at the load of the others.
const PERIOD: usize = 32_768;
/// Time for an entry.
const STEP: Duration = Duration::from_nanos(1000);

/// What a core does on request: mostly it polls.
type Work = Box<dyn FnOnce(&mut Driver<Real>) + Send>;

/// A thread that polls on request.
struct Core {
    orders: Sender<Work>,
}

impl Core {
    fn start(index: usize, mut driver: Driver<Real>) -> Core {
        let (orders, taken) = channel::<Work>();
        let work = move || taken.iter().for_each(|work| work(&mut driver));
        thread::Builder::new().name(format!("core {index}")).spawn(work).expect("a thread");
        Core { orders }
    }

    /// The core does `work`. Returns what that returns.
    fn order<R: Send + 'static>(&self, work: impl FnOnce(&mut Driver<Real>) -> R + Send + 'static) -> R {
        let (ends, done) = channel();
        let work = move |driver: &mut Driver<Real>| _ = ends.send(work(driver));
        self.orders.send(Box::new(work)).expect("the core lives");
        done.recv().expect("the core lives")
    }
}

struct Machine {
    stack: Stack<Real>,
    clock: Arc<VirtualClock<Real>>,
    cores: Vec<Core>,
    peer: Vec<QueuePair>,
    listener: Arc<ListenerShared<Real>>,
}

/// The peer's end of a connection.
struct Peer {
    port: u16,
    socket: Arc<TcpSocket<Real>>,
    sent: u32,
    next: u32,
}

impl Peer {
    fn group(&self) -> usize {
        self.socket.target().index(GROUPS)
    }
}

impl Machine {
    /// With a number of groups that does not change.
    fn new() -> Machine {
        Machine::under("adaptive:16")
    }

    fn under(arch: &str) -> Machine {
        let (near, mut far) = mem::pair::<Real>(MemConfig { queues: CORES, ..MemConfig::default() });
        let clock = VirtualClock::new(START);
        let arch = Architecture::named(arch);
        let config =
            StackConfig { seed: Some(1), cpus: CORES, clock: Clock::Virtual(clock.clone()), ..StackConfig::new(arch) };
        let interface = InterfaceConfig {
            device: Box::new(near),
            addresses: vec![(frames::STACK.into(), 24)],
            gateways: vec![],
            addressing: Addressing::default(),
        };
        let (stack, drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        let cores = drivers.into_iter().enumerate().map(|(index, driver)| Core::start(index, driver)).collect();
        let any = SocketAddr::new(frames::STACK.into(), PORT);
        let listener = stack.listen(any, 64, Default::default()).expect("the port is free");
        let mut machine = Machine { stack, clock, cores, peer: far.take_queues(), listener };
        machine.put(&frames::arp_request());
        (0..CORES).for_each(|core| _ = machine.poll(core));
        machine
    }

    /// Sends a frame. The device chooses the queue.
    fn put(&mut self, frame: &[u8]) {
        let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
        assert!(self.peer[0].tx.transmit(buffer).is_ok(), "there is room");
        self.peer[0].tx.flush();
    }

    /// One turn of a core. Returns how many frames it took.
    fn poll(&self, core: usize) -> usize {
        self.cores[core].order(Driver::poll)
    }

    /// The ports to which the stack has sent segments.
    fn answered(&mut self) -> Vec<(u16, u32)> {
        let mut sent = Vec::new();
        self.peer.iter_mut().for_each(|pair| while pair.rx.receive(&mut sent, 64) > 0 {});
        sent.iter().filter_map(|frame| tcp_of(frame)).map(|(header, _)| (header.dst_port, header.seq.0)).collect()
    }

    /// A connection to port `to` that core `core` receives, in group `group` of those that it receives. Returns the peer's port, and the
    /// number of the next byte that it expects.
    fn open(&mut self, (core, group): (usize, usize), to: u16) -> (u16, u32) {
        let (ends, group) = (Ends::PEER_TO_STACK, core + CORES * group);
        let local = SocketAddr::new(ends.dst, to);
        let fits = |port: &u16| self.stack.flow(local, SocketAddr::new(ends.src, *port)).index(GROUPS) == group;
        let port = (2000..).find(fits).expect("a port");
        self.put(&Segment::syn(port, to).frame_over(ends));
        self.poll(core);
        let next = self.answered().iter().find(|(to, _)| *to == port).expect("a SYN-ACK").1.wrapping_add(1);
        let ack = Segment::ack((port, to), ISS.wrapping_add(1), next);
        self.put(&Segment { flags: TcpFlags::ACK, ..ack }.frame_over(ends));
        self.poll(core);
        (port, next)
    }

    /// The same to [`PORT`], accepted.
    fn connect(&mut self, core: usize, group: usize) -> Peer {
        let (port, next) = self.open((core, group), PORT);
        Peer { port, socket: self.listener.accept().expect("a child waits"), sent: 1, next }
    }

    /// A segment of the peer, without data unless there is some, arrives at the device.
    fn say(&mut self, peer: &Peer, (gap, data): (u32, &[u8])) {
        let segment = Segment::ack((peer.port, PORT), ISS.wrapping_add(peer.sent + gap), peer.next);
        self.put(&Segment { data, ..segment }.frame_over(Ends::PEER_TO_STACK));
    }

    /// A segment behind a gap, which is acknowledged at once, by the thread that runs it.
    fn prod(&mut self, peer: &Peer) {
        self.say(peer, (1, b"x"));
    }

    /// So many segments, each in a turn of the core of its own.
    fn receive(&mut self, core: usize, peer: &Peer, segments: usize) {
        for _ in 0..segments {
            self.say(peer, (0, b""));
            self.poll(core);
            self.clock.advance(STEP);
        }
        self.answered();
    }

    /// So many calls by a thread that does not poll, while core `core` polls.
    fn call(&mut self, core: usize, peer: &Peer, calls: usize) {
        let target = peer.socket.target();
        self.beside(core, move |stack| {
            for _ in 0..calls {
                received(stack.call(&target, Call::Receive(tcp::Receive { max: 0 })));
            }
        });
    }

    /// Work of a thread that does not poll, while core `core` polls.
    fn beside(&mut self, core: usize, work: impl FnOnce(&Stack<Real>) + Send + 'static) {
        let stack = self.stack.clone();
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let caller = thread::spawn(move || {
            work(&stack);
            ends.store(true, Ordering::Release);
        });
        while !over.load(Ordering::Acquire) {
            self.poll(core);
        }
        caller.join().expect("the caller ends well");
    }

    /// Of one group, oldest first.
    fn decisions(&self, peer: &Peer) -> Vec<GroupDecision> {
        self.stack.decisions().into_iter().filter(|decision| decision.group == peer.group()).collect()
    }

    fn last(&self, peer: &Peer) -> GroupDecision {
        *self.decisions(peer).last().expect("a decision")
    }

    /// Receive thread `core` falls asleep. The test thread does it in its place, because it polls on request.
    fn falls_asleep(&self, core: usize) -> Arc<Bell> {
        self.falls_asleep_until(Time::MAX, core)
    }

    fn falls_asleep_until(&self, time: Time, core: usize) -> Arc<Bell> {
        let (alarms, bell) = (self.stack.shared().links().alarms(), Arc::new(Bell::default()));
        alarms.add_wakers(core, std::iter::once(bell.clone() as Arc<dyn dev::Wake>));
        alarms.park(core, || time);
        bell
    }

    fn wakes_up(&self, core: usize) {
        self.stack.shared().links().alarms().unpark(core);
    }
}

/// Counts the wake-ups of a thread.
#[derive(Default)]
struct Bell(AtomicUsize);

impl dev::Wake for Bell {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn within(test: impl Fn() + Send + Sync + 'static) {
    testbed::limit::within(test);
}

fn kept(decision: &GroupDecision) -> bool {
    matches!(decision.outcome, DecisionOutcome::Kept(_))
}

fn reverted(decision: &GroupDecision) -> bool {
    matches!(decision.outcome, DecisionOutcome::Reverted(_))
}

/// A connection that one core alone uses: its group goes home to that core, and a group of the other core to the other.
#[test]
fn a_group_goes_home_to_the_thread_that_has_its_entries() {
    within(|| {
        let mut machine = Machine::new();
        for core in 0..CORES {
            let peer = machine.connect(core, 3);
            machine.receive(core, &peer, ENOUGH);
            let decisions = machine.decisions(&peer);
            let [decision] = &*decisions else { panic!("one decision: {decisions:?}") };
            assert_eq!((decision.from, decision.to), (GroupPlace::Shared, GroupPlace::Home(core)));
            assert_eq!(decision.reason, DecisionReason::OneUser);
            assert_eq!(decision.counts.by_others, 0, "{decision}");
            assert_eq!(
                (decision.before, decision.outcome),
                (DecisionMeasure::Cost(1000), DecisionOutcome::Kept(DecisionMeasure::Cost(0)),)
            );
        }
    });
}

/// Core 0 receives the frames of a connection that core 1 uses: its group goes home to core 1, which runs the frames too, because
/// calls of core 1 would wait for core 0.
#[test]
fn a_group_goes_home_to_the_core_that_calls() {
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(0, 3);
        for _ in 0..ENOUGH {
            machine.say(&peer, (0, b""));
            machine.poll(0);
            machine.poll(1);
            let (stack, target) = (machine.stack.clone(), peer.socket.target());
            let call = move |_: &mut Driver<Real>| {
                (0..2).for_each(|_| _ = received(stack.call(&target, Call::Receive(tcp::Receive { max: 0 }))));
            };
            machine.cores[1].order(call);
            machine.clock.advance(STEP);
        }
        let decisions = machine.decisions(&peer);
        let [decision] = &*decisions else { panic!("one decision: {decisions:?}") };
        assert_eq!((decision.to, decision.reason), (GroupPlace::Home(1), DecisionReason::OneUser));
        assert!(kept(decision) && decision.counts.turns > 0, "{decision}");
    });
}

/// Two cores with as many entries each: no thread has almost all of them, and there is nothing to decide.
#[test]
fn a_group_that_two_threads_use_alike_stays_shared() {
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(0, 3);
        for _ in 0..ENOUGH / 10 {
            machine.receive(0, &peer, 10);
            machine.call(1, &peer, 10);
        }
        assert_eq!(machine.decisions(&peer), []);
    });
}

/// A call of another thread waits for the core where the group is at home. The group is shared from then on, and calls run where
/// they are made.
#[test]
fn a_group_is_shared_where_other_threads_use_it() {
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(1, 0);
        machine.receive(1, &peer, ENOUGH);
        assert_eq!(machine.last(&peer).to, GroupPlace::Home(1));
        machine.call(1, &peer, 1);
        let decision = machine.last(&peer);
        assert_eq!((decision.from, decision.to), (GroupPlace::Home(1), GroupPlace::Shared));
        assert_eq!(decision.reason, DecisionReason::OtherUsers);
        assert_eq!((decision.counts.handoffs, decision.counts.awaited), (1, 1), "{decision}");
        machine.call(1, &peer, ENOUGH);
        assert!(kept(&machine.last(&peer)), "{}", machine.last(&peer));
        // No core polls: with a home that call would not end.
        let (stack, target) = (machine.stack.clone(), peer.socket.target());
        let call = move || received(stack.call(&target, Call::Receive(tcp::Receive { max: 1 })));
        thread::spawn(call).join().expect("the caller ends well");
    });
}

/// A listener is entered into all groups, and statistics are read from all of them: neither is a use of a group by another thread.
#[test]
fn what_concerns_all_groups_does_not_end_a_stay_at_home() {
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(1, 0);
        machine.receive(1, &peer, ENOUGH);
        machine.beside(1, |stack| {
            let any = SocketAddr::new(frames::STACK.into(), PORT + 1);
            stack.listen(any, 64, Default::default()).expect("the port is free");
            assert!(stack.stats().connections > 0);
        });
        machine.receive(1, &peer, ENOUGH);
        assert_eq!(machine.decisions(&peer).len(), 1, "{:?}", machine.decisions(&peer));
        assert_eq!(machine.last(&peer).to, GroupPlace::Home(1));
    });
}

/// A group goes home, and then others use it: worse than before. It is shared again, and does not go home in the next windows
/// although one thread has all entries again; but it does later.
#[test]
fn a_change_that_made_things_worse_is_undone_and_not_repeated_at_once() {
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(1, 5);
        while machine.decisions(&peer).is_empty() {
            machine.receive(1, &peer, 1);
        }
        assert_eq!(machine.last(&peer).outcome, DecisionOutcome::OnTrial);
        machine.call(1, &peer, 200);
        let decision = machine.last(&peer);
        assert!(reverted(&decision) && decision.to == GroupPlace::Home(1), "{decision}");
        // Shared: two windows of rest, of 64 entries and of 128, and then one of 256. The calls have begun the first.
        machine.receive(1, &peer, 64 + 128 + 256 - 200);
        assert_eq!(machine.decisions(&peer).len(), 1, "it rests");
        machine.receive(1, &peer, ENOUGH);
        let decision = machine.last(&peer);
        assert!(decision.number > 0 && decision.to == GroupPlace::Home(1) && kept(&decision), "{decision}");
    });
}

/// Two connections at home at core 0, which never sleeps. The group of one moves to core 1, which sleeps. Returns that one, and the other.
fn overloaded(machine: &mut Machine) -> (Peer, Peer, Arc<Bell>) {
    let (mut one, mut two) = (machine.connect(0, 1), machine.connect(0, 2));
    machine.poll(1);
    let bell = machine.falls_asleep(1);
    let moved = |machine: &Machine, peer: &Peer| {
        machine.decisions(peer).iter().any(|decision| matches!(decision.reason, DecisionReason::Load { .. }))
    };
    for _ in 0..4 * PERIOD {
        machine.receive(0, &one, 1);
        machine.receive(0, &two, 1);
        let moves = [&one, &two].map(|peer| moved(machine, peer));
        if moves[1] {
            std::mem::swap(&mut one, &mut two);
        }
        if moves.contains(&true) {
            return (one, two, bell);
        }
    }
    panic!("no group moves: {:?}", machine.stack.decisions());
}

/// A receive thread without sleep gives a group to one that sleeps, which is woken for it; what still arrives at the first is run
/// by the second.
#[test]
fn a_group_moves_from_a_busy_thread_to_one_that_sleeps() {
    within(|| {
        let mut machine = Machine::new();
        let (peer, other, bell) = overloaded(&mut machine);
        let decision = machine.last(&peer);
        assert_eq!((decision.from, decision.to), (GroupPlace::Home(0), GroupPlace::Home(1)));
        machine.poll(0);
        assert!(bell.0.load(Ordering::Relaxed) > 0, "it is notified of its new group");
        machine.wakes_up(1);
        machine.poll(1);
        machine.answered();
        machine.prod(&peer);
        machine.poll(0);
        assert_eq!(machine.answered(), [], "its new thread answers");
        machine.poll(1);
        assert_eq!(machine.answered().iter().map(|(to, _)| *to).collect::<Vec<_>>(), [peer.port]);
        machine.prod(&other);
        machine.poll(0);
        assert_eq!(machine.answered().iter().map(|(to, _)| *to).collect::<Vec<_>>(), [other.port], "the other stays");
    });
}

/// As many entries a second as before, or fewer: kept, or moved back.
#[test]
fn a_move_by_load_is_judged_by_what_all_threads_do_in_a_second() {
    within(|| {
        for (slower, wrong) in [(Duration::ZERO, false), (3 * STEP, true)] {
            let mut machine = Machine::new();
            let (peer, other, _) = overloaded(&mut machine);
            machine.wakes_up(1);
            for _ in 0..PERIOD {
                machine.receive(0, &peer, 1);
                machine.poll(1);
                machine.receive(0, &other, 1);
                machine.clock.advance(slower);
            }
            let decisions = machine.decisions(&peer);
            let moved = decisions.iter().find(|decision| matches!(decision.reason, DecisionReason::Load { .. }));
            let moved = moved.expect("a move by load");
            assert_eq!((kept(moved), reverted(moved)), (!wrong, wrong), "{moved}");
            // Where it arrives it is answered, or by the other core.
            machine.poll(1);
            machine.answered();
            machine.prod(&peer);
            machine.poll(0);
            assert_eq!(machine.answered().is_empty(), !wrong);
        }
    });
}

/// The thread from which a group was moved sleeps again: the group comes back to where its segments arrive.
#[test]
fn a_group_comes_back_when_the_load_is_over() {
    within(|| {
        let mut machine = Machine::new();
        let (peer, other, _) = overloaded(&mut machine);
        machine.wakes_up(1);
        let busy = |machine: &mut Machine, peer: &Peer, other: &Peer| {
            for _ in 0..PERIOD {
                machine.receive(0, peer, 1);
                machine.poll(1);
                machine.receive(0, other, 1);
            }
        };
        busy(&mut machine, &peer, &other);
        assert!(kept(&machine.last(&peer)), "{}", machine.last(&peer));
        machine.falls_asleep(0);
        machine.wakes_up(0);
        busy(&mut machine, &peer, &other);
        let decision = machine.last(&peer);
        assert_eq!((decision.to, decision.reason), (GroupPlace::Home(0), DecisionReason::LoadIsOver), "{decision}");
        assert!(kept(&decision), "{decision}");
    });
}

/// A thread that has slept is not overloaded, and a thread that does not sleep takes no group.
#[test]
fn a_group_stays_where_its_thread_sleeps_or_no_other_does() {
    within(|| {
        for core in [0, 1] {
            let mut machine = Machine::new();
            let (one, two) = (machine.connect(0, 1), machine.connect(0, 2));
            machine.poll(1);
            if core == 0 {
                machine.falls_asleep(1);
            }
            for round in 0..2 * PERIOD {
                if core == 0 && round % 1000 == 0 {
                    machine.falls_asleep(0);
                    machine.wakes_up(0);
                }
                machine.receive(0, &one, 1);
                machine.receive(0, &two, 1);
            }
            for peer in [&one, &two] {
                assert!(machine.decisions(peer).iter().all(|decision| decision.reason == DecisionReason::OneUser));
            }
        }
    });
}

/// Full batches arrive all the time, and core 0 takes one in a turn: in the turn in which the group goes home, too, and while a
/// message waits for it there. Neither is a timer, for which the frames that came before it would be taken first; that would make
/// the turns of a thread with much to receive longer still.
#[test]
fn only_a_timer_makes_a_turn_longer() {
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(0, 3);
        let batches = |machine: &mut Machine, count: usize| {
            (0..count * VECTOR_LEN).for_each(|_| machine.say(&peer, (0, b"")));
        };
        batches(&mut machine, 2);
        while machine.decisions(&peer).is_empty() {
            batches(&mut machine, 1);
            assert_eq!(machine.poll(0), VECTOR_LEN);
        }
        assert_eq!(machine.last(&peer).to, GroupPlace::Home(0));
        let (stack, target) = (machine.stack.clone(), peer.socket.target());
        let caller = thread::spawn(move || received(stack.call(&target, Call::Receive(tcp::Receive { max: 0 }))));
        while machine.stack.is_quiescent() {
            thread::yield_now();
        }
        assert_eq!(machine.poll(0), VECTOR_LEN, "a message waits");
        caller.join().expect("the caller ends well");
    });
}

/// A retransmission is due, in a group at home and in a shared one: the frames that may have come before it are taken first.
#[test]
fn a_timer_waits_for_the_frames_before_it() {
    within(|| {
        for (entries, home) in [(ENOUGH, true), (0, false)] {
            let mut machine = Machine::new();
            let peer = machine.connect(0, 3);
            machine.receive(0, &peer, entries);
            assert_eq!(!machine.decisions(&peer).is_empty(), home);
            let (stack, target) = (machine.stack.clone(), peer.socket.target());
            machine.cores[0].order(move |_| drop(stack.call(&target, send(b"x"))));
            assert_eq!(machine.answered().len(), 1, "it is sent");
            machine.clock.advance(Duration::from_secs(3));
            (0..3 * VECTOR_LEN).for_each(|_| machine.put(&[0; 60]));
            assert_eq!(machine.poll(0), 3 * VECTOR_LEN);
            assert_eq!(machine.answered().len(), 1, "it is sent again");
        }
    });
}

/// A connection of a shared group has sent data. A receive thread, whichever, sleeps until it is to be sent again, neither longer
/// nor shorter.
#[test]
fn a_receive_thread_sleeps_until_the_timers_of_a_shared_group() {
    /// More looks that find nothing would be a busy loop.
    const WAKES: usize = 8;
    within(|| {
        for core in 0..CORES {
            let mut machine = Machine::new();
            let peer = machine.connect(0, 3);
            let (stack, target) = (machine.stack.clone(), peer.socket.target());
            machine.cores[0].order(move |_| drop(stack.call(&target, send(b"x"))));
            assert_eq!(machine.answered().len(), 1, "it is sent");
            let sent = machine.clock.now();
            let again = (0..WAKES).any(|_| {
                let (now, until) = (machine.clock.now(), machine.cores[core].order(|driver| driver.next_deadline()));
                assert!(until > now && until < sent + Duration::from_secs(2), "until {until:?} at {now:?}");
                machine.clock.advance_to(until);
                machine.poll(core);
                !machine.answered().is_empty()
            });
            assert!(again, "after {WAKES} deadlines nothing was sent again");
        }
    });
}

/// Counts the bytes that it gets, and says what its name is. When a message comes, its thread stays in the group until the test
/// lets it go.
struct Stays {
    bytes: Arc<AtomicUsize>,
    named: Sender<HandlerRef<Real>>,
}

/// The message: tells that the thread is in the group, and lets it go.
type Stay = (Sender<()>, Receiver<()>);

impl ConnectionHandler<Real> for Stays {
    fn open(&mut self, conn: &mut Conn<'_, Real>) {
        self.named.send(conn.name()).expect("the test listens");
    }

    fn data(&mut self, _: &mut Conn<'_, Real>, data: PktBuf) {
        self.bytes.fetch_add(data.len(), Ordering::Relaxed);
    }

    fn message(&mut self, _: &mut Conn<'_, Real>, message: HandlerMessage) {
        let (inside, leaves) = *message.downcast::<Stay>().expect("a stay");
        inside.send(()).expect("the test listens");
        leaves.recv().expect("the test lets it go");
    }
}

/// A user's thread is in a shared group while more frames arrive for it than it runs before it leaves. The rest is for the receive
/// threads, of which one is woken where all sleep, and any runs it.
#[test]
fn a_receive_thread_runs_what_is_left_in_a_shared_group() {
    const FRAMES: usize = 300;
    const BUDGET: usize = 256;
    within(|| {
        let mut machine = Machine::new();
        let (bytes, (named, names)) = (Arc::new(AtomicUsize::new(0)), channel());
        let (counts, any) = (bytes.clone(), SocketAddr::new(frames::STACK.into(), PORT + 1));
        let make = move |_: &_| Box::new(Stays { bytes: counts.clone(), named: named.clone() }) as Box<_>;
        let _listener = machine.stack.listen_with_handlers(any, 8, Default::default(), make).expect("the port is free");
        let (port, next) = machine.open((0, 3), PORT + 1);
        let (name, (enters, inside), (leave, leaves)) = (names.recv().expect("a handler"), channel(), channel());
        let holder = thread::spawn(move || name.post(Box::new((enters, leaves) as Stay)).expect("it is open"));
        inside.recv().expect("a thread is in the group");
        for frame in 0..FRAMES {
            let segment = Segment::ack((port, PORT + 1), ISS.wrapping_add(1 + frame as u32), next);
            machine.put(&Segment { data: b"x", ..segment }.frame_over(Ends::PEER_TO_STACK));
            assert_eq!(machine.poll(0), 1);
        }
        // No timer is due so soon.
        let soon = machine.clock.now() + STEP;
        let bells = [0, 1].map(|core| machine.falls_asleep_until(soon, core));
        assert_eq!(bytes.load(Ordering::Relaxed), 0);
        leave.send(()).expect("it waits");
        holder.join().expect("it ends well");
        assert_eq!(bytes.load(Ordering::Relaxed), BUDGET);
        assert_eq!(bells.map(|bell| bell.0.load(Ordering::Relaxed)).iter().sum::<usize>(), 1, "one is woken");
        (0..CORES).for_each(|core| machine.wakes_up(core));
        machine.poll(1);
        assert_eq!(bytes.load(Ordering::Relaxed), FRAMES);
        assert_eq!(machine.stack.decisions(), []);
    });
}

/// How often core 1 takes the lock of its transmit queue to answer a segment.
fn locks_to_answer(machine: &mut Machine, peer: &Peer) -> usize {
    machine.prod(peer);
    let steps = machine.cores[1].order(|driver| walk::record(|| _ = driver.poll()).1);
    assert_eq!(machine.answered().len(), 1);
    steps.iter().filter(|step| matches!(step, WalkStep::Take(LockClass::DeviceTx))).count()
}

/// More entries than sixteen windows at home.
const ALONE: usize = 17 * 1024;

/// The transmit queue of core 1 is claimed where it has been alone there for some windows. It sends without a lock then, until another
/// thread, in a group that was not in use, has sent some frames.
#[test]
fn a_core_that_is_alone_sends_without_a_lock() {
    const MAIL: usize = 32;
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(1, 0);
        assert_eq!(locks_to_answer(&mut machine, &peer), 1);
        machine.receive(1, &peer, ENOUGH);
        assert_eq!((machine.last(&peer).to, locks_to_answer(&mut machine, &peer)), (GroupPlace::Home(1), 1));
        machine.receive(1, &peer, ALONE);
        assert_eq!(locks_to_answer(&mut machine, &peer), 0);
        let mut other = machine.connect(1, 5);
        for frame in 1..=MAIL {
            assert_eq!(locks_to_answer(&mut machine, &peer), 0, "{frame} of {MAIL}");
            sends_a_byte(&machine, &other);
            assert_eq!(machine.answered(), [], "it is left for core 1");
            machine.poll(1);
            assert_eq!(machine.answered().len(), 1);
            other.next = other.next.wrapping_add(1);
            machine.say(&other, (0, b""));
            machine.poll(1);
        }
        assert_eq!(locks_to_answer(&mut machine, &peer), 1);
        sends_a_byte(&machine, &other);
        assert_eq!(machine.answered().len(), 1, "any thread sends");
    });
}

/// The test thread, which polls nothing, sends a byte.
fn sends_a_byte(machine: &Machine, peer: &Peer) {
    drop(machine.stack.call(&peer.socket.target(), send(b"x")));
}

/// A call has waited for core 1, and the group is shared from then on. It was the only one there.
#[test]
fn a_claim_ends_when_a_group_leaves_its_home() {
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(1, 0);
        machine.receive(1, &peer, ENOUGH + ALONE);
        assert_eq!(locks_to_answer(&mut machine, &peer), 0);
        machine.call(1, &peer, 1);
        machine.poll(1);
        assert_eq!(locks_to_answer(&mut machine, &peer), 1);
        sends_a_byte(&machine, &peer);
        assert_eq!(machine.answered().len(), 1);
    });
}

/// The notes about groups that the calling thread leaves in `work`.
fn notes(work: impl FnOnce()) -> Vec<&'static str> {
    let of_groups = |step| match step {
        WalkStep::Note { file, text } if file.ends_with("adaptive/group.rs") => Some(text),
        _ => None,
    };
    walk::record(work).1.into_iter().filter_map(of_groups).collect()
}

/// Shared, at home, and at home where another thread has called.
#[test]
fn a_walk_says_why_a_thread_may_use_a_group() {
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(1, 0);
        let (stack, target) = (machine.stack.clone(), peer.socket.target());
        let call = move || drop(stack.call(&target, Call::Receive(tcp::Receive { max: 0 })));
        let by_the_core = |machine: &Machine| {
            let call = call.clone();
            machine.cores[1].order(move |_| notes(call))
        };
        assert_eq!(by_the_core(&machine), ["owns the flow's group for this event"]);
        machine.receive(1, &peer, ENOUGH);
        assert_eq!(by_the_core(&machine), ["has the flow's group at home"]);
        let caller = thread::spawn(call.clone());
        while machine.stack.is_quiescent() {
            thread::yield_now();
        }
        let noted = machine.cores[1].order(|driver| notes(|| _ = driver.poll()));
        assert_eq!(noted, ["runs what was queued in the flow's group"]);
        caller.join().expect("the caller ends well");
    });
}

/// Every decision says in a line what was decided, on what counts, and what became of it.
#[test]
fn a_decision_says_why() {
    within(|| {
        let mut machine = Machine::new();
        let peer = machine.connect(1, 0);
        machine.receive(1, &peer, ENOUGH);
        machine.call(1, &peer, ENOUGH);
        let lines: Vec<String> = machine.decisions(&peer).iter().map(ToString::to_string).collect();
        let [home, shared] = &*lines else { panic!("two decisions: {lines:#?}") };
        assert!(
            home.contains("s: group 1, shared -> thread 1: its calls are one thread's, 0 of 128 entries came after"),
            "{home}"
        );
        assert!(
            home.ends_with(
                "(0 handed over, 0 waited for, longest queue 0); kept: 0.00 visits an entry, 1.00 visits an entry before"
            ),
            "{home}"
        );
        assert!(shared.contains("group 1, thread 1 -> shared: other threads have"), "{shared}");
        assert!(shared.contains("; kept: "), "{shared}");
    });
}

/// Windows after which there are to be few groups, or many.
const SETTLED: u32 = 256;

/// Two connections at each core, in two groups.
fn at_both(machine: &mut Machine) -> [[Peer; 2]; CORES] {
    [0, 1].map(|core| [3, 4].map(|group| machine.connect(core, group)))
}

/// A full batch for core `core`, of two connections in turn, so that each frame is an entry: the core takes it, and reads the byte that
/// one of them has brought.
fn batch(machine: &mut Machine, core: usize, peers: &mut [Peer; 2], byte: u8) {
    for frame in 0..VECTOR_LEN {
        machine.say(&peers[frame % 2], (0, if frame == 0 { std::slice::from_ref(&byte) } else { b"" }));
        peers[0].sent += u32::from(frame == 0);
    }
    assert_eq!(machine.poll(core), VECTOR_LEN);
    let (stack, target) = (machine.stack.clone(), peers[0].socket.target());
    let read = move |_: &mut Driver<Real>| received(stack.call(&target, Call::Receive(tcp::Receive { max: 10 })));
    let read = machine.cores[core].order(read).expect("the connection is open");
    assert_eq!(read, (vec![byte], false));
    machine.clock.advance(STEP);
    machine.answered();
}

/// Each core in turn has a batch, and gives up its groups if it `rests`. Returns the rounds until the number of groups is changed
/// for the `nth` time, or not.
fn rounds_until_changed(machine: &mut Machine, peers: &mut [[Peer; 2]; CORES], (nth, rests): (usize, bool)) -> usize {
    for round in 1..20_000 {
        for (core, peers) in peers.iter_mut().enumerate() {
            batch(machine, core, peers, round as u8);
            if rests {
                machine.cores[core].order(Driver::rest);
            }
        }
        let outcomes = machine.stack.group_numbers();
        if outcomes.len() >= nth && outcomes.last().is_some_and(|change| change.outcome != NumberOutcome::Asked) {
            return round;
        }
    }
    panic!("the number of groups is not changed: {:?}", machine.stack.group_numbers());
}

fn is_changed((from, to): (usize, usize), reason: NumberReason, change: &GroupNumber) -> bool {
    let made = matches!(change.outcome, NumberOutcome::Changed(_));
    (change.from, change.to, change.reason, made) == (from, to, reason, true)
}

/// Whether each core has the connections that it receives at home.
fn at_home(machine: &Machine, peers: &[[Peer; 2]; CORES]) -> [bool; CORES] {
    [0, 1].map(|core| {
        let (stack, target) = (machine.stack.clone(), peers[core][0].socket.target());
        let call = move || drop(stack.call(&target, Call::Receive(tcp::Receive { max: 0 })));
        machine.cores[core].order(move |_| notes(call)) == ["has the flow's group at home"]
    })
}

/// Calls of a thread that does not poll, in turns of core 1, until the number of groups is changed. Core 0 rests.
fn calls_until_changed(machine: &mut Machine, peer: &Peer) {
    machine.cores[0].order(Driver::rest);
    let before = machine.stack.group_numbers().len();
    for _ in 0..100 {
        machine.call(1, peer, 100);
        machine.receive(1, peer, 100);
        if machine.stack.group_numbers().len() > before {
            machine.poll(1);
            return;
        }
    }
    panic!("the number of groups is not changed: {:?}", machine.stack.decisions());
}

/// Both cores have all the entries of their connections: one group for each core is at home there. Other threads use the connections
/// of one, and there are sixteen; all is at home again for long, and there is one for each core. Connections go on.
#[test]
fn there_are_few_groups_where_all_are_at_home() {
    within(|| {
        let mut machine = Machine::under("adaptive");
        let mut peers = at_both(&mut machine);
        for round in 0..200 {
            (0..CORES).for_each(|core| batch(&mut machine, core, &mut peers[core], round));
        }
        assert_eq!(at_home(&machine, &peers), [true; CORES]);
        assert_eq!(machine.stack.group_numbers(), []);
        calls_until_changed(&mut machine, &peers[1][0]);
        let changes = machine.stack.group_numbers();
        assert!(is_changed((1, 16), NumberReason::Elsewhere { windows: SETTLED / 32 }, &changes[0]), "{changes:?}");
        rounds_until_changed(&mut machine, &mut peers, (2, true));
        let changes = machine.stack.group_numbers();
        // They had not lasted.
        let all_at_home = NumberReason::AllAtHome { windows: 2 * SETTLED };
        assert!(is_changed((16, 1), all_at_home, &changes[1]), "{changes:?}");
        for round in 0..200 {
            (0..CORES).for_each(|core| batch(&mut machine, core, &mut peers[core], round));
        }
        assert_eq!(at_home(&machine, &peers), [true; CORES]);
        assert_eq!(machine.stack.group_numbers().len(), 2);
    });
}

/// Core 0 owns its group, and polls only on request: core 1 gives up soon, and all goes on as before.
#[test]
fn the_number_of_groups_stays_where_a_core_does_not_yield() {
    within(|| {
        let mut machine = Machine::under("adaptive");
        let mut peers = at_both(&mut machine);
        for round in 0..200 {
            (0..CORES).for_each(|core| batch(&mut machine, core, &mut peers[core], round));
        }
        while machine.stack.group_numbers().is_empty() {
            machine.call(1, &peers[1][0], 100);
            machine.receive(1, &peers[1][0], 100);
        }
        machine.poll(1);
        let change = machine.stack.group_numbers()[0];
        assert_eq!((change.to, change.outcome), (16, NumberOutcome::Refused), "{change}");
        assert!(at_home(&machine, &peers)[0]);
        (0..200).for_each(|round| batch(&mut machine, 1, &mut peers[1], round));
    });
}

/// Core 0 receives the frames of connections that core 1 uses, in batches: their groups are shared, and more of them keep the
/// cores apart.
#[test]
fn there_are_more_groups_where_they_are_shared() {
    within(|| {
        let mut machine = Machine::under("adaptive");
        let peers = [3, 4].map(|group| machine.connect(0, group));
        for _ in 0..20_000 {
            (0..VECTOR_LEN).for_each(|frame| machine.say(&peers[frame % 2], (0, b"")));
            assert_eq!(machine.poll(0), VECTOR_LEN);
            for peer in &peers {
                let (stack, target) = (machine.stack.clone(), peer.socket.target());
                let call = move |_: &mut Driver<Real>| {
                    (0..4).for_each(|_| _ = received(stack.call(&target, Call::Receive(tcp::Receive { max: 0 }))));
                };
                machine.cores[1].order(call);
            }
            machine.clock.advance(STEP);
            machine.answered();
            if machine.stack.group_numbers().len() > 1 {
                break;
            }
        }
        machine.poll(0);
        let changes = machine.stack.group_numbers();
        assert!(is_changed((1, 16), NumberReason::Elsewhere { windows: SETTLED / 32 }, &changes[0]), "{changes:?}");
        assert!(is_changed((16, 64), NumberReason::MostlyShared { windows: SETTLED }, &changes[1]), "{changes:?}");
        assert_eq!(machine.stack.decisions(), []);
        machine.prod(&peers[0]);
        machine.poll(0);
        assert_eq!(machine.answered().len(), 1);
    });
}

/// Core 1 has a group at home, and makes calls without polling. While the stack is switched, calls wait: it gives its group up before,
/// because otherwise the switch would wait for it.
#[test]
fn a_core_that_waits_for_the_end_of_a_switch_gives_up_its_groups() {
    within(|| {
        let mut machine = Machine::new();
        let (own, other) = (machine.connect(1, 3), machine.connect(0, 4));
        machine.receive(1, &own, ENOUGH);
        assert_eq!(machine.last(&own).to, GroupPlace::Home(1));
        machine.cores[0].order(Driver::rest);
        let (stack, target) = (machine.stack.clone(), other.socket.target());
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let calls = move |_: &mut Driver<Real>| {
            while !ends.load(Ordering::Acquire) {
                drop(stack.call(&target, Call::Receive(tcp::Receive { max: 0 })));
            }
        };
        machine.cores[1].orders.send(Box::new(calls)).expect("the core lives");
        let switched = machine.stack.set_architecture(Architecture::named("connp-l:4"));
        over.store(true, Ordering::Release);
        assert!(switched.is_ok(), "{switched:?}");
    });
}
