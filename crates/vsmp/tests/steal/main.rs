//! The purpose of `steal` (ZygOS): an idle core runs handlers of a busy one, so that the slowest answers come much
//! sooner than under `shared-nothing` if connections or service times are uneven. If they are even and short,
//! `shared-nothing` serves as many, without a lock. Requests and answers on four cores, in virtual time.
//!
//! `cargo test -p heddle-vsmp --test steal -- --nocapture` prints the figures that `docs/architectures/steal.md` quotes.

mod requests;

use requests::{CORES, Measured, Run, When};
use testbed::frames::Ends;
use vsmp::Arena;

#[global_allocator]
static ARENA: Arena = Arena::new();

/// Connections by their home cores.
const SKEWED: [usize; CORES] = [9, 1, 1, 1];
const EVEN: [usize; CORES] = [3, 3, 3, 3];
/// Virtual nanoseconds that a request takes, each with the same probability.
const SHORT: [u64; 1] = [1_000];
const MEDIUM: [u64; 1] = [20_000];
/// ZygOS, 3.3, bimodal-1: half the mean, and 5.5 times the mean for one in ten.
const DISPERSED: [u64; 10] = [10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 110_000];

/// The same requests to `steal` and to `shared-nothing`, from a peer with each of two seeds and families.
fn compare(name: &str, homes: [usize; CORES], service: &'static [u64], when: When, check: fn(&Measured, &Measured)) {
    for (seed, ends) in (1..).zip(Ends::BOTH_FAMILIES) {
        let [steal, alone] = ["steal", "shared-nothing"].map(|arch| {
            let measured = Run { arch, homes, service, when, ends, seed }.measure();
            let [median, slow] = [0.5, 0.99].map(|part| measured.quantile(part) as f64 / 1000.0);
            let (answers, fairness) = (measured.total(), measured.fairness());
            println!(
                "{name}, seed {seed}, {arch}: {answers} answers, fairness {fairness:.2}, {median:.1} us, {slow:.1} us"
            );
            measured
        });
        check(&steal, &alone);
    }
}

/// Each connection asks again as soon as it has its answer, so that every core has work. Those of the busy core are
/// served nearly as well as others.
#[test]
fn connections_are_served_alike_where_one_core_has_most() {
    compare("uneven connections, closed loop", SKEWED, &MEDIUM, When::Answered, |steal, alone| {
        assert!(steal.fairness() > alone.fairness());
        assert!(4 * steal.quantile(0.99) < 3 * alone.quantile(0.99));
    });
}

/// Requests come at random times, most of them to one core, which could just serve them alone.
#[test]
fn the_slowest_answers_come_sooner_where_one_core_has_most_connections() {
    compare("uneven connections", SKEWED, &MEDIUM, When::Random(240_000), |steal, alone| {
        assert!(2 * steal.quantile(0.99) < alone.quantile(0.99));
    });
}

/// ZygOS' dispersed service times: a long request makes the others of its core wait, unless other cores take them.
#[test]
fn the_slowest_answers_come_sooner_where_few_requests_are_long() {
    compare("uneven service times", EVEN, &DISPERSED, When::Random(100_000), |steal, alone| {
        assert!(steal.quantile(0.99) < alone.quantile(0.99));
    });
}

/// The cost of queues and locks: if the load is even, `shared-nothing` serves at least as many requests, at least as
/// fast.
#[test]
fn an_even_load_of_short_requests_is_served_as_well_without_stealing() {
    compare("even and short, closed loop", EVEN, &SHORT, When::Answered, |steal, alone| {
        assert!(alone.total() >= steal.total());
        assert!(alone.quantile(0.99) <= steal.quantile(0.99));
    });
}
