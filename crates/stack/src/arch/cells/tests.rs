//! What cells do with the answers of their exclusion. The stack has no device: its cells are given jobs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sync::{LockKind, Real};
use wire::rss::{SYMMETRIC_KEY, Toeplitz};

use super::*;
use crate::alarm::Alarms;
use crate::arch::polled::tests::Part;
use crate::arch::polled_rings::PolledRings;
use crate::clock::{Clock, VirtualClock};
use crate::interface::Ports;
use crate::links::DriverLayout;
use crate::secrets::Secrets;
use crate::shared::Settings;

thread_local! {
    /// What a thread does in each turn of its wait, by the number of the turn.
    pub static TURN: std::cell::RefCell<Box<dyn FnMut(u32)>> = std::cell::RefCell::new(Box::new(|_| {}));
}

/// The real machine, where a test has a say in each turn of a wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turning;

impl Platform for Turning {
    sync::forward_platform!(Real: atomics futex cells doorbell spawn join now random thread fences held);

    fn relax(turn: u32) {
        TURN.with_borrow_mut(|act| act(turn));
    }
    fn yield_now() {
        Real::yield_now();
    }
}

/// When the stacks of these tests begin.
pub const START: Time = Time::from_nanos(5);

/// What cells share in a stack with so many receive threads, which contains panics.
pub fn shared<P: Platform>(threads: usize) -> Arc<Shared<P>> {
    let settings = Settings {
        clock: Clock::Virtual(VirtualClock::new(START)),
        secrets: Secrets::from_seed(1),
        lock_kind: LockKind::Blocking,
        counting: None,
        tcp: tcp::Config::default(),
        rss: Toeplitz::new(&SYMMETRIC_KEY),
        workers: 1,
        drivers: DriverLayout::default(),
        alarms: Arc::new(Alarms::new(threads)),
        resets_per_second: 1,
        contain: true,
    };
    Shared::new(Box::new(settings), (vec![], Ports::new(vec![])), ip::RouteTable::new(), vec![])
}

/// The context of a cell that a test makes alone.
pub fn hub<P: Platform>(own_threads: bool) -> Hub<P> {
    Hub { shared: shared(1), own_threads, cells: Weak::<NoCells>::new() }
}

struct NoCells;

impl OwnedCells for NoCells {
    fn wait_at(&self, _: &Arc<dyn Interrupt>) -> Waits {
        Waits::new()
    }
    fn wait_again(&self, _: Waits) {}
    fn read_mail(&self) -> bool {
        false
    }
    fn tell_all(&self) {}
}

/// So many cells.
pub fn cells_of<E: Exclusion<Turning>>(
    count: usize,
    own_threads: bool,
    make: impl Fn(&Arc<Shared<Turning>>, &Arc<Connections<Turning>>) -> E,
) -> Cells<Turning, E> {
    let (shared, contents) = (shared(1), Box::new(Contents::empty()));
    let slab = contents.slab.clone();
    Cells::new(&shared, count, own_threads, contents, |_| make(&shared, &slab))
}

/// A cell, and what it is used with.
pub fn cell_of<E: Exclusion<Turning>>(cells: &Cells<Turning, E>, index: usize) -> (&E, &Hub<Turning>) {
    (&cells.inner.cells[index], &cells.inner.hub)
}

/// What jobs have done, in order.
pub type Done = Arc<Mutex<Vec<usize>>>;

/// A job that notes that it is done.
pub fn job<P: Platform>(number: usize, done: &Done) -> CellMessage<P> {
    let done = done.clone();
    job_of(move || done.lock().unwrap_or_else(PoisonError::into_inner).push(number))
}

/// A message that is this work.
pub fn job_of<P: Platform>(work: impl FnOnce() + Send + 'static) -> CellMessage<P> {
    let work = || {
        work();
        Box::new(()) as Box<dyn Any + Send>
    };
    CellMessage::Job(Box::new(work), ReplySender::nobody())
}

