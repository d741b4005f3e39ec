//! How many tries of a connection may fail in a row by chance: distinguishes a stuck connection from an unlucky one.
//!
//! A try is a segment and its answer; it fails if either is lost. Correlated losses are a two-state chain for each
//! direction (Gilbert 1960, Elliott 1963). Each further failed try multiplies the probability of a run by the largest
//! eigenvalue of both chains together, restricted to failures. A connection that tries every two minutes must first
//! confirm its neighbours' addresses, which takes one answer of three, at either end. What may never happen: a bound
//! too low for a drawn cell, which would cause false alarms.

use heddle::device::fault::{FaultRule, Faults, Ppm};

use crate::cell::Cell;

/// The maximum probability that an unlucky cell is reported as stuck.
const FALSE_ALARM: f64 = 1e-9;
/// The minimum number of tries, for frames that are delayed and not lost.
const LEAST_TRIES: u32 = 4;
/// After this many tries a connection of the matrix gives up (`tcp_retries2` and similar), which is an error of its
/// own.
pub const MOST_TRIES: u8 = 250;
/// Solicitations before a neighbour counts as unreachable (RFC 4861 section 10, and ARP does the same).
const SOLICITATIONS: i32 = 3;
/// Enough for the eigenvalue of four states.
const ROUNDS: usize = 500;

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Chance of losing a frame in the good state, and in the bad one.
    lost: [f64; 2],
    /// Chance of leaving the good state, and the bad one, before a frame.
    turns: [f64; 2],
}

fn share(chance: Ppm) -> f64 {
    f64::from(chance.0) / 1e6
}

impl Way {
    fn of(faults: &Faults) -> Way {
        let (mut passes, mut turns, mut in_burst) = (1.0, [0.0, 1.0], 0.0);
        for rule in &faults.rules {
            match rule {
                FaultRule::Loss(chance)
                | FaultRule::Truncate(chance)
                | FaultRule::Corrupt { chance, .. }
                | FaultRule::Scramble { chance, .. } => passes *= 1.0 - share(*chance),
                FaultRule::Flap(cycle) => passes *= cycle.good.as_secs_f64() / (cycle.good + cycle.bad).as_secs_f64(),
                FaultRule::Burst(burst) => {
                    (turns, in_burst) = ([share(burst.enter), share(burst.leave)], share(burst.loss))
                }
                _ => {}
            }
        }
        Way { lost: [1.0 - passes, 1.0 - passes * (1.0 - in_burst)], turns }
    }

    fn step(&self, from: usize, to: usize) -> f64 {
        if from == to { 1.0 - self.turns[from] } else { self.turns[from] }
    }
}

/// The factor by which each further failed try reduces the probability of a run.
fn failing([there, back]: [Way; 2]) -> f64 {
    let states = || (0..4).map(|state| (state / 2, state % 2));
    let mut weight = [0.25; 4];
    let mut factor = 0.0;
    for _ in 0..ROUNDS {
        let mut next = [0.0; 4];
        for (before, (i, j)) in weight.iter().zip(states()) {
            for (after, (k, l)) in next.iter_mut().zip(states()) {
                let fails = 1.0 - (1.0 - there.lost[k]) * (1.0 - back.lost[l]);
                *after += before * there.step(i, k) * back.step(j, l) * fails;
            }
        }
        factor = next.iter().sum();
        if factor == 0.0 {
            break;
        }
        weight = next.map(|part| part / factor);
    }
    factor
}

/// How many tries in a row may fail in `cell`: such a run, anywhere in the cell, is less likely than one false alarm in
/// 10^9 cells.
pub fn tries_in_a_row(cell: &Cell) -> u32 {
    let plan = cell.fault_plan();
    let failing = failing([Way::of(&plan.inbound), Way::of(&plan.outbound)]);
    let unresolved = failing.powi(SOLICITATIONS);
    let failing = 1.0 - (1.0 - failing) * (1.0 - unresolved).powi(2);
    if failing <= 0.0 {
        return LEAST_TRIES;
    }
    let segment = cell.mtu.saturating_sub(60).max(8).min(cell.window.map_or(usize::MAX, |window| window as usize));
    let beginnings = 2 * cell.queues * (cell.bytes / segment + 16);
    let tries = (FALSE_ALARM / beginnings as f64).ln() / failing.ln();
    (tries.ceil() as u32).clamp(LEAST_TRIES, MOST_TRIES.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(faults: &str) -> f64 {
        let plan = Cell { faults: faults.to_owned(), ..Cell::plain(1) }.fault_plan();
        failing([Way::of(&plan.inbound), Way::of(&plan.outbound)])
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn a_run_of_failures_is_as_likely_as_its_parts() {
        assert_eq!(of("delay 5ms dup 10% reorder 5ms"), 0.0);
        assert!(near(of("in loss 30%"), 0.3) && near(of("loss 30%"), 1.0 - 0.7 * 0.7));
        assert!(near(of("in loss 10% corrupt 10% out truncate 20%"), 1.0 - 0.9 * 0.9 * 0.8));
        // Without other losses a run lasts as long as its burst.
        assert!(near(of("out burst 0.5% 40%"), 0.6));
        // One direction is enough for a try to fail, but a burst in one does not make the other likelier.
        assert!(of("burst 0.5% 40%") < 0.61 && of("burst 0.5% 40%") > 0.6);
        assert!(near(of("flap 3s 1s"), 1.0 - 0.75 * 0.75));
    }

    #[test]
    fn a_link_without_losses_is_granted_four_tries_and_a_bad_one_more() {
        let tries = |faults: &str| tries_in_a_row(&Cell { faults: faults.to_owned(), ..Cell::plain(1) });
        assert_eq!(tries("reorder 5ms dup 10%"), 4);
        let [little, some, much] = ["loss 0.1%", "loss 5%", "loss 30%"].map(tries);
        assert!(4 <= little && little < some && some < much && much < 100, "{little} {some} {much}");
    }

    /// If the bound were clipped, the probability of a false alarm would be higher than stated.
    #[test]
    fn cells_that_are_drawn_need_fewer_tries_than_a_connection_makes() {
        for seed in 0..20_000 {
            let cell = Cell::draw(seed);
            let tries = tries_in_a_row(&cell);
            assert!(tries < MOST_TRIES.into(), "{cell}: {tries} tries");
        }
    }
}
