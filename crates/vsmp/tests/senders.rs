//! The workload of Willmann, Rixner and Cox on a small scale: it moves data under every architecture, over both families,
//! in order; and it shows what it is for.

use every_arch::every_arch;
use stack::Architecture;
use vsmp::Arena;
use vsmp::preset::{Kernel, Preset};
use vsmp::simulation::Simulation;
use vsmp::workload::senders::Measured;

#[global_allocator]
static ARENA: Arena = Arena::new();

fn simulation(arch: Option<Architecture>) -> Simulation {
    let preset = Preset::named("opteron-275").expect("it is built in");
    Simulation { preset, cpus: 4, arch, connections: 12, seeds: 1, ipv6: false, lock_kind: None }
}

fn check(measured: &Measured) {
    assert!(measured.megabits() > 500.0, "{measured:?}");
    // Six gigabit wires carry at most 5.7 Gb/s of payload.
    assert!(measured.megabits() < 5_700.0, "{measured:?}");
    assert_eq!((measured.cards.len(), measured.out_of_order), (6, 0), "{measured:?}");
    every_card_sends(measured);
}

/// No connection of a thread stands still while another one can always go on.
fn every_card_sends(measured: &Measured) {
    let sent: Vec<u64> = measured.cards.iter().map(|card| card.sent).collect();
    assert!(sent.iter().all(|sent| *sent > 100), "{:?}", measured.cards);
}

#[every_arch]
fn it_sends_under_every_architecture(arch: Architecture) {
    for ipv6 in [false, true] {
        let measured = Simulation { ipv6, ..simulation(Some(arch)) }.run(Kernel::OfThePaper, 1);
        check(&measured);
    }
    check(&simulation(Some(arch)).run(Kernel::Heddle, 1));
}

/// The papers' UP has one CPU and no lock, and its threads take turns: what they do for a kilobyte misses least.
#[test]
fn the_uniprocessor_misses_less_than_four_cpus() {
    let up = simulation(None).run(Kernel::OfThePaper, 1);
    check(&up);
    assert!(up.steady, "{up:?}");
    let four = simulation("msgp:1+coupled".parse().ok()).run(Kernel::OfThePaper, 1);
    check(&four);
    let misses = |run: &Measured| run.account.misses() as f64 / run.kilobytes();
    assert!(4.0 * misses(&up) < misses(&four), "{} and {}", misses(&up), misses(&four));
    let contended = |run: &Measured| run.locks.iter().map(|lock| lock.first_try_failed).sum::<u64>();
    assert_eq!(contended(&up), 0, "{:?}", up.locks);
}
