//! Values that leave their memory to the thread, which uses it again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sync::{Reused, ReusedRef, SpareMemory};

const MOST: usize = 3;

/// Counts how often it is dropped; its content is on the heap, so that a use after that is found by a checker of memory.
struct Value {
    content: Box<usize>,
    drops: Arc<AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    static SPARE: RefCell<SpareMemory<Value>> = const { RefCell::new(SpareMemory::at_most(MOST)) };
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

impl Reused for Value {
    fn with_spare<R>(f: impl FnOnce(&mut SpareMemory<Value>) -> R) -> Option<R> {
        if ENDS.get() { None } else { SPARE.try_with(|spare| f(&mut spare.borrow_mut())).ok() }
    }
}

fn kept() -> usize {
    SPARE.with_borrow(SpareMemory::len)
}

/// Makes values with the numbers from 0 and counts their drops.
#[derive(Default)]
struct Made {
    count: usize,
    drops: Arc<AtomicUsize>,
}

impl Made {
    fn next(&mut self) -> ReusedRef<Value> {
        self.count += 1;
        ReusedRef::new(Value { content: Box::new(self.count), drops: self.drops.clone() })
    }

    fn dropped(&self) -> usize {
        self.drops.load(Ordering::Relaxed)
    }
}

fn place(value: &ReusedRef<Value>) -> *const Value {
    &raw const **value
}

#[test]
fn the_next_value_has_the_memory_of_the_last_that_was_dropped() {
    let mut made = Made::default();
    let (first, second) = (made.next(), made.next());
    let places = [place(&first), place(&second)];
    drop(first);
    drop(second);
    assert_eq!((made.dropped(), kept()), (2, 2));
    let (third, fourth) = (made.next(), made.next());
    assert_eq!([place(&fourth), place(&third)], places);
    assert_eq!((*third.content, *fourth.content, kept()), (3, 4, 0));
    assert_ne!(place(&made.next()), place(&third), "it has a value");
    drop((third, fourth));
    assert_eq!(made.dropped(), made.count, "each once");
}

#[test]
fn a_value_lives_as_long_as_any_of_its_holders() {
    let mut made = Made::default();
    let first = made.next();
    let holders: Vec<_> = (0..3).map(|_| first.clone()).collect();
    drop(first);
    for holder in holders {
        assert_eq!((made.dropped(), *holder.content, kept()), (0, 1, 0));
    }
    assert_eq!((made.dropped(), kept()), (1, 1));
}

#[test]
fn little_memory_is_kept() {
    let mut made = Made::default();
    let many: Vec<_> = (0..4 * MOST).map(|_| made.next()).collect();
    drop(many);
    assert_eq!((made.dropped(), kept()), (4 * MOST, MOST));
}

/// The thread that drops the last holder keeps the memory, whichever made the value.
#[test]
fn values_are_dropped_by_any_thread() {
    let mut made = Made::default();
    let (alone, shared) = (made.next(), made.next());
    let theirs = shared.clone();
    let kept_there = thread::spawn(move || {
        assert_eq!((*alone.content, *theirs.content), (1, 2));
        drop((alone, theirs));
        let kept_there = kept();
        let drops = Arc::default();
        let again: ReusedRef<Value> = ReusedRef::new(Value { content: Box::new(9), drops });
        (kept_there, *again.content, kept())
    });
    assert_eq!(kept_there.join().expect("no assertion failed"), (1, 9, 0));
    assert_eq!((made.dropped(), kept(), *shared.content), (1, 0, 2));
}

/// The destructors of other thread-local values may drop streams.
#[test]
fn a_thread_that_ends_frees_what_it_drops() {
    let mut made = Made::default();
    let before = made.next();
    ENDS.set(true);
    let after = made.next();
    drop((before, after));
    ENDS.set(false);
    assert_eq!((made.dropped(), kept()), (2, 0));
}

/// A value may make and drop others of its type as it is dropped, as a stream that calls a handler does.
#[test]
fn a_value_may_use_the_memory_of_others_while_it_is_dropped() {
    struct Outer(Option<Rc<dyn Fn()>>);
    thread_local! {
        static OUTER: RefCell<SpareMemory<Outer>> = const { RefCell::new(SpareMemory::at_most(MOST)) };
    }
    impl Reused for Outer {
        fn with_spare<R>(f: impl FnOnce(&mut SpareMemory<Outer>) -> R) -> Option<R> {
            OUTER.try_with(|spare| f(&mut spare.borrow_mut())).ok()
        }
    }
    impl Drop for Outer {
        fn drop(&mut self) {
            self.0.iter().for_each(|act| act());
        }
    }
    let within: Rc<dyn Fn()> = Rc::new(|| drop(ReusedRef::<Outer>::new(Outer(None))));
    drop(ReusedRef::<Outer>::new(Outer(Some(within))));
    OUTER.with_borrow(|spare| assert_eq!(spare.len(), 2));
}
