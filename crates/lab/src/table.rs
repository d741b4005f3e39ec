//! Tables for a terminal.
//!
//! A [`Table`] has a maximal width: if its columns do not fit, the least important are omitted, and a last line names
//! them. Cells are plain text; widths count characters, which is correct without wide or combining characters.

use std::collections::BTreeSet;

use crate::result::{Row, Workload};
use crate::units::{bytes, count, estimate, significant};

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Names.
    Left,
    /// Numbers.
    Right,
}

#[derive(Clone, Debug)]
struct Column {
    title: String,
    align: Align,
    /// 0 is never omitted; the highest is omitted first.
    rank: u8,
}

/// Rows of cells under titled columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

const GAP: &str = "  ";

impl Table {
    /// An empty table.
    pub fn new() -> Table {
        Table::default()
    }

    /// Adds a column. Rank 0 is always printed; of the others, the highest is left out first.
    #[must_use]
    pub fn column(mut self, title: &str, align: Align, rank: u8) -> Table {
        self.columns.push(Column { title: title.to_owned(), align, rank });
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "one cell for each column");
        self.rows.push(cells);
    }

    /// The table in at most `width` characters a line, as far as the columns of rank 0 allow. A column in which every
    /// cell is empty or "-" carries no information and is left out silently.
    pub fn render(&self, width: usize) -> String {
        let mut shown: Vec<usize> = (0..self.columns.len()).filter(|&c| self.tells(c)).collect();
        let mut left_out: Vec<usize> = Vec::new();
        while self.line_width(&shown) > width
            && let Some(worst) =
                shown.iter().copied().filter(|&c| self.columns[c].rank > 0).max_by_key(|&c| (self.columns[c].rank, c))
        {
            shown.retain(|&c| c != worst);
            left_out.push(worst);
        }
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.clone()).collect();
        let mut text = self.line(&shown, &titles);
        text.push_str(&"─".repeat(self.line_width(&shown)));
        text.push('\n');
        for row in &self.rows {
            text.push_str(&self.line(&shown, row));
        }
        if !left_out.is_empty() {
            left_out.sort_unstable();
            let names: Vec<&str> = left_out.iter().map(|&c| titles[c].as_str()).collect();
            text.push_str(&format!("left out at this width: {}\n", names.join(", ")));
        }
        text
    }

    fn tells(&self, column: usize) -> bool {
        let silent = |row: &Vec<String>| matches!(row[column].as_str(), "" | "-");
        self.rows.is_empty() || !self.rows.iter().all(silent)
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.columns[column].title.chars().count()]).max().unwrap_or(0)
    }

    fn line_width(&self, shown: &[usize]) -> usize {
        let widths: usize = shown.iter().map(|&c| self.column_width(c)).sum();
        widths + GAP.len() * shown.len().saturating_sub(1)
    }

    fn line(&self, shown: &[usize], cells: &[String]) -> String {
        let padded = shown.iter().map(|&c| {
            let width = self.column_width(c);
            match self.columns[c].align {
                Align::Left => format!("{:<width$}", cells[c]),
                Align::Right => format!("{:>width$}", cells[c]),
            }
        });
        let line = padded.collect::<Vec<_>>().join(GAP);
        format!("{}\n", line.trim_end())
    }
}

