//! Atomic words of the machine. Memory is sequentially consistent; loom checks weaker orderings.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use sync::{Atomic, Ordering};

use crate::machine;

/// An atomic word whose uses are charged. All threads of a machine run on one thread of the kernel, so a
/// read-modify-write is a load and a store.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word<A>(A);

impl<A> Word<A> {
    /// Its address.
    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

macro_rules! words {
    ($($atomic:ty, $t:ty $(, $add:ident, $sub:ident)?;)*) => {$(
        impl Word<$atomic> {
            /// The value, uncharged: for code that is not part of the simulation.
            #[inline(always)]
            pub fn peek(&self) -> $t {
                self.0.load(Relaxed)
            }

            #[inline(always)]
            fn update(&self, change: impl FnOnce($t) -> $t) -> $t {
                machine::atomic(self.address(), true, true);
                let was = self.0.load(Relaxed);
                self.0.store(change(was), Relaxed);
                was
            }
        }

        impl Atomic<$t> for Word<$atomic> {
            fn new(value: $t) -> Self {
                Self(<$atomic>::new(value))
            }
            #[inline]
            fn load(&self, _: Ordering) -> $t {
                machine::atomic(self.address(), false, false);
                self.0.load(Relaxed)
            }
            #[inline]
            fn store(&self, value: $t, _: Ordering) {
                machine::atomic(self.address(), true, false);
                self.0.store(value, Relaxed);
            }
            #[inline]
            fn swap(&self, value: $t, _: Ordering) -> $t {
                self.update(|_| value)
            }
            #[inline]
            fn compare_exchange(&self, current: $t, new: $t, _: Ordering, _: Ordering) -> Result<$t, $t> {
                let was = self.update(|was| if was == current { new } else { was });
                if was == current { Ok(was) } else { Err(was) }
            }
            #[inline]
            fn compare_exchange_weak(&self, current: $t, new: $t, ok: Ordering, err: Ordering) -> Result<$t, $t> {
                self.compare_exchange(current, new, ok, err)
            }
            #[inline]
            fn fetch_and(&self, mask: $t, _: Ordering) -> $t {
                self.update(|was| was & mask)
            }
            #[inline]
            fn fetch_or(&self, mask: $t, _: Ordering) -> $t {
                self.update(|was| was | mask)
            }
            $(
                #[inline]
                fn $add(&self, value: $t, _: Ordering) -> $t {
                    self.update(|was| was.wrapping_add(value))
                }
                #[inline]
                fn $sub(&self, value: $t, _: Ordering) -> $t {
                    self.update(|was| was.wrapping_sub(value))
                }
            )?
        }
    )*};
}
words! {
    AtomicU32, u32, fetch_add, fetch_sub;
    AtomicU64, u64, fetch_add, fetch_sub;
    AtomicUsize, usize, fetch_add, fetch_sub;
    AtomicBool, bool;
}
