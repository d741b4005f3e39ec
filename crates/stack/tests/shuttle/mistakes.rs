//! For each kind of architecture, the mistake that its mechanism excludes. The mistake is injected under the shipped
//! code, and must make a model fail that passes without it (`main.rs` runs all models without).
//!
//! The platform injects the mistakes: threads of one kind do not wake those of another, a sleep without a last check,
//! an update in two steps. The mistake is chosen at run time, so that the stack is compiled once for all of them.

use every_arch::every_arch;
use stack::Architecture;
use sync::shuttle::Shuttle;
use sync::{PlantedMistake, Writers};
use testbed::over::Patient;

use super::alarms::{Calls, due_while_falling_asleep};
use super::frame_input::{HARD, SOFT, interrupts_while_falling_asleep};
use super::models::{
    arrival_order, arrivals_beside_calls, connection, crowd, data_while_reading, listener_closes,
    message_for_a_handler, two_writers,
};
use super::owners::owners_ask_each_other;
use super::processor::left_beside_a_user;
use super::readiness::ready_while_falling_asleep;
use super::statistics::{in_two_steps, two_threads};
use super::steal::taken_by_home_and_thief;
use super::work_stream::{BESIDE, HYBRID, deferred_and_directly};
use planted::{ChosenFault, Mistake, Planted, choose, outcome};

/// Schedules in which an injected mistake must show: the search ends with the first that does, usually one of the first
/// ten. They are the same in every run, so the result is deterministic.
const HUNT: usize = 20_000;
const HUNT_FROM: u64 = 1;

/// The threads of a model. Architectures name their own threads.
const CALLER: &str = "caller";
const RECEIVER: &str = "receiver";
const WRITER: &str = "writer";
const WORKER: &str = "heddle-sq";
const OWNER: &str = "heddle-pt";
const IP: &str = "heddle-ip";
const POOLED: &str = "heddle-pw";
const SWI: &str = "heddle-ni";
const SOFTINT: &str = "heddle-si";
const PROCESSOR: &str = "heddle-bp";
const ANY: &str = "";

/// The platform of all models: correct until a mistake is chosen.
pub type Checked = Planted<Patient<Shuttle>, ChosenFault>;

/// The model fails with this mistake; returns the message.
fn fails_with(mistake: Mistake, model: impl Fn() + Copy + Send + Sync + 'static) -> String {
    let hunt = move || {
        choose(mistake);
        shuttle::check_random_with_seed(model, HUNT_FROM, HUNT);
    };
    outcome(hunt).expect_err("shuttle must find the planted mistake")
}

/// The model holds with this mistake too.
fn holds_with(mistake: Mistake, model: impl Fn() + Copy + Send + Sync + 'static) {
    let search = move || {
        choose(mistake);
        shuttle::check_random(model, super::RANDOM);
    };
    outcome(search).expect("the mistake does not matter");
}

/// The fault `+racy-stats`, which is a mistake that users may choose: of two counts at once one is lost, and never both.
#[test]
fn counts_in_two_steps_are_lost() {
    let said = fails_with(Mistake::Nothing, || two_threads::<Checked>(in_two_steps::<Checked>));
    assert!(said.contains("counted: 1"), "{said}");
}

/// With this mistake threads sleep for ever.
fn hangs_with(mistake: Mistake, model: impl Fn() + Copy + Send + Sync + 'static) {
    let said = fails_with(mistake, model);
    assert!(said.contains("deadlock"), "found, but as: {said}");
}

/// The models can fail: they do on a platform that loses wake-ups or sleeps without a last check. The set-up of a model takes
/// turns until the stack is at rest, and where workers take frames from a queue that waits for a worker: it would not hang, but
/// never end. Such architectures have tests of their own below.
#[every_arch(except(connp_l_128, connp_l_1024, msgp_pool, softint, layer))]
fn a_machine_that_loses_wakes_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(ANY, ANY), move || connection::<Checked>(arch));
    hangs_with(Mistake::BlindSleep(ANY), move || crowd::<Checked>(arch));
}

/// The models of the alarms can fail too.
#[test]
fn an_alarm_that_wakes_nobody_is_found() {
    for calls in [Calls::Any, Calls::One] {
        hangs_with(Mistake::NoWake(ANY, ANY), move || due_while_falling_asleep::<Checked>(2, calls));
    }
}

