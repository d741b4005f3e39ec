//! Notifications of the waiters of sockets, step by step, on a platform on which no thread sleeps: the test contains
//! the steps of other threads while a thread sleeps, or just before it fences. The races proper are left to the models.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use planted::{Planted, Sound, updates};
use sync::{Atomic, DoorbellLike, Ordering, Platform, Real, Writers};

use super::readiness::{ReadinessWaiter, Watch};
use super::*;

const READABLE: Readiness = Readiness::READABLE;
const WRITABLE: Readiness = Readiness::WRITABLE;
const CLOSED: Readiness = Readiness::CLOSED;
const WRITERS: [Writers; 2] = [Writers::Many, Writers::One];

/// The words of the real machine, which count read-modify-writes.
type Counted = Planted<Real, Sound>;

#[derive(Clone, Copy, Debug, Default)]
struct Scripted;

type Act = Box<dyn FnOnce()>;

thread_local! {
    /// The steps of other threads while this one sleeps, one entry for each sleep.
    static MEANWHILE: RefCell<VecDeque<Act>> = const { RefCell::new(VecDeque::new()) };
    /// The step of another thread just before a heavy fence.
    static BEFORE_FENCE: RefCell<Option<Act>> = const { RefCell::new(None) };
    static NOW: Cell<u64> = const { Cell::new(0) };
    /// For how long it was about to sleep, each time.
    static SLEEPS: RefCell<Vec<Option<Duration>>> = const { RefCell::new(Vec::new()) };
    static WAKES: Cell<usize> = const { Cell::new(0) };
    static FENCES: Cell<usize> = const { Cell::new(0) };
    static RINGS: Cell<usize> = const { Cell::new(0) };
}

impl Platform for Scripted {
    sync::forward_platform!(Counted: atomics);
    sync::forward_platform!(Real: cells join spawn spin random thread profile held);
    type Doorbell = Bell;

    fn now() -> u64 {
        NOW.get()
    }
    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        if atom.load(Ordering::Relaxed) != expected {
            return;
        }
        SLEEPS.with_borrow_mut(|sleeps| {
            sleeps.push(timeout);
            assert!(sleeps.len() < 10, "it never gets up");
        });
        let act = MEANWHILE.with_borrow_mut(VecDeque::pop_front);
        match (act, timeout) {
            (Some(act), _) => act(),
            (None, Some(timeout)) => NOW.set(NOW.get() + timeout.as_nanos() as u64),
            (None, None) => panic!("it sleeps for ever"),
        }
    }
    fn futex_wake(_: &Self::AtomicU32, _: u32) {
        WAKES.set(WAKES.get() + 1);
    }
    fn fence(order: Ordering) {
        Real::fence(order);
    }
    fn heavy_fence() {
        FENCES.set(FENCES.get() + 1);
        if let Some(act) = BEFORE_FENCE.take() {
            act();
        }
    }
}

/// A fake descriptor; notifications of an armed one are counted.
struct Bell(<Counted as Platform>::AtomicBool);

impl DoorbellLike for Bell {
    fn new() -> std::io::Result<Self> {
        Ok(Bell(Atomic::new(false)))
    }
    fn ring(&self) -> bool {
        let rings = self.0.swap(false, Ordering::Relaxed);
        RINGS.set(RINGS.get() + usize::from(rings));
        rings
    }
    fn arm(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn drain(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
    fn sleep(&self, _: &[i32], _: Option<Duration>) {
        panic!("no thread of these tests polls");
    }
    fn fd(&self) -> Option<i32> {
        Some(77)
    }
}

fn meanwhile(act: impl FnOnce() + 'static) {
    MEANWHILE.with_borrow_mut(|acts| acts.push_back(Box::new(act)));
}

/// The growth of `count`.
fn counted(count: &'static std::thread::LocalKey<Cell<usize>>, act: impl FnOnce()) -> usize {
    let before = count.get();
    act();
    count.get() - before
}

fn sleeps() -> Vec<Option<Duration>> {
    SLEEPS.take()
}

fn millis(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis))
}

