//! Threads that pass the gate of a stack while one closes it. See `gate.rs`.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use stack::gate::Gate;
use sync::{Atomic, Ordering, Platform, ThreadClass};

/// How the other thread passes.
#[derive(Clone, Copy)]
pub enum Passes {
    /// As a caller.
    Caller,
    /// As a caller that tries the short way first.
    CallerAtOnce,
    /// As a driver, which owns a cell until it rests.
    #[allow(dead_code)] // loom runs callers only
    Driver,
}

/// One thread passes while another closes the gate and moves the state, of two words: inside, either both have moved or
/// neither has. The closing thread sees earlier writes made inside, and the other thread does not stay outside. `in_turn`: a driver
/// closes it as the last step of its turn, and may lose its patience.
pub fn passes_while_it_closes<P: Platform>(passes: Passes, in_turn: bool) {
    let gate = Arc::new(Gate::<P>::default());
    let words = Arc::new([P::AtomicU32::new(0), P::AtomicU32::new(0)]);
    let (used, owned) = (Arc::new(P::AtomicU32::new(0)), Arc::new(P::AtomicBool::new(false)));
    // A thread's word is published by plain atomics, which a checker does not see: it is there before they race.
    let known = Arc::new(P::AtomicBool::new(false));
    let other = {
        let (gate, words, used, owned) = (gate.clone(), words.clone(), used.clone(), owned.clone());
        let known = known.clone();
        P::spawn("other", None, ThreadClass::Application, move || {
            drop(gate.enter());
            known.store(true, Ordering::Release);
            let inside = match passes {
                Passes::Caller => gate.enter(),
                Passes::CallerAtOnce => gate.enter_at_once().unwrap_or_else(|| gate.enter()),
                Passes::Driver => gate.enter_as_driver(|| owned.store(false, Ordering::Relaxed)),
            };
            let moved = [0, 1].map(|word| words[word].load(Ordering::Relaxed));
            assert_eq!(moved[0], moved[1], "the state moves while a thread is inside");
            used.store(1 + moved[0], Ordering::Relaxed);
            owned.store(matches!(passes, Passes::Driver), Ordering::Relaxed);
            drop(inside);
            // A driver comes again, rests if the gate is being closed, and at its end.
            if matches!(passes, Passes::Driver) {
                let inside = gate.enter_as_driver(|| owned.store(false, Ordering::Relaxed));
                owned.store(false, Ordering::Relaxed);
                drop(inside);
            }
        })
    };
    while !known.load(Ordering::Acquire) {
        P::yield_now();
    }
    let turn = in_turn.then(|| gate.enter_as_driver(|| ()));
    let closes = if in_turn { gate.close_in_turn() } else { gate.close() };
    let closing = closes.expect("nobody else closes it");
    let drained = closing.drain(|| ());
    assert!(drained || in_turn, "the caller leaves");
    let attempt = || {
        let before = used.load(Ordering::Relaxed);
        words.iter().for_each(|word| word.store(1, Ordering::Relaxed));
        // Like an architecture with a cell that another thread owns.
        (!owned.load(Ordering::Relaxed)).then_some(before)
    };
    let before = if drained { closing.rest(|| (), attempt) } else { None };
    drop(closing);
    drop(turn);
    if in_turn && before.is_none() {
        P::join(other).expect("the other thread ends well");
        return;
    }
    let before = before.expect("the driver rests");
    P::join(other).expect("the other thread ends well");
    let after = used.load(Ordering::Relaxed);
    assert!(before == 1 && after == 1 || before == 0 && after == 2, "{before} before it moved, {after} after");
}
