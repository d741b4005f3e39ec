//! What is alive in one stack right now, as far as limits are set against it.
//!
//! Counters only rise and have one writer; these few numbers rise and fall, belong to the whole stack, and are written
//! from wherever a connection changes its standing, which is rare. What may never happen: a gauge on a path that every
//! segment takes.

use core::sync::atomic::{AtomicI64, AtomicU8, Ordering::Relaxed};

/// A number that rises and falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// Connections that their user has closed and that still wait for the peer, TIME-WAIT apart.
    Orphans,
    /// Connections in TIME-WAIT.
    TimeWaits,
}

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There is enough.
    #[default]
    None,
    /// Buffers do not grow, and what can be had again is given up.
    Moderate,
    /// Each connection gets only the least that it needs.
    Severe,
}

/// The gauges of one stack.
#[derive(Debug, Default)]
pub struct Gauges {
    orphans: AtomicI64,
    time_waits: AtomicI64,
    pressure: AtomicU8,
}

impl Gauges {
    fn cell(&self, gauge: Gauge) -> &AtomicI64 {
        match gauge {
            Gauge::Orphans => &self.orphans,
            Gauge::TimeWaits => &self.time_waits,
        }
    }

    /// Adds `change`, which may be negative.
    pub fn change(&self, gauge: Gauge, change: i64) {
        self.cell(gauge).fetch_add(change, Relaxed);
    }

    /// The value; exact when nothing is under way.
    pub fn get(&self, gauge: Gauge) -> u64 {
        self.cell(gauge).load(Relaxed).max(0) as u64
    }

    /// How short memory is, as last measured.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        match self.pressure.load(Relaxed) {
            0 => Pressure::None,
            1 => Pressure::Moderate,
            _ => Pressure::Severe,
        }
    }

    /// Notes a measurement.
    pub fn set_pressure(&self, pressure: Pressure) {
        self.pressure.store(pressure as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_and_falls() {
        let gauges = Gauges::default();
        gauges.change(Gauge::Orphans, 2);
        gauges.change(Gauge::TimeWaits, 1);
        gauges.change(Gauge::Orphans, -1);
        assert_eq!((gauges.get(Gauge::Orphans), gauges.get(Gauge::TimeWaits)), (1, 1));
        assert_eq!(gauges.pressure(), Pressure::None);
        gauges.set_pressure(Pressure::Severe);
        assert_eq!(gauges.pressure(), Pressure::Severe);
    }
}