fn tuple(local: &str, remote: &str) -> FourTuple {
    let [local_addr, remote_addr]: [IpAddr; 2] = [local, remote].map(|address| address.parse().expect("an address"));
    FourTuple { local_addr, remote_addr, local_port: 1, remote_port: 2 }
}

fn socket() -> Arc<TcpSocket<Scripted>> {
    TcpSocket::new(Flow { tuple: tuple("10.0.0.1", "10.0.0.2"), hash: 7 })
}

/// A socket of a connection that one thread uses, before anything can wait for it.
fn socket_of_one() -> Arc<TcpSocket<Scripted>> {
    let socket = socket();
    socket.ready.begin(Readiness::NONE, Writers::One);
    socket
}

/// A socket whose bits were set and cleared before, as by earlier segments: with [`Writers::One`], by plain stores.
fn used(writers: Writers) -> Arc<TcpSocket<Scripted>> {
    let socket = socket();
    socket.ready.raise_as(READABLE, writers);
    socket.ready.clear_as(READABLE, writers);
    socket
}

fn set() -> Arc<PollSet<Scripted>> {
    PollSet::new(true).expect("a bell")
}

fn events(set: &PollSet<Scripted>) -> Vec<(usize, Readiness)> {
    let mut events = Vec::new();
    set.try_wait(&mut events, 100);
    events.iter().map(|event| (event.token, event.ready)).collect()
}

/// The edges that a watch hears: bits raised, and bits set.
#[derive(Default)]
struct Heard(Mutex<Vec<(Readiness, Readiness)>>);

impl Watch for Heard {
    fn ready(&self, raised: Readiness, level: Readiness) {
        self.0.lock().unwrap().push((raised, level));
    }
}

impl Heard {
    fn take(&self) -> Vec<(Readiness, Readiness)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[test]
fn a_socket_knows_both_ends_of_its_flow() {
    for ends in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"], ["fd00::1", "10.0.0.2"]] {
        let flow = Flow { tuple: tuple(ends[0], ends[1]), hash: 0x1234_5678 };
        let socket = TcpSocket::<Scripted>::new(flow);
        assert_eq!((socket.tuple(), socket.flow(), socket.target().hash), (flow.tuple, flow, flow.hash));
    }
}

#[test]
fn a_socket_is_named_by_its_key_until_its_connection_is_given_up() {
    let (socket, key) = (socket(), Key { slot: 5, generation: 9 });
    socket.placed(key);
    assert_eq!((socket.target().key, socket.slot(), socket.is_aborted()), (key, Some(5), false));
    socket.abort();
    assert_eq!((socket.slot(), socket.is_aborted()), (None, true));
    assert_ne!(socket.target().key, key);
}

#[test]
fn a_datagram_socket_is_writable_from_the_beginning() {
    for local in ["10.0.0.1:53", "[fd00::1]:53"] {
        let local = local.parse().expect("an address");
        let socket = UdpShared::<Scripted>::new(local, 3);
        assert_eq!((socket.name().port, socket.name().number, socket.local()), (53, 3, local));
        assert_eq!((socket.ready.get(), socket.ready_state().get()), (WRITABLE, WRITABLE));
    }
}

#[test]
fn bits_are_set_and_cleared_one_by_one_by_whatever_stores() {
    for writers in WRITERS {
        let ready = &used(writers).ready;
        assert_eq!(ready.get(), Readiness::NONE);
        ready.begin(WRITABLE, writers);
        assert_eq!(ready.get(), WRITABLE, "from the beginning");
        ready.clear_as(WRITABLE, writers);
        ready.raise_as(READABLE | CLOSED, writers);
        assert_eq!(ready.get(), READABLE | CLOSED);
        ready.raise_as(WRITABLE, writers);
        ready.raise_as(READABLE, writers);
        assert_eq!(ready.get(), READABLE | WRITABLE | CLOSED);
        ready.clear_as(READABLE, writers);
        assert_eq!(ready.get(), WRITABLE | CLOSED);
        ready.clear_as(CLOSED, writers);
        assert_eq!(ready.get(), WRITABLE);
        ready.restore(READABLE);
        ready.raise_as(READABLE, writers);
        assert_eq!(ready.get(), READABLE | WRITABLE);
        ready.clear_as(READABLE, writers);
        assert_eq!(ready.get(), WRITABLE);
        // After a switch to an architecture with several threads.
        ready.raise(READABLE);
        ready.clear(WRITABLE);
        assert_eq!(ready.get(), READABLE);
        ready.raise(WRITABLE);
        assert_eq!(ready.get(), READABLE | WRITABLE);
    }
}

