//! One macro that puts the standard library's, loom's and shuttle's atomics behind the seam.

/// Puts a platform's own atomic type, whose methods have the standard names, behind [`Atomic`](crate::Atomic).
macro_rules! forward_atomic {
    ($atomic:ty, $t:ty $(, $($method:ident),+)?) => {
        impl $crate::Atomic<$t> for $atomic {
            #[inline(always)]
            fn new(value: $t) -> Self {
                <$atomic>::new(value)
            }
            #[inline(always)]
            fn load(&self, order: $crate::Ordering) -> $t {
                <$atomic>::load(self, order)
            }
            #[inline(always)]
            fn store(&self, value: $t, order: $crate::Ordering) {
                <$atomic>::store(self, value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $t, order: $crate::Ordering) -> $t {
                <$atomic>::swap(self, value, order)
            }
            #[inline(always)]
            fn compare_exchange(&self, current: $t, new: $t, ok: $crate::Ordering, err: $crate::Ordering) -> Result<$t, $t> {
                <$atomic>::compare_exchange(self, current, new, ok, err)
            }
            #[inline(always)]
            fn compare_exchange_weak(&self, current: $t, new: $t, ok: $crate::Ordering, err: $crate::Ordering) -> Result<$t, $t> {
                <$atomic>::compare_exchange_weak(self, current, new, ok, err)
            }
            #[inline(always)]
            fn fetch_and(&self, mask: $t, order: $crate::Ordering) -> $t {
                <$atomic>::fetch_and(self, mask, order)
            }
            #[inline(always)]
            fn fetch_or(&self, mask: $t, order: $crate::Ordering) -> $t {
                <$atomic>::fetch_or(self, mask, order)
            }
            $($(
                #[inline(always)]
                fn $method(&self, value: $t, order: $crate::Ordering) -> $t {
                    <$atomic>::$method(self, value, order)
                }
            )+)?
        }
    };
}

pub(crate) use forward_atomic;