/// What is done so far.
pub fn all(done: &Done) -> Vec<usize> {
    done.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Counts how often a thread that waits is interrupted.
#[derive(Default)]
pub struct Bell(AtomicUsize);

impl Bell {
    /// So often.
    pub fn rung(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Interrupt for Bell {
    fn interrupt(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// An exclusion that lets nobody in, with threads for timers and channels. `POLLED`: its cell is a polling thread's.
struct Refusing<const POLLED: bool> {
    is_mine: bool,
    deadline: u64,
    rings: Option<Arc<PolledRings<Turning>>>,
    sent: AtomicUsize,
}

impl<const POLLED: bool> Exclusion<Turning> for Refusing<POLLED> {
    const THREAD: &'static str = "refusing";
    const RUNS_TIMERS: bool = true;
    const CHANNELS: bool = true;
    const POLLED: bool = POLLED;

    fn is_mine(&self) -> bool {
        self.is_mine
    }
    fn enter<R>(&self, _: &Hub<Turning>, _: impl FnOnce(&mut Cell<Turning>) -> R) -> Option<R> {
        None
    }
    fn send(&self, _: &Hub<Turning>, _: CellMessage<Turning>, _: bool) -> Result<(), CellMessage<Turning>> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn rings(&self) -> Option<&PolledRings<Turning>> {
        self.rings.as_deref()
    }
    fn deadline(&self) -> u64 {
        self.deadline
    }
    fn tick(&self, _: &Hub<Turning>, _: Time) -> bool {
        false
    }
}

fn refusing<const POLLED: bool>(own_threads: bool, is_mine: bool, deadline: u64) -> Cells<Turning, Refusing<POLLED>> {
    cells_of(1, own_threads, |shared, _| {
        let rings = Some(PolledRings::new(shared, 1));
        Refusing { is_mine, deadline, rings, sent: AtomicUsize::new(0) }
    })
}

/// [`Exclusion::tick`]: a message that one cell's message sends to a cell before it is run in the same tick.
#[test]
fn a_tick_goes_over_the_cells_again_while_it_finds_messages() {
    let cells = Arc::new(Part::<false, false>::cells(2).0);
    let done = Done::default();
    cells.tick(START);
    let (sends, late) = (cells.clone(), done.clone());
    let first = job_of(move || {
        let (cell, hub) = cell_of(&sends, 0);
        assert!(cell.send(hub, job(1, &late), false).is_ok(), "there is room");
    });
    let (cell, hub) = cell_of(&cells, 1);
    assert!(cell.send(hub, first, false).is_ok(), "there is room");
    cells.tick(START);
    assert_eq!(all(&done), [1]);
}

/// [`RunningArchitecture::timer_is_due`]: a timer that the calling receive thread would run.
#[test]
fn a_timer_is_due_where_receive_threads_run_it_and_its_time_has_come() {
    for (own_threads, deadline, due) in [(false, 4, true), (false, 5, true), (false, 6, false), (true, 4, false)] {
        let cells = refusing::<false>(own_threads, false, deadline);
        assert_eq!(cells.timer_is_due(START), due, "threads of its own: {own_threads}, at {deadline}");
        cells.shutdown();
    }
}

/// [`RunningArchitecture::is_home`]: true where connections do not belong to the threads that call.
#[test]
fn a_flow_is_at_home_where_its_cell_is_the_callers_or_no_threads() {
    for is_mine in [false, true] {
        assert!(refusing::<false>(false, is_mine, 0).is_home(7));
        assert_eq!(refusing::<true>(false, is_mine, 0).is_home(7), is_mine);
    }
}

/// Cells that belong to the threads that poll take runs as one event, shared groups among them.
#[test]
fn runs_are_for_exclusions_that_take_them() {
    assert!(Part::<false, false>::cells(1).0.takes_runs());
    assert!(Part::<true, false>::cells(1).0.takes_runs());
    assert!(!refusing::<false>(false, false, 0).takes_runs());
}

/// Another thread than the user's serves the owner's end of a channel. Without one, and on the owner's thread, the message comes back.
#[test]
fn channels_need_threads_that_serve_them() {
    let target = Target { hash: 0, key: Key::from_bits(0) };
    let told = |cells: &dyn RunningArchitecture<Turning>| cells.tell(&target, CellMessage::Continue(target)).is_ok();
    for own_threads in [false, true] {
        let cells = refusing::<false>(own_threads, false, 0);
        assert_eq!(cells.has_channels(), own_threads);
        assert_eq!((told(&cells), cells.inner.cells[0].sent.load(Ordering::Relaxed)), (true, 1));
        cells.shutdown();
    }
    let mine = refusing::<false>(false, true, 0);
    assert_eq!((told(&mine), mine.inner.cells[0].sent.load(Ordering::Relaxed)), (false, 0));
    let polled = Part::<false, false>::cells(1).0;
    assert_eq!((polled.has_channels(), told(&polled), polled.is_quiescent()), (false, false, true));
}

/// A receive thread waits while its ring is shut, and no longer.
#[test]
fn a_ring_is_shut_until_its_turn() {
    let cells = refusing::<false>(false, false, 0);
    let rings = cells.inner.cells[0].rings.clone().expect("it has rings");
    assert!(!cells.is_ring_shut(0));
    rings.shut(0);
    assert!(cells.is_ring_shut(0));
    let mut waiting = dev::BitSet::default();
    waiting.insert(0);
    rings.give_turns(waiting);
    assert!(!cells.is_ring_shut(0));
}

/// [`OwnedCells`]: a thread that waits is interrupted when a cell of its own gets mail, also where it waited before, further up its
/// stack; and not once it waits no more.
#[test]
fn a_thread_is_interrupted_where_it_waits() {
    let (cells, _) = Part::<false, false>::cells(1);
    cells.tick(START);
    let ((cell, hub), done) = (cell_of(&cells, 0), Done::default());
    let bells = [(); 2].map(|()| Arc::new(Bell::default()));
    let rung = || bells.each_ref().map(|bell| bell.rung());
    let sent = || assert!(cell.send(hub, job(0, &done), true).is_ok(), "there is room");
    let [first, second] = bells.each_ref().map(|bell| bell.clone() as Arc<dyn Interrupt>);
    let outside = cells.inner.wait_at(&first);
    sent();
    assert_eq!(rung(), [1, 0]);
    let inside = cells.inner.wait_at(&second);
    sent();
    assert_eq!(rung(), [1, 1]);
    cells.inner.wait_again(inside);
    sent();
    assert_eq!(rung(), [2, 1]);
    cells.inner.wait_again(outside);
    sent();
    assert_eq!(rung(), [2, 1]);
    assert!(cells.inner.read_mail(), "there was something");
    assert!(!cells.inner.read_mail(), "nothing is left");
    assert_eq!(all(&done).len(), 4);
}
