//! How long a driver may sleep, and where.
//!
//! It sleeps on a receive queue, which a frame or another thread ends; without a device it sleeps on [`Idle`].

use std::time::Duration;

use dev::{WaitOutcome, Wake};
use observe::Time;
use path::TransmitQueue;
use sync::{Parker, Platform};

use super::Driver;
use crate::alarm::ROOM_NAP;
use crate::flow::Target;

/// Where a driver sleeps after its device has vanished: timers and callers still need it.
pub(super) struct Idle<P: Platform>(pub Parker<P>);

impl<P: Platform> Wake for Idle<P> {
    fn wake(&self) {
        self.0.unpark();
    }
}

impl<P: Platform> Driver<P> {
    /// When it next has work that no frame or call triggers: a timer, a delayed frame of a device, a connection or
    /// frame that waits for room in a device. Never late; early wakes are harmless.
    pub fn next_deadline(&self) -> Time {
        let now = self.shared.clock().now();
        if self.has_looped() || self.has_turn() || self.transmit_queues().any(|queue| queue.has_blocked()) {
            return now;
        }
        let nap = self.waits_for_room().then(|| now + ROOM_NAP);
        let devices = self.sources.iter().filter_map(|source| source.queue.next_due());
        let others = devices.chain(nap).chain(self.slot.get().active.next_deadline()).min().unwrap_or(Time::MAX);
        others.min(self.shared.internet().deadline())
    }

    /// Sleeps until a frame arrives, a timer is due, the driver is woken, or `limit` has passed.
    pub fn wait(&mut self, limit: Option<Duration>) -> WaitOutcome {
        self.find_architecture();
        self.release_set();
        let now = self.shared.clock().now();
        let until = self.shared.links().alarms().park(self.index, || self.wake_deadline(now));
        let timeout = limit.into_iter().chain((until != Time::MAX).then(|| until - now)).min();
        let outcome = if self.has_looped() { WaitOutcome::Ready } else { self.sleep(timeout) };
        self.shared.links().alarms().unpark(self.index);
        outcome
    }

    /// The latest time at which it must check for work.
    fn wake_deadline(&self, now: Time) -> Time {
        if self.has_looped() || self.has_turn() {
            return now;
        }
        // With several devices the thread sleeps on the first and polls the others often enough.
        let nap = (self.sources.len() > 1 || self.waits_for_room()).then(|| now + ROOM_NAP);
        let others = nap.into_iter().chain(self.active.next_deadline()).min().unwrap_or(Time::MAX);
        others.min(self.shared.internet().deadline())
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        // Waiting on a queue that is gone returns at once, and a vanished device is reported at once. After that only
        // timers, callers and a returning device are left to wait for.
        if self.gone() {
            let now = self.shared.clock().now();
            let back = self.sources.iter().filter_map(|source| source.queue.next_due()).map(|due| due - now).min();
            self.idle.0.park(timeout.into_iter().chain(back).min());
            return WaitOutcome::Gone;
        }
        if self.awaits_turn() {
            self.idle.0.park(timeout);
            return WaitOutcome::Woken;
        }
        self.at = 0;
        let outcome = self.sources.first_mut().map_or(WaitOutcome::Gone, |source| source.queue.wait(timeout));
        if outcome == WaitOutcome::Gone && !self.gone() {
            self.idle.0.park(timeout);
        }
        outcome
    }

    /// Whether connections or frames wait for room in a device queue of this driver.
    fn waits_for_room(&self) -> bool {
        self.transmit_queues().any(|queue| queue.may_have_waiters())
    }

    /// The transmit queues that this driver serves.
    fn transmit_queues(&self) -> impl Iterator<Item = &TransmitQueue<P, Target>> {
        (0..self.shared.links().ports().iter().len()).flat_map(|port| self.served_queues(port))
    }

    /// Whether every device has vanished.
    pub fn gone(&self) -> bool {
        self.has_devices && self.sources.iter().all(|source| source.queue.gone())
    }
}
