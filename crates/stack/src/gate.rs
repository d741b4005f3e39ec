//! The gate through which every use of the running architecture passes, so that a stack in use can be switched to
//! another one ([`Stack::set_architecture`](crate::Stack::set_architecture)).
//!
//! It belongs to the stack and is passed by calls ([`Gate::enter`]) and by every turn of a driver
//! ([`Gate::enter_as_driver`]). The thread that switches closes it in steps:
//!
//! | step | callers | drivers | ends when |
//! |---|---|---|---|
//! | open | pass | pass | a thread switches |
//! | draining | give up the cells that they own, and wait outside | pass: callers inside may need them | no caller is inside |
//! | resting | the same | the same | no driver is inside |
//! | moving | wait outside | wait outside | the state has moved |
//!
//! A thread that owns a connection because it polls need not pass to make a call on it, nor to open one that it will own: no
//! state moves before that thread gives up what it owns, which it does when it polls
//! ([`RunningArchitecture::send_as_owner`](crate::arch::RunningArchitecture::send_as_owner)).
//!
//! So the threads on which callers inside depend complete those calls, until no thread is inside. Threads of the
//! architecture's own pass at any time ([`Gate::always`]): they end with it. So does a thread that is inside already,
//! further up its own stack.
//!
//! To enter and leave costs two stores to a line of the thread's own, a load of a shared word that rarely changes, and a [light
//! fence](Platform::light_fence): no lock and no read-modify-write. The thread that closes has the heavy fence.
//!
//! What may never happen: a thread inside while the state moves; a thread that sleeps outside an open gate; a thread
//! that waits for itself to leave.
//!
//! An architecture that is built again by itself (`exchange.rs`) closes the gate in a turn of a driver, as its last step
//! ([`Gate::close_in_turn`]), with little patience, because nobody asked for it.

use std::marker::PhantomData;
use std::time::Duration;

use sync::{Atomic, Ordering, PerThread, Platform, Writers, model_is_over};

/// Total time that the closing thread waits for others. Longer than any turn of a driver; a thread that owns a cell and
/// has not passed the gate by then does not poll.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same for a driver that closes in its turn: others do nothing meanwhile, and it can try again later.
const PATIENCE_IN_TURN: Duration = Duration::from_millis(1);
/// Looks at the threads inside before the thread that closes does their owners' work.
const LOOKS: u32 = 64;

const OPEN: u32 = 0;
const DRAINING: u32 = 1;
const RESTING: u32 = 2;
const MOVING: u32 = 3;

/// Bits of a thread's word. The rest counts how many times the thread is inside, nested.
const DRIVER: u32 = 1 << 31;
const ALWAYS: u32 = 1 << 30;
/// The word of threads without a number of their own: the thread that builds a simulated machine, and a thread of a
/// checker that is dropping its thread-locals. They never wait outside.
const COMMON: u32 = 1 << 29;
const DEPTH: u32 = COMMON - 1;

/// See the head of the file. Any thread.
pub struct Gate<P: Platform> {
    /// The step; threads outside sleep on it.
    step: P::AtomicU32,
    /// Odd while a driver that closes it in its turn tries to, or has.
    in_turn: P::AtomicU32,
    inside: PerThread<GatePresence<P>, P>,
}

/// Whether one thread is inside. Written by that thread alone.
struct GatePresence<P: Platform>(P::AtomicU32);

impl<P: Platform> GatePresence<P> {
    fn new(writers: Writers) -> Self {
        GatePresence(P::AtomicU32::new(if writers == Writers::One { 0 } else { COMMON }))
    }