/// The word that one thread alone writes costs it no read-modify-write, and neither does an edge whose bits are set.
#[test]
fn bits_cost_one_writer_no_locked_instruction() {
    let socket = used(Writers::One);
    let ready = &socket.ready;
    assert_eq!(updates(|| ready.raise_as(READABLE, Writers::One)), 0);
    assert_eq!(updates(|| ready.raise_as(READABLE | WRITABLE, Writers::One)), 0);
    assert_eq!(updates(|| ready.raise(READABLE)), 0, "it is set");
    assert_eq!(updates(|| ready.clear_as(READABLE | WRITABLE, Writers::One)), 0);
    assert_eq!(ready.get(), Readiness::NONE);
    assert_eq!(updates(|| ready.raise_as(CLOSED, Writers::One)), 0);
    assert!(updates(|| ready.raise_as(Readiness::ERROR, Writers::One)) > 0, "its user clears it");
    let new = socket_of_one();
    assert_eq!(updates(|| new.ready.raise_as(WRITABLE | CLOSED, Writers::One)), 0, "nor the first time");
    let many = used(Writers::Many);
    many.ready.raise(READABLE);
    assert_eq!(updates(|| many.ready.raise(READABLE)), 0, "it is set");
}

#[test]
fn only_an_edge_wakes_sleepers_and_nobody_is_woken_twice() {
    for writers in WRITERS {
        let socket = used(writers);
        assert_eq!(counted(&WAKES, || socket.ready.raise_as(WRITABLE, writers)), 0, "nobody sleeps");
        assert_eq!(counted(&WAKES, || socket.ready.restore(WRITABLE)), 0);
        let (first, second, third) = (socket.clone(), socket.clone(), socket.clone());
        let raise = move |socket: &TcpSocket<Scripted>, bits| {
            assert_eq!(counted(&WAKES, || socket.ready.raise_as(bits, writers)), 1);
            assert_eq!(counted(&WAKES, || socket.ready.raise_as(bits, writers)), 0, "they have been woken");
        };
        meanwhile(move || raise(&first, CLOSED));
        meanwhile(|| {});
        meanwhile(move || assert_eq!(counted(&WAKES, || second.ready.restore(READABLE)), 1));
        assert_eq!(socket.ready.wait(READABLE, None), READABLE | WRITABLE | CLOSED);
        assert_eq!(sleeps(), [None; 3], "other bits than those that are waited for; for no reason; and the right ones");
        assert_eq!(socket.ready.wait(READABLE | WRITABLE, None), READABLE | WRITABLE | CLOSED);
        assert_eq!(sleeps(), [], "it need not sleep");
        socket.ready.clear(READABLE | WRITABLE | CLOSED);
        socket.ready.clear_as(WRITABLE, Writers::One);
        meanwhile(move || raise(&third, READABLE));
        assert_eq!(socket.ready.wait(READABLE, millis(5)), READABLE);
        assert_eq!(sleeps(), [millis(5)]);
    }
}

/// Two threads sleep on one socket: an edge wakes both.
#[test]
fn a_second_sleeper_sleeps_beside_the_first() {
    let socket = socket();
    let (second, third) = (socket.clone(), socket.clone());
    meanwhile(move || assert_eq!(second.ready.wait(READABLE, None), READABLE));
    meanwhile(move || assert_eq!(counted(&WAKES, || third.ready.raise(READABLE)), 1));
    assert_eq!(socket.ready.wait(READABLE, None), READABLE);
    assert_eq!(sleeps(), [None; 2]);
}

