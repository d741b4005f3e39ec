//! What Heddle measures about itself: time stamps, counters, reasons for drops, histograms and a trace ring.
//!
//! This crate owns the *vocabulary* of measurement. Every counter, every drop reason and every trace event is declared
//! exactly once, with its sentence of description ([`Counter`], [`DropReason`], [`trace::Event`]); tables, reports and
//! the control plane iterate over those declarations and never repeat a name. Every other room calls in here; nothing
//! here calls out.
//!
//! What may never happen: a counter that makes two processors share a cache line on the data path (blocks are padded
//! and, by default, have one writer each), a clock that is read (a [`Time`] is always handed in by whoever owns the
//! clock), or a policy decision.
//!
//! | file | owns |
//! |---|---|
//! | `time.rs` | [`Time`], nanoseconds since an arbitrary start |
//! | `declare.rs` | the macro behind the three declared enums |
//! | `counter.rs` | [`Counter`], [`Counters`], [`CounterSnapshot`] |
//! | `drop_reason.rs` | [`DropReason`] |
//! | `gauge.rs` | [`Gauges`]: what is alive now, for limits |
//! | `histogram.rs` | [`Histogram`], log-linear buckets |
//! | `trace.rs` | per-thread rings of trace records |
//!
//! The atomics here are relaxed and order nothing, so they stand outside the platform seam of the `sync` crate: a model
//! checker has nothing to learn from them.
#![forbid(unsafe_code)]

#[macro_use]
mod declare;
mod counter;
mod drop_reason;
mod gauge;
mod histogram;
mod time;
pub mod trace;

pub use counter::{Counter, CounterSnapshot, Counters};
pub use drop_reason::DropReason;
pub use gauge::{Gauge, Gauges, Pressure};
pub use histogram::Histogram;
pub use time::Time;
