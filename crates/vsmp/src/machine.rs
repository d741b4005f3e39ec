//! A machine: the run loop, and the operations of its threads.
//!
//! The state of the running machine is a thread-local of the kernel thread. Each function below borrows it while it
//! computes, and ends the borrow before a thread can switch: only `point` and `wait` switch, and they hold no borrow. A
//! second borrow would panic, so a mistake here cannot go unnoticed.
//!
//! Operations outside a machine (of statics, or of values that are dropped after its end) are not charged; they must
//! not wait.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pktbuf::{Caching, PlatformHeap};
use sync::lock_order::HeldLocks;
use sync::{LockClass, LockKind, LockStep, Object, Step, ThreadClass};

use crate::account::Account;
use crate::coroutine::{self, Fiber, MOST_THREADS};
use crate::costs::Costs;
use crate::ledger::Part;
use crate::memory::{Inside, from_system};
use crate::order::{Candidate, Order, TimeOrdered};
use crate::platform::Vsmp;
use crate::state::{Event, Life, Occurs, State, Wait};
use crate::timeline::{Recorder, Timeline};

/// Maximum number of CPUs of a machine.
pub const MOST_CPUS: usize = 256;

/// Keys for the footprint of a completion and of an application's event, in addition to those of the objects.
const COMPLETION: u8 = 100;
const APPLICATION: u8 = 101;

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// A machine to run a program on.
///
/// ```
/// use sync::{Lock, LockClass, LockKind, Platform, ThreadClass};
/// use vsmp::{Costs, Machine, Vsmp};
///
/// let (total, outcome) = Machine::new(4, Costs::opteron_275()).run(|| {
///     let sum = std::sync::Arc::new(Lock::<u64, Vsmp>::new(LockKind::Adaptive, LockClass::Pool, 0));
///     let threads: Vec<_> = (0..8)
///         .map(|n| {
///             let sum = sum.clone();
///             Vsmp::spawn("adds", None, ThreadClass::Application, move || *sum.lock() += n)
///         })
///         .collect();
///     threads.into_iter().for_each(|thread| Vsmp::join(thread).expect("it does not panic"));
///     *sum.lock()
/// });
/// assert_eq!((total, outcome.nanos > 0), (28, true));
/// ```
pub struct Machine {
    cpus: usize,
    costs: Costs,
    order: Box<dyn Order>,
    seed: u64,
    most_turns: u64,
    spins_for_good: bool,
    buffers: (LockKind, Caching),
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The totals.
    pub account: Account,
    /// Virtual time that passed.
    pub nanos: u64,
    /// Threads that had not ended when the first one did. Their values are leaked.
    pub abandoned: Vec<String>,
}

impl Machine {
    /// A machine of 1 to [`MOST_CPUS`] CPUs, on which steps happen in the order of time.
    ///
    /// # Panics
    /// Another number of CPUs.
    pub fn new(cpus: usize, costs: Costs) -> Machine {
        assert!((1..=MOST_CPUS).contains(&cpus), "a machine has 1 to {MOST_CPUS} CPUs, not {cpus}");
        let buffers = (LockKind::SpinPark, costs.caching);
        Machine {
            cpus,
            costs,
            order: Box::new(TimeOrdered),
            seed: 1,
            most_turns: u64::MAX,
            spins_for_good: false,
            buffers,
        }
    }

    /// Sets the order that chooses the next thread.
    pub fn order(mut self, order: impl Order + 'static) -> Machine {
        self.order = Box::new(order);
        self
    }

    /// The seed of the platform's random numbers; 1 if not set.
    pub fn seed(mut self, seed: u64) -> Machine {
        self.seed = seed;
        self
    }

    /// Threads that spin never give their CPUs to others, as where there is one thread for each.
    pub fn spin_for_good(mut self) -> Machine {
        self.spins_for_good = true;
        self
    }

    /// Where free packet buffers are kept, and the kind of the locks of their depots; [`Costs::caching`] and
    /// [`LockKind::SpinPark`] if not set.
    pub fn buffers(mut self, kind: LockKind, caching: Caching) -> Machine {
        self.buffers = (kind, caching);
        self
    }

    /// The maximum number of choices of a next thread, after which the run fails as one that does not end. No bound if
    /// not set.
    pub fn most_turns(mut self, most: u64) -> Machine {
        self.most_turns = most;
        self
    }

