//! The tests of a claim, and their verdicts from samples.
//!
//! A test is a condition on an expression of means: a difference of two subjects, a ratio, a value, a gain. The
//! expression is computed for each seed (on the host: for each round), from samples of that seed only, and has a 95 %
//! interval over the seeds (Student's t, [`lab::stats`]). The condition *holds* if the whole interval is in the
//! region that the claim allows, *does not hold* if no part of it is, and else *inconclusive*. "A > B" is the
//! region above zero of the difference. One seed has no interval, so it decides nothing.
//!
//! Claims of a number ("4034 Mb/s") allow a region that is ours: 15 % to both sides if the data file states that. They
//! belong to the paper's machine and do not apply to this host.

use std::collections::BTreeMap;

use lab::stats::Estimate;
use lab::units::significant;
use serde::{Deserialize, Serialize};

use crate::point::Place;

/// A test as the data file has it. It has exactly one of `more`, `rising`, `falling`, `ratio`, `value` and `gain`. A
/// subject is followed by its load (`UP @ 6`), or `at` lists loads at each of which the test has to hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Test {
    /// This is more than each of `than`.
    more: Option<String>,
    than: Vec<String>,
    /// Each is more than the one before.
    rising: Vec<String>,
    /// Each is less than the one before.
    falling: Vec<String>,
    /// The first by the second.
    ratio: Vec<String>,
    value: Option<String>,
    /// The second minus the first; with `beyond`, this must exceed the same difference of those two.
    gain: Vec<String>,
    beyond: Vec<String>,
    at: Vec<u32>,
    /// Loads over which ratios are averaged.
    mean: Vec<u32>,
    near: Option<f64>,
    /// Percent of `near`, to both sides.
    within: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
}

/// A subject at a load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    /// By its name in the paper.
    pub subject: String,
    /// Connections, or processors where the figure's axis has those.
    pub connections: u32,
}

/// The expression that is computed for each seed.
#[derive(Clone, Debug)]
enum Expression {
    /// A sum with factors.
    Sum(Vec<(f64, Term)>),
    /// The mean of ratios.
    Ratios(Vec<[Term; 2]>),
}

/// An expression, and the region of its value.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The condition in words, such as "ConnP-L(128) above UP at 192".
    pub words: String,
    expression: Expression,
    /// Both ends excluded.
    region: (f64, f64),
    /// Whether it is about a number of the paper's machine.
    absolute: bool,
}

/// The verdict on a claim or on one of its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not hold.
    DoesNotHold,
    /// The interval allows both.
    CannotBeTold,
    /// Samples are missing.
    NotMeasured,
    /// It is about a number of another machine.
    NotAsked,
}

impl Verdict {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::CannotBeTold => "inconclusive",
            Verdict::NotMeasured => "not measured",
            Verdict::NotAsked => "not applicable",
        }
    }

    /// The verdict on a claim from those on its conditions: if one does not hold, the claim does not; it holds if all
    /// applicable ones hold.
    pub fn of_all(verdicts: &[Verdict]) -> Verdict {
        let any = |wanted: Verdict| verdicts.contains(&wanted);
        let asked = verdicts.iter().any(|verdict| *verdict != Verdict::NotAsked);
        if verdicts.is_empty() {
            return Verdict::NotMeasured;
        }
        if !asked {
            return Verdict::NotAsked;
        }
        let decisive = [Verdict::DoesNotHold, Verdict::NotMeasured, Verdict::CannotBeTold];
        decisive.into_iter().find(|verdict| any(*verdict)).unwrap_or(Verdict::Holds)
    }
}

/// A condition with the numbers behind its verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The condition in words.
    pub condition: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The numbers, in words.
    pub numbers: String,
    /// The expression; `None` if nothing was measured, or if it is not applicable.
    pub estimate: Option<Estimate>,
    /// Seeds, or rounds, that had every sample.
    pub seeds: usize,
}

/// The samples of a figure: by seed, the value of a subject at a load.
pub trait Samples {
    /// Values by seed.
    fn values(&self, term: &Term) -> BTreeMap<u64, f64>;

    /// Why there can be none; `None` if they were not measured yet.
    fn left_out(&self, _: &Term) -> Option<String> {
        None
    }
}