#[test]
fn a_sleep_ends_when_its_time_has_passed_and_not_before() {
    let socket = socket();
    assert_eq!(socket.ready.wait(READABLE, millis(0)), Readiness::NONE);
    assert_eq!(sleeps(), []);
    meanwhile(|| NOW.set(NOW.get() + 2_000_000));
    let start = NOW.get();
    assert_eq!(socket.ready.wait(READABLE, millis(5)), Readiness::NONE);
    assert_eq!((sleeps(), NOW.get() - start), (vec![millis(5), millis(3)], 5_000_000));
}

/// One thread sets bits by plain stores, so that a waiter that has marked the word fences before it checks again; where
/// bits are set by read-modify-writes, it needs no fence.
#[test]
fn a_waiter_sees_a_bit_that_was_stored_before_its_mark_was_seen() {
    let begin = |act: Act| BEFORE_FENCE.set(Some(act));
    let raised = |socket: &Arc<TcpSocket<Scripted>>| -> Act {
        let socket = socket.clone();
        Box::new(move || {
            socket.ready.rise(READABLE, Writers::One);
        })
    };
    let sleeper = used(Writers::One);
    begin(raised(&sleeper));
    assert_eq!(sleeper.ready.wait(READABLE, None), READABLE);
    assert_eq!(sleeps(), [], "it has seen the bit");
    let (member, polls) = (used(Writers::One), set());
    begin(raised(&member));
    member.ready.register(&member, &polls, 4);
    assert_eq!(events(&polls), [(4, READABLE)]);
    let (watched, heard) = (used(Writers::One), Arc::new(Heard::default()));
    begin(raised(&watched));
    watched.ready.watch(heard.clone());
    assert_eq!(heard.take(), [(READABLE, READABLE)]);
    let many = used(Writers::Many);
    let fences = counted(&FENCES, || {
        many.ready.wait(READABLE, millis(1));
        many.ready.register(&many, &polls, 5);
    });
    assert_eq!((fences, sleeps()), (0, vec![millis(1)]));
}

/// Which way an edge takes: none without waiters, the number in the set for the first registration, and otherwise the
/// slow one.
#[test]
fn an_edge_goes_to_those_who_wait_for_it() {
    for writers in WRITERS {
        let (socket, first, second) = (used(writers), set(), set());
        let rise = |bits| socket.ready.rise(bits, writers);
        assert!(matches!(rise(CLOSED), ReadinessWaiter::None));
        socket.ready.register(&socket, &first, 1);
        assert!(matches!(rise(READABLE), ReadinessWaiter::Member(set, _) if Arc::ptr_eq(set, &first)));
        assert!(matches!(rise(READABLE), ReadinessWaiter::Member(..)), "an edge, although the bit was set");
        socket.ready.clear_as(READABLE, writers);
        let sleeps_too = socket.clone();
        let checked = move || {
            assert!(matches!(sleeps_too.ready.rise(READABLE, writers), ReadinessWaiter::Other), "a sleeper and a set");
            assert_eq!(counted(&WAKES, || sleeps_too.ready.tell(READABLE)), 1);
        };
        meanwhile(checked);
        assert_eq!(socket.ready.wait(READABLE, None), READABLE | CLOSED);
        assert_eq!((events(&first), sleeps()), (vec![(1, READABLE | CLOSED)], vec![None]));
        socket.ready.register(&socket, &second, 2);
        assert!(matches!(rise(READABLE), ReadinessWaiter::Other), "the first registration is over");
        socket.ready.raise_as(READABLE, writers);
        assert_eq!((events(&first), events(&second)), (vec![], vec![(2, READABLE | CLOSED)]));
        socket.ready.deregister();
        assert!(matches!(rise(READABLE), ReadinessWaiter::None));
    }
}

