//! [`WaitingMessages`]: the messages that wait at one queue, in order, and its water marks.
//!
//! The chain puts messages in at the back and takes them out at the front. A message whose immediate part is run by the
//! thread that delivered it is *lent*: it counts until the rest of it returns, because the queue has not become
//! shorter.

use std::collections::VecDeque;

use super::{ANYONE, Carrier};
use crate::message::Message;
use crate::queue::WaterMarks;

pub(super) enum Item {
    Message(Message),
    /// Nothing follows.
    End,
}

/// A message, or the end, at a queue.
pub(super) struct Waiting {
    pub(super) item: Item,
    pub(super) carrier: Carrier,
    /// `put` has run: the rest is for `svc`.
    pub(super) seen: bool,
}

impl Waiting {
    /// Any thread may carry it.
    pub(super) fn left_by_a_change(message: Message) -> Waiting {
        Waiting { item: Item::Message(message), carrier: ANYONE, seen: false }
    }

    /// In bytes.
    pub(super) fn weight(&self) -> usize {
        match &self.item {
            Item::Message(message) => message.weight(),
            Item::End => 0,
        }
    }
}

/// See the head of the file.
pub(super) struct WaitingMessages {
    waiting: VecDeque<Waiting>,
    /// Weight of the messages that wait or are lent, in bytes.
    weight: usize,
    marks: WaterMarks,
    full: bool,
}

impl WaitingMessages {
    pub(super) fn new(marks: WaterMarks) -> WaitingMessages {
        WaitingMessages { waiting: VecDeque::new(), weight: 0, marks, full: false }
    }

    /// It has reached its high-water mark and not fallen to its low-water mark since.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn first(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter()
    }

    pub(super) fn put(&mut self, waiting: Waiting) {
        self.weight += waiting.weight();
        self.waiting.push_back(waiting);
        self.mark();
    }

    pub(super) fn take(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.weight -= waiting.weight();
        self.mark();
        Some(waiting)
    }

    /// The first message, which counts until it is [settled](WaitingMessages::settle).
    pub(super) fn lend(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// Returns the rest of a message that was lent with this weight. It is the first one again.
    pub(super) fn settle(&mut self, lent: usize, left: Option<Waiting>) {
        self.weight -= lent;
        if let Some(left) = left {
            self.weight += left.weight();
            self.waiting.push_front(left);
        }
        self.mark();
    }

    /// All waiting messages.
    pub(super) fn take_all(&mut self) -> VecDeque<Waiting> {
        self.weight = 0;
        self.mark();
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn set_marks(&mut self, marks: WaterMarks) {
        self.marks = marks;
        self.mark();
    }

    fn mark(&mut self) {
        self.full = self.weight >= self.marks.high() || self.full && self.weight > self.marks.low();
    }
}
