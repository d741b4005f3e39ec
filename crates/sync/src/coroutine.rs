//! A second stack for a thread: a coroutine, which runs when its thread resumes it, until it suspends itself.
//!
//! It is what a light-weight thread of DragonFly BSD is: a thread of control that the thread of the kernel below it runs, so that
//! going there and back is a switch of stacks, without a lock, an atomic operation or a system call. The body of a coroutine
//! runs on the thread that made it and nowhere else. Whatever that thread is for its [`Platform`](crate::Platform) (a thread of
//! the kernel, of a model checker or of the simulator), the body is the same thread: its index, its locks and its cells are that
//! thread's. If the body blocks, the thread blocks with it. So the primitive needs nothing of a platform, and is the same on all.
//!
//! With each [`resume`](Coroutine::resume) the thread may *lend* the body a call: a closure on its own stack, which the body may
//! run until it suspends itself again.
//!
//! What may never happen: a body that is resumed by another thread (that is refused, and a coroutine that is dropped there is
//! leaked), or a lent call that outlives its loan (a [`Suspender`] lends it for as long as it is borrowed, and suspending
//! borrows the suspender).

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine as Switched, Yielder};

/// Bytes of address space for a stack. Memory is taken when it is used. Below it is a page that traps.
const STACK: usize = 1 << 20;

/// The number of the calling thread of the kernel, which no other one ever has.
fn kernel_thread() -> u64 {
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    static LAST: AtomicU64 = AtomicU64::new(0);
    if NUMBER.get() == 0 {
        NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    }
    NUMBER.get()
}

/// Where a lent call is. It is valid until the body suspends itself or ends.
type Loan<C> = NonNull<dyn FnMut(&mut C)>;

/// What the body is resumed for.
enum Resumed<C> {
    /// To go on, with the call that is lent to it, if any.
    GoOn(Option<Loan<C>>),
    /// To end: the coroutine is dropped.
    End,
}

/// See the head of this file. Calls that are lent to it take a `&mut C`.
pub struct Coroutine<C: 'static> {
    /// Dropped by hand, because that is allowed on its own thread only.
    switched: ManuallyDrop<Switched<Resumed<C>, (), ()>>,
    /// The thread that made it.
    home: u64,
}

// SAFETY: what is on the stack of the body may belong to the thread that made it. Another thread can only ask whether the
// coroutine is its own, and drop it, which leaks the stack. Numbers of threads are not used twice.
unsafe impl<C> Send for Coroutine<C> {}

/// The body's view of its coroutine.
pub struct Suspender<'a, C: 'static> {
    yielder: &'a Yielder<Resumed<C>, ()>,
    resumed: Resumed<C>,
}

impl<C: 'static> Suspender<'_, C> {
    /// Switches back to the thread's other stack; returns when the thread resumes the coroutine. False: the coroutine is being
    /// dropped, and the body must return.
    #[must_use]
    pub fn suspend(&mut self) -> bool {
        // Should the switch unwind, nothing is lent.
        self.resumed = Resumed::End;
        self.resumed = self.yielder.suspend(());
        matches!(self.resumed, Resumed::GoOn(_))
    }

    /// The call that is lent to the body until it suspends itself.
    pub fn lent(&mut self) -> Option<&mut dyn FnMut(&mut C)> {
        match self.resumed {
            // SAFETY: `resume` has the closure borrowed exclusively until the body suspends itself or ends. To suspend
            // itself the body needs this suspender, which stays borrowed as long as the returned reference is used; and
            // if the body ends, so does the borrow of the suspender, which is an argument of the body.
            Resumed::GoOn(Some(mut call)) => Some(unsafe { call.as_mut() }),
            _ => None,
        }
    }
}

impl<C: 'static> Coroutine<C> {
    /// A coroutine of the calling thread, with a stack of its own, that has not begun.
    ///
    /// # Panics
    /// If there is no memory for the stack.
    pub fn new(body: impl FnOnce(&mut Suspender<'_, C>) + 'static) -> Self {
        let stack = DefaultStack::new(STACK).unwrap_or_else(|error| panic!("no memory for a stack: {error}"));
        let switched = Switched::with_stack(stack, move |yielder: &Yielder<Resumed<C>, ()>, resumed| {
            // Dropped before it began, it never comes here.
            body(&mut Suspender { yielder, resumed });
        });
        Coroutine { switched: ManuallyDrop::new(switched), home: kernel_thread() }
    }

    /// Whether the calling thread may resume it: it is its own, and the body has not ended.
    #[inline]
    pub fn can_resume(&self) -> bool {
        self.home == kernel_thread() && !self.switched.done()
    }

    /// Runs the body on its stack until it suspends itself or ends. Meanwhile it may run `call`.
    ///
    /// # Panics
    /// If [`can_resume`](Self::can_resume) is false. If the body panics, with its panic; the coroutine has then ended.
    #[inline]
    pub fn resume(&mut self, call: Option<&mut dyn FnMut(&mut C)>) {
        assert!(self.can_resume(), "a coroutine is resumed by the thread that made it, and not after it has ended");
        let call = call.map(|call| {
            let call: NonNull<dyn FnMut(&mut C) + '_> = NonNull::from(call);
            // SAFETY: only the bound on the closure's life is changed; `Suspender::lent` keeps to it.
            unsafe { std::mem::transmute::<NonNull<dyn FnMut(&mut C) + '_>, Loan<C>>(call) }
        });
        self.switched.resume(Resumed::GoOn(call));
    }
}

impl<C: 'static> Drop for Coroutine<C> {
    /// Has the body end, if it has begun. On another thread than its own, the stack and all that it owns are leaked.
    fn drop(&mut self) {
        if self.home != kernel_thread() {
            return;
        }
        if self.switched.started() && !self.switched.done() {
            self.switched.resume(Resumed::End);
        }
        // SAFETY: dropped once, here. A body that has suspended itself once more is unwound.
        unsafe { ManuallyDrop::drop(&mut self.switched) };
    }
}

