//! The data path between devices and what stands above them: a protocol stack, a bridge.
//!
//! # Map
//!
//! | file | owns |
//! |---|---|
//! | `port.rs` | [`Port`]: a device's queues, capabilities, and whether it is there; [`Ports`]: those that one stack or bridge stands on |
//! | `transmit_queue.rs` | [`TransmitQueue`]: a device's transmit queue that several threads share, with the frames and the senders that wait for room in it |
//! | `vector.rs` | [`Vector`]: frames received together, each a [`Frame`] with its [`Headers`], which are found here and nowhere else |
//! | `verdict.rs` | [`Inspection`]: the step before IP in which a [`Rule`] says whether a frame goes to the stack, to a bridge or nowhere, and captures get their copy |
//! | `emitter.rs` | [`Emitter`]: what a consumer of vectors ([`Consume`]) transmits through |
//! | `dirty.rs` | [`Dirty`]: queues that were given frames and receivers that are not notified yet |
//!
//! # What may never happen
//! A protocol rule stands here: nothing in this crate knows an IP address. A frame is lost without a counted reason. A
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
pub use port::{Port, Ports, index};
pub use transmit_queue::TransmitQueue;
pub use vector::{Frame, Ingress, VECTOR_LEN, Vector};
pub use verdict::{Capture, Captured, Captures, Inspection, Rule, Verdict, capture};
pub use wire::{Framing, Headers};
