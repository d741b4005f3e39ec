//! Until when the receive threads sleep, and the call that wakes one of them earlier.
//!
//! Receive threads run timed work: timers of connections, repeated solicitations, frames that wait for room in a
//! device. Before a receive thread sleeps it computes for how long. Another thread, usually a user's, may create work
//! that is due earlier. It must not rely on a frame to end that sleep, because the only frame expected may be lost. So
//! each receive thread publishes when it will wake, and work that is due before all of these times wakes one thread
//! ([`Alarms::due`]).
//!
//! Sleeper and caller synchronise on two atomic words. The sleeper writes its wake-up time and then checks whether new
//! work was announced meanwhile. The caller publishes its work, increments a counter, and then checks which threads
//! sleep. With a fence between the two steps of each, at least one of them sees the other.
//!
//! What may never happen: a call with a guard held (it wakes threads), or a sleep beyond an earlier deadline.

use std::sync::Arc;
use std::time::Duration;

use dev::Wake;
use observe::Time;
use sync::{Atomic, CachePadded, Lock, LockClass, LockKind, Ordering, Platform};

/// The longest that a receive thread sleeps while connections wait for room in a device.
pub(crate) const ROOM_NAP: Duration = Duration::from_millis(1);

/// The thread is awake and will check for work before it sleeps.
const AWAKE: u64 = 0;
/// The thread has ended.
const GONE: u64 = u64::MAX;
/// The index of no thread. It differs from the value that stands for a thread without an index.
const NO_THREAD: usize = usize::MAX - 1;

/// One receive thread.
struct SleepState<P: Platform> {
    /// When it wakes, in nanoseconds; or [`AWAKE`] or [`GONE`].
    until: P::AtomicU64,
    /// How often it has slept, or was about to. Written by that thread.
    naps: P::AtomicU64,
    /// Ends its sleep, wherever it sleeps.
    wakers: Lock<Vec<Arc<dyn Wake>>, P>,
}

/// The sleep of all receive threads of a stack. Any thread.
pub struct Alarms<P: Platform> {
    sleep_states: Box<[CachePadded<SleepState<P>>]>,
    /// The index of the kernel's or the platform's thread that does the work of each; [`NO_THREAD`] at first. All threads look for
    /// themselves here, so it is on no line that is written when one sleeps.
    runners: CachePadded<Box<[P::AtomicUsize]>>,
    /// Announcements of earlier work so far.
    count: CachePadded<P::AtomicU64>,
    /// Other threads run the timers of connections, and wake up for them by themselves.
    elsewhere: P::AtomicBool,
}

impl<P: Platform> Alarms<P> {
    /// For `threads` receive threads, which count as awake until they first sleep.
    pub fn new(threads: usize) -> Self {
        let sleep_state = |_| {
            CachePadded::new(SleepState {
                until: P::AtomicU64::new(AWAKE),
                naps: P::AtomicU64::new(0),
                wakers: Lock::new(LockKind::Blocking, LockClass::Control, Vec::new()),
            })
        };
        Alarms {
            sleep_states: (0..threads).map(sleep_state).collect(),
            runners: CachePadded::new((0..threads).map(|_| P::AtomicUsize::new(NO_THREAD)).collect()),
            count: CachePadded::new(P::AtomicU64::new(0)),
            elsewhere: P::AtomicBool::new(false),
        }
    }

    /// How receive thread `thread` is woken.
    pub fn add_wakers(&self, thread: usize, wakers: impl Iterator<Item = Arc<dyn Wake>>) {
        self.sleep_states[thread].wakers.lock().extend(wakers);
    }

    /// Whether connections' timers are run by threads of the architecture's own.
    pub fn timers_are_run_elsewhere(&self, elsewhere: bool) {
        self.elsewhere.store(elsewhere, Ordering::Relaxed);
    }

    /// Whether receive threads run connections' timers.
    #[inline]
    pub fn run_timers(&self) -> bool {
        !self.elsewhere.load(Ordering::Relaxed)
    }

    /// The calling thread does the work of receive thread `thread` from now on.
    #[inline]
    pub fn run_here(&self, thread: usize) {
        let (runner, me) = (&self.runners[thread], P::thread_index());
        if runner.load(Ordering::Relaxed) != me {
            runner.store(me, Ordering::Relaxed);
        }
    }

    /// The number of receive threads: asleep, awake or ended.
    #[inline]
    pub fn threads(&self) -> usize {
        self.sleep_states.len()
    }

    /// Whether the calling thread does the work of receive thread `thread`.
    #[inline]
    pub fn is_run_here(&self, thread: usize) -> bool {
        self.runners[thread].load(Ordering::Relaxed) == P::known_thread_index()
            && self.sleep_states[thread].until.load(Ordering::Relaxed) != GONE
    }

