//! What the fuzz targets do with their input, as ordinary functions: `cargo fuzz` calls them with what its engine finds
//! (`fuzz/fuzz_targets`), and the test of this crate with bytes from a seeded generator, on the stable toolchain, so
//! that every change is tried against them a little.
//!
//! A body may panic for one reason: what it looks at is wrong.
//!
//! | body | input | what must hold |
//! |---|---|---|
//! | [`wire_formats`] | a packet | no parser panics; what a parser accepts, it reads again from what was emitted |
//! | [`texts`] | a configuration text | no parser panics; what prints reads back |
//! | [`knobs`] | an assignment | a knob says what it was set to, and takes what it says |
//! | [`scripts`] | a packet script | it is read, or refused in words |
//! | [`offloads`] | a batch of frames | merging and cutting neither loses nor makes text |
//! | [`captures`] | a capture file | the reader ends, with frames or with one error |
//! | [`stacks`] | frames, user calls and time steps | the same outcome under two architectures, nothing left at the end |
#![forbid(unsafe_code)]

mod admin;
mod formats;
mod frame;
mod offload;
mod sequence;
mod text;

pub use formats::{captures, wire_formats};
pub use offload::offloads;
pub use sequence::{stacks, under};
pub use text::{knobs, scripts, texts};
