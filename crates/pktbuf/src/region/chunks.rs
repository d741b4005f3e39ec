//! The chunks of one region: trusted headers, the state of each chunk, free lists.
//!
//! Every chunk is in one place: home, in a buffer, or lent. The place changes by one atomic exchange, so of two parties
//! that claim a chunk one is refused. What may never happen: a header that is used without the chunk being in a buffer.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use sync::{IndexStack, ShareCount};

use super::{Access, Memory, NotLent, RegionError, RegionId, Released, Span};
use crate::block::{Block, BlockHeader, Home};
use crate::buffer::PacketBounds;
use crate::meta::Meta;

/// The layout of a region's chunks: chunk `i` is the `chunk` bytes from `first + i * stride`. No alignment is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLayout {
    /// Offset of the first chunk, in bytes.
    pub first: usize,
    /// Distance from chunk to chunk, in bytes; at least `chunk`.
    pub stride: usize,
    /// Bytes of a chunk, headroom included.
    pub chunk: usize,
    /// How many chunks there are.
    pub count: u32,
}

impl RegionLayout {
    pub(super) fn check(&self, len: usize) -> Result<(), RegionError> {
        let is_sound = self.count > 0
            && self.count < u32::MAX
            && self.chunk > 0
            && u32::try_from(self.chunk).is_ok()
            && self.stride >= self.chunk;
        match self.end() {
            Some(needed) if is_sound && needed <= len => Ok(()),
            Some(needed) if is_sound => Err(RegionError::TooShort { needed, len }),
            _ => Err(RegionError::Layout),
        }
    }

    /// Where the last chunk ends, in bytes from the region's first byte; `None` if that overflows or there is no chunk.
    pub(super) fn end(&self) -> Option<usize> {
        let last = (self.count as usize).checked_sub(1)?.checked_mul(self.stride)?;
        last.checked_add(self.first)?.checked_add(self.chunk)
    }

    /// The number of the chunk that holds all of `span`, and where in the chunk it begins.
    fn find(&self, span: Span) -> Option<(u32, u32)> {
        let inside = span.offset.checked_sub(self.first)?;
        let (index, start) = (inside / self.stride, inside % self.stride);
        let fits = index < self.count as usize && start.checked_add(span.len)? <= self.chunk;
        fits.then_some((index as u32, start as u32))
    }

    fn offset(&self, index: u32) -> usize {
        self.first + index as usize * self.stride
    }
}

/// The number of chunks of a region in each place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionCounts {
    /// Free, or waiting for the owner to take them.
    pub home: usize,
    /// In packet buffers.
    pub buffers: usize,
    /// Lent to the other side.
    pub lent: usize,
}

const AT_HOME: u8 = 0;
const IN_BUFFER: u8 = 1;
const LENT: u8 = 2;

/// See the head of this file.
pub(crate) struct RegionChunks {
    layout: RegionLayout,
    access: Access,
    released: Released,
    base: NonNull<u8>,
    headers: Box<[UnsafeCell<BlockHeader>]>,
    places: Box<[AtomicU8]>,
    free: IndexStack,
    returned: IndexStack,
    /// Dropped last, when the last chunk is home.
    _memory: Box<dyn Send + Sync>,
}

// SAFETY: a header is used by the owner of its chunk's buffer only, which `places` makes one at a time; `base` is not
// read through here.
unsafe impl Sync for RegionChunks {}
// SAFETY: as above; the memory itself is `Send`.
unsafe impl Send for RegionChunks {}

impl RegionChunks {
    /// All chunks free. The layout has been checked.
    pub(super) fn new<M: Memory>(id: RegionId, memory: M, layout: RegionLayout, released: Released) -> RegionChunks {
        let base = memory.base();
        let header = |chunk: u32| {
            // SAFETY: the layout was checked against the memory's length.
            let data = unsafe { base.add(layout.offset(chunk)) };
            UnsafeCell::new(BlockHeader {
                meta: Meta::default(),
                data,
                data_len: layout.chunk as u32,
                holders: ShareCount::new(),
                region: Some(id),
                chunk,
                home: Home::Region,
            })
        };
        let free = IndexStack::new(layout.count);
        // The first chunk is allocated first.
        (0..layout.count).rev().for_each(|chunk| free.push(chunk));
        RegionChunks {
            layout,
            access: M::ACCESS,
            released,
            base,
            headers: (0..layout.count).map(header).collect(),
            places: (0..layout.count).map(|_| AtomicU8::new(AT_HOME)).collect(),
            free,
            returned: IndexStack::new(layout.count),
            _memory: Box::new(memory),
        }
    }

