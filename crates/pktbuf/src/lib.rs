//! Packet buffers with headroom, the process-wide pool for most of them, and regions for those in a device's memory.
//!
//! A [`PktBuf`] is the unique owner of one block and of a window of bytes in it; it is moved from the device through
//! the protocols to the application (or in reverse) without a copy. All crates above hold these; only the buffers
//! themselves call the pool.
//!
//! ```text
//!  header  | Meta, data, length, home |
//!  data    | ......headroom...... | bytes of the packet | ....tailroom.... |
//!          0                      start                 end                length
//!          <-- push_front         pull_front -->        append -->
//! ```
//!
//! **Home.** The header is trusted and has the address and length of the data and the destination of both on release.
//! In the **heap** the header is directly before the data. In a **region** ([`Region`]: AF_XDP's UMEM, a guest's
//! memory, memory shared with another process) headers are in an array of this process, because memory that another
//! party can write never holds trusted data.
//!
//! **Kinds of owner.** A [`PktBuf`] has one owner. [`PktBuf::share`] makes it a [`SharedBuf`], which has several
//! holders and cannot be written. A [`ForeignBuf`] is in memory that may change at any time, and copies instead of
//! lending references.
//!
//! **Sizes.** A packet has a block of the smallest of four classes that holds it: 384 bytes for a short segment, 2112 for
//! a frame, 16 448 and 73 792 for larger ones, header included. So a request of 64 bytes that waits for its
//! acknowledgement, or to be read, keeps 384 bytes of memory, two to four lines of which are in use (`block.rs`). Where
//! a device fills buffers before the size is known, a small frame is moved to a smaller block if that is worth it
//! ([`PktBuf::is_oversized`]); code that collects small packets in one buffer asks for a larger one ([`PktBuf::widened`]).
//!
//! **The pool** is a magazine allocator (Bonwick and Adams, "Magazines and Vmem", USENIX 2001): each thread has, for
//! each size class, two magazines of free blocks, and exchanges full ones for empty ones with a depot under a lock. An
//! allocation or a release on one thread touches no shared memory; a packet allocated on one thread and released on
//! another costs its share of one depot visit. Blocks are carved from slabs, which [`trim`] returns to the
//! system after a peak.
//!
//! **Platforms.** The buffers themselves are the same on every platform. The threads of a simulator or a model checker
//! get magazines of their own, and depots behind the platform's locks, from a [`PlatformHeap`]. Lock-free shared state
//! (holders of a block, chunks of a region) is built from types of `sync` that the model checkers explore.
//!
//! What may never happen: two owners of one block, a block that is released twice or leaked ([`live`] balances at
//! rest), an uninitialised byte that is readable (slabs are zeroed), a depot's lock held while other code runs.
//!
//! | file | owns |
//! |---|---|
//! | `block.rs` | the header, size classes, slabs |
//! | `pool.rs` | per-thread caches, limit, [`live`], [`footprint`] |
//! | `depot.rs` | magazines, depots |
//! | `platform_heap.rs` | [`PlatformHeap`] |
//! | `region.rs`, `region/` | [`Region`]: packet memory of a device |
//! | `buffer.rs` | [`PktBuf`] |
//! | `shared.rs` | [`SharedBuf`] |
//! | `foreign.rs` | [`ForeignBuf`] |
//! | `meta.rs` | [`Meta`], [`Checksum`] |
//! | `chunk.rs` | [`Chunk`]: the elements of a send queue |
//! | `sum.rs` | the Internet checksum with run-time dispatch |

mod block;
mod buffer;
mod chunk;
mod depot;
mod foreign;
mod meta;
mod platform_heap;
mod pool;
mod region;
mod shared;
mod sum;

pub use block::{FRAME_CAPACITY, MAX_CAPACITY};
pub use buffer::{HEADROOM, PacketPlace, PktBuf};
pub use chunk::Chunk;
pub use depot::Caching;
pub use foreign::ForeignBuf;
pub use meta::{Checksum, Meta};
pub use platform_heap::PlatformHeap;
pub use pool::{balance, footprint, in_use, live, refusals_left, refuse, set_caching, set_limit, substitutes, trim};
pub use region::{Access, Memory, NotLent, Region, RegionCounts, RegionError, RegionId, RegionLayout, Released, Span};
pub use shared::SharedBuf;
pub use sum::{copy_and_sum, copy_twice_and_sum, sum};
