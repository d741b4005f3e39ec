//! Code that relies on fences, under loom: every order of the threads' steps with weak memory, up to two preemptions.

#[path = "shuttle/accept_queue.rs"]
mod accept_queue;
#[path = "shuttle/alarms.rs"]
mod alarms;
#[path = "shuttle/backlog.rs"]
mod backlog;
#[path = "shuttle/channel.rs"]
mod channel;
#[path = "shuttle/due_cells.rs"]
mod due_cells;
#[path = "shuttle/frame_input.rs"]
mod frame_input;
#[path = "shuttle/gate.rs"]
mod gate;
#[path = "shuttle/processor.rs"]
mod processor;
#[path = "shuttle/readiness.rs"]
mod readiness;
#[path = "shuttle/steal.rs"]
mod steal;
#[path = "shuttle/waits.rs"]
mod waits;
#[path = "shuttle/work_stream.rs"]
mod work_stream;

use accept_queue::queued_while_falling_asleep;
use alarms::{Calls, due_while_falling_asleep};
use backlog::{two_wait, work_left_for_the_owner};
use channel::{asked_while_room_comes, item_while_falling_asleep, room_while_looking};
use due_cells::{deadline_while_looking, message_while_taking};
use frame_input::interrupts_while_falling_asleep;
use gate::{Passes, passes_while_it_closes};
use planted::{InjectedFault, NoFence, NoFullFence, Planted, WeakRelease, outcome};
use processor::left_beside_a_user;
use readiness::{edge_while_the_watcher_falls_asleep, ready_while_falling_asleep, ready_while_registering};
use steal::taken_by_home_and_thief;
use sync::loom::Loom;
use sync::{PlantedMistake, Platform, Writers};
use waits::mail_while_waiting;
use work_stream::deferred_and_directly;

fn explore_all(model: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
    outcome(move || {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
    })
}

fn explore<P: Platform>(calls: Calls) -> Result<(), String> {
    explore_all(move || due_while_falling_asleep::<P>(1, calls))
}

#[test]
fn an_earlier_deadline_wakes_a_sleeper() {
    for calls in [Calls::Any, Calls::One] {
        explore::<Loom>(calls).expect("the model holds");
    }
}

/// The sleeper and the caller each write one word and then read the other's: without the fences between the two steps
/// both may read the old value.
#[test]
fn a_sleeper_or_a_caller_without_a_fence_is_found() {
    for calls in [Calls::Any, Calls::One] {
        let message = explore::<Planted<Loom, NoFence>>(calls).expect_err("loom must find the fault");
        assert!(message.contains("deadlock"), "found, but as: {message}");
    }
}

#[test]
fn a_bit_that_rises_wakes_a_sleeper_and_reaches_a_new_poll_set() {
    for writers in [Writers::One, Writers::Many] {
        explore_all(move || ready_while_falling_asleep::<Loom>(writers)).expect("the model holds");
        explore_all(move || ready_while_registering::<Loom>(writers)).expect("the model holds");
        explore_all(move || edge_while_the_watcher_falls_asleep::<Loom>(writers)).expect("the model holds");
    }
}

/// Bits that are set by plain stores rely on the fences of both sides.
#[test]
fn a_bit_that_rises_without_a_fence_is_found() {
    let falling_asleep = ready_while_falling_asleep::<Planted<Loom, NoFence>>;
    let message = explore_all(move || falling_asleep(Writers::One)).expect_err("loom must find the fault");
    assert!(message.contains("deadlock"), "found, but as: {message}");
    let registering = ready_while_registering::<Planted<Loom, NoFence>>;
    let message = explore_all(move || registering(Writers::One)).expect_err("loom must find the fault");
    assert!(message.contains("nobody was told"), "found, but as: {message}");
}

/// The thread that queues a connection and the one that clears the readiness each write a word and then read the other's.
/// The lock of the queue has fences of its own, which stay.
#[test]
fn a_connection_that_is_queued_wakes_a_thread_that_accepts() {
    explore_all(|| queued_while_falling_asleep::<Loom>(2)).expect("the model holds");
    let without_fences = || queued_while_falling_asleep::<Planted<Loom, NoFullFence>>(2);
    let message = explore_all(without_fences).expect_err("loom must find the fault");
    assert!(message.contains("deadlock"), "found, but as: {message}");
}