/// The model of the readiness word too: a thread sleeps only on the word value in which it saw nothing.
#[test]
fn a_user_that_sleeps_without_a_last_look_at_the_socket_is_found() {
    for writers in [Writers::One, Writers::Many] {
        hangs_with(Mistake::BlindSleep(CALLER), move || ready_while_falling_asleep::<Checked>(writers));
    }
}

/// `up`, `shared-nothing`: mail for the polling thread, or for the thread that uses the cell meanwhile, is read; and its sender is woken
/// for the answer.
#[every_arch(only(up, shared_nothing, connp_t_lwkt))]
fn mail_that_nobody_is_notified_of_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(CALLER, RECEIVER), move || crowd::<Checked>(arch));
    hangs_with(Mistake::NoWake(RECEIVER, CALLER), move || crowd::<Checked>(arch));
}

/// `adaptive`: a thread that leaves a group looks once more for what was queued meanwhile.
#[test]
fn a_group_that_is_left_without_a_look_is_found() {
    let arch = Architecture::named("adaptive");
    hangs_with(Mistake::Above(PlantedMistake::ReleaseInTwoSteps), move || two_writers::<Checked>(arch));
}

/// `adaptive`: a thread queues behind what waits in a group, although no thread owns it at that moment.
#[test]
fn an_event_that_overtakes_what_waits_in_its_group_is_found() {
    let arch = Architecture::named("adaptive");
    let model = move || arrivals_beside_calls::<Checked>(arch);
    let said = fails_with(Mistake::Above(PlantedMistake::DirectDespiteWork), model);
    assert!(said.contains("out of order"), "{said}");
}

/// `shared-nothing`: a core that waits for another's answer is woken for it, and for its own mail.
#[every_arch(only(shared_nothing, connp_t_lwkt))]
fn a_core_that_nobody_tells_of_its_mail_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake("core", "core"), move || owners_ask_each_other::<Checked>(arch));
}

/// `connp-t`: the protocol thread is woken for every request and segment, and its answer wakes the sleeping caller.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2))]
fn a_message_that_nobody_is_notified_of_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(CALLER, OWNER), move || crowd::<Checked>(arch));
    hangs_with(Mistake::NoWake(RECEIVER, OWNER), move || connection::<Checked>(arch));
    hangs_with(Mistake::NoWake(OWNER, CALLER), move || crowd::<Checked>(arch));
}

/// `layer`: the thread of each layer is woken for messages that the one below puts into its queue.
#[every_arch(only(layer))]
fn a_layer_that_nobody_tells_of_its_queue_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(RECEIVER, IP), move || connection::<Checked>(arch));
    hangs_with(Mistake::NoWake(IP, OWNER), move || connection::<Checked>(arch));
    hangs_with(Mistake::NoWake(OWNER, CALLER), move || crowd::<Checked>(arch));
}

/// `connp-t`: a protocol thread that found its queue empty checks again before it sleeps.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2, layer))]
fn an_owner_that_sleeps_without_a_last_look_is_found(arch: Architecture) {
    hangs_with(Mistake::BlindSleep(OWNER), move || crowd::<Checked>(arch));
}

/// `squeue:fill` and `squeue:nodrain`: a thread that leaves the shard with work in its queue wakes the worker, and the
/// worker checks again before it sleeps.
#[every_arch(only(squeue_fill, squeue_nodrain))]
fn a_shard_that_is_left_with_work_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(CALLER, WORKER), move || crowd::<Checked>(arch));
    hangs_with(Mistake::BlindSleep(WORKER), move || crowd::<Checked>(arch));
}

/// `squeue:fill`: every segment is the worker's.
#[every_arch(only(squeue_fill))]
fn a_segment_that_no_worker_is_notified_of_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(RECEIVER, WORKER), move || connection::<Checked>(arch));
}

/// `squeue:process`: a thread that leaves the shard drains it. So nothing is lost if callers never wake the worker, as
/// long as none leaves work beyond its bound.
#[every_arch(only(squeue_process))]
fn a_shard_that_is_drained_needs_no_worker(arch: Architecture) {
    holds_with(Mistake::NoWake(CALLER, WORKER), move || crowd::<Checked>(arch));
}

