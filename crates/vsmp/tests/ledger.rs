//! Each cycle of each CPU has a part: the parts add up to the clocks, in every order and under every architecture, and
//! each charge is in the correct part.

use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use stack::Architecture;
use sync::{Atomic, Lock, LockClass, LockKind, Object, Ordering, Platform, Step, ThreadClass};
use vsmp::order::{Delayed, Order, Random, TimeOrdered};
use vsmp::preset::{Kernel, Preset};
use vsmp::simulation::Simulation;
use vsmp::workload::pair::Pair;
use vsmp::{Account, Arena, Costs, Machine, Part, PartGroup, SwitchKind, Vsmp};

#[global_allocator]
static ARENA: Arena = Arena::new();

type Word = <Vsmp as Platform>::AtomicU32;

fn check(account: &Account, cpus: usize) {
    assert_eq!(account.cpus.len(), cpus);
    for (number, cpu) in account.cpus.iter().enumerate() {
        assert_eq!(cpu.sum(), cpu.total, "CPU {number}: parts and clock differ: {cpu:?}");
        let groups: u64 = PartGroup::ALL.into_iter().map(|group| cpu.group(group)).sum();
        assert_eq!(groups, cpu.total, "CPU {number}");
    }
    assert_eq!(account.switch_kinds.iter().sum::<u64>(), account.switches, "{:?}", account.switch_kinds);
    let taken = [SwitchKind::Preempted, SwitchKind::SliceOver].map(|kind| account.switch_kinds[kind as usize]);
    assert_eq!(taken.iter().sum::<u64>(), account.preemptions);
}

#[every_arch]
fn the_parts_of_every_cpu_sum_to_its_clock(arch: Architecture) {
    let orders: [Box<dyn Order>; 3] =
        [Box::new(TimeOrdered), Box::new(Random::new(5)), Box::new(Delayed::new(Random::new(6), 6, 40, 300))];
    for (order, lock_kind) in orders.into_iter().zip([LockKind::Adaptive, LockKind::SpinPark, LockKind::Mcs]) {
        let time = Duration::from_millis(3);
        let pair = Pair { cpus: 3, lock_kind, connections: 5, time, ..Pair::new(arch) };
        let (_, outcome) = Machine::new(3, Costs::opteron_275()).order(order).run(move || pair.run());
        check(&outcome.account, 3);
        let clocks = outcome.account.cpus.iter().map(|cpu| cpu.total);
        assert!(clocks.clone().min() > clocks.max().map(|most| most / 2), "{:?}", outcome.account.cpus);
    }
}

/// The measurement is a difference of two readings: CPUs idle, spin and work across both.
#[test]
fn a_window_of_the_senders_has_the_time_of_every_cpu() {
    for name in ["msgp:1+coupled", "connp-t"] {
        let preset = Preset::named("opteron-275").expect("it is built in");
        let arch = name.parse().ok();
        let simulation = Simulation::new(preset, arch, 4, 12);
        let run = simulation.run(Kernel::OfThePaper, 1);
        check(&run.account, 4);
        let window = run.time.as_nanos() as u64 * 2200 / 1000;
        for cpu in &run.account.cpus {
            let off = cpu.total.abs_diff(window);
            assert!(off < window / 100, "{name}: {} cycles in a window of {window}", cpu.total);
        }
        let held: u64 = run.locks.iter().map(|lock| lock.hold_ns).sum();
        assert!(held > 0 && held < 4 * run.time.as_nanos() as u64 * 4, "{name}: locks were held for {held} ns");
        // No thread waits without a first try that failed, and a wait takes time.
        for lock in &run.locks {
            assert_eq!(lock.first_try_failed == 0, lock.wait_ns == 0, "{lock:?}");
        }
    }
}