#[test]
fn an_item_reaches_a_user_that_sleeps_and_room_is_seen_or_reported() {
    explore_all(item_while_falling_asleep::<Loom>).expect("the model holds");
    explore_all(room_while_looking::<Loom>).expect("the model holds");
}

#[test]
fn a_user_that_has_asked_for_room_is_woken() {
    explore_all(asked_while_room_comes::<Loom>).expect("the model holds");
}

/// Owner and user each write and then look; without the fences between, both may see the old value.
#[test]
fn a_channel_without_fences_is_found() {
    let message =
        explore_all(item_while_falling_asleep::<Planted<Loom, NoFence>>).expect_err("loom must find the fault");
    assert!(message.contains("deadlock"), "found, but as: {message}");
    let message = explore_all(room_while_looking::<Planted<Loom, NoFence>>).expect_err("loom must find the fault");
    assert!(message.contains("nobody was told"), "found, but as: {message}");
}

#[test]
fn a_tick_forgets_no_cell_with_work() {
    for lookers in [1, 2] {
        explore_all(move || deadline_while_looking::<Loom>(lookers)).expect("the model holds");
    }
    explore_all(message_while_taking::<Loom>).expect("the model holds");
}

/// The thread that publishes a deadline and the one that looks each write a word and then read the other's; a bit says that the
/// message before it can be read.
#[test]
fn a_tick_without_fences_is_found() {
    let looking = || deadline_while_looking::<Planted<Loom, NoFence>>(1);
    let message = explore_all(looking).expect_err("loom must find the fault");
    assert!(message.contains("the deadline is forgotten"), "found, but as: {message}");
    let taking = message_while_taking::<Planted<Loom, WeakRelease>>;
    let message = explore_all(taking).expect_err("loom must find the fault");
    assert!(message.contains("the message is forgotten"), "found, but as: {message}");
}

/// For callers. The thread that closes tries again while a driver owns a cell, which has no bound that loom knows: shuttle
/// runs that model.
#[test]
fn nobody_is_inside_a_closed_gate() {
    explore_all(|| passes_while_it_closes::<Loom>(Passes::Caller, false)).expect("the model holds");
    explore_all(|| passes_while_it_closes::<Loom>(Passes::CallerAtOnce, false)).expect("the model holds");
}

/// The thread that passes and the thread that closes each write a word and then read the other's.
#[test]
fn a_gate_without_fences_is_found() {
    for passes in [Passes::Caller, Passes::CallerAtOnce] {
        let message = explore_all(move || passes_while_it_closes::<Planted<Loom, NoFence>>(passes, false));
        let message = message.expect_err("loom must find the fault");
        assert!(
            message.contains("while a thread is inside") || message.contains("before it moved"),
            "found, but as: {message}"
        );
    }
}

#[test]
fn work_that_is_left_is_done_once_and_in_order() {
    explore_all(work_left_for_the_owner::<Loom>).expect("the model holds");
    explore_all(two_wait::<Loom>).expect("the model holds");
}

#[derive(Clone, Copy, Debug, Default)]
struct TwoSteps;

impl InjectedFault for TwoSteps {
    fn makes(mistake: PlantedMistake) -> bool {
        mistake == PlantedMistake::ReleaseInTwoSteps
    }
}

/// Between the last check of the backlog and the release no other thread may leave work.
#[test]
fn an_owner_that_lets_go_in_two_steps_is_found() {
    let model = work_left_for_the_owner::<Planted<Loom, TwoSteps>>;
    let message = explore_all(model).expect_err("loom must find the fault");
    assert!(message.contains("work is lost"), "found, but as: {message}");
}

#[test]
fn what_is_left_for_a_processor_is_done_by_it_once_and_in_order() {
    explore_all(left_beside_a_user::<Loom>).expect("the model holds");
}

