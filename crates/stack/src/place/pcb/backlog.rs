//! A value with one owner at a time, and a bounded backlog of work that arrived for it meanwhile (Linux: `lock_sock`,
//! `sk_add_backlog`, `release_sock`).
//!
//! A small lock, the *gate*, guards the backlog. The ownership ([`ThreadOwned`]) passes from thread to thread under it
//! and lasts longer: the owner works without any lock. A thread with work that another waits for sleeps until the value
//! is free ([`Backlogged::own`]). A thread with work that no thread waits for does not sleep: it finds the value free
//! and owns it, or leaves the work ([`Backlogged::admit`]), and the owner runs it, in order, before it releases the
//! value ([`Ownership::next_left`]). Used by [`SharedPcb`](super::SharedPcb), but generic over the value.
//!
//! The cost of queued work counts until the value is free, as in Linux: an owner that drains, while others continue to
//! add work, ends after one backlog.
//!
//! Under `backlog:processor` the same value is used in another way, by the functions in `processor.rs`: the work that was left
//! is always done by one thread of the architecture's.
//!
//! What may never happen: the backlog has work and no thread owns the value. Hence the check that finds the backlog
//! empty and the release are one step, under the gate. (A panic of an owner is the exception: the next owner drains.)

mod processor;

use std::collections::VecDeque;

use sync::{Condvar, Lock, LockClass, LockKind, PlantedMistake, Platform, ThreadOwned, model_is_over};

pub use processor::LeftForProcessor;

/// Entries for which an empty backlog keeps memory.
const KEPT: usize = 16;

/// See the head of this file.
pub struct Backlogged<T, E, P: Platform> {
    value: ThreadOwned<T, P>,
    gate: Lock<LeftWork<E>, P>,
    /// The value is free.
    freed: Condvar<P>,
}

struct LeftWork<E> {
    backlog: VecDeque<E>,
    /// The cost of all that was left since the value was last free; of all that is left, where a processor does the work.
    cost: usize,
    /// The value is in the queue of its processor.
    queued: bool,
}

/// The result of [`Backlogged::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admittance {
    /// The calling thread owns the value now, and does the work itself. [`Backlogged::own`] is its next step.
    Owner,
    /// The work is in the backlog: the owner does it.
    Left,
    /// The backlog has no room for it; nothing was left.
    Full,
}

impl<T, E, P: Platform> Backlogged<T, E, P> {
    /// Free, with an empty backlog; the gate is a lock of `kind`.
    pub fn new(kind: LockKind, value: T) -> Self {
        Backlogged {
            value: ThreadOwned::new(value),
            gate: Lock::new(kind, LockClass::Backlog, LeftWork { backlog: VecDeque::new(), cost: 0, queued: false }),
            freed: Condvar::new(),
        }
    }

    /// The value, which no thread owns.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Owns the value, or leaves work of this cost for its owner. `most`: the cost that may be left in all; work
    /// without a cost is always taken. `work` is called only if it is left, under the gate.
    pub fn admit(&self, cost: usize, most: usize, work: impl FnOnce() -> E) -> Admittance {
        let mut gate = self.gate.lock();
        if self.value.owner().is_none() && self.value.bind_here().is_ok() {
            return Admittance::Owner;
        }
        if cost != 0 && gate.cost + cost > most {
            return Admittance::Full;
        }
        gate.cost += cost;
        gate.backlog.push_back(work());
        sync::profile::handoff::<P>(1);
        Admittance::Left
    }

    /// Waits until the value is free, and owns it; at once where [`Backlogged::admit`] has just made the calling thread
    /// its owner.
    pub fn own(&self) -> Ownership<'_, T, E, P> {
        if self.value.owner() != Some(P::thread_index()) {
            let gate = self.freed.wait_while(self.gate.lock(), |_| self.value.owner().is_some());
            let bound = self.value.bind_here();
            debug_assert!(bound.is_ok(), "ownership passes under the gate");
            drop(gate);
        }
        Ownership { of: self }
    }

    /// The ownership of the calling thread ends, and with it the cost of what was left.
    fn let_go(&self, mut gate: sync::Guard<'_, LeftWork<E>, P>) {
        gate.cost = 0;
        self.release(gate);
    }

    /// The ownership of the calling thread ends.
    #[inline(always)]
    fn release(&self, mut gate: sync::Guard<'_, LeftWork<E>, P>) {
        if gate.backlog.is_empty() && gate.backlog.capacity() > KEPT {
            gate.backlog.shrink_to(KEPT);
        }
        let released = self.value.release();
        debug_assert!(released.is_ok(), "the owner has left the value");
        drop(gate);
        self.freed.notify_one();
    }
}