impl Test {
    /// The conditions of the test.
    ///
    /// # Errors
    /// The test has no expression, or several.
    pub fn conditions(&self) -> Result<Vec<Condition>, String> {
        let kinds = [
            self.more.is_some(),
            !self.rising.is_empty(),
            !self.falling.is_empty(),
            !self.ratio.is_empty(),
            self.value.is_some(),
            !self.gain.is_empty(),
        ];
        if kinds.iter().filter(|there| **there).count() != 1 {
            return Err("a test has one of more, rising, falling, ratio, value and gain".to_owned());
        }
        if self.ratio.len() == 2 && !self.mean.is_empty() {
            return Ok(vec![self.mean_of_ratios()?]);
        }
        let loads: Vec<Option<u32>> =
            if self.at.is_empty() { vec![None] } else { self.at.iter().map(|at| Some(*at)).collect() };
        let mut conditions = Vec::new();
        for at in loads {
            self.conditions_at(at, &mut conditions)?;
        }
        Ok(conditions)
    }

    fn conditions_at(&self, at: Option<u32>, conditions: &mut Vec<Condition>) -> Result<(), String> {
        if let Some(more) = &self.more {
            for than in &self.than {
                conditions.push(Condition::above(term(more, at)?, term(than, at)?));
            }
        }
        for pair in self.falling.windows(2) {
            conditions.push(Condition::above(term(&pair[0], at)?, term(&pair[1], at)?));
        }
        for pair in self.rising.windows(2) {
            conditions.push(Condition::above(term(&pair[1], at)?, term(&pair[0], at)?));
        }
        if let [first, second] = &self.ratio[..] {
            let pair = [term(first, at)?, term(second, at)?];
            let words = format!("{} by {}", name(&pair[0]), name(&pair[1]));
            conditions.push(self.bounded(words, Expression::Ratios(vec![pair]), false)?);
        }
        if let Some(value) = &self.value {
            let value = term(value, at)?;
            conditions.push(self.bounded(name(&value), Expression::Sum(vec![(1.0, value)]), true)?);
        }
        if let ([from, to], [last, most]) = (&self.gain[..], &self.beyond[..]) {
            let [from, to, last, most] = [term(from, at)?, term(to, at)?, term(last, at)?, term(most, at)?];
            let words = format!(
                "the step from {} to {} above that from {} to {}",
                from.subject,
                name(&to),
                last.subject,
                name(&most)
            );
            let expression = Expression::Sum(vec![(1.0, to), (-1.0, from), (-1.0, most), (1.0, last)]);
            conditions.push(Condition { words, expression, region: (0.0, f64::INFINITY), absolute: false });
        }
        if conditions.is_empty() { Err("the test has no second subject".to_owned()) } else { Ok(()) }
    }

    fn mean_of_ratios(&self) -> Result<Condition, String> {
        let pair = |at: &u32| Ok([term(&self.ratio[0], Some(*at))?, term(&self.ratio[1], Some(*at))?]);
        let pairs = self.mean.iter().map(pair).collect::<Result<Vec<_>, String>>()?;
        let loads: Vec<String> = self.mean.iter().map(u32::to_string).collect();
        let words = format!("{} by {}, mean at {}", self.ratio[0], self.ratio[1], loads.join(", "));
        self.bounded(words, Expression::Ratios(pairs), false)
    }

    /// With the region of `near` and `within`, or of `least` and `most`.
    fn bounded(&self, words: String, expression: Expression, absolute: bool) -> Result<Condition, String> {
        let (region, bound) = match (self.near, self.within, self.least, self.most) {
            (Some(near), Some(within), None, None) => {
                let by = near.abs() * within / 100.0;
                ((near - by, near + by), format!("within {within} % of {near}"))
            }
            (None, None, Some(least), None) => ((least, f64::INFINITY), format!("above {least}")),
            (None, None, None, Some(most)) => ((f64::NEG_INFINITY, most), format!("below {most}")),
            (None, None, Some(least), Some(most)) => ((least, most), format!("between {least} and {most}")),
            _ => return Err("a value or ratio has near and within, or least, or most".to_owned()),
        };
        Ok(Condition { words: format!("{words} {bound}"), expression, region, absolute })
    }
}

