//! The header of every packet buffer, size classes, and the slabs that blocks of the heap are carved from.
//!
//! A header is trusted: it is in memory that only this process writes, and it has the address and length of the data
//! and the destination of both on release. In the heap it is directly before its data, in one allocation, which is one
//! stream to a prefetcher. Elsewhere it is in an array of its region (`region/`). No code computes the one address from
//! the other.
//!
//! Called by `pool.rs` and `region/` (making headers) and by the kinds of buffers (reading them). What may never
//! happen: a block with uninitialised data, two blocks that overlap, or a header in memory that another party can
//! write.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};

use sync::ShareCount;

use crate::buffer::HEADROOM;
use crate::meta::Meta;
use crate::region::RegionId;

/// Largest capacity that [`PktBuf::alloc`](crate::PktBuf::alloc) can serve, in bytes: 64 KiB and room for headers.
pub const MAX_CAPACITY: usize = SizeClass::Large.data_len() - HEADROOM;

/// Bytes that the block of an ordinary frame has room for behind [`HEADROOM`].
pub const FRAME_CAPACITY: usize = SizeClass::Small.data_len() - HEADROOM;

/// How many size classes there are.
pub(crate) const CLASSES: usize = 4;

/// How many kinds of home there are.
pub(crate) const HOMES: usize = CLASSES + 1;

/// The destination of a released block: a size class of the heap, by the number of the class, or its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Home {
    Tiny,
    Small,
    Medium,
    Large,
    Region,
}

impl Home {
    /// The size class; `None` for a block of a region.
    pub(crate) const fn class(self) -> Option<SizeClass> {
        match self {
            Home::Tiny => Some(SizeClass::Tiny),
            Home::Small => Some(SizeClass::Small),
            Home::Medium => Some(SizeClass::Medium),
            Home::Large => Some(SizeClass::Large),
            Home::Region => None,
        }
    }
}

/// The size classes of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SizeClass {
    /// An acknowledgement, or a segment with a short request or answer: six lines, three pairs of them. A processor that has
    /// asked for a line mostly gets the other one of its pair (128 bytes) as well. An arrival with up to 64 bytes of data uses
    /// the first two pairs: the header and the link and network headers, the TCP header and the data.
    Tiny,
    /// One frame of 1,514 bytes with headroom.
    Small,
    /// Jumbo frames and middling super-segments.
    Medium,
    /// A super-segment of 64 KiB with headroom.
    Large,
}

impl SizeClass {
    pub(crate) const ALL: [SizeClass; CLASSES] =
        [SizeClass::Tiny, SizeClass::Small, SizeClass::Medium, SizeClass::Large];

    /// The destination of released blocks of the class.
    pub(crate) const fn home(self) -> Home {
        match self {
            SizeClass::Tiny => Home::Tiny,
            SizeClass::Small => Home::Small,
            SizeClass::Medium => Home::Medium,
            SizeClass::Large => Home::Large,
        }
    }

    /// Bytes of data, headroom included.
    pub(crate) const fn data_len(self) -> usize {
        match self {
            SizeClass::Tiny => 6 * LINE - size_of::<BlockHeader>(),
            SizeClass::Small => 2 * 1024,
            SizeClass::Medium => 16 * 1024,
            SizeClass::Large => 72 * 1024,
        }
    }

    /// Distance between blocks of a slab. Mostly an odd number of cache lines: with a power of two all headers would map to
    /// the same two sets of a first-level cache and evict each other. That of the smallest is whole pairs of lines;
    /// their headers use half of the sets.
    pub(crate) const fn stride(self) -> usize {
        size_of::<BlockHeader>() + self.data_len()
    }

    /// Blocks per magazine, the unit of exchange with the depot; also the blocks of a slab.
    pub(crate) const fn rounds(self) -> usize {
        match self {
            SizeClass::Tiny | SizeClass::Small => 64,
            SizeClass::Medium => 16,
            SizeClass::Large => 4,
        }
    }

    /// The smallest class with `headroom + capacity` bytes, if there is one.
    #[inline]
    pub(crate) const fn fitting(headroom: usize, capacity: usize) -> Option<SizeClass> {
        let need = headroom.saturating_add(capacity);
        if need <= SizeClass::Tiny.data_len() {
            Some(SizeClass::Tiny)
        } else if need <= SizeClass::Small.data_len() {
            Some(SizeClass::Small)
        } else if need <= SizeClass::Medium.data_len() {
            Some(SizeClass::Medium)
        } else if need <= SizeClass::Large.data_len() {
            Some(SizeClass::Large)
        } else {
            None
        }
    }

    /// The class that serves where this one has no block: that of a frame for what is smaller than one. None for the
    /// others, because a block of the next class is many times as large.
    pub(crate) const fn substitute(self) -> Option<SizeClass> {
        match self {
            SizeClass::Tiny => Some(SizeClass::Small),
            SizeClass::Small | SizeClass::Medium | SizeClass::Large => None,
        }
    }

