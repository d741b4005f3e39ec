//! A value that is read without a lock and replaced as a whole; the old one is returned after a grace period of a
//! [`Qsbr`] domain.
//!
//! Unlike a [`Versioned`](crate::Versioned) it keeps no old versions, so it may be replaced any number of times; the
//! price is that a reader belongs to the domain, and that a change waits for all readers.
//!
//! *What may never happen.* A value dropped, moved or written while a reader has a reference to it. A reference borrows
//! the reader's permission, which ends before the thread can report a quiescent state or leave its section; the reader
//! must be of the cell's own domain, which is checked at each read.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::{Atomic, CellLike, Lock, LockClass, LockKind, Platform, Qsbr, QsbrReader, Real};

/// See the head of this file.
pub struct RcuCell<T, P: Platform = Real> {
    domain: Arc<Qsbr<P>>,
    /// The address of a box, which the cell owns.
    current: P::AtomicUsize,
    /// Excludes other writers while a new value is made of the current one.
    writer: Lock<(), P>,
    _owns: PhantomData<T>,
}

// SAFETY: the value is shared by reference (`T: Sync`), and given to the thread that replaces or drops it (`T: Send`).
unsafe impl<T: Send + Sync, P: Platform> Sync for RcuCell<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, P: Platform> Send for RcuCell<T, P> {}

impl<T, P: Platform> RcuCell<T, P> {
    /// A cell for the readers of this domain. `class` is that of the lock under which a change is made.
    pub fn new(domain: Arc<Qsbr<P>>, class: LockClass, value: T) -> Self {
        let current = P::AtomicUsize::new(boxed::<T, P>(value));
        RcuCell { domain, current, writer: Lock::new(LockKind::Blocking, class, ()), _owns: PhantomData }
    }

    /// The value; valid as long as the permission to read.
    ///
    /// # Panics
    /// If the reader is of another domain.
    #[inline]
    pub fn read<'a>(&'a self, reader: &'a QsbrReader<P>) -> &'a T {
        assert!(self.domain.owns(reader), "a reader of another domain would not be waited for");
        let current = std::ptr::with_exposed_provenance::<P::Cell<T>>(self.current.load(Acquire));
        // SAFETY: `current` is the address of a box from `boxed`. It is freed only after a grace period since it was
        // replaced, and the reader's domain does not end one while `reader` is borrowed: the borrow excludes
        // `quiescent`, `offline` and the end of a section. Acquire pairs with the exchange that published it.
        unsafe { &*current }.with(|value| {
            // SAFETY: as above; a published value is not written.
            unsafe { &*value }
        })
    }

    /// Publishes the value that `change` returns for the current one, waits until no reader has the old value, and
    /// returns it. No lock is held while it waits.
    ///
    /// # Panics
    /// If the calling thread is reading: it would wait for itself.
    pub fn replace(&self, change: impl FnOnce(&T) -> T) -> T {
        let writing = self.writer.lock();
        let old = std::ptr::with_exposed_provenance_mut::<P::Cell<T>>(self.current.load(Acquire));
        // SAFETY: the box is freed by the writer that replaces it alone, and the lock excludes other writers.
        let next = unsafe { &*old }.with(|value| {
            // SAFETY: as above.
            change(unsafe { &*value })
        });
        let was = self.current.swap(boxed::<T, P>(next), AcqRel);
        debug_assert_eq!(was, old.addr());
        drop(writing);
        self.domain.synchronize();
        // SAFETY: from `boxed`; it was taken out of `current` by this call alone, and no reader has it any more.
        let old = unsafe { Box::from_raw(old) };
        // A write, for a checker to compare with the reads.
        old.with_mut(|_| ());
        (*old).into_inner()
    }
}

/// A box of the value, as an address.
fn boxed<T, P: Platform>(value: T) -> usize {
    Box::into_raw(Box::new(P::Cell::<T>::new(value))).expose_provenance()
}

impl<T, P: Platform> Drop for RcuCell<T, P> {
    fn drop(&mut self) {
        let current = std::ptr::with_exposed_provenance_mut::<P::Cell<T>>(self.current.load(Acquire));
        // SAFETY: from `boxed`; references borrow the cell, so there is none any more.
        drop(unsafe { Box::from_raw(current) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_returned_once() {
        let value = Arc::new(());
        let domain = Qsbr::<Real>::new();
        let cell = RcuCell::new(domain.clone(), LockClass::Control, (1, value.clone()));
        let mut reader = domain.section_reader();
        assert_eq!(cell.read(&reader.enter()).0, 1);
        assert_eq!(domain.grace_periods(), 0);
        assert_eq!(cell.replace(|old| (old.0 + 1, value.clone())).0, 1);
        assert_eq!((cell.read(&reader.enter()).0, domain.grace_periods()), (2, 1));
        assert_eq!(Arc::strong_count(&value), 2);
        drop(cell);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    #[should_panic(expected = "waits for the end of its own read")]
    fn a_reader_that_changes_the_value_is_told() {
        let domain = Qsbr::<Real>::new();
        let cell = RcuCell::new(domain.clone(), LockClass::Control, 1);
        let mut reader = domain.section_reader();
        let section = reader.enter();
        let _ = cell.replace(|old| old + cell.read(&section));
    }

    #[test]
    #[should_panic(expected = "another domain")]
    fn a_reader_of_another_domain_is_refused() {
        let cell = RcuCell::new(Qsbr::<Real>::new(), LockClass::Control, 1);
        let mut reader = Qsbr::<Real>::new().section_reader();
        cell.read(&reader.enter());
    }
}