    /// Runs `body` as the first thread, until it ends. Machines of a process take turns.
    ///
    /// # Panics
    /// With the panic of `body`. If no thread can run, or the run does not end within [`Machine::most_turns`], with a
    /// list of all threads and what each waits for.
    pub fn run<R: 'static>(self, body: impl FnOnce() -> R + Send + 'static) -> (R, Outcome) {
        match self.try_run(body) {
            (Ok(result), outcome) => (result, outcome),
            (Err(Failed::Panic(panic)), _) => resume_unwind(panic),
            (Err(Failed::Stuck(report)), _) => panic!("{report}"),
        }
    }

    /// As [`Machine::run`], and returns a failure instead of a panic.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn try_run<R: 'static>(self, body: impl FnOnce() -> R + Send + 'static) -> (Result<R, Failed>, Outcome) {
        static TURNS: Mutex<()> = Mutex::new(());
        assert!(STATE.with_borrow(Option::is_none), "a machine cannot run on a machine");
        let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let _inside = Inside::enter();
        let heap = PlatformHeap::<Vsmp>::with_caching(self.buffers.0, self.buffers.1);
        let mut state = State::new(self.cpus, self.costs, self.order, self.seed);
        state.spins_for_good = self.spins_for_good;
        STATE.set(Some(state));
        let result = Rc::new(RefCell::new(None));
        let place = result.clone();
        let ended = heap.enter(|| {
            start("main", None, ThreadClass::Application, Box::new(move || *place.borrow_mut() = Some(body())));
            run_loop(self.most_turns)
        });
        let (outcome, panic) = end();
        drop(heap);
        let result = match (ended, panic) {
            (Err(report), _) => Err(Failed::Stuck(report)),
            (Ok(()), Some(panic)) => Err(Failed::Panic(panic)),
            (Ok(()), None) => Ok(result.take().expect("the first thread has ended without a panic")),
        };
        (result, outcome)
    }
}

/// Why a run has no result.
pub enum Failed {
    /// The first thread has panicked, with this.
    Panic(Box<dyn Any + Send>),
    /// No thread can run, or the run does not end: a report with all threads and what each waits for.
    Stuck(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Panic(panic) => f.write_str(message(&**panic)),
            Failed::Stuck(report) => f.write_str(report),
        }
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failed {}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something that is no text")
}

/// The next action of the run loop.
enum Next {
    /// Resume a thread of a CPU.
    Thread(usize, usize, Fiber),
    /// An event was processed.
    Again,
    /// Something happens to a device.
    Device(Arc<dyn Occurs>, u32),
    /// The first thread has ended.
    Over,
    /// No thread can run, and no event is pending.
    Deadlock(String),
    /// The bound on turns is reached.
    Endless(String),
}

fn run_loop(most_turns: u64) -> Result<(), String> {
    loop {
        match with(|state| next(state, most_turns)).unwrap_or(Next::Over) {
            Next::Thread(thread, cpu, mut fiber) => {
                let goes_on = fiber.resume();
                with(|state| {
                    state.current = None;
                    if goes_on {
                        state.threads[thread].fiber = Some(fiber);
                    }
                    state.turn_ends(thread, cpu);
                });
            }
            Next::Again => {}
            Next::Device(device, what) => outside(|| device.occur(what)),
            Next::Over => return Ok(()),
            Next::Deadlock(threads) => return Err(format!("deadlock: no thread can run\n{threads}")),
            Next::Endless(threads) => return Err(format!("it does not end in {most_turns} turns\n{threads}")),
        }
    }
}

fn next(state: &mut State, most_turns: u64) -> Next {
    if state.threads[0].life == Life::Over {
        return Next::Over;
    }
    if state.account.turns >= most_turns {
        return Next::Endless(state.describe());
    }
    let candidates = state.candidates();
    let by_time = state.order.is_by_time();
    // If the order does not follow time, all CPUs share one clock.
    let clock = |candidate: &Candidate| if by_time { candidate.clock } else { candidate.clock.max(state.clock) };
    let least = candidates.iter().map(clock).min();
    let event = state.next_event();
    if event.is_some_and(|at| least.is_none_or(|least| at <= least)) {
        state.recycle(candidates);
        let Some((at, event)) = state.take_event() else { return Next::Again };
        return happen(state, at, event);
    }
    if candidates.is_empty() {
        return Next::Deadlock(state.describe());
    }
    let turn = state.order.next(&candidates);
    let chosen = candidates[turn.candidate];
    state.recycle(candidates);
    let clock = if by_time { chosen.clock } else { chosen.clock.max(state.clock) };
    state.pass(chosen.cpu, Part::HeldUp, clock);
    (state.clock, state.cpu, state.current) = (clock, chosen.cpu, Some(chosen.thread));
    // Its slice ends even without another event.
    state.horizon = turn.until.min(event.unwrap_or(u64::MAX)).min(state.cpus[chosen.cpu].slice_end);
    state.account.turns += 1;
    match state.threads[chosen.thread].fiber.take() {
        Some(fiber) => Next::Thread(chosen.thread, chosen.cpu, fiber),
        None => Next::Deadlock(state.describe()),
    }
}