    /// The least number of a receive thread whose work the calling thread does; `None`: it is no receive thread.
    #[inline]
    pub fn here(&self) -> Option<usize> {
        (0..self.threads()).find(|thread| self.is_run_here(*thread))
    }

    /// Whether receive thread `thread` has ended, and runs no more work.
    #[inline]
    pub fn has_ended(&self, thread: usize) -> bool {
        self.sleep_states[thread].until.load(Ordering::Relaxed) == GONE
    }

    /// Whether the calling thread does the work of an awake receive thread: it checks for work before it sleeps and
    /// needs no wake-up.
    #[inline]
    fn is_own_thread_awake(&self, thread: usize) -> bool {
        self.runners[thread].load(Ordering::Relaxed) == P::known_thread_index()
            && self.sleep_states[thread].until.load(Ordering::Relaxed) == AWAKE
    }

    /// Thread `thread` is about to sleep until the time that `earliest` returns ([`Time::MAX`]: until woken). The
    /// returned time includes work that was announced while it was computed.
    pub fn park(&self, thread: usize, earliest: impl Fn() -> Time) -> Time {
        let mut seen = self.count.load(Ordering::Acquire);
        let naps = &self.sleep_states[thread].naps;
        naps.store(naps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        loop {
            let until = earliest();
            self.sleep_states[thread].until.store(until.as_nanos().clamp(AWAKE + 1, GONE - 1), Ordering::Release);
            P::fence(Ordering::SeqCst);
            let now = self.count.load(Ordering::Acquire);
            if now == seen {
                return until;
            }
            seen = now;
        }
    }

    /// Thread `thread` has woken.
    pub fn unpark(&self, thread: usize) {
        self.sleep_states[thread].until.store(AWAKE, Ordering::Relaxed);
    }

    /// Thread `thread` has ended and runs no more work.
    pub fn leave(&self, thread: usize) {
        self.sleep_states[thread].until.store(GONE, Ordering::Relaxed);
    }

    /// How often thread `thread` has slept, or was about to.
    pub fn naps(&self, thread: usize) -> u64 {
        self.sleep_states[thread].naps.load(Ordering::Relaxed)
    }

    /// Whether thread `thread` sleeps, or is about to.
    pub fn sleeps(&self, thread: usize) -> bool {
        !matches!(self.sleep_states[thread].until.load(Ordering::Acquire), AWAKE | GONE)
    }

    /// Announces work at `nanos` that any receive thread can do, and wakes a sleeping thread if none would wake by
    /// then. The caller has published the work and holds no guard.
    pub fn due(&self, nanos: u64) {
        if (0..self.threads()).any(|thread| self.is_own_thread_awake(thread)) {
            return;
        }
        self.announce();
        let mut sleeper = None;
        for (thread, sleep_state) in self.sleep_states.iter().enumerate() {
            match sleep_state.until.load(Ordering::Relaxed) {
                until if until <= nanos => return,
                GONE => {}
                _ => sleeper = sleeper.or(Some(thread)),
            }
        }
        if let Some(thread) = sleeper {
            self.wake(thread);
        }
    }

    /// As [`Alarms::due`], for work that only thread `thread` can do.
    #[cold]
    pub fn due_at(&self, thread: usize, nanos: u64) {
        if thread < self.threads() && self.is_own_thread_awake(thread) {
            return;
        }
        self.announce();
        if let Some(sleep_state) = self.sleep_states.get(thread)
            && !(AWAKE..=nanos).contains(&sleep_state.until.load(Ordering::Relaxed))
        {
            self.wake(thread);
        }
    }

    /// Announces work that any receive thread can do now, and that the calling one leaves to others, and wakes one that sleeps.
    /// The caller has published the work and holds no guard.
    #[cold]
    pub fn call_sleeper(&self) {
        self.announce();
        if let Some(sleeper) = (0..self.threads()).find(|thread| self.sleeps(*thread)) {
            self.wake(sleeper);
        }
    }

    /// Counted and fenced: see the head of the file.
    fn announce(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        P::fence(Ordering::SeqCst);
    }

    /// Wakes all receive threads.
    pub fn wake_all(&self) {
        (0..self.sleep_states.len()).for_each(|thread| self.wake(thread));
    }

    #[cold]
    fn wake(&self, thread: usize) {
        let wakers = self.sleep_states[thread].wakers.lock().clone();
        wakers.iter().for_each(|waker| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sync::Real;

    #[derive(Default)]
    struct Bell(<Real as Platform>::AtomicUsize);

    impl Wake for Bell {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Two threads, each with the count of its wakes.
    fn two() -> (Alarms<Real>, [Arc<Bell>; 2]) {
        let (alarms, bells) = (Alarms::new(2), [(); 2].map(|()| Arc::new(Bell::default())));
        for (thread, bell) in bells.iter().enumerate() {
            alarms.add_wakers(thread, std::iter::once(bell.clone() as Arc<dyn Wake>));
        }
        (alarms, bells)
    }

    fn rung(bells: &[Arc<Bell>; 2]) -> [usize; 2] {
        [0, 1].map(|thread| bells[thread].0.load(Ordering::Relaxed))
    }

    fn sleep(alarms: &Alarms<Real>, thread: usize, until: Time) {
        assert_eq!(alarms.park(thread, || until), until);
    }

    /// Receive threads run connections' timers unless the architecture has threads that do, and again after a switch.
    #[test]
    fn receive_threads_run_timers_unless_others_do() {
        let (alarms, _) = two();
        assert!(alarms.run_timers());
        alarms.timers_are_run_elsewhere(true);
        assert!(!alarms.run_timers());
        alarms.timers_are_run_elsewhere(false);
        assert!(alarms.run_timers());
    }

    #[test]
    fn one_thread_that_sleeps_too_long_is_woken() {
        let (alarms, bells) = two();
        sleep(&alarms, 0, Time::MAX);
        alarms.due(100);
        assert_eq!(rung(&bells), [0, 0], "the other one is awake");
        sleep(&alarms, 1, Time::from_nanos(100));
        alarms.due(100);
        assert_eq!(rung(&bells), [0, 0], "the other one looks in time");
        alarms.due(99);
        assert_eq!(rung(&bells), [1, 0]);
        alarms.unpark(0);
        alarms.due(1);
        assert_eq!(rung(&bells), [1, 0]);
    }

    #[test]
    fn who_has_ended_neither_looks_nor_is_woken() {
        let (alarms, bells) = two();
        alarms.leave(0);
        assert_eq!([0, 1].map(|thread| alarms.has_ended(thread)), [true, false]);
        sleep(&alarms, 1, Time::MAX);
        alarms.due(100);
        assert_eq!(rung(&bells), [0, 1]);
    }

    /// A receive thread that creates the work itself needs no wake-up.
    #[test]
    fn a_thread_that_is_awake_and_looks_itself_calls_nobody() {
        let (alarms, bells) = two();
        alarms.run_here(0);
        sleep(&alarms, 1, Time::MAX);
        alarms.due(100);
        alarms.due_at(0, 100);
        assert_eq!((rung(&bells), alarms.count.load(Ordering::Relaxed)), ([0, 0], 0));
        alarms.due_at(1, 100);
        assert_eq!(rung(&bells), [0, 1], "another can do it, and sleeps");
        std::thread::scope(|scope| {
            scope.spawn(|| alarms.run_here(0));
        });
        alarms.unpark(1);
        sleep(&alarms, 0, Time::MAX);
        sleep(&alarms, 1, Time::MAX);
        alarms.due(100);
        assert_eq!(rung(&bells), [1, 1], "the work has moved to a thread that sleeps");
    }

    #[test]
    fn what_one_thread_alone_can_do_wakes_that_one() {
        let (alarms, bells) = two();
        sleep(&alarms, 1, Time::from_nanos(100));
        alarms.due_at(1, 100);
        alarms.due_at(0, 0);
        assert_eq!(rung(&bells), [0, 0]);
        alarms.due_at(1, 50);
        assert_eq!(rung(&bells), [0, 1]);
        alarms.due_at(7, 0);
    }

    /// Also if it is to sleep until a time that stands for being awake or having ended.
    #[test]
    fn a_thread_sleeps_until_it_wakes_and_each_nap_is_counted() {
        let (alarms, bells) = two();
        let is = |thread| (alarms.sleeps(thread), alarms.naps(thread));
        assert_eq!([0, 1].map(is), [(false, 0); 2]);
        alarms.call_sleeper();
        assert_eq!(rung(&bells), [0, 0], "nobody sleeps");
        for (nap, until) in [(1, Time::from_nanos(AWAKE)), (2, Time::MAX)] {
            sleep(&alarms, 1, until);
            assert_eq!([0, 1].map(is), [(false, 0), (true, nap)]);
            alarms.call_sleeper();
            assert_eq!(rung(&bells), [0, nap as usize]);
            alarms.unpark(1);
            assert_eq!(is(1), (false, nap));
        }
        alarms.leave(1);
        assert_eq!(is(1), (false, 2));
        alarms.wake_all();
        assert_eq!(rung(&bells), [1, 3]);
    }

    /// Work is announced after the time was computed and before it is published.
    #[test]
    fn what_is_made_due_meanwhile_is_seen_before_the_sleep() {
        let (alarms, _) = two();
        let rounds = std::cell::Cell::new(0);
        let until = alarms.park(0, || {
            rounds.set(rounds.get() + 1);
            if rounds.get() == 1 {
                alarms.due(5);
                return Time::MAX;
            }
            Time::from_nanos(5)
        });
        assert_eq!((until, rounds.get()), (Time::from_nanos(5), 2));
    }
}
