//! Every primitive under shuttle's random and priority-based schedules, with the faults that sequential consistency can
//! show planted in turn.
#![cfg(feature = "shuttle")]

mod models;

use planted::{Announces, BlindSleep, Forgetful, Guesses, NoWake, Planted, TornUpdate, outcome};
use sync::raw::{Adaptive, Mcs, Ticket};
use sync::shuttle::Shuttle;
use sync::{LockKind, RefCounting};

type Mute = Planted<Shuttle, NoWake>;
type Blind = Planted<Shuttle, BlindSleep>;
type Torn = Planted<Shuttle, TornUpdate>;
type Announcing = Planted<Shuttle, Announces>;
type Guessing = Planted<Shuttle, Guesses>;

const SCHEDULES: usize = 1_000;

fn holds(model: impl Fn() + Copy + Send + Sync + 'static) {
    outcome(move || shuttle::check_random(model, SCHEDULES)).expect("the model holds under random schedules");
    outcome(move || shuttle::check_pct(model, SCHEDULES, 3)).expect("the model holds under PCT schedules");
}

/// The search ends with the first schedule that shows the fault; the bound is for a fault that never shows. Some
/// windows are narrow, so a thousand random schedules may not be enough.
const HUNT: usize = 200 * SCHEDULES;

fn fails(model: impl Fn() + Copy + Send + Sync + 'static) {
    outcome(move || shuttle::check_random(model, HUNT)).expect_err("shuttle must find the planted fault");
}

#[test]
fn a_reservation_excludes() {
    for turns in [1, 3] {
        holds(move || models::reservation::<Shuttle>(turns));
    }
    fails(|| models::reservation::<Torn>(1));
}

#[test]
fn counted_values_are_dropped_by_the_last() {
    for counting in [RefCounting::Atomic, RefCounting::Locked(LockKind::Tas), RefCounting::Locked(LockKind::SpinPark)] {
        holds(move || models::the_last_of_two_holds_drops::<Shuttle>(counting));
        holds(move || models::a_hold_that_is_passed_on_keeps_the_value::<Shuttle>(counting));
        fails(move || models::the_last_of_two_holds_drops::<Torn>(counting));
    }
}

#[test]
fn reused_values_are_dropped_by_the_last() {
    holds(models::the_last_holder_of_a_reused_value_drops_it::<Shuttle>);
    holds(models::a_hold_of_a_reused_value_that_is_passed_on_keeps_it::<Shuttle>);
    fails(models::the_last_holder_of_a_reused_value_drops_it::<Torn>);
}

#[test]
fn a_claim_excludes() {
    holds(models::claim::<Shuttle>);
    fails(models::claim::<Torn>);
}

#[test]
fn spin_park() {
    holds(|| models::exclusion::<Shuttle>(LockKind::SpinPark));
    fails(|| models::exclusion::<Torn>(LockKind::SpinPark));
    fails(|| models::exclusion::<Mute>(LockKind::SpinPark));
    fails(|| models::exclusion::<Blind>(LockKind::SpinPark));
}

#[test]
fn adaptive() {
    holds(|| models::exclusion::<Shuttle>(LockKind::Adaptive));
    holds(|| models::raw_exclusion::<Shuttle, Adaptive<Shuttle>>(4));
    // The holder's state may change between the answer and its use: any answer may be wrong.
    holds(|| models::raw_exclusion::<Guessing, Adaptive<Guessing>>(4));
    holds(|| models::raw_exclusion::<Guessing, Adaptive<Guessing, true>>(4));
    holds(|| models::raw_exclusion::<Announcing, Adaptive<Announcing>>(4));
    holds(|| models::raw_exclusion::<Announcing, Adaptive<Announcing, true>>(4));
    fails(|| models::exclusion::<Torn>(LockKind::Adaptive));
    fails(|| models::exclusion::<Mute>(LockKind::Adaptive));
    fails(|| models::exclusion::<Blind>(LockKind::Adaptive));
    fails(|| models::raw_exclusion::<Shuttle, Forgetful<Shuttle>>(3));
}

#[test]
fn queue_locks() {
    holds(|| models::raw_exclusion::<Shuttle, Mcs<Shuttle>>(4));
    holds(|| models::raw_exclusion::<Shuttle, Ticket<Shuttle>>(4));
    fails(|| models::raw_exclusion::<Shuttle, Mcs<Torn>>(4));
}

#[test]
fn turnstile() {
    for words in [1, 2] {
        holds(move || models::turns_pass::<Shuttle>(words));
        fails(move || models::turns_pass::<Mute>(words));
        fails(move || models::turns_pass::<Blind>(words));
    }
}

#[test]
fn parker() {
    holds(models::parker_wakes::<Shuttle>);
    fails(models::parker_wakes::<Mute>);
    fails(models::parker_wakes::<Blind>);
}

#[test]
fn condvar() {
    holds(|| models::condvar_wakes::<Shuttle>(LockKind::Blocking));
    fails(|| models::condvar_wakes::<Mute>(LockKind::Blocking));
    fails(|| models::condvar_wakes::<Blind>(LockKind::Tas));
}

#[test]
fn rings() {
    holds(models::spsc_order::<Shuttle>);
    holds(models::spsc_each::<Shuttle>);
    holds(models::mpsc_delivers::<Shuttle>);
    holds(models::mpsc_reuses_slots::<Shuttle>);
    holds(models::mpsc_one_consumer_at_a_time::<Shuttle>);
    fails(models::mpsc_delivers::<Torn>);
    fails(models::mpsc_one_consumer_at_a_time::<Torn>);
}

#[test]
fn qsbr() {
    holds(|| models::qsbr_waits_for_every_read::<Shuttle>(false));
    holds(|| models::qsbr_waits_for_every_read::<Shuttle>(true));
    holds(models::an_rcu_cell_keeps_what_is_read::<Shuttle>);
}

#[test]
fn counts_and_places() {
    holds(models::the_last_holder_frees::<Shuttle>);
    holds(models::a_unique_holder_may_write::<Shuttle>);
    holds(models::a_place_has_one_holder::<Shuttle>);
    holds(models::a_number_that_comes_back_is_not_taken_for_the_old_one::<Shuttle>);
    holds(models::a_closed_thing_is_freed_once::<Shuttle>);
    fails(models::the_last_holder_frees::<Torn>);
    fails(models::a_closed_thing_is_freed_once::<Torn>);
}

#[test]
fn doorbell_and_owner() {
    holds(models::doorbell_wakes::<Shuttle>);
    holds(models::owner_moves::<Shuttle>);
}

#[test]
fn slab() {
    holds(models::slab_values_change_owners::<Shuttle>);
    fails(models::slab_values_change_owners::<Torn>);
    holds(models::slab_memory_is_freed_when_nobody_looks::<Shuttle>);
}
