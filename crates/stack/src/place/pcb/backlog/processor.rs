//! Work that is left for a *processor*, one thread that alone does what is left for a value (gVisor: `segmentQueue`,
//! `processor`, `LockUser`, `UnlockUser`).
//!
//! Any thread leaves work ([`Backlogged::leave`]), and never does it. A value that is free and has work waits in the queue of
//! its processor, once: it is marked as *queued*. The processor takes it from there, removes the mark, and owns it for a turn
//! if it is free ([`Backlogged::turn`]). It does not wait for a value in use. A thread with work that another waits for owns
//! the value as long as it needs it ([`Backlogged::own_patiently`]), and queues it when it releases it, if work was left and
//! it is not queued ([`Ownership::hand_over`]).
//!
//! The mark is set and removed under the gate, where work is left and ownership passes. So every piece of work is seen by one
//! of three: the thread that leaves it and finds the value free and not queued, the owner when it releases the value, or the
//! processor, which looks after it has removed the mark.
//!
//! What may never happen: the value is free, has work, and is not queued; it is queued twice.

use std::mem;

use sync::{PlantedMistake, Platform};

use super::{Backlogged, LeftWork, Ownership};

/// How often a thread that waits for a value looks again before it sleeps: that many times at once, and as often after
/// others have run (gVisor: `LockUser`).
const LOOKS: u32 = 5;

/// The result of [`Backlogged::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftForProcessor {
    /// The work is left, and the value counts as queued: the caller puts it into the queue of its processor.
    Queue,
    /// The work is left. The value is queued already, or its owner queues it.
    Known,
    /// There is no room for it; nothing was left.
    Full,
}

impl<E> LeftWork<E> {
    /// The value counts as queued from now on. False: it did already.
    fn queue(&mut self) -> bool {
        !mem::replace(&mut self.queued, true)
    }

    /// The oldest; what it cost is free again.
    fn take(&mut self, cost: impl FnOnce(&E) -> usize) -> Option<E> {
        let work = self.backlog.pop_front()?;
        self.cost -= cost(&work);
        Some(work)
    }
}

impl<T, E, P: Platform> Backlogged<T, E, P> {
    /// Leaves work of this cost for the processor. `most`: the cost that may be left in all; work without a cost is always
    /// taken. `work` is called only if it is left, under the gate.
    pub fn leave(&self, cost: usize, most: usize, work: impl FnOnce() -> E) -> LeftForProcessor {
        let mut gate = self.gate.lock();
        if cost != 0 && gate.cost + cost > most {
            return LeftForProcessor::Full;
        }
        gate.cost += cost;
        gate.backlog.push_back(work());
        if self.value.owner().is_none() && gate.queue() {
            return LeftForProcessor::Queue;
        }
        sync::profile::handoff::<P>(1);
        LeftForProcessor::Known
    }

    /// The calling thread is the processor, and has taken the value from its queue: it owns the value, and does this work,
    /// which is the oldest. `None`: another thread owns the value, and will queue it; or nothing is left. `cost` is the one
    /// with which work was left.
    pub fn turn(&self, cost: impl FnOnce(&E) -> usize) -> Option<(E, Ownership<'_, T, E, P>)> {
        let mut gate = self.gate.lock();
        let work = if self.value.owner().is_none() { gate.take(cost) } else { None };
        gate.queued = work.is_some() && P::makes(PlantedMistake::QueuedUntilDrained);
        let work = work?;
        let bound = self.value.bind_here();
        debug_assert!(bound.is_ok(), "ownership passes under the gate");
        Some((work, Ownership { of: self }))
    }

    /// Waits until the value is free, and owns it. A short use by another thread costs no sleep.
    pub fn own_patiently(&self) -> Ownership<'_, T, E, P> {
        for look in 0..2 * LOOKS {
            if let Some(owner) = self.own_if_free() {
                return owner;
            }
            if look < LOOKS { P::relax(look) } else { P::yield_now() }
        }
        self.own()
    }

    fn own_if_free(&self) -> Option<Ownership<'_, T, E, P>> {
        if self.value.owner().is_some() {
            return None;
        }
        let _gate = self.gate.lock();
        let is_free = self.value.owner().is_none() && self.value.bind_here().is_ok();
        is_free.then(|| Ownership { of: self })
    }

    /// The calling thread owns the value already, further up its stack: uses it once more. The ownership does not end with
    /// the result, which is never dropped.
    pub fn own_again(&self) -> Option<mem::ManuallyDrop<Ownership<'_, T, E, P>>> {
        let is_mine = self.value.owner() == Some(P::thread_index());
        is_mine.then(|| mem::ManuallyDrop::new(Ownership { of: self }))
    }
}

