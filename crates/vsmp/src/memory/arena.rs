//! Memory at fixed addresses, so that a line has the same number in every run and its state is found by a shift.
//!
//! A program that runs machines makes an [`Arena`] its global allocator. Memory that the thread of a machine allocates
//! meanwhile comes from one mapping, which is at the same address in every process; all other memory comes from the
//! system. So false sharing in the simulation is that of the real layout, and address space layout randomisation has no
//! effect. Objects of a line and more begin at a line, as those of a slab allocator do.
//!
//! Without it, objects have addresses from the system and count as private: a machine then charges no cache misses.
//!
//! What may never happen: a block that is returned to the wrong allocator (its address determines the right one), or an
//! allocation here while the lock is held (the holder of the lock calls nothing).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::hint;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use super::LINE;

/// The address of the mapping: far from all addresses that Linux chooses.
const BASE: usize = 0x2000_0000_0000;
/// Bytes of stacks of threads, at the beginning.
pub(crate) const STACKS: usize = 1 << 30;
/// Bytes of the mapping. Memory is taken when it is used.
const SIZE: usize = 24 << 30;

/// The lines that have a number.
pub(crate) struct Zone;

impl Zone {
    /// The number of lines.
    pub(crate) const LINES: usize = SIZE / LINE;
    /// Further lines, without memory.
    pub(crate) const IMAGINED: usize = 64 << 20;

    /// The address of the first stack. The mapping is there when this returns.
    pub(crate) fn stacks() -> usize {
        map();
        BASE
    }
}

/// The number of the line at `address`, if it has one.
#[inline(always)]
pub(crate) fn line_of(address: usize) -> Option<usize> {
    let line = address.wrapping_sub(BASE) / LINE;
    (line < Zone::LINES).then_some(line)
}

/// Maps the arena, once.
fn map() {
    static MAPPED: Once = Once::new();
    MAPPED.call_once(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: MAP_FIXED_NOREPLACE takes no memory that something has already.
        let got = unsafe {
            libc::mmap(ptr::without_provenance_mut(BASE), SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        // A panic would allocate.
        if got.addr() != BASE {
            std::process::abort();
        }
    });
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, the calling thread allocates from the arena.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn enter() -> Inside {
        map();
        INSIDE.set(true);
        Inside(())
    }
}

/// `work` allocates from the system, so that code that only observes a machine does not change the machine's addresses.
pub(crate) fn from_system<R>(work: impl FnOnce() -> R) -> R {
    let inside = INSIDE.replace(false);
    let result = work();
    INSIDE.set(inside);
    result
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Sizes up to this are rounded to a multiple of a line (or a power of two below it), larger ones to a power of two.
const SMALL: usize = 4096;

/// Free blocks of each size, linked through their first word.
struct Blocks {
    next: usize,
    small: [usize; SMALL / 16 + 1],
    large: [usize; usize::BITS as usize],
}

/// See the head of the file.
pub struct Arena {
    locked: AtomicBool,
    blocks: UnsafeCell<Blocks>,
}

// SAFETY: `blocks` is used by the thread that has set `locked` only.
unsafe impl Sync for Arena {}

impl Arena {
    /// An allocator that has given out nothing. One for each process.
    pub const fn new() -> Arena {
        let blocks = Blocks { next: BASE + STACKS, small: [0; SMALL / 16 + 1], large: [0; usize::BITS as usize] };
        Arena { locked: AtomicBool::new(false), blocks: UnsafeCell::new(blocks) }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Blocks) -> R) -> R {
        while self.locked.swap(true, Ordering::Acquire) {
            hint::spin_loop();
        }
        // SAFETY: the flag is ours until it is cleared below, and `work` is a function of this file, which returns.
        let result = work(unsafe { &mut *self.blocks.get() });
        self.locked.store(false, Ordering::Release);
        result
    }
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

impl Blocks {
    /// The list for a layout, and the size of its blocks.
    fn class(&mut self, layout: Layout) -> (&mut usize, usize) {
        let size = layout.size().max(16).next_multiple_of(layout.align());
        if size <= SMALL && layout.align() <= LINE {
            let size = if size > LINE { size.next_multiple_of(LINE) } else { size.next_power_of_two() };
            (&mut self.small[size / 16], size)
        } else {
            let size = size.next_power_of_two();
            (&mut self.large[size.trailing_zeros() as usize], size)
        }
    }

    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        let (head, size) = self.class(layout);
        if *head != 0 {
            let found = ptr::with_exposed_provenance_mut::<usize>(*head);
            // SAFETY: a free block of this list: nothing else uses it, and its first word is the next one's address.
            *head = unsafe { *found };
            return found.cast();
        }
        let at = self.next.next_multiple_of(size.next_power_of_two().clamp(16, 4096).max(layout.align()).min(size));
        let at = at.next_multiple_of(layout.align());
        if at + size > BASE + SIZE {
            return ptr::null_mut();
        }
        self.next = at + size;
        ptr::with_exposed_provenance_mut(at)
    }

    fn release(&mut self, block: *mut u8, layout: Layout) {
        let (head, _) = self.class(layout);
        // SAFETY: the block was given out for this layout and is the allocator's again; it has room for a word, and is
        // aligned to 16.
        unsafe { block.cast::<usize>().write(*head) };
        *head = block.expose_provenance();
    }
}

// SAFETY: blocks lie in the mapping, do not overlap, are as large and as aligned as asked for (`class` rounds up), and
// are given out again only after their release. What is not from here goes to the system's allocator both ways.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if INSIDE.get() {
            return self.with(|blocks| blocks.allocate(layout));
        }
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if line_of(block.addr()).is_some() {
            return self.with(|blocks| blocks.release(block, layout));
        }
        // SAFETY: it is not from the arena, so it is the system's.
        unsafe { System.dealloc(block, layout) };
    }
}
