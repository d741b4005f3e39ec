//! Two threads count in one word at once: in one step, and in two as under the fault `+racy-stats`.

use std::sync::Arc;

use sync::{Atomic, Ordering, Platform, ThreadClass};

/// Counts one by an atomic addition.
pub fn in_one_step<P: Platform>(word: &P::AtomicU64) {
    word.fetch_add(1, Ordering::Relaxed);
}

/// Counts one as a block of [`Counters`](observe::Counters) for one writer does.
pub fn in_two_steps<P: Platform>(word: &P::AtomicU64) {
    observe::add_in_two_steps(word, 1);
}

/// Fails in a schedule in which a count is lost.
pub fn two_threads<P: Platform>(count: fn(&P::AtomicU64)) {
    let word = Arc::new(P::AtomicU64::new(0));
    let other = word.clone();
    let thread = P::spawn("counts", None, ThreadClass::Application, move || count(&other));
    count(&word);
    P::join(thread).expect("it ends well");
    let counted = word.load(Ordering::Relaxed);
    assert!(counted == 2, "counted: {counted}");
}
