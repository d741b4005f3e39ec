//! Timers, changes that concern every connection of a place, and statistics.

use observe::{Counter, Time};
use tcp::TcpEvent;

use super::events::Events;
use super::handlers::HandledConnections;
use super::place::{Place, UnawaitedEvent};
use crate::call::ControlRequest;
use crate::charge;
use crate::deferred::DeferredEffects;
use crate::flow::Flow;
use crate::stats::StackStats;

/// Upkeep; see the module documentation.
pub trait Upkeep: Place {
    /// Runs the timers that are due.
    fn timers(&mut self, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        self.connection_timers(now, deferred);
        self.half_open_timers(now, deferred);
    }

    /// Runs the timers of connections that are due.
    fn connection_timers(&mut self, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        let due = self.expire(now);
        self.counters().add(Counter::TimersFired, due.len() as u64);
        charge::timers::<Self::Platform>(due.len());
        for slot in &due {
            if let Some((id, held)) = self.find_due(*slot)
                && self.admit(&id, UnawaitedEvent::Timeouts, now)
            {
                self.run_contained(&id, held, tcp::Timeouts, now, deferred);
                if self.has_handler_timer(&id) {
                    self.call_handler(&id, now, deferred);
                }
            }
        }
        self.recycle(due);
    }

    /// Runs the timers of half-open connections that are due.
    fn half_open_timers(&mut self, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        self.with_directory(|directory, site| {
            directory.half_open.timeouts(site.shared, now, site.counters, deferred);
        });
    }

    /// Applies a change that every place must see.
    fn control(
        &mut self,
        change: ControlRequest<Self::Platform>,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) {
        match change {
            ControlRequest::LinkDown(interface) => {
                let shared = self.shared().clone();
                self.each(
                    |flow| shared.routes().goes_by(shared.links(), flow, interface),
                    tcp::LinkDown,
                    now,
                    deferred,
                );
            }
            ControlRequest::AddressLost(address) => {
                self.with_directory(|directory, _| directory.half_open.abandon(address));
                self.each(|flow| flow.tuple.local_addr == address, tcp::LinkDown, now, deferred);
            }
            ControlRequest::Trim => self.trim(),
            other => self.with_directory(|directory, _| directory.bound_sockets.apply(other)),
        }
    }

    /// Runs an event on every connection that it concerns.
    #[cold]
    fn each<E: TcpEvent + Copy>(
        &mut self,
        concerns: impl Fn(&Flow) -> bool,
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) {
        for id in &self.those(concerns) {
            self.run_contained(id, Self::Held::default(), event, now, deferred);
        }
    }

    /// Statistics of the place.
    fn stats(&mut self) -> StackStats {
        let (timers, counters) = (self.armed(), self.counted());
        self.with_directory(|directory, _| {
            let ((connections, bytes), half_open) = (Self::tally(directory), directory.half_open.len());
            StackStats {
                counters,
                connections: connections + half_open,
                time_wait: 0,
                timers: timers + half_open,
                bytes: bytes + directory.half_open.footprint(),
            }
        })
    }
}

impl<L: Events> Upkeep for L {}
