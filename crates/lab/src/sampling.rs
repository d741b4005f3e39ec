//! Measures several contenders in the same seconds.
//!
//! A machine drifts: its clock frequency, its neighbours, its caches. Measuring one contender for a minute and then the
//! next compares two minutes, not two contenders. The [`Runner`] therefore divides the time into short slices and
//! rounds: after warm-up, round `r` runs one slice of every contender, beginning with contender `r mod n`, so that each
//! runs in every position of the round and a run is repeatable without random numbers. Ratios are taken inside a round,
//! between neighbours in time, and only then averaged. A failing contender cannot lose the others' measurements: it is
//! left out from that round on, and reported.

use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cpu::Switches;
use crate::stats::Estimate;

/// The result of one slice of a contender.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    /// Bytes of payload delivered to the receiving application.
    pub bytes: u64,
    /// Messages, transactions or connections completed.
    pub operations: u64,
    /// Wall time that they took.
    pub wall: Duration,
    /// CPU time of every thread that took part.
    pub cpu: Duration,
    /// Context switches of those threads.
    pub switches: Switches,
    /// Exact counters of the stack; zero and empty if the contender has none.
    pub exact: Exact,
    /// Jain's fairness index of the bytes of connections; `None` where the workload does not count them.
    pub fairness: Option<f64>,
    /// Round-trip time of a cache line between two processors in nanoseconds, just before the slice; `None` if unknown.
    pub round_trip_ns: Option<f64>,
}

impl Slice {
    /// Gigabits of payload a second; 0 for a slice of no duration.
    pub fn gbps(&self) -> f64 {
        per(self.bytes as f64 * 8e-9, self.wall.as_secs_f64())
    }

    /// Operations a second; 0 for a slice of no duration.
    pub fn operations_per_second(&self) -> f64 {
        per(self.operations as f64, self.wall.as_secs_f64())
    }

    /// CPU seconds for each 10^9 bytes; 0 where nothing was delivered.
    pub fn cpu_s_per_gb(&self) -> f64 {
        per(self.cpu.as_secs_f64(), self.bytes as f64 * 1e-9)
    }

    /// Context switches of both kinds for each 10^9 bytes; 0 where nothing was delivered.
    pub fn switches_per_gb(&self) -> f64 {
        per(self.switches.total() as f64, self.bytes as f64 * 1e-9)
    }

    /// Lock acquisitions of every class for each 10^6 bytes; 0 where nothing was delivered.
    pub fn acquisitions_per_mb(&self) -> f64 {
        let acquired: u64 = self.exact.locks.iter().map(|lock| lock.acquired).sum();
        per(acquired as f64, self.bytes as f64 * 1e-6)
    }
}

fn per(amount: f64, unit: f64) -> f64 {
    if unit > 0.0 { amount / unit } else { 0.0 }
}

/// Counters that are exact over a slice: differences of two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exact {
    /// Locks taken, by class.
    pub locks: Vec<LockCount>,
    /// Events passed to another thread.
    pub handoffs: u64,
    /// Wake-ups.
    pub wakes: Wakes,
    /// Segments that reached TCP with a sequence number other than RCV.NXT.
    pub out_of_order: u64,
    /// Segments sent again.
    pub retransmits: u64,
}

impl Exact {
    /// The difference to an `earlier` reading of the same counters. Saturating; a new lock class counts from 0, and
    /// times are kept only if both readings have them.
    pub fn since(&self, earlier: &Exact) -> Exact {
        let lock = |now: &LockCount| match earlier.locks.iter().find(|then| then.class == now.class) {
            Some(then) => now.since(then),
            None => now.clone(),
        };
        Exact {
            locks: self.locks.iter().map(lock).collect(),
            handoffs: self.handoffs.saturating_sub(earlier.handoffs),
            wakes: Wakes {
                sent: self.wakes.sent.saturating_sub(earlier.wakes.sent),
                suppressed: self.wakes.suppressed.saturating_sub(earlier.wakes.suppressed),
            },
            out_of_order: self.out_of_order.saturating_sub(earlier.out_of_order),
            retransmits: self.retransmits.saturating_sub(earlier.retransmits),
        }
    }

    /// Adds another slice's counters; lock classes are matched by name.
    pub fn add(&mut self, other: &Exact) {
        for lock in &other.locks {
            match self.locks.iter_mut().find(|mine| mine.class == lock.class) {
                Some(mine) => mine.add(lock),
                None => self.locks.push(lock.clone()),
            }
        }
        self.handoffs += other.handoffs;
        self.wakes.sent += other.wakes.sent;
        self.wakes.suppressed += other.wakes.suppressed;
        self.out_of_order += other.out_of_order;
        self.retransmits += other.retransmits;
    }
}