/// Readiness that is there when a socket registers is reported at once, and only that; `restore` is no edge.
#[test]
fn a_registration_reports_what_is_ready_and_nothing_else() {
    let (socket, first, second, heard) = (socket(), set(), set(), Arc::new(Heard::default()));
    socket.ready.register(&socket, &first, 1);
    assert_eq!(events(&first), []);
    socket.ready.register(&socket, &second, 2);
    assert_eq!((events(&first), events(&second)), (vec![], vec![]));
    socket.ready.restore(READABLE);
    assert_eq!((socket.ready.get(), events(&second)), (READABLE, vec![]));
    socket.ready.raise(READABLE);
    assert_eq!(events(&second), [(2, READABLE)]);
    socket.ready.register(&socket, &first, 3);
    assert_eq!((events(&first), events(&second)), (vec![(3, READABLE)], vec![]));
    socket.ready.clear(READABLE);
    socket.ready.watch(heard.clone());
    assert_eq!(heard.take(), []);
    socket.ready.raise(WRITABLE);
    socket.ready.raise(CLOSED);
    assert_eq!(heard.take(), [(WRITABLE, WRITABLE), (CLOSED, WRITABLE | CLOSED)]);
    socket.ready.deregister();
    assert_eq!(socket.ready.get(), WRITABLE | CLOSED, "it is as ready as before");
    socket.ready.raise(READABLE);
    assert_eq!((heard.take(), events(&first), events(&second)), (vec![], vec![], vec![]));
}

#[test]
fn a_set_that_replaces_a_watch_hears_every_edge() {
    let (socket, set, heard) = (socket(), set(), Arc::new(Heard::default()));
    socket.ready.watch(heard.clone());
    socket.ready.register(&socket, &set, 1);
    socket.ready.raise(READABLE);
    assert_eq!((events(&set), heard.take()), (vec![(1, READABLE)], vec![]));
}

/// A watch that panics does not prevent notification of those after it.
#[test]
fn a_panic_of_a_watch_stays_there() {
    struct Panics;
    impl Watch for Panics {
        fn ready(&self, _: Readiness, _: Readiness) {
            std::panic::panic_any("planted");
        }
    }
    let socket = socket();
    socket.ready.watch(Arc::new(Panics));
    socket.ready.raise(READABLE);
    assert_eq!(socket.ready.get(), READABLE);
}

/// The descriptor rings once for a queue that was empty, and only if its reader sleeps.
#[test]
fn the_descriptor_rings_for_the_first_entry_of_a_queue() {
    let (set, sockets) = (set(), [socket(), socket()]);
    assert_eq!((set.fd(), set.doorbell().is_some()), (Some(77), true));
    let bare = PollSet::<Scripted>::new(false).expect("no bell");
    assert_eq!((bare.fd(), bare.doorbell().is_some()), (None, false));
    for (token, socket) in sockets.iter().enumerate() {
        socket.ready.register(socket, &set, token);
    }
    let raise = |socket: usize| counted(&RINGS, || sockets[socket].ready.raise(READABLE));
    assert_eq!(raise(0), 0, "its reader is awake");
    assert!(!set.arm(), "there is an entry: the reader must not sleep");
    assert_eq!((raise(0), raise(1)), (0, 0), "the reader knows that there are entries");
    assert_eq!(events(&set), [(0, READABLE), (1, READABLE)]);
    assert!(set.arm());
    assert_eq!((raise(1), raise(0)), (1, 0));
    assert_eq!(events(&set).len(), 2);
    set.arm();
    assert_eq!(counted(&RINGS, || set.wake()), 1);
    set.arm();
    let ReadinessWaiter::Member(_, number) = sockets[0].ready.rise(READABLE, Writers::Many) else {
        panic!("it is in a set");
    };
    sockets[0].ready.deregister();
    assert_eq!(counted(&RINGS, || set.mark(number)), 0, "of a member that has left");
    assert_eq!(events(&set), []);
}

