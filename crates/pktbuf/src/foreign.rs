//! [`ForeignBuf`]: a packet in memory that another party may write at any time.
//!
//! A guest that owns the memory may write at any time: bytes may change between any two reads. References to them would
//! be undefined behaviour, and a header could change between its check and its use. So this buffer has the window, the
//! release and the counts of a [`PktBuf`] but gives out no reference: bytes are copied, each loaded or stored once.
//! Data to be parsed is copied out first.
//!
//! What may never happen: a reference to the packet's bytes.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicUsize};

use crate::buffer::{HEADROOM, PktBuf};
use crate::region::{Access, RegionId};

const WORD: usize = size_of::<usize>();

/// Unique owner of a window of bytes in a region of foreign memory. Dropping it returns the chunk home.
pub struct ForeignBuf(PktBuf);

impl ForeignBuf {
    /// An empty buffer for at least `capacity` bytes behind [`HEADROOM`](crate::HEADROOM) bytes of headroom. `None` if
    /// the region has ended or is not foreign, has no free chunk, or its chunks are smaller.
    pub fn alloc_in(region: RegionId, capacity: usize) -> Option<ForeignBuf> {
        PktBuf::alloc_with_access(region, Access::Foreign, HEADROOM, capacity).map(ForeignBuf)
    }

    pub(crate) fn of_inner(inner: PktBuf) -> ForeignBuf {
        ForeignBuf(inner)
    }

    pub(crate) fn into_inner(self) -> PktBuf {
        self.0
    }

    /// Bytes in the packet.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the packet has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Free bytes in front of the packet.
    pub fn headroom(&self) -> usize {
        self.0.headroom()
    }

    /// Free bytes behind the packet.
    pub fn tailroom(&self) -> usize {
        self.0.tailroom()
    }

    /// The region that the packet lies in.
    pub fn region(&self) -> Option<RegionId> {
        self.0.region()
    }

    /// Where the packet begins, in bytes from the region's first byte.
    pub fn offset_in_region(&self) -> Option<usize> {
        self.0.offset_in_region()
    }

    /// Removes `n` bytes from the front.
    ///
    /// # Panics
    /// If the packet has fewer.
    pub fn pull_front(&mut self, n: usize) {
        self.0.pull_front(n);
    }

    /// Shortens the packet to `len` bytes; does nothing if it is no longer than that.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Copies bytes of the packet from `at` on into `to`.
    ///
    /// # Panics
    /// If the packet ends earlier.
    pub fn read(&self, at: usize, to: &mut [u8]) {
        // SAFETY: the pointer is to `to.len()` bytes of the packet, by the check in `pointer`.
        unsafe { load(self.pointer(at, to.len()), to) };
    }

    /// Copies `from` over the packet's bytes from `at` on.
    ///
    /// # Panics
    /// If the packet ends earlier.
    pub fn write(&mut self, at: usize, from: &[u8]) {
        // SAFETY: as in `read`.
        unsafe { store(self.pointer(at, from.len()), from) };
    }

    /// Appends a copy of `bytes`; false, with the packet unchanged, if the tailroom is too small.
    #[must_use = "false means that nothing was appended"]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> bool {
        let (fits, len) = (bytes.len() <= self.tailroom(), self.len());
        if fits {
            self.0.extend_window(bytes.len());
            self.write(len, bytes);
        }
        fits
    }

    /// A buffer of the heap with a copy of the bytes, to be parsed and kept; `None` as for [`PktBuf::alloc`].
    pub fn copy_out(&self) -> Option<PktBuf> {
        let mut copy = PktBuf::alloc(self.len())?;
        self.read(0, copy.append(self.len()));
        Some(copy)
    }

    /// A pointer to `len` bytes of the packet from `at` on.
    fn pointer(&self, at: usize, len: usize) -> *mut u8 {
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.len());
        assert!(is_inside, "{len} bytes at {at} of a packet of {}", self.len());
        // SAFETY: inside the packet, which lies inside its chunk.
        unsafe { self.0.block().data().add(self.headroom() + at) }
    }
}

impl fmt::Debug for ForeignBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignBuf({} bytes, {} before, {} behind)", self.len(), self.headroom(), self.tailroom())
    }
}

/// How many of `len` bytes from `at` on lie before the first word boundary.
fn unaligned_head(at: *const u8, len: usize) -> usize {
    (at.addr().wrapping_neg() % WORD).min(len)
}

/// # Safety
/// The byte is mapped and initialised.
unsafe fn load_byte(at: *const u8) -> u8 {
    // SAFETY: by the caller's promise; a byte is always aligned, and atomics may race.
    unsafe { AtomicU8::from_ptr(at.cast_mut()) }.load(Relaxed)
}

/// # Safety
/// The byte is mapped.
unsafe fn store_byte(at: *mut u8, byte: u8) {
    // SAFETY: as in `load_byte`.
    unsafe { AtomicU8::from_ptr(at) }.store(byte, Relaxed);
}

/// Copies `to.len()` bytes from `from`, each loaded once: words where they are aligned, bytes at both ends.
///
/// # Safety
/// They are mapped and initialised. Other parties may write them meanwhile.
unsafe fn load(from: *const u8, to: &mut [u8]) {
    let head = unaligned_head(from, to.len());
    let (front, rest) = to.split_at_mut(head);
    let mut words = rest.chunks_exact_mut(WORD);
    // SAFETY: `head` bytes are within the source.
    let mut at = unsafe { from.add(head) };
    // SAFETY: the first `head` bytes of the source.
    front.iter_mut().enumerate().for_each(|(i, byte)| *byte = unsafe { load_byte(from.add(i)) });
    for word in &mut words {
        // SAFETY: `at` is aligned and a whole word is left.
        let loaded = unsafe { AtomicUsize::from_ptr(at.cast_mut().cast()) }.load(Relaxed);
        word.copy_from_slice(&loaded.to_ne_bytes());
        // SAFETY: as above.
        at = unsafe { at.add(WORD) };
    }
    // SAFETY: the bytes behind the last word.
    words.into_remainder().iter_mut().enumerate().for_each(|(i, byte)| *byte = unsafe { load_byte(at.add(i)) });
}

/// Copies `from` to `to`, each byte stored once.
///
/// # Safety
/// As [`load`], for `from.len()` bytes from `to`.
unsafe fn store(to: *mut u8, from: &[u8]) {
    let head = unaligned_head(to, from.len());
    let (front, rest) = from.split_at(head);
    let words = rest.chunks_exact(WORD);
    // SAFETY: `head` bytes are within the destination.
    let mut at = unsafe { to.add(head) };
    // SAFETY: the first `head` bytes of the destination.
    front.iter().enumerate().for_each(|(i, byte)| unsafe { store_byte(to.add(i), *byte) });
    let tail = words.remainder();
    for word in words {
        let mut bytes = [0; WORD];
        bytes.copy_from_slice(word);
        // SAFETY: `at` is aligned and a whole word is left.
        unsafe { AtomicUsize::from_ptr(at.cast()) }.store(usize::from_ne_bytes(bytes), Relaxed);
        // SAFETY: as above.
        at = unsafe { at.add(WORD) };
    }
    // SAFETY: the bytes behind the last word.
    tail.iter().enumerate().for_each(|(i, byte)| unsafe { store_byte(at.add(i), *byte) });
}
