//! The platform seam: the one trait through which this crate, `dev` and `stack` reach atomics, threads, clocks and
//! random numbers.
//!
//! This file has only the traits. They are implemented by [`Real`](crate::Real), by the checked platforms and, outside
//! this crate, by the virtual multiprocessor. A platform is a zero-sized type with static functions, chosen at compile
//! time, so [`Real`](crate::Real) costs nothing.
//!
//! What may never happen: code above this file that loops until another thread acts without calling
//! [`Platform::relax`], [`Platform::yield_now`] or [`Platform::futex_wait`]. Such a loop ends on a real machine and
//! never ends on a checked or simulated one.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::charge::{LockStep, Object, Step, ThreadClass};
use crate::doorbell::DoorbellLike;
use crate::lock_class::LockClass;
use crate::lock_order::HeldLocks;
use crate::profile::ThreadCounters;

/// Integer values an [`Atomic`] can count with; arithmetic wraps.
pub trait Integer: Copy {
    /// `self + other`, wrapping at the type's width.
    fn wrapping_add(self, other: Self) -> Self;
    /// `self - other`, wrapping at the type's width.
    fn wrapping_sub(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Integer for $t {
            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                <$t>::wrapping_add(self, other)
            }
            #[inline(always)]
            fn wrapping_sub(self, other: Self) -> Self {
                <$t>::wrapping_sub(self, other)
            }
        }
    )*};
}
integers!(u32, u64, usize);

/// An atomic word of type `T`. The methods behave like those of the same names in [`std::sync::atomic`].
pub trait Atomic<T: Copy + PartialEq>: Send + Sync + 'static {
    /// A word holding `value`.
    fn new(value: T) -> Self;
    /// Reads the word. `order` is `Relaxed`, `Acquire` or `SeqCst`.
    fn load(&self, order: Ordering) -> T;
    /// Writes the word. `order` is `Relaxed`, `Release` or `SeqCst`.
    fn store(&self, value: T, order: Ordering);
    /// Writes `value` and returns the previous value.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` if the value is `current`; otherwise returns the value as the error.
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
    /// As [`compare_exchange`](Self::compare_exchange), but may fail spuriously.
    fn compare_exchange_weak(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
    /// Clears the bits not in `mask`; returns the previous value.
    fn fetch_and(&self, mask: T, order: Ordering) -> T;
    /// Sets the bits in `mask`; returns the previous value.
    fn fetch_or(&self, mask: T, order: Ordering) -> T;

    /// Adds, wrapping; returns the previous value.
    #[inline]
    fn fetch_add(&self, value: T, order: Ordering) -> T
    where
        T: Integer,
    {
        update(self, order, |word| word.wrapping_add(value))
    }

    /// Subtracts, wrapping; returns the previous value.
    #[inline]
    fn fetch_sub(&self, value: T, order: Ordering) -> T
    where
        T: Integer,
    {
        update(self, order, |word| word.wrapping_sub(value))
    }
}

/// A read-modify-write as a compare-exchange loop, for platforms without the instruction.
fn update<T: Copy + PartialEq, A: Atomic<T> + ?Sized>(word: &A, order: Ordering, step: impl Fn(T) -> T) -> T {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        match word.compare_exchange_weak(seen, step(seen), order, Ordering::Relaxed) {
            Ok(was) => return was,
            Err(now) => seen = now,
        }
    }
}

/// Plain memory shared between threads, with accesses ordered by other means; a model checker, if there is one, sees
/// them.
///
/// The closures receive raw pointers: the caller's unsafe block states why the access is exclusive (or shared, without
/// writers) for the lifetime of the reference that it makes.
pub trait CellLike<T> {
    /// A cell holding `value`.
    fn new(value: T) -> Self;
    /// Calls `read` with a pointer that may be read through.
    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R;
    /// Calls `write` with a pointer that may be written through.
    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R;
    /// Takes the value out.
    fn into_inner(self) -> T;
}

/// A mistake that code above the seam makes if [`Platform::makes`] returns true for it, because a platform cannot make
/// it from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedMistake {
    /// A look-up releases the lock of its table before it has a reference to the entry that it found.
    LookUpWithoutReference,
    /// A count of holders under a lock is read and written in two steps.
    CountInTwoSteps,
    /// A change for all cells leaves out the last one.
    ForgottenReplica,
    /// A worker draws its ticket after it has released the lock under which it took its work.
    TicketAfterRelease,
    /// An owner that finds nothing more to do gives its value up in another step.
    ReleaseInTwoSteps,
    /// A connection counts as queued for its processor until that has run what was left, in another step.
    QueuedUntilDrained,
    /// An owner releases a connection for which work was left, and does not queue it for its processor.
    ReleaseWithoutHandOver,
    /// A thread processes its packet directly although others wait or are processed.
    DirectDespiteWork,
    /// A thread checks for events left for a handler, and returns the handler in a separate step.
    ReturnInTwoSteps,
    /// A thread that found no work sleeps without checking again under the lock under which it announces its sleep.
    IdleDespiteWork,
    /// Messages that a module of a stream passes on go to the module that was the next one when it began.
    StaleSuccessor,
    /// A module is removed from a stream, and messages that have arrived at it meanwhile are lost.
    ForgottenArrivals,
    /// Messages that a removed module held are passed on after those that arrived later.
    LeftoversLast,
}

