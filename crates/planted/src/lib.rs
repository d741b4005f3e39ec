//! A platform with one injected fault, to run the shipped code with a bug that a checker must find.
//!
//! Each fault models a mistake in a primitive: an ordering that is too weak, a missing wake-up, a sleep without a last
//! check, a missing fence, a read-modify-write in two steps. A fault may be limited to some threads. A model that
//! passes on the correct platform and also on a faulty one proves nothing; the tests assert that it fails there.

#![forbid(unsafe_code)]

mod chosen;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{self, *};
use std::time::Duration;

use sync::{Atomic, NoDoorbell, PlantedMistake, Platform, RawLock, ThreadClass};

pub use chosen::{ChosenFault, Mistake, choose};

/// The fault. Read at every step, so that one type can represent several, one after the other.
pub trait InjectedFault: Copy + Default + Debug + Send + Sync + 'static {
    /// Release stores become Relaxed.
    fn weak_release() -> bool {
        false
    }
    /// Threads with names that begin with the first string do not wake threads with names that begin with the second.
    fn no_wake() -> Option<(&'static str, &'static str)> {
        None
    }
    /// Sleepers with names that begin like this do not compare the word before they sleep.
    fn blind_sleep() -> Option<&'static str> {
        None
    }
    /// No fence orders anything.
    fn no_fence() -> bool {
        false
    }
    /// [`Platform::fence`] does nothing; light and heavy fences, which locks rely on, still order.
    fn no_full_fence() -> bool {
        false
    }
    /// The platform answers at random whether a thread is running.
    fn guesses() -> bool {
        false
    }
    /// Not a fault: adaptive locks have turnstiles.
    fn announces() -> bool {
        false
    }
    /// A read-modify-write reads, lets others run, and writes.
    fn torn_update() -> bool {
        false
    }
    /// The code above the seam makes this mistake.
    fn makes(_mistake: PlantedMistake) -> bool {
        false
    }
    /// Not a fault: the platform's answer about the state of a thread, if the platform below has none.
    fn runs(_thread: usize) -> Option<bool> {
        None
    }
    /// Not a fault: observes the reports to the platform.
    fn sees(_told: LockNotice) {}
}

/// A lock's report to the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockNotice {
    /// A waiter spins.
    Relax,
    /// A waiter sleeps.
    Sleep,
    /// A waiter is woken.
    Wake,
    /// A waiter lends its priority to the holder.
    Lend {
        /// The index of the holder's thread.
        to: usize,
    },
    /// The priority is returned.
    Repay,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident: $function:ident -> $kind:ty = $value:expr),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;
        impl InjectedFault for $name {
            fn $function() -> $kind {
                $value
            }
        }
    )*};
}
faults! {
    /// Release stores become Relaxed.
    WeakRelease: weak_release -> bool = true,
    /// No thread wakes another.
    NoWake: no_wake -> Option<(&'static str, &'static str)> = Some(("", "")),
    /// Sleepers do not compare the word before they sleep.
    BlindSleep: blind_sleep -> Option<&'static str> = Some(""),
    /// No fence orders anything.
    NoFence: no_fence -> bool = true,
    /// [`Platform::fence`] does nothing; light and heavy fences, which locks rely on, still order.
    NoFullFence: no_full_fence -> bool = true,
    /// A read-modify-write reads, lets others run, and writes.
    TornUpdate: torn_update -> bool = true,
    /// The platform answers at random whether a thread is running.
    Guesses: guesses -> bool = true,
    /// Not a fault: adaptive locks have turnstiles.
    Announces: announces -> bool = true,
}

/// No fault; a platform to watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;
impl InjectedFault for Sound {}

/// Turns that threads of faulty platforms have spent waiting. Not tracked by the checkers.
pub static WAITS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Read-modify-writes of this thread of the machine.
    static UPDATES: Cell<usize> = const { Cell::new(0) };
}

fn updated() {
    UPDATES.set(UPDATES.get() + 1);
}

/// How many read-modify-writes of words of faulty platforms `act` executes on the calling thread.
pub fn updates(act: impl FnOnce()) -> usize {
    let before = UPDATES.get();
    act();
    UPDATES.get() - before
}

/// Platform `P` with fault `F`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted<P, F>(PhantomData<(P, F)>);

/// An atomic of `P` with fault `F`.
pub struct Word<A, P, F>(A, PhantomData<(P, F)>);

