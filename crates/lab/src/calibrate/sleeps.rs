//! The costs of the scheduler: a system call, a wake-up, a change of threads, and the way out of idleness.
//!
//! Two threads wake each other in turns, on one CPU and on two. The same program runs on the model, without the cost in
//! question: the difference is that cost. So a cost is what the model needs, whatever else a wake-up does.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use sync::{Atomic, Ordering, Platform, Real, ThreadClass};
use vsmp::{Costs, Machine, Vsmp};

use super::cost::Cost;

/// Round trips between two readings of the clock, and how many such batches.
const BATCH: u32 = 20;
const BATCHES: usize = 300;

/// Costs of the scheduler, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Sleeps {
    /// Entering the kernel and leaving it.
    pub system_call: Cost,
    /// Waking a thread that sleeps, beyond the system call, if its CPU is busy.
    pub wake: Cost,
    /// What the thread that wakes pays in addition if the other CPU is idle: an interrupt to it.
    pub wake_idle: Cost,
    /// A change of threads on a CPU.
    pub switch: Cost,
    /// An idle CPU begins to run.
    pub idle_exit: Cost,
}

/// Two threads on these CPUs wake each other in turns. The nanoseconds of each batch, for one round trip; and those of
/// each batch's calls that wake, for one call.
fn alternate<P: Platform>(cpus: [usize; 2], batches: usize) -> [Vec<f64>; 2] {
    let (turn, times) = (Arc::new(P::AtomicU32::new(0)), Arc::new(Mutex::new([Vec::new(), Vec::new()])));
    let rounds = BATCH * batches as u32;
    let threads = [0, 1].map(|me| {
        let (turn, times) = (turn.clone(), times.clone());
        P::spawn("alternates", Some(cpus[me as usize]), ThreadClass::Application, move || {
            let (mut batches, mut calls, mut waking) = (Vec::new(), Vec::new(), 0);
            let mut started = P::now();
            for round in 0..rounds {
                loop {
                    let seen = turn.load(Ordering::Acquire);
                    if seen % 2 == me {
                        break;
                    }
                    P::futex_wait(&turn, seen, None);
                }
                turn.fetch_add(1, Ordering::AcqRel);
                let before = P::now();
                P::futex_wake(&turn, 1);
                let now = P::now();
                waking += now - before;
                if (round + 1) % BATCH == 0 {
                    batches.push((now - started) as f64 / f64::from(BATCH));
                    calls.push(waking as f64 / f64::from(BATCH));
                    (started, waking) = (now, 0);
                }
            }
            if me == 0 {
                *times.lock().unwrap_or_else(PoisonError::into_inner) = [batches, calls];
            }
        })
    });
    threads.into_iter().for_each(|thread| P::join(thread).expect("it does not panic"));
    let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *times)
}

/// Nanoseconds of a voluntary change of threads on a CPU with the wake-up of the other thread, and the system calls of both: half a
/// round trip of two threads that wake each other in turns.
pub fn switch_with_wake(cpu: usize) -> Cost {
    let [round_trips, _] = alternate::<Real>([cpu, cpu], BATCHES / 3);
    Cost::of(round_trips).over(2.0)
}

/// A round trip on the model.
fn on_the_model(costs: &Costs, cpus: [usize; 2]) -> f64 {
    let ([round_trips, _], _) = Machine::new(2, costs.clone()).run(move || alternate::<Vsmp>(cpus, 10));
    Cost::of(round_trips).nanos
}

impl Sleeps {
    /// Measures on two CPUs. The other costs of the machine are in `costs`.
    pub fn measure(cpus: [usize; 2], costs: &Costs) -> Sleeps {
        let call = move || {
            let _ = Real::pin(cpus[0]);
            Cost::measure(100, 500, || (0..500).for_each(|_| _ = rustix::process::getppid()))
        };
        let system_call = thread::spawn(call).join().expect("it calls the kernel");
        let [apart, calls] = alternate::<Real>(cpus, BATCHES);
        let [together, calls_together] = alternate::<Real>([cpus[0], cpus[0]], BATCHES);
        let clock = clock_reading();
        let call = |calls: Vec<f64>| Cost::of(calls).less(system_call.nanos + clock);
        let wake = call(calls_together);
        // The kernel may run the thread that was woken before the call returns: then the call has the change of threads in
        // it, which is the greater part of the way there.
        let third = (Cost::of(together.clone()).nanos / 2.0 - 2.0 * system_call.nanos).max(0.0) / 3.0;
        let wake = Cost { nanos: wake.nanos.min(third), ..wake };
        let wake_idle = call(calls).less(wake.nanos);
        let mut costs = costs.clone();
        (costs.wake_lines, costs.switch_lines, costs.switch, costs.idle_exit) = (0, 0, 0, 0);
        (costs.system_call, costs.wake) = (in_cycles(&costs, system_call.nanos), in_cycles(&costs, wake.nanos));
        costs.wake_idle = in_cycles(&costs, wake_idle.nanos);
        // Two clock readings, two wake-ups, two changes of threads.
        let both = |batches: Vec<f64>| Cost::of(batches).less(4.0 * clock);
        let switch = both(together).less(on_the_model(&costs, [0, 0])).over(2.0);
        costs.switch = in_cycles(&costs, switch.nanos);
        let idle_exit = both(apart).less(on_the_model(&costs, [0, 1])).over(2.0);
        Sleeps { system_call, wake, wake_idle, switch, idle_exit }
    }
}

/// Nanoseconds in cycles, to the nearest.
pub fn in_cycles(costs: &Costs, nanos: f64) -> u64 {
    (nanos * costs.megahertz as f64 / 1000.0).round() as u64
}

/// Nanoseconds of a reading of the platform's clock.
pub fn clock_reading() -> f64 {
    let started = Instant::now();
    let last = (0..10_000).fold(0, |last, _| std::hint::black_box(Real::now()).max(last));
    std::hint::black_box(last);
    started.elapsed().as_nanos() as f64 / 10_000.0
}
