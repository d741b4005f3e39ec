//! The checks of every receive thread once a batch, on one cache line.
//!
//! The owners of this work (the Internet layer, addresses, contained panics, transmit queues) are large and far apart,
//! and nearly always have none. So each of them announces its work here, and a batch with nothing else to do reads this
//! line alone. Any thread.

use sync::{Atomic, Ordering, Platform};

use crate::internet_deadline::InternetDeadline;

/// See the head of the file.
#[repr(C, align(64))]
pub(crate) struct BatchChecks<P: Platform> {
    /// Connections were ended by a panic, and their users must be notified.
    pub failures: P::AtomicBool,
    /// Work that comes seldom: a bit for each kind.
    seldom: P::AtomicU32,
    /// A bit for each port in whose transmit queues senders or frames have ever waited for room; ports from 63 on share
    /// one. Most ports never have any, and a bit that is never cleared needs no agreement between threads.
    waiting_ports: P::AtomicU64,
    /// When the Internet layer next has work.
    pub deadline: InternetDeadline<P>,
}

impl<P: Platform> Default for BatchChecks<P> {
    fn default() -> Self {
        BatchChecks {
            failures: P::AtomicBool::new(false),
            seldom: P::AtomicU32::new(0),
            waiting_ports: P::AtomicU64::new(0),
            deadline: InternetDeadline::default(),
        }
    }
}

/// Addresses were given up, and their connections must be ended.
pub(crate) const LOST_ADDRESSES: u32 = 1;
/// The architecture is to be built again, with another number of cells.
pub(crate) const REBUILDS: u32 = 2;

fn bit(port: usize) -> u64 {
    1 << port.min(u64::BITS as usize - 1)
}

impl<P: Platform> BatchChecks<P> {
    /// Senders or frames wait for room in a transmit queue of this port.
    pub(crate) fn note_waiting(&self, port: usize) {
        if self.waiting_ports.load(Ordering::Relaxed) & bit(port) == 0 {
            self.waiting_ports.fetch_or(bit(port), Ordering::Relaxed);
        }
    }

    /// Whether there is work of any seldom kind.
    #[inline]
    pub(crate) fn any_seldom(&self) -> bool {
        self.seldom.load(Ordering::Relaxed) != 0
    }

    /// Whether there is work of this kind.
    pub(crate) fn has(&self, kind: u32) -> bool {
        self.seldom.load(Ordering::Relaxed) & kind != 0
    }

    /// There is work of this kind.
    pub(crate) fn ask_for(&self, kind: u32) {
        self.seldom.fetch_or(kind, Ordering::Relaxed);
    }

    /// The calling thread does the work of this kind. False: another one does, or there is none.
    pub(crate) fn take(&self, kind: u32) -> bool {
        self.seldom.fetch_and(!kind, Ordering::Relaxed) & kind != 0
    }

    /// Whether any port has had senders or frames that waited for room.
    #[inline]
    pub(crate) fn any_waited(&self) -> bool {
        self.waiting_ports.load(Ordering::Relaxed) != 0
    }

    /// Whether senders or frames may wait for room in a transmit queue of this port.
    pub(crate) fn may_wait(&self, port: usize) -> bool {
        self.waiting_ports.load(Ordering::Relaxed) & bit(port) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sync::Real;

    #[test]
    fn a_port_is_checked_once_something_has_waited_there() {
        let checks = BatchChecks::<Real>::default();
        assert!(!checks.any_waited() && !checks.may_wait(3));
        checks.note_waiting(3);
        assert!(checks.any_waited() && checks.may_wait(3) && !checks.may_wait(2));
        checks.note_waiting(70);
        assert!(checks.may_wait(70) && checks.may_wait(63), "ports from 63 on share a bit");
        assert!(!checks.may_wait(62));
    }

    #[test]
    fn work_of_a_seldom_kind_is_taken_once() {
        let checks = BatchChecks::<Real>::default();
        assert!(!checks.any_seldom());
        checks.ask_for(REBUILDS);
        assert!(checks.any_seldom() && checks.has(REBUILDS) && !checks.has(LOST_ADDRESSES));
        assert!(!checks.take(LOST_ADDRESSES) && checks.take(REBUILDS) && !checks.take(REBUILDS));
        assert!(!checks.any_seldom());
    }

    #[test]
    fn the_checks_lie_on_one_line() {
        let checks = BatchChecks::<Real>::default();
        let line = |address: usize| address / 64;
        let start = line(std::ptr::from_ref(&checks).addr());
        assert_eq!(line(std::ptr::from_ref(&checks.waiting_ports).addr()), start);
        assert_eq!(line(std::ptr::from_ref(&checks.deadline).addr()), start);
    }
}