/// `squeue:process+poll`: the thread that gives up a shard wakes the receive thread that has left frames in the device.
#[every_arch(only(squeue_process_poll))]
fn a_ring_that_nobody_gives_a_turn_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(CALLER, RECEIVER), move || arrivals_beside_calls::<Checked>(arch));
}

/// `msgp-pool`: a receive thread wakes a worker for the frames that it has put into the shared input, a worker checks
/// again before it sleeps, and one that passes its turn on wakes the next.
#[every_arch(only(msgp_pool))]
fn a_frame_or_a_turn_that_no_worker_is_notified_of_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(RECEIVER, POOLED), move || connection::<Checked>(arch));
    hangs_with(Mistake::BlindSleep(POOLED), move || connection::<Checked>(arch));
    hangs_with(Mistake::NoWake(POOLED, POOLED), move || arrival_order::<Checked>(arch));
}

/// `msgp-pool`: a ticket is drawn under the lock under which the frame is taken (O2).
#[every_arch(only(msgp_pool))]
fn a_ticket_drawn_after_the_lock_was_released_is_found(arch: Architecture) {
    let mistake = Mistake::Above(PlantedMistake::TicketAfterRelease);
    let said = fails_with(mistake, move || arrival_order::<Checked>(arch));
    assert!(said.contains("out of order"), "{said}");
}

/// Without tickets workers overtake each other between the input and the connection (O2).
#[test]
fn workers_without_tickets_are_seen_to_overtake_each_other() {
    for name in ["msgp-pool+unordered", "msgp-pool:2+unordered", "msgp-pool:6+unordered", "msgp-pool+mcs+unordered"] {
        let arch = name.parse().expect("an architecture");
        let said = fails_with(Mistake::Nothing, move || arrival_order::<Checked>(arch));
        assert!(said.contains("out of order"), "{name}: {said}");
    }
}

/// `netisr:deferred`: a receive thread wakes the swi for packets that it has left in a work stream, and the swi checks
/// again before it sleeps.
#[every_arch(only(netisr_deferred))]
fn a_packet_that_no_swi_is_notified_of_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(RECEIVER, SWI), move || connection::<Checked>(arch));
    hangs_with(Mistake::BlindSleep(SWI), move || connection::<Checked>(arch));
}

/// `softint`: a hard handler wakes the soft-interrupt thread for the frames that it has left, and that thread checks
/// again before it sleeps.
#[every_arch(only(softint))]
fn a_frame_that_no_soft_interrupt_thread_is_notified_of_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(RECEIVER, SOFTINT), move || connection::<Checked>(arch));
    hangs_with(Mistake::BlindSleep(SOFTINT), move || connection::<Checked>(arch));
}

/// The same for its queue alone; a check before it announces its sleep is not enough.
#[test]
fn frames_left_in_the_queue_of_a_soft_interrupt_thread_are_found() {
    hangs_with(Mistake::NoWake(HARD, SOFT), interrupts_while_falling_asleep::<Checked>);
    hangs_with(Mistake::Above(PlantedMistake::IdleDespiteWork), interrupts_while_falling_asleep::<Checked>);
}

/// `netisr:hybrid`: the thread that processes a packet directly wakes the swi for packets left meanwhile.
#[test]
fn packets_left_while_one_is_processed_directly_are_found() {
    hangs_with(Mistake::NoWake(HYBRID, BESIDE), deferred_and_directly::<Checked>);
}

/// `netisr:hybrid`: no packet is processed directly beside others that wait or are processed.
#[test]
fn a_packet_that_is_processed_directly_despite_work_is_found() {
    let said = fails_with(Mistake::Above(PlantedMistake::DirectDespiteWork), deferred_and_directly::<Checked>);
    assert!(said.contains("out of order") || said.contains("at once"), "{said}");
}

