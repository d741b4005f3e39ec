//! An Ethernet bridge over devices: the rules are the crate `bridge`'s; how threads share them is this crate's.
//!
//! | file | owns |
//! |---|---|
//! | `generic.rs` | [`Generic`]: one processor does everything, as in NetBSD's GENERIC kernel |
//! | `tag.rs` | what forwarding decided about a frame's tag, done to its bytes |
//!
//! The paper's second step (readers in a pserialize-like section) and what came after it (caches for each worker) are to
//! stand beside `generic.rs`, over the same rules.
//!
//! # What may never happen
//! A rule of 802.1D or 802.1Q stands here. A frame is dropped without a counted reason. A frame is forwarded before the
//! BPDUs that were due before it.

#![forbid(unsafe_code)]

mod generic;
mod tag;

pub use generic::{Generic, GenericConfig, PortError, Work};
