//! The distance of two processors: the round-trip time of a cache line between them.
//!
//! Sharing data between threads (a lock, a ring, a connection) has this cost, so a figure of several threads means
//! little without it. It is not constant: a hypervisor silently moves virtual processors between cores that share a
//! cache and cores that do not, within seconds, and the same benchmark then runs at half its speed. A [`Distance`] is
//! therefore measured before every slice and stored with the sample.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::worker_pool::{Sample, Work, WorkerPool};

/// Round trips between two clock readings.
const BATCH: u32 = 100;
/// Time for one measurement: about ten batches if the processors are far apart.
const SLICE: Duration = Duration::from_micros(500);
/// Spins between two clock readings while waiting.
const SPINS: u32 = 4096;

/// Two threads that exchange a cache line, pinned to the first two processors of benchmark threads.
#[derive(Debug)]
pub struct Distance {
    worker_pool: WorkerPool,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    line: Line,
    /// Nanoseconds of the quickest batch; 0 where none was completed.
    best: Line,
}

/// Odd while it is the other thread's turn. Alone on its cache line, and on the adjacent prefetched one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Distance {
    /// Starts the threads; `None` where there is one processor only.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start() -> io::Result<Option<Distance>> {
        if crate::machine::cores() < 2 {
            return Ok(None);
        }
        let shared = Arc::new(Shared::default());
        let worker_pool =
            WorkerPool::start("distance", vec![Box::new(There(shared.clone())), Box::new(Back(shared.clone()))])?;
        Ok(Some(Distance { worker_pool, shared }))
    }

    /// Nanoseconds of a round trip now, the mean of the quickest hundred within half a millisecond; `None` if other
    /// work kept a processor busy all the time.
    pub fn round_trip_ns(&mut self) -> Option<f64> {
        self.worker_pool.run_slice(SLICE).ok()?;
        let best = self.shared.best.0.load(Ordering::Relaxed);
        (best > 0).then(|| best as f64 / f64::from(BATCH))
    }
}

/// How long [`SameDistance::wait`] waits.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Processors that are to be as far apart as they once were, so that figures of several threads can be compared.
#[derive(Debug)]
pub struct SameDistance {
    distance: Distance,
    wanted: f64,
}

impl SameDistance {
    /// As far as now. `None`: there is one processor, or other work keeps one busy.
    pub fn as_now() -> Option<SameDistance> {
        let mut distance = Distance::start().ok()??;
        let wanted = (0..5).filter_map(|_| distance.round_trip_ns()).min_by(f64::total_cmp)?;
        Some(SameDistance { distance, wanted })
    }

    /// A cache line is to go to another processor and back in about `wanted` nanoseconds. `None`: there is one processor.
    pub fn as_far_as(wanted: f64) -> Option<SameDistance> {
        Some(SameDistance { distance: Distance::start().ok()??, wanted })
    }

    /// The round trip that is wanted, in nanoseconds.
    pub fn round_trip_ns(&self) -> f64 {
        self.wanted
    }

    /// Nanoseconds of a round trip now; see [`Distance::round_trip_ns`].
    pub fn now_ns(&mut self) -> Option<f64> {
        self.distance.round_trip_ns()
    }

    /// Whether the processors are so far apart now.
    pub fn holds(&mut self) -> bool {
        self.now_ns().is_some_and(|now| self.is_like(now))
    }

    /// Whether other cores of the same cache explain the difference of a round trip, in nanoseconds, from the one that is wanted.
    pub fn is_like(&self, round_trip_ns: f64) -> bool {
        (2.0 / 3.0..1.5).contains(&(round_trip_ns / self.wanted))
    }

    /// Waits until they are, for three seconds. False: they are not.
    pub fn wait(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            if self.holds() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            thread::park_timeout(LOOK_EVERY);
        }
    }
}

struct There(Arc<Shared>);

impl Work for There {
    fn run(&mut self, deadline: Instant, _: &mut Sample) -> io::Result<()> {
        let mut best = u64::MAX;
        loop {
            let started = Instant::now();
            let whole = (0..BATCH).all(|_| self.trip(deadline));
            if !whole {
                break;
            }
            best = best.min(started.elapsed().as_nanos() as u64);
        }
        self.0.best.0.store(if best == u64::MAX { 0 } else { best }, Ordering::Relaxed);
        Ok(())
    }
}

impl There {
    /// Sends the line and waits until it is back; false if the deadline is first. The next slice continues from there.
    fn trip(&self, deadline: Instant) -> bool {
        let line = &self.0.line.0;
        let sent = line.load(Ordering::Acquire) | 1;
        line.store(sent, Ordering::Release);
        spin(deadline, || line.load(Ordering::Acquire) != sent)
    }
}

struct Back(Arc<Shared>);

impl Work for Back {
    fn run(&mut self, deadline: Instant, _: &mut Sample) -> io::Result<()> {
        let line = &self.0.line.0;
        while spin(deadline, || line.load(Ordering::Acquire) % 2 == 1) {
            line.store(line.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        Ok(())
    }
}

/// Waits until `done`; returns whether that was before the deadline.
fn spin(deadline: Instant, done: impl Fn() -> bool) -> bool {
    loop {
        if (0..SPINS).any(|_| done()) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_across_caches_are_not_as_far_apart_as_within_one() {
        let Some(near) = SameDistance::as_far_as(90.0) else { return };
        let Some(far) = SameDistance::as_far_as(420.0) else { return };
        assert!(near.is_like(110.0) && near.is_like(70.0) && !near.is_like(420.0) && !far.is_like(90.0));
        let Some(mut same) = SameDistance::as_far_as(1e9) else { return };
        assert!(!same.holds(), "no two processors of a machine are a second apart");
    }

    #[test]
    fn a_line_goes_there_and_back() {
        let Some(mut distance) = Distance::start().unwrap() else { return };
        // A busy machine may keep one of the two from running for longer than a slice.
        let round_trip =
            (0..1000).find_map(|_| distance.round_trip_ns()).expect("two processors work at a time now and then");
        assert!((1.0..1e6).contains(&round_trip), "{round_trip} ns");
        assert!(
            distance.shared.line.0.load(Ordering::Relaxed) >= 2 * u64::from(BATCH),
            "each trip changes the line twice"
        );
    }
}
