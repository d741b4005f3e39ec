//! Determinism: runs of one build have equal traces in different processes, with and without address space layout
//! randomisation, in another environment. The test starts itself again for each run.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use stack::{ALL_ARCHITECTURES, Architecture};
use sync::LockKind;
use vsmp::preset::{Kernel, Preset};
use vsmp::simulation::Simulation;
use vsmp::workload::bridges::BridgeTrial;
use vsmp::workload::messages::Messages;
use vsmp::workload::pair::Pair;
use vsmp::{Arena, Costs, Machine};

#[global_allocator]
static ARENA: Arena = Arena::new();

/// Marks a child by its environment.
const CHILD: &str = "HEDDLE_VSMP_CHILD";
/// Makes it record its run.
const LOOKS: &str = "HEDDLE_VSMP_LOOKS";

fn main() {
    // Under cargo's test runners the program is asked for its tests, too.
    if std::env::args().any(|argument| argument == "--list") {
        return println!("traces_repeat: test");
    }
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let runs = [
        run(false, "one", false),
        run(false, "another environment, longer by far", false),
        run(true, "one", false),
        // Timeline and capture do not change the run.
        run(false, "one", true),
    ];
    for run in &runs {
        assert_eq!(run.lines().count(), ALL_ARCHITECTURES.len() + 6, "a line for each architecture, and six: {run}");
        assert_eq!(*run, runs[0], "two runs of one build differ");
    }
    println!("test traces_repeat ... ok");
}

/// Runs every architecture and prints the traces.
fn child() {
    for name in ALL_ARCHITECTURES {
        let arch: Architecture = name.parse().expect("an architecture");
        let (connections, time) = (6, Duration::from_millis(2));
        let pair = Pair { cpus: 4, lock_kind: LockKind::SpinPark, connections, time, ..Pair::new(arch) };
        let (transferred, outcome) = Machine::new(4, Costs::opteron_275()).run(move || pair.run());
        println!("{name} {:016x} {} {} bytes", outcome.account.trace, outcome.account.operations, transferred.bytes);
    }
    // Messages from a driver in memory.
    for (arch, presentation) in [("conn-thread:20", true), ("msgp-pool", false)] {
        let preset = Preset::named("sparccenter-2000").expect("it is built in");
        let (costs, kernel) = (preset.costs(Kernel::OfThePaper), Kernel::OfThePaper);
        let (arch, counts) = (arch.parse().expect("an architecture"), (50, 200));
        let (cpus, connections, seed, ipv6, lock_kind) = (6, 7, 3, false, None);
        let messages =
            Messages { arch, cpus, connections, presentation, preset, kernel, seed, ipv6, lock_kind, counts };
        let (measured, outcome) = Machine::new(cpus, costs).seed(seed).run(move || messages.run());
        println!("messages {:016x} {} bytes", outcome.account.trace, measured.bytes);
    }
    // A bridge, and the two seeds of its flows.
    for seed in [1, 2] {
        let preset = Preset::named("atom-c2758").expect("it is built in");
        let load = "mpsafe+ms=2".parse().expect("words of the workload");
        let trial = BridgeTrial { load, cpus: 4, rate: 400_000, preset, kernel: Kernel::OfThePaper, seed };
        let forwarded = trial.simulate();
        println!("bridge {seed} {:016x} {} frames", forwarded.trace, forwarded.delivered());
    }
    // Cards, their clients and the seed.
    for seed in [1, 2] {
        let preset = Preset::named("opteron-275").expect("it is built in");
        let arch = "connp-l:128".parse().ok();
        let simulation = Simulation::new(preset, arch, 4, 12);
        let look = std::env::var_os(LOOKS).is_some();
        let stretch = if look { Duration::from_millis(1) } else { Duration::ZERO };
        let measured = simulation.run_and_record(Kernel::OfThePaper, seed, stretch);
        assert_eq!(measured.timeline.is_some_and(|timeline| timeline.spans.len() > 20), look);
        assert_eq!(measured.capture.is_some_and(|capture| capture.len() > 10_000), look);
        println!("seed {seed} {:016x} {} bytes", measured.account.trace, measured.bytes);
    }
}

/// The lines of a child, perhaps without randomisation, perhaps with a recording.
fn run(fixed: bool, environment: &str, looks: bool) -> String {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.env(CHILD, "1").env("HEDDLE_VSMP_PADDING", environment);
    if looks {
        command.env(LOOKS, "1");
    }
    if fixed {
        // SAFETY: `personality` is async-signal-safe and touches no memory of ours.
        unsafe {
            command.pre_exec(|| {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                Ok(())
            });
        }
    }
    let output = command.output().expect("it can be started again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("lines")
}
