//! `heddle paper list`: the papers and figures, where each can run, and what the others lack.

use std::fmt::Write;

use crate::data::{Figure, Metric, Selected};
use crate::point::Place;

/// The list, as text.
pub fn text(selected: &[Selected<'_>]) -> String {
    let mut text = String::new();
    for Selected { paper, figures } in selected {
        let _ = writeln!(text, "{}: {}", paper.id, paper.title);
        let _ = writeln!(text, "  {}. {}. {} claims.", paper.authors, paper.published, paper.claims.len());
        for figure in figures {
            let name = format!("{}.{}", paper.id, figure.id);
            let _ = writeln!(text, "  {name:<20}{}: {}", figure.title, runs(figure));
        }
        text.push('\n');
    }
    text.push_str("`heddle paper run ID..` runs papers or figures; `all` is everything that can run.\n");
    text
}

/// The places where it can run, or the missing parts.
pub fn runs(figure: &Figure) -> String {
    if let Some(sequence) = &figure.sequence {
        return format!("recorded under {}, not measured: shown with every run", sequence.arch);
    }
    match (figure.reason_not_to_run(Place::Vsmp), figure.reason_not_to_run(Place::Host)) {
        (None, None) => match figure.metric.and_then(Metric::needs_on_host) {
            Some(host) => format!("runs on vsmp, and on {host}"),
            None => "runs on vsmp and host".to_owned(),
        },
        (None, Some(reason)) => format!("runs on vsmp; not on the host: {reason}"),
        (Some(reason), None) => format!("runs on the host; not on vsmp: {reason}"),
        (Some(missing), Some(_)) => format!("does not run yet; missing: {missing}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::Paper;

    #[test]
    fn every_figure_says_where_it_runs_or_what_is_missing() {
        let papers = Paper::all();
        let text = super::text(&Paper::select(&papers, &["all".to_owned()]).unwrap());
        for name in papers.iter().flat_map(Paper::names) {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name.as_str())).unwrap();
            assert!(
                ["runs on vsmp", "runs on the host", "missing: ", "recorded under"]
                    .iter()
                    .any(|words| line.contains(words)),
                "{line}"
            );
        }
        assert!(text.contains("recorded under msgp:1+coupled+routes"), "{text}");
        assert!(text.contains("runs on the host; not on vsmp: there is no model of Linux 2.6.16"), "{text}");
        assert!(text.contains("willmann.fig2") && text.contains("runs on vsmp and host"));
        assert!(text.contains("runs on vsmp, and on a host with hardware counters of cache misses"), "{text}");
    }
}