/// `UP @ 6`, or `UP` at the load of the test.
fn term(text: &str, at: Option<u32>) -> Result<Term, String> {
    let (subject, own) = match text.split_once('@') {
        Some((subject, load)) => {
            let load = load.trim().parse().map_err(|_| format!("`{text}` has no number of connections"))?;
            (subject.trim(), Some(load))
        }
        None => (text, None),
    };
    match (own, at) {
        (Some(connections), None) | (None, Some(connections)) => Ok(Term { subject: subject.to_owned(), connections }),
        (None, None) => Err(format!("`{text}` has no load after `at`")),
        (Some(_), Some(_)) => Err(format!("`{text}` has two loads")),
    }
}

fn name(term: &Term) -> String {
    format!("{} at {}", term.subject, term.connections)
}

impl Condition {
    fn above(more: Term, than: Term) -> Condition {
        let words = if more.connections == than.connections {
            format!("{} above {} at {}", more.subject, than.subject, more.connections)
        } else {
            format!("{} above {}", name(&more), name(&than))
        };
        let expression = Expression::Sum(vec![(1.0, more), (-1.0, than)]);
        Condition { words, expression, region: (0.0, f64::INFINITY), absolute: false }
    }

    /// The samples that it needs.
    pub fn terms(&self) -> Vec<&Term> {
        match &self.expression {
            Expression::Sum(terms) => terms.iter().map(|(_, term)| term).collect(),
            Expression::Ratios(pairs) => pairs.iter().flatten().collect(),
        }
    }

    /// Its verdict from samples.
    pub fn find(&self, samples: &dyn Samples, on: Place) -> Finding {
        let finding = |verdict, numbers: String, estimate, seeds| Finding {
            condition: self.words.clone(),
            verdict,
            numbers,
            estimate,
            seeds,
        };
        if self.absolute && on == Place::Host {
            return finding(Verdict::NotAsked, "a number of the paper's machine".to_owned(), None, 0);
        }
        let values: BTreeMap<&Term, BTreeMap<u64, f64>> =
            self.terms().into_iter().map(|term| (term, samples.values(term))).collect();
        if let Some((term, _)) = values.iter().find(|(_, values)| values.is_empty()) {
            let reason = samples.left_out(term).map_or_else(String::new, |reason| format!(": {reason}"));
            return finding(Verdict::NotMeasured, format!("no sample of {}{reason}", name(term)), None, 0);
        }
        // Only samples of one seed are compared: its subjects had the same flows and delays, or ran in the same seconds
        // of a round.
        let seeds = values.values().next().map(|first| first.keys().copied().collect::<Vec<_>>()).unwrap_or_default();
        let results: Vec<f64> = seeds.iter().filter_map(|seed| self.of_seed(&values, *seed)).collect();
        let Some(estimate) = Estimate::of(&results) else {
            return finding(Verdict::NotMeasured, "no seed has every sample".to_owned(), None, 0);
        };
        let verdict = judge(estimate, self.region);
        finding(verdict, self.numbers(&values, estimate, results.len()), Some(estimate), results.len())
    }

    fn of_seed(&self, values: &BTreeMap<&Term, BTreeMap<u64, f64>>, seed: u64) -> Option<f64> {
        let of = |term: &Term| values.get(term)?.get(&seed).copied();
        match &self.expression {
            Expression::Sum(terms) => terms.iter().map(|(factor, term)| Some(factor * of(term)?)).sum(),
            Expression::Ratios(pairs) => {
                let ratios: Option<Vec<f64>> =
                    pairs.iter().map(|[above, below]| Some(of(above)? / of(below)?)).collect();
                lab::stats::mean(&ratios?).filter(|mean| mean.is_finite())
            }
        }
    }

    /// The mean with its interval; for a difference also the two means.
    fn numbers(&self, values: &BTreeMap<&Term, BTreeMap<u64, f64>>, estimate: Estimate, seeds: usize) -> String {
        let half = estimate.ci95.map_or_else(|| "no interval".to_owned(), |half| format!("± {}", significant(half)));
        let of = |term: &Term| {
            let samples: Vec<f64> = values.get(term).into_iter().flat_map(BTreeMap::values).copied().collect();
            significant(lab::stats::mean(&samples).unwrap_or(f64::NAN))
        };
        let parts = match &self.expression {
            Expression::Sum(terms) if terms.len() == 2 => format!(" ({} and {})", of(&terms[0].1), of(&terms[1].1)),
            _ => String::new(),
        };
        let sign = if matches!(&self.expression, Expression::Sum(terms) if terms.len() > 1) && estimate.mean > 0.0 {
            "+"
        } else {
            ""
        };
        format!("{sign}{} {half}{parts}, n = {seeds}", significant(estimate.mean))
    }
}

