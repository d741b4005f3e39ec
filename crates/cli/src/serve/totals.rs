//! Totals of a service, counted by its tasks and by the stack, and printed when it ends.
//!
//! Bytes of connections are counted by the stack, when a segment with them arrives in sequence or is first sent: data
//! written by a service may stay in a send buffer, because its client has stopped reading or is gone.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use heddle::{Counter, Stack, StackStats};

use super::clients::Refusal;
use crate::failure::Failure;

/// Why a service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Ctrl-C, or a request to terminate.
    Signal,
    /// The device was removed.
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
pub fn counters_by_name(stats: &StackStats) -> serde_json::Map<String, serde_json::Value> {
    let counted = stats.counters.iter().filter(|(_, value)| *value > 0);
    counted.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// The stack's counters that are not 0, one a line.
pub fn counter_lines(stats: &StackStats) -> String {
    let counted = stats.counters.iter().filter(|(_, value)| *value > 0);
    counted.map(|(name, value)| format!("  {name:<32} {value:>14}\n")).collect()
}

/// Counts of one service.
#[derive(Debug, Default)]
pub struct Totals {
    connections: AtomicU64,
    cut_off: AtomicU64,
    requests: AtomicU64,
    requests_refused: AtomicU64,
    too_many: AtomicU64,
    too_fast: AtomicU64,
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

    /// A connection was refused, because its client is at a limit.
    pub fn refused(&self, refusal: Refusal) {
        match refusal {
            Refusal::TooMany => add(&self.too_many, 1),
            Refusal::TooFast => add(&self.too_fast, 1),
        }
    }

    /// A connection was reset, or ended with another error.
    pub fn broke(&self) {
        add(&self.cut_off, 1);
    }

    /// A request, or a datagram, was answered; `refused`: with an error status.
    pub fn answered(&self, refused: bool) {
        add(&self.requests, 1);
        add(&self.requests_refused, u64::from(refused));
    }

    /// A datagram with this many bytes was received.
    pub fn datagram_in(&self, bytes: usize) {
        add(&self.datagram_bytes_in, bytes as u64);
    }

    /// A datagram with this many bytes was sent.
    pub fn datagram_out(&self, bytes: usize) {
        add(&self.datagram_bytes_out, bytes as u64);
    }

    /// Prints them to standard error while the service runs, with the present state of the stack.
    pub fn report(&self, stack: &Stack, after: Duration, json: bool) {
        let mut text = if json {
            serde_json::json!({"event": "report", "totals": self.object(stack, after)}).to_string() + "\n"
        } else {
            self.text(stack, after)
        };
        text.insert_str(0, if json { "" } else { "\n" });
        // Standard error may be closed; serving continues.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// Prints them, with the stack's own counters.
    ///
    /// # Errors
    /// They cannot be written as JSON.
    pub fn print(&self, stack: &Stack, ending: Ending, after: Duration, json: bool) -> Result<(), Failure> {
        if json {
            let mut ended = self.object(stack, after);
            ended.insert("event".to_owned(), "ended".into());
            ended.insert("reason".to_owned(), ending.name().into());
            println!("{}", serde_json::Value::Object(ended));
        } else {
            print!("\n{}", self.text(stack, after));
        }
        Ok(())
    }

    fn object(&self, stack: &Stack, after: Duration) -> serde_json::Map<String, serde_json::Value> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stats = stack.stats();
        let (bytes_in, bytes_out) = self.bytes(&stats);
        let fields = serde_json::json!({
            "seconds": after.as_secs_f64(),
            "connections": get(&self.connections),
            "connections_cut_off": get(&self.cut_off),
            "connections_refused_as_too_many": get(&self.too_many),
            "connections_refused_as_too_fast": get(&self.too_fast),
            "requests": get(&self.requests),
            "requests_refused": get(&self.requests_refused),
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
            "live": stats.live(),
            "time_wait": stats.time_wait,
            "timers": stats.timers,
            "table_bytes": stats.bytes,
            "counters": counters_by_name(&stats),
        });
        match fields {
            serde_json::Value::Object(fields) => fields,
            _ => serde_json::Map::new(),
        }
    }

    fn text(&self, stack: &Stack, after: Duration) -> String {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stats = stack.stats();
        let (bytes_in, bytes_out) = self.bytes(&stats);
        let mut text = format!(
            "{} connections ({} cut off by the client), {} requests ({} refused), {} received, {} sent in {:.1} s\n",
            get(&self.connections),
            get(&self.cut_off),
            get(&self.requests),
            get(&self.requests_refused),
            indicatif::BinaryBytes(bytes_in),
            indicatif::BinaryBytes(bytes_out),
            after.as_secs_f64()
        );
        let (too_many, too_fast) = (get(&self.too_many), get(&self.too_fast));
        if too_many + too_fast > 0 {
            text +=
                &format!("{too_many} connections refused because their clients had too many, {too_fast} as too fast\n");
        }
        text += &format!(
            "{} connections are live, {} in TIME-WAIT; {} timers; {} of tables\n",
            stats.live(),
            stats.time_wait,
            stats.timers,
            indicatif::BinaryBytes(stats.bytes as u64)
        );
        text + &counter_lines(&stats)
    }

    /// Received, and sent.
    fn bytes(&self, stats: &StackStats) -> (u64, u64) {
        let datagrams = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let text = |counter| stats.counters.get(counter);
        (
            text(Counter::DataBytesIn) + datagrams(&self.datagram_bytes_in),
            text(Counter::DataBytesOut) + datagrams(&self.datagram_bytes_out),
        )
    }
}
