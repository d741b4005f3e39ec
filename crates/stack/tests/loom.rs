//! What rests on fences, under loom: every order of the threads' steps with weak memory, up to two preemptions.

#[path = "shuttle/alarms.rs"]
mod alarms;
#[allow(dead_code)] // not every fault can be shown here
#[path = "../../sync/tests/planted/mod.rs"]
mod planted;

use alarms::{Calls, due_while_lying_down};
use planted::{NoFence, Planted, outcome};
use sync::Platform;
use sync::loom::Loom;

fn explore<P: Platform>(calls: Calls) -> Result<(), String> {
    outcome(move || {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || due_while_lying_down::<P>(1, calls));
    })
}

#[test]
fn an_earlier_deadline_wakes_a_sleeper() {
    for calls in [Calls::Any, Calls::One] {
        explore::<Loom>(calls).expect("the model holds");
    }
}

/// The sleeper and the caller each write one word and then read the other's: without the fences between the two steps both
/// may read what was there before.
#[test]
fn a_sleeper_or_a_caller_without_a_fence_is_found() {
    for calls in [Calls::Any, Calls::One] {
        let message = explore::<Planted<Loom, NoFence>>(calls).expect_err("loom must find the fault");
        assert!(message.contains("deadlock"), "found, but as: {message}");
    }
}
