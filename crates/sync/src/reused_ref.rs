//! A shared pointer like `Arc`, the memory of which is used again: the thread that drops the last holder of a value keeps the memory
//! for the next values that it makes.
//!
//! For values that are made and dropped often, more of them at a time than the allocator's cache of a thread holds. Only memory
//! is kept, never a part of a value. There is no weak count, and the only holder of a value drops it without a read-modify-write.
//! What may never happen: a value that is used after its last holder has dropped it, or dropped twice; memory that two values
//! have.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::{Platform, Real, ShareCount};

/// A type of values; each thread keeps memory of theirs for its next ones.
pub trait Reused<P: Platform = Real>: Sized + 'static {
    /// Calls `f` with what the calling thread keeps. `None`: it keeps nothing any more, because it is about to end.
    fn with_spare<R>(f: impl FnOnce(&mut SpareMemory<Self, P>) -> R) -> Option<R>;
}

struct ReusedBox<T, P: Platform> {
    holders: ShareCount<P>,
    value: T,
}

/// Memory for values that a thread is about to make; see [`ReusedRef`]. It has no value, so dropping it frees the memory alone.
pub struct SpareMemory<T, P: Platform = Real> {
    blocks: Vec<Box<MaybeUninit<ReusedBox<T, P>>>>,
    most: usize,
}

impl<T, P: Platform> SpareMemory<T, P> {
    /// None, and never memory for more than `most` values.
    pub const fn at_most(most: usize) -> Self {
        SpareMemory { blocks: Vec::new(), most }
    }

    /// The number of values that it has memory for.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Bytes of the memory for one value.
    pub const fn size_of_each() -> usize {
        size_of::<ReusedBox<T, P>>()
    }

    #[inline]
    fn keep(&mut self, memory: Box<MaybeUninit<ReusedBox<T, P>>>) {
        if self.blocks.len() < self.most {
            self.blocks.push(memory);
        }
    }
}

/// A shared value; see the head of the file. Any thread.
///
/// ```
/// use std::cell::RefCell;
/// use sync::{Reused, ReusedRef, SpareMemory};
///
/// struct Session(u64);
///
/// thread_local! {
///     static SPARE: RefCell<SpareMemory<Session>> = const { RefCell::new(SpareMemory::at_most(8)) };
/// }
///
/// impl Reused for Session {
///     fn with_spare<R>(f: impl FnOnce(&mut SpareMemory<Session>) -> R) -> Option<R> {
///         SPARE.try_with(|spare| f(&mut spare.borrow_mut())).ok()
///     }
/// }
///
/// let one: ReusedRef<Session> = ReusedRef::new(Session(7));
/// let (other, place) = (one.clone(), std::ptr::from_ref(&*one));
/// drop(one);
/// assert_eq!(other.0, 7);
/// drop(other);
/// let next: ReusedRef<Session> = ReusedRef::new(Session(8));
/// assert_eq!((std::ptr::from_ref(&*next), next.0), (place, 8));
/// ```
pub struct ReusedRef<T: Reused<P>, P: Platform = Real>(NonNull<ReusedBox<T, P>>, PhantomData<ReusedBox<T, P>>);

// SAFETY: as `Arc`: every holder has `&T` only, and the last one, on any thread, drops the value.
unsafe impl<T: Reused<P> + Send + Sync, P: Platform> Send for ReusedRef<T, P> {}
// SAFETY: as above.
unsafe impl<T: Reused<P> + Send + Sync, P: Platform> Sync for ReusedRef<T, P> {}

impl<T: Reused<P>, P: Platform> ReusedRef<T, P> {
    /// A value with one holder, in memory that the calling thread has kept if there is any.
    pub fn new(value: T) -> Self {
        Self::new_with(|| value)
    }

    /// As [`ReusedRef::new`], with a value that is made where it stays.
    #[inline(always)]
    pub fn new_with(make: impl FnOnce() -> T) -> Self {
        let memory = T::with_spare(|spare| spare.blocks.pop()).flatten().unwrap_or_else(Box::new_uninit);
        let held = Box::write(memory, ReusedBox { holders: ShareCount::new(), value: make() });
        ReusedRef(NonNull::from(Box::leak(held)), PhantomData)
    }

    #[inline(always)]
    fn held(&self) -> &ReusedBox<T, P> {
        // SAFETY: the caller is a holder, and the memory has this value until the last one has gone.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Reused<P>, P: Platform> Clone for ReusedRef<T, P> {
    #[inline]
    fn clone(&self) -> Self {
        self.held().holders.share();
        ReusedRef(self.0, PhantomData)
    }
}

impl<T: Reused<P>, P: Platform> Deref for ReusedRef<T, P> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.held().value
    }
}

impl<T: Reused<P>, P: Platform> Drop for ReusedRef<T, P> {
    #[inline]
    fn drop(&mut self) {
        let holders = &self.held().holders;
        // The only holder stays the only one: others are made from holders.
        if !holders.is_unique() && !holders.release() {
            return;
        }
        // SAFETY: there is no other holder, all uses by former ones happened before, and this one is not used again. The memory was
        // a box. If the value panics as it is dropped, its memory is leaked.
        let memory = unsafe {
            self.0.drop_in_place();
            Box::from_raw(self.0.as_ptr().cast::<MaybeUninit<ReusedBox<T, P>>>())
        };
        T::with_spare(move |spare| spare.keep(memory));
    }
}