/// The table that `heddle compare` prints: one line for each row of the result.
pub fn comparison(rows: &[Row]) -> Table {
    let bulk = rows.iter().all(|row| row.key.workload == Workload::Bulk);
    let kinds: BTreeSet<&str> = rows.iter().filter_map(|row| row.key.lock.as_deref()).collect();
    let mut table = Table::new()
        .column("arch", Align::Left, 0)
        .column("groups", Align::Right, 0)
        // The lock distinguishes rows only if several were measured.
        .column("lock", Align::Left, if kinds.len() > 1 { 0 } else { 10 })
        .column("conns", Align::Right, 0)
        .column("threads", Align::Right, 9)
        .column(if bulk { "Gb/s" } else { "ops/s" }, Align::Right, 0)
        .column("x linux", Align::Right, 1)
        .column("CPU s/GB", Align::Right, 2)
        .column("contended", Align::Right, 3)
        .column("handoffs", Align::Right, 6)
        .column("switch/GB", Align::Right, 4)
        .column("misorder", Align::Right, 5)
        .column("B/conn", Align::Right, 7)
        .column("retransmits", Align::Right, 8);
    for row in rows {
        table.row(vec![
            row.key.arch.clone(),
            row.key.groups.map_or("-".into(), |groups| groups.to_string()),
            row.key.lock.clone().unwrap_or_else(|| "-".into()),
            row.key.connections.to_string(),
            row.key.threads.to_string(),
            estimate(row.figure()),
            row.ratio_to_kernel.map_or("-".into(), |ratio| significant(ratio.mean)),
            significant(row.cpu_s_per_gb),
            row.most_contended().map_or("-".into(), |(class, share)| format!("{class} {share:.0} %")),
            row.handoffs.map_or("-".into(), |n| count(n as f64)),
            row.switches_per_gb.map_or("-".into(), |switches| count(switches.mean)),
            row.out_of_order.map_or("-".into(), |n| count(n as f64)),
            row.bytes_per_connection.map_or("-".into(), |n| bytes(n as f64)),
            row.retransmits.map_or("-".into(), |n| count(n as f64)),
        ]);
    }
    table
}

/// Locks by class: acquisitions and how many did not succeed at once.
pub fn locks(rows: &[Row]) -> Table {
    let mut table = Table::new()
        .column("architecture", Align::Left, 0)
        .column("conns", Align::Right, 0)
        .column("lock class", Align::Left, 0)
        .column("acquired", Align::Right, 1)
        .column("first try failed", Align::Right, 1)
        .column("share", Align::Right, 0);
    for row in rows {
        for lock in row.locks.iter().filter(|lock| lock.acquired > 0) {
            table.row(vec![
                row.key.variant(),
                row.key.connections.to_string(),
                lock.class.clone(),
                count(lock.acquired as f64),
                count(lock.first_try_failed as f64),
                format!("{:.1} %", 100.0 * lock.first_try_failed as f64 / lock.acquired as f64),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Key;
    use crate::sampling::{Samples, Slice};

    fn small() -> Table {
        let mut table = Table::new()
            .column("name", Align::Left, 0)
            .column("figure", Align::Right, 1)
            .column("detail", Align::Right, 2)
            .column("silent", Align::Right, 1);
        table.row(vec!["up".into(), "31.2 ± 0.4".into(), "9".into(), "-".into()]);
        table.row(vec!["connp-l".into(), "4".into(), "12345".into(), String::new()]);
        table
    }

    #[test]
    fn columns_align_and_silent_ones_go() {
        assert_eq!(
            small().render(100),
            "name         figure  detail\n\
             ───────────────────────────\n\
             up       31.2 ± 0.4       9\n\
             connp-l           4   12345\n"
        );
    }

    #[test]
    fn a_narrow_terminal_loses_the_least_important_and_says_so() {
        let text = small().render(20);
        assert!(text.starts_with("name         figure\n"));
        assert!(text.ends_with("left out at this width: detail\n"));
        let narrowest = small().render(1);
        assert!(narrowest.starts_with("name\n"));
        assert!(narrowest.ends_with("left out at this width: figure, detail\n"));
    }

    #[test]
    fn the_comparison_fits_a_hundred_columns() {
        let key = |arch: &str, groups: Option<u32>| Key {
            workload: Workload::Bulk,
            arch: arch.into(),
            lock: groups.map(|_| "spin-park".into()),
            groups,
            connections: 16_384,
            threads: 2,
        };
        let samples = Samples { slices: vec![Slice::default(), Slice::default()], ..Samples::default() };
        let rows: Vec<Row> = [key("connp-l", Some(1024)), key("up", None)]
            .into_iter()
            .filter_map(|key| Row::new(key, &samples, None))
            .collect();
        let text = comparison(&rows).render(100);
        assert!(text.lines().take(4).all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains("connp-l    1024  16384"), "{text}");
        let mut other = rows.clone();
        other[1].key.lock = Some("mcs".into());
        assert!(comparison(&other).render(60).contains("spin-park"), "two lock kinds must be told apart");
    }
}
