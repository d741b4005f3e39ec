//! What the figures of Schmidt and Suda show of messages: switches, and the time that locks take, for as many messages as the
//! paper measured.
//!
//! Switches are the kernel's counts, of all threads of this process. Times of waits are from a separate slice after the
//! measured one, where a figure shows them, because timing a lock costs several times the lock.

use std::io;
use std::time::Duration;

use lab::sampling::{LockCount, Slice};
use lab::workload::{Bench, free_lock_ns};
use serde_json::json;
use vsmp::workload::messages::of_the_paper;

use crate::point::{Point, Sample};

/// The times of locks in a slice.
pub(super) struct LockTimes {
    classes: Vec<LockCount>,
    /// To acquire and release one that no other thread wants, in nanoseconds.
    free_ns: f64,
}

/// Measures them in a slice of their own.
pub(super) fn timed_pass(bench: &mut Bench, point: &Point) -> io::Result<LockTimes> {
    let kind = point.lock.parse().map_err(|error| io::Error::other(format!("{error}")))?;
    let timed = bench.run_timed_slice(Duration::from_millis(point.measured_ms()))?;
    Ok(LockTimes { classes: timed.exact.locks, free_ns: free_lock_ns(kind) })
}

/// Adds what `slice` says of switches, and `timed` of its locks. Nothing is added where no message was delivered.
pub(super) fn fill(sample: &mut Sample, slice: &Slice, timed: Option<&LockTimes>) {
    if slice.bytes == 0 {
        return;
    }
    let mut value = |name: &str, count| _ = sample.values.insert(name.to_owned(), of_the_paper(slice.bytes, count));
    value("voluntary_switches", slice.switches.voluntary as f64);
    value("involuntary_switches", slice.switches.involuntary as f64);
    if let Some(timed) = timed {
        value("lock_ms", milliseconds(&slice.exact.locks, timed));
        sample.parameters.insert("free_lock_ns".to_owned(), json!(timed.free_ns));
    }
}

/// The waits after a first try that failed, and for each acquisition the time that a lock takes which nobody waits for.
fn milliseconds(locks: &[LockCount], timed: &LockTimes) -> f64 {
    let of_class = |lock: &LockCount| {
        let mut lock = lock.clone();
        lock.add_times(&timed.classes);
        lock.wait_ns.unwrap_or(0) as f64 + lock.acquired as f64 * timed.free_ns
    };
    locks.iter().map(of_class).sum::<f64>() / 1e6
}

#[cfg(test)]
mod tests {
    use lab::cpu::Switches;
    use lab::machine::Probe;
    use lab::sampling::Exact;
    use vsmp::workload::messages::MESSAGE;

    use super::*;
    use crate::point::Place;

    fn lock(class: &str, acquired: u64, wait_ns: Option<u64>) -> LockCount {
        LockCount { class: class.to_owned(), acquired, wait_ns, ..LockCount::default() }
    }

    /// 10000 messages: everything is doubled. 4000 acquisitions wait half a microsecond each, as in the timed pass, and
    /// these and 1000 others cost 20 ns.
    #[test]
    fn counts_are_for_the_messages_of_the_paper() {
        let point = Point {
            on: Place::Host,
            machine: String::new(),
            arch: "msgp-pool".to_owned(),
            connections: 20,
            cpus: 2,
            lock: "blocking".to_owned(),
            slice_ms: 250,
            workload: "messages".to_owned(),
            seed: 1,
        };
        let exact = Exact { locks: vec![lock("pcb", 4000, None), lock("device-tx", 1000, None)], ..Exact::default() };
        let switches = Switches { voluntary: 30, involuntary: 4 };
        let slice = Slice { bytes: 10_000 * MESSAGE as u64, switches, exact, ..Slice::default() };
        let timed = LockTimes { classes: vec![lock("pcb", 1000, Some(500_000))], free_ns: 20.0 };
        let mut sample = Sample::now(point, 1.0, Probe::start().finish());
        fill(&mut sample, &Slice::default(), Some(&timed));
        assert!(sample.values.is_empty(), "nothing was delivered");
        fill(&mut sample, &slice, None);
        assert!(sample.values.len() == 2 && sample.parameters.is_empty(), "locks were not timed: {sample:?}");
        fill(&mut sample, &slice, Some(&timed));
        let values = ["voluntary_switches", "involuntary_switches", "lock_ms"].map(|name| sample.values[name]);
        assert_eq!(values, [60.0, 8.0, 2.0 * (2.0 + 0.1)]);
    }
}
