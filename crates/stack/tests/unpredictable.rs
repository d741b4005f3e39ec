//! Statistical tests of values that an off-path attacker must not guess: initial sequence numbers, timestamp offsets,
//! ephemeral ports (RFC 6528, RFC 7323 section 5.4, RFC 6056).

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use observe::Time;
use stack::ports::{PortCounter, PortNumbers};
use stack::secrets::Secrets;
use sync::Real;
use wire::FourTuple;

const CELLS: usize = 256;
/// The 99.9 % point of chi-squared with 255 degrees of freedom.
const LIMIT: f64 = 330.5;

fn tuple(n: u32) -> FourTuple {
    FourTuple {
        local_addr: "10.0.0.1".parse().unwrap(),
        remote_addr: std::net::IpAddr::V4((0x0a01_0000 + (n >> 14)).into()),
        local_port: 80,
        remote_port: 1024 + (n & 0x3fff) as u16,
    }
}

/// Chi-squared of the top bytes against equal shares.
fn spread(values: impl Iterator<Item = u32>) -> f64 {
    let mut counts = [0u32; CELLS];
    let mut total = 0;
    for value in values {
        counts[(value >> 24) as usize] += 1;
        total += 1;
    }
    let share = f64::from(total) / CELLS as f64;
    counts.iter().map(|&count| (f64::from(count) - share).powi(2) / share).sum()
}

#[test]
fn sequence_numbers_of_neighbouring_tuples_have_nothing_in_common() {
    let secrets = Secrets::from_seed(11);
    let at = Time::from_secs(1000);
    let isn: Vec<u32> = (0..100_000).map(|n| secrets.isn().beginning(&tuple(n), at).0.0).collect();
    assert!(spread(isn.iter().copied()) < LIMIT);
    assert!(spread(isn.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]))) < LIMIT, "differences of neighbours");
    let offsets = (0..100_000).map(|n| secrets.isn().beginning(&tuple(n), at).1);
    assert!(spread(offsets) < LIMIT, "nor do their clocks");
}

#[test]
fn sequence_numbers_of_one_tuple_follow_the_clock_and_a_restart_changes_all() {
    let (before, deferred) = (Secrets::from_seed(11), Secrets::from_seed(12));
    for n in 0..1000 {
        let isn = |secrets: &Secrets, ms| {
            secrets.isn().beginning(&tuple(n), Time::from_secs(5) + Duration::from_millis(ms)).0.0
        };
        // 250 000 a second: an incarnation begins above the numbers that the last one can have used.
        assert_eq!(isn(&before, 100).wrapping_sub(isn(&before, 0)), 25_000);
        assert_ne!(isn(&before, 0), isn(&deferred, 0));
    }
}

#[test]
fn the_next_port_towards_one_destination_tells_nothing_of_another() {
    let secrets = Secrets::from_seed(11);
    let local = "10.0.0.1".parse().unwrap();
    for counter in [PortCounter::OfAll, PortCounter::OfThread] {
        let ports = PortNumbers::<Real>::default();
        let first = |n: u32| {
            let remote = SocketAddr::new(std::net::IpAddr::V4((0x0a02_0000 + n).into()), 443);
            u32::from(ports.candidates(&secrets, (local, remote), counter).next().expect("a port"))
        };
        let taken: Vec<u32> = (0..50_000).map(first).collect();
        // 16 384 ports in 256 cells of 64.
        assert!(spread(taken.iter().map(|port| (port - 49_152) << 18)) < LIMIT);
        // An attacker that sees one port and guesses the next higher one.
        let guessed = taken.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(guessed <= 12, "{guessed} of 50 000 guesses, where chance gives 3");
    }
}

#[test]
fn ports_towards_one_destination_come_back_late() {
    let secrets = Secrets::from_seed(11);
    let ends = ("10.0.0.1".parse().unwrap(), "10.0.0.2:443".parse().unwrap());
    for counter in [PortCounter::OfAll, PortCounter::OfThread] {
        let ports = PortNumbers::<Real>::default();
        let next = || ports.candidates(&secrets, ends, counter).next().expect("a port");
        let seen: HashSet<u16> = (0..16_384).map(|_| next()).collect();
        assert_eq!(seen.len(), 16_384, "none comes back before all have been used");
    }
}