/// One CPU, one thread, and each kind of charge once.
#[test]
fn a_charge_is_in_its_part() {
    let costs = Costs::opteron_275();
    let (relax, atomic, memory, line) = (costs.relax, costs.read_modify_write, costs.memory, costs.payload_line);
    let ((), outcome) = Machine::new(1, costs.clone()).run(|| {
        Vsmp::work(Step::Frame, 10);
        Vsmp::fence(Ordering::SeqCst);
        let memory = vec![0_u8; 640].into_boxed_slice();
        Vsmp::touch(Object::Message, memory.as_ptr(), 640, true);
        Vsmp::touch(Object::Payload, memory.as_ptr(), 640, false);
        Vsmp::relax(0);
    });
    let account = &outcome.account;
    check(account, 1);
    let of = |part: Part| account.cycles(part);
    assert_eq!(of(Part::Work(Step::Frame)), 10 * costs.work[Step::Frame as usize]);
    assert_eq!(of(Part::ReadModifyWrite), atomic);
    assert_eq!(of(Part::Miss(Object::Message)), 10 * memory);
    assert_eq!((of(Part::Miss(Object::Payload)), of(Part::Payload)), (0, 10 * line), "it had the lines");
    assert_eq!(of(Part::Spin), relax);
    assert_eq!(account.switch_kinds[SwitchKind::FromIdle as usize], 1, "the first thread");
    assert_eq!((of(Part::IdleExit), of(Part::Switch)), (costs.idle_exit, costs.switch));
}

/// Lines that follow another one cost a part, in an access or behind the access before, and others all.
#[test]
fn lines_that_follow_another_cost_less() {
    let costs = Costs { following: 25, ..Costs::opteron_275() };
    let ((), outcome) = Machine::new(1, costs.clone()).run(|| {
        let memory = vec![0_u8; 4096].into_boxed_slice();
        Vsmp::touch(Object::Message, memory.as_ptr(), 64 * 9, true);
        Vsmp::touch(Object::Message, memory[2048..].as_ptr(), 1, true);
        Vsmp::touch(Object::Message, memory[2048 + 64..].as_ptr(), 1, true);
    });
    check(&outcome.account, 1);
    let lines = outcome.account.object_misses[Object::Message as usize];
    let cycles = outcome.account.cycles(Part::Miss(Object::Message));
    assert_eq!(cycles, 2 * costs.memory + (lines - 2) * (costs.memory * 25 / 100), "{lines} lines");
    assert!(lines >= 11);
}

/// The clock of several CPUs is slower, by the machine's number; that of one CPU is not.
#[test]
fn cpus_that_work_together_are_slower() {
    let costs = Costs { together: 50, ..Costs::opteron_275() };
    let nanos = |cpus: usize| {
        let machine = Machine::new(cpus, costs.clone());
        machine.run(|| Vsmp::work(Step::Frame, 1000)).1.nanos
    };
    let [one, two, three] = [1, 2, 3].map(nanos);
    assert!(two.abs_diff(2 * one) <= 2 && two == three, "{one}, {two}, {three} ns");
}

/// A thread that waits for a lock spins while the holder works, and a CPU without a thread idles.
#[test]
fn waiting_is_spinning_or_idling() {
    let costs = Costs::opteron_275();
    let work = costs.work[Step::Frame as usize] * 1000;
    let program = |kind: LockKind| {
        move || {
            let lock = Arc::new(Lock::<u32, Vsmp>::new(kind, LockClass::Group, 0));
            let other = lock.clone();
            let guard = lock.lock();
            let thread = Vsmp::spawn("waits", Some(1), ThreadClass::Application, move || *other.lock() += 1);
            Vsmp::work(Step::Frame, 1000);
            let word = Word::new(0);
            word.store(1, Ordering::Relaxed);
            drop(guard);
            Vsmp::join(thread).expect("it ends");
        }
    };
    for (kind, part) in [(LockKind::Ticket, Part::Spin), (LockKind::Blocking, Part::Idle)] {
        let ((), outcome) = Machine::new(3, costs.clone()).run(program(kind));
        check(&outcome.account, 3);
        let waited = outcome.account.cpus[1].of(part);
        assert!((work * 9 / 10..work * 11 / 10).contains(&waited), "{kind}: {waited} of {work}");
        let unused = &outcome.account.cpus[2];
        assert_eq!(unused.of(Part::Idle), unused.total, "a CPU without a thread");
        assert!(unused.total > work);
    }
}
