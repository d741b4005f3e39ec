//! One `perf_event` with a ring for each CPU.

use std::fs;
use std::io;
use std::sync::OnceLock;

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, SampleFlag, Sampler};

use super::functions::part_of;
use super::record::RingRecord;
use super::symbols::{self, KernelSymbols};
use super::tally::SampleTally;
use crate::confined::allowed_cpus;

/// Samples a second on each CPU. A prime, so that it does not beat with the scheduler's tick.
const FREQUENCY: u64 = 9973;
/// Bytes of a ring: with its first page, what an ordinary user may lock for each CPU (`kernel.perf_event_mlock_kb`).
const RING: usize = 512 << 10;
/// Functions of a chain, from the innermost. The scheduler's innermost one is within these.
const CHAIN: u16 = 16;

/// What interrupts a CPU for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledEvent {
    /// The kernel's clock of the CPU, in nanoseconds. Any machine has it.
    Time,
    /// The processor's counter of cache misses: those of the last cache on Intel's processors, of the second on AMD's.
    CacheMisses,
}

/// Samples all CPUs that this process may use.
pub struct CpuSampler {
    rings: Vec<Sampler>,
    symbols: &'static KernelSymbols,
}

impl SampledEvent {
    /// Why it cannot be sampled on this machine, in a sentence that names the setting that would permit it; `None` if it can.
    /// Tried once.
    pub fn lacks(self) -> Option<&'static str> {
        static LACKS: [OnceLock<Option<String>>; 2] = [const { OnceLock::new() }; 2];
        let tried = || {
            let cpu = allowed_cpus().first().copied().unwrap_or(0);
            self.builder(cpu).build().map_err(|error| self.refused(&error)).and_then(|_| symbols::check()).err()
        };
        LACKS[self as usize].get_or_init(tried).as_deref()
    }

    fn builder(self, cpu: usize) -> Builder<'static> {
        let mut builder = match self {
            SampledEvent::Time => Builder::new(Software::CPU_CLOCK),
            SampledEvent::CacheMisses => Builder::new(Hardware::CACHE_MISSES),
        };
        let most = number("perf_event_max_sample_rate").unwrap_or(FREQUENCY);
        builder.any_pid().one_cpu(cpu).include_kernel().sample_frequency(FREQUENCY.min(most));
        builder.sample(SampleFlag::TID | SampleFlag::PERIOD | SampleFlag::CALLCHAIN);
        builder.exclude_callchain_user(true).sample_max_stack(CHAIN);
        builder
    }

    fn refused(self, error: &io::Error) -> String {
        let paranoid = number("perf_event_paranoid").map_or("unknown".to_owned(), |level: i64| level.to_string());
        match (self, error.raw_os_error()) {
            (_, Some(errno::EPERM | errno::EACCES)) => format!(
                "perf_event may not sample the CPUs, as kernel.perf_event_paranoid is {paranoid}: set it to 0 or lower, or give the \
                 program CAP_PERFMON; in a container its seccomp profile must allow perf_event_open as well"
            ),
            (_, Some(errno::ENOSYS)) => {
                "this kernel has no perf_event: it needs CONFIG_PERF_EVENTS".to_owned()
            }
            (SampledEvent::CacheMisses, Some(errno::ENOENT | errno::EOPNOTSUPP | errno::ENODEV)) => {
                "the kernel finds no hardware counter of cache misses: a virtual machine has one only if its hypervisor passes \
                 performance counters through"
                    .to_owned()
            }
            _ => format!("perf_event cannot sample the CPUs: {error}"),
        }
    }
}

/// Numbers of Linux's errors that have a remedy.
mod errno {
    use rustix::io::Errno;

    pub(super) const EPERM: i32 = Errno::PERM.raw_os_error();
    pub(super) const EACCES: i32 = Errno::ACCESS.raw_os_error();
    pub(super) const ENOSYS: i32 = Errno::NOSYS.raw_os_error();
    pub(super) const ENOENT: i32 = Errno::NOENT.raw_os_error();
    pub(super) const ENODEV: i32 = Errno::NODEV.raw_os_error();
    pub(super) const EOPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();
}

/// A setting of the kernel.
fn number<N: std::str::FromStr>(setting: &str) -> Option<N> {
    fs::read_to_string(format!("/proc/sys/kernel/{setting}")).ok()?.trim().parse().ok()
}

impl CpuSampler {
    /// Opens it, without starting it.
    ///
    /// # Errors
    /// A sentence as [`SampledEvent::lacks`] has.
    pub fn open(event: SampledEvent) -> Result<CpuSampler, String> {
        if let Some(reason) = event.lacks() {
            return Err(reason.to_owned());
        }
        let symbols = KernelSymbols::of_this_kernel()?;
        let ring = |cpu| {
            let counter = event.builder(cpu).build().map_err(|error| event.refused(&error))?;
            counter.sampled(RING).map_err(|error| {
                format!("a ring for samples cannot be locked in memory ({error}): raise kernel.perf_event_mlock_kb")
            })
        };
        let rings = allowed_cpus().into_iter().map(ring).collect::<Result<_, _>>()?;
        Ok(CpuSampler { rings, symbols })
    }

    /// Samples while `run` runs. A ring has room for about 300 ms at most.
    ///
    /// # Errors
    /// The kernel refuses to start or stop a counter, or has written a record that is none.
    pub fn during<R>(&mut self, run: impl FnOnce() -> R) -> io::Result<(R, SampleTally)> {
        self.rings.iter_mut().try_for_each(|ring| ring.enable())?;
        let result = run();
        self.rings.iter_mut().try_for_each(|ring| ring.disable())?;
        let mut tally = SampleTally::default();
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                let said = RingRecord::parse(record.ty(), &record.to_contiguous());
                let said = said.ok_or_else(|| io::Error::other("the kernel has written a record that is too short"))?;
                add(&mut tally, self.symbols, &said);
            }
        }
        Ok((result, tally))
    }
}

/// Adds what a record of a ring says.
fn add(tally: &mut SampleTally, symbols: &KernelSymbols, record: &RingRecord) {
    match record {
        RingRecord::Sample { process, period, chain } => {
            let part = part_of(chain.iter().map(|address| symbols.role(*address)));
            tally.add(std::process::id(), *process, *period, part);
        }
        RingRecord::Lost(lost) => tally.lost += lost,
        RingRecord::Nothing => {}
    }
}
