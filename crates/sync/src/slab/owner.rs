//! The permission to use some entries of a slab: look-up, insertion and removal by `&mut`.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::depot::{Depot, FreeList};
use super::entry::{DETACHED, FREE, SlabEntry};
use super::trim::free;
use super::{Detached, Key, NONE, RUN, Slab};
use crate::platform::model_is_over;
use crate::prefetch::prefetch_lines;
use crate::{Atomic, CellLike, Platform, Real};

/// The permission to use the entries of a [`Slab`] that store its number. Values that it still owns when it is dropped
/// are dropped with the slab.
pub struct Owner<T, P: Platform = Real> {
    pub(super) slab: Arc<Slab<T, P>>,
    pub(super) id: u32,
    /// Entries with a value of this owner.
    live: u32,
    /// At most [`RUN`] of them.
    free: FreeList,
    /// The head of a second list, which is a whole run, or [`NONE`].
    spare: u32,
    /// The index of `latest`.
    latest_index: u32,
    /// The entry that was located last, while it is this owner's; null: none. A chunk with such an entry is not freed.
    latest: AtomicPtr<SlabEntry<T, P>>,
    /// A shared borrow of an owner gives shared borrows of its values.
    _owns: PhantomData<T>,
}

impl<T, P: Platform> Owner<T, P> {
    /// An owner with this number, which owns nothing.
    pub(super) fn numbered(slab: Arc<Slab<T, P>>, id: u32) -> Self {
        let latest = AtomicPtr::new(ptr::null_mut());
        Owner { slab, id, live: 0, free: FreeList::EMPTY, spare: NONE, latest_index: NONE, latest, _owns: PhantomData }
    }