    /// The most bytes of blocks of the class in a pool that is bounded to `limit`. Free blocks serve no other class, and
    /// frames need blocks of theirs: the smallest blocks, of which a slab is small, have an eighth at most. What needs more of
    /// them has substitutes.
    pub(crate) const fn share(self, limit: usize) -> usize {
        match self {
            SizeClass::Tiny => limit / 8,
            SizeClass::Small | SizeClass::Medium | SizeClass::Large => limit,
        }
    }
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// The trusted data of a block: one cache line.
#[repr(C, align(64))]
pub(crate) struct BlockHeader {
    pub(crate) meta: Meta,
    /// The first byte of the block's data; `data_len` initialised bytes follow.
    pub(crate) data: NonNull<u8>,
    pub(crate) data_len: u32,
    /// How many [`SharedBuf`](crate::SharedBuf)s hold the block. Unspecified while a [`PktBuf`](crate::PktBuf) owns it.
    pub(crate) holders: ShareCount,
    /// The region of a block whose home is one.
    pub(crate) region: Option<RegionId>,
    /// The block's number in its region.
    pub(crate) chunk: u32,
    pub(crate) home: Home,
}

impl BlockHeader {
    /// The header of a block of the heap whose data begins at `data`.
    fn of_heap(class: SizeClass, data: NonNull<u8>) -> BlockHeader {
        let (data_len, home) = (class.data_len() as u32, class.home());
        BlockHeader { meta: Meta::default(), data, data_len, holders: ShareCount::new(), region: None, chunk: 0, home }
    }
}

const _: () = assert!(size_of::<BlockHeader>() == LINE && (SizeClass::Small.stride() / LINE) % 2 == 1);
const _: () = assert!(SizeClass::Tiny.stride().is_multiple_of(SLAB_ALIGNMENT));

/// Slabs begin with a pair of lines.
const SLAB_ALIGNMENT: usize = 2 * LINE;

/// A pointer to the header of a block. The magazine, depot or `PktBuf` that holds it owns the block; it is copied only
/// to move it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Block(NonNull<BlockHeader>);

// SAFETY: a block is plain memory that belongs to the owner of the pointer, not tied to a thread.
unsafe impl Send for Block {}

impl Block {
    /// The block with this header.
    ///
    /// # Safety
    /// The header must be valid, and stay so for as long as a block of it is in use.
    pub(crate) unsafe fn with_header(header: NonNull<BlockHeader>) -> Block {
        Block(header)
    }

    /// Where it is in memory.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The block's header.
    #[inline]
    pub(crate) fn header(&self) -> &BlockHeader {
        // SAFETY: a block is made with a valid header only. A slab is freed once all of its blocks have been destroyed, and
        // a region's headers are kept while a block of it is out. Only the owner of the block writes it, through `header_mut`.
        unsafe { self.0.as_ref() }
    }

    /// The block's header, for writing.
    ///
    /// # Safety
    /// The caller must own the block and have no other reference to its header alive.
    #[inline]
    pub(crate) unsafe fn header_mut(&mut self) -> &mut BlockHeader {
        // SAFETY: valid as in `header`; exclusive by the caller's promise.
        unsafe { self.0.as_mut() }
    }

    /// Asks the processor for what the next owner of a small block touches: the header, the line after it, and that of the
    /// data behind [`HEADROOM`].
    #[inline(always)]
    pub(crate) fn prefetch_small(&self) {
        for line in [0, LINE, size_of::<BlockHeader>() + HEADROOM] {
            sync::prefetch(self.0.as_ptr().cast::<u8>().wrapping_add(line));
        }
    }

    /// The first byte of the block's data; `data_len` initialised bytes follow.
    #[inline]
    pub(crate) fn data(&self) -> *mut u8 {
        self.header().data.as_ptr()
    }
}

/// The memory of blocks of one class that were allocated together.
#[derive(Clone, Copy)]
pub(crate) struct BlockSlab {
    first: Block,
    class: SizeClass,
    count: usize,
}

impl BlockSlab {
    /// How many blocks it has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The address of its first block. The others follow, a stride apart.
    pub(crate) fn address(&self) -> usize {
        self.first.address()
    }

    /// The address of its last block.
    pub(crate) fn last_address(&self) -> usize {
        self.address() + (self.count - 1) * self.class.stride()
    }

    fn layout(class: SizeClass, count: usize) -> Option<Layout> {
        Layout::from_size_align(class.stride() * count, SLAB_ALIGNMENT).ok()
    }

    /// Returns the memory to the system.
    ///
    /// # Safety
    /// The caller owns every block of the slab, and neither it nor anybody else uses one from here on; this is called
    /// once for a slab.
    pub(crate) unsafe fn free(self) {
        let Some(layout) = BlockSlab::layout(self.class, self.count) else { return };
        // SAFETY: the pointer is that of the allocation, which had this layout; nothing uses it any more by the caller's
        // promise.
        unsafe { dealloc(self.first.0.as_ptr().cast(), layout) };
    }
}

/// Allocates a slab of `count` blocks and gives each of them to `keep`; `None` if the system has no memory.
pub(crate) fn carve(class: SizeClass, count: usize, mut keep: impl FnMut(Block)) -> Option<BlockSlab> {
    if count == 0 {
        return None;
    }
    let layout = BlockSlab::layout(class, count)?;
    // SAFETY: the layout's size is not zero. Zeroed, because a block's data counts as initialised bytes; the system has
    // already zeroed fresh pages.
    let slab = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    for i in 0..count {
        // SAFETY: `i * stride` is inside the slab and keeps the header's alignment, as the stride is a multiple of it.
        let header = unsafe { slab.add(i * class.stride()).cast::<BlockHeader>() };
        // SAFETY: the block's data lies behind its header, inside the slab.
        let data = unsafe { header.add(1).cast::<u8>() };
        // SAFETY: in bounds and aligned as above; no other code has access to this memory yet.
        unsafe { header.write(BlockHeader::of_heap(class, data)) };
        keep(Block(header));
    }
    Some(BlockSlab { first: Block(slab.cast()), class, count })
}
