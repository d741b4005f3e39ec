//! [`Outgoing`]: the frames that wait for a port until the end of a batch, in the order in which they leave.

use std::collections::VecDeque;

use pktbuf::{PktBuf, SharedBuf};

use crate::flood::FloodedFrame;

/// Frames with one owner are in a queue of their own, which a device takes as a whole. A frame that other ports hold, too, has
/// a place between them.
#[derive(Default)]
pub(crate) struct Outgoing {
    own: VecDeque<PktBuf>,
    /// In order, each with the number of frames of `own` before it.
    shared: Vec<(usize, SharedBuf)>,
    /// Empty, kept for its memory.
    run: VecDeque<PktBuf>,
}

/// A part of the waiting frames.
pub(crate) enum OutgoingPart<'a> {
    /// Frames to transmit together; those that stay are dropped.
    Run(&'a mut VecDeque<PktBuf>),
    /// A flooded frame.
    Shared(SharedBuf),
}

impl Outgoing {
    /// Adds a frame; true if none waited before.
    #[inline(always)]
    pub(crate) fn push(&mut self, frame: PktBuf) -> bool {
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

    /// Adds all of `frames`, which stays empty.
    #[inline]
    pub(crate) fn append(&mut self, frames: &mut Vec<PktBuf>) {
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
        self.shared.clear();
    }

    /// The frames with one owner, if no other waits between them: nearly always.
    #[inline]
    pub(crate) fn only_own(&mut self) -> Option<&mut VecDeque<PktBuf>> {
        if self.shared.is_empty() { Some(&mut self.own) } else { None }
    }

    /// Removes all, in order, and passes each part to `take`.
    pub(crate) fn take_parts(&mut self, mut take: impl FnMut(OutgoingPart<'_>)) {
        let mut passed = 0;
        for (before, frame) in self.shared.drain(..) {
            if passed < before {
                self.run.extend(self.own.drain(..before - passed));
                take(OutgoingPart::Run(&mut self.run));
                self.run.clear();
                passed = before;
            }
            take(OutgoingPart::Shared(frame));
        }
        if !self.own.is_empty() {
            take(OutgoingPart::Run(&mut self.own));
            self.own.clear();
        }
    }
}