/// Counters of one class of lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockCount {
    /// Class, as the stack declares it ("ConnTable", "Group", ...).
    pub class: String,
    /// Times it was taken.
    pub acquired: u64,
    /// Times the first try failed: another thread held it.
    pub first_try_failed: u64,
    /// Nanoseconds spent waiting; present only after a timed pass, because timing a lock costs several times the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<u64>,
    /// Nanoseconds held; present only after a timed pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ns: Option<u64>,
}

impl LockCount {
    /// Takes times from the same class of a timed pass: the mean wait and hold of an acquisition there, times the
    /// acquisitions here. A class that the timed pass did not take stays as it is.
    pub fn add_times(&mut self, timed: &[LockCount]) {
        let Some(there) = timed.iter().find(|there| there.class == self.class && there.acquired > 0) else { return };
        let here = self.acquired as f64 / there.acquired as f64;
        let scaled = |ns: Option<u64>| ns.map(|ns| (ns as f64 * here).round() as u64);
        (self.wait_ns, self.hold_ns) = (scaled(there.wait_ns), scaled(there.hold_ns));
    }

    fn since(&self, earlier: &LockCount) -> LockCount {
        let times = |now: Option<u64>, then: Option<u64>| now.zip(then).map(|(now, then)| now.saturating_sub(then));
        LockCount {
            class: self.class.clone(),
            acquired: self.acquired.saturating_sub(earlier.acquired),
            first_try_failed: self.first_try_failed.saturating_sub(earlier.first_try_failed),
            wait_ns: times(self.wait_ns, earlier.wait_ns),
            hold_ns: times(self.hold_ns, earlier.hold_ns),
        }
    }

    fn add(&mut self, other: &LockCount) {
        self.acquired += other.acquired;
        self.first_try_failed += other.first_try_failed;
        let sum = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a + b.unwrap_or(0)));
        self.wait_ns = sum(self.wait_ns, other.wait_ns);
        self.hold_ns = sum(self.hold_ns, other.hold_ns);
    }
}

/// Wake-ups of waiting threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakes {
    /// Wake-ups that went to the kernel.
    pub sent: u64,
    /// Wake-ups found unnecessary because the thread was awake.
    pub suppressed: u64,
}

/// A contender that is measured in slices and uses no CPU in between.
pub trait Contender {
    /// Name in progress lines and errors, such as "connp-l 128 groups, 6 connections".
    fn name(&self) -> &str;

    /// Works for about `duration` and returns its result. Its threads are idle when this returns.
    ///
    /// # Errors
    /// Anything that ends this contender's part in the comparison.
    fn run_slice(&mut self, duration: Duration) -> io::Result<Slice>;

    /// What its architecture has decided by itself so far, and why, for people.
    fn decided(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Length and number of the slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Slices of each contender that are run and discarded first.
    pub warmup_slices: usize,
    /// Slices of each contender that count; an interval needs at least 2.
    pub repetitions: usize,
    /// Length of a slice in milliseconds.
    pub slice_ms: u64,
}

impl Schedule {
    /// Length of one slice.
    pub fn slice(&self) -> Duration {
        Duration::from_millis(self.slice_ms)
    }

    /// Total time of the slices of `contenders` contenders, without opening and closing them.
    pub fn total(&self, contenders: usize) -> Duration {
        self.slice() * ((self.warmup_slices + self.repetitions) * contenders) as u32
    }
}

/// Progress of a run, for a progress line.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The contender whose slice begins now.
    pub contender: &'a str,
    /// Slices done.
    pub done: usize,
    /// Slices of the whole run.
    pub total: usize,
    /// Whether this is a warm-up slice.
    pub warming_up: bool,
    /// Estimate of the time left, from the slices so far (from the schedule before the first).
    pub left: Duration,
}

/// All samples of one contender.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The contender's name.
    pub name: String,
    /// One slice of each completed round, in order; `slices[r]` of two contenders ran side by side.
    pub slices: Vec<Slice>,
    /// Why it was left out from some round on; `None` if it ran to the end.
    pub failed: Option<String>,
}

impl Samples {
    /// A figure of every slice.
    pub fn series(&self, figure: impl Fn(&Slice) -> f64) -> Vec<f64> {
        self.slices.iter().map(figure).collect()
    }

    /// Mean and interval of a figure over the slices; `None` without slices.
    pub fn estimate(&self, figure: impl Fn(&Slice) -> f64) -> Option<Estimate> {
        Estimate::of(&self.series(figure))
    }

