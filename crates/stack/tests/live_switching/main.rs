//! A stack in use is switched to another architecture: no byte is lost, altered or delivered twice, no connection is
//! reset, and no call fails (invariant G9). Every ordered pair of families, in virtual time, under load and faults, over
//! IPv4 and IPv6 ([`load`]). All pairs of variants: `cargo xtask switch-matrix`. On threads: `heddle/tests/switching.rs`.

mod load;

use stack::Architecture;

/// One architecture of each family: the one that the family's name selects.
fn families() -> Vec<Architecture> {
    let mut families: Vec<&str> = Architecture::all().map(|arch| arch.family()).collect();
    families.dedup();
    families.into_iter().map(Architecture::named).collect()
}

#[test]
fn a_stack_under_load_is_switched_between_all_families() {
    for from in families() {
        for to in families() {
            let carried = load::carry(from, to);
            let load::Shown { switches, longest } = carried.unwrap_or_else(|wrong| panic!("{from} to {to}: {wrong}"));
            println!("{from} to {to}: {switches} switches, the longest pause {longest:?}");
        }
    }
}
