//! A value that threads own in turn: a caller, which waits for it, and threads that leave their work for the owner.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use stack::place::pcb::{Admittance, Backlogged, Ownership};
use sync::{LockKind, Platform, ThreadClass};

/// The value is a list of all work that was done.
type Shared<P> = Backlogged<Vec<u32>, u32, P>;

/// The owner does its own work and all that is left for it.
fn does<P: Platform>(mut owner: Ownership<'_, Vec<u32>, u32, P>, mut work: u32) {
    loop {
        owner.with(|done| done.push(work));
        match owner.next_left() {
            Some(next) => (work, owner) = next,
            None => return,
        }
    }
}

/// One thread that waits has the first work, one that does not wait has the rest: all of it is done once, and the rest
/// in its order.
pub fn work_left_for_the_owner<P: Platform>() {
    const LEFT: [u32; 2] = [1, 2];
    let shared: Arc<Shared<P>> = Arc::new(Backlogged::new(LockKind::Blocking, Vec::new()));
    let called = shared.clone();
    let caller = P::spawn("caller", None, ThreadClass::Application, move || does(called.own(), 0));
    for work in LEFT {
        if shared.admit(1, LEFT.len(), || work) == Admittance::Owner {
            does(shared.own(), work);
        }
    }
    P::join(caller).expect("the caller ends well");
    let done = Arc::into_inner(shared).expect("no thread is left").into_inner();
    assert_eq!(done.iter().filter(|work| **work == 0).count(), 1, "work is lost or done twice: {done:?}");
    let left: Vec<u32> = done.into_iter().filter(|work| *work != 0).collect();
    assert_eq!(left, LEFT, "work is lost, done twice or in another order");
}

/// Two threads that wait for the value sleep, and each is woken in its turn.
pub fn two_wait<P: Platform>() {
    let shared: Arc<Shared<P>> = Arc::new(Backlogged::new(LockKind::Blocking, Vec::new()));
    let callers = [1, 2].map(|work| {
        let called = shared.clone();
        P::spawn("caller", None, ThreadClass::Application, move || does(called.own(), work))
    });
    callers.into_iter().for_each(|caller| P::join(caller).expect("the caller ends well"));
}
