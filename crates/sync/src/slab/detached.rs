//! Entries in use that no owner has: [`Detached`] with a value, [`ReservedEntry`] without.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::entry::{DETACHED, FREE, RESERVED, SlabEntry};
use super::{Key, Slab};
use crate::platform::model_is_over;
use crate::{Atomic, CellLike, Platform, Real};

/// A value without an owner, and the only access to it. Dropping it drops the value and frees the entry.
pub struct Detached<T, P: Platform = Real> {
    pub(super) slab: Arc<Slab<T, P>>,
    pub(super) entry: NonNull<SlabEntry<T, P>>,
    pub(super) index: u32,
}

// SAFETY: it is the one way to its value, as a box is.
unsafe impl<T: Send, P: Platform> Send for Detached<T, P> {}
// SAFETY: as above: a shared borrow of it gives a shared one of the value.
unsafe impl<T: Send + Sync, P: Platform> Sync for Detached<T, P> {}

impl<T, P: Platform> Detached<T, P> {
    #[inline(always)]
    pub(super) fn entry(&self) -> &SlabEntry<T, P> {
        // SAFETY: the entry is not free, so its chunk stays, as long as the slab, of which there is a reference beside it.
        unsafe { self.entry.as_ref() }
    }

    /// The value's key.
    pub fn key(&self) -> Key {
        self.entry().key(self.index)
    }

    /// Another handle is responsible for the entry now: it is not freed. Returns the slab.
    pub(super) fn forget(self) -> Arc<Slab<T, P>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither dropped nor used again.
        unsafe { ptr::read(&this.slab) }
    }

    /// Moves the value out. Its key remains in use.
    pub fn take(self) -> (ReservedEntry<T, P>, T) {
        let index = self.index;
        // SAFETY: the entry holds a value, and its word is `RESERVED` before it could be reached again.
        let value = self.entry().value.with(|value| unsafe { (*value).assume_init_read() });
        self.entry().owner.store(RESERVED, Ordering::Relaxed);
        (ReservedEntry { slab: self.forget(), index }, value)
    }
}

impl<T, P: Platform> Deref for Detached<T, P> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the entry holds a value, which is reached through this alone.
        self.entry().value.with(|value| unsafe { (*value).assume_init_ref() })
    }
}

impl<T, P: Platform> DerefMut for Detached<T, P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this borrow the only one.
        self.entry().value.with_mut(|value| unsafe { (*value).assume_init_mut() })
    }
}

impl<T, P: Platform> Drop for Detached<T, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.entry().clear();
            self.slab.put_back(&mut self.slab.depot.lock(), self.index);
        }
    }
}

impl<T: fmt::Debug, P: Platform> fmt::Debug for Detached<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached").field("key", &self.key()).field("value", &**self).finish()
    }
}

/// An entry without a value, but with its key in use. Dropping it frees the entry.
pub struct ReservedEntry<T, P: Platform = Real> {
    pub(super) slab: Arc<Slab<T, P>>,
    pub(super) index: u32,
}

impl<T, P: Platform> ReservedEntry<T, P> {
    fn entry(&self) -> &SlabEntry<T, P> {
        // SAFETY: it was made from an entry of this slab with this index.
        unsafe { self.slab.entry(self.index).unwrap_unchecked() }
    }

    /// The key that is in use.
    pub fn key(&self) -> Key {
        self.entry().key(self.index)
    }

    /// Inserts a value, which has the key.
    pub fn fill(self, value: T) -> Detached<T, P> {
        let this = ManuallyDrop::new(self);
        let entry = this.entry();
        // SAFETY: the entry is reserved, by `this` alone. The memory has no value to drop.
        entry.value.with_mut(|place| unsafe { place.cast::<T>().write(value) });
        entry.owner.store(DETACHED, Ordering::Relaxed);
        let entry = NonNull::from(entry);
        // SAFETY: `this` is neither dropped nor used again.
        Detached { slab: unsafe { ptr::read(&this.slab) }, entry, index: this.index }
    }
}

impl<T, P: Platform> Drop for ReservedEntry<T, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        let entry = self.entry();
        entry.owner.store(FREE, Ordering::Relaxed);
        entry.outdate();
        self.slab.put_back(&mut self.slab.depot.lock(), self.index);
    }
}

impl<T, P: Platform> fmt::Debug for ReservedEntry<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservedEntry").field("key", &self.key()).finish()
    }
}