/// `giant`, `connp-l`, `msgp`: a thread that releases a lock wakes the next.
#[every_arch(only(
    giant,
    connp_l_4,
    msgp_1,
    msgp_2,
    msgp_6,
    msgp_1_coupled,
    msgp_2_coupled,
    msgp_6_coupled,
    msgp_pool,
    backlog,
    backlog_processor,
    netisr_hybrid,
    netisr_deferred,
    steal,
    softint,
    softint_polling
))]
fn a_lock_that_is_released_without_a_wake_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(CALLER, CALLER), move || crowd::<Checked>(arch));
}

/// `backlog`: a thread that releases a connection has seen, in the same step, that its backlog is empty; and wakes a
/// caller that waits for the connection.
#[every_arch(only(backlog, steal))]
fn a_connection_that_is_let_go_in_two_steps_is_found(arch: Architecture) {
    hangs_with(Mistake::Above(PlantedMistake::ReleaseInTwoSteps), move || data_while_reading::<Checked>(arch));
    hangs_with(Mistake::NoWake(WRITER, WRITER), move || two_writers::<Checked>(arch));
}

/// `backlog:processor`: a thread that leaves something for a connection that is free and not queued queues it and wakes its
/// processor, which checks again before it sleeps; and a user that releases it queues it, if something was left.
#[every_arch(only(backlog_processor))]
fn something_left_that_no_processor_is_notified_of_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(RECEIVER, PROCESSOR), move || data_while_reading::<Checked>(arch));
    hangs_with(Mistake::BlindSleep(PROCESSOR), move || data_while_reading::<Checked>(arch));
    hangs_with(Mistake::Above(PlantedMistake::ReleaseWithoutHandOver), move || data_while_reading::<Checked>(arch));
    hangs_with(Mistake::NoWake(WRITER, WRITER), move || two_writers::<Checked>(arch));
}

/// The same for the connection's backlog and the queue of the processor alone. A mark that is removed too late needs one step of
/// the processor between two of the receive thread: loom finds that (`tests/loom.rs`).
#[test]
fn work_left_for_a_processor_that_is_in_no_queue_is_found() {
    let mistake = Mistake::Above(PlantedMistake::ReleaseWithoutHandOver);
    let said = fails_with(mistake, left_beside_a_user::<Checked>);
    assert!(said.contains("work is left for ever"), "{said}");
}

/// `steal`: a thread that returns a handler sees, in the same step, the bits left for it meanwhile.
#[test]
fn a_handler_that_is_returned_in_two_steps_is_found() {
    let said = fails_with(Mistake::Above(PlantedMistake::ReturnInTwoSteps), taken_by_home_and_thief::<Checked>);
    assert!(said.contains("no thread was told"), "{said}");
}

/// `steal`: a core that sleeps is woken for a connection that another thread makes ready.
#[every_arch(only(steal))]
fn a_ready_connection_that_no_core_is_notified_of_is_found(arch: Architecture) {
    hangs_with(Mistake::NoWake(CALLER, RECEIVER), move || message_for_a_handler::<Checked>(arch));
}

/// All: one thread at a time is in a cell, and a flag, a lock or an owner is taken in one atomic step. With all threads
/// doing the same a mistake shows soon.
#[every_arch(except(connp_l_128, connp_l_1024))]
fn a_cell_that_is_entered_in_two_steps_is_found(arch: Architecture) {
    fails_with(Mistake::TornUpdate, move || crowd::<Checked>(arch));
}

/// A child is in the accept queue before that is drained, or is reset: closing the listener and draining its queue is
/// one atomic step.
#[every_arch(except(connp_l_128, connp_l_1024))]
fn a_listener_that_closes_in_two_steps_is_found(arch: Architecture) {
    fails_with(Mistake::TornUpdate, move || listener_closes::<Checked>(arch));
}

/// Callers inside a squeue's lock must get replies, and the flag and the lock are released while the panic unwinds.
/// None of that may panic again, which would abort the process: the first finding is reported. The torn update may also
/// be that of a permit, which is then lost, and the first finding is that all wait.
#[test]
fn what_is_found_in_a_squeue_is_what_is_said() {
    let arch = "squeue:process".parse().expect("a plan");
    let said = fails_with(Mistake::TornUpdate, move || crowd::<Checked>(arch));
    let found = ["a cell is written while another thread uses it", "the flag admits one runner", "deadlock!"];
    assert!(found.iter().any(|found| said.contains(found)), "{said}");
}