    pub(super) fn layout(&self) -> RegionLayout {
        self.layout
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn counts(&self) -> RegionCounts {
        let at = |place| self.places.iter().filter(|now| now.load(Relaxed) == place).count();
        RegionCounts { home: at(AT_HOME), buffers: at(IN_BUFFER), lent: at(LENT) }
    }

    fn moved(&self, chunk: u32, from: u8, to: u8) -> bool {
        self.places[chunk as usize].compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// The block of a chunk that has just come into a buffer.
    fn block(&self, chunk: u32) -> Block {
        let header = NonNull::from(&self.headers[chunk as usize]).cast::<BlockHeader>();
        // SAFETY: `UnsafeCell` has the layout of its content. The headers are kept while a chunk is out, by the use
        // count of the region, and the exchange of the chunk's place has made the caller its only user.
        let mut block = unsafe { Block::with_header(header) };
        // SAFETY: as above.
        unsafe { block.header_mut() }.meta = Meta::default();
        block
    }

    /// A free chunk with room for `need` bytes, for a buffer that this access allows.
    pub(super) fn take(&self, access: Access, need: usize) -> Option<Block> {
        if access != self.access || need > self.layout.chunk {
            return None;
        }
        let chunk = self.free.pop()?;
        let moved = self.moved(chunk, AT_HOME, IN_BUFFER);
        debug_assert!(moved, "chunk {chunk} was free and not at home");
        Some(self.block(chunk))
    }

    /// Takes the chunk of a dropped buffer home.
    pub(super) fn take_home(&self, chunk: u32) {
        self.places[chunk as usize].store(AT_HOME, Release);
        match self.released {
            Released::Free => self.free.push(chunk),
            Released::Returned => self.returned.push(chunk),
        }
    }

    pub(super) fn lend(&self, block: Block) {
        self.places[block.header().chunk as usize].store(LENT, Release);
    }

    pub(super) fn lend_free(&self) -> Option<Span> {
        self.free.pop().map(|chunk| self.lend_whole(chunk))
    }

    pub(super) fn next_returned(&self) -> Option<Span> {
        self.returned.pop().map(|chunk| self.lend_whole(chunk))
    }

    fn lend_whole(&self, chunk: u32) -> Span {
        let moved = self.moved(chunk, AT_HOME, LENT);
        debug_assert!(moved, "chunk {chunk} was free and not at home");
        Span { offset: self.layout.offset(chunk), len: self.layout.chunk }
    }

    /// Takes a lent chunk into a buffer. Also returns the offset of the filled bytes in the chunk.
    pub(super) fn accept(&self, filled: Span) -> Result<(Block, u32), NotLent> {
        let (chunk, start) = self.layout.find(filled).ok_or(NotLent)?;
        if !self.moved(chunk, LENT, IN_BUFFER) {
            return Err(NotLent);
        }
        Ok((self.block(chunk), start))
    }

    pub(super) fn give_back(&self, offset: usize) -> Result<(), NotLent> {
        let (chunk, _) = self.layout.find(Span { offset, len: 1 }).ok_or(NotLent)?;
        if !self.moved(chunk, LENT, AT_HOME) {
            return Err(NotLent);
        }
        self.free.push(chunk);
        Ok(())
    }

    pub(super) fn give_all_back(&self) -> usize {
        let back = |chunk: &u32| self.moved(*chunk, LENT, AT_HOME);
        (0..self.layout.count).filter(back).inspect(|&chunk| self.free.push(chunk)).count()
    }

    /// Where a buffer's bytes begin, from the region's first byte.
    pub(super) fn offset(&self, block: Block, window: PacketBounds) -> usize {
        block.data().addr() - self.base.addr().get() + window.start() as usize
    }
}
