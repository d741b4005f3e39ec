//! A box that is made once, when it is first needed: what `OnceLock<Box<T>>` is, in eight octets instead of sixteen.
//!
//! For parts that few of very many objects have: a socket that changes its poll set, a stream whose calls have time-outs.
//! Two threads that make it at the same time both make one, and one of the two is dropped again; so nobody waits, and what
//! makes the value must have no effect but that.
//!
//! What may never happen: a value that moves or is replaced while the whole lives, or one that is freed twice.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// See the head of this file. The pointer is a plain atomic: it orders nothing but the value's own initialisation.
pub struct OnceBox<T> {
    /// From `Box::into_raw`, or null; changed once, from null.
    value: AtomicPtr<T>,
    owned: PhantomData<Box<T>>,
}

// SAFETY: the value is reached by shared reference from any thread (`T: Sync`), and may be made by one thread and dropped
// by another (`T: Send`).
unsafe impl<T: Send + Sync> Sync for OnceBox<T> {}

impl<T> OnceBox<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        OnceBox { value: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
    }

    /// The value, if it was made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: what is not null came from `Box::into_raw` and is freed by drop alone; Acquire pairs with the Release
        // that put it there, and nobody writes to it after that.
        unsafe { self.value.load(Acquire).as_ref() }
    }

    /// The value, which `make` makes if there is none. Of two that are made at once one is dropped.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.get() {
            Some(value) => value,
            None => self.init(make()),
        }
    }

    #[cold]
    fn init(&self, value: T) -> &T {
        let made = Box::into_raw(Box::new(value));
        let known = match self.value.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: it came from `Box::into_raw` above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: as in `get`; it is not null.
        unsafe { &*known }
    }
}

impl<T> Default for OnceBox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        let value = *self.value.get_mut();
        if !value.is_null() {
            // SAFETY: it came from `Box::into_raw`, nobody borrows it any more, and this is the only place that frees it.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceBox").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::{Arc, Barrier};

    const _: () = assert!(size_of::<OnceBox<[u64; 4]>>() == 8);

    /// Counts how often it is dropped.
    struct Counted(Arc<AtomicUsize>, u32);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_first_value_stays_and_is_dropped_once() {
        let drops = Arc::new(AtomicUsize::new(0));
        let once = OnceBox::new();
        assert!(once.get().is_none());
        assert_eq!(once.get_or_init(|| Counted(drops.clone(), 1)).1, 1);
        assert_eq!(once.get_or_init(|| unreachable!("there is one")).1, 1);
        assert_eq!(drops.load(Relaxed), 0);
        drop(once);
        assert_eq!(drops.load(Relaxed), 1);
        drop(OnceBox::<Counted>::new());
    }

    #[test]
    fn threads_that_make_it_at_once_agree_on_one() {
        const THREADS: usize = 4;
        for _ in 0..50 {
            let drops = Arc::new(AtomicUsize::new(0));
            let (once, start) = (OnceBox::new(), Barrier::new(THREADS));
            let make = |number| {
                start.wait();
                ptr::from_ref(once.get_or_init(|| Counted(drops.clone(), number))).addr()
            };
            let seen: Vec<usize> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..THREADS as u32).map(|n| scope.spawn(move || make(n))).collect();
                all.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
            });
            assert!(seen.iter().all(|value| *value == seen[0]));
            let lost = drops.load(Relaxed);
            drop(once);
            assert_eq!(drops.load(Relaxed), lost + 1);
        }
    }
}
