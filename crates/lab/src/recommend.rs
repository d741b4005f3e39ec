//! The recommended architecture for this machine and load, in one sentence with its figures.
//!
//! The rule is fixed and simple, so that it can be verified: take the mean of each variant (groups, lock) over the
//! loads that all complete variants carried, and represent an architecture by its best variant; the highest mean leads;
//! of those whose 95 % interval overlaps the leader's, the simplest wins. "Simpler" is the rank that each architecture
//! declares, by the number of its mechanisms. The kernel is never recommended, since the question is which of our
//! architectures to use, but the sentence includes the comparison with it.

use std::collections::BTreeSet;

use heddle::Architecture;

use crate::result::{Recommendation, Row, Workload};
use crate::stats::Estimate;
use crate::units::{estimate, significant};

/// One variant's average over the loads.
struct Candidate<'a> {
    rows: Vec<&'a Row>,
    average: Estimate,
}

/// Recommends one of the architectures in `rows`; `None` if no row is a candidate. Bulk rows decide; where
/// there are none, the rows of the first workload do.
pub fn recommend(rows: &[Row]) -> Option<Recommendation> {
    let ours = || rows.iter().filter(|row| row.key.is_candidate());
    let bulk = ours().any(|row| row.key.workload == Workload::Bulk);
    let workload = if bulk { Workload::Bulk } else { ours().next()?.key.workload };
    let of_workload: Vec<&Row> = ours().filter(|row| row.key.workload == workload).collect();
    let candidates = candidates(&of_workload);
    let leader = candidates.iter().max_by(|a, b| a.average.mean.total_cmp(&b.average.mean))?;
    let chosen = candidates.iter().filter(|candidate| candidate.average.overlaps(&leader.average)).min_by(|a, b| {
        let faster = b.average.mean.total_cmp(&a.average.mean);
        complexity(a.arch()).cmp(&complexity(b.arch())).then(faster)
    })?;
    let lock = chosen.rows[0].key.lock.clone();
    Some(Recommendation { arch: chosen.name(), lock, reason: sentence(chosen, leader, &candidates) })
}

/// The best variant of each architecture among those that carried the most loads, with its average over them.
fn candidates<'a>(rows: &[&'a Row]) -> Vec<Candidate<'a>> {
    let variants: BTreeSet<String> = rows.iter().map(|row| row.key.variant()).collect();
    let grouped = variants
        .iter()
        .map(|variant| rows.iter().copied().filter(|row| row.key.variant() == *variant).collect::<Vec<&Row>>());
    let grouped: Vec<Vec<&Row>> = grouped.collect();
    let most = grouped.iter().map(Vec::len).max().unwrap_or(0);
    let mut best: Vec<Candidate<'a>> = Vec::new();
    for rows in grouped.into_iter().filter(|rows| rows.len() == most) {
        let figures: Vec<Estimate> = rows.iter().map(|row| row.figure()).collect();
        let Some(average) = Estimate::average(&figures) else { continue };
        let candidate = Candidate { rows, average };
        match best.iter_mut().find(|other| other.arch() == candidate.arch()) {
            Some(other) if other.average.mean < average.mean => *other = candidate,
            Some(_) => {}
            None => best.push(candidate),
        }
    }
    best
}

impl Candidate<'_> {
    fn arch(&self) -> &str {
        &self.rows[0].key.arch
    }

    /// In the notation of `--arch`.
    fn name(&self) -> String {
        let groups = self.rows[0].key.groups.map(|groups| format!(":{groups}")).unwrap_or_default();
        format!("{}{groups}", self.arch())
    }

    fn variant(&self) -> String {
        self.rows[0].key.variant()
    }

    /// "31.2 ± 0.4 Gb/s".
    fn figure(&self) -> String {
        let unit = match self.rows[0].key.workload {
            Workload::Bulk => "Gb/s",
            Workload::Rpc => "transactions/s",
            Workload::Connect => "connections/s",
        };
        format!("{} {unit}", estimate(self.average))
    }
}

/// The complexity that an architecture declares. An unknown one, in results from another version, counts as the most
/// complex.
fn complexity(arch: &str) -> u8 {
    arch.parse::<Architecture>().map_or(u8::MAX, |arch| arch.properties().complexity)
}

fn sentence(chosen: &Candidate<'_>, leader: &Candidate<'_>, all: &[Candidate<'_>]) -> String {
    let rows = &chosen.rows;
    let connections = rows.iter().map(|row| row.key.connections);
    let loads = match (connections.clone().min(), connections.max()) {
        (Some(fewest), Some(most)) if fewest != most => {
            format!("over {} loads from {fewest} to {most} connections", rows.len())
        }
        (fewest, _) => format!("with {} connections", fewest.unwrap_or(0)),
    };
    let threads = rows[0].key.threads;
    let plural = if threads == 1 { "" } else { "s" };
    let carried = format!("{} averaged {} {loads} on {threads} thread{plural}", chosen.variant(), chosen.figure());
    let because = if std::ptr::eq(chosen, leader) {
        against_the_next(chosen, all)
    } else {
        format!(
            ", which the measurements cannot distinguish from the {} of {} (their confidence intervals overlap), and it is the \
             simpler of the two",
            leader.figure(),
            leader.variant()
        )
    };
    format!("{carried}{because}{}.", against_the_kernel(rows))
}

/// The lead over the next contender, and its name.
fn against_the_next(chosen: &Candidate<'_>, all: &[Candidate<'_>]) -> String {
    let others = all.iter().filter(|other| !std::ptr::eq(*other, chosen));
    let Some(next) = others.max_by(|a, b| a.average.mean.total_cmp(&b.average.mean)) else {
        return ", the only one measured".into();
    };
    let lead = 100.0 * (chosen.average.mean / next.average.mean - 1.0);
    let also =
        if next.average.overlaps(&chosen.average) { ", whose interval overlaps but which is no simpler" } else { "" };
    format!(", {} % more than {}, the next, with {}{also}", significant(lead), next.variant(), next.figure())
}

