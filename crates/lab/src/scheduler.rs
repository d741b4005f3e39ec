//! Where the kernel's time goes while a contender works: its scheduler, sampled.
//!
//! A [`CpuSampler`] interrupts each CPU some thousand times a second (`perf_event`), by a clock or by a hardware counter of cache
//! misses, and reads which thread ran there and through which functions of the kernel it had come. [`functions`] says which of
//! them are the scheduler; `/proc/kallsyms` says where they are. A [`SampleTally`] has the sums.
//!
//! # What counts
//! Willmann et al. count "cycles spent managing the scheduler and scheduler synchronization" (section 5.3) and take them from
//! performance counters. Here a sample is the scheduler's if it is in a function of [`functions`] or in anything that such a
//! function has called, the spin lock of a run queue included. Queues of sleepers (futex) are counted apart: the paper does not
//! say where FreeBSD's sleep queues belong. Entering and leaving system calls is neither, though the simulator counts it.
//!
//! # Why CPUs are sampled, and not threads
//! The scheduler works with interrupts disabled. An interrupt that becomes due there is taken at the end of that section, still
//! inside the scheduler: `finish_task_switch` after a change of threads, or the release of the run queue's lock. A clock that belongs
//! to a thread is stopped in the middle of the change, and the interrupt never comes; a clock of the CPU goes on. So the CPUs are
//! sampled, and samples of other processes are left out.
//!
//! # What is not seen
//! Interrupt handlers run with interrupts disabled to their end, so the scheduler's tick and a wake-up by an interrupt fall to what
//! was interrupted. A change to the idle thread ends in the idle thread, which belongs to no process: [`SampleTally::idle_scheduler`]
//! has these samples, and other processes may have caused them.
//!
//! Nothing is lost silently: records that the ring had no room for are counted ([`SampleTally::lost`]).

pub mod functions;
mod record;
mod sampler;
mod symbols;
mod tally;

pub use sampler::{CpuSampler, SampledEvent};
pub use tally::SampleTally;
