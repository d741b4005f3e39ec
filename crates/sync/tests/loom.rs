//! Every primitive under loom; and every model must fail with an injected fault.
#![cfg(feature = "loom")]

mod models;

use planted::{BlindSleep, Forgetful, InjectedFault, NoFence, NoWake, Planted, TornUpdate, WeakRelease, outcome};
use sync::loom::Loom;
use sync::raw::{Adaptive, Mcs, Ticket};
use sync::{LockKind, PlantedMistake, RefCounting};

type Weak = Planted<Loom, WeakRelease>;
type Mute = Planted<Loom, NoWake>;
type Blind = Planted<Loom, BlindSleep>;
type Fenceless = Planted<Loom, NoFence>;
type Torn = Planted<Loom, TornUpdate>;

const WAITING_KINDS: [LockKind; 9] = [
    LockKind::Tas,
    LockKind::Ttas,
    LockKind::Ticket,
    LockKind::Mcs,
    LockKind::SpinPark,
    LockKind::Blocking,
    LockKind::Reserved,
    LockKind::Adaptive,
    LockKind::AdaptiveLending,
];

fn explore(model: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
    explore_to(2, model)
}

fn explore_to(preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
    outcome(move || {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    })
}

fn holds(model: impl Fn() + Send + Sync + 'static) {
    explore(model).expect("the model holds");
}

/// Asserts that loom refutes the model, with a message that contains one of `symptoms`.
fn fails(symptoms: &[&str], model: impl Fn() + Send + Sync + 'static) {
    let message = explore(model).expect_err("loom must find the planted fault");
    assert!(symptoms.iter().any(|symptom| message.contains(symptom)), "found, but as: {message}");
}

const RACE: &[&str] = &["Causality violation", "concurrent"];
const HANG: &[&str] = &["deadlock"];

#[test]
fn locks_exclude() {
    for kind in WAITING_KINDS {
        println!("{kind}");
        holds(move || models::exclusion::<Loom>(kind));
    }
}

#[test]
fn locks_with_weak_release_are_found() {
    for kind in WAITING_KINDS {
        println!("{kind}");
        fails(RACE, move || models::exclusion::<Weak>(kind));
    }
}

#[test]
fn a_claim_excludes() {
    holds(models::claim::<Loom>);
    fails(RACE, models::claim::<Weak>);
}

#[test]
fn queue_locks_exclude_on_the_waiting_path() {
    holds(|| models::raw_exclusion::<Loom, Mcs<Loom>>(2));
    holds(|| models::raw_exclusion::<Loom, Ticket<Loom>>(2));
    holds(|| models::raw_exclusion::<Loom, Mcs<Loom>>(3));
}

#[test]
fn queue_locks_with_weak_release_are_found_on_the_waiting_path() {
    fails(RACE, || models::raw_exclusion::<Loom, Mcs<Weak>>(2));
    fails(RACE, || models::raw_exclusion::<Loom, Ticket<Weak>>(2));
}

#[test]
fn an_adaptive_lock_excludes_on_the_waiting_path() {
    holds(|| models::raw_exclusion::<Loom, Adaptive<Loom>>(2));
    fails(RACE, || models::raw_exclusion::<Loom, Adaptive<Weak>>(2));
}

#[test]
fn an_adaptive_lock_that_forgets_the_other_sleepers_is_found() {
    explore_to(1, || models::raw_exclusion::<Loom, Adaptive<Loom>>(3)).expect("the model holds");
    fails(HANG, || models::raw_exclusion::<Loom, Forgetful<Loom>>(3));
}

#[test]
fn sleeping_locks_that_do_not_wake_are_found() {
    fails(HANG, || models::exclusion::<Mute>(LockKind::Blocking));
    fails(HANG, || models::exclusion::<Mute>(LockKind::Adaptive));
}

#[test]
fn sleeping_locks_that_do_not_look_before_sleeping_are_found() {
    fails(HANG, || models::exclusion::<Blind>(LockKind::Blocking));
    fails(HANG, || models::exclusion::<Blind>(LockKind::Adaptive));
}

#[test]
fn a_reservation_ends_without_letting_two_in() {
    holds(|| models::reservation::<Loom>(1));
    fails(RACE, || models::reservation::<Weak>(1));
    fails(RACE, || models::reservation::<Fenceless>(1));
}

#[test]
fn a_reservation_is_not_passed_on() {
    // After three turns the other thread would get the reservation. The former owner is interrupted before and after
    // its store, the other between its check and its store.
    explore_to(3, || models::reservation::<Loom>(3)).expect("the model holds");
}

#[test]
fn spsc() {
    holds(models::spsc_order::<Loom>);
    fails(RACE, models::spsc_order::<Weak>);
    holds(models::spsc_each::<Loom>);
    fails(RACE, models::spsc_each::<Weak>);
}

#[test]
fn mpsc() {
    holds(models::mpsc_delivers::<Loom>);
    fails(RACE, models::mpsc_delivers::<Weak>);
}

#[test]
fn mpsc_with_torn_draw_is_found() {
    assert!(explore(models::mpsc_delivers::<Torn>).is_err());
}

