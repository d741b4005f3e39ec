//! Memory for regions under test: mapped pages, outside the heap, that report when they are unmapped.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use pktbuf::{Access, Memory};

/// Anonymous pages. `FOREIGN`: the test acts as another party that writes at any time.
pub struct Pages<const FOREIGN: bool> {
    base: NonNull<u8>,
    len: usize,
    ends: Arc<AtomicUsize>,
}

// SAFETY: plain memory, whose uses the tests order.
unsafe impl<const FOREIGN: bool> Send for Pages<FOREIGN> {}
// SAFETY: as above.
unsafe impl<const FOREIGN: bool> Sync for Pages<FOREIGN> {}

// SAFETY: the pages are mapped, hold zeros and stay until the drop. Under exclusive access the tests write chunks that
// are lent, or all of them while no buffer is being used.
unsafe impl<const FOREIGN: bool> Memory for Pages<FOREIGN> {
    const ACCESS: Access = if FOREIGN { Access::Foreign } else { Access::Exclusive };

    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// The test's own access to the pages, as the other party.
#[derive(Clone)]
pub struct Other {
    base: NonNull<u8>,
    len: usize,
    ends: Arc<AtomicUsize>,
}

// SAFETY: plain memory, written through atomics.
unsafe impl Send for Other {}

#[cfg(not(miri))]
fn map(len: usize) -> NonNull<u8> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping has no precondition.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
    assert_ne!(base, libc::MAP_FAILED, "no memory can be mapped");
    NonNull::new(base.cast()).expect("not null")
}

#[cfg(not(miri))]
unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: by the caller: it was mapped with this length and nothing uses it any more.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}

#[cfg(miri)]
fn map(len: usize) -> NonNull<u8> {
    NonNull::new(Box::into_raw(vec![0_u8; len].into_boxed_slice()).cast()).expect("not null")
}

#[cfg(miri)]
unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: by the caller: `map` leaked a box of this length.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(base.as_ptr(), len)) });
}

/// `len` bytes of zeros for a region, and the other party's access to them, which must not be used once they are
/// unmapped.
pub fn pages<const FOREIGN: bool>(len: usize) -> (Pages<FOREIGN>, Other) {
    let (base, ends) = (map(len), Arc::new(AtomicUsize::new(0)));
    (Pages { base, len, ends: ends.clone() }, Other { base, len, ends })
}

impl<const FOREIGN: bool> Drop for Pages<FOREIGN> {
    fn drop(&mut self) {
        // SAFETY: mapped by `pages`, and the region that owned it is gone.
        unsafe { unmap(self.base, self.len) };
        self.ends.fetch_add(1, SeqCst);
    }
}

impl Other {
    /// How often the pages were unmapped.
    pub fn ends(&self) -> usize {
        self.ends.load(SeqCst)
    }

    /// Writes every byte there is.
    pub fn scribble(&self, seed: u8) {
        for at in 0..self.len {
            self.write(at, seed.wrapping_mul(31).wrapping_add(at as u8) ^ 0x5A);
        }
    }

    /// Writes one byte.
    pub fn write(&self, at: usize, byte: u8) {
        assert!(at < self.len);
        // SAFETY: inside the pages; atomic, because a buffer may be copied from meanwhile.
        unsafe { std::sync::atomic::AtomicU8::from_ptr(self.base.as_ptr().add(at)) }.store(byte, SeqCst);
    }

    /// Reads one byte.
    pub fn read(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: as in `write`.
        unsafe { std::sync::atomic::AtomicU8::from_ptr(self.base.as_ptr().add(at)) }.load(SeqCst)
    }
}
