//! Totals of a relay, counted by its tasks and printed when it ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use heddle::Stack;
use tokio::sync::Notify;

use crate::serve::totals::{Ending, counter_lines, counters_by_name};

/// Counts of one relay.
#[derive(Debug, Default)]
pub struct Totals {
    accepted: AtomicU64,
    open: AtomicU64,
    not_opened: AtomicU64,
    reset: AtomicU64,
    /// From the connecting end to the target.
    forth: AtomicU64,
    /// From the target to the connecting end.
    back: AtomicU64,
    closed: Notify,
}

/// A connection that is being carried, from its acceptance to the drop of this.
pub struct Open<'a> {
    totals: &'a Totals,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.totals.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.totals.closed.notify_waiters();
        }
    }
}

impl Totals {
    /// A connection was accepted.
    pub fn accepted(&self) -> Open<'_> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::AcqRel);
        Open { totals: self }
    }

    /// Its other half could not be opened.
    pub fn not_opened(&self) {
        self.not_opened.fetch_add(1, Ordering::Relaxed);
    }

    /// One of its ends was reset, or ended with another error.
    pub fn reset(&self) {
        self.reset.fetch_add(1, Ordering::Relaxed);
    }

    /// Counters of bytes carried from the connecting end, and of those carried the other way.
    pub fn directions(&self) -> (&AtomicU64, &AtomicU64) {
        (&self.forth, &self.back)
    }

    /// How many connections were accepted, and how many of them were reset.
    #[cfg(test)]
    pub fn connections(&self) -> (u64, u64) {
        (self.accepted.load(Ordering::Acquire), self.reset.load(Ordering::Acquire))
    }

    /// Waits until no connection is open.
    pub async fn none_open(&self) {
        loop {
            let closed = self.closed.notified();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            closed.await;
        }
    }

    /// Prints them, with the stack's own counters.
    pub fn print(&self, stack: &Stack, ending: Ending, after: Duration, json: bool) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        if json {
            let ended = serde_json::json!({
                "event": "ended",
                "reason": ending.name(),
                "seconds": after.as_secs_f64(),
                "connections": get(&self.accepted),
                "connections_not_opened": get(&self.not_opened),
                "connections_reset": get(&self.reset),
                "bytes_forth": get(&self.forth),
                "bytes_back": get(&self.back),
                "counters": counters_by_name(&stack.stats()),
            });
            println!("{ended}");
            return;
        }
        println!();
        println!(
            "{} connections ({} not accepted by the far end, {} reset), {} forward, {} back in {:.1} s",
            get(&self.accepted),
            get(&self.not_opened),
            get(&self.reset),
            indicatif::BinaryBytes(get(&self.forth)),
            indicatif::BinaryBytes(get(&self.back)),
            after.as_secs_f64()
        );
        print!("{}", counter_lines(&stack.stats()));
    }
}
