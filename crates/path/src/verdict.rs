//! The verdict on a received frame before IP: to the stack, to a bridge, to both, or dropped; and copies to captures.
//!
//! Usually a port has no [`Inspection`]: every frame goes to the consumer that polls the port, and the step costs one
//! branch a vector. With one, a [`Rule`] decides about each frame, in the order of arrival.
//!
//! A frame with one destination is moved there, whatever region is its home. A frame with several is copied into the
//! heap: for the bridge, because both may write, and once for all [captures](Capture), which share the copy.

use observe::{Counters, DropReason};
use pktbuf::SharedBuf;
use sync::Platform;
use sync::ring::spsc::{self, Consumer, Producer};

use crate::vector::{Frame, Vector};
use crate::{Framing, Headers};

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To the protocol stack over the port.
    Stack,
    /// To the bridge that the port is a member of.
    Bridge,
    /// To both: a multicast frame, on a host that bridges.
    StackAndBridge,
    /// Dropped for this reason, which is counted.
    Drop(DropReason),
}

/// Decides about each frame that a port receives. Called by the thread that polls the queue.
pub trait Rule: Send {
    /// The verdict on `frame`. It must not sleep.
    fn verdict(&mut self, frame: &Frame) -> Verdict;
}

impl<F: FnMut(&Frame) -> Verdict + Send> Rule for F {
    fn verdict(&mut self, frame: &Frame) -> Verdict {
        self(frame)
    }
}

/// The verdict step of one receive queue; see the head of the file.
pub struct Inspection<P: Platform> {
    rule: Box<dyn Rule>,
    captures: Vec<Capture<P>>,
    /// Frames for the stack; empty between calls, kept for its memory.
    kept: Vector,
}

impl<P: Platform> Inspection<P> {
    /// An inspection by `rule`.
    pub fn new(rule: impl Rule + 'static) -> Inspection<P> {
        Inspection { rule: Box::new(rule), captures: Vec::new(), kept: Vector::new() }
    }

    /// Every frame goes to the stack, as if there were no inspection: for captures.
    pub fn transparent() -> Inspection<P> {
        Inspection::new(|_: &Frame| Verdict::Stack)
    }

    /// The same, with one more capture.
    pub fn with_capture(mut self, capture: Capture<P>) -> Inspection<P> {
        self.captures.push(capture);
        self
    }

    /// Decides about all frames of `vector`: leaves those for the stack in it, appends those for the bridge to
    /// `bridged`, and drops the others. Order is kept. `port` is the number given to captures.
    pub fn inspect(&mut self, port: usize, vector: &mut Vector, bridged: &mut Vector, counters: &Counters) {
        let framing = vector.framing();
        bridged.set_framing(framing);
        for frame in vector.drain() {
            let verdict = self.rule.verdict(&frame);
            self.capture(port, framing, &frame, counters);
            match verdict {
                Verdict::Stack => self.kept.push(frame),
                Verdict::Bridge => {
                    // For the stack it does not follow the previous frame any more.
                    self.kept.interrupt();
                    bridged.push(frame);
                }
                Verdict::StackAndBridge => {
                    match frame.duplicate() {
                        Some(copy) => bridged.push(copy),
                        None => counters.count_drop(DropReason::NoBuffer),
                    }
                    self.kept.push(frame);
                }
                Verdict::Drop(reason) => {
                    self.kept.interrupt();
                    counters.count_drop(reason);
                }
            }
        }
        self.kept.set_framing(framing);
        std::mem::swap(vector, &mut self.kept);
    }

    /// Gives all captures the frame, in one copy that they share.
    #[inline]
    fn capture(&mut self, port: usize, framing: Framing, frame: &Frame, counters: &Counters) {
        let mut copied: Option<CapturedFrame> = None;
        self.captures.retain_mut(|Capture { ring }| {
            if ring.is_abandoned() {
                return false;
            }
            if ring.free() == 0 {
                counters.count_drop(DropReason::CaptureFull);
                return true;
            }
            if copied.is_none() {
                let Frame { buffer, headers, .. } = frame;
                let copy = buffer.duplicate().map(|copy| copy.share());
                copied = copy.map(|frame| CapturedFrame { frame, headers: *headers, framing, port });
            }
            match copied.clone() {
                Some(copy) => drop(ring.push(copy)),
                None => counters.count_drop(DropReason::NoBuffer),
            }
            true
        });
    }
}

/// The near end of a capture: belongs to one [`Inspection`].
pub struct Capture<P: Platform> {
    ring: Producer<CapturedFrame, P>,
}

/// The far end of a capture: any one thread takes copies of frames from it. When it is dropped, no more are made.
pub struct Captures<P: Platform> {
    ring: Consumer<CapturedFrame, P>,
}

/// A captured frame.
#[derive(Clone, Debug)]
pub struct CapturedFrame {
    /// The frame as it was received, in memory that several captures share.
    pub frame: SharedBuf,
    /// Where its headers lie.
    pub headers: Headers,
    /// Its framing.
    pub framing: Framing,
    /// The number of the port that received it.
    pub port: usize,
}

/// Makes a capture with room for `frames` frames. When it is full, further frames are not captured, and counted as
/// [`DropReason::CaptureFull`]. Receiving never waits for a capture.
///
/// # Panics
/// If `frames` is 0.
pub fn capture<P: Platform>(frames: usize) -> (Capture<P>, Captures<P>) {
    let (near, far) = spsc::channel(frames);
    (Capture { ring: near }, Captures { ring: far })
}

impl<P: Platform> Captures<P> {
    /// Takes the frame that was captured first, if there is one.
    pub fn take(&mut self) -> Option<CapturedFrame> {
        self.ring.pop()
    }
}