    /// Ratio of a figure to the same round of `base`: the ratio is taken within each round, then averaged. `None` if no
    /// round has both, or `base` delivered nothing in one.
    pub fn ratio_to(&self, base: &Samples, figure: impl Fn(&Slice) -> f64) -> Option<Estimate> {
        let pairs = self.slices.iter().zip(&base.slices);
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)).collect();
        Estimate::of(&ratios).filter(|ratio| ratio.mean.is_finite())
    }

    /// Counters, switches and totals added up over all slices.
    pub fn sum(&self) -> Slice {
        let mut sum = Slice::default();
        for slice in &self.slices {
            sum.bytes += slice.bytes;
            sum.operations += slice.operations;
            sum.wall += slice.wall;
            sum.cpu += slice.cpu;
            sum.switches += slice.switches;
            sum.exact.add(&slice.exact);
        }
        sum
    }
}

/// Runs contenders side by side according to a [`Schedule`].
#[derive(Clone, Copy, Debug)]
pub struct Runner {
    schedule: Schedule,
}

impl Runner {
    /// A runner of `schedule`.
    pub fn new(schedule: Schedule) -> Runner {
        Runner { schedule }
    }

    /// Measures the contenders and returns their samples in the same order. `progress` is called before every slice,
    /// and so is `distance`, whose result is stored with the sample ([`Slice::round_trip_ns`]).
    pub fn run(
        &self,
        contenders: &mut [&mut dyn Contender],
        mut distance: impl FnMut() -> Option<f64>,
        mut progress: impl FnMut(Progress<'_>),
    ) -> Vec<Samples> {
        let mut samples: Vec<Samples> =
            contenders.iter().map(|c| Samples { name: c.name().to_owned(), ..Samples::default() }).collect();
        let n = contenders.len();
        let rounds = self.schedule.warmup_slices + self.schedule.repetitions;
        let (started, total) = (Instant::now(), rounds * n);
        for round in 0..rounds {
            let warming_up = round < self.schedule.warmup_slices;
            for place in 0..n {
                let turn = (round + place) % n;
                let done = round * n + place;
                if samples[turn].failed.is_some() {
                    continue;
                }
                let left = self.left(started.elapsed(), done, total);
                progress(Progress { contender: contenders[turn].name(), done, total, warming_up, left });
                let round_trip_ns = distance();
                match contenders[turn].run_slice(self.schedule.slice()) {
                    Ok(slice) if !warming_up => samples[turn].slices.push(Slice { round_trip_ns, ..slice }),
                    Ok(_) => {}
                    Err(error) => samples[turn].failed = Some(error.to_string()),
                }
            }
        }
        samples
    }

    fn left(&self, elapsed: Duration, done: usize, total: usize) -> Duration {
        let each = if done == 0 { self.schedule.slice() } else { elapsed / done as u32 };
        each * (total - done) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Delivers scripted amounts and writes its name in a shared log.
    struct Scripted {
        name: &'static str,
        script: Vec<Result<u64, &'static str>>,
        log: Rc<RefCell<String>>,
    }

    impl Contender for Scripted {
        fn name(&self) -> &str {
            self.name
        }
        fn run_slice(&mut self, duration: Duration) -> io::Result<Slice> {
            self.log.borrow_mut().push_str(self.name);
            let bytes = self.script.remove(0).map_err(io::Error::other)?;
            Ok(Slice { bytes, wall: duration, ..Slice::default() })
        }
    }

    fn scripted(name: &'static str, script: &[Result<u64, &'static str>], log: &Rc<RefCell<String>>) -> Scripted {
        Scripted { name, script: script.to_vec(), log: Rc::clone(log) }
    }

    const SECOND: Schedule = Schedule { warmup_slices: 1, repetitions: 3, slice_ms: 1000 };

    #[test]
    fn order_rotates_and_warmup_is_thrown_away() {
        let log = Rc::default();
        let mut a = scripted("a", &[Ok(1), Ok(2), Ok(3), Ok(4)], &log);
        let mut b = scripted("b", &[Ok(5), Ok(6), Ok(7), Ok(8)], &log);
        let mut c = scripted("c", &[Ok(0); 4], &log);
        let mut seen = Vec::new();
        let samples = Runner::new(SECOND).run(
            &mut [&mut a, &mut b, &mut c],
            || Some(80.0),
            |p| {
                seen.push((p.contender.to_owned(), p.done, p.total, p.warming_up));
            },
        );
        assert_eq!(*log.borrow(), "abcbcacababc");
        assert_eq!(samples[0].slices.iter().map(|s| s.bytes).collect::<Vec<_>>(), [2, 3, 4]);
        assert!(samples.iter().flat_map(|s| &s.slices).all(|slice| slice.round_trip_ns == Some(80.0)));
        assert_eq!(samples[1].slices.iter().map(|s| s.bytes).collect::<Vec<_>>(), [6, 7, 8]);
        assert_eq!(seen[0], ("a".to_owned(), 0, 12, true));
        assert_eq!(seen[3], ("b".to_owned(), 3, 12, false));
        assert_eq!(seen.len(), 12);
    }

    #[test]
    fn a_failure_ends_one_contender_and_keeps_its_samples() {
        let log = Rc::default();
        let mut a = scripted("a", &[Ok(1), Ok(2), Err("no memory")], &log);
        let mut b = scripted("b", &[Ok(1), Ok(4), Ok(4), Ok(4)], &log);
        let samples = Runner::new(SECOND).run(&mut [&mut a, &mut b], || None, |_| {});
        assert_eq!(samples[0].failed.as_deref(), Some("no memory"));
        assert_eq!((samples[0].slices.len(), samples[1].slices.len()), (1, 3));
        let ratio = samples[0].ratio_to(&samples[1], Slice::gbps).unwrap();
        assert_eq!((ratio.mean, ratio.ci95), (0.5, None));
    }

    #[test]
    fn ratios_are_paired_within_rounds() {
        let of = |bytes: &[u64]| Samples {
            slices: bytes.iter().map(|&bytes| Slice { bytes, wall: SECOND.slice(), ..Slice::default() }).collect(),
            ..Samples::default()
        };
        // The machine slows down threefold during the run; the ratio is not affected.
        let ratio = of(&[600, 400, 200]).ratio_to(&of(&[300, 200, 100]), Slice::gbps).unwrap();
        assert_eq!(ratio.mean, 2.0);
        assert!(ratio.ci95.unwrap() < 1e-9);
        assert_eq!(of(&[1]).ratio_to(&of(&[0]), Slice::gbps), None);
        assert_eq!(of(&[]).ratio_to(&of(&[1]), Slice::gbps), None);
    }

    #[test]
    fn rates_and_sums() {
        let lock = |class: &str, acquired, failed, wait_ns| LockCount {
            class: class.into(),
            acquired,
            first_try_failed: failed,
            wait_ns,
            hold_ns: None,
        };
        let slice = |locks| Slice {
            bytes: 500_000_000,
            operations: 10,
            wall: Duration::from_secs(2),
            cpu: Duration::from_secs(1),
            switches: Switches { voluntary: 3, involuntary: 1 },
            exact: Exact { locks, handoffs: 2, ..Exact::default() },
            fairness: None,
            round_trip_ns: None,
        };
        let samples = Samples {
            slices: vec![
                slice(vec![lock("Group", 100, 5, None)]),
                slice(vec![lock("ConnTable", 7, 0, None), lock("Group", 50, 1, Some(9))]),
            ],
            ..Samples::default()
        };
        let first = &samples.slices[0];
        assert_eq!((first.gbps(), first.operations_per_second(), first.cpu_s_per_gb()), (2.0, 5.0, 2.0));
        assert_eq!((first.switches_per_gb(), first.acquisitions_per_mb()), (8.0, 0.2));
        assert_eq!(Slice::default().gbps() + Slice::default().cpu_s_per_gb(), 0.0);
        let sum = samples.sum();
        assert_eq!((sum.bytes, sum.operations, sum.exact.handoffs), (1_000_000_000, 20, 4));
        assert_eq!(sum.exact.locks, [lock("Group", 150, 6, Some(9)), lock("ConnTable", 7, 0, None)]);
    }

    #[test]
    fn a_difference_of_readings_is_a_slice() {
        let lock = |class: &str, acquired, wait_ns| LockCount {
            class: class.into(),
            acquired,
            wait_ns,
            ..LockCount::default()
        };
        let reading = |locks, handoffs| Exact { locks, handoffs, ..Exact::default() };
        let earlier = reading(vec![lock("Group", 10, Some(5))], 3);
        let now = reading(vec![lock("ConnTable", 2, Some(1)), lock("Group", 14, Some(9))], 8);
        let expected = reading(vec![lock("ConnTable", 2, Some(1)), lock("Group", 4, Some(4))], 5);
        assert_eq!(now.since(&earlier), expected);
        assert_eq!(earlier.since(&now).handoffs, 0);
    }

    #[test]
    fn time_left_follows_what_slices_take() {
        let runner = Runner::new(SECOND);
        assert_eq!(SECOND.total(3), Duration::from_secs(12));
        assert_eq!(runner.left(Duration::ZERO, 0, 12), Duration::from_secs(12));
        assert_eq!(runner.left(Duration::from_secs(8), 4, 12), Duration::from_secs(16));
    }
}