    #[inline(always)]
    fn word(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// The thread passes once more, and does not wait outside.
    #[inline(never)]
    fn again(&self, word: u32) {
        if word & COMMON == 0 {
            self.0.store(word + 1, Ordering::Relaxed);
        } else {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Release: the thread's accesses inside happen before the state moves. A caller that passed once is the usual
    /// case.
    #[inline(always)]
    fn leave(&self) {
        match self.word() {
            1 => self.0.store(0, Ordering::Release),
            word => self.leave_otherwise(word),
        }
    }

    #[inline(never)]
    fn leave_otherwise(&self, word: u32) {
        if word & COMMON != 0 {
            self.0.fetch_sub(1, Ordering::Release);
        } else if word == DRIVER | 1 {
            self.0.store(0, Ordering::Release);
        } else {
            self.0.store(word - 1, Ordering::Release);
        }
    }
}

/// The calling thread is inside until this is dropped. Not `Send`.
#[must_use = "the thread leaves when it is dropped"]
pub struct GateGuard<'a, P: Platform> {
    here: &'a GatePresence<P>,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl<P: Platform> Drop for GateGuard<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.here.leave();
        }
    }
}

/// The calling thread passes at any time, until this is dropped. Not `Send`.
#[must_use = "the thread is kept outside once it is dropped"]
pub struct FreePass<'a, P: Platform> {
    here: &'a GatePresence<P>,
    /// The word to restore.
    had: u32,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl<P: Platform> Drop for FreePass<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() && self.had & COMMON == 0 {
            self.here.0.store(self.had, Ordering::Release);
        }
    }
}

/// Why a gate was not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseRefused {
    /// Another thread has closed it.
    Busy,
    /// The calling thread is inside, and would wait for itself.
    Inside,
}

impl<P: Platform> Default for Gate<P> {
    fn default() -> Self {
        Gate { step: P::AtomicU32::new(OPEN), in_turn: P::AtomicU32::new(0), inside: PerThread::new(GatePresence::new) }
    }
}

