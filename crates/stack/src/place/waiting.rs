//! How a connection of a cell goes to the cell's [`TimeWaits`](super::time_wait::TimeWaits), and comes back.
//!
//! It goes when its events say that it is in TIME-WAIT without a user ([`tcp::TableChange::Waits`]). It comes back, as a
//! connection with a new slot and a new socket that nobody has, before the next event that concerns it: when a look-up
//! of its tuple finds nothing else, when its link is removed, and when the cell is dissolved. After the event it goes
//! again. Only the end of TIME-WAIT does not need the connection. The account charges it all the time.
//!
//! What may never happen: that a user's connection goes, or one that anything else refers to.

use observe::{Counter, Time};
use sync::Platform;
use tcp::{LimitClass, TimeWait};

use super::Cell;
use super::connection::Connection;
use crate::account::Charge;
use crate::charge;
use crate::connections::Place;
use crate::flow::Flow;
use crate::route_cache::RouteCache;
use crate::socket::TcpSocket;
use crate::table::index::VacantEntry;

/// The place of a connection in the wheel is this for all that wait. No slot has this number.
pub(super) const WAITS: u32 = u32::MAX - 1;

impl<P: Platform> Cell<P> {
    /// The connection in `slot` goes, if all that is known of it has a place there. Returns when the wheel must be
    /// advanced for it, as [`Place::arm`].
    pub(super) fn lay_down(&mut self, slot: u32, now: Time) -> Option<u64> {
        let connections = &mut self.directory.connections;
        let connection = connections.at(slot)?;
        let (flow_hash, timer, charge) = (connection.flow.hash, connection.timer, connection.charge);
        let kept = TimeWait::of(&connection.pcb, Some(flow_hash), self.shared.control().tcp(), now);
        let charged = charge.memory != 0 || charge.standing != LimitClass::TimeWait;
        let referred = self.handlers.has(slot) || self.directory.early.contains_key(&slot);
        let kept = kept.filter(|_| !charged && !referred)?;
        let ends_first = self.directory.connections.waits.has_no_first();
        if !self.directory.connections.lay_down(slot, kept, now) {
            return None;
        }
        self.wheel.cancel(timer, slot);
        self.channels.remove(slot);
        // Otherwise the wheel waits for the first already.
        Some(if ends_first { self.await_first() } else { u64::MAX })
    }

    /// The same for connections of another cell, each with its deadline.
    pub(super) fn lay_down_all(&mut self, mut waiting: Vec<(Option<Time>, u32)>) {
        let now = self.shared.clock().now();
        waiting.sort_unstable();
        waiting.into_iter().for_each(|(_, slot)| _ = self.lay_down(slot, now));
    }

    /// The connection of this flow, if it waits.
    #[cold]
    #[inline(never)]
    pub(super) fn find_waiting(&mut self, flow: &Flow, absent: VacantEntry) -> Result<(u32, ()), VacantEntry> {
        // One at a time: an event may have come to nothing.
        let out = self.directory.connections.waits.out();
        if let Some(key) = out.filter(|key| self.directory.connections.has(*key)) {
            self.lay_down(key.slot, self.shared.clock().batch_now());
        }
        self.revive(flow, absent).map(|slot| (slot, ())).ok_or(absent)
    }

    /// The connection of this flow comes back, if it waits; it is not in the table.
    fn revive(&mut self, flow: &Flow, absent: VacantEntry) -> Option<u32> {
        let connections = &mut self.directory.connections;
        let (position, kept) = connections.waits.take(&flow.tuple, absent)?;
        let (config, near) = (self.shared.control().tcp(), connections.waits.near());
        let pcb = kept.revive(&flow.tuple, Some(flow.hash), config, near);
        let (socket, deadline) = (TcpSocket::new(*flow), kept.deadline(near));
        let route = RouteCache::at_generation(self.shared.routes().generation());
        let key = connections.insert(absent, flow, || {
            let charge = Charge { memory: 0, standing: LimitClass::TimeWait };
            Connection { charge, ..Connection::new(absent, *flow, socket.clone(), route, pcb) }
        });
        socket.placed(key);
        connections.bindings.release(flow.hash);
        connections.waits.revived(key, position, deadline);
        self.arm(&key.slot, deadline);
        Some(key.slot)
    }

    /// All that wait and whose flow `concerns` come back.
    pub(super) fn revive_those(&mut self, concerns: &impl Fn(&Flow) -> bool) {
        for tuple in self.directory.connections.waits.tuples() {
            let flow = Flow { tuple, hash: self.shared.egress().rss().hash_tcp(&tuple) };
            if concerns(&flow)
                && let Err(absent) = self.directory.connections.find(&tuple, flow.hash)
            {
                self.revive(&flow, absent);
            }
        }
    }

    /// The TIME-WAITs that have ended by `now` are over.
    pub(super) fn expire_waits(&mut self, now: Time) {
        let control = self.shared.control();
        let mut expired = 0;
        let connections = &mut self.directory.connections;
        let bound = connections.bindings.are_kept();
        while let Some((tuple, kept)) = connections.waits.expire(now, bound) {
            if let Some(tuple) = tuple {
                connections.bindings.release(self.shared.egress().rss().hash_tcp(&tuple));
            }
            kept.expire(&self.counters);
            expired += 1;
        }
        control.account().end_time_waits(&self.account, expired, control.tcp());
        self.counters.add(Counter::TimersFired, expired as u64);
        charge::timers::<P>(expired);
        self.await_first();
    }

    /// The wheel wakes the cell when the first TIME-WAIT ends.
    fn await_first(&mut self) -> u64 {
        let waits = &mut self.directory.connections.waits;
        let due = waits.deadline().map_or(u64::MAX, |deadline| self.wheel.arm(&mut waits.timer, WAITS, deadline));
        self.note_deadline();
        due
    }
}