fn weaken<F: InjectedFault>(order: Ordering) -> Ordering {
    match order {
        Release if F::weak_release() => Relaxed,
        AcqRel if F::weak_release() => Acquire,
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

/// The result of `change` on a word that no other thread uses.
fn applied<T: Copy + PartialEq, A: Atomic<T>>(word: &A, change: impl FnOnce(&A) -> T) -> T {
    change(word);
    word.load(Acquire)
}

impl<T: Copy + PartialEq, A: Atomic<T>, P: Platform, F: InjectedFault> Atomic<T> for Word<A, P, F> {
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
        updated();
        if F::torn_update() {
            return torn::<P, T>(&self.0, |_| Some(value)).unwrap_or(value);
        }
        self.0.swap(value, weaken::<F>(order))
    }
    fn compare_exchange(&self, current: T, new: T, ok: Ordering, err: Ordering) -> Result<T, T> {
        updated();
        if F::torn_update() {
            return torn::<P, T>(&self.0, |was| (was == current).then_some(new));
        }
        self.0.compare_exchange(current, new, weaken::<F>(ok), err)
    }
    fn compare_exchange_weak(&self, current: T, new: T, ok: Ordering, err: Ordering) -> Result<T, T> {
        self.compare_exchange(current, new, ok, err)
    }
    fn fetch_and(&self, mask: T, order: Ordering) -> T {
        updated();
        if F::torn_update() {
            return torn::<P, T>(&self.0, |was| Some(applied(&A::new(was), |word| word.fetch_and(mask, order))))
                .unwrap_or(mask);
        }
        self.0.fetch_and(mask, weaken::<F>(order))
    }
    fn fetch_or(&self, mask: T, order: Ordering) -> T {
        updated();
        if F::torn_update() {
            return torn::<P, T>(&self.0, |was| Some(applied(&A::new(was), |word| word.fetch_or(mask, order))))
                .unwrap_or(mask);
        }
        self.0.fetch_or(mask, weaken::<F>(order))
    }
}

thread_local! {
    /// Names of a model's threads, all run by one thread of the machine, by index.
    static NAMES: RefCell<HashMap<usize, String>> = RefCell::default();
    /// The addresses at which threads sleep, or are about to.
    static ASLEEP: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

fn is_named(thread: usize, beginning: &str) -> bool {
    NAMES.with_borrow(|names| names.get(&thread).map_or("", String::as_str).starts_with(beginning))
}

/// Whether the calling thread does not wake the threads that sleep at `atom`.
fn leaves_out<P: Platform, F: InjectedFault>(atom: usize) -> bool {
    let sleeps = |beginning: &str| {
        ASLEEP.with_borrow(|asleep| asleep.iter().any(|(at, thread)| *at == atom && is_named(*thread, beginning)))
    };
    F::no_wake().is_some_and(|(by, of)| is_named(P::thread_index(), by) && (of.is_empty() || sleeps(of)))
}

impl<P: Platform, F: InjectedFault> Platform for Planted<P, F> {
    sync::forward_platform!(P: cells join now random thread profile held);

    type AtomicU32 = Word<P::AtomicU32, P, F>;
    type AtomicU64 = Word<P::AtomicU64, P, F>;
    type AtomicUsize = Word<P::AtomicUsize, P, F>;
    type AtomicBool = Word<P::AtomicBool, P, F>;
    type Doorbell = NoDoorbell<Self>;

    fn spawn(
        name: &str,
        cpu: Option<usize>,
        class: ThreadClass,
        body: impl FnOnce() + Send + 'static,
    ) -> Self::JoinHandle {
        let of_its_name = name.to_owned();
        P::spawn(name, cpu, class, move || {
            NAMES.with_borrow_mut(|names| names.insert(P::thread_index(), of_its_name));
            body();
        })
    }
    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        let me = (std::ptr::from_ref(atom).addr(), P::thread_index());
        let is_blind = F::blind_sleep().is_some_and(|beginning| is_named(me.1, beginning));
        let expected = if is_blind { atom.0.load(SeqCst) } else { expected };
        F::sees(LockNotice::Sleep);
        ASLEEP.with_borrow_mut(|asleep| asleep.push(me));
        P::futex_wait(&atom.0, expected, timeout);
        ASLEEP.with_borrow_mut(|asleep| asleep.retain(|sleeper| *sleeper != me));
    }
    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        F::sees(LockNotice::Wake);
        if !leaves_out::<P, F>(std::ptr::from_ref(atom).addr()) {
            P::futex_wake(&atom.0, n);
        }
    }
    fn relax(spins: u32) {
        F::sees(LockNotice::Relax);
        WAITS.fetch_add(1, Relaxed);
        P::relax(spins);
    }
    fn yield_now() {
        WAITS.fetch_add(1, Relaxed);
        P::yield_now();
    }
    fn runs(thread: usize) -> Option<bool> {
        if F::guesses() { Some(P::random().is_multiple_of(2)) } else { P::runs(thread).or_else(|| F::runs(thread)) }
    }
    fn has_turnstiles() -> bool {
        F::announces()
    }
    fn consult_turnstile(_: &Self::AtomicU32) {
        P::yield_now();
    }
    fn makes(mistake: PlantedMistake) -> bool {
        F::makes(mistake)
    }
    fn lend(thread: usize) {
        F::sees(LockNotice::Lend { to: thread });
        P::lend(thread);
    }
    fn repay() {
        F::sees(LockNotice::Repay);
        P::repay();
    }
    fn fence(order: Ordering) {
        if !F::no_fence() && !F::no_full_fence() {
            P::fence(order);
        }
    }
    fn light_fence() {
        if !F::no_fence() {
            P::light_fence();
        }
    }
    fn heavy_fence() {
        if !F::no_fence() {
            P::heavy_fence();
        }
    }
}

/// A lock with sleeping waiters and a mistake: a thread that has slept takes the lock as if it had been the only
/// sleeper.
pub struct Forgetful<P: Platform>(P::AtomicU32);

impl<P: Platform> RawLock for Forgetful<P> {
    fn new() -> Self {
        Self(P::AtomicU32::new(0))
    }
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }
    fn lock(&self) {
        while !self.try_lock() {
            if self.0.compare_exchange(1, 2, Relaxed, Relaxed).is_ok() || self.0.load(Relaxed) == 2 {
                P::futex_wait(&self.0, 2, None);
            }
        }
    }
    fn unlock(&self) {
        if self.0.swap(0, Release) == 2 {
            P::futex_wake(&self.0, 1);
        }
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
