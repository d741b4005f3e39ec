//! Shuttle's platform without time-outs: a thread that sleeps is woken by another thread or never.
//!
//! On shuttle's own a sleep with a time limit may end at once, which is one of the things that can happen; but then a
//! thread whose wake-up was lost polls its way out, and the loss does not show.

use std::time::Duration;

use sync::lock_order::Held;
use sync::shuttle::Shuttle;
use sync::{Ordering, Platform, Silent};

#[derive(Clone, Copy, Debug, Default)]
pub struct Patient;

impl Platform for Patient {
    const EXPLORED: bool = true;

    type AtomicU32 = <Shuttle as Platform>::AtomicU32;
    type AtomicU64 = <Shuttle as Platform>::AtomicU64;
    type AtomicUsize = <Shuttle as Platform>::AtomicUsize;
    type AtomicBool = <Shuttle as Platform>::AtomicBool;
    type Cell<T> = <Shuttle as Platform>::Cell<T>;
    type JoinHandle = <Shuttle as Platform>::JoinHandle;
    type Doorbell = Silent<Patient>;

    fn spawn(name: &str, cpu: Option<usize>, body: impl FnOnce() + Send + 'static) -> Self::JoinHandle {
        Shuttle::spawn(name, cpu, body)
    }
    fn join(handle: Self::JoinHandle) -> std::thread::Result<()> {
        Shuttle::join(handle)
    }
    fn futex_wait(atom: &Self::AtomicU32, expected: u32, _timeout: Option<Duration>) {
        Shuttle::futex_wait(atom, expected, None);
    }
    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        Shuttle::futex_wake(atom, n);
    }
    fn relax(spins: u32) {
        Shuttle::relax(spins);
    }
    fn yield_now() {
        Shuttle::yield_now();
    }
    fn now() -> u64 {
        Shuttle::now()
    }
    fn random() -> u64 {
        Shuttle::random()
    }
    fn thread_index() -> usize {
        Shuttle::thread_index()
    }
    fn fence(order: Ordering) {
        Shuttle::fence(order);
    }
    fn with_held(look: impl FnOnce(&Held)) {
        Shuttle::with_held(look);
    }
}
