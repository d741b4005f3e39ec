//! A stretch of a simulation as a page: a lane for each CPU, for the locks that were waited for longest, and for each
//! thread.
//!
//! The page is one file that opens from disk and fetches nothing. It has a script, because a stretch of some
//! milliseconds has thousands of spans, which are readable only if the reader can move and magnify. The data is in the
//! page as JSON, bounded by [`vsmp::timeline::MOST_SPANS`]. Without scripts the page shows a note. What may never
//! happen: text of the data that ends the script, so `<` is escaped.

use std::collections::BTreeMap;

use serde::Serialize;
use vsmp::timeline::{Doing, LockSpan, Timeline};

/// Lanes of locks, and of threads, at most.
const MOST_LANES: usize = 64;

/// The data of the script. Times are nanoseconds since the beginning of the stretch.
#[derive(Serialize)]
struct Drawing<'a> {
    title: &'a str,
    /// The omissions, in a sentence; empty if there are none.
    remark: String,
    length: u64,
    threads: &'a [String],
    /// By CPU: thread, activity (0 runs, 1 spins, 2 schedules), from, length.
    cpus: Vec<Vec<[u64; 4]>>,
    locks: Vec<LockLane>,
    /// The numbers of the threads that have a lane, those that ran longest.
    lanes: Vec<usize>,
}

#[derive(Serialize)]
struct LockLane {
    name: String,
    /// Thread, from, length, and the time waited before, for each hold.
    holds: Vec<[u64; 4]>,
}

/// The page of a stretch; `title` names its run.
pub fn render(timeline: &Timeline, title: &str) -> String {
    let data = serde_json::to_string(&drawing(timeline, title)).unwrap_or_default().replace('<', "\\u003c");
    include_str!("timeline.html").replacen("/*DATA*/", &data, 1)
}

fn drawing<'a>(timeline: &'a Timeline, title: &'a str) -> Drawing<'a> {
    let nanos = |cycles: u64| cycles * 1000 / timeline.megahertz.max(1);
    let at = |cycles: u64| nanos(cycles.saturating_sub(timeline.from));
    let mut cpus = vec![Vec::new(); timeline.cpus];
    let mut ran: BTreeMap<usize, u64> = BTreeMap::new();
    for span in &timeline.spans {
        let doing = match span.doing {
            Doing::Runs => 0,
            Doing::Spins => 1,
            Doing::Schedules => 2,
        };
        let from = at(span.from);
        cpus[span.cpu].push([span.thread as u64, doing, from, at(span.to).saturating_sub(from).max(1)]);
        *ran.entry(span.thread).or_default() += span.to - span.from;
    }
    let mut lanes: Vec<usize> = ran.keys().copied().collect();
    lanes.sort_by_key(|thread| std::cmp::Reverse(ran[thread]));
    let mut left_out = Vec::new();
    if lanes.len() > MOST_LANES {
        left_out.push(format!("the {MOST_LANES} threads of {} that ran longest", lanes.len()));
    }
    lanes.truncate(MOST_LANES);
    lanes.sort_unstable();
    let (locks, count) = lock_lanes(timeline, &at);
    if count > locks.len() {
        left_out.push(format!("the {} locks of {count} that were waited for longest", locks.len()));
    }
    if timeline.is_cut {
        left_out.push("only the first spans: the end of the stretch is incomplete".to_owned());
    }
    let remark = if left_out.is_empty() { String::new() } else { format!("Shown: {}.", left_out.join("; ")) };
    Drawing { title, remark, length: at(timeline.to).max(1), threads: &timeline.threads, cpus, locks, lanes }
}

/// A lane for each lock, those first that were waited for longest; and how many locks there are.
fn lock_lanes(timeline: &Timeline, at: &dyn Fn(u64) -> u64) -> (Vec<LockLane>, usize) {
    let mut by_lock: BTreeMap<usize, Vec<&LockSpan>> = BTreeMap::new();
    timeline.locks.iter().for_each(|span| by_lock.entry(span.lock).or_default().push(span));
    let waited = |spans: &[&LockSpan]| -> u64 {
        spans.iter().filter_map(|span| Some(span.takes.saturating_sub(span.waits?))).sum()
    };
    let mut locks: Vec<(usize, Vec<&LockSpan>)> = by_lock.into_iter().collect();
    // The sort is stable: locks for which no thread waited are in the order of their first use.
    locks.sort_by_key(|(_, spans)| std::cmp::Reverse(waited(spans)));
    let count = locks.len();
    locks.truncate(MOST_LANES);
    let hold = |span: &&LockSpan| {
        let takes = at(span.takes);
        let waits = span.waits.map_or(0, |waits| takes.saturating_sub(at(waits)));
        [span.thread as u64, takes, at(span.releases).saturating_sub(takes).max(1), waits]
    };
    let lane = |(number, spans): (usize, Vec<&LockSpan>)| LockLane {
        name: format!("{} #{number}", spans[0].class.name()),
        holds: spans.iter().map(hold).collect(),
    };
    (locks.into_iter().map(lane).collect(), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sync::LockClass;
    use vsmp::timeline::CpuSpan;

    fn timeline() -> Timeline {
        let span = |cpu, thread, doing, from, to| CpuSpan { cpu, thread, doing, from, to };
        let lock = |lock, thread, waits, takes, releases| LockSpan {
            class: LockClass::Group,
            lock,
            thread,
            waits,
            takes,
            releases,
        };
        Timeline {
            megahertz: 2000,
            cpus: 2,
            threads: vec!["main".into(), "</script><b>".into()],
            from: 1000,
            to: 5000,
            spans: vec![span(0, 1, Doing::Runs, 1000, 3000), span(1, 0, Doing::Spins, 2000, 5000)],
            locks: vec![lock(0, 1, None, 1000, 1400), lock(1, 0, Some(2000), 3000, 4000)],
            is_cut: true,
        }
    }

    #[test]
    fn the_drawing_has_every_span_in_nanoseconds() {
        let timeline = timeline();
        let drawing = drawing(&timeline, "x");
        assert_eq!(drawing.cpus, [vec![[1, 0, 0, 1000]], vec![[0, 1, 500, 1500]]]);
        assert_eq!((drawing.length, drawing.lanes), (2000, vec![0, 1]));
        let locks: Vec<_> = drawing.locks.iter().map(|lane| (lane.name.as_str(), lane.holds.clone())).collect();
        // The lock with waiting threads is first.
        assert_eq!(locks, [("group #1", vec![[0, 1000, 500, 500]]), ("group #0", vec![[1, 0, 200, 0]])]);
        assert!(drawing.remark.contains("incomplete"), "{}", drawing.remark);
    }

    #[test]
    fn the_page_needs_nothing_but_itself_and_no_name_ends_its_script() {
        let page = render(&timeline(), "a </script> b");
        for fetched in ["<link", "<img", "src=", "@import", "url(", "http", "fetch(", "XMLHttp"] {
            assert!(!page.contains(fetched), "the page contains {fetched}");
        }
        assert_eq!(page.matches("</script>").count(), page.matches("<script>").count());
        assert!(!page.contains("/*DATA*/") && page.contains("u003cb>"));
    }
}
