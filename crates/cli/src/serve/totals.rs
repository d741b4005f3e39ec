//! What a service has done, counted by its tasks and by the stack, and printed when it ends.
//!
//! Bytes of connections are counted by the stack, when a segment with them arrives in sequence or leaves for the first
//! time: what a service has written may stay in a send buffer, because its client has stopped reading or is gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use heddle::{Counter, Stack};

use crate::failure::Failure;

/// Why a service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Ctrl-C, or a request to terminate.
    Signal,
    /// The device has vanished.
    DeviceGone,
}

impl Ending {
    /// Its name in the JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Signal => "signal",
            Ending::DeviceGone => "device-gone",
        }
    }
}

/// The stack's counters that are not 0, for a JSON object.
pub fn counters_by_name(stack: &Stack) -> serde_json::Map<String, serde_json::Value> {
    let census = stack.census();
    let counted = census.counters.iter().filter(|(_, value)| *value > 0);
    counted.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// Prints the stack's counters that are not 0, one a line.
pub fn print_counters(stack: &Stack) {
    for (name, value) in stack.census().counters.iter().filter(|(_, value)| *value > 0) {
        println!("  {name:<32} {value:>14}");
    }
}

/// Counts of one service.
#[derive(Debug, Default)]
pub struct Totals {
    connections: AtomicU64,
    cut_off: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    datagram_bytes_in: AtomicU64,
    datagram_bytes_out: AtomicU64,
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Totals {
    /// A connection was accepted.
    pub fn connected(&self) {
        add(&self.connections, 1);
    }

    /// A connection was reset, or ended with another error.
    pub fn broke(&self) {
        add(&self.cut_off, 1);
    }

    /// A request, or a datagram, was answered; `refused`: with an error status.
    pub fn answered(&self, refused: bool) {
        add(&self.requests, 1);
        add(&self.refused, u64::from(refused));
    }

    /// A datagram with so many bytes came in.
    pub fn datagram_in(&self, bytes: usize) {
        add(&self.datagram_bytes_in, bytes as u64);
    }

    /// A datagram with so many bytes was sent.
    pub fn datagram_out(&self, bytes: usize) {
        add(&self.datagram_bytes_out, bytes as u64);
    }

    /// Prints them, with the stack's own counters.
    ///
    /// # Errors
    /// They cannot be written as JSON.
    pub fn print(&self, stack: &Stack, ending: Ending, after: Duration, json: bool) -> Result<(), Failure> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = stack.census().counters;
        let bytes_in = counters.get(Counter::TextBytesIn) + get(&self.datagram_bytes_in);
        let bytes_out = counters.get(Counter::TextBytesOut) + get(&self.datagram_bytes_out);
        if json {
            let ended = serde_json::json!({
                "event": "ended",
                "reason": ending.name(),
                "seconds": after.as_secs_f64(),
                "connections": get(&self.connections),
                "connections_cut_off": get(&self.cut_off),
                "requests": get(&self.requests),
                "requests_refused": get(&self.refused),
                "bytes_in": bytes_in,
                "bytes_out": bytes_out,
                "counters": counters_by_name(stack),
            });
            println!("{ended}");
            return Ok(());
        }
        println!();
        println!(
            "{} connections ({} cut off by the client), {} requests ({} refused), {} received, {} sent in {:.1} s",
            get(&self.connections),
            get(&self.cut_off),
            get(&self.requests),
            get(&self.refused),
            indicatif::BinaryBytes(bytes_in),
            indicatif::BinaryBytes(bytes_out),
            after.as_secs_f64()
        );
        print_counters(stack);
        Ok(())
    }
}
