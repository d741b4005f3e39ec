//! The table of regions, by number: a few words that are never freed, so that a stale number may be used at any time.
//!
//! Each entry counts the chunks of its region that are not home, and whether the region is open; a region's chunks are
//! freed when it is closed and that count is zero. The mutex is taken to register, to unregister and to free, never by
//! an allocation or release in an open region. What may never happen: chunks that are freed while one is not home, or
//! freed twice.

use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sync::{CachePadded, UseCount};

use super::chunks::RegionChunks;
use super::{Access, RegionError, RegionId};
use crate::block::Block;
use crate::buffer::PacketBounds;

/// How many regions there may be.
pub(super) const ENTRIES: usize = 1024;

struct RegionEntry {
    /// One use for each chunk that is not home, and one for an allocation in progress.
    uses: UseCount,
    chunks: AtomicPtr<RegionChunks>,
}

static TABLE: [CachePadded<RegionEntry>; ENTRIES] = [const {
    CachePadded::new(RegionEntry { uses: UseCount::closed_static(), chunks: AtomicPtr::new(ptr::null_mut()) })
}; ENTRIES];

/// Held by a thread that registers or frees.
static CHANGE: Mutex<()> = Mutex::new(());

fn change() -> MutexGuard<'static, ()> {
    CHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry(id: RegionId) -> &'static RegionEntry {
    &TABLE[usize::from(id.entry)]
}

/// Gives a new region a number and a place; `make` is called with the number.
pub(super) fn register(
    make: impl FnOnce(RegionId) -> Box<RegionChunks>,
) -> Result<(RegionId, NonNull<RegionChunks>), RegionError> {
    let _change = change();
    let open = |(number, entry): (usize, &'static CachePadded<RegionEntry>)| {
        // The old chunks are removed before an entry counts as free.
        let is_free = entry.chunks.load(Relaxed).is_null();
        let generation = is_free.then(|| entry.uses.open()).flatten()?;
        Some(RegionId { entry: number as u16, generation: core::num::NonZeroU16::new(generation)? })
    };
    let id = TABLE.iter().enumerate().find_map(open).ok_or(RegionError::TooMany)?;
    let chunks = NonNull::from(Box::leak(make(id)));
    // No other code knows the number yet, so the chunks have not been looked up.
    entry(id).chunks.store(chunks.as_ptr(), Release);
    Ok((id, chunks))
}

/// A block of the region with room for `need` bytes.
pub(crate) fn allocate(id: RegionId, access: Access, need: usize) -> Option<Block> {
    let entry = entry(id);
    if let Err(was_last) = entry.uses.enter(id.generation.get()) {
        if was_last {
            free(entry);
        }
        return None;
    }
    // SAFETY: the region is open, or was when this use began: its chunks are there and stay while the use lasts.
    let block = unsafe { &*entry.chunks.load(Acquire) }.take(access, need);
    if block.is_none() {
        end_use(id);
    }
    block
}

/// Takes a block of a region home.
#[cold]
pub(crate) fn release(block: Block) {
    let (region, chunk) = (block.header().region, block.header().chunk);
    let Some(id) = region else { unreachable!("a block whose home is a region and that has none") };
    // SAFETY: the block is a use of its region, which ends below.
    unsafe { &*entry(id).chunks.load(Acquire) }.take_home(chunk);
    end_use(id);
}

/// Where a buffer's bytes begin in its region.
pub(crate) fn offset_of(id: RegionId, block: Block, window: PacketBounds) -> usize {
    // SAFETY: the block is a use of its region and lasts longer than this.
    unsafe { &*entry(id).chunks.load(Acquire) }.offset(block, window)
}

/// The owner takes a chunk from home.
pub(super) fn begin_use(id: RegionId) {
    entry(id).uses.enter_again();
}

/// A chunk has returned home.
pub(super) fn end_use(id: RegionId) {
    if entry(id).uses.leave() {
        free(entry(id));
    }
}

/// Prevents further allocations, and frees the region when the last chunk is home.
pub(super) fn close(id: RegionId) {
    if entry(id).uses.close() {
        free(entry(id));
    }
}

/// Ends the region if all chunks are home; otherwise it stays open.
pub(super) fn unregister(id: RegionId) -> bool {
    let entry = entry(id);
    let is_over = {
        // A thread that returns the last chunk meanwhile waits for this lock, and then finds the region open or gone.
        let _change = change();
        let is_over = entry.uses.close();
        if !is_over {
            entry.uses.reopen();
        }
        is_over
    };
    if is_over {
        free(entry);
    }
    is_over
}

/// Frees the chunks of a closed region without uses, once.
#[cold]
fn free(entry: &RegionEntry) {
    let chunks = {
        let _change = change();
        if !entry.uses.is_drained() {
            return;
        }
        entry.chunks.swap(ptr::null_mut(), Acquire)
    };
    if let Some(chunks) = NonNull::new(chunks) {
        // SAFETY: the pointer came from a box and was taken out of the table just now, by this thread alone. The region
        // is closed and has no use, so no other thread has a reference.
        drop(unsafe { Box::from_raw(chunks.as_ptr()) });
    }
}