impl<P: Platform> Gate<P> {
    /// A caller passes if nothing is in its way: it has passed before, it is not inside, and the gate is open. `None`:
    /// it has not passed; call [`Gate::enter`]. The most frequent calls come here first, because `enter` needs more
    /// registers.
    #[inline(always)]
    pub fn enter_at_once(&self) -> Option<GateGuard<'_, P>> {
        let here = self.inside.here_at_once()?;
        if here.word() != 0 {
            return None;
        }
        here.0.store(1, Ordering::Relaxed);
        P::light_fence();
        if self.step.load(Ordering::Acquire) != OPEN {
            here.0.store(0, Ordering::Release);
            return None;
        }
        Some(GateGuard { here, _stays_on_its_thread: PhantomData })
    }

    /// A caller passes; waits while the gate is closed.
    #[inline(always)]
    pub fn enter(&self) -> GateGuard<'_, P> {
        self.enter_or_rest(|| ())
    }

    /// The same. Before it waits, `rest` is called, which gives up the cells that the thread owns if it polls, too: it does not while it
    /// waits.
    #[inline(always)]
    pub fn enter_or_rest(&self, mut rest: impl FnMut()) -> GateGuard<'_, P> {
        let here = self.inside.here();
        let word = here.word();
        if word == 0 {
            here.0.store(1, Ordering::Relaxed);
            // Pairs with the heavy fence of the thread that closes: it sees this thread inside, or this thread sees the
            // gate closed.
            P::light_fence();
            if self.step.load(Ordering::Acquire) != OPEN {
                self.wait_outside(here, &mut rest);
            }
        } else {
            here.again(word);
        }
        GateGuard { here, _stays_on_its_thread: PhantomData }
    }

    #[cold]
    #[inline(never)]
    fn wait_outside(&self, here: &GatePresence<P>, rest: &mut dyn FnMut()) {
        let mut rested = false;
        loop {
            sync::lock_order::assert_only_users_held::<P>("waiting outside the gate");
            here.0.store(0, Ordering::Release);
            let step = self.step.load(Ordering::Acquire);
            if step != OPEN {
                // Once: it owns none again before it polls, and the thread that closes must find nobody inside at last.
                rested = rested || self.rest_before(here, rest);
                P::futex_wait(&self.step, step, None);
            }
            here.0.store(1, Ordering::Relaxed);
            P::light_fence();
            if self.step.load(Ordering::Acquire) == OPEN {
                return;
            }
        }
    }

    /// A caller is about to wait outside: unless the state moves, it gives up its cells, as a driver inside, so that nothing moves
    /// meanwhile. Returns whether it has.
    fn rest_before(&self, here: &GatePresence<P>, rest: &mut dyn FnMut()) -> bool {
        here.0.store(DRIVER | 1, Ordering::Relaxed);
        P::light_fence();
        let rests = matches!(self.step.load(Ordering::Acquire), DRAINING | RESTING);
        if rests {
            rest();
        }
        here.0.store(0, Ordering::Release);
        rests
    }

    /// A driver passes for one turn. If the gate is being closed, `rest` is called, which gives up the cells that the
    /// thread owns, and the thread waits until it is open.
    #[inline]
    pub fn enter_as_driver(&self, rest: impl FnMut()) -> GateGuard<'_, P> {
        let here = self.inside.here();
        let word = here.word();
        if word == 0 {
            here.0.store(DRIVER | 1, Ordering::Relaxed);
            P::light_fence();
            if self.step.load(Ordering::Acquire) >= RESTING {
                self.rest_outside(here, rest);
            }
        } else {
            here.again(word);
        }
        GateGuard { here, _stays_on_its_thread: PhantomData }
    }

    /// A driver that waits for something else passes for a turn, unless the state moves: then no thread is inside that
    /// waits for this one. It rests when it polls.
    #[cold]
    pub fn enter_as_driver_at_once(&self) -> Option<GateGuard<'_, P>> {
        let here = self.inside.here();
        let word = here.word();
        if word == 0 {
            here.0.store(DRIVER | 1, Ordering::Relaxed);
            P::light_fence();
            if self.step.load(Ordering::Acquire) == MOVING {
                here.0.store(0, Ordering::Release);
                return None;
            }
        } else {
            here.again(word);
        }
        Some(GateGuard { here, _stays_on_its_thread: PhantomData })
    }

    #[cold]
    #[inline(never)]
    fn rest_outside(&self, here: &GatePresence<P>, mut rest: impl FnMut()) {
        loop {
            let step = self.step.load(Ordering::Acquire);
            match step {
                OPEN | DRAINING => return,
                // The thread is inside meanwhile, so nothing moves.
                RESTING => rest(),
                _ => {}
            }
            sync::lock_order::assert_only_users_held::<P>("waiting outside the gate");
            here.0.store(0, Ordering::Release);
            P::futex_wait(&self.step, step, None);
            here.0.store(DRIVER | 1, Ordering::Relaxed);
            P::light_fence();
        }
    }

    /// The calling thread passes at any time: it is one of the architecture's own, or the one that switches.
    pub fn always(&self) -> FreePass<'_, P> {
        let here = self.inside.here();
        let had = here.word();
        if had & COMMON == 0 {
            here.0.store(had | ALWAYS, Ordering::Relaxed);
        }
        FreePass { here, had, _stays_on_its_thread: PhantomData }
    }

    /// Begins to close the gate: callers wait from now on. Waits for a driver that has closed it in its turn.
    ///
    /// # Errors
    /// See [`CloseRefused`].
    pub fn close(&self) -> Result<Closing<'_, P>, CloseRefused> {
        let word = self.inside.here().word();
        if word & COMMON == 0 && word != 0 {
            return Err(CloseRefused::Inside);
        }
        let mut looks = 0;
        loop {
            let before = self.in_turn.load(Ordering::Acquire);
            match self.begin(PATIENCE, false) {
                Ok(closing) => return Ok(closing),
                // Not in a driver's turn, neither before nor meanwhile.
                Err(refused) if before.is_multiple_of(2) && self.in_turn.load(Ordering::Acquire) == before => {
                    return Err(refused);
                }
                Err(_) => P::relax(looks),
            }
            looks += 1;
        }
    }

    /// The same for a driver inside, which has nothing left to do in its turn. Its patience is a millisecond.
    ///
    /// # Errors
    /// See [`CloseRefused`].
    pub fn close_in_turn(&self) -> Result<Closing<'_, P>, CloseRefused> {
        if self.inside.here().word() != DRIVER | 1 {
            return Err(CloseRefused::Inside);
        }
        // Even: no driver does.
        let before = self.in_turn.load(Ordering::Relaxed) & !1;
        let begins = self.in_turn.compare_exchange(before, before | 1, Ordering::AcqRel, Ordering::Relaxed);
        begins.map_err(|_| CloseRefused::Busy)?;
        self.begin(PATIENCE_IN_TURN, true).inspect_err(|_| self.ends_turn())
    }

    /// The driver that has closed it in its turn, or could not, allows others to.
    fn ends_turn(&self) {
        self.in_turn.fetch_add(1, Ordering::Release);
    }

    fn begin(&self, patience: Duration, in_turn: bool) -> Result<Closing<'_, P>, CloseRefused> {
        let closed = self.step.compare_exchange(OPEN, DRAINING, Ordering::AcqRel, Ordering::Relaxed);
        closed.map_err(|_| CloseRefused::Busy)?;
        P::heavy_fence();
        Ok(Closing { gate: self, _passes: self.always(), began: P::now(), patience, in_turn })
    }

    fn goes_on(&self, step: u32) {
        self.step.store(step, Ordering::Release);
        P::futex_wake(&self.step, u32::MAX);
    }

    /// Whether a thread is inside, as a caller or as a driver.
    fn has(&self, driver: bool) -> bool {
        self.inside.iter().any(|presence| {
            let word = presence.0.load(Ordering::Acquire);
            word & DEPTH != 0 && word & ALWAYS == 0 && (word & DRIVER != 0) == driver
        })
    }
}

