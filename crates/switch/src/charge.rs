//! Reports plain work and plain memory to a platform that charges for them ([`Platform::CHARGED`]).
//!
//! Each function is for one place on a frame's path. On a real machine it is empty, and its arguments, which are
//! references, cost nothing. No other file of the crate calls [`Platform::work`] or [`Platform::touch`] (`cargo xtask
//! rules`). Locks, and the atomics of the table, charge for themselves.

use bridge::FlowMemory;
use pktbuf::PktBuf;
use sync::{Object, Platform, Step};

/// Bytes that forwarding reads of a received frame.
const HEADERS_READ: usize = 64;
/// Bytes of a cache line.
const LINE: usize = 64;

/// An interrupt of a receive queue has found frames.
#[inline(always)]
pub fn interrupt<P: Platform>() {
    if P::CHARGED {
        P::work(Step::Batch, 1);
    }
}

/// Frames were received, and are looked up.
#[inline(always)]
pub fn received<P: Platform>(frames: &[PktBuf]) {
    if P::CHARGED {
        P::work(Step::Frame, frames.len());
        for frame in frames {
            P::touch(Object::Buffer, frame.as_ptr(), frame.len().min(HEADERS_READ), false);
        }
    }
}

/// A worker looks into its memory of flows for the flow of a frame.
#[inline(always)]
pub fn recalled<P: Platform>(flows: &FlowMemory, frame: &PktBuf) {
    if P::CHARGED
        && let Some(line) = flows.line_of(frame)
    {
        P::touch(Object::Connection, line, LINE, false);
    }
}

/// Frames are put into the queue of the software interrupt, or taken from it.
#[inline(always)]
pub fn queued<P: Platform>(frames: usize) {
    if P::CHARGED {
        P::work(Step::Message, frames);
    }
}

/// Frames are given to a device.
#[inline(always)]
pub fn transmitted<P: Platform>(frames: usize) {
    if P::CHARGED {
        P::work(Step::Emit, frames);
    }
}
