//! Tuples chosen to share one bucket (Crosby and Wallach 2003): by an attacker that knows the hash of another stack,
//! and by one that has found a colliding pair in this one.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};

use stack::secrets::Secrets;
use stack::table::index::Index;
use wire::{FlowMark, FourTuple};

use super::peers::Draw;

const MANY: usize = 100_000;

fn tuple(host: u32, port: u16) -> FourTuple {
    let remote_addr = IpAddr::V4(Ipv4Addr::from_bits(host));
    FourTuple { local_addr: "10.0.0.1".parse().expect("an address"), remote_addr, local_port: 80, remote_port: port }
}

/// Random tuples.
fn random() -> Vec<FourTuple> {
    let mut draw = Draw(3);
    (0..MANY).map(|_| draw.next()).map(|bits| tuple(bits as u32, (bits >> 32) as u16)).collect()
}

/// Buckets of a table that holds `count` entries, as many as hashbrown makes: a power of two, at most seven eighths
/// full.
fn buckets(count: usize) -> usize {
    (count * 8 / 7).next_power_of_two()
}

/// Statistics of a table of `tuples` under `secrets`: the average number of tuples compared in a lookup, and the number
/// in the fullest group of sixteen places that lookups read at once.
fn weigh(secrets: &Secrets, tuples: &[FourTuple]) -> (f64, usize) {
    let mut index = Index::new(secrets);
    // The worst case for the cache in front of the index: all in one place.
    const MARK: FlowMark = FlowMark::new(0, (0, 0));
    let looked_at = Cell::new(0u64);
    let is = |slot: u32, tuple: &FourTuple| {
        looked_at.set(looked_at.get() + 1);
        tuples.get(slot as usize) == Some(tuple)
    };
    let mut hashes = Vec::new();
    for (slot, tuple) in (0..).zip(tuples) {
        let absent = index.find(tuple, MARK, |slot| is(slot, tuple)).expect_err("no tuple comes twice");
        hashes.push(absent);
        index.insert(slot, MARK, absent, |other| hashes[other as usize]);
    }
    looked_at.set(0);
    for (slot, tuple) in (0..).zip(tuples) {
        assert_eq!(index.find(tuple, MARK, |slot| is(slot, tuple)), Ok(slot));
    }
    let looked_at = looked_at.get() as f64 / tuples.len() as f64;
    let mut groups = vec![0usize; buckets(tuples.len()) / 16];
    let count = groups.len();
    for tuple in tuples {
        groups[(secrets.table_hash(tuple) >> 4) as usize % count] += 1;
    }
    (looked_at, groups.into_iter().max().expect("groups"))
}

fn no_worse_than_chance(secrets: &Secrets, tuples: &[FourTuple], whose: &str) {
    let ((control, full), (cost, fullest)) = (weigh(secrets, &random()), weigh(secrets, tuples));
    assert!(cost <= 1.5 * control, "{whose}: {cost:.2} tuples are looked at, {control:.2} for those of chance");
    assert!(fullest <= 2 * full, "{whose}: {fullest} in one group, {full} by chance");
}

/// A table without a key, as in old stacks: sum or exclusive or of address and ports. And one with the key of another
/// stack.
#[test]
fn tuples_that_collide_elsewhere_are_like_any_others() {
    let here = Secrets::from_seed(5);
    let folded = |host: u32| (host >> 16) as u16 ^ host as u16;
    let xor: Vec<_> = (0..MANY as u32).map(|n| 0x0a00_0000 + n).map(|host| tuple(host, folded(host))).collect();
    no_worse_than_chance(&here, &xor, "exclusive or");
    let sum: Vec<_> =
        (0..MANY as u32).map(|n| 0x0a00_0000 + n).map(|host| tuple(host, 0u16.wrapping_sub(host as u16))).collect();
    no_worse_than_chance(&here, &sum, "sum");
    let elsewhere = Secrets::from_seed(6);
    let hosts = (0..).map(|n: u32| tuple(0x0b00_0000 + (n >> 14), 1024 + (n & 0x3fff) as u16));
    let chosen: Vec<_> = hosts.filter(|tuple| elsewhere.table_hash(tuple) & 0xf0 == 0).take(MANY).collect();
    assert!(weigh(&elsewhere, &chosen).1 > 150, "they do collide there");
    no_worse_than_chance(&here, &chosen, "another stack's key");
}

/// Timing that reveals two tuples in one bucket reveals only those two: tuples at the same distance from each other do
/// not collide, as they would under a linear hash.
#[test]
fn a_collision_that_was_found_leads_to_no_other() {
    let secrets = Secrets::from_seed(5);
    let mask = buckets(MANY) as u64 - 1;
    let place = |host: u32| secrets.table_hash(&tuple(host, 2000)) & mask;
    let base = 0x0a00_0000;
    let mut followed = 0;
    let mut pairs = 0;
    for step in (1..4_000_000).filter(|step| place(base) == place(base + step)).take(8) {
        pairs += 1;
        followed += (2..12).filter(|n| place(base + n * step) == place(base)).count();
    }
    assert!(pairs >= 4, "{pairs} pairs were found");
    assert_eq!(followed, 0, "of {} tuples at the same distance", pairs * 10);
}