fn happen(state: &mut State, at: u64, event: Event) -> Next {
    state.clock = at.max(if state.order.is_by_time() { 0 } else { state.clock });
    match event {
        Event::Timeout { thread, sleep } => state.time_out(thread, sleep),
        Event::SpinEnds { cpu, spin } if state.cpus[cpu].spins == spin => state.end_spin(cpu, at),
        Event::SpinEnds { .. } => {}
        // A removed device has no events.
        Event::Device { device, what } => {
            let device = state.devices[device].upgrade();
            return device.map_or(Next::Again, |device| Next::Device(device, what));
        }
    }
    Next::Again
}

/// Dissolves the machine; returns the result and the panic of the first thread.
fn end() -> (Outcome, Option<Box<dyn Any + Send>>) {
    let Some(mut state) = STATE.take() else { unreachable!("a machine has run") };
    let panic = state.threads[0].panic.take();
    let mut abandoned = Vec::new();
    for thread in state.threads.iter_mut() {
        if let Some(fiber) = thread.fiber.take() {
            abandoned.push(thread.name.clone());
            fiber.abandon();
        }
    }
    let nanos = state.costs.nanos(state.clock);
    (Outcome { account: state.read_account(), nanos, abandoned }, panic)
}

/// Borrows the state; `None` outside a machine.
#[inline(always)]
fn with<R>(work: impl FnOnce(&mut State) -> R) -> Option<R> {
    // Statics are dropped when thread locals are gone.
    STATE.try_with(|state| state.borrow_mut().as_mut().map(work)).ok().flatten()
}

/// The same, for operations that only threads of the machine make; a default outside.
#[inline(always)]
fn running<R: Default>(work: impl FnOnce(&mut State, usize) -> R) -> R {
    with(|state| state.current.map(|thread| work(state, thread))).flatten().unwrap_or_default()
}

/// Starts a thread; returns its number.
pub(crate) fn start(name: &str, cpu: Option<usize>, class: ThreadClass, body: Box<dyn FnOnce()>) -> usize {
    let number = with(|state| state.add_thread(name, cpu, class)).expect("threads are started on a machine");
    assert!(number < MOST_THREADS, "cannot start thread `{name}`: a machine has at most {MOST_THREADS}");
    let fiber = Fiber::new(number, move || {
        let panic = catch_unwind(AssertUnwindSafe(body)).err();
        with(|state| {
            (state.threads[number].panic, state.threads[number].life) = (panic, Life::Over);
            state.wake_sleepers(Wait::End(number), u32::MAX);
        });
    });
    with(|state| {
        state.threads[number].fiber = Some(fiber);
        state.make_ready(number, state.clock);
    });
    number
}

/// Called before a step that other CPUs can see: lets CPUs run whose clocks are behind.
#[inline(always)]
pub(crate) fn point() {
    if running(|state, _| state.clock > state.horizon) {
        wait();
    }
}

/// Switches to the run loop. Not while the thread panics: the standard library counts panics for the kernel thread, and
/// the others would seem to panic, too.
#[cold]
fn wait() {
    if !std::thread::panicking() {
        coroutine::suspend();
    }
}

/// An operation on an atomic word at this address is about to happen.
#[inline(always)]
pub(crate) fn atomic(address: usize, write: bool, read_modify_write: bool) {
    point();
    running(|state, _| state.atomic(address, write, read_modify_write));
}

/// Plain work.
pub(crate) fn work(step: Step, n: usize) {
    with(|state| state.work(step, n));
}

/// A part of a step of plain work.
pub(crate) fn work_in_part(step: Step, quarters: usize) {
    with(|state| state.work_in_part(step, quarters));
}

