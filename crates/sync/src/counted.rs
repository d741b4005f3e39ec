//! A shared pointer like `Arc` whose count is the platform's: an atomic word, or a number behind a lock.
//!
//! For measuring what the counting of holders costs (Nahum et al. 1994, "Atomic increment/decrement"). `Arc` is used
//! everywhere else; the simulator does not charge its count. What may never happen: a value that is used after the last
//! holder has dropped it, or dropped twice.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::platform::model_is_over;
use crate::{Lock, LockClass, LockKind, PlantedMistake, Platform, Real, ShareCount};

/// How the holders of a [`CountedRef`] value are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefCounting {
    /// By an atomic instruction.
    Atomic,
    /// Under a lock of this kind.
    Locked(LockKind),
}

/// A count of holders; see [`ShareCount`].
enum Holders<P: Platform> {
    Atomic(ShareCount<P>),
    Locked(Lock<u32, P>),
}

impl<P: Platform> Holders<P> {
    /// One holder.
    fn new(counting: RefCounting) -> Self {
        match counting {
            RefCounting::Atomic => Holders::Atomic(ShareCount::new()),
            RefCounting::Locked(kind) => Holders::Locked(Lock::new(kind, LockClass::Holders, 1)),
        }
    }

    fn share(&self) {
        match self {
            Holders::Atomic(count) => count.share(),
            Holders::Locked(count) => {
                let mut count = count.lock();
                *count = count.checked_add(1).expect("holders are leaked");
            }
        }
    }

    /// Removes a holder. True: it was the last.
    fn release(&self) -> bool {
        match self {
            Holders::Atomic(count) => count.release(),
            Holders::Locked(count) if P::makes(PlantedMistake::CountInTwoSteps) => release_in_two_steps(count),
            Holders::Locked(count) => {
                let mut count = count.lock();
                *count -= 1;
                *count == 0
            }
        }
    }

    fn is_one(&self) -> bool {
        match self {
            Holders::Atomic(count) => count.is_unique(),
            Holders::Locked(count) => *count.lock() == 1,
        }
    }
}

/// The mistake: the number is read under the lock and written under it, but not kept meanwhile.
#[cold]
fn release_in_two_steps<P: Platform>(count: &Lock<u32, P>) -> bool {
    let left = *count.lock() - 1;
    *count.lock() = left;
    left == 0
}

struct CountedBox<T, P: Platform> {
    holders: Holders<P>,
    value: T,
}

/// A shared value; see the head of the file. Any thread.
///
/// ```
/// use sync::{CountedRef, RefCounting, LockKind};
/// let one: CountedRef<_> = CountedRef::new(RefCounting::Locked(LockKind::Tas), 7);
/// let other = one.clone();
/// assert!(!one.is_only() && CountedRef::same(&one, &other));
/// assert_eq!((*other, other.into_inner(), one.into_inner()), (7, None, Some(7)));
/// ```
pub struct CountedRef<T, P: Platform = Real>(NonNull<CountedBox<T, P>>, PhantomData<CountedBox<T, P>>);

// SAFETY: as `Arc`: every holder has `&T` only, and the last one, on any thread, takes or drops the value.
unsafe impl<T: Send + Sync, P: Platform> Send for CountedRef<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, P: Platform> Sync for CountedRef<T, P> {}

impl<T, P: Platform> CountedRef<T, P> {
    /// A value with one holder.
    pub fn new(counting: RefCounting, value: T) -> Self {
        let held = Box::new(CountedBox { holders: Holders::new(counting), value });
        CountedRef(NonNull::from(Box::leak(held)), PhantomData)
    }

    fn held(&self) -> &CountedBox<T, P> {
        // SAFETY: the caller is a holder, and the memory is freed after the last one has released it.
        unsafe { self.0.as_ref() }
    }

    /// Whether the two hold one value.
    pub fn same(one: &Self, other: &Self) -> bool {
        one.0 == other.0
    }

    /// Whether the caller is the only holder. All uses by former ones happened before.
    pub fn is_only(&self) -> bool {
        self.held().holders.is_one()
    }

    /// The value, if the caller is the last holder; gives up the hold in any case.
    pub fn into_inner(self) -> Option<T> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so its hold is released once.
        unsafe { release(this.0) }.map(|held| held.value)
    }
}

/// Gives up a hold. Returns the value if it was the last.
///
/// # Safety
/// The caller has a hold, and does not use it any more.
unsafe fn release<T, P: Platform>(held: NonNull<CountedBox<T, P>>) -> Option<Box<CountedBox<T, P>>> {
    // SAFETY: the caller's hold keeps the memory until the count has been lowered. Under a lock another thread may be the last
    // holder, and free the memory, as soon as this one has stored that the lock is free: that store is the last access of every
    // kind of lock to its memory (`Guard::drop` reads the class before), and a wake-up that follows it names the address only.
    let last = unsafe { held.as_ref() }.holders.release();
    // SAFETY: there is no other holder. The memory was a box.
    last.then(|| unsafe { Box::from_raw(held.as_ptr()) })
}

impl<T, P: Platform> Clone for CountedRef<T, P> {
    fn clone(&self) -> Self {
        self.held().holders.share();
        CountedRef(self.0, PhantomData)
    }
}

impl<T, P: Platform> Deref for CountedRef<T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held().value
    }
}

impl<T, P: Platform> Drop for CountedRef<T, P> {
    fn drop(&mut self) {
        // After the end of a model no lock can be taken, as in `Guard::drop`; what is left is the process's.
        if model_is_over::<P>() {
            return;
        }
        // SAFETY: this hold ends here.
        drop(unsafe { release(self.0) });
    }
}
