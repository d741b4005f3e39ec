//! Heddle's measurements: time stamps, counters and reasons for drops.
//!
//! This crate declares the measured quantities. Every counter and every drop reason is declared exactly once, with its
//! description ([`Counter`], [`DropReason`]); tables, reports and the control plane iterate over those declarations and
//! never repeat a name.
//!
//! What may never happen: a counter that makes two processors share a cache line on the data path (blocks are padded
//! and, by default, have one writer each), a clock that is read (a [`Time`] is always passed in by the owner of the
//! clock), or a policy decision.
//!
//! | file | owns |
//! |---|---|
//! | `time.rs` | [`Time`], nanoseconds since an arbitrary start |
//! | `declare.rs` | the macro behind the three declared enums |
//! | `counter.rs` | [`Counter`], [`Counters`], [`CounterSnapshot`] |
//! | `drop_reason.rs` | [`DropReason`] |
//! | `per_thread.rs` | [`PerThreadCounters`]: a block of counters for each thread |
//!
//! The atomics here are relaxed and order nothing, so a model checker need not track them, and they are the machine's
//! on every platform. The platform decides *which* block a thread writes (`per_thread.rs`).
#![forbid(unsafe_code)]

#[macro_use]
mod declare;
mod counter;
mod drop_reason;
mod per_thread;
mod time;

pub use counter::{Counter, CounterSnapshot, Counters, FREQUENT_BYTES, add_in_two_steps};
pub use drop_reason::DropReason;
pub use per_thread::PerThreadCounters;
pub use time::Time;