#[test]
fn mpsc_slots_are_reused_safely() {
    holds(models::mpsc_reuses_slots::<Loom>);
    fails(RACE, models::mpsc_reuses_slots::<Weak>);
}

#[test]
fn mpsc_has_one_consumer_at_a_time() {
    holds(models::mpsc_one_consumer_at_a_time::<Loom>);
    assert!(explore(models::mpsc_one_consumer_at_a_time::<Weak>).is_err());
    assert!(explore(models::mpsc_one_consumer_at_a_time::<Torn>).is_err());
}

#[test]
fn turnstile() {
    for words in [1, 2] {
        holds(move || models::turns_pass::<Loom>(words));
        fails(RACE, move || models::turns_pass::<Weak>(words));
        fails(HANG, move || models::turns_pass::<Mute>(words));
        fails(HANG, move || models::turns_pass::<Blind>(words));
    }
}

#[test]
fn parker() {
    holds(models::parker_wakes::<Loom>);
    fails(RACE, models::parker_wakes::<Weak>);
    fails(HANG, models::parker_wakes::<Mute>);
    fails(HANG, models::parker_wakes::<Blind>);
}

#[test]
fn condvar() {
    holds(|| models::condvar_wakes::<Loom>(LockKind::Blocking));
    fails(HANG, || models::condvar_wakes::<Mute>(LockKind::Tas));
}

#[test]
fn doorbell() {
    holds(models::doorbell_wakes::<Loom>);
    fails(HANG, models::doorbell_wakes::<Fenceless>);
}

#[test]
fn qsbr() {
    for away in [false, true] {
        holds(move || models::qsbr_waits_for_every_read::<Loom>(away));
        fails(RACE, move || models::qsbr_waits_for_every_read::<Weak>(away));
    }
    fails(RACE, || models::qsbr_waits_for_every_read::<Fenceless>(true));
}

#[test]
fn an_rcu_cell() {
    holds(models::an_rcu_cell_keeps_what_is_read::<Loom>);
    fails(RACE, models::an_rcu_cell_keeps_what_is_read::<Weak>);
    fails(RACE, models::an_rcu_cell_keeps_what_is_read::<Fenceless>);
}

#[test]
fn shares() {
    holds(models::the_last_holder_frees::<Loom>);
    fails(RACE, models::the_last_holder_frees::<Weak>);
    fails(RACE, models::the_last_holder_frees::<Fenceless>);
    assert!(explore(models::the_last_holder_frees::<Torn>).is_err());
    holds(models::a_unique_holder_may_write::<Loom>);
    fails(RACE, models::a_unique_holder_may_write::<Weak>);
}

#[derive(Clone, Copy, Debug, Default)]
struct CountInTwoSteps;

impl InjectedFault for CountInTwoSteps {
    fn makes(mistake: PlantedMistake) -> bool {
        mistake == PlantedMistake::CountInTwoSteps
    }
}

#[test]
fn counted_values() {
    let locked = WAITING_KINDS.map(RefCounting::Locked);
    for counting in locked.into_iter().chain([RefCounting::Atomic]) {
        println!("{counting:?}");
        holds(move || models::the_last_of_two_holds_drops::<Loom>(counting));
    }
    for counting in [RefCounting::Atomic, RefCounting::Locked(LockKind::Tas)] {
        holds(move || models::a_hold_that_is_passed_on_keeps_the_value::<Loom>(counting));
        fails(RACE, move || models::the_last_of_two_holds_drops::<Weak>(counting));
    }
    let torn = models::the_last_of_two_holds_drops::<Planted<Loom, CountInTwoSteps>>;
    fails(&["the last of two holders drops the value"], move || torn(RefCounting::Locked(LockKind::Tas)));
}

#[test]
fn reused_values() {
    holds(models::the_last_holder_of_a_reused_value_drops_it::<Loom>);
    holds(models::a_hold_of_a_reused_value_that_is_passed_on_keeps_it::<Loom>);
    fails(RACE, models::the_last_holder_of_a_reused_value_drops_it::<Weak>);
    fails(RACE, models::the_last_holder_of_a_reused_value_drops_it::<Fenceless>);
    assert!(explore(models::the_last_holder_of_a_reused_value_drops_it::<Torn>).is_err());
}

#[test]
fn index_stack() {
    holds(models::a_place_has_one_holder::<Loom>);
    holds(models::a_number_that_comes_back_is_not_taken_for_the_old_one::<Loom>);
    fails(RACE, models::a_place_has_one_holder::<Weak>);
}

#[test]
fn uses() {
    holds(models::a_closed_thing_is_freed_once::<Loom>);
    fails(RACE, models::a_closed_thing_is_freed_once::<Weak>);
    assert!(explore(models::a_closed_thing_is_freed_once::<Torn>).is_err());
}

#[test]
fn owner() {
    holds(models::owner_moves::<Loom>);
    fails(RACE, models::owner_moves::<Weak>);
}

#[test]
fn slab() {
    holds(models::slab_values_change_owners::<Loom>);
    fails(RACE, models::slab_values_change_owners::<Weak>);
    holds(models::slab_memory_is_freed_when_nobody_looks::<Loom>);
    fails(RACE, models::slab_memory_is_freed_when_nobody_looks::<Weak>);
}