impl<C> std::fmt::Debug for Coroutine<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coroutine").field("can_resume", &self.can_resume()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::*;

    /// About where the calling code's stack is.
    #[inline(never)]
    fn here() -> usize {
        let local = 0u8;
        std::hint::black_box(std::ptr::from_ref(&local)).addr()
    }

    #[test]
    fn a_body_keeps_its_place_on_a_stack_of_its_own() {
        let (seen, log) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (inside, written) = (seen.clone(), log.clone());
        let mut coroutine = Coroutine::<()>::new(move |suspender| {
            for step in 1.. {
                inside.set(here());
                written.set(step);
                if !suspender.suspend() {
                    return;
                }
            }
        });
        assert_eq!(log.get(), 0, "it has not begun");
        for step in 1..4 {
            coroutine.resume(None);
            assert_eq!(log.get(), step, "it goes on where it was");
        }
        assert!(seen.get().abs_diff(here()) > 64 << 10, "the stacks are apart");
    }

    #[test]
    fn a_call_is_lent_until_the_body_suspends_itself() {
        let mut coroutine = Coroutine::<u32>::new(|suspender| {
            let mut value = 10;
            loop {
                if let Some(call) = suspender.lent() {
                    call(&mut value);
                }
                if !suspender.suspend() {
                    return;
                }
            }
        });
        let mut heard = Vec::new();
        for add in [1, 2] {
            coroutine.resume(Some(&mut |value| {
                *value += add;
                heard.push(*value);
            }));
        }
        coroutine.resume(None);
        assert_eq!(heard, [11, 13], "each once");
    }

    #[test]
    fn a_panic_of_the_body_is_its_threads_and_ends_the_coroutine() {
        let mut coroutine = Coroutine::<()>::new(|_| std::panic::panic_any("mine"));
        let panic = catch_unwind(AssertUnwindSafe(|| coroutine.resume(None))).expect_err("it goes on");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"mine"));
        assert!(!coroutine.can_resume());
    }

    /// Says that it is dropped.
    struct Told(Rc<Cell<bool>>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    fn what_a_dropped_body_owns_is_dropped() {
        for (resumes, obeys) in [(0, true), (1, true), (1, false)] {
            let dropped = Rc::new(Cell::new(false));
            let told = Told(dropped.clone());
            let mut coroutine = Coroutine::<()>::new(move |suspender| {
                let _told = told;
                while suspender.suspend() || !obeys {}
            });
            (0..resumes).for_each(|_| coroutine.resume(None));
            assert!(!dropped.get());
            drop(coroutine);
            assert!(dropped.get(), "{resumes} {obeys}");
        }
    }

    #[test]
    fn another_thread_cannot_run_it() {
        let mut coroutine = Coroutine::<()>::new(|suspender| while suspender.suspend() {});
        coroutine.resume(None);
        let mut coroutine = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let mut coroutine = coroutine;
                assert!(!coroutine.can_resume());
                assert!(catch_unwind(AssertUnwindSafe(|| coroutine.resume(None))).is_err());
                coroutine
            });
            other.join().expect("it ends well")
        });
        coroutine.resume(None);
    }

    /// A body may be in the middle of another coroutine's body: the two stacks are one thread's.
    #[test]
    fn coroutines_nest() {
        let mut outer = Coroutine::<u32>::new(|suspender| {
            let mut inner = Coroutine::<u32>::new(|suspender| {
                let mut sum = 1;
                while suspender.lent().map(|call| call(&mut sum)).is_some() && suspender.suspend() {}
            });
            loop {
                let mut seen = 0;
                inner.resume(Some(&mut |sum| {
                    *sum *= 2;
                    seen = *sum;
                }));
                if let Some(call) = suspender.lent() {
                    call(&mut seen);
                }
                if !suspender.suspend() {
                    return;
                }
            }
        });
        let mut seen = Vec::new();
        (0..3).for_each(|_| outer.resume(Some(&mut |sum| seen.push(*sum))));
        assert_eq!(seen, [2, 4, 8]);
    }
}