#[derive(Clone, Copy, Debug, Default)]
struct QueuedUntilDrained;

impl InjectedFault for QueuedUntilDrained {
    fn makes(mistake: PlantedMistake) -> bool {
        mistake == PlantedMistake::QueuedUntilDrained
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct ReleaseWithoutHandOver;

impl InjectedFault for ReleaseWithoutHandOver {
    fn makes(mistake: PlantedMistake) -> bool {
        mistake == PlantedMistake::ReleaseWithoutHandOver
    }
}

/// Work may be left between the last check of a turn and its end, and while a user owns the value.
#[test]
fn a_value_with_work_that_is_in_no_queue_is_found() {
    for explored in [
        explore_all(left_beside_a_user::<Planted<Loom, QueuedUntilDrained>>),
        explore_all(left_beside_a_user::<Planted<Loom, ReleaseWithoutHandOver>>),
    ] {
        let message = explored.expect_err("loom must find the fault");
        assert!(message.contains("work is left for ever"), "found, but as: {message}");
    }
}

#[test]
fn packets_deferred_and_processed_directly_keep_their_order() {
    explore_all(deferred_and_directly::<Loom>).expect("the model holds");
}

#[derive(Clone, Copy, Debug, Default)]
struct DespiteWork;

impl InjectedFault for DespiteWork {
    fn makes(mistake: PlantedMistake) -> bool {
        mistake == PlantedMistake::DirectDespiteWork
    }
}

/// A packet is processed directly only where no thread processes the stream and none waits in it.
#[test]
fn a_packet_that_is_processed_directly_despite_work_is_found() {
    let message =
        explore_all(deferred_and_directly::<Planted<Loom, DespiteWork>>).expect_err("loom must find the fault");
    assert!(message.contains("out of order") || message.contains("at once"), "found, but as: {message}");
}

#[test]
fn an_owner_that_waits_reads_its_mail() {
    explore_all(mail_while_waiting::<Loom>).expect("the model holds");
}

/// Sender and owner each write one word and then read the other's.
#[test]
fn an_owner_that_waits_without_a_fence_is_found() {
    let message = explore_all(mail_while_waiting::<Planted<Loom, NoFence>>).expect_err("loom must find the fault");
    assert!(message.contains("deadlock"), "found, but as: {message}");
}

#[test]
fn a_ready_connection_is_in_one_place_and_its_handler_in_one_thread() {
    explore_all(taken_by_home_and_thief::<Loom>).expect("the model holds");
}

#[derive(Clone, Copy, Debug, Default)]
struct ReturnInTwoSteps;

impl InjectedFault for ReturnInTwoSteps {
    fn makes(mistake: PlantedMistake) -> bool {
        mistake == PlantedMistake::ReturnInTwoSteps
    }
}

/// Between the last check for bits left and the return of the handler no other thread may leave bits.
#[test]
fn a_handler_that_is_returned_in_two_steps_is_found() {
    let model = taken_by_home_and_thief::<Planted<Loom, ReturnInTwoSteps>>;
    let message = explore_all(model).expect_err("loom must find the fault");
    assert!(message.contains("no thread was told"), "found, but as: {message}");
}

#[test]
fn a_soft_interrupt_thread_carries_every_frame_that_was_not_refused() {
    explore_all(interrupts_while_falling_asleep::<Loom>).expect("the model holds");
}

#[derive(Clone, Copy, Debug, Default)]
struct IdleDespiteWork;

impl InjectedFault for IdleDespiteWork {
    fn makes(mistake: PlantedMistake) -> bool {
        mistake == PlantedMistake::IdleDespiteWork
    }
}

/// Between the check that finds no frame and the sleep, a hard handler may have found no thread to wake.
#[test]
fn a_soft_interrupt_thread_that_sleeps_despite_frames_is_found() {
    let model = interrupts_while_falling_asleep::<Planted<Loom, IdleDespiteWork>>;
    let message = explore_all(model).expect_err("loom must find the fault");
    assert!(message.contains("deadlock"), "found, but as: {message}");
}
