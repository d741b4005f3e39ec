//! The pages: one with every RFC, one with the table of RFC 9293's appendix B.

use std::fmt::Write;

use super::{Level, Row, Specification, Table};

const NOTE: &str =
    "Written by `cargo xtask coverage --bless` from the quotations in code, tests and packet scripts; do not edit.\n";

/// `RFC 9293: MUST 66 of 69 met and shown (3 intentionally not met); ...` on one line.
pub fn totals(specification: &Specification, rows: &[Row<'_>]) -> String {
    let mut line = format!("RFC {}:", specification.rfc);
    for (level, name) in [(Level::Must, "MUST"), (Level::Should, "SHOULD"), (Level::May, "MAY")] {
        let of_level = || rows.iter().filter(|row| row.requirement.level == level);
        let all = of_level().count();
        if all > 0 {
            let shown = of_level().filter(|row| row.is_met()).count();
            let _ = write!(line, " {name} {shown} of {all} met and shown");
            let partly = of_level().filter(|row| row.requirement.partly.is_some()).count();
            let exceptions = of_level().filter(|row| row.requirement.exception.is_some()).count();
            let others = [(partly, "in part"), (exceptions, "intentionally not met")];
            let others: Vec<_> =
                others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
            if !others.is_empty() {
                let _ = write!(line, " ({})", others.join(", "));
            }
            line.push(';');
        }
    }
    line.trim_end_matches(';').to_owned()
}

/// All RFCs.
pub fn coverage(tables: &[Table<'_>]) -> String {
    let mut page = format!("# Requirements of the RFCs: code that meets them, tests that show it\n\n{NOTE}\n");
    for (specification, rows) in tables {
        let _ = writeln!(page, "* {}", totals(specification, rows));
    }
    for (specification, rows) in tables {
        let _ = write!(page, "\n## RFC {}: {}\n\n", specification.rfc, specification.title);
        page.push_str("| id | requirement | met in | shown by |\n|---|---|---|---|\n");
        for row in rows {
            let requirement = row.requirement;
            let words = escape(&requirement.quote);
            let _ = writeln!(page, "| {} | {words} | {} | {} |", requirement.id, code(row), tests(row));
        }
    }
    page
}

/// The table of appendix B.
pub fn appendix_b(rows: &[Row<'_>]) -> String {
    let mut page = format!("# RFC 9293, appendix B: the requirements and their state in Heddle\n\n{NOTE}\n");
    page.push_str(
        "\"yes\" is met in code and shown by a test or a packet script, both of which quote the requirement; \"in part\" \
         says where it does not hold.\n",
    );
    let mut group = "";
    for row in rows {
        let requirement = row.requirement;
        if requirement.group != group {
            group = &requirement.group;
            let _ = write!(page, "\n## {group}\n\n| feature | id | level | here |\n|---|---|---|---|\n");
        }
        let level = match requirement.level {
            Level::Must => "MUST",
            Level::Should => "SHOULD",
            Level::May => "MAY",
        };
        let _ =
            writeln!(page, "| {} | {} | {level} | {} |", escape(&requirement.feature), requirement.id, standing(row));
    }
    page
}

fn standing(row: &Row<'_>) -> String {
    if let (Some(limit), true) = (&row.requirement.partly, row.evidence.is_shown()) {
        return format!("in part: {limit}");
    }
    match (&row.requirement.exception, row.evidence.code.is_empty(), row.evidence.tests.is_empty()) {
        (Some(reason), _, _) => format!("no: {reason}"),
        (None, false, false) => "yes".to_owned(),
        (None, false, true) => "in code, no test quotes it".to_owned(),
        (None, true, false) => "a test quotes it, no code does".to_owned(),
        (None, true, true) => "not shown".to_owned(),
    }
}

fn code(row: &Row<'_>) -> String {
    match &row.requirement.exception {
        Some(reason) => format!("not met: {reason}"),
        None => {
            let limit = row.requirement.partly.iter().map(|limit| format!("in part: {limit}"));
            row.evidence.code.iter().cloned().chain(limit).collect::<Vec<_>>().join("<br>")
        }
    }
}

fn tests(row: &Row<'_>) -> String {
    row.evidence.tests.join("<br>")
}

/// A cell of a table cannot hold a bar, and `<SYN>` would be parsed as a tag.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}
