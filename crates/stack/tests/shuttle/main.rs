//! Whole stacks under the randomised checker: every architecture, a receive thread, callers, the architecture's own
//! threads, and a peer of hand-made segments.
//!
//! Every lock, atomic, queue and sleep of the stack, of its device and of its driver is a scheduling point, and each
//! test tries many schedules: at random, and by priorities that change a few times (PCT: Burckhardt et al., ASPLOS
//! 2010). A lost wake-up shows as a deadlock, because on [`Patient`](testbed::over::Patient) no sleep ends by itself. The cells of the platform
//! refuse a second thread (G1), the lock order and the sleeps are checked as in every debug build (G2, G4).
//!
//! # When a schedule fails
//! Shuttle prints `failing schedule:` with a string. Run the test that failed again with that string, and the same
//! schedule is followed:
//!
//! ```text
//! HEDDLE_SCHEDULE=910102... cargo test -p heddle-stack --features shuttle --test shuttle -- --exact connection::giant
//! ```
//!
//! # What is left out
//! `connp-l:128` and `connp-l:1024` are the code of `connp-l:4` with more groups; making a thousand of them for each
//! schedule would leave time for few schedules.

mod accept_queue;
mod alarms;
mod backlog;
mod closing;
mod due_cells;
mod frame_input;
mod gate;
mod mistakes;
mod models;
mod owners;
mod processor;
mod readiness;
mod statistics;
mod steal;
mod waits;
mod work_stream;

use alarms::Calls;
use every_arch::every_arch;
use gate::Passes;
use mistakes::Checked;
use stack::Architecture;
use sync::Writers;

const RANDOM: usize = 1000;
const PCT: usize = 300;

