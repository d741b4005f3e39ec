//! [`Outgoing`]: the frames that wait for a port until the end of a batch, in the order in which they leave.

use std::collections::VecDeque;

use pktbuf::{PktBuf, SharedBuf};

use crate::flood::FloodedFrame;

/// Frames with one owner are in a queue of their own, which a device takes as a whole. A frame that other ports hold, too, has
/// a place between them.
#[derive(Default)]
pub(crate) struct Outgoing {
    own: VecDeque<PktBuf>,
    /// The sum of their lengths.
    bytes: usize,
    /// In order, each with the number of frames of `own` before it.
    shared: Vec<(usize, SharedBuf)>,
    /// Empty, kept for its memory.
    run: VecDeque<PktBuf>,
}

/// A part of the waiting frames.
pub(crate) enum OutgoingPart<'a> {
    /// Frames to transmit together, and the sum of their lengths; those that stay are dropped.
    Run(&'a mut VecDeque<PktBuf>, usize),
    /// A flooded frame.
    Shared(SharedBuf),
}

impl Outgoing {
    /// Adds a frame; true if none waited before.
    #[inline(always)]
    pub(crate) fn push(&mut self, frame: PktBuf) -> bool {
        self.bytes += frame.len();
        self.own.push_back(frame);
        self.own.len() == 1 && self.shared.is_empty()
    }

    /// The same for what a port gets of a flooded frame.
    pub(crate) fn push_flooded(&mut self, frame: FloodedFrame) -> bool {
        match frame {
            FloodedFrame::Own(frame) => self.push(frame),
            FloodedFrame::Shared(frame) => {
                self.shared.push((self.own.len(), frame));
                self.own.is_empty() && self.shared.len() == 1
            }
        }
    }

    /// Adds all of `frames`, with this sum of lengths; `frames` stays empty.
    #[inline]
    pub(crate) fn append(&mut self, frames: &mut Vec<PktBuf>, bytes: usize) {
        self.bytes += bytes;
        if self.own.is_empty() {
            // Both keep their memory.
            let empty = Vec::from(std::mem::take(&mut self.own));
            self.own = VecDeque::from(std::mem::replace(frames, empty));
        } else {
            self.own.extend(frames.drain(..));
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.own.len() + self.shared.len()
    }

    /// Removes all.
    pub(crate) fn clear(&mut self) {
        self.own.clear();
        self.bytes = 0;
        self.shared.clear();
    }

    /// The frames with one owner, to be taken out, and the sum of their lengths, if no other waits between them: nearly always.
    #[inline]
    pub(crate) fn only_own(&mut self) -> Option<(&mut VecDeque<PktBuf>, usize)> {
        if !self.shared.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        Some((&mut self.own, bytes))
    }

    /// Removes all, in order, and passes each part to `take`.
    pub(crate) fn take_parts(&mut self, mut take: impl FnMut(OutgoingPart<'_>)) {
        let (mut passed, mut bytes) = (0, std::mem::take(&mut self.bytes));
        for (before, frame) in self.shared.drain(..) {
            if passed < before {
                self.run.extend(self.own.drain(..before - passed));
                let of_run = self.run.iter().map(|frame| frame.len()).sum::<usize>();
                bytes -= of_run;
                take(OutgoingPart::Run(&mut self.run, of_run));
                self.run.clear();
                passed = before;
            }
            take(OutgoingPart::Shared(frame));
        }
        if !self.own.is_empty() {
            take(OutgoingPart::Run(&mut self.own, bytes));
            self.own.clear();
        }
    }
}