impl<T, E, P: Platform> Ownership<'_, T, E, P> {
    /// The oldest work that is left, in a turn of the processor. `None`: there is none, and the value is free.
    pub fn next_in_turn(self, cost: impl FnOnce(&E) -> usize) -> Option<(E, Self)> {
        let mut gate = self.of.gate.lock();
        if let Some(work) = gate.take(cost) {
            drop(gate);
            return Some((work, self));
        }
        self.of.release(gate);
        if P::makes(PlantedMistake::QueuedUntilDrained) {
            self.of.gate.lock().queued = false;
        }
        mem::forget(self);
        None
    }

    /// Releases the value. True: work is left, and the caller puts the value into the queue of its processor.
    pub fn hand_over(self) -> bool {
        let mut gate = self.of.gate.lock();
        let forgets = P::makes(PlantedMistake::ReleaseWithoutHandOver);
        let queues = !gate.backlog.is_empty() && !forgets && gate.queue();
        self.of.release(gate);
        mem::forget(self);
        queues
    }
}

#[cfg(test)]
mod tests {
    use sync::{LockKind, Real};

    use super::LeftForProcessor::{Full, Known, Queue};
    use super::*;

    type Value = Backlogged<Vec<u32>, u32, Real>;

    fn value() -> Value {
        Value::new(LockKind::Blocking, Vec::new())
    }

    /// The cost of each piece of work here.
    fn one(_: &u32) -> usize {
        1
    }

    /// Another thread leaves this.
    fn leaves(value: &Value, work: u32) -> LeftForProcessor {
        std::thread::scope(|scope| scope.spawn(|| value.leave(1, 2, || work)).join().expect("it ends well"))
    }

    /// `processor.queueEndpoint`: "only queue an endpoint once".
    #[test]
    fn a_value_is_queued_once_until_its_processor_has_taken_it() {
        let value = value();
        assert_eq!([leaves(&value, 1), leaves(&value, 2)], [Queue, Known]);
        let (work, owner) = value.turn(one).expect("it is free, and has work");
        assert_eq!((work, leaves(&value, 3)), (1, Known), "its owner looks for more");
        let (work, owner) = owner.next_in_turn(one).expect("two are left");
        assert_eq!(work, 2);
        assert_eq!(owner.next_in_turn(one).map(|(work, owner)| (work, owner.hand_over())), Some((3, false)));
        assert_eq!(leaves(&value, 4), Queue);
    }

    /// `UnlockUser`: "if there are segments to be processed, hand them to the processor"; `TryLock` fails meanwhile.
    #[test]
    fn a_user_hands_over_what_was_left_and_the_processor_passes_over_a_value_in_use() {
        let value = value();
        let user = value.own_patiently();
        assert_eq!([leaves(&value, 1), leaves(&value, 2)], [Known, Known], "nothing more is done");
        assert!(value.turn(one).is_none(), "in use");
        assert!(user.hand_over(), "it queues the value");
        let second = value.own_patiently();
        assert!(!second.hand_over(), "it is queued already");
        assert_eq!(value.turn(one).map(|(work, owner)| (work, owner.hand_over())), Some((1, true)), "one is left");
        let (work, owner) = value.turn(one).expect("it is free, and has work");
        assert!(work == 2 && owner.next_in_turn(one).is_none());
        assert!(value.turn(one).is_none(), "nothing is left");
        assert!(!value.own_patiently().hand_over());
    }

    /// What has been taken makes room at once.
    #[test]
    fn there_is_room_for_as_much_as_is_not_taken() {
        let value = value();
        assert_eq!([leaves(&value, 1), leaves(&value, 2), leaves(&value, 3)], [Queue, Known, Full]);
        assert_eq!(value.leave(0, 2, || 4), Known, "no cost is always taken");
        let cost = |work: &u32| usize::from(*work != 4);
        let (work, owner) = value.turn(cost).expect("three are left");
        assert_eq!((work, leaves(&value, 5), leaves(&value, 6)), (1, Known, Full));
        let (work, owner) = owner.next_in_turn(cost).expect("three are left");
        assert!(work == 2 && owner.hand_over(), "two are left");
    }

    /// The effects of an event may use its connection: by the thread that owns it already.
    #[test]
    fn an_owner_may_use_its_value_once_more() {
        let value = value();
        assert!(value.own_again().is_none());
        let owner = value.own_patiently();
        value.own_again().expect("it is this thread's").with(|done| done.push(7));
        assert_eq!(std::thread::scope(|scope| scope.spawn(|| value.own_again().is_none()).join().ok()), Some(true));
        assert!(!owner.hand_over());
        assert_eq!(value.into_inner(), [7]);
    }
}
