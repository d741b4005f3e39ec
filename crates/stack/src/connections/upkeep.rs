//! Timers, changes that concern every connection of a place, and what is counted.

use observe::{Counter, Time};
use tcp::Event;

use super::events::Events;
use crate::after::After;
use crate::call::Control;
use crate::census::Census;
use crate::flow::Flow;
use crate::place::Place;

/// Upkeep; see the module documentation.
pub trait Upkeep: Place {
    /// Runs the timers that are due.
    fn timers(&mut self, now: Time, after: &mut After<Self::Platform>) {
        self.connection_timers(now, after);
        self.half_open_timers(now, after);
    }

    /// Runs the timers of connections that are due.
    fn connection_timers(&mut self, now: Time, after: &mut After<Self::Platform>) {
        let due = self.expire(now);
        self.counters().add(Counter::TimersFired, due.len() as u64);
        for slot in &due {
            if let Some((id, held)) = self.find_due(*slot) {
                self.run_contained(&id, held, tcp::Timeouts, now, after);
            }
        }
        self.recycle(due);
    }

    /// Runs the timers of half-open connections that are due.
    fn half_open_timers(&mut self, now: Time, after: &mut After<Self::Platform>) {
        self.with_directory(|directory, site| {
            site.shared.half_open_timeouts(&mut directory.half_open, now, site.counters, after);
        });
    }

    /// Applies a change that every place must see.
    fn control(&mut self, change: Control<Self::Platform>, now: Time, after: &mut After<Self::Platform>) {
        match change {
            Control::LinkDown(interface) => {
                let shared = self.shared().clone();
                self.each(|flow| shared.goes_by(flow, interface), tcp::LinkDown, now, after);
            }
            Control::AddressLost(address) => {
                self.with_directory(|directory, _| directory.half_open.abandon(address));
                self.each(|flow| flow.tuple.local_addr == address, tcp::LinkDown, now, after);
            }
            other => self.with_directory(|directory, _| directory.replicas.apply(other)),
        }
    }

    /// Runs an event of every connection that it concerns.
    #[cold]
    fn each<E: Event + Copy>(
        &mut self,
        concerns: impl Fn(&Flow) -> bool,
        event: E,
        now: Time,
        after: &mut After<Self::Platform>,
    ) {
        let all = self.with_directory(|directory, _| Self::all(directory));
        for (id, _) in all.iter().filter(|(_, flow)| concerns(flow)) {
            self.run_contained(id, Self::Held::default(), event, now, after);
        }
    }

    /// What is in the place.
    fn census(&mut self) -> Census {
        let (timers, counters) = (self.armed(), self.counted());
        self.with_directory(|directory, _| {
            let ((connections, bytes), half_open) = (Self::tally(directory), directory.half_open.len());
            Census {
                counters,
                connections: connections + half_open,
                time_wait: 0,
                timers: timers + half_open,
                bytes: bytes + connections * Self::BESIDE + directory.half_open.footprint(),
            }
        })
    }
}

impl<L: Events> Upkeep for L {}
