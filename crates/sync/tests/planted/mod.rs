//! A platform with one fault, so that the code which ships can be run with a bug that a checker has to find.
//!
//! Each fault stands for a mistake in a primitive: an ordering that is too weak, a wake-up left out, a sleep that does
//! not look again first, a fence left out, a read-modify-write in two steps. A model that passes on the sound platform
//! and also on a faulty one proves nothing; the tests assert that it fails there.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{self, *};
use std::time::Duration;

use sync::lock_order::Held;
use sync::profile::ThreadCounters;
use sync::{Atomic, Platform, Silent};

/// Which fault.
pub trait Fault: Copy + Default + Debug + Send + Sync + 'static {
    /// What was published with Release is published with Relaxed.
    const WEAK_RELEASE: bool = false;
    /// Nobody is woken.
    const NO_WAKE: bool = false;
    /// A sleeper does not compare the word before it sleeps.
    const BLIND_SLEEP: bool = false;
    /// Fences do nothing.
    const NO_FENCE: bool = false;
    /// A read-modify-write reads, lets others run, and writes.
    const TORN_UPDATE: bool = false;
}

macro_rules! faults {
    ($($name:ident: $constant:ident),*) => {$(
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;
        impl Fault for $name { const $constant: bool = true; }
    )*};
}
faults!(WeakRelease: WEAK_RELEASE, NoWake: NO_WAKE, BlindSleep: BLIND_SLEEP, NoFence: NO_FENCE, TornUpdate: TORN_UPDATE);

/// No fault; a platform to watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;
impl Fault for Sound {}

/// Turns that threads of planted platforms have spent waiting. Outside the checkers' sight.
pub static WAITS: AtomicUsize = AtomicUsize::new(0);

/// Platform `P` with fault `F`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted<P, F>(PhantomData<(P, F)>);

/// An atomic of `P` with fault `F`.
pub struct Word<A, P, F>(A, PhantomData<(P, F)>);

fn weaken<F: Fault>(order: Ordering) -> Ordering {
    match order {
        Release if F::WEAK_RELEASE => Relaxed,
        AcqRel if F::WEAK_RELEASE => Acquire,
        order => order,
    }
}

fn torn<P: Platform, T: Copy + PartialEq>(word: &impl Atomic<T>, step: impl FnOnce(T) -> Option<T>) -> Result<T, T> {
    let was = word.load(Acquire);
    P::yield_now();
    match step(was) {
        Some(new) => {
            word.store(new, Release);
            Ok(was)
        }
        None => Err(was),
    }
}

/// What `change` makes of a word that nobody else knows.
fn applied<T: Copy + PartialEq, A: Atomic<T>>(word: &A, change: impl FnOnce(&A) -> T) -> T {
    change(word);
    word.load(Acquire)
}

impl<T: Copy + PartialEq, A: Atomic<T>, P: Platform, F: Fault> Atomic<T> for Word<A, P, F> {
    fn new(value: T) -> Self {
        Self(A::new(value), PhantomData)
    }
    fn load(&self, order: Ordering) -> T {
        self.0.load(order)
    }
    fn store(&self, value: T, order: Ordering) {
        self.0.store(value, weaken::<F>(order));
    }
    fn swap(&self, value: T, order: Ordering) -> T {
        if F::TORN_UPDATE {
            return torn::<P, T>(&self.0, |_| Some(value)).unwrap_or(value);
        }
        self.0.swap(value, weaken::<F>(order))
    }
    fn compare_exchange(&self, current: T, new: T, ok: Ordering, err: Ordering) -> Result<T, T> {
        if F::TORN_UPDATE {
            return torn::<P, T>(&self.0, |was| (was == current).then_some(new));
        }
        self.0.compare_exchange(current, new, weaken::<F>(ok), err)
    }
    fn compare_exchange_weak(&self, current: T, new: T, ok: Ordering, err: Ordering) -> Result<T, T> {
        self.compare_exchange(current, new, ok, err)
    }
    fn fetch_and(&self, mask: T, order: Ordering) -> T {
        if F::TORN_UPDATE {
            return torn::<P, T>(&self.0, |was| Some(applied(&A::new(was), |word| word.fetch_and(mask, order))))
                .unwrap_or(mask);
        }
        self.0.fetch_and(mask, weaken::<F>(order))
    }
    fn fetch_or(&self, mask: T, order: Ordering) -> T {
        if F::TORN_UPDATE {
            return torn::<P, T>(&self.0, |was| Some(applied(&A::new(was), |word| word.fetch_or(mask, order))))
                .unwrap_or(mask);
        }
        self.0.fetch_or(mask, weaken::<F>(order))
    }
}

impl<P: Platform, F: Fault> Platform for Planted<P, F> {
    const EXPLORED: bool = P::EXPLORED;

    type AtomicU32 = Word<P::AtomicU32, P, F>;
    type AtomicU64 = Word<P::AtomicU64, P, F>;
    type AtomicUsize = Word<P::AtomicUsize, P, F>;
    type AtomicBool = Word<P::AtomicBool, P, F>;
    type Cell<T> = P::Cell<T>;
    type JoinHandle = P::JoinHandle;
    type Doorbell = Silent<Self>;

    fn spawn(name: &str, cpu: Option<usize>, body: impl FnOnce() + Send + 'static) -> Self::JoinHandle {
        P::spawn(name, cpu, body)
    }
    fn join(handle: Self::JoinHandle) -> std::thread::Result<()> {
        P::join(handle)
    }
    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        let expected = if F::BLIND_SLEEP { atom.0.load(SeqCst) } else { expected };
        P::futex_wait(&atom.0, expected, timeout);
    }
    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        if !F::NO_WAKE {
            P::futex_wake(&atom.0, n);
        }
    }
    fn relax(spins: u32) {
        WAITS.fetch_add(1, Relaxed);
        P::relax(spins);
    }
    fn yield_now() {
        WAITS.fetch_add(1, Relaxed);
        P::yield_now();
    }
    fn now() -> u64 {
        P::now()
    }
    fn random() -> u64 {
        P::random()
    }
    fn thread_index() -> usize {
        P::thread_index()
    }
    fn fence(order: Ordering) {
        if !F::NO_FENCE {
            P::fence(order);
        }
    }
    fn lock_counters() -> Option<&'static ThreadCounters> {
        P::lock_counters()
    }
    fn with_held(look: impl FnOnce(&Held)) {
        P::with_held(look);
    }
}

/// Runs a check on a thread of its own; the message if it panics.
pub fn outcome(check: impl FnOnce() + Send + 'static) -> Result<(), String> {
    std::thread::spawn(check).join().map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast::<&str>().map_or_else(|_| "a panic without a text".into(), |text| text.to_string())
        }
    })
}