/// A gate that is closed by the calling thread, and is open again when this is dropped.
#[must_use = "the gate is open when it is dropped"]
pub struct Closing<'a, P: Platform> {
    gate: &'a Gate<P>,
    _passes: FreePass<'a, P>,
    began: u64,
    patience: Duration,
    in_turn: bool,
}

impl<P: Platform> Closing<'_, P> {
    /// Waits until no caller is inside. `help` does the work that they wait for, if it belongs to the calling thread.
    /// False: one has not left in time.
    pub fn drain(&self, help: impl FnMut()) -> bool {
        self.wait(false, help)
    }

    /// Makes the drivers rest and calls `attempt` while none is inside; calls it again if it returned `None` because a
    /// driver has not rested yet. `wake` ends the drivers' sleep. `None`: a driver has not rested in time.
    pub fn rest<R>(&self, wake: impl Fn(), mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
        let mut again = false;
        loop {
            self.gate.goes_on(RESTING);
            wake();
            if std::mem::replace(&mut again, true) {
                // Wakes a driver that sleeps outside, so that it checks already in the step in which it may rest.
                P::yield_now();
            }
            P::heavy_fence();
            if !self.wait(true, || ()) {
                return None;
            }
            self.gate.goes_on(MOVING);
            P::heavy_fence();
            // A driver may have entered in between: it gives up its cells before it leaves.
            if self.gate.has(true) {
                continue;
            }
            if let Some(result) = attempt() {
                return Some(result);
            }
            if self.is_late() {
                return None;
            }
        }
    }

    /// For how long it has been closed.
    pub fn lasted(&self) -> Duration {
        Duration::from_nanos(P::now().saturating_sub(self.began))
    }

    fn is_late(&self) -> bool {
        self.lasted() > self.patience
    }

    fn wait(&self, driver: bool, mut help: impl FnMut()) -> bool {
        let mut looks = 0;
        while self.gate.has(driver) {
            if self.is_late() {
                return false;
            }
            P::relax(looks);
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                help();
            }
        }
        true
    }
}

impl<P: Platform> Drop for Closing<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.gate.goes_on(OPEN);
            if self.in_turn {
                self.gate.ends_turn();
            }
        }
    }
}