/// Plain memory that is read for a checksum.
pub(crate) fn sum(address: usize, length: usize) {
    with(|state| state.sum(address, length));
}

/// Plain memory. Where a bus carries payload, those come first that are not as far in time.
pub(crate) fn touch(object: Object, address: usize, length: usize, write: bool) {
    if object == Object::Payload && running(|state, _| state.costs.bus_line > 0) {
        point();
    }
    with(|state| state.touch(object, address, length, write));
}

/// A fence.
pub(crate) fn fence() {
    point();
    running(|state, _| state.spend(Part::ReadModifyWrite, state.costs.read_modify_write));
}

/// One turn of a spin loop.
pub(crate) fn relax() {
    // Others may run at the point, and read other lines.
    let watched = running(|state, _| state.last_read);
    point();
    let stops = running(|state, thread| {
        state.last_read = watched;
        state.account.spins += 1;
        let delay = state.order.delay();
        state.spend(Part::Spin, state.costs.relax + delay);
        if state.order.is_by_time() {
            let until = state.cpus[state.cpu].slice_end.max(state.clock + 1000);
            return state.spin(until);
        }
        state.order.yields(thread);
        state.give_way(thread);
        true
    });
    if stops {
        wait();
    }
}

/// Whether a thread that spins keeps its CPU.
pub(crate) fn spins_for_good() -> bool {
    with(|state| state.spins_for_good).unwrap_or(false)
}

/// Gives the CPU to another thread that waits for it.
pub(crate) fn yield_now() {
    point();
    let gave_way = running(|state, thread| {
        state.spend(Part::Yield, state.costs.system_call / 2);
        state.order.yields(thread);
        state.give_way(thread)
    });
    if gave_way {
        wait();
    }
}

/// Sleeps at `address` if `still` says so when it is this thread's turn.
pub(crate) fn sleep(address: usize, still: impl FnOnce() -> bool, timeout: Option<u64>) {
    running(|state, _| state.enter_kernel());
    point();
    if still() {
        let asleep = running(|state, thread| {
            let timeout = timeout.map(|nanos| state.costs.cycles(nanos));
            state.fall_asleep(thread, Wait::Word(address), timeout);
            true
        });
        assert!(asleep, "only a thread of the machine can sleep");
        wait();
    }
}

/// Wakes up to `n` threads that sleep at `address`.
pub(crate) fn wake(address: usize, n: u32) {
    running(|state, _| state.enter_kernel());
    point();
    with(|state| state.wake_sleepers(Wait::Word(address), n));
}

/// Gives the machine a device; returns its number.
pub(crate) fn attach(device: Weak<dyn Occurs>) -> usize {
    with(|state| {
        state.devices.push(device);
        state.devices.len() - 1
    })
    .expect("devices are attached to a machine")
}

/// Runs code that is not part of the machine: uncharged, and with a separate heap, whose locks no thread of the machine
/// can hold.
pub(crate) fn outside<R>(work: impl FnOnce() -> R) -> R {
    let Some((thread, heap)) = with(|state| (state.current.take(), state.outside.clone())) else { return work() };
    let result = heap.enter(work);
    with(|state| state.current = thread);
    result
}

/// Schedules an event of a device at a time of the machine's clock, in cycles.
pub(crate) fn schedule(at: u64, device: usize, what: u32) {
    with(|state| state.schedule(at.max(state.clock), Event::Device { device, what }));
}

/// Cycles since the machine was started, on the CPU that runs.
pub(crate) fn clock() -> u64 {
    with(|state| state.clock).unwrap_or(0)
}

/// Cycles of the machine in nanoseconds.
pub(crate) fn nanos_of(cycles: u64) -> u64 {
    with(|state| state.costs.nanos(cycles)).unwrap_or(0)
}

/// Nanoseconds in cycles of the machine.
pub(crate) fn cycles(nanos: u64) -> u64 {
    with(|state| state.costs.cycles(nanos)).unwrap_or(0)
}

/// The running thread handles an interrupt.
pub(crate) fn interrupt() {
    running(|state, _| state.interrupt());
}

/// A device has written memory.
pub(crate) fn written_by_device(memory: &[u8]) {
    with(|state| state.written_by_device(memory.as_ptr().addr(), memory.len()));
}

/// The frame in this memory has been sent, and the running thread takes it back.
pub(crate) fn completed(memory: &[u8]) {
    with(|state| state.use_footprint(COMPLETION, memory.as_ptr().addr(), state.costs.footprint.completion));
}

