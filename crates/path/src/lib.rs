//! The data path between devices and their consumers: a protocol stack, a bridge.
//!
//! # Map
//!
//! | file | owns |
//! |---|---|
//! | `port.rs` | [`Port`]: a device's queues, capabilities, and whether it is present; [`Ports`]: those of one stack or bridge |
//! | `transmit_queue.rs` | [`TransmitQueue`]: a device's transmit queue shared by several threads, with the frames and senders that wait for room |
//! | `vector.rs` | [`Vector`]: frames received together, each a [`Frame`] with its [`Headers`], which are located only here |
//! | `verdict.rs` | [`Inspection`]: the step before IP in which a [`Rule`] sends a frame to the stack, to a bridge or drops it, and captures get a copy |
//! | `emitter.rs` | [`Emitter`]: the transmit interface of a consumer of vectors ([`Consume`]) |
//! | `dirty.rs` | [`Dirty`]: queues that were given frames, and receivers to be notified |
//!
//! # What may never happen
//! A protocol rule in this crate: it does not even use IP addresses. A frame is lost without a counted reason. A
//! receiver is notified with a lock held.

#![forbid(unsafe_code)]

mod dirty;
mod emitter;
mod port;
mod transmit_queue;
mod vector;
mod verdict;

pub use dirty::Dirty;
pub use emitter::{Consume, Emitter};
pub use port::{Port, Ports, SendCapabilities, index};
pub use transmit_queue::TransmitQueue;
pub use vector::{ArrivingFlow, Frame, StackInput, VECTOR_LEN, Vector};
pub use verdict::{Capture, CapturedFrame, Captures, Inspection, Rule, Verdict, capture};
pub use wire::{Framing, Headers};
