//! [`Claimant`]: which thread may run which queue. [`Job`]: a queue that runs.
//!
//! With [`Chain::has_more`], each variant of [`Claimant`] is a line of the definition of a process architecture
//! (`architecture.rs`). All of them claim the first message of a queue that is not in use, and none, except for a change of the
//! stream, one whose result would go to a full queue.

use std::sync::Arc;

use sync::{PlantedMistake, Platform};

use super::waiting_messages::{Item, Waiting};
use super::{ANYONE, Carrier, Chain, PlaceId};
use crate::error::StreamError;
use crate::queue::{Passed, Queue, Side};

/// A claiming thread, and the work that it may claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claimant {
    /// All messages that wait on this side.
    Caller(Side),
    /// The messages of this carrier on this side, through all queues.
    Escort(Side, Carrier),
    /// The messages at both queues of a module, and the immediate part of those that it passes on.
    Owner(PlaceId, Carrier),
    /// The immediate part of the message that the carrier has delivered to a queue.
    Bringer(Carrier),
    /// The messages that a change waits for: those at a module or on their way to it.
    Changer(PlaceId),
}

impl Claimant {
    /// The operation that carries the messages that its queues pass on.
    fn carrier(self) -> Carrier {
        match self {
            Claimant::Owner(_, carrier) | Claimant::Bringer(carrier) | Claimant::Escort(_, carrier) => carrier,
            Claimant::Caller(_) | Claimant::Changer(_) => ANYONE,
        }
    }
}

/// A queue that its thread runs, and the message that it runs it with.
pub(crate) struct Job {
    id: PlaceId,
    pub(crate) name: Arc<str>,
    side: Side,
    carrier: Carrier,
    queue: Box<dyn Queue>,
    work: Option<Waiting>,
    /// The weight of the message that its queue still counts, in bytes: the message is lent for its immediate part.
    /// `None`: `svc` is run, too.
    lent: Option<usize>,
    passed: Passed,
    ended: bool,
    error: Option<String>,
    /// The place of the next queue when this was claimed. Only a planted mistake uses it.
    next_then: Option<PlaceId>,
}

impl Job {
    /// Runs the queue: no lock is held.
    pub(crate) fn run(&mut self) {
        let Some(waiting) = self.work.take() else { return };
        let (queue, passed) = (&mut self.queue, &mut self.passed);
        let result = match waiting.item {
            Item::End => {
                self.ended = true;
                queue.end(passed)
            }
            Item::Message(message) => {
                let left = if waiting.seen { Ok(Some(message)) } else { queue.put(message, passed) };
                match left {
                    Ok(Some(message)) if self.lent.is_none() => queue.svc(message, passed),
                    Ok(left) => {
                        let waiting = |message| Waiting { item: Item::Message(message), seen: true, ..waiting };
                        self.work = left.map(waiting);
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
        };
        self.error = result.err();
    }
}

impl Chain {
    /// Takes out the queue that `claimant` may run next, furthest along the way first, and its first message.
    pub(crate) fn claim(&mut self, claimant: Claimant) -> Option<Job> {
        if self.failure.is_some() {
            return None;
        }
        let last = self.top() - 1;
        let read = (1..=last).rev().map(|at| (at, Side::Read));
        let write = (0..=last).map(|at| (at, Side::Write));
        let (at, side, serves) = read.chain(write).find_map(|(at, side)| {
            let serves = self.may_run(at, side, claimant)?;
            Some((at, side, serves))
        })?;
        let next_then = self.next(at, side).map(|next| self.links[next].id);
        let link = &mut self.links[at];
        let (id, name) = (link.id, link.name.clone());
        let queue = link.of_mut(side);
        let work = if serves { queue.input.take()? } else { queue.input.lend()? };
        Some(Job {
            id,
            name,
            side,
            carrier: claimant.carrier(),
            queue: queue.queue.take()?,
            lent: (!serves).then(|| work.weight()),
            work: Some(work),
            passed: Passed::default(),
            ended: false,
            error: None,
            next_then,
        })
    }

    /// Whether `claimant` may run this queue now, and if so, whether `svc`, too.
    fn may_run(&self, at: usize, side: Side, claimant: Claimant) -> Option<bool> {
        let link = &self.links[at];
        let queue = link.of(side);
        let first = queue.input.first().filter(|_| queue.queue.is_some())?;
        let serves = match claimant {
            Claimant::Caller(of) => (of == side).then_some(true),
            Claimant::Escort(of, carrier) => {
                (of == side && (first.carrier == carrier || first.carrier == ANYONE)).then_some(true)
            }
            Claimant::Owner(id, _) if id == link.id => Some(true),
            Claimant::Owner(_, carrier) | Claimant::Bringer(carrier) => {
                let immediate = first.carrier == carrier && !first.seen && matches!(first.item, Item::Message(_));
                immediate.then_some(false)
            }
            Claimant::Changer(id) => self.is_before(at, side, id).then_some(true),
        }?;
        let is_changer = matches!(claimant, Claimant::Changer(_));
        let accepted = self.next(at, side).is_none_or(|next| !self.links[next].of(side).input.is_full());
        (accepted || is_changer).then_some(serves)
    }

    /// Whether a message at this queue is at the module at `id`, or has not passed it yet.
    pub(super) fn is_before(&self, at: usize, side: Side, id: PlaceId) -> bool {
        self.at(id).is_some_and(|module| match side {
            Side::Read => at <= module,
            Side::Write => at >= module,
        })
    }

    /// Whether `claimant` should wait for more to claim.
    pub(crate) fn has_more(&self, claimant: Claimant) -> bool {
        match claimant {
            // A message that has arrived at the head is no longer carried.
            Claimant::Escort(side, carrier) => self.links[..self.top()]
                .iter()
                .any(|link| link.of(side).input.iter().any(|waiting| waiting.carrier == carrier)),
            Claimant::Owner(id, _) => self.at(id).is_some(),
            Claimant::Caller(_) | Claimant::Bringer(_) | Claimant::Changer(_) => false,
        }
    }

    /// Returns a queue to the chain, and moves the messages that it has passed on to the next one.
    pub(crate) fn complete<P: Platform>(&mut self, job: Job) {
        let Some(at) = self.at(job.id) else { return };
        let Job { side, carrier, queue, work, lent, passed, ended, error, next_then, .. } = job;
        let own = self.links[at].of_mut(side);
        own.queue = Some(queue);
        if let Some(lent) = lent {
            own.input.settle(lent, work);
        }
        if let Some(reason) = error {
            self.fail(match at {
                0 => StreamError::Bottom(reason),
                _ => StreamError::Module { module: job.name.to_string(), reason },
            });
        }
        // The place of the next queue now: it may be another than when this was claimed.
        let next = match next_then {
            Some(then) if P::makes(PlantedMistake::StaleSuccessor) => self.at(then),
            _ => self.next(at, side),
        };
        if let Some(next) = next {
            let messages = passed.0.into_iter().map(Item::Message).chain(ended.then_some(Item::End));
            messages.for_each(|item| self.put(next, side, Waiting { item, carrier, seen: false }));
        }
    }
}