fn holds(model: impl Fn() + Clone + Send + Sync + 'static) {
    if let Ok(schedule) = std::env::var("HEDDLE_SCHEDULE") {
        return shuttle::replay(model, &schedule);
    }
    shuttle::check_random(model.clone(), RANDOM);
    shuttle::check_pct(model, PCT, 3);
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn connection(arch: Architecture) {
    holds(move || models::connection::<Checked>(arch));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn listener_closes(arch: Architecture) {
    holds(move || models::listener_closes::<Checked>(arch));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn crowd(arch: Architecture) {
    holds(move || models::crowd::<Checked>(arch));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn two_writers(arch: Architecture) {
    holds(move || models::two_writers::<Checked>(arch));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn datagrams_before_an_answer(arch: Architecture) {
    holds(move || models::datagrams_before_an_answer::<Checked>(arch));
}

/// The places where a thread leaves a segment that it does not run, and where another thread must run it.
#[every_arch(only(adaptive, backlog, backlog_processor, connp_t, squeue_nodrain, steal))]
fn data_while_reading(arch: Architecture) {
    holds(move || models::data_while_reading::<Checked>(arch));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn arrival_order(arch: Architecture) {
    holds(move || models::arrival_order::<Checked>(arch));
}

/// The places where an event may wait although its cell is free a moment later.
#[every_arch(only(adaptive, backlog, shared_nothing, squeue_process, squeue_process_bind, squeue_process_poll, up))]
fn arrivals_beside_calls(arch: Architecture) {
    holds(move || models::arrivals_beside_calls::<Checked>(arch));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn several_owners(arch: Architecture) {
    holds(move || owners::several_owners::<Checked>(arch));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn call_on_the_owners_thread(arch: Architecture) {
    holds(move || owners::call_on_the_owners_thread::<Checked>(arch));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn notified_users_call_each_other(arch: Architecture) {
    holds(move || owners::notified_users_call_each_other::<Checked>(arch, 2));
    holds(move || owners::notified_users_call_each_other::<Checked>(arch, 1));
}

#[every_arch(only(conn_thread_2, connp_t, connp_t_spsc))]
fn an_owner_that_waits_is_called(arch: Architecture) {
    holds(move || owners::an_owner_that_waits_is_called::<Checked>(arch));
}

#[every_arch(only(
    conn_thread_2,
    connp_t,
    connp_t_spsc,
    squeue_fill,
    squeue_nodrain,
    squeue_process,
    squeue_process_bind,
    squeue_process_poll
))]
fn users_are_told_one_thing_at_a_time(arch: Architecture) {
    holds(move || owners::users_are_told_one_thing_at_a_time::<Checked>(arch));
}

#[every_arch(only(squeue_fill))]
fn users_are_told_in_order(arch: Architecture) {
    holds(move || owners::users_are_told_in_order::<Checked>(arch));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn users_are_told_although_it_is_switched(arch: Architecture) {
    let to = Architecture::named("giant");
    holds(move || owners::users_are_told_although_it_is_switched::<Checked>(arch, to, 2));
    holds(move || owners::users_are_told_although_it_is_switched::<Checked>(arch, to, 1));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn several_pollers(arch: Architecture) {
    holds(move || owners::several_pollers::<Checked>(arch));
}

/// With every layout and kind of lock; only the default is in the list of all.
#[test]
fn arrival_order_in_every_pool() {
    for name in ["msgp-pool:2", "msgp-pool:6", "msgp-pool+tas", "msgp-pool+mcs"] {
        let arch = Architecture::named(name);
        holds(move || models::arrival_order::<Checked>(arch));
    }
}

/// One pair for each kind of seam: between locks, between a lock and an owner, from one owner or queue to another.
#[test]
fn a_stack_is_switched_in_use() {
    let seams = [
        ("giant", "msgp:1"),
        ("connp-l:4", "connp-t"),
        ("connp-t", "squeue:process"),
        ("squeue:fill", "up"),
        ("squeue:process+poll", "squeue:process"),
        ("squeue:fill+bind", "squeue:process+bind"),
        ("up", "msgp:6"),
        ("netisr:deferred", "connp-l:4"),
        ("connp-t", "netisr:hybrid"),
        ("shared-nothing", "connp-t:spsc"),
        ("steal", "shared-nothing"),
        ("softint", "connp-t"),
        ("netisr:deferred", "softint"),
        ("backlog:processor", "backlog"),
        ("connp-t", "backlog:processor"),
        ("connp-t:lwkt", "connp-t"),
        ("giant", "connp-t:lwkt"),
        ("adaptive:eager", "connp-t"),
        ("shared-nothing", "adaptive:eager"),
    ];
    for seam in seams {
        let [from, to] = [seam.0, seam.1].map(Architecture::named);
        holds(move || models::switched::<Checked>(from, to));
    }
}

/// Groups of `adaptive` that go home and become shared again after a few events: whatever the hand-over meets, nothing is left
/// behind or overtaken, and a group has one owner.
#[test]
fn groups_that_change_hands_all_the_time() {
    let arch = Architecture::named("adaptive:eager");
    holds(move || models::connection::<Checked>(arch));
    holds(move || models::crowd::<Checked>(arch));
    holds(move || models::two_writers::<Checked>(arch));
    holds(move || models::data_while_reading::<Checked>(arch));
    holds(move || models::arrival_order::<Checked>(arch));
    holds(move || models::arrivals_beside_calls::<Checked>(arch));
    holds(move || models::listener_closes::<Checked>(arch));
    holds(move || owners::several_owners::<Checked>(arch));
    holds(move || owners::several_pollers::<Checked>(arch));
    holds(move || owners::owners_ask_each_other::<Checked>(arch));
}

#[test]
fn nobody_is_inside_a_closed_gate_or_left_outside_an_open_one() {
    holds(|| gate::passes_while_it_closes::<Checked>(Passes::Caller, false));
    holds(|| gate::passes_while_it_closes::<Checked>(Passes::CallerAtOnce, false));
    holds(|| gate::passes_while_it_closes::<Checked>(Passes::Driver, false));
    holds(|| gate::passes_while_it_closes::<Checked>(Passes::Caller, true));
    holds(|| gate::passes_while_it_closes::<Checked>(Passes::Driver, true));
    holds(closing::two_close::<Checked>);
}

#[every_arch(only(up, shared_nothing, connp_t_lwkt, adaptive))]
fn owners_ask_each_other(arch: Architecture) {
    holds(move || owners::owners_ask_each_other::<Checked>(arch));
}

#[test]
fn an_owner_that_waits_reads_its_mail() {
    holds(waits::mail_while_waiting::<Checked>);
}

#[test]
fn a_socket_that_gets_ready_wakes_its_user() {
    for writers in [Writers::One, Writers::Many] {
        holds(move || readiness::ready_while_falling_asleep::<Checked>(writers));
        holds(move || readiness::ready_while_registering::<Checked>(writers));
        holds(move || readiness::edge_while_the_watcher_falls_asleep::<Checked>(writers));
    }
}

#[test]
fn a_connection_that_is_queued_wakes_a_thread_that_accepts() {
    holds(|| accept_queue::queued_while_falling_asleep::<Checked>(3));
}

#[test]
fn work_that_is_left_is_done_once_and_in_order() {
    holds(backlog::work_left_for_the_owner::<Checked>);
    holds(backlog::two_wait::<Checked>);
}

#[test]
fn what_is_left_for_a_processor_is_done_by_it_once_and_in_order() {
    holds(processor::left_beside_a_user::<Checked>);
}

#[test]
fn packets_deferred_and_processed_directly_keep_their_order() {
    holds(work_stream::deferred_and_directly::<Checked>);
}

#[every_arch(only(steal))]
fn message_for_a_handler(arch: Architecture) {
    holds(move || models::message_for_a_handler::<Checked>(arch));
}

#[test]
fn a_ready_connection_is_in_one_place_and_its_handler_in_one_thread() {
    holds(steal::taken_by_home_and_thief::<Checked>);
}

#[test]
fn a_soft_interrupt_thread_carries_every_frame_that_was_not_refused() {
    holds(frame_input::interrupts_while_falling_asleep::<Checked>);
}

#[test]
fn counts_in_one_step_are_not_lost() {
    holds(|| statistics::two_threads::<Checked>(statistics::in_one_step::<Checked>));
}

#[test]
fn an_earlier_deadline_wakes_a_sleeper() {
    for threads in [1, 2] {
        holds(move || alarms::due_while_falling_asleep::<Checked>(threads, Calls::Any));
        holds(move || alarms::due_while_falling_asleep::<Checked>(threads, Calls::One));
    }
}

#[test]
fn a_tick_forgets_no_cell_with_work() {
    for lookers in [1, 2] {
        holds(move || due_cells::deadline_while_looking::<Checked>(lookers));
    }
    holds(due_cells::message_while_taking::<Checked>);
}
