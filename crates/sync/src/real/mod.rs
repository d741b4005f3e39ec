//! The real machine: the hardware's atomics, the kernel's threads, futexes and clock.
//!
//! The seam costs nothing here: each function is one instruction or system call, inlined. The system calls of the crate
//! are all in this directory.

mod atomics;
mod clock;
mod doorbell;
mod fences;
mod index;
mod memory;
mod random;

pub use doorbell::Doorbell;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;
use std::{hint, io, mem, ptr, thread};

use crate::lock_order::HeldLocks;
use crate::profile::{ProfileTable, ThreadCounters};
use crate::{CellLike, Platform, ThreadClass};

/// The machine the process runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Real;

static PROFILE: ProfileTable<Real> = ProfileTable::new();

thread_local! {
    static HELD: HeldLocks = const { HeldLocks::new() };
}

/// Spin turns after which [`Platform::relax`] yields the processor: a few microseconds. The thread waited for may be
/// waiting for this processor.
const SPINS_BEFORE_YIELD: u32 = 512;

impl Real {
    /// Keeps the calling thread on one CPU, numbered from 0 as the kernel does.
    ///
    /// # Errors
    /// When the kernel refuses: the CPU does not exist, is offline, or lies outside the process's allowed set (see
    /// `taskset -p`).
    pub fn pin(cpu: usize) -> io::Result<()> {
        // SAFETY: an all-zero cpu_set_t is the empty set.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        if cpu >= 8 * mem::size_of::<libc::cpu_set_t>() {
            let reason = format!("cannot pin a thread to CPU {cpu}: the kernel interface ends before it");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        // SAFETY: `cpu` lies inside the set, checked above.
        unsafe { libc::CPU_SET(cpu, &mut set) };
        // SAFETY: 0 is the calling thread; the kernel reads `size_of` bytes of a set that lives on our stack.
        let refused = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) } != 0;
        if refused {
            let reason = io::Error::last_os_error();
            return Err(io::Error::new(reason.kind(), format!("cannot pin a thread to CPU {cpu}: {reason}")));
        }
        Ok(())
    }

    /// As [`Platform::spawn`], for a caller that can work without the thread.
    ///
    /// # Errors
    /// The system refuses another thread: there is no memory for its stack, or the process has reached its limit.
    pub fn try_spawn(
        name: &str,
        cpu: Option<usize>,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<thread::JoinHandle<()>> {
        let pinned = move || {
            // A CPU that may not be used only costs speed: a caller that must know calls `Real::pin` itself.
            let _ = cpu.map(Real::pin);
            body();
        };
        thread::Builder::new().name(name.to_owned()).spawn(pinned)
    }

    /// Has all threads allocate from one heap. Otherwise glibc reserves 64 MiB of address space for each thread while
    /// it can, which leaves none for other threads if address space is limited (`ulimit -v`). With one heap,
    /// allocations of several threads wait for each other. Call it before threads are started.
    pub fn allocate_from_one_heap() {
        #[cfg(target_env = "gnu")]
        // SAFETY: takes plain integers, and changes nothing about memory that is allocated already.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }

    /// The lock profile of the process.
    pub fn profile() -> &'static ProfileTable<Real> {
        &PROFILE
    }
}

impl Platform for Real {
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicUsize = AtomicUsize;
    type AtomicBool = AtomicBool;
    type Cell<T> = Plain<T>;
    type JoinHandle = thread::JoinHandle<()>;
    type Doorbell = Doorbell;

    fn spawn(
        name: &str,
        cpu: Option<usize>,
        _class: ThreadClass,
        body: impl FnOnce() + Send + 'static,
    ) -> Self::JoinHandle {
        match Real::try_spawn(name, cpu, body) {
            Ok(handle) => handle,
            Err(reason) => panic!(
                "cannot start thread `{name}`: {reason}; lower the number of threads, or raise the limit (ulimit -u)"
            ),
        }
    }

    fn join(handle: Self::JoinHandle) -> thread::Result<()> {
        handle.join()
    }

    fn futex_wait(atom: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let limit = timeout.map(|limit| libc::timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as libc::time_t,
            tv_nsec: limit.subsec_nanos() as _,
        });
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: FUTEX_WAIT reads the word, which outlives the call, and the time limit, null or on our stack. Every
        // error (changed, interrupted, timed out) is an early return, which callers expect.
        unsafe {
            libc::syscall(libc::SYS_futex, atom.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, expected, limit)
        };
    }

    fn futex_wake(atom: &AtomicU32, n: u32) {
        let n = n.min(i32::MAX as u32) as i32;
        // SAFETY: FUTEX_WAKE uses the address as a key and does not read through it.
        unsafe { libc::syscall(libc::SYS_futex, atom.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, n) };
    }

    #[inline(always)]
    fn relax(spins: u32) {
        if spins < SPINS_BEFORE_YIELD { hint::spin_loop() } else { thread::yield_now() }
    }

    fn yield_now() {
        thread::yield_now();
    }

    #[inline]
    fn now() -> u64 {
        clock::now()
    }

    fn random() -> u64 {
        random::next()
    }

    #[inline(always)]
    fn thread_index() -> usize {
        index::number()
    }

    #[inline(always)]
    fn known_thread_index() -> usize {
        index::known_number()
    }

    #[inline(always)]
    fn memory() -> Option<u64> {
        memory::limit()
    }

    fn fence(order: Ordering) {
        fence(order);
    }

    #[inline(always)]
    fn light_fence() {
        fences::light();
    }

    fn heavy_fence() {
        fences::heavy();
    }

    #[inline(always)]
    fn lock_counters() -> Option<&'static ThreadCounters> {
        index::counters()
    }

    #[inline]
    fn with_held(look: impl FnOnce(&HeldLocks)) {
        // A thread that is already destroying its thread-locals is not checked.
        let _ = HELD.try_with(look);
    }
}

/// Plain memory: the real machine does not track which thread accesses it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Plain<T>(UnsafeCell<T>);

impl<T> CellLike<T> for Plain<T> {
    #[inline(always)]
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[inline(always)]
    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline(always)]
    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }

    #[inline(always)]
    fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