    /// The value of this index, if it is this owner's.
    #[inline(always)]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let entry = match self.latest(index) {
            Some(latest) => latest,
            None => self.owned(index)?,
        };
        // SAFETY: the entry states this owner, so it holds a value, which is reached through this owner alone; the
        // result borrows the owner mutably, and no other owner has its number.
        Some(entry.value.with_mut(|value| unsafe { (*value).assume_init_mut() }))
    }

    /// As [`Owner::get_mut`], for shared access.
    #[inline(always)]
    pub fn get(&self, index: u32) -> Option<&T> {
        let entry = self.owned(index)?;
        // SAFETY: as in `get_mut`; the shared borrow of the owner excludes mutable ones.
        Some(entry.value.with(|value| unsafe { (*value).assume_init_ref() }))
    }

    /// As [`Owner::get`]; an [`Owner::get_mut`] of the same index that follows is cheap.
    #[inline(always)]
    pub fn locate(&mut self, index: u32) -> Option<&T> {
        let entry = self.located(index)?;
        // SAFETY: as in `get_mut`.
        Some(entry.value.with(|value| unsafe { (*value).assume_init_ref() }))
    }

    /// The value that `key` names, if it is this owner's and still that one; an [`Owner::get_mut`] of its index that
    /// follows is cheap.
    #[inline(always)]
    pub fn get_by_key(&mut self, key: Key) -> Option<&mut T> {
        let entry = match self.latest(key.slot) {
            Some(latest) => latest,
            None => self.located(key.slot)?,
        };
        // SAFETY: as in `get_mut`.
        (entry.generation() == key.generation)
            .then(|| entry.value.with_mut(|value| unsafe { (*value).assume_init_mut() }))
    }

    /// The entry of this index, if it is this owner's: the latest from now on.
    #[inline(always)]
    fn located(&mut self, index: u32) -> Option<&SlabEntry<T, P>> {
        let entry = NonNull::from(self.owned(index)?);
        self.latest_index = index;
        *self.latest.get_mut() = entry.as_ptr();
        // SAFETY: it was a reference just now, and entries in use live as long as the slab.
        Some(unsafe { entry.as_ref() })
    }

    /// The entry of this index, if it was located last.
    #[inline(always)]
    fn latest(&mut self, index: u32) -> Option<&SlabEntry<T, P>> {
        let latest = NonNull::new(*self.latest.get_mut()).filter(|_| self.latest_index == index)?;
        // SAFETY: the entry is this owner's: `forget` comes before it ceases to be. So it is not free, and its chunk stays
        // in its table, which the slab keeps as long as this owner.
        let entry = unsafe { latest.as_ref() };
        entry.memory.with(|_| ());
        debug_assert_eq!(entry.owner.load(Ordering::Relaxed), self.id);
        Some(entry)
    }

    /// The entry of this index ceases to be this owner's, if it is.
    #[inline(always)]
    fn forget(&mut self, index: u32) {
        if self.latest_index == index {
            *self.latest.get_mut() = ptr::null_mut();
        }
    }

    /// The key of an entry of this owner.
    pub fn key(&self, index: u32) -> Option<Key> {
        self.owned(index).map(|entry| entry.key(index))
    }

    /// How many values it owns.
    pub fn len(&self) -> usize {
        self.live as usize
    }

    /// Whether it owns none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The slab.
    pub fn slab(&self) -> &Arc<Slab<T, P>> {
        &self.slab
    }

    /// Relaxed is enough: the word is this owner's number only if it was written through this owner, which the caller
    /// has.
    #[inline(always)]
    fn owned(&self, index: u32) -> Option<&SlabEntry<T, P>> {
        let entry = self.slab.entry(index)?;
        (entry.owner.load(Ordering::Relaxed) == self.id).then_some(entry)
    }

    /// Asks the processor for the first `lines` cache lines of the entry with this index, if there is such an entry.
    #[inline(always)]
    pub fn prefetch(&self, index: u32, lines: usize) {
        if let Some(entry) = self.slab.entry(index) {
            prefetch_lines(ptr::from_ref(entry), lines);
        }
    }

    /// Inserts a value and owns it.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_with(|| value)
    }

    /// As [`Owner::insert`]; a large value is moved once less if `make` makes it. If `make` panics, an entry is lost.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> Key {
        if self.free.len == 0 {
            self.restock();
        }
        let (index, entry) = self.slab.pop(&mut self.free);
        // SAFETY: the entry is free and in no list: this owner alone has it. The memory has no value to drop.
        entry.value.with_mut(|value| unsafe { value.cast::<T>().write(make()) });
        entry.owner.store(self.id, Ordering::Relaxed);
        let key = entry.key(index);
        self.live += 1;
        key
    }

    /// Takes a value out; its key is stale from now on.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        self.forget(index);
        let entry = self.owned(index)?;
        // SAFETY: as in `get_mut`; the word says `FREE` from here on, so the value is not reached again.
        let value = entry.value.with(|value| unsafe { (*value).assume_init_read() });
        entry.owner.store(FREE, Ordering::Relaxed);
        entry.outdate();
        self.live -= 1;
        self.keep(index);
        Some(value)
    }

    /// As [`Owner::remove`], but drops the value in place. False: there is none.
    pub fn free(&mut self, index: u32) -> bool {
        self.forget(index);
        let Some(entry) = self.owned(index) else { return false };
        entry.clear();
        self.live -= 1;
        self.keep(index);
        true
    }

    /// Gives a value up, so that another owner can use or own it.
    pub fn detach(&mut self, index: u32) -> Option<Detached<T, P>> {
        self.forget(index);
        let entry = self.owned(index)?;
        entry.owner.store(DETACHED, Ordering::Relaxed);
        let entry = NonNull::from(entry);
        self.live -= 1;
        Some(Detached { slab: self.slab.clone(), entry, index })
    }

    /// Takes ownership of a detached value; its key stays the same.
    ///
    /// # Errors
    /// The value belongs to another slab; it is returned.
    pub fn attach(&mut self, value: Detached<T, P>) -> Result<Key, Detached<T, P>> {
        if !Arc::ptr_eq(&self.slab, &value.slab) {
            return Err(value);
        }
        let key = value.key();
        value.entry().owner.store(self.id, Ordering::Relaxed);
        value.forget();
        self.live += 1;
        Ok(key)
    }

    /// Returns all free entries to the depot.
    pub(super) fn give_back(&mut self, depot: &mut Depot<T, P>) {
        let spare = std::mem::replace(&mut self.spare, NONE);
        if spare != NONE {
            depot.runs.push(spare);
        }
        let mut free = std::mem::replace(&mut self.free, FreeList::EMPTY);
        if free.len == RUN {
            depot.runs.push(free.head);
            return;
        }
        while free.len != 0 {
            let (index, _) = self.slab.pop(&mut free);
            self.slab.put_back(depot, index);
        }
    }

    #[cold]
    #[inline(never)]
    fn restock(&mut self) {
        self.free = match std::mem::replace(&mut self.spare, NONE) {
            NONE => self.slab.refill(),
            head => FreeList { head, len: RUN },
        };
    }

    /// Keeps a free entry that is in no list. Beyond two runs, one goes to the depot.
    fn keep(&mut self, index: u32) {
        if self.free.len == RUN {
            let run = std::mem::replace(&mut self.free, FreeList::EMPTY).head;
            let surplus = std::mem::replace(&mut self.spare, run);
            if surplus != NONE {
                self.slab.depot.lock().runs.push(surplus);
            }
        }
        let Some(entry) = self.slab.entry(index) else { return };
        let next = self.free.head;
        // SAFETY: the entry is free and in no list: this owner alone has it.
        unsafe { entry.set_next(next) };
        self.free = FreeList { head: index, len: self.free.len + 1 };
    }
}

impl<T, P: Platform> Drop for Owner<T, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        let slab = self.slab.clone();
        let mut depot = slab.depot.lock();
        self.give_back(&mut depot);
        depot.announced.retain(|(id, _)| *id != self.id);
        let unobserved = depot.unobserved();
        drop(depot);
        free(unobserved);
    }
}

impl<T, P: Platform> fmt::Debug for Owner<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("id", &self.id).field("live", &self.live).finish_non_exhaustive()
    }
}
