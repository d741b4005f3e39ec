//! [`Vsmp`]: the platform seam over a machine.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

use sync::lock_order::HeldLocks;
use sync::profile::{ProfileTable, ThreadCounters};
use sync::{LockClass, LockStep, NoDoorbell, Object, Ordering, Platform, Step, ThreadClass, real};

use crate::machine;
use crate::word::Word;

/// The platform of virtual machines. Its threads must be started by [`Machine::run`](crate::Machine::run).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vsmp;

static PROFILE: ProfileTable<Vsmp> = ProfileTable::new();

/// The lock profile of all machines of the process. Exact when none runs.
pub fn lock_profile() -> &'static ProfileTable<Vsmp> {
    &PROFILE
}

/// The time of a clock when a machine is started, in nanoseconds: not zero, which stands for "never" in some code.
const START: u64 = 1_000_000_000;

/// Turns after which a spin becomes a yield, as on the real machine.
const SPINS_BEFORE_YIELD: u32 = 512;

impl Platform for Vsmp {
    const CHARGED: bool = true;
    const FREE_CLOCK: bool = true;
    const TURNS_BEFORE_SLEEP: u32 = 0;

    type AtomicU32 = Word<AtomicU32>;
    type AtomicU64 = Word<AtomicU64>;
    type AtomicUsize = Word<AtomicUsize>;
    type AtomicBool = Word<AtomicBool>;
    type Cell<T> = real::Plain<T>;
    type JoinHandle = usize;
    type Doorbell = NoDoorbell<Vsmp>;

    fn spawn(name: &str, cpu: Option<usize>, class: ThreadClass, body: impl FnOnce() + Send + 'static) -> usize {
        machine::start(name, cpu, class, Box::new(body))
    }
    fn join(thread: usize) -> std::thread::Result<()> {
        machine::join(thread)
    }
    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        let timeout = timeout.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        machine::sleep(atom.address(), || atom.peek() == expected, timeout);
    }
    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        machine::wake(atom.address(), n);
    }
    fn relax(spins: u32) {
        if spins < SPINS_BEFORE_YIELD || machine::spins_for_good() { machine::relax() } else { machine::yield_now() }
    }
    fn yield_now() {
        machine::yield_now();
    }
    fn now() -> u64 {
        START + machine::nanos()
    }
    fn random() -> u64 {
        machine::random()
    }
    fn thread_index() -> usize {
        machine::current().unwrap_or(usize::MAX - 1)
    }
    fn thread_name() -> String {
        machine::thread_name()
    }
    fn in_callback() -> bool {
        machine::in_callback()
    }
    fn set_in_callback(inside: bool) -> bool {
        machine::set_in_callback(inside)
    }
    fn runs(thread: usize) -> Option<bool> {
        machine::runs(thread)
    }
    fn has_turnstiles() -> bool {
        machine::has_turnstiles()
    }
    fn consult_turnstile(word: &Self::AtomicU32) {
        machine::consult_turnstile(std::ptr::from_ref(word).addr());
    }
    fn lend(thread: usize) {
        machine::lend(thread);
    }
    fn repay() {
        machine::repay();
    }
    fn null_lock_excludes() -> bool {
        machine::has_one_cpu()
    }
    fn mask() {
        machine::mask();
    }
    fn unmask() {
        machine::unmask();
    }
    fn work(step: Step, n: usize) {
        machine::work(step, n);
    }
    fn work_in_part(step: Step, quarters: usize) {
        machine::work_in_part(step, quarters);
    }
    fn sum(address: *const u8, length: usize) {
        machine::sum(address.addr(), length);
    }
    fn touch(object: Object, address: *const u8, length: usize, write: bool) {
        machine::touch(object, address.addr(), length, write);
    }
    fn lock_step(step: LockStep, class: LockClass, address: usize) {
        machine::lock_step(step, class, address);
    }
    fn fence(_: Ordering) {
        machine::fence();
    }
    fn lock_counters() -> Option<&'static ThreadCounters> {
        Some(PROFILE.slot(Self::thread_index()))
    }
    fn with_held(look: impl FnOnce(&HeldLocks)) {
        if let Some(held) = machine::held() {
            look(&held);
        }
    }
}
