//! `Lock<T>`: exclusive use of a value, by an algorithm chosen at run time, with a class that orders and counts it.
//!
//! Owned here: the dispatch on [`LockKind`], the guard, the counting. The algorithms are one file each and know neither
//! class nor value. Used by `stack` for every shared table and connection, by `dev` for shared transmit queues.
//!
//! The fast path is: try; on success add one to this thread's counter. A thread whose first try fails is counted and
//! then waits as the kind prescribes. What may never happen: a guard sent to another thread, a wait that the lock order
//! forbids (debug builds refuse it), or an acquisition that is not counted.

mod adaptive;
mod blocking;
mod guard;
mod kind;
mod mcs;
mod null;
mod reserved;
mod spin_park;
mod tas;
mod ticket;
mod ttas;

pub use guard::Guard;
pub use kind::{LockKind, UnknownLockKind};

use std::fmt;
use std::marker::PhantomData;

use crate::lock_class::{Before, Class, class};
use crate::lock_order::{self, LockIndex};
use crate::{CellLike, LockClass, LockStep, Platform, Real, profile};

/// The algorithms alone, without value, class or counting.
pub mod raw {
    pub use super::adaptive::Adaptive;
    pub use super::blocking::Blocking;
    pub use super::mcs::Mcs;
    pub use super::null::Null;
    pub use super::reserved::Reserved;
    pub use super::spin_park::SpinPark;
    pub use super::tas::Tas;
    pub use super::ticket::Ticket;
    pub use super::ttas::Ttas;
}

/// An exclusion algorithm.
///
/// `unlock` is called only by the thread whose `lock` or successful `try_lock` came last; everything a holder did
/// happens before everything the next holder does.
pub trait RawLock: Send + Sync {
    /// An unlocked lock.
    fn new() -> Self;
    /// Takes the lock if that needs no waiting. Never overtakes a queue, where the algorithm has one.
    fn try_lock(&self) -> bool;
    /// Waits for the lock.
    fn lock(&self);
    /// Gives the lock up.
    fn unlock(&self);
}

/// One of the algorithms, chosen when the lock is made. The branch on the kind is the same for each lock each time.
enum Chosen<P: Platform> {
    Null(raw::Null<P>),
    Tas(raw::Tas<P>),
    Ttas(raw::Ttas<P>),
    Ticket(raw::Ticket<P>),
    Mcs(raw::Mcs<P>),
    SpinPark(raw::SpinPark<P>),
    Blocking(raw::Blocking<P>),
    Reserved(raw::Reserved<P>),
    Adaptive(raw::Adaptive<P>),
    AdaptiveLending(raw::Adaptive<P, true>),
}

macro_rules! each {
    ($chosen:expr, $lock:ident => $then:expr) => {
        match $chosen {
            Chosen::Null($lock) => $then,
            Chosen::Tas($lock) => $then,
            Chosen::Ttas($lock) => $then,
            Chosen::Ticket($lock) => $then,
            Chosen::Mcs($lock) => $then,
            Chosen::SpinPark($lock) => $then,
            Chosen::Blocking($lock) => $then,
            Chosen::Reserved($lock) => $then,
            Chosen::Adaptive($lock) => $then,
            Chosen::AdaptiveLending($lock) => $then,
        }
    };
}

impl<P: Platform> Chosen<P> {
    fn new(kind: LockKind) -> Self {
        match kind {
            LockKind::Null => Self::Null(RawLock::new()),
            LockKind::Tas => Self::Tas(RawLock::new()),
            LockKind::Ttas => Self::Ttas(RawLock::new()),
            LockKind::Ticket => Self::Ticket(RawLock::new()),
            LockKind::Mcs => Self::Mcs(RawLock::new()),
            LockKind::SpinPark => Self::SpinPark(RawLock::new()),
            LockKind::Blocking => Self::Blocking(RawLock::new()),
            LockKind::Reserved => Self::Reserved(RawLock::new()),
            LockKind::Adaptive => Self::Adaptive(RawLock::new()),
            LockKind::AdaptiveLending => Self::AdaptiveLending(RawLock::new()),
        }
    }

    fn kind(&self) -> LockKind {
        match self {
            Self::Null(_) => LockKind::Null,
            Self::Tas(_) => LockKind::Tas,
            Self::Ttas(_) => LockKind::Ttas,
            Self::Ticket(_) => LockKind::Ticket,
            Self::Mcs(_) => LockKind::Mcs,
            Self::SpinPark(_) => LockKind::SpinPark,
            Self::Blocking(_) => LockKind::Blocking,
            Self::Reserved(_) => LockKind::Reserved,
            Self::Adaptive(_) => LockKind::Adaptive,
            Self::AdaptiveLending(_) => LockKind::AdaptiveLending,
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        each!(self, lock => lock.try_lock())
    }

    #[cold]
    fn lock(&self) {
        each!(self, lock => lock.lock())
    }

    #[inline(always)]
    fn unlock(&self) {
        each!(self, lock => lock.unlock())
    }
}

/// A value that one thread at a time may use.
///
/// ```
/// use sync::{Lock, LockClass, LockKind};
/// let table: Lock<Vec<u32>> = Lock::new(LockKind::Mcs, LockClass::ConnTable, Vec::new());
/// table.lock().push(7);
/// assert_eq!(table.lock().len(), 1);
/// ```
///
/// `C` is its class where the compiler is to know it: locks that are taken one under the other in one place. A lock
/// declares it in its type and is made by [`Lock::ordered`]; [`Lock::lock_after`] then compiles in the declared order
/// alone.
pub struct Lock<T, P: Platform = Real, C = class::Unstated> {
    raw: Chosen<P>,
    class: LockClass,
    value: P::Cell<T>,
    _class: PhantomData<fn() -> C>,
}

// SAFETY: the value moves to whichever thread holds the lock, one at a time: a `T: Send` allows that, and no reference
// to it outlives the guard.
unsafe impl<T: Send, P: Platform, C> Sync for Lock<T, P, C> {}
// SAFETY: as above; moving the lock moves the value.
unsafe impl<T: Send, P: Platform, C> Send for Lock<T, P, C> {}

impl<T, P: Platform> Lock<T, P> {
    /// A free lock around `value`.
    pub fn new(kind: LockKind, class: LockClass, value: T) -> Self {
        Self { raw: Chosen::new(kind), class, value: P::Cell::new(value), _class: PhantomData }
    }
}

impl<T, P: Platform, C: Class> Lock<T, P, C> {
    /// A free lock around `value`, of the class that its type states.
    pub fn ordered(kind: LockKind, value: T) -> Self {
        Self { raw: Chosen::new(kind), class: C::CLASS, value: P::Cell::new(value), _class: PhantomData }
    }

