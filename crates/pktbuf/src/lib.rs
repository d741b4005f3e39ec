//! Packet buffers with headroom, and the process-wide pool that they come from.
//!
//! A [`PktBuf`] is the unique owner of one pooled block and of a window of bytes in it; it is moved from the device
//! through the protocols to the application (or the other way) and never copied on the way. Everybody above room 1
//! holds these; the pool is called by nobody but [`PktBuf`] itself.
//!
//! ```text
//!  block   | Meta, size | ......headroom...... | bytes of the packet | ....tailroom.... |
//!          0           64                      start                 end                data end
//!                         <-- push_front        pull_front -->        append -->
//! ```
//!
//! **The pool** is a magazine allocator (Bonwick and Adams, "Magazines and Vmem", USENIX 2001): each thread has, for
//! each size class, two magazines of free blocks, and exchanges full ones for empty ones with a depot under a mutex. An
//! allocation or a release on one thread touches nothing that is shared; a packet that is allocated on one thread and
//! released on another costs its share of one depot visit. Blocks are carved from slabs, which are never given back to
//! the system: idle memory is bounded by the peak.
//!
//! **Outside the seam.** The pool uses `std::sync` directly, not the platform seam of the `sync` crate: it is memory
//! management like the global allocator below it, it holds its mutex for a handful of pointer moves and calls nobody
//! while it does, and model checkers would drown in its interleavings. Miri checks it instead.
//!
//! What may never happen: two [`PktBuf`]s for one block, a block that is released twice or forgotten ([`live`] balances
//! at rest), an uninitialised byte that is readable (slabs are zeroed), a depot mutex held while anything else runs.
//!
//! | file | owns |
//! |---|---|
//! | `block.rs` | size classes, the block header, slabs |
//! | `pool.rs` | magazines, depot, per-thread caches, limit, [`live`], [`footprint`] |
//! | `buffer.rs` | [`PktBuf`] |
//! | `meta.rs` | [`Meta`], [`Checksum`] |
//! | `chunk.rs` | [`Chunk`]: what a send queue holds |
//! | `sum.rs` | the Internet checksum with run-time dispatch |

mod block;
mod buffer;
mod chunk;
mod meta;
mod pool;
mod sum;

pub use block::MAX_CAPACITY;
pub use buffer::{HEADROOM, PktBuf};
pub use chunk::Chunk;
pub use meta::{Checksum, Meta};
pub use pool::{balance, footprint, in_use, live, refusals_left, refuse, set_limit};
pub use sum::{copy_and_sum, sum};
