//! The bodies of the fuzz targets, as ordinary functions: `cargo fuzz` calls them with its engine's inputs
//! (`fuzz/fuzz_targets`), and the test of this crate with bytes from a seeded generator, on the stable toolchain, so
//! that every change is tested briefly.
//!
//! A body panics only if the tested code is wrong.
//!
//! | body | input | property |
//! |---|---|---|
//! | [`wire_formats`] | a packet | no parser panics; an accepted packet parses again after emission |
//! | [`texts`] | a configuration text | no parser panics; printed values parse back |
//! | [`knobs`] | an assignment | a knob prints its value, and accepts what it prints |
//! | [`scripts`] | a packet script | it is parsed, or refused with a message |
//! | [`offloads`] | a batch of frames | merging and cutting neither loses nor adds data |
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
