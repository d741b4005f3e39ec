//! A value that one thread uses *by structure*, checked at a few instructions a use.
//!
//! For state that an architecture gives to one thread and never shares: a protocol thread's shard, the only thread's
//! stack. The first thread to use the cell becomes its owner; moving it to another thread takes an explicit
//! [`release`](ThreadOwned::release) by the owner and a first use by the other. What may never happen, in any build:
//! two references to the value alive at once. A foreign thread and a re-entrant use are refused.
//!
//! The owner is identified by its thread index. An index is reused only after its thread has ended, so the cell of an
//! ended owner may pass to the thread that reuses the index; everything that the former owner did happened before.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::{Atomic, CellLike, Platform, Real};

/// The index of no thread. It differs from the value that stands for a thread without an index.
const NO_THREAD: usize = usize::MAX - 1;

/// See the head of this file.
pub struct ThreadOwned<T, P: Platform = Real> {
    /// The owner's index, or [`NO_THREAD`].
    owner: P::AtomicUsize,
    /// Read and written by the owner only.
    busy: Cell<bool>,
    value: P::Cell<T>,
}

// SAFETY: `busy` and the value are touched only by the thread in `owner`, and ownership passes from thread to thread
// with Release and Acquire; a `T: Send` may be used by one thread after another.
unsafe impl<T: Send, P: Platform> Sync for ThreadOwned<T, P> {}
// SAFETY: as above; moving the cell moves the value.
unsafe impl<T: Send, P: Platform> Send for ThreadOwned<T, P> {}

/// Why a [`ThreadOwned`] cannot be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOwner {
    /// Another thread owns the cell: hand the work to it. Both are thread indices.
    Foreign {
        /// The thread that owns the cell.
        owner: usize,
        /// The calling thread.
        caller: usize,
    },
    /// The caller owns the cell and is using it already, further up its own stack.
    Reentered,
}

impl fmt::Display for NotOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { owner, caller } => write!(
                f,
                "thread {caller} may not use a cell that thread {owner} owns; hand the work over, or release it there"
            ),
            Self::Reentered => f.write_str("the cell is in use further up this thread's stack; queue the work instead"),
        }
    }
}

impl std::error::Error for NotOwner {}

/// Ends a use, also on panic.
struct UseGuard<'a>(&'a Cell<bool>);

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Access to the value of a [`ThreadOwned`] by its owner; see [`ThreadOwned::borrow_mine`].
pub struct OwnerGuard<'a, T, P: Platform> {
    cell: &'a ThreadOwned<T, P>,
    _in_use: UseGuard<'a>,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl<T, P: Platform> Deref for OwnerGuard<'_, T, P> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread owns the cell, and `busy`, which the guard has set, admits no other use.
        self.cell.value.with(|value| unsafe { &*value })
    }
}

impl<T, P: Platform> DerefMut for OwnerGuard<'_, T, P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this borrow the only one.
        self.cell.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, P: Platform> ThreadOwned<T, P> {
    /// A cell without an owner. Inline, so that a large value is made in its place.
    #[inline(always)]
    pub fn new(value: T) -> Self {
        Self { owner: P::AtomicUsize::new(NO_THREAD), busy: Cell::new(false), value: P::Cell::new(value) }
    }

    /// Uses the value, becoming its owner if there is none.
    ///
    /// # Errors
    /// [`NotOwner`] if another thread owns the cell, or this one is using it already. `work` is then not called.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Result<R, NotOwner> {
        let _in_use = self.enter()?;
        // SAFETY: this thread owns the cell and `busy` was clear, so no other reference to the value exists; `busy`
        // stays set until `work` has returned or unwound.
        Ok(self.value.with_mut(|value| work(unsafe { &mut *value })))
    }

    /// The value for as long as the guard lives, if the calling thread owns the cell already and is not using it. Costs
    /// less than [`with`](Self::with): there is no call, and no value is moved into a closure.
    #[inline]
    pub fn borrow_mine(&self) -> Option<OwnerGuard<'_, T, P>> {
        if self.owner.load(Relaxed) != P::known_thread_index() || self.busy.replace(true) {
            return None;
        }
        Some(OwnerGuard { cell: self, _in_use: UseGuard(&self.busy), _stays_on_its_thread: PhantomData })
    }

    /// Makes the calling thread the owner, if there is none.
    ///
    /// # Errors
    /// [`NotOwner::Foreign`] if another thread owns the cell; it has to [`release`](Self::release) it first.
    pub fn bind_here(&self) -> Result<(), NotOwner> {
        self.owned(P::thread_index())
    }

    /// Gives the cell up: the next thread to use it becomes its owner.
    ///
    /// # Errors
    /// [`NotOwner`] if the caller does not own the cell, or is using it.
    pub fn release(&self) -> Result<(), NotOwner> {
        drop(self.enter()?);
        self.owner.store(NO_THREAD, Release);
        Ok(())
    }

    /// The owner's thread index, if there is an owner.
    pub fn owner(&self) -> Option<usize> {
        Some(self.owner.load(Relaxed)).filter(|owner| *owner != NO_THREAD)
    }

    /// The value, without a check: the exclusive borrow proves that there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every use for as long as the reference lives.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    #[inline]
    fn enter(&self) -> Result<UseGuard<'_>, NotOwner> {
        self.owned(P::thread_index())?;
        if self.busy.replace(true) {
            return Err(NotOwner::Reentered);
        }
        Ok(UseGuard(&self.busy))
    }

    #[inline]
    fn owned(&self, caller: usize) -> Result<(), NotOwner> {
        // Relaxed: if the word names the caller, the caller wrote it (or inherited its index, see the head).
        if self.owner.load(Relaxed) == caller { Ok(()) } else { self.claim(caller) }
    }

    #[cold]
    fn claim(&self, caller: usize) -> Result<(), NotOwner> {
        // Acquire: sees what the thread that released the cell did with it.
        match self.owner.compare_exchange(NO_THREAD, caller, Acquire, Relaxed) {
            Ok(_) => Ok(()),
            Err(owner) => Err(NotOwner::Foreign { owner, caller }),
        }
    }
}

impl<T, P: Platform> fmt::Debug for ThreadOwned<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerCell").field("owner", &self.owner()).finish_non_exhaustive()
    }
}
