//! [`Chain`]: the modules of a stream in their order, and the messages that wait at each queue.
//!
//! Plain data: no thread, lock or platform. `stream.rs` keeps it under one lock, which is never held while a queue runs: a
//! thread *claims* a piece of work ([`Chain::claim`]), which takes the queue out of the chain, runs it ([`Job::run`]),
//! and *completes* it ([`Chain::complete`]), which returns the queue and moves the messages that it passed on to the
//! next one. A queue that is out of the chain is in use, so one thread at a time uses it. The first message is claimed,
//! so order is kept.
//!
//! | file | owns |
//! |---|---|
//! | `chain/waiting_messages.rs` | the messages that wait at one queue, in order; its water marks |
//! | `chain/claim.rs` | which thread may run which queue; a queue that runs |
//! | `chain/relink.rs` | insertion and removal of modules |
//!
//! What may never happen: a message leaves the list of a queue other than by its front; a queue that has reached its
//! high-water mark gets more messages from a claim made before it has fallen to its low-water mark.

mod claim;
mod relink;
#[cfg(test)]
mod tests;
mod waiting_messages;

use std::sync::Arc;

use crate::error::StreamError;
use crate::message::Message;
use crate::queue::{Queue, Side, WaterMarks};

pub(crate) use claim::{Claimant, Job};
use waiting_messages::{Item, Waiting, WaitingMessages};

/// A module's place in the chain, as long as it is there. A module that replaces another has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceId(u64);

/// The operation that carries a message, by its number.
pub(crate) type Carrier = u64;

/// The carrier of messages that a change of the stream has moved: any thread that carries messages on this side.
pub(crate) const ANYONE: Carrier = 0;

/// A queue of the chain, with its waiting messages.
struct ChainQueue {
    /// `None` while a thread runs it, and at both ends, which have no queue to run.
    queue: Option<Box<dyn Queue>>,
    input: WaitingMessages,
}

impl ChainQueue {
    fn new(queue: Option<Box<dyn Queue>>, marks: WaterMarks) -> ChainQueue {
        ChainQueue { queue, input: WaitingMessages::new(marks) }
    }
}

/// A module in the chain, or one end of it.
struct Link {
    id: PlaceId,
    name: Arc<str>,
    marks: WaterMarks,
    /// By [`Side`].
    queues: [ChainQueue; 2],
}

impl Link {
    fn of(&self, side: Side) -> &ChainQueue {
        &self.queues[side as usize]
    }

    fn of_mut(&mut self, side: Side) -> &mut ChainQueue {
        &mut self.queues[side as usize]
    }
}

/// See the head of the file. The first link is the bottom, the last the head, which the application uses.
pub(crate) struct Chain {
    links: Vec<Link>,
    places: u64,
    carriers: Carrier,
    /// The error that has ended the stream.
    pub(crate) failure: Option<StreamError>,
    /// A thread waits for the bottom's next message.
    pub(crate) receiving: bool,
    /// The bottom has reported its end.
    pub(crate) received_all: bool,
    /// The application has ended the write side.
    pub(crate) written_all: bool,
    /// A module is being removed: no message enters at either end.
    pub(crate) held_off: bool,
}

impl Chain {
    /// A chain without modules: written messages go to `bottom`.
    pub(crate) fn new(bottom: Box<dyn Queue>, marks: WaterMarks) -> Chain {
        let mut chain = Chain {
            links: Vec::new(),
            places: 0,
            carriers: ANYONE,
            failure: None,
            receiving: false,
            received_all: false,
            written_all: false,
            held_off: false,
        };
        for (name, write) in [("bottom", Some(bottom)), ("head", None)] {
            let queues = [ChainQueue::new(None, marks), ChainQueue::new(write, marks)];
            let id = chain.place();
            chain.links.push(Link { id, name: name.into(), marks, queues });
        }
        chain
    }

    fn place(&mut self) -> PlaceId {
        self.places += 1;
        PlaceId(self.places)
    }

    /// A carrier with a number of its own.
    pub(crate) fn carrier(&mut self) -> Carrier {
        self.carriers += 1;
        self.carriers
    }

    fn at(&self, id: PlaceId) -> Option<usize> {
        self.links.iter().position(|link| link.id == id)
    }

    fn top(&self) -> usize {
        self.links.len() - 1
    }

    fn next(&self, at: usize, side: Side) -> Option<usize> {
        match side {
            Side::Read => Some(at + 1).filter(|next| *next < self.links.len()),
            Side::Write => at.checked_sub(1),
        }
    }

    /// The place at which messages enter on this side.
    fn entry(&self, side: Side) -> usize {
        match side {
            Side::Read => 1,
            Side::Write => self.top() - 1,
        }
    }

    /// The modules, from the top to the bottom.
    pub(crate) fn names(&self) -> Vec<String> {
        self.links[1..self.top()].iter().rev().map(|link| link.name.to_string()).collect()
    }

    /// The places with a queue to run: the bottom and the modules, from the bottom.
    pub(crate) fn places(&self) -> Vec<(PlaceId, Arc<str>)> {
        self.links[..self.top()].iter().map(|link| (link.id, link.name.clone())).collect()
    }

    /// The place of the module with this name.
    pub(crate) fn named(&self, name: &str) -> Option<PlaceId> {
        self.links[1..self.top()].iter().find(|link| *link.name == *name).map(|link| link.id)
    }

    /// The place of the module at the top.
    pub(crate) fn topmost(&self) -> Option<PlaceId> {
        let modules = &self.links[1..self.top()];
        modules.last().map(|link| link.id)
    }

    /// Whether a message may enter on this side.
    pub(crate) fn has_room(&self, side: Side) -> bool {
        !self.held_off && !self.links[self.entry(side)].of(side).input.is_full()
    }

    /// Whether the write side is idle: no message waits and no queue runs.
    pub(crate) fn has_sent_all(&self) -> bool {
        let mut queues = self.links[..self.top()].iter().map(|link| link.of(Side::Write));
        queues.all(|queue| queue.queue.is_some() && queue.input.is_empty())
    }

    /// A message, or the end, enters. There should be [room](Chain::has_room); a message that has been received meanwhile
    /// enters without.
    pub(crate) fn enter(&mut self, side: Side, message: Option<Message>, carrier: Carrier) {
        let item = message.map_or(Item::End, Item::Message);
        let entry = self.entry(side);
        self.put(entry, side, Waiting { item, carrier, seen: false });
    }

    fn put(&mut self, at: usize, side: Side, waiting: Waiting) {
        self.links[at].of_mut(side).input.put(waiting);
    }

    /// The next message for the application; `Some(None)`: the end, which stays.
    pub(crate) fn take_top(&mut self) -> Option<Option<Message>> {
        let top = self.top();
        let input = &mut self.links[top].of_mut(Side::Read).input;
        if matches!(input.first()?.item, Item::End) {
            return Some(None);
        }
        match input.take()?.item {
            Item::Message(message) => Some(Some(message)),
            Item::End => Some(None),
        }
    }

    /// Ends the stream; the first reason stays.
    pub(crate) fn fail(&mut self, reason: StreamError) {
        self.failure.get_or_insert(reason);
    }
}