/// Compares the interval with the region.
fn judge(estimate: Estimate, (least, most): (f64, f64)) -> Verdict {
    let half = estimate.half_width();
    let (low, high) = (estimate.mean - half, estimate.mean + half);
    if low > least && high < most && half.is_finite() {
        Verdict::Holds
    } else if high < least || low > most {
        Verdict::DoesNotHold
    } else {
        Verdict::CannotBeTold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made samples, by subject and load; seeds from 1 on.
    struct Made(Vec<(&'static str, u32, Vec<f64>)>);

    impl Samples for Made {
        fn values(&self, term: &Term) -> BTreeMap<u64, f64> {
            let found = self.0.iter().find(|(name, at, _)| *name == term.subject && *at == term.connections);
            found.map(|(_, _, values)| (1..).zip(values.iter().copied()).collect()).unwrap_or_default()
        }
    }

    fn conditions(test: &str) -> Vec<Condition> {
        let test: Test = toml::from_str(test).unwrap();
        test.conditions().unwrap()
    }

    fn verdicts(test: &str, samples: &[(&'static str, u32, Vec<f64>)]) -> Vec<Verdict> {
        let samples = Made(samples.to_vec());
        conditions(test).iter().map(|condition| condition.find(&samples, Place::Vsmp).verdict).collect()
    }

    const MORE: &str = "more = \"a\"\nthan = [\"b\"]\nat = [6]";

    #[test]
    fn an_order_holds_if_the_interval_of_the_paired_difference_excludes_zero() {
        // Differences 1.0, 1.1, 0.9: the means overlap widely, the pairs do not.
        let paired = [("a", 6, vec![11.0, 21.1, 30.9]), ("b", 6, vec![10.0, 20.0, 30.0])];
        assert_eq!(verdicts(MORE, &paired), [Verdict::Holds]);
        let turned = [("b", 6, vec![11.0, 21.1, 30.9]), ("a", 6, vec![10.0, 20.0, 30.0])];
        assert_eq!(verdicts(MORE, &turned), [Verdict::DoesNotHold]);
        // Mean difference 1, from -1 to 3.
        let noisy = [("a", 6, vec![9.0, 21.0, 33.0]), ("b", 6, vec![10.0, 20.0, 30.0])];
        assert_eq!(verdicts(MORE, &noisy), [Verdict::CannotBeTold]);
        let equal = [("a", 6, vec![10.0, 10.0]), ("b", 6, vec![10.0, 10.0])];
        assert_eq!(verdicts(MORE, &equal), [Verdict::CannotBeTold], "equal is neither");
    }

    #[test]
    fn one_seed_tells_nothing_and_none_was_not_measured() {
        assert_eq!(verdicts(MORE, &[("a", 6, vec![100.0]), ("b", 6, vec![1.0])]), [Verdict::CannotBeTold]);
        assert_eq!(verdicts(MORE, &[("a", 6, vec![100.0, 101.0])]), [Verdict::NotMeasured]);
        assert_eq!(verdicts(MORE, &[("a", 7, vec![1.0, 2.0]), ("b", 6, vec![1.0, 2.0])]), [Verdict::NotMeasured]);
    }

    /// Seeds 1 to 3 of one, seed 1 of the other: one pair.
    #[test]
    fn only_samples_of_the_same_seed_are_compared() {
        let samples = Made(vec![("a", 6, vec![11.0, 21.0, 31.0]), ("b", 6, vec![10.0])]);
        let finding = conditions(MORE)[0].find(&samples, Place::Vsmp);
        assert_eq!((finding.seeds, finding.verdict), (1, Verdict::CannotBeTold));
    }

    #[test]
    fn a_number_is_near_if_its_whole_interval_is() {
        let near = "value = \"a @ 6\"\nnear = 100.0\nwithin = 10.0";
        let of = |values: &[f64]| verdicts(near, &[("a", 6, values.to_vec())]);
        assert_eq!(of(&[100.0, 101.0, 99.0]), [Verdict::Holds]);
        assert_eq!(of(&[120.0, 121.0, 122.0]), [Verdict::DoesNotHold]);
        assert_eq!(of(&[110.0, 111.0, 109.0]), [Verdict::CannotBeTold], "across the border");
        assert_eq!(of(&[60.0, 140.0]), [Verdict::CannotBeTold], "anywhere");
        let samples = Made(vec![("a", 6, vec![100.0, 101.0])]);
        assert_eq!(conditions(near)[0].find(&samples, Place::Host).verdict, Verdict::NotAsked, "another machine");
    }

    #[test]
    fn ratios_gains_and_chains() {
        let two = |a: f64| vec![a, a * 1.001, a * 0.999];
        let samples = [("a", 6, two(20.0)), ("b", 6, two(10.0)), ("c", 6, two(6.0)), ("d", 6, two(5.0))];
        assert_eq!(verdicts("ratio = [\"a @ 6\", \"b @ 6\"]\nnear = 2.0\nwithin = 5.0", &samples), [Verdict::Holds]);
        assert_eq!(
            verdicts("ratio = [\"a @ 6\", \"b @ 6\"]\nnear = 2.5\nwithin = 5.0", &samples),
            [Verdict::DoesNotHold]
        );
        let chain = "falling = [\"a\", \"b\", \"c\", \"d\"]\nat = [6]";
        assert_eq!(verdicts(chain, &samples), [Verdict::Holds; 3]);
        let rising = "rising = [\"d\", \"c\", \"a\"]\nat = [6]";
        assert_eq!(verdicts(rising, &samples), [Verdict::Holds; 2]);
        let gain = "gain = [\"b\", \"a\"]\nbeyond = [\"d\", \"c\"]\nat = [6]";
        assert_eq!(verdicts(gain, &samples), [Verdict::Holds], "10 is above 1");
        let less = "gain = [\"d\", \"c\"]\nbeyond = [\"b\", \"a\"]\nat = [6]";
        assert_eq!(verdicts(less, &samples), [Verdict::DoesNotHold]);
        let mean = "ratio = [\"a\", \"b\"]\nmean = [6, 7]\nnear = 3.0\nwithin = 5.0";
        let loads = [("a", 6, two(20.0)), ("b", 6, two(10.0)), ("a", 7, two(40.0)), ("b", 7, two(10.0))];
        assert_eq!(verdicts(mean, &loads), [Verdict::Holds], "the mean of 2 and 4");
    }

    #[test]
    fn a_claim_needs_all_of_its_conditions() {
        use Verdict::{CannotBeTold, DoesNotHold, Holds, NotAsked, NotMeasured};
        assert_eq!(Verdict::of_all(&[Holds, Holds]), Holds);
        assert_eq!(Verdict::of_all(&[Holds, CannotBeTold]), CannotBeTold);
        assert_eq!(Verdict::of_all(&[Holds, CannotBeTold, DoesNotHold, NotMeasured]), DoesNotHold);
        assert_eq!(Verdict::of_all(&[Holds, NotMeasured, CannotBeTold]), NotMeasured);
        assert_eq!(Verdict::of_all(&[Holds, NotAsked]), Holds);
        assert_eq!(Verdict::of_all(&[NotAsked]), NotAsked);
        assert_eq!(Verdict::of_all(&[]), NotMeasured);
    }

    #[test]
    fn numbers_stand_behind_a_verdict() {
        let samples = Made(vec![("a", 6, vec![11.0, 21.0]), ("b", 6, vec![10.0, 20.0])]);
        let finding = conditions(MORE)[0].find(&samples, Place::Vsmp);
        assert_eq!(
            (finding.condition.as_str(), finding.numbers.as_str()),
            ("a above b at 6", "+1.00 ± 0 (16.0 and 15.0), n = 2")
        );
    }

    #[test]
    fn a_test_says_one_thing() {
        let refused = |text: &str| toml::from_str::<Test>(text).unwrap().conditions().unwrap_err();
        assert!(refused("").contains("one of more"));
        assert!(refused("more = \"a @ 6\"\nthan = [\"b @ 6\"]\nvalue = \"a @ 6\"").contains("one of more"));
        assert_eq!(refused("more = \"a\"\nthan = [\"b @ 6\"]"), "`a` has no load after `at`");
        assert_eq!(refused("more = \"a @ 6\"\nthan = [\"b @ 6\"]\nat = [6]"), "`a @ 6` has two loads");
        assert_eq!(refused("more = \"a @ x\"\nthan = [\"b @ 6\"]"), "`a @ x` has no number of connections");
        assert!(refused("value = \"a @ 6\"").contains("near and within"));
    }
}
