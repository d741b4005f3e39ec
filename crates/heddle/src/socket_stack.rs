//! The reference of a stream to its stack.
//!
//! A stack ends when its last handle and its last socket are gone. If each stream were counted at the stack, all threads that
//! open, accept and close connections would write one counter. So a thread has a reference to the stack with a count of its
//! own, which the streams made on this thread share. The thread itself holds it weakly: a stack ends with its last socket,
//! and not with a thread.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::builder::{Stack, StackThreads};

/// The stacks of which a thread remembers its reference; the streams of more have references of their own.
const REMEMBERED: usize = 8;

/// See the module documentation. May be used and dropped on any thread.
pub(crate) struct SocketStack(Arc<Stack>);

impl SocketStack {
    /// The calling thread's.
    #[inline]
    pub fn of(stack: &Stack) -> SocketStack {
        let of_thread = OF_THREAD.try_with(|known| known.borrow_mut().get(stack));
        // A thread that ends has none any more.
        SocketStack(of_thread.unwrap_or_else(|_| Arc::new(stack.clone())))
    }
}

impl Deref for SocketStack {
    type Target = Stack;

    #[inline]
    fn deref(&self) -> &Stack {
        &self.0
    }
}

thread_local! {
    static OF_THREAD: RefCell<KnownStacks> = const { RefCell::new(KnownStacks { references: Vec::new() }) };
}

/// The references of one thread.
struct KnownStacks {
    /// With the addresses of their stacks, which are no other stacks' while the reference can be upgraded.
    references: Vec<(*const StackThreads, Weak<Stack>)>,
}

impl KnownStacks {
    #[inline]
    fn get(&mut self, stack: &Stack) -> Arc<Stack> {
        let address = Arc::as_ptr(&stack.inner);
        let known = self.references.iter().find(|(of, _)| *of == address);
        known.and_then(|(_, reference)| reference.upgrade()).unwrap_or_else(|| self.add(stack))
    }

    #[cold]
    fn add(&mut self, stack: &Stack) -> Arc<Stack> {
        self.references.retain(|(_, reference)| reference.strong_count() > 0);
        if self.references.len() == REMEMBERED {
            self.references.remove(0);
        }
        let reference = Arc::new(stack.clone());
        self.references.push((Arc::as_ptr(&stack.inner), Arc::downgrade(&reference)));
        reference
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interface, mem};

    fn stack() -> Stack {
        let (device, _) = mem::pair(mem::MemConfig::default());
        Stack::builder().interface(Interface::new(device)).build_polled().expect("a stack").0
    }

    fn is_one(first: &SocketStack, second: &SocketStack) -> bool {
        Arc::ptr_eq(&first.0, &second.0)
    }

    #[test]
    fn streams_of_a_thread_share_a_reference_and_other_threads_have_others() {
        let (one, other) = (stack(), stack());
        let [first, second, third] = [&one, &one, &other].map(SocketStack::of);
        assert!(is_one(&first, &second) && !is_one(&first, &third));
        assert!(Arc::ptr_eq(&first.inner, &one.inner) && Arc::ptr_eq(&third.inner, &other.inner));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!is_one(&first, &SocketStack::of(&one)))).join().expect("it is another one");
        });
        assert_eq!(Arc::strong_count(&one.inner), 2, "the handle, and this thread's reference for all streams");
    }

    #[test]
    fn a_stack_ends_with_its_last_stream_and_is_not_confused_with_the_next_one() {
        for _ in 0..2 * REMEMBERED {
            let handle = stack();
            let ended = Arc::downgrade(&handle.inner);
            let stream = SocketStack::of(&handle);
            drop(handle);
            assert!(ended.upgrade().is_some(), "a stream is left");
            drop(stream);
            assert!(ended.upgrade().is_none(), "the thread keeps no stack");
        }
    }

    #[test]
    fn the_streams_of_many_stacks_hold_them_too() {
        let stacks: Vec<Stack> = (0..2 * REMEMBERED).map(|_| stack()).collect();
        let references: Vec<SocketStack> = stacks.iter().chain(&stacks).map(SocketStack::of).collect();
        for (stack, reference) in stacks.iter().chain(&stacks).zip(&references) {
            assert!(Arc::ptr_eq(&stack.inner, &reference.inner));
        }
        OF_THREAD.with_borrow(|known| assert!(known.references.len() <= REMEMBERED));
    }
}
