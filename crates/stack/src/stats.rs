//! Statistics of a stack, as numbers that can be added.

use std::ops::AddAssign;

use observe::CounterSnapshot;

/// The result of [`RunningArchitecture::stats`](crate::arch::RunningArchitecture::stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackStats {
    /// Sums over all cells.
    pub counters: CounterSnapshot,
    /// Connections in the tables, in any state: half-open and in TIME-WAIT, too.
    pub connections: usize,
    /// Those of them that are in TIME-WAIT. A sum for the whole stack: `Stack::stats` fills it in, cells do not.
    pub time_wait: usize,
    /// Armed timers.
    pub timers: usize,
    /// Bytes held by tables and PCBs, without queued data.
    pub bytes: usize,
}

impl StackStats {
    /// Connections that are not in TIME-WAIT: half-open, established, or being closed.
    pub fn live(&self) -> usize {
        // Between the two sums a connection may enter TIME-WAIT.
        self.connections.saturating_sub(self.time_wait)
    }
}

/// Adds the numbers of another cell.
impl AddAssign<&StackStats> for StackStats {
    fn add_assign(&mut self, other: &StackStats) {
        self.counters += &other.counters;
        self.connections += other.connections;
        self.time_wait += other.time_wait;
        self.timers += other.timers;
        self.bytes += other.bytes;
    }
}
