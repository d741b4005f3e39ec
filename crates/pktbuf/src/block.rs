//! Size classes, the header in front of every block, and the slabs that blocks are carved from.
//!
//! Called by `pool.rs` (carving) and `buffer.rs` (header and data pointers). What may never happen: a block whose data
//! was not initialised, or two blocks that overlap.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed};

use crate::buffer::HEADROOM;
use crate::meta::Meta;

/// Largest capacity that [`PktBuf::alloc`](crate::PktBuf::alloc) can serve, in bytes: 64 KiB and room for headers.
pub const MAX_CAPACITY: usize = Class::Large.data_len() - HEADROOM;

/// How many size classes there are.
pub(crate) const CLASSES: usize = 3;

/// The size classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    /// One frame of 1,514 bytes with headroom.
    Small,
    /// Jumbo frames and middling super-segments.
    Medium,
    /// A super-segment of 64 KiB with headroom.
    Large,
}

impl Class {
    pub(crate) const ALL: [Class; CLASSES] = [Class::Small, Class::Medium, Class::Large];

    /// Bytes of data, headroom included.
    pub(crate) const fn data_len(self) -> usize {
        match self {
            Class::Small => 2 * 1024,
            Class::Medium => 16 * 1024,
            Class::Large => 72 * 1024,
        }
    }

    /// Distance between blocks of a slab. An odd number of cache lines on purpose: with a power of two all headers
    /// would fall into the same two sets of a first-level cache and evict each other.
    pub(crate) const fn stride(self) -> usize {
        size_of::<Header>() + self.data_len()
    }

    /// Blocks per magazine: what a thread gets from or gives to the depot at a time, and what a slab holds.
    pub(crate) const fn rounds(self) -> usize {
        match self {
            Class::Small => 64,
            Class::Medium => 16,
            Class::Large => 4,
        }
    }

    /// The smallest class with `headroom + capacity` bytes, if there is one.
    #[inline]
    pub(crate) const fn fitting(headroom: usize, capacity: usize) -> Option<Class> {
        let need = headroom.saturating_add(capacity);
        if need <= Class::Small.data_len() {
            Some(Class::Small)
        } else if need <= Class::Medium.data_len() {
            Some(Class::Medium)
        } else if need <= Class::Large.data_len() {
            Some(Class::Large)
        } else {
            None
        }
    }
}

/// The line in front of a block's data.
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) meta: Meta,
    pub(crate) data_len: u32,
    pub(crate) class: Class,
}

const _: () = assert!(size_of::<Header>() == 64 && (Class::Small.stride() / 64) % 2 == 1);

/// A pointer to the header of a block. Whoever holds it in a magazine, in the depot or in a `PktBuf` owns the block;
/// it is copied only to move it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Block(NonNull<Header>);

// SAFETY: a block is plain memory that belongs to whoever owns the pointer; no thread is special to it.
unsafe impl Send for Block {}

impl Block {
    /// The block's header.
    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: `carve` made a valid header there, slabs are never freed, and the owner of the block is the only one
        // who may write it, through `header_mut`.
        unsafe { self.0.as_ref() }
    }

    /// The block's header, for writing.
    ///
    /// # Safety
    /// The caller must own the block and have no other reference to its header alive.
    #[inline]
    pub(crate) unsafe fn header_mut(&mut self) -> &mut Header {
        // SAFETY: valid as in `header`; exclusive by the caller's promise.
        unsafe { self.0.as_mut() }
    }

    /// The first byte of the block's data; `data_len` initialised bytes follow.
    #[inline]
    pub(crate) fn data(&self) -> *mut u8 {
        // SAFETY: the data begins one header after the header, inside the same slab allocation.
        unsafe { self.0.as_ptr().add(1).cast::<u8>() }
    }
}

/// Allocates a slab of `count` blocks and gives each of them to `keep`; false if the system has no memory.
pub(crate) fn carve(class: Class, count: usize, mut keep: impl FnMut(Block)) -> bool {
    let Ok(layout) = Layout::from_size_align(class.stride() * count, align_of::<Header>()) else {
        return false;
    };
    if count == 0 {
        return false;
    }
    // SAFETY: the layout's size is not zero. Zeroed, because a block's data is handed out as initialised bytes; for
    // fresh pages the system has done it already.
    let Some(slab) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        return false;
    };
    for i in 0..count {
        // SAFETY: `i * stride` is inside the slab and keeps the header's alignment, as the stride is a multiple of it.
        let header = unsafe { slab.add(i * class.stride()).cast::<Header>() };
        // SAFETY: in bounds and aligned as above; nobody else knows this memory yet.
        unsafe { header.write(Header { meta: Meta::default(), data_len: class.data_len() as u32, class }) };
        keep(Block(header));
    }
    true
}
