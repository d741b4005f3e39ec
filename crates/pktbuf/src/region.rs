//! Regions: packet memory outside the heap, required by a device.
//!
//! The owner of a region (a device back-end) registers memory that it has mapped: AF_XDP's UMEM, the memory of a guest,
//! a segment shared with another process. The memory is divided into chunks. Buffers are allocated in it by number
//! ([`RegionId`], a value that travels with the capabilities of a device), lent to the device and taken back from it by
//! offset, and return home from any thread that drops them.
//!
//! **Trust.** Headers, free lists and the state of each chunk are in memory of this process, in separate arrays. The
//! region's memory holds only bytes of packets; no word of it is interpreted here. An offset from the other side (a
//! descriptor) is checked against the state: only a lent chunk is accepted back, once, with a window inside it.
//!
//! **Other writers.** [`Memory::ACCESS`] states whether another party may change a chunk that a buffer owns.
//! * [`Access::Foreign`], the default: another party may write at any time. Rust's references must not point there, so
//!   such a region gives out [`ForeignBuf`](crate::ForeignBuf)s only, which copy bytes in and out. Data to be parsed is
//!   copied out first: a header that is checked in place could change between the check and the use.
//! * [`Access::Exclusive`]: the other party (the kernel, for a UMEM) writes lent chunks only. Then
//!   [`PktBuf`](crate::PktBuf)s can be there like anywhere else.
//!
//! **Life.** A region is unregistered when all its chunks are home. If its owner is dropped earlier, no further buffer
//! is allocated, and the thread that returns the last chunk frees the memory ([`sync::UseCount`]).
//!
//! | file | owns |
//! |---|---|
//! | `region.rs` | [`Region`], the owner's operations |
//! | `region/chunks.rs` | headers, states and free lists of one region |
//! | `region/registry.rs` | the table of regions, by number |
//! | `region/zeroed.rs` | memory for a region without special requirements |
//!
//! What may never happen: two owners of one chunk, a chunk used after the memory is gone, or a trusted word in memory
//! that another party writes.

mod chunks;
mod registry;
mod zeroed;

use core::fmt;
use core::mem::ManuallyDrop;
use core::num::NonZeroU16;
use core::ptr::NonNull;

use chunks::RegionChunks;
pub use chunks::{RegionCounts, RegionLayout};
pub(crate) use registry::{allocate, offset_of, release};
use zeroed::Zeroed;

use crate::buffer::{PacketBounds, PktBuf};
use crate::foreign::ForeignBuf;
use crate::pool;

/// Whether memory may change under the buffer that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Another party may write at any time.
    Foreign,
    /// Only chunks that are lent to the device are written by another party.
    Exclusive,
}

/// Memory for a region. Dropped when the region has ended and its last chunk is home; a mapping is unmapped then.
///
/// # Safety
/// From its registration until it is dropped, `len` bytes from `base` are mapped, readable and writable, hold
/// initialised bytes, and are used by nothing else in this process. Under [`Access::Exclusive`] moreover no other
/// process, guest or device writes any of them except the chunks that [`Region`] has lent, from the call that lends a
/// chunk until the call that accepts it or gives it back.
pub unsafe trait Memory: Send + Sync + 'static {
    /// See [`Access`].
    const ACCESS: Access = Access::Foreign;

    /// The first byte; always the same.
    fn base(&self) -> NonNull<u8>;

    /// How many bytes there are; always the same.
    fn len(&self) -> usize;

    /// Whether there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The number of a region. The number of an ended region is refused everywhere, even if another region has taken its
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId {
    entry: u16,
    generation: NonZeroU16,
}

const _: () = assert!(size_of::<Option<RegionId>>() == 4);

/// The treatment of a chunk when its buffer is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is free for the next allocation.
    Free,
    /// It waits for the owner, which takes it with [`Region::next_returned`]: a guest's buffer goes back to its ring.
    Returned,
}

/// Why a region cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// The layout has no chunk, a chunk of no byte or of more than 4 GiB - 1, or chunks that overlap.
    Layout,
    /// The chunks take `needed` bytes and the memory has `len`.
    TooShort {
        /// Bytes up to the end of the last chunk.
        needed: usize,
        /// Bytes of the memory.
        len: usize,
    },
    /// There are [`Region::MOST`] regions already.
    TooMany,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::Layout => f.write_str(
                "a region needs at least one chunk of 1 to 4294967295 bytes, and a stride that is no shorter than a chunk",
            ),
            RegionError::TooShort { needed, len } => {
                write!(f, "the chunks take {needed} bytes and the memory has {len}; map more, or lay out fewer")
            }
            RegionError::TooMany => write!(f, "there are {} regions already; unregister one first", Region::MOST),
        }
    }
}

impl core::error::Error for RegionError {}

/// An offset outside every lent chunk, or a span that leaves its chunk: an error of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLent;

impl fmt::Display for NotLent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other side names bytes that were not lent to it; drop the descriptor, or close the device")
    }
}

impl core::error::Error for NotLent {}

/// Bytes of a region that are lent to the other side, as in a descriptor of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From the region's first byte.
    pub offset: usize,
    /// How many.
    pub len: usize,
}

/// A registered region, held by its owner. All methods may be called from any thread.
pub struct Region {
    id: RegionId,
    chunks: NonNull<RegionChunks>,
}

