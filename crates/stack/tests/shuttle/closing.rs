//! Two threads that close the gate of a stack. See `gate.rs`. A thread that waits for the other has no bound that loom knows.

use std::sync::Arc;

use stack::gate::{CloseRefused, Gate};
use sync::{Atomic, Ordering, Platform, ThreadClass};

/// A driver closes the gate in its turn, and another thread closes it, too: that one waits, and is not refused. A driver is refused,
/// while another one closes it or is about to. A caller cannot close it in its turn.
pub fn two_close<P: Platform>() {
    let gate = Arc::new(Gate::<P>::default());
    let known = Arc::new(P::AtomicBool::new(false));
    let other = {
        let (gate, known) = (gate.clone(), known.clone());
        P::spawn("other", None, ThreadClass::Application, move || {
            drop(gate.enter());
            known.store(true, Ordering::Release);
            assert!(gate.close().is_ok(), "the driver opens it again soon");
            let inside = gate.enter();
            assert!(matches!(gate.close_in_turn(), Err(CloseRefused::Inside)));
            drop(inside);
        })
    };
    while !known.load(Ordering::Acquire) {
        P::yield_now();
    }
    for _ in 0..2 {
        let turn = gate.enter_as_driver(|| ());
        drop(gate.close_in_turn());
        drop(turn);
    }
    P::join(other).expect("the other thread ends well");
    let turn = gate.enter_as_driver(|| ());
    assert!(gate.close_in_turn().is_ok(), "it is open, and nobody closes it");
    drop(turn);
}
