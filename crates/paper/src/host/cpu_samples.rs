//! What the tables of Willmann et al. show of the kernel below: cycles of its scheduler, and where caches miss.
//!
//! The CPUs are sampled in slices of their own after the measured one, because each sample interrupts a thread. The share of
//! samples in the scheduler, times the CPU time that the kernel counted, are the scheduler's nanoseconds; the nominal frequency
//! turns them into cycles. The kernel's own count of switches in the same slices, times what a switch with its wake-up takes on this
//! host, is another answer to the same question, and stands beside it.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use lab::calibrate::switch_with_wake;
use lab::cpu::Switches;
use lab::sampling::Contender;
use lab::scheduler::{CpuSampler, SampleTally, SampledEvent};
use serde_json::json;

use crate::point::Sample;

/// A ring has room for the samples of no longer slice.
const SLICE: Duration = Duration::from_millis(250);

/// The samplers of a load, or why there is none.
pub(super) struct HostSamplers {
    time: Result<CpuSampler, String>,
    misses: Result<CpuSampler, String>,
}

/// Samples of some slices, and what the contender did in them.
#[derive(Clone, Copy, Debug, Default)]
struct SampledSlices {
    tally: SampleTally,
    bytes: u64,
    cpu: Duration,
    switches: Switches,
}

/// Both events of a contender.
pub(super) struct SampledPass {
    time: Result<SampledSlices, String>,
    misses: Result<SampledSlices, String>,
}

impl HostSamplers {
    pub(super) fn open() -> HostSamplers {
        let [time, misses] = [SampledEvent::Time, SampledEvent::CacheMisses].map(CpuSampler::open);
        HostSamplers { time, misses }
    }

    /// Runs a contender for this long with each event that this host has.
    pub(super) fn pass(&mut self, contender: &mut dyn Contender, length: Duration) -> io::Result<SampledPass> {
        let [time, misses] = [&mut self.time, &mut self.misses].map(|sampler| match sampler {
            Ok(sampler) => slices(sampler, contender, length).map(Ok),
            Err(reason) => Ok(Err(reason.clone())),
        });
        Ok(SampledPass { time: time?, misses: misses? })
    }
}

fn slices(sampler: &mut CpuSampler, contender: &mut dyn Contender, length: Duration) -> io::Result<SampledSlices> {
    let mut all = SampledSlices::default();
    let mut left = length;
    while !left.is_zero() {
        let now = left.min(SLICE);
        let (slice, tally) = sampler.during(|| contender.run_slice(now))?;
        let slice = slice?;
        all.tally.extend(&tally);
        (all.bytes, all.cpu) = (all.bytes + slice.bytes, all.cpu + slice.cpu);
        all.switches += slice.switches;
        left -= now;
    }
    Ok(all)
}

/// Nanoseconds of a switch with its wake-up on the first CPU, measured once.
fn switch_ns() -> f64 {
    static NANOS: OnceLock<f64> = OnceLock::new();
    *NANOS.get_or_init(|| switch_with_wake(0).nanos)
}

/// Adds what a pass has found, for each kilobyte of its own slices, and why it has not found the rest.
pub(super) fn fill(sample: &mut Sample, pass: &SampledPass) {
    match (&pass.time, sample.host.nominal_megahertz) {
        (Ok(slices), Some(megahertz)) => fill_scheduler(sample, slices, megahertz / 1e3, switch_ns()),
        (Ok(_), None) => {
            lacks(sample, "scheduler_cycles", "this machine does not state the nominal frequency of its processors")
        }
        (Err(reason), _) => lacks(sample, "scheduler_cycles", reason),
    }
    match &pass.misses {
        Ok(slices) => fill_misses(sample, slices),
        Err(reason) => lacks(sample, "cache_misses", reason),
    }
}

fn lacks(sample: &mut Sample, what: &str, reason: &str) {
    sample.parameters.insert(format!("no_{what}"), json!(reason));
}

/// Cycles at `gigahertz`; a switch takes `switch_ns`.
fn fill_scheduler(sample: &mut Sample, slices: &SampledSlices, gigahertz: f64, switch_ns: f64) {
    let SampledSlices { tally, bytes, cpu, switches } = slices;
    let kilobytes = *bytes as f64 / 1024.0;
    if tally.own == 0 || kilobytes == 0.0 {
        return;
    }
    let cycles = |nanos: f64| nanos * gigahertz / kilobytes;
    let counted = switches.total() as f64;
    for (name, number) in [
        ("scheduler_cycles_per_kb", cycles(tally.nanos(tally.scheduler, *cpu))),
        ("scheduler_cycles_by_counts_per_kb", cycles(counted * switch_ns)),
        ("futex_cycles_per_kb", cycles(tally.nanos(tally.futex, *cpu))),
        ("idle_scheduler_cycles_per_kb", cycles(tally.idle_scheduler as f64)),
        ("switches_per_kb", counted / kilobytes),
        ("samples_of_cpus", tally.samples as f64),
    ] {
        sample.values.insert(name.to_owned(), number);
    }
    for (name, number) in [
        ("sampled_by", json!("perf_event, the kernel's clock of each CPU")),
        ("samples_lost", json!(tally.lost)),
        ("nominal_mhz", json!(1e3 * gigahertz)),
        ("switch_ns", json!(switch_ns)),
    ] {
        sample.parameters.insert(name.to_owned(), number);
    }
}