// SAFETY: `RegionChunks` may be used by many threads at once, and outlives this owner.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// The most regions that a process may have at once.
    pub const MOST: usize = registry::ENTRIES;

    /// Registers `memory` with all its chunks free.
    ///
    /// # Errors
    /// The layout does not fit, or there are too many regions.
    pub fn register<M: Memory>(memory: M, layout: RegionLayout, released: Released) -> Result<Region, RegionError> {
        layout.check(memory.len())?;
        let (id, chunks) = registry::register(|id| Box::new(RegionChunks::new(id, memory, layout, released)))?;
        Ok(Region { id, chunks })
    }

    /// As [`register`](Self::register), in memory of its own from the heap, all zeros.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn zeroed(layout: RegionLayout, released: Released) -> Result<Region, RegionError> {
        Region::register(Zeroed::new(layout.end().ok_or(RegionError::Layout)?), layout, released)
    }

    /// The region's number.
    pub fn id(&self) -> RegionId {
        self.id
    }

    fn chunks(&self) -> &RegionChunks {
        // SAFETY: the chunks are freed only after the region was closed, which takes the owner's end.
        unsafe { self.chunks.as_ref() }
    }

    /// Where the chunks are.
    pub fn layout(&self) -> RegionLayout {
        self.chunks().layout()
    }

    /// The number of chunks in each state. Exact if no other thread changes anything.
    pub fn counts(&self) -> RegionCounts {
        self.chunks().counts()
    }

    /// Lends a free chunk to the other side, which may fill it (a receive ring); all of it.
    pub fn lend_free(&self) -> Option<Span> {
        self.chunks().lend_free().inspect(|_| registry::begin_use(self.id))
    }

    /// Lends the bytes of a buffer to the other side, which may read them (a transmit ring).
    ///
    /// # Errors
    /// The buffer is not in this region and is returned: the caller copies it into one that is.
    pub fn lend(&self, buf: PktBuf) -> Result<Span, PktBuf> {
        let offset = match buf.region() {
            Some(region) if region == self.id => self.chunks().offset(buf.block(), buf.window()),
            _ => return Err(buf),
        };
        let len = buf.len();
        let (block, _) = ManuallyDrop::new(buf).parts();
        self.chunks().lend(block);
        pool::count(-1);
        Ok(Span { offset, len })
    }

    /// As [`lend`](Self::lend), for a region that another party writes.
    ///
    /// # Errors
    /// The buffer is not in this region and is returned.
    pub fn lend_foreign(&self, buf: ForeignBuf) -> Result<Span, ForeignBuf> {
        self.lend(buf.into_inner()).map_err(ForeignBuf::of_inner)
    }

    /// Takes a lent chunk back as a buffer with the bytes that the other side reports as filled.
    ///
    /// # Errors
    /// They are not bytes of one chunk that is lent, or the region is one that another party writes: nothing changes.
    pub fn accept(&self, filled: Span) -> Result<PktBuf, NotLent> {
        if self.chunks().access() != Access::Exclusive {
            return Err(NotLent);
        }
        self.accept_any(filled)
    }

    /// As [`accept`](Self::accept), for a region that another party writes.
    ///
    /// # Errors
    /// They are not bytes of one chunk that is lent: nothing changes.
    pub fn accept_foreign(&self, filled: Span) -> Result<ForeignBuf, NotLent> {
        self.accept_any(filled).map(ForeignBuf::of_inner)
    }

    fn accept_any(&self, filled: Span) -> Result<PktBuf, NotLent> {
        let (block, start) = self.chunks().accept(filled)?;
        pool::count(1);
        Ok(PktBuf::of_parts(block, PacketBounds::new(start, start + filled.len as u32)))
    }

    /// Takes a lent chunk back and frees it: the frame that it held has been sent.
    ///
    /// # Errors
    /// The offset is not inside a lent chunk: nothing changes.
    pub fn give_back(&self, offset: usize) -> Result<(), NotLent> {
        self.chunks().give_back(offset)?;
        registry::end_use(self.id);
        Ok(())
    }

    /// Takes every lent chunk back and frees it, and returns how many there were; the other side must have stopped
    /// writing.
    pub fn give_all_back(&self) -> usize {
        let count = self.chunks().give_all_back();
        (0..count).for_each(|_| registry::end_use(self.id));
        count
    }

    /// The chunk of a dropped buffer, under [`Released::Returned`]; it is lent from here on.
    pub fn next_returned(&self) -> Option<Span> {
        self.chunks().next_returned().inspect(|_| registry::begin_use(self.id))
    }

    /// Ends the region. Its memory has been dropped when this returns.
    ///
    /// # Errors
    /// Chunks are in buffers or lent. The region is returned and remains usable.
    pub fn unregister(self) -> Result<(), Region> {
        let region = ManuallyDrop::new(self);
        if registry::unregister(region.id) { Ok(()) } else { Err(ManuallyDrop::into_inner(region)) }
    }
}

impl Drop for Region {
    /// Ends the region now or, if chunks are not home, when the last of them is.
    fn drop(&mut self) {
        registry::close(self.id);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("id", &self.id).field("counts", &self.counts()).finish_non_exhaustive()
    }
}
