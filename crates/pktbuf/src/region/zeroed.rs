//! A region in heap memory: for a device without special memory, and for tests of the stack.

use core::ptr::{self, NonNull};

use super::{Access, Memory};

/// Bytes of the heap that nothing else uses.
pub(super) struct Zeroed {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Zeroed {}
// SAFETY: a shared `Zeroed` gives out its address and no reference.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    pub(super) fn new(len: usize) -> Zeroed {
        let bytes = NonNull::from(Box::leak(vec![0_u8; len].into_boxed_slice()));
        Zeroed { base: bytes.cast(), len }
    }
}

// SAFETY: the bytes were allocated and zeroed, and stay until the drop; no other party has access to them.
unsafe impl Memory for Zeroed {
    const ACCESS: Access = Access::Exclusive;

    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: `new` leaked a box of this length, and the region has given up its use.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.len)) });
    }
}
