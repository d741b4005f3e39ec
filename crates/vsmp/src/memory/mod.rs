//! Memory: addresses ([`Arena`]), which caches have which line (`directory.rs`), and the lines of each cache
//! (`cache.rs`).

mod arena;
mod cache;
mod directory;

pub use arena::Arena;

pub(crate) use arena::{Inside, STACKS, Zone, from_system, line_of};
pub(crate) use directory::{Access, Memory, lines_of};

/// Bytes of a cache line.
pub const LINE: usize = 64;