fn against_the_kernel(rows: &[&Row]) -> String {
    let ratios: Option<Vec<f64>> = rows.iter().map(|row| row.ratio_to_kernel.map(|ratio| ratio.mean)).collect();
    let Some(mean) = ratios.as_deref().and_then(crate::stats::mean) else {
        return String::new();
    };
    format!("; that is {} times what the Linux kernel's own TCP carried in the same seconds", significant(mean))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{KERNEL, Key, Series};
    use crate::sampling::{Samples, Slice};

    fn row(arch: &str, connections: u32, mean: f64, ci95: f64) -> Row {
        let key = Key {
            workload: Workload::Bulk,
            arch: arch.into(),
            lock: None,
            groups: arch.starts_with("connp-l").then_some(128),
            connections,
            threads: 2,
        };
        let samples = Samples { slices: vec![Slice::default()], ..Samples::default() };
        let mut row = Row::new(key, &samples, None).unwrap();
        row.gbps = Series { mean, ci95: Some(ci95), samples: vec![mean] };
        row.ratio_to_kernel = Some(Estimate { mean: mean / 10.0, ci95: None });
        row
    }

    #[test]
    fn the_highest_mean_over_all_loads_wins() {
        let rows = [
            row("up", 6, 30.0, 0.1),
            row("up", 192, 10.0, 0.1),
            row("connp-l", 6, 28.0, 0.1),
            row("connp-l", 192, 24.0, 0.1),
            row(KERNEL, 6, 50.0, 0.1),
            row(KERNEL, 192, 50.0, 0.1),
        ];
        let advice = recommend(&rows).unwrap();
        assert_eq!(advice.arch, "connp-l:128");
        assert_eq!(
            advice.reason,
            "connp-l, 128 groups averaged 26.0 ± 0.1 Gb/s over 2 loads from 6 to 192 connections on 2 threads, 30.0 % \
             more than up, the next, with 20.0 ± 0.1 Gb/s; that is 2.60 times what the Linux kernel's own TCP carried \
             in the same seconds."
        );
    }

    #[test]
    fn overlapping_intervals_prefer_the_simpler() {
        let rows = [row("connp-t", 6, 20.5, 1.0), row("connp-l", 6, 20.0, 0.2), row("up", 6, 12.0, 0.2)];
        let advice = recommend(&rows).unwrap();
        assert_eq!(advice.arch, "connp-l:128");
        assert!(advice.reason.contains("with 6 connections on 2 threads"));
        assert!(advice.reason.contains("20.5 ± 1.0 Gb/s of connp-t"), "{}", advice.reason);
        let clear = [row("connp-t", 6, 20.5, 0.1), row("connp-l", 6, 20.0, 0.1)];
        assert_eq!(recommend(&clear).unwrap().arch, "connp-t");
    }

    #[test]
    fn an_architecture_is_not_compared_with_itself() {
        let mut few = row("connp-l", 6, 29.9, 0.5);
        few.key.groups = Some(4);
        let rows = [few, row("connp-l", 6, 30.0, 0.5), row("up", 6, 20.0, 0.5)];
        let reason = recommend(&rows).unwrap().reason;
        assert!(
            reason.starts_with("connp-l, 128 groups averaged") && reason.contains("more than up, the next"),
            "{reason}"
        );
    }

    #[test]
    fn the_faster_lock_is_recommended_with_its_architecture() {
        let with = |lock: &str, mean| {
            let mut row = row("connp-l", 6, mean, 0.5);
            row.key.lock = Some(lock.into());
            row
        };
        let advice = recommend(&[with("mcs", 29.0), with("spin-park", 30.0), with("blocking", 20.0)]).unwrap();
        assert_eq!((advice.arch.as_str(), advice.lock.as_deref()), ("connp-l:128", Some("spin-park")));
        assert!(advice.reason.starts_with("connp-l, 128 groups, spin-park averaged 30.0"), "{}", advice.reason);
    }

    #[test]
    fn a_variant_that_missed_a_load_is_not_compared() {
        let rows = [row("giant", 6, 99.0, 0.1), row("up", 6, 10.0, 0.1), row("up", 192, 9.0, 0.1)];
        assert_eq!(recommend(&rows).unwrap().arch, "up");
    }

    #[test]
    fn nothing_to_choose_from() {
        assert_eq!(recommend(&[row(KERNEL, 6, 50.0, 0.1)]), None);
        let only = recommend(&[row("msgp:6", 6, 5.0, 0.1)]).unwrap();
        assert!(only.reason.contains("the only one measured"));
    }

    #[test]
    fn an_unknown_architecture_counts_as_the_most_complex() {
        assert_eq!(complexity("msgp:6"), complexity("msgp"));
        assert!(complexity("up") < complexity("connp-l"));
        assert_eq!(complexity("upside"), u8::MAX);
    }
}
