//! The rows of a result as CSV (RFC 4180), for spreadsheets and plotting scripts.
//!
//! One line for each row of `results.json`; absent values are empty cells. The samples are in one cell, separated by
//! spaces, and so are the lock classes ("Group=acquired/failed").

use crate::result::Row;

const HEADER: [&str; 28] = [
    "workload",
    "arch",
    "lock",
    "groups",
    "connections",
    "threads",
    "gbps_mean",
    "gbps_ci95",
    "gbps_samples",
    "operations_per_s_mean",
    "operations_per_s_ci95",
    "ratio_to_kernel_mean",
    "ratio_to_kernel_ci95",
    "cpu_s_per_gb",
    "cpu_s_per_gb_ci95",
    "bytes",
    "seconds",
    "locks",
    "handoffs",
    "wakes_sent",
    "wakes_suppressed",
    "switches_voluntary",
    "switches_involuntary",
    "out_of_order",
    "retransmits",
    "bytes_per_connection",
    "round_trip_ns",
    "notes",
];

/// The rows as one CSV document with a header line. Lines end in CR LF, as in the RFC.
pub fn write(rows: &[Row]) -> String {
    let mut text = HEADER.join(",");
    text.push_str("\r\n");
    for row in rows {
        let cells = cells(row).map(|cell| quoted(&cell));
        text.push_str(&cells.join(","));
        text.push_str("\r\n");
    }
    text
}

fn cells(row: &Row) -> [String; HEADER.len()] {
    let locks: Vec<String> =
        row.locks.iter().map(|lock| format!("{}={}/{}", lock.class, lock.acquired, lock.first_try_failed)).collect();
    let samples: Vec<String> = row.gbps.samples.iter().map(f64::to_string).collect();
    let round_trips: Vec<String> =
        row.round_trip_ns.iter().map(|ns| ns.map_or("-".to_owned(), |ns| format!("{ns:.0}"))).collect();
    let operations = row.operations_per_s.as_ref();
    [
        format!("{:?}", row.key.workload).to_lowercase(),
        row.key.arch.clone(),
        row.key.lock.clone().unwrap_or_default(),
        optional(row.key.groups),
        row.key.connections.to_string(),
        row.key.threads.to_string(),
        row.gbps.mean.to_string(),
        optional(row.gbps.ci95),
        samples.join(" "),
        optional(operations.map(|series| series.mean)),
        optional(operations.and_then(|series| series.ci95)),
        optional(row.ratio_to_kernel.map(|ratio| ratio.mean)),
        optional(row.ratio_to_kernel.and_then(|ratio| ratio.ci95)),
        row.cpu_s_per_gb.to_string(),
        optional(row.cpu_s_per_gb_ci95),
        row.bytes.to_string(),
        row.seconds.to_string(),
        locks.join(" "),
        optional(row.handoffs),
        optional(row.wakes.map(|wakes| wakes.sent)),
        optional(row.wakes.map(|wakes| wakes.suppressed)),
        row.switches.voluntary.to_string(),
        row.switches.involuntary.to_string(),
        optional(row.out_of_order),
        optional(row.retransmits),
        optional(row.bytes_per_connection),
        round_trips.join(" "),
        row.notes.join("; "),
    ]
}

fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// A cell, in quotes where it holds a comma, a quote or a line break; a quote is doubled.
pub fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\r', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Key, Workload};
    use crate::sampling::{Samples, Slice};
    use std::time::Duration;

    #[test]
    fn cells_are_quoted_only_where_they_must_be() {
        assert_eq!(quoted("plain text"), "plain text");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"no\""), "\"say \"\"no\"\"\"");
        assert_eq!(quoted("two\nlines"), "\"two\nlines\"");
    }

    #[test]
    fn every_line_has_every_column() {
        let key = Key {
            workload: Workload::Bulk,
            arch: "connp-l".into(),
            lock: Some("mcs".into()),
            groups: Some(4),
            connections: 192,
            threads: 2,
        };
        let slice = Slice { bytes: 1_000_000_000, wall: Duration::from_secs(1), ..Slice::default() };
        let samples =
            Samples { slices: vec![slice.clone(), Slice { round_trip_ns: Some(81.2), ..slice }], ..Samples::default() };
        let mut row = Row::new(key, &samples, None).unwrap();
        row.notes = vec!["one, two".into()];
        let text = write(&[row]);
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].split(',').count(), HEADER.len());
        assert!(lines[1].starts_with("bulk,connp-l,mcs,4,192,2,8,0,8 8,,,,,"));
        assert!(lines[1].ends_with(",- 81,\"one, two\""), "{}", lines[1]);
    }
}
