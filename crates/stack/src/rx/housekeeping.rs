//! A driver's work between batches: timers, devices that vanish or return, and connections that wait for room in a
//! device's queue.

use observe::{Counter, Time};
use path::TransmitQueue;
use sync::{Atomic, Ordering, Platform};

use super::{Driver, RxSource};
use crate::arch::at_tables;
use crate::batch_checks::{LOST_ADDRESSES, REBUILDS};
use crate::call::{ControlRequest, Ingress};
use crate::deferred::DeferredEffects;
use crate::exchange::rebuild;
use crate::flow::Target;

/// The most connections waiting for room in a device that get a turn after each batch.
const ROOM_TURNS: usize = 64;

impl<P: Platform> Driver<P> {
    /// The connections of a vanished device end, and none can be opened through it until it is back.
    pub(super) fn check_devices(&mut self) {
        for RxSource { port, interface, queue, .. } in &self.sources {
            let (gone, known) = (queue.gone(), self.lost.contains(port));
            if gone && !known {
                self.lost.push(*port);
                let last = self.set_port_down(*port, *interface, true);
                if let Some(interface) = interface.filter(|_| last) {
                    self.active.control(ControlRequest::LinkDown(interface));
                }
            } else if known && !gone {
                self.lost.retain(|lost| lost != port);
                self.set_port_down(*port, *interface, false);
            }
        }
    }

    /// See [`Routes::set_port_down`](crate::routes::Routes::set_port_down).
    pub(super) fn set_port_down(&self, port: usize, interface: Option<usize>, down: bool) -> bool {
        let shared = self.shared.clone();
        let set = move || shared.routes().set_port_down(shared.links(), port, interface, down);
        at_tables(&*self.active, set).unwrap_or(false)
    }

    pub(super) fn housekeeping(&mut self, now: Time, deferred: &mut DeferredEffects<P>) {
        self.active.tick(now);
        self.shared.control().weigh_memory(now);
        if self.checks.failures.load(Ordering::Relaxed) {
            self.shared.failures.notify_pending();
        }
        if self.checks.deadline.get() <= now {
            self.trim(now, deferred);
            self.packets().timeouts(now, deferred);
        }
        if self.checks.any_seldom() {
            self.seldom_work(deferred);
        }
        if self.checks.any_waited() {
            self.serve_waiting(now, deferred);
        }
        deferred.flush(self.shared.links());
        self.announce(deferred);
    }

    #[cold]
    #[inline(never)]
    fn seldom_work(&mut self, deferred: &mut DeferredEffects<P>) {
        if self.checks.has(LOST_ADDRESSES) {
            self.end_connections_of_lost_addresses();
        }
        if self.checks.take(REBUILDS) {
            // Nothing is left to do under the old architecture.
            deferred.flush(self.shared.links());
            self.announce(deferred);
            deferred.release_set();
            rebuild(&self.shared, &self.slot);
            self.find_architecture();
        }
    }

    fn end_connections_of_lost_addresses(&self) {
        for address in self.shared.addresses().take_lost() {
            // It may be on another interface as well.
            if !self.shared.links().is_local(address) {
                self.active.control(ControlRequest::AddressLost(address));
            }
        }
    }

    /// Gives back memory that a peak has left behind, if it is time to look for some.
    #[cold]
    fn trim(&self, now: Time, deferred: &mut DeferredEffects<P>) {
        let schedule = self.shared.internet().schedule();
        if !schedule.takes_trim(now) {
            return;
        }
        deferred.release_set();
        if self.active.trim() {
            schedule.trim_again(now, deferred);
        }
        pktbuf::trim();
    }

    /// Connections that wait for room in this driver's device queues get their turn, longest waiting first, each once.
    #[inline(never)]
    fn serve_waiting(&self, now: Time, deferred: &mut DeferredEffects<P>) {
        let ports = (0..self.shared.links().ports().iter().len()).filter(|port| self.checks.may_wait(*port));
        for queue in ports.flat_map(|port| self.served_queues(port)) {
            if queue.drain() {
                queue.flush();
            }
            for before in 0..queue.blocked().min(ROOM_TURNS) {
                let Some(target) = queue.pop_ready_sender(before) else { break };
                self.counters.add(Counter::RoomTurns, 1);
                self.active.post(&mut Ingress::TransmitReady(target), now, deferred);
            }
        }
    }

    /// Those of one port: the queues of this driver, and all that the calling thread has claimed.
    #[inline]
    pub(super) fn served_queues(&self, port: usize) -> impl Iterator<Item = &TransmitQueue<P, Target>> {
        let own = self.served[port].clone();
        let queues = self.shared.links().ports()[port].queues().iter().enumerate();
        queues.filter(move |(index, queue)| own.contains(index) || queue.is_claimed_here()).map(|(_, queue)| queue)
    }
}
