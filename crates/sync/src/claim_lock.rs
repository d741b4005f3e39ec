//! A value behind a lock, which a thread may claim for itself: from then on that thread uses it without any lock, and
//! no other thread can enter by the lock.
//!
//! For data that belongs to one thread while a stack is used by one thread, and to all threads otherwise: the transmit
//! queue of a device, the tables of IP. Unlike a [`ThreadOwned`](crate::ThreadOwned) it can be without an owner, and then a lock
//! excludes. Unlike with a lock reserved for its main user ([`raw::Reserved`](crate::raw::Reserved)), other threads
//! cannot end the claim: they are refused, and must hand their work to the claimant.
//!
//! | state | the claimant | any other thread |
//! |---|---|---|
//! | unclaimed | - | takes the lock |
//! | claimed | compares its index: two loads, two stores to a line of its own | is refused |
//!
//! What may never happen, in any build: two references to the value alive at once. A claim begins under the lock, so no
//! other thread is inside then, and a thread that takes the lock later sees the claim. Only the claimant ends it, while
//! it does not use the value.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::{Atomic, CellLike, Guard, Lock, LockClass, LockKind, Platform, Real};

/// The index of no thread. It differs from the value that stands for a thread without an index.
const NO_THREAD: usize = usize::MAX - 1;

/// See the head of this file. The claimant's words and the beginning of the value share a cache line: a use by the claim
/// touches no other, and not the lock's.
#[repr(C)]
pub struct ClaimLock<T, P: Platform = Real> {
    /// The claimant's index, or [`NO_THREAD`]. Becomes an index under the lock, and [`NO_THREAD`] by the claimant.
    claimant: P::AtomicUsize,
    /// The claimant is using the value. Read and written by the claimant only.
    busy: Cell<bool>,
    value: P::Cell<T>,
    lock: Lock<(), P>,
}

// SAFETY: `busy` is touched by the claimant only, and a claim passes from thread to thread with Release and Acquire.
// The value is touched by the claimant, or under the lock while there is none; a `T: Send` may be used by one thread
// after another.
unsafe impl<T: Send, P: Platform> Sync for ClaimLock<T, P> {}
// SAFETY: as above; moving the lock moves the value.
unsafe impl<T: Send, P: Platform> Send for ClaimLock<T, P> {}

/// Another thread has claimed the value, or the calling thread is already using it: the work must be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed;

/// Exclusive use of the value; see [`ClaimLock::enter`].
pub struct ClaimGuard<'a, T, P: Platform> {
    of: &'a ClaimLock<T, P>,
    /// `None`: by the claim.
    by_lock: Option<Guard<'a, (), P>>,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl<T, P: Platform> Deref for ClaimGuard<'_, T, P> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread is the claimant and has set `busy`, which admits no other use; or it holds the
        // lock and has seen under it that there is no claimant, and no claim begins while it holds it.
        self.of.value.with(|value| unsafe { &*value })
    }
}

impl<T, P: Platform> DerefMut for ClaimGuard<'_, T, P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this borrow the only one.
        self.of.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, P: Platform> Drop for ClaimGuard<'_, T, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.by_lock.is_none() {
            self.of.busy.set(false);
        }
    }
}

/// Exclusive use of the value by the claim; see [`ClaimLock::enter_by_claim`].
pub struct ClaimedUse<'a, T, P: Platform> {
    of: &'a ClaimLock<T, P>,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl<T, P: Platform> Deref for ClaimedUse<'_, T, P> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread is the claimant and has set `busy`, which admits no other use.
        self.of.value.with(|value| unsafe { &*value })
    }
}

impl<T, P: Platform> DerefMut for ClaimedUse<'_, T, P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this borrow the only one.
        self.of.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, P: Platform> Drop for ClaimedUse<'_, T, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.of.busy.set(false);
    }
}

impl<T, P: Platform> ClaimLock<T, P> {
    /// An unclaimed value.
    pub fn new(kind: LockKind, class: LockClass, value: T) -> Self {
        ClaimLock {
            claimant: P::AtomicUsize::new(NO_THREAD),
            busy: Cell::new(false),
            value: P::Cell::new(value),
            lock: Lock::new(kind, class, ()),
        }
    }

    /// Exclusive use of the value: at once for the claimant, otherwise by the lock.
    ///
    /// # Errors
    /// [`Claimed`]. It stays claimed at least until the claimant runs again.
    ///
    /// # Panics
    /// As [`Lock::lock`].
    // Inlined, or the result would be stored in pieces and loaded at once, which waits.
    #[inline(always)]
    pub fn enter(&self) -> Result<ClaimGuard<'_, T, P>, Claimed> {
        let by_lock = match self.claimant.load(Relaxed) {
            NO_THREAD => {
                let guard = self.lock.lock();
                if self.claimant.load(Acquire) != NO_THREAD {
                    return Err(Claimed);
                }
                Some(guard)
            }
            claimant if claimant == P::known_thread_index() && !self.busy.replace(true) => None,
            _ => return Err(Claimed),
        };
        Ok(ClaimGuard { of: self, by_lock, _stays_on_its_thread: PhantomData })
    }

    /// The first half of [`ClaimLock::enter`], with a guard that nothing is moved for: exclusive use of the value by the claimant.
    /// `None`: the calling thread has no claim, or is using the value already.
    #[inline(always)]
    pub fn enter_by_claim(&self) -> Option<ClaimedUse<'_, T, P>> {
        let mine = self.is_claimed_here() && !self.busy.replace(true);
        // Not `then_some`: a guard that is made and dropped would end the use.
        mine.then(|| ClaimedUse { of: self, _stays_on_its_thread: PhantomData })
    }

    /// As [`ClaimLock::enter`], where the structure around the value leaves no other thread inside while it is claimed.
    ///
    /// # Panics
    /// If another thread has claimed the value, or the calling thread is using it already: the structure failed to
    /// exclude. Also as [`Lock::lock`].
    #[inline]
    pub fn hold(&self) -> ClaimGuard<'_, T, P> {
        match self.enter() {
            Ok(guard) => guard,
            Err(Claimed) => self.intruded(),
        }
    }

    #[cold]
    fn intruded(&self) -> ! {
        let (claimant, caller) = (self.claimant.load(Relaxed), P::thread_index());
        panic!(
            "thread {caller} uses a value of class `{}` that thread {claimant} has claimed: send the work to the \
             claimant, or, if they are the same thread, end the first use before the second",
            self.lock.class()
        )
    }

    /// Claims the value for the calling thread, until it gives the claim up. Waits for the lock. False: another thread
    /// has the claim.
    pub fn claim(&self) -> bool {
        let me = P::thread_index();
        let guard = self.lock.lock();
        match self.claimant.load(Acquire) {
            NO_THREAD => self.claimant.store(me, Release),
            claimant => return claimant == me,
        }
        drop(guard);
        true
    }

    /// Ends the calling thread's claim. False: it had none, or is using the value.
    pub fn release_claim(&self) -> bool {
        let mine = self.is_claimed_here() && !self.busy.get();
        if mine {
            self.claimant.store(NO_THREAD, Release);
        }
        mine
    }

    /// Whether the calling thread has the claim.
    #[inline]
    pub fn is_claimed_here(&self) -> bool {
        self.claimant.load(Relaxed) == P::known_thread_index()
    }
}

impl<T, P: Platform> fmt::Debug for ClaimLock<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimLock").field("lock", &self.lock).finish_non_exhaustive()
    }
}