thread_local! {
    /// Of a thread of the kernel; see [`Platform::in_callback`].
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// A machine to run on: real, checked or simulated. See the head of this file.
pub trait Platform: Copy + Default + Debug + Send + Sync + 'static {
    /// Whether a model checker runs the code, so that each turn of a spin multiplies its work. Only bounds on spinning
    /// may depend on it.
    const EXPLORED: bool = false;

    /// How many times a thread that waits for another yields its processor before it sleeps
    /// ([`yield_until`](crate::yield_until)). About the cost of a sleep and a wake-up; few where each turn multiplies a
    /// checker's work; none on a simulated machine, whose threads sleep at once as in the kernels that the papers
    /// measured.
    const TURNS_BEFORE_SLEEP: u32 = if Self::EXPLORED { 1 } else { 100 };

    /// Whether [`Platform::work`] and [`Platform::touch`] charge anything. If not, callers compute no arguments for
    /// them.
    const CHARGED: bool = false;

    /// Whether [`Platform::now`] costs nothing, so that waits for locks and holds are timed without being asked for
    /// ([`profile::is_timed`](crate::profile::is_timed)).
    const FREE_CLOCK: bool = false;

    /// A 32-bit atomic word; the only kind that can be slept on.
    type AtomicU32: Atomic<u32>;
    /// A 64-bit atomic word.
    type AtomicU64: Atomic<u64>;
    /// An atomic word of the machine's width; also holds pointers as addresses.
    type AtomicUsize: Atomic<usize>;
    /// An atomic flag.
    type AtomicBool: Atomic<bool>;
    /// Plain memory with accesses visible to a checker.
    type Cell<T>: CellLike<T>;
    /// A thread that can be waited for.
    type JoinHandle: Send + 'static;
    /// Wakes a reader that sleeps in `poll`.
    type Doorbell: DoorbellLike;

    /// Starts a thread called `name`, on CPU `cpu` if given and allowed (otherwise on any). Only a simulator's
    /// scheduler uses the `class`.
    ///
    /// # Panics
    /// When the system refuses another thread; the message has the reason.
    fn spawn(
        name: &str,
        cpu: Option<usize>,
        class: ThreadClass,
        body: impl FnOnce() + Send + 'static,
    ) -> Self::JoinHandle;

    /// Waits for a thread to end. The error is the value it panicked with.
    fn join(handle: Self::JoinHandle) -> std::thread::Result<()>;

    /// Sleeps while `*atom == expected`, at most `timeout`. May wake spuriously, so callers loop.
    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>);

    /// Wakes up to `n` threads that sleep on `atom`.
    fn futex_wake(atom: &Self::AtomicU32, n: u32);

    /// One turn of a spin loop; `spins` is how many turns went before. A scheduling point unless the platform is real,
    /// where a long spin becomes a yield.
    fn relax(spins: u32);

    /// Gives the processor to another runnable thread, if there is one.
    fn yield_now();

    /// Nanoseconds since a fixed, arbitrary start; never goes backwards on one thread, and between threads by less than
    /// a microsecond.
    fn now() -> u64;

    /// 64 random bits: unpredictable on [`Real`](crate::Real) (fit for seeds and secrets), a function of the schedule
    /// elsewhere.
    fn random() -> u64;

    /// A small dense number for the calling thread, real or simulated. It belongs to one live thread at a time, and is
    /// reused after its owner has ended.
    fn thread_index() -> usize;

    /// [`Platform::thread_index`] if the calling thread has been given one, else `usize::MAX`. Never calls anything, so
    /// that a comparison with it costs two loads.
    #[inline]
    fn known_thread_index() -> usize {
        Self::thread_index()
    }

    /// The calling thread's name, for reports.
    fn thread_name() -> String {
        std::thread::current().name().unwrap_or("without a name").to_owned()
    }

    /// Whether the thread of this [index](Platform::thread_index) is running now. `None`: unknown, as on every real
    /// platform without a system call.
    #[inline(always)]
    fn runs(thread: usize) -> Option<bool> {
        let _ = thread;
        None
    }

    /// Whether a waiter for an adaptive lock that is held, and the holder that releases it, consult the queue of its
    /// sleepers ([`Platform::consult_turnstile`]), as in FreeBSD, even if nobody sleeps.
    #[inline(always)]
    fn has_turnstiles() -> bool {
        false
    }

    /// Looks at the queue of sleepers of the lock with this word: locks the chain of queues that it is in, and unlocks it.
    /// Called by a thread that waits for the lock, and by its holder.
    #[inline(always)]
    fn consult_turnstile(word: &Self::AtomicU32) {
        let _ = word;
    }

    /// The calling thread waits for the thread of this index, which runs at least at the caller's priority until it
    /// calls [`Platform::repay`]. Does nothing without priorities.
    #[inline(always)]
    fn lend(thread: usize) {
        let _ = thread;
    }

    /// The calling thread returns the priority that others have lent it.
    #[inline(always)]
    fn repay() {}

    /// Whether a null lock excludes other threads: the machine has one processor, and the holder of such a lock keeps it
    /// ([`Platform::mask`]), as in a kernel for one processor that raises its interrupt priority level (spl).
    #[inline(always)]
    fn null_lock_excludes() -> bool {
        false
    }

    /// The calling thread has or takes a null lock: where that excludes, it keeps the processor until it has called
    /// [`Platform::unmask`] as often. A thread that sleeps meanwhile keeps the others out of such locks.
    #[inline(always)]
    fn mask() {}

    /// See [`Platform::mask`].
    #[inline(always)]
    fn unmask() {}

    /// Plain work that a simulator charges for: `n` times the cost of `step`.
    #[inline(always)]
    fn work(step: Step, n: usize) {
        let _ = (step, n);
    }

    /// So many quarters of the cost of one `step`, for a step in parts between which other threads may run.
    #[inline(always)]
    fn work_in_part(step: Step, quarters: usize) {
        let _ = (step, quarters);
    }

    /// The calling thread reads `length` bytes at `address` to compute a checksum over them.
    #[inline(always)]
    fn sum(address: *const u8, length: usize) {
        let _ = (address, length);
    }

    /// The calling thread reads, or also writes, `length` bytes of plain memory at `address`.
    #[inline(always)]
    fn touch(object: Object, address: *const u8, length: usize, write: bool) {
        let _ = (object, address, length, write);
    }

    /// Reports the calling thread's operation on the lock at `address`. Called only where [`Platform::CHARGED`] is
    /// true, and costs nothing there: a simulator draws locks from it.
    #[inline(always)]
    fn lock_step(step: LockStep, class: LockClass, address: usize) {
        let _ = (step, class, address);
    }

    /// Whether the code makes this mistake, on purpose: a search of schedules proves that it would find it. False on
    /// every platform that ships, where nothing of it is left.
    #[inline(always)]
    fn makes(mistake: PlantedMistake) -> bool {
        let _ = mistake;
        false
    }

    /// Bytes of memory that the process may use: the machine's, or less if limited. `None` if unknown.
    fn memory() -> Option<u64> {
        None
    }

    /// As [`std::sync::atomic::fence`].
    fn fence(order: Ordering);

    /// A full fence against [`Platform::heavy_fence`] only, for the frequent side: of two threads that store, fence and
    /// load, one light and one heavy, at least one sees the other's store. Two light fences order nothing.
    #[inline]
    fn light_fence() {
        Self::fence(Ordering::SeqCst);
    }

    /// The other side of [`Platform::light_fence`], for a thread that is about to sleep: may cost a system call.
    #[inline]
    fn heavy_fence() {
        Self::fence(Ordering::SeqCst);
    }

    /// Whether the calling thread, real or simulated, runs a callback of the application: the last value of
    /// [`Platform::set_in_callback`], false at first.
    #[inline]
    fn in_callback() -> bool {
        IN_CALLBACK.get()
    }

    /// Sets [`Platform::in_callback`] for the calling thread. Returns the previous value.
    #[inline(always)]
    fn set_in_callback(inside: bool) -> bool {
        IN_CALLBACK.replace(inside)
    }

    /// The calling thread's block in the [`profile`](crate::profile), or `None` where nothing is profiled.
    #[inline]
    fn lock_counters() -> Option<&'static ThreadCounters> {
        None
    }

    /// Calls `look` with the calling thread's held locks. A platform that does not record them never calls it, and its
    /// lock order is not checked. Used in debug builds only.
    #[inline]
    fn with_held(look: impl FnOnce(&HeldLocks)) {
        let _ = look;
    }
}

/// Whether a checker has found a fault and is unwinding out of the model. Destructors must then not touch tracked
/// state: the execution is over, and a second panic would abort the process and hide the first. Guards release neither
/// their locks nor their places on the list of held ones, so a lock taken now would never be granted. Always false on
/// real machines.
#[inline(always)]
pub fn model_is_over<P: Platform>() -> bool {
    P::EXPLORED && std::thread::panicking()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Real;

    #[test]
    fn a_thread_is_in_a_callback_from_one_call_to_the_next_and_others_are_not() {
        assert!(!Real::in_callback());
        assert!(!Real::set_in_callback(true));
        assert!(Real::in_callback());
        let other = std::thread::spawn(Real::in_callback).join();
        assert!(!other.expect("it ends well"));
        assert!(Real::set_in_callback(false));
        assert!(!Real::in_callback());
    }

    #[test]
    fn a_platform_that_ships_makes_no_mistake() {
        assert!(!Real::makes(PlantedMistake::ReleaseInTwoSteps));
    }
}
