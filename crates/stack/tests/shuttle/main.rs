//! Whole stacks under the randomised checker: every architecture, a receive thread, callers, the architecture's own
//! threads, and a peer made of hand-made segments.
//!
//! Every lock, atomic, queue and sleep of the stack, of its device and of its driver is a scheduling point, and each
//! test tries many schedules: at random, and by priorities that change a few times (PCT: Burckhardt et al., ASPLOS
//! 2010). A wake-up that is lost shows as a deadlock, because on [`Patient`] no sleep ends by itself. The cells of the
//! platform refuse a second thread (G1), the lock order and the sleeps are checked as in every debug build (G2, G4).
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

mod alarms;
mod models;
mod owners;
mod patient;
#[allow(dead_code)] // not every fault can be shown here
#[path = "../../../sync/tests/planted/mod.rs"]
mod planted;
mod twins;

use alarms::Calls;
use every_arch::every_arch;
use patient::Patient;
use planted::{BlindSleep, NoWake, Planted, TornUpdate, outcome};
use stack::Plan;

const RANDOM: usize = 1000;
const PCT: usize = 300;
/// Schedules in which a planted fault must show: the search ends with the first that does, which is mostly one of the first
/// ten. They are the same in every run, so that it is no matter of luck.
const HUNT: usize = 20_000;
const HUNT_FROM: u64 = 1;

fn holds(model: impl Fn() + Clone + Send + Sync + 'static) {
    if let Ok(schedule) = std::env::var("HEDDLE_SCHEDULE") {
        return shuttle::replay(model, &schedule);
    }
    shuttle::check_random(model.clone(), RANDOM);
    shuttle::check_pct(model, PCT, 3);
}

/// The model fails; what it says.
fn fails(model: impl Fn() + Copy + Send + Sync + 'static) -> String {
    let hunt = move || shuttle::check_random_with_seed(model, HUNT_FROM, HUNT);
    outcome(hunt).expect_err("shuttle must find the planted fault")
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn connection(plan: Plan) {
    holds(move || models::connection::<Patient>(plan));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn listener_closes(plan: Plan) {
    holds(move || models::listener_closes::<Patient>(plan));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn crowd(plan: Plan) {
    holds(move || models::crowd::<Patient>(plan));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn two_writers(plan: Plan) {
    holds(move || models::two_writers::<Patient>(plan));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn several_owners(plan: Plan) {
    holds(move || owners::several_owners::<Patient>(plan));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn call_on_the_owners_thread(plan: Plan) {
    holds(move || owners::call_on_the_owners_thread::<Patient>(plan));
}

#[every_arch(except(connp_l_128, connp_l_1024))]
fn several_pollers(plan: Plan) {
    holds(move || owners::several_pollers::<Patient>(plan));
}

#[test]
fn an_earlier_deadline_wakes_a_sleeper() {
    for threads in [1, 2] {
        holds(move || alarms::due_while_lying_down::<Patient>(threads, Calls::Any));
        holds(move || alarms::due_while_lying_down::<Patient>(threads, Calls::One));
    }
}

/// The models of the alarms can fail: where nobody is woken, they do.
#[test]
fn an_alarm_that_wakes_nobody_is_found() {
    fails(|| alarms::due_while_lying_down::<Planted<Patient, NoWake>>(2, Calls::Any));
    fails(|| alarms::due_while_lying_down::<Planted<Patient, NoWake>>(2, Calls::One));
}

/// The models can fail: on a machine that loses wake-ups, or sleeps without looking, they do. One architecture of each kind
/// of hand-over.
#[every_arch(only(up, giant, msgp_6, connp_t, connp_t_spsc, squeue_nodrain))]
fn planted_faults_are_found(plan: Plan) {
    fails(move || models::connection::<Planted<Patient, NoWake>>(plan));
    fails(move || models::crowd::<Planted<Patient, BlindSleep>>(plan));
}

/// And on one that tears updates. Of a connection the threads take turns; where all do the same it shows soon.
#[every_arch(only(up, giant, msgp_6, connp_t, connp_t_spsc, squeue_nodrain))]
fn torn_updates_are_found(plan: Plan) {
    fails(move || models::crowd::<Planted<Patient, TornUpdate>>(plan));
}

/// Callers that meet within a squeue's lock are owed replies, and the flag and the lock are on their way back while the
/// panic unwinds. None of that may panic again, which would end the process: what is said is what was found first.
#[test]
fn what_is_found_in_a_squeue_is_what_is_said() {
    let plan = "squeue:process".parse().expect("a plan");
    let said = fails(move || models::crowd::<Planted<Patient, TornUpdate>>(plan));
    let found = ["a cell is written while another thread uses it", "the flag admits one runner"];
    assert!(found.iter().any(|found| said.contains(found)), "{said}");
}

#[test]
fn a_squeue_that_leaves_without_looking_is_found() {
    holds(|| twins::squeue::<Patient>(true));
    fails(|| twins::squeue::<Patient>(false));
}

#[test]
fn an_owner_that_sleeps_without_looking_is_found() {
    holds(|| twins::owner::<Patient>(true));
    fails(|| twins::owner::<Patient>(false));
}

#[test]
fn a_mailbox_that_is_not_looked_into_after_release_is_found() {
    holds(|| twins::mailbox::<Patient>(true));
    fails(|| twins::mailbox::<Patient>(false));
}

#[test]
fn a_child_between_two_looks_at_the_listener_is_found() {
    holds(|| twins::listener::<Patient>(true));
    fails(|| twins::listener::<Patient>(false));
}

#[test]
fn a_waiter_that_does_not_look_again_is_found() {
    holds(|| twins::readiness::<Patient>(true));
    fails(|| twins::readiness::<Patient>(false));
}
