//! What a place of locked connections does beside its locks, as the kernels did that the papers measured.

/// When the table lock is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TablePolicy {
    /// As soon as the connection has been found.
    Dropped,
    /// Hand over hand: kept while waiting for the connection and through acknowledgement processing.
    Coupled,
}

/// What a place does beside its locks, as the kernels did that the papers measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Habits {
    /// When the table lock is released.
    pub table: TablePolicy,
    /// A fault: each segment of a connection takes the locks of the routing table and of its route.
    pub locks_routes: bool,
    /// A fault: all threads count in one block ([`PerThreadCounters::racy`](observe::PerThreadCounters::racy)).
    pub racy_counters: bool,
}

impl Habits {
    /// No fault, and the table lock is released as soon as the connection has been found.
    pub const PLAIN: Habits = Habits::with_table(TablePolicy::Dropped);

    /// No fault.
    pub const fn with_table(table: TablePolicy) -> Habits {
        Habits { table, locks_routes: false, racy_counters: false }
    }
}