fn fill_misses(sample: &mut Sample, slices: &SampledSlices) {
    let SampledSlices { tally, bytes, .. } = slices;
    let kilobytes = *bytes as f64 / 1024.0;
    if tally.samples == 0 || kilobytes == 0.0 {
        return;
    }
    for (name, number) in
        [("misses_per_kb", tally.own), ("misses_outside_scheduler_per_kb", tally.own - tally.scheduler)]
    {
        sample.values.insert(name.to_owned(), number as f64 / kilobytes);
    }
    sample.parameters.insert("misses_counted_by".to_owned(), json!("perf_event, the processor's event cache-misses"));
    sample.parameters.insert("miss_samples_lost".to_owned(), json!(tally.lost));
}

#[cfg(test)]
mod tests {
    use lab::machine::Probe;
    use lab::sampling::Slice;

    use super::*;
    use crate::point::{Place, Point};

    fn sample() -> Sample {
        let point = Point {
            on: Place::Host,
            machine: String::new(),
            arch: "msgp:1+coupled".to_owned(),
            connections: 6,
            cpus: 2,
            lock: "adaptive".to_owned(),
            slice_ms: 250,
            workload: String::new(),
            seed: 1,
        };
        let host = Probe::start().finish();
        Sample::now(point, 1.0, lab::machine::Machine { nominal_megahertz: Some(2000.0), ..host })
    }

    /// A quarter of 400 us is 100 us, 200000 cycles of 2 GHz; over 100 KB that is 2000. Two switches for each KB, of 500 ns, are
    /// 2000 as well.
    #[test]
    fn shares_of_cpu_time_become_cycles_for_each_kilobyte() {
        let tally = SampleTally {
            samples: 40,
            own: 4000,
            scheduler: 1000,
            futex: 100,
            idle_scheduler: 5000,
            ..SampleTally::default()
        };
        let switches = Switches { voluntary: 150, involuntary: 50 };
        let slices = SampledSlices { tally, bytes: 102_400, cpu: Duration::from_micros(400), switches };
        let mut sample = sample();
        fill_scheduler(&mut sample, &slices, 2.0, 500.0);
        let value = |name: &str| sample.values[name];
        assert_eq!(value("scheduler_cycles_per_kb"), 2000.0);
        assert_eq!(value("scheduler_cycles_by_counts_per_kb"), 2000.0);
        assert_eq!((value("futex_cycles_per_kb"), value("idle_scheduler_cycles_per_kb")), (200.0, 100.0));
        assert_eq!((value("switches_per_kb"), value("samples_of_cpus")), (2.0, 40.0));
        assert_eq!(sample.parameters["nominal_mhz"], 2000.0);
    }

    /// 4000 misses in 100 KB, of which 1000 in the scheduler.
    #[test]
    fn misses_are_the_periods_of_their_samples() {
        let tally = SampleTally { samples: 4, own: 4000, scheduler: 1000, ..SampleTally::default() };
        let slices = SampledSlices { tally, bytes: 102_400, ..SampledSlices::default() };
        let mut sample = sample();
        fill_misses(&mut sample, &slices);
        let values = ["misses_per_kb", "misses_outside_scheduler_per_kb"].map(|name| sample.values[name]);
        assert_eq!(values, [40.0, 30.0]);
    }

    /// Nothing is written where nothing was sampled or delivered, and the reason stands instead of a number.
    #[test]
    fn a_host_without_samples_has_a_reason_and_no_number() {
        let mut sample = sample();
        fill_scheduler(&mut sample, &SampledSlices { bytes: 1024, ..SampledSlices::default() }, 2.0, 500.0);
        fill_misses(&mut sample, &SampledSlices { bytes: 1024, ..SampledSlices::default() });
        let pass = SampledPass { time: Err("not permitted".to_owned()), misses: Err("no counter".to_owned()) };
        fill(&mut sample, &pass);
        assert!(sample.values.is_empty(), "{sample:?}");
        assert_eq!(sample.parameters["no_scheduler_cycles"], "not permitted");
        assert_eq!(sample.parameters["no_cache_misses"], "no counter");
    }

    struct Counting(Vec<Duration>);

    impl Contender for Counting {
        fn name(&self) -> &str {
            "counts its slices"
        }

        fn run_slice(&mut self, duration: Duration) -> io::Result<Slice> {
            self.0.push(duration);
            let switches = Switches { voluntary: 1, involuntary: 0 };
            Ok(Slice { bytes: 10, cpu: duration, switches, ..Slice::default() })
        }
    }

    /// 600 ms are three slices, each with room for its samples.
    #[test]
    fn a_long_pass_is_several_slices() {
        let mut contender = Counting(Vec::new());
        let mut sampler = match CpuSampler::open(SampledEvent::Time) {
            Ok(sampler) => sampler,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let all = slices(&mut sampler, &mut contender, Duration::from_millis(600)).unwrap();
        assert_eq!(contender.0, [250, 250, 100].map(Duration::from_millis));
        assert_eq!((all.bytes, all.cpu, all.switches.total()), (30, Duration::from_millis(600), 3));
    }
}