    /// As [`lock`](Self::lock), where the calling thread holds `outer`: it compiles only if that class stands before
    /// this one in [`LockClass`].
    ///
    /// ```
    /// use sync::{Lock, LockKind, Real, class};
    /// let table: Lock<u32, Real, class::ConnTable> = Lock::ordered(LockKind::Mcs, 0);
    /// let timers: Lock<u32, Real, class::Timers> = Lock::ordered(LockKind::Mcs, 0);
    /// let table = table.lock();
    /// assert_eq!(*table + *timers.lock_after(&table), 0);
    /// ```
    ///
    /// The other way round does not compile, nor do two locks of one class, whose order a number decides
    /// ([`lock_nested`](Self::lock_nested)):
    ///
    /// ```compile_fail,E0277
    /// use sync::{Lock, LockKind, Real, class};
    /// let table: Lock<u32, Real, class::ConnTable> = Lock::ordered(LockKind::Mcs, 0);
    /// let timers: Lock<u32, Real, class::Timers> = Lock::ordered(LockKind::Mcs, 0);
    /// let timers = timers.lock();
    /// assert_eq!(*timers + *table.lock_after(&timers), 0);
    /// ```
    ///
    /// ```compile_fail,E0277
    /// use sync::{Lock, LockKind, Real, class};
    /// let [one, two] = [0, 1].map(|n| Lock::<u32, Real, class::Group>::ordered(LockKind::Mcs, n));
    /// let one = one.lock();
    /// assert_eq!(*one + *two.lock_after(&one), 1);
    /// ```
    ///
    /// # Panics
    /// As [`lock`](Self::lock): other locks may be held beside `outer`.
    #[inline]
    pub fn lock_after<O: Before<C>, U>(&self, _outer: &Guard<'_, U, P, O>) -> Guard<'_, T, P, C> {
        self.acquire(None)
    }
}

impl<T, P: Platform, C> Lock<T, P, C> {
    /// Waits for exclusive use of the value.
    ///
    /// # Panics
    /// In debug builds, when the lock order does not allow this class here. In all builds, when the kind is
    /// [`LockKind::Null`] and the lock is held: the surrounding structure failed to exclude contention.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, P, C> {
        self.acquire(None)
    }

    /// As [`lock`](Self::lock), where other locks of the class may be held: those with a lower `index`, a fixed number
    /// that the caller assigns to each lock of the class.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline]
    pub fn lock_nested(&self, index: u32) -> Guard<'_, T, P, C> {
        self.acquire(Some(index))
    }

    /// Takes the lock if it is free and no thread is queued for it. Allowed in any order, because it never waits.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T, P, C>> {
        if self.raw.try_lock() {
            return Some(Guard::enter(self, None));
        }
        if let Some(counters) = P::lock_counters() {
            counters.refused(self.class);
        }
        None
    }

    #[inline]
    fn acquire(&self, index: LockIndex) -> Guard<'_, T, P, C> {
        lock_order::waiting::<P>(self.class, index);
        if !self.raw.try_lock() {
            self.wait();
        }
        Guard::enter(self, index)
    }

    #[cold]
    fn wait(&self) {
        self.tell(LockStep::Waits);
        let timed = profile::is_timed::<P>();
        let start = if timed { P::now() } else { 0 };
        self.raw.lock();
        if let Some(counters) = P::lock_counters() {
            let waited = if timed { P::now().saturating_sub(start) } else { 0 };
            counters.first_try_failed(self.class, waited);
        }
    }

    /// Tells a platform that charges.
    #[inline(always)]
    pub(crate) fn tell(&self, step: LockStep) {
        if P::CHARGED {
            P::lock_step(step, self.class, std::ptr::from_ref(&self.raw).addr());
        }
    }

    /// The value, without locking: the exclusive borrow proves that there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every guard for as long as the reference lives.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// The lock's class.
    pub fn class(&self) -> LockClass {
        self.class
    }

    /// The lock's algorithm.
    pub fn kind(&self) -> LockKind {
        self.raw.kind()
    }
}

impl<T, P: Platform, C> fmt::Debug for Lock<T, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("kind", &self.kind()).field("class", &self.class).finish_non_exhaustive()
    }
}
