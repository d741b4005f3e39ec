//! The stacks of virtual threads, and the switch between a thread and the run loop.
//!
//! All threads of a machine run on the thread of the kernel that called [`Machine::run`](crate::Machine::run), and
//! never on another, so they share the standard library's thread-local state. Stacks are in the arena, so that data of
//! a lock on a waiter's stack has simulated lines; below each is a guard page.

use std::cell::Cell;
use std::ptr;

use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::memory::{STACKS, Zone};

/// Bytes of address space for each stack, and of its guard page.
const STACK: usize = 256 << 10;
const GUARD: usize = 4096;

/// Threads that a machine can have.
pub(crate) const MOST_THREADS: usize = STACKS / STACK;

/// The stack of one thread.
struct ArenaStack {
    bottom: usize,
}

impl ArenaStack {
    fn of(thread: usize) -> ArenaStack {
        let bottom = Zone::stacks() + thread * STACK;
        // SAFETY: a page of the arena that nothing but this stack uses.
        let refused = unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(bottom), GUARD, libc::PROT_NONE) };
        assert_eq!(refused, 0, "the page below a stack cannot be protected: {}", std::io::Error::last_os_error());
        ArenaStack { bottom }
    }
}

// SAFETY: the range belongs to one thread of one machine, and machines of a process take turns; below it lies a page
// that traps.
unsafe impl Stack for ArenaStack {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.bottom + STACK).unwrap_or(StackPointer::MAX)
    }

    fn limit(&self) -> StackPointer {
        StackPointer::new(self.bottom).unwrap_or(StackPointer::MIN)
    }
}

thread_local! {
    /// The running thread, if any.
    static RUNNING: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// A thread that can be resumed.
pub(crate) struct Fiber {
    coroutine: Coroutine<(), (), (), ArenaStack>,
    /// Switches back to the run loop; set once the thread has begun.
    yielder: *const Yielder<(), ()>,
}

/// The address of a thread's control block in the simulated memory: its lines stand for a scheduler's data about the
/// thread. It is the end of the thread's stack, which is never used.
pub(crate) fn control_block(thread: usize) -> usize {
    Zone::stacks() + thread * STACK + GUARD
}

impl Fiber {
    /// A thread that will run `body`, which must not panic. `thread` is its number in the machine.
    pub(crate) fn new(thread: usize, body: impl FnOnce() + 'static) -> Fiber {
        let coroutine = Coroutine::with_stack(ArenaStack::of(thread), move |yielder: &Yielder<(), ()>, ()| {
            RUNNING.set(yielder);
            body();
        });
        Fiber { coroutine, yielder: ptr::null() }
    }

    /// Resumes it until it switches back (true) or ends.
    pub(crate) fn resume(&mut self) -> bool {
        RUNNING.set(self.yielder);
        let result = self.coroutine.resume(());
        self.yielder = RUNNING.replace(ptr::null());
        matches!(result, CoroutineResult::Yield(()))
    }

    /// Abandons the stack of a thread that will not be resumed: no destructor runs.
    pub(crate) fn abandon(mut self) {
        // SAFETY: what lies on the stack is leaked. Nothing outside borrows from it: `body` is 'static, and a machine
        // ends with its threads.
        unsafe { self.coroutine.force_reset() };
    }
}

/// Switches back to the run loop; returns when the loop resumes this thread.
pub(crate) fn suspend() {
    let yielder = RUNNING.get();
    assert!(!yielder.is_null(), "only a thread of a machine can wait");
    // SAFETY: it is the running coroutine's, which lives on its stack until that ends.
    unsafe { (*yielder).suspend(()) };
}