/// The calling thread owns the value until [`Ownership::next_left`] finds nothing more to do.
#[must_use = "the value stays owned"]
pub struct Ownership<'a, T, E, P: Platform> {
    of: &'a Backlogged<T, E, P>,
}

impl<T, E, P: Platform> Ownership<'_, T, E, P> {
    /// Uses the value.
    ///
    /// # Panics
    /// Inside another use.
    pub fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        self.of.value.with(f).expect("the owner is the only user")
    }

    /// The oldest work that was left. `None`: there is none, and the value is free.
    pub fn next_left(self) -> Option<(E, Self)> {
        let mut gate = self.of.gate.lock();
        if let Some(work) = gate.backlog.pop_front() {
            drop(gate);
            return Some((work, self));
        }
        if P::makes(PlantedMistake::ReleaseInTwoSteps) {
            drop(gate);
            gate = self.of.gate.lock();
        }
        self.of.let_go(gate);
        std::mem::forget(self);
        None
    }
}

impl<T, E, P: Platform> Drop for Ownership<'_, T, E, P> {
    /// The owner panics: the value is free, and the queued work waits for the next owner.
    #[cold]
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.of.let_go(self.of.gate.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    fn drain(mut owner: Ownership<'_, Vec<u32>, u32, Real>) {
        while let Some((work, next)) = owner.next_left() {
            owner = next;
            owner.with(|done| done.push(work));
        }
    }

    /// Linux sets the length to zero when all is drained: "we can not loop forever while a wild producer attempts to
    /// flood us".
    #[test]
    fn room_comes_back_when_the_value_is_free_and_not_before() {
        let value = Backlogged::<Vec<u32>, u32, Real>::new(LockKind::Blocking, Vec::new());
        assert_eq!(value.admit(1, 2, || unreachable!("it is free")), Admittance::Owner);
        std::thread::scope(|scope| {
            let value = &value;
            let leaves = |cost, work| scope.spawn(move || value.admit(cost, 2, || work)).join().expect("it ends well");
            assert_eq!(leaves(0, 0), Admittance::Left, "the thread that was admitted is the owner already");
            let (work, owner) = value.own().next_left().expect("one was left");
            assert_eq!(work, 0);
            assert_eq!(
                [leaves(1, 1), leaves(2, 2), leaves(1, 3)],
                [Admittance::Left, Admittance::Full, Admittance::Left]
            );
            assert_eq!([leaves(1, 4), leaves(0, 5)], [Admittance::Full, Admittance::Left], "no cost is always taken");
            let (work, mut owner) = owner.next_left().expect("three were left");
            owner.with(|done| done.push(work));
            assert_eq!(leaves(1, 6), Admittance::Full, "one has been taken, and its room has not come back");
            drain(owner);
            assert_eq!(leaves(2, 7), Admittance::Owner);
        });
    }

    #[test]
    fn an_empty_backlog_keeps_memory_for_few_entries() {
        let value = Backlogged::<Vec<u32>, u32, Real>::new(LockKind::Blocking, Vec::new());
        std::thread::scope(|scope| {
            let owner = value.own();
            let left = scope.spawn(|| (0..100).all(|work| value.admit(0, 0, || work) == Admittance::Left));
            assert!(left.join().expect("it ends well"));
            assert!(value.gate.lock().backlog.capacity() >= 100);
            drain(owner);
        });
        assert!((1..=KEPT).contains(&value.gate.lock().backlog.capacity()));
        assert_eq!(value.into_inner(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn an_owner_that_panics_leaves_the_rest_to_the_next() {
        let value = Backlogged::<Vec<u32>, u32, Real>::new(LockKind::Blocking, Vec::new());
        std::thread::scope(|scope| {
            let owner = value.own();
            let left = scope.spawn(|| value.admit(1, 1, || 1)).join().expect("it ends well");
            assert_eq!(left, Admittance::Left);
            drop(owner);
            let next =
                scope.spawn(|| value.admit(1, 1, || 2) == Admittance::Owner && value.own().next_left().is_some());
            assert!(next.join().expect("it ends well"), "another thread does not wait, and finds what was left");
            drain(value.own());
        });
        assert!(value.into_inner().is_empty());
    }
}
