//! Cache misses of an operation, from callgrind's totals, and their bound.
//!
//! A piece's misses of the first level tell how much code and data an operation walks through; those of the last level
//! are nearly zero, because the pieces use one connection over and over.

use std::fmt;

use serde_json::{Value, json};

use super::Count;

/// The step fails if a piece's misses grow by more than this, and by more than [`SLACK`].
pub const BOUND: f64 = 1.25;
/// Misses of one operation: growth below this depends only on the placement of code and data.
const SLACK: f64 = 2.0;
/// The 32 KiB for instructions have 512 lines. An operation that misses more than a fifth of them walks through more code than
/// they hold, and where the linker puts that code decides: 229, 283 and 310 misses of a connect were seen for the same
/// instructions. So little is refused there.
const FULL: f64 = 100.0;
const BOUND_WHERE_FULL: f64 = 2.0;

/// The kinds of misses: names in the baseline, and titles on the page.
pub const FIELDS: [(&str, &str); 3] = [
    ("i1", "misses of 32 KiB for instructions"),
    ("d1", "misses of 48 KiB for data"),
    ("ll", "misses of 1 MiB behind"),
];

/// Misses of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Misses {
    /// In the order of [`FIELDS`], in tenths, as the baseline has them.
    tenths: [u64; 3],
}

impl Misses {
    /// From the text of a callgrind output file.
    ///
    /// # Errors
    /// The events of a simulated cache are not in it.
    pub fn read(profile: &str, operations: u64) -> Result<Misses, String> {
        let line = |key: &str| profile.lines().find_map(|line| line.strip_prefix(key));
        let (events, totals) = (line("events:").unwrap_or(""), line("totals:").unwrap_or(""));
        let of = |names: [&str; 3]| -> Result<u64, String> {
            // Callgrind omits zeros at the end.
            let places = events.split_whitespace().zip(totals.split_whitespace().chain(std::iter::repeat("0")));
            let found: Vec<&str> = places.filter(|(event, _)| names.contains(event)).map(|(_, total)| total).collect();
            let sum: Option<u64> = found.iter().map(|total| total.parse::<u64>().ok()).sum();
            let sum = sum.filter(|_| !found.is_empty()).ok_or_else(|| format!("no {} in {events:?}", names[0]))?;
            Ok((10 * sum + operations / 2) / operations.max(1))
        };
        let data = of(["D1mr", "D1mw", ""])?;
        Ok(Misses { tenths: [of(["I1mr", "", ""])?, data, of(["ILmr", "DLmr", "DLmw"])?] })
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, f64)> {
        FIELDS.iter().zip(self.tenths).map(|((field, _), tenths)| (*field, tenths as f64 / 10.0))
    }

    /// As in the baseline.
    pub fn to_json(self) -> Value {
        let mut value = json!({});
        self.each().for_each(|(field, misses)| value[field] = json!(misses));
        value
    }
}

impl fmt::Display for Misses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.each().try_for_each(|(field, misses)| write!(f, " {field} {misses:.1}"))
    }
}

/// The most misses of a piece that had `before`. A handler's request walks through all of its code, which is about as large
/// as what holds it, once for each segment: from 5 to 67 misses for instructions were seen for the same instructions, so
/// the baseline says little, and [`FULL`] is the bound.
fn most(piece: &str, field: &str, before: f64) -> f64 {
    if field == "i1" && piece.starts_with("handler") {
        return FULL;
    }
    before * if field == "i1" && before > FULL { BOUND_WHERE_FULL } else { BOUND }
}

/// The pieces whose misses have grown beyond the bound; none if the baseline is older than this rule.
///
/// # Errors
/// The baseline lacks one of them.
pub fn grown(counts: &[Count], old: &Value) -> Result<Vec<String>, String> {
    if old.is_null() {
        println!("the baseline was counted without caches: cargo xtask instructions --bless adds them");
        return Ok(Vec::new());
    }
    let mut grown = Vec::new();
    for Count { architecture, piece, misses, .. } in counts {
        println!("{architecture:12} {piece:8}{misses}");
        for (field, now) in misses.each() {
            let Some(before) = old[architecture][*piece][field].as_f64() else {
                return Err(format!(
                    "the baseline has no misses {field} of {piece} under {architecture}: cargo xtask instructions --bless"
                ));
            };
            if now > most(piece, field, before) && now > before + SLACK {
                grown.push(format!("misses {field} of {piece} under {architecture} from {before} to {now}"));
            }
        }
    }
    Ok(grown)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const PROFILE: &str =
        "version: 1\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n0 1\ntotals: 900 50 40 225 12 8 1 0 1\n";

    #[test]
    fn misses_are_of_one_operation_with_reads_and_writes_together() {
        let misses = Misses::read(PROFILE, 10).unwrap();
        assert_eq!(misses.to_json(), json!({ "i1": 22.5, "d1": 2.0, "ll": 0.2 }));
        assert_eq!(misses.to_string(), " i1 22.5 d1 2.0 ll 0.2");
    }

    #[test]
    fn a_profile_without_caches_is_an_error() {
        assert!(Misses::read("events: Ir\ntotals: 900\n", 10).unwrap_err().contains("D1mr"));
    }

    fn now(i1: u64) -> [Count; 1] {
        let misses = Misses { tenths: [i1, 0, 0] };
        [Count { architecture: "one".into(), piece: "rpc", operations: 1, each: 1, misses, origins: BTreeMap::new() }]
    }

    #[test]
    fn a_quarter_more_is_within_the_bound_and_so_is_a_line_or_two() {
        let old = |i1: f64| json!({ "one": { "rpc": { "i1": i1, "d1": 0.0, "ll": 0.0 } } });
        assert_eq!(grown(&now(250), &old(20.0)), Ok(vec![]));
        assert_eq!(grown(&now(270), &old(20.0)).map(|grown| grown.len()), Ok(1));
        assert_eq!(grown(&now(15), &old(0.5)), Ok(vec![]), "a line more");
        assert_eq!(grown(&now(3000), &old(160.0)), Ok(vec![]), "more code than the cache holds");
        assert_eq!(grown(&now(3300), &old(160.0)).map(|grown| grown.len()), Ok(1));
        assert!(grown(&now(1), &json!({})).is_err(), "no baseline is no pass");
    }

    #[test]
    fn a_handler_may_miss_until_the_cache_counts_as_full() {
        let old = json!({ "one": { "handler": { "i1": 5.0, "d1": 20.0, "ll": 0.0 } } });
        let now = |tenths| Count { piece: "handler", misses: Misses { tenths }, ..now(0).into_iter().next().unwrap() };
        assert_eq!(grown(&[now([670, 200, 0])], &old), Ok(vec![]));
        assert_eq!(grown(&[now([1010, 200, 0])], &old).map(|grown| grown.len()), Ok(1));
        assert_eq!(grown(&[now([50, 270, 0])], &old).map(|grown| grown.len()), Ok(1));
    }
}