#[test]
fn the_watcher_sleeps_until_an_edge_a_wake_or_its_time() {
    let (set, socket) = (set(), socket());
    let wait = |timeout| {
        let mut events = Vec::new();
        let count = set.wait(&mut events, 10, timeout);
        (count, events.iter().map(|event| event.token).collect::<Vec<_>>())
    };
    socket.ready.register(&socket, &set, 6);
    socket.ready.raise(READABLE);
    assert_eq!((wait(None), sleeps()), ((1, vec![6]), vec![]), "it need not sleep");
    let raises = socket.clone();
    // The permit for the edge before is taken first: there is nothing for it.
    meanwhile(move || raises.ready.raise(READABLE));
    assert_eq!((wait(None), sleeps()), ((1, vec![6]), vec![None]));
    let wakes = set.clone();
    assert_eq!((wait(millis(0)), sleeps()), ((0, vec![]), vec![]));
    meanwhile(|| NOW.set(NOW.get() + 2_000_000));
    meanwhile(|| NOW.set(NOW.get() + 3_000_000));
    assert_eq!((wait(millis(5)), sleeps()), ((0, vec![]), vec![millis(5), millis(3)]));
    meanwhile(move || wakes.wake());
    assert_eq!((wait(None), sleeps()), ((0, vec![]), vec![None]), "woken, without an event");
    set.wake();
    assert_eq!((wait(None), sleeps()), ((0, vec![]), vec![]), "woken before it slept");
    set.wake();
    assert_eq!(events(&set), [], "a look that does not sleep serves as well");
    assert_eq!((wait(millis(1)), sleeps()), ((0, vec![]), vec![millis(1)]));
    assert!(events(&set).is_empty());
}

#[test]
fn a_closed_set_keeps_no_socket_and_hears_nothing() {
    let (set, [old, new]) = (set(), [socket(), socket()]);
    old.ready.register(&old, &set, 1);
    old.ready.raise(READABLE);
    assert_eq!(Arc::strong_count(&old), 2, "its members stay");
    set.close();
    assert_eq!((Arc::strong_count(&old), events(&set)), (1, vec![]));
    new.ready.register(&new, &set, 2);
    assert_eq!(Arc::strong_count(&new), 1);
    for socket in [&old, &new] {
        socket.ready.raise(READABLE);
    }
    assert_eq!(events(&set), []);
    assert!(set.arm());
}

#[test]
fn a_member_that_leaves_is_released_and_its_number_names_nobody_else() {
    let (set, [old, new]) = (set(), [socket(), socket()]);
    old.ready.register(&old, &set, 1);
    old.ready.raise(READABLE);
    old.ready.deregister();
    assert_eq!(Arc::strong_count(&old), 1);
    new.ready.register(&new, &set, 2);
    assert_eq!(events(&set), [], "the entry is of one that has left");
    new.ready.raise(READABLE);
    assert_eq!(events(&set), [(2, READABLE)]);
}

/// A thread that takes fewer reports at a time than there are edges gets all of them, in the order of the edges, whatever of
/// them it has taken when memory for more is needed.
#[test]
fn reports_taken_in_small_lots_keep_the_order_of_their_edges() {
    for lot in [1, 2, 3, 7] {
        let (set, sockets): (_, Vec<_>) = (set(), (0..40).map(|_| socket()).collect());
        sockets.iter().enumerate().for_each(|(token, socket)| socket.ready.register(socket, &set, token));
        let (mut edges, mut reports, mut lots) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..200 {
            // Never one that waits for its report: an edge of such a socket is no new entry.
            let idle = (0..40).filter(|token| !edges[reports.len()..].contains(token));
            let risen: Vec<usize> = idle.skip(round % 3).take(1 + round % 5).collect();
            risen.iter().for_each(|token| sockets[*token].ready.raise(READABLE));
            edges.extend(risen);
            set.try_wait(&mut lots, lot);
            reports.extend(lots.iter().map(|event: &PollEvent| event.token));
        }
        while set.try_wait(&mut lots, lot) > 0 {
            reports.extend(lots.iter().map(|event| event.token));
        }
        assert_eq!(reports, edges, "lots of {lot}");
        assert!(set.arm(), "nothing is left");
    }
}