/// The kernel's part of an application's event on the object at this address.
pub(crate) fn application_event(address: usize) {
    with(|state| state.use_footprint(APPLICATION, address, state.costs.footprint.application));
}

/// The totals so far, once all CPUs have reached the time of this one.
pub(crate) fn account() -> Account {
    point();
    with(|state| state.read_account()).unwrap_or_default()
}

/// Starts to record, for this many nanoseconds.
pub(crate) fn record(nanos: u64) {
    with(|state| {
        let (from, length) = (state.clock, state.costs.cycles(nanos));
        state.recorder = Some(from_system(|| Box::new(Recorder::new(state.cpus.len(), from, from + length))));
    });
}

/// Ends the recording and returns it; `None`: nothing was recorded.
pub(crate) fn recorded() -> Option<Timeline> {
    with(|state| {
        let recorder = state.recorder.take()?;
        let names = || state.threads.iter().map(|thread| thread.name.clone()).collect();
        Some(from_system(|| recorder.finish(state.costs.megahertz, names())))
    })
    .flatten()
}

/// Records the running thread's operation on the lock at an address.
pub(crate) fn lock_step(step: LockStep, class: LockClass, address: usize) {
    running(|state, thread| {
        let now = state.clock;
        if let Some(recorder) = &mut state.recorder {
            recorder.lock(thread, step, class, address, now);
        }
    });
}

/// Waits for the end of a thread.
pub(crate) fn join(other: usize) -> std::thread::Result<()> {
    let over = || with(|state| state.threads[other].life == Life::Over).unwrap_or(true);
    point();
    while !over() {
        running(|state, thread| {
            state.enter_kernel();
            state.fall_asleep(thread, Wait::End(other), None);
        });
        wait();
    }
    with(|state| state.threads[other].panic.take()).flatten().map_or(Ok(()), Err)
}

/// Virtual nanoseconds since the machine was started.
pub(crate) fn nanos() -> u64 {
    with(|state| state.costs.nanos(state.clock)).unwrap_or(0)
}

pub(crate) fn random() -> u64 {
    with(|state| state.random.draw()).unwrap_or(0)
}

/// The number of the thread that runs.
#[inline]
pub(crate) fn current() -> Option<usize> {
    with(|state| state.current).flatten()
}

pub(crate) fn thread_name() -> String {
    running(|state, thread| Some(state.threads[thread].name.clone())).unwrap_or_else(|| "no virtual thread".to_owned())
}

/// Whether a thread has a CPU.
pub(crate) fn runs(thread: usize) -> Option<bool> {
    running(|state, _| state.threads.get(thread).map(|thread| thread.life == Life::Running))
}

/// Whether adaptive locks have turnstiles.
pub(crate) fn has_turnstiles() -> bool {
    running(|state, _| state.costs.turnstile > 0)
}

/// The running thread consults the turnstile of the lock at an address, after those that do so already.
pub(crate) fn consult_turnstile(address: usize) {
    point();
    running(|state, _| state.consult_turnstile(address));
}

pub(crate) fn lend(to: usize) {
    running(|state, thread| state.lend_priority(thread, to));
}

pub(crate) fn repay() {
    running(|state, thread| state.repay_priority(thread));
}

/// Whether the machine has one CPU.
pub(crate) fn has_one_cpu() -> bool {
    with(|state| state.cpus.len() == 1).unwrap_or(false)
}

/// The running thread keeps its CPU until it has called [`unmask`] as often. Waits for a thread that sleeps between the
/// two.
pub(crate) fn mask() {
    point();
    while !running(|state, thread| Some(state.mask(thread))).unwrap_or(true) {
        wait();
    }
}

/// See [`mask`].
pub(crate) fn unmask() {
    running(|state, _| state.unmask());
}

/// The locks that the running thread holds.
pub(crate) fn held() -> Option<Rc<HeldLocks>> {
    running(|state, thread| Some(state.threads[thread].held.clone()))
}

/// See [`Platform::in_callback`](sync::Platform::in_callback).
pub(crate) fn in_callback() -> bool {
    running(|state, thread| state.threads[thread].in_callback)
}

/// See [`Platform::set_in_callback`](sync::Platform::set_in_callback).
pub(crate) fn set_in_callback(inside: bool) -> bool {
    running(|state, thread| std::mem::replace(&mut state.threads[thread].in_callback, inside))
}
