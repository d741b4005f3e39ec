//! Figure 4 of Willmann, Rixner and Cox (2006), the locks of one send, beside the recorded walk of one write.
//!
//! The text of the report has the steps of the figure, but not their arrangement. Where that matters (which of the locks of
//! the route table and of the route is released first) the text of section 5.1 decides: a thread may wait for a route's lock
//! while it holds the table's.

use sync::LockClass;
use sync::walk::WalkStep;

use super::{place, walk};

/// The architecture with the habits of the paper's MsgP.
pub const MSGP: &str = "msgp:1+coupled+routes";

/// A lock of the figure is taken (true) or released.
type Step = (LockClass, bool);

/// The figure, in order: the steps of a lock, and what is done between them. For a message of one segment.
const PAPER: [(&str, Option<Step>); 12] = [
    ("socket send: socket buffer, acquired", Some((LockClass::SocketBuffer, true))),
    ("socket buffer, released", Some((LockClass::SocketBuffer, false))),
    ("TCP send: connection hash table, acquired", Some((LockClass::ConnTable, true))),
    ("looks the connection up", None),
    ("connection, acquired", Some((LockClass::PcbHeaderIn, true))),
    ("connection hash table, released", Some((LockClass::ConnTable, false))),
    ("TCP output: for each segment of the message", None),
    ("route hash table, acquired", Some((LockClass::Routes, true))),
    ("route, acquired", Some((LockClass::Route, true))),
    ("route hash table, released", Some((LockClass::Routes, false))),
    ("route, released", Some((LockClass::Route, false))),
    ("connection, released", Some((LockClass::PcbHeaderIn, false))),
];

/// The rows of the comparison: the paper's step, and what Heddle does up to the same step.
pub fn rows() -> Vec<[String; 2]> {
    let steps = walk(MSGP).written;
    let mut rest = &steps[..];
    let mut rows = Vec::new();
    for (paper, step) in PAPER {
        let ours = step.map_or_else(String::new, |step| match rest.iter().position(|own| lock(own) == Some(step)) {
            Some(last) => {
                let (before, after) = rest.split_at(last + 1);
                rest = after;
                text_of(before)
            }
            None if steps.iter().any(|own| lock(own) == Some(step)) => "in another order".to_owned(),
            None => format!("no lock of class {}", step.0),
        });
        rows.push([paper.to_owned(), ours]);
    }
    rows.push(["end".to_owned(), text_of(rest)]);
    rows
}

/// The lock that a step takes or releases.
fn lock(step: &WalkStep) -> Option<Step> {
    match step {
        WalkStep::Take(class) => Some((*class, true)),
        WalkStep::Release(class) => Some((*class, false)),
        _ => None,
    }
}

fn text_of(steps: &[WalkStep]) -> String {
    let shown = |step: &WalkStep| match step {
        WalkStep::Take(class) => format!("[{class}]"),
        WalkStep::Release(class) => format!("/{class}"),
        WalkStep::Note { file, text } => format!("{}: {text}", place(file)),
        WalkStep::Answer => "<-- answered".to_owned(),
        WalkStep::HandOff => "--> handed to another thread's queue".to_owned(),
    };
    steps.iter().map(shown).collect::<Vec<_>>().join("; ")
}

/// The comparison as text.
pub fn text() -> String {
    let lines = rows().into_iter().map(|[paper, ours]| format!("{paper:<44}| {ours}\n"));
    lines.map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The comparison as the rows of a table in a paper's data file (TOML).
pub fn toml() -> String {
    let rows = rows().into_iter().map(|row| format!("  {row:?},\n"));
    format!(
        "[figure.sequence]\narch = {MSGP:?}\nhead = [\"the paper\", \"Heddle, recorded\"]\nrow = [\n{}]\n",
        rows.collect::<String>()
    )
}

/// Fails unless the rows of locks that both have are in the order of the paper.
pub fn in_the_papers_order() -> bool {
    rows().iter().all(|[_, ours]| ours != "in another order")
}
