//! What one run of a workload on a machine has shown.

use std::time::Duration;

use sync::profile::{ClassProfile, HandoffProfile};

use super::packets::PacketBalance;
use crate::account::Account;
use crate::card::CardTotals;
use crate::ledger::Part;
use crate::timeline::Timeline;
use crate::{lock_profile, machine};

/// The measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Virtual time before the measurement.
    pub warm_up: Duration,
    /// Whether the windows before it were alike.
    pub steady: bool,
    /// Virtual time of the measurement.
    pub time: Duration,
    /// Bytes that the clients received, each once.
    pub bytes: u64,
    /// Rates of the measured windows, in megabits a second.
    pub windows: Vec<f64>,
    /// The account of the machine.
    pub account: Account,
    /// The locks, by class, with the time that threads waited for them and held them.
    pub locks: Vec<ClassProfile>,
    /// Hand-offs between threads, and their wake-ups.
    pub handoffs: HandoffProfile,
    /// The cards, since their first frame.
    pub cards: Vec<CardTotals>,
    /// Segments that came to the clients out of order, since the beginning; with packets those that came to the stack so, while it
    /// was measured.
    pub out_of_order: u64,
    /// Of `bytes`, those of each connection; empty unless the workload counts them.
    pub by_connection: Vec<u64>,
    /// Connections by the place of their flow among as many as there are CPUs: the receive queue or owner that they
    /// fall to.
    pub placement: Vec<usize>,
    /// The beginning of what was measured, if it was recorded.
    pub timeline: Option<Timeline>,
    /// The frames of the same time, as a pcapng file.
    pub capture: Option<Vec<u8>>,
    /// With packets that are received: those that were made for the stack, and those that the application took.
    pub packets: Option<PacketBalance>,
}

impl Measured {
    /// Payload in megabits a second.
    pub fn megabits(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time.as_secs_f64() / 1e6
    }

    /// Cycles of all CPUs that were not idle, for each kilobyte of payload.
    pub fn busy_cycles_by_kilobyte(&self) -> f64 {
        (self.account.total() - self.account.cycles(Part::Idle)) as f64 / self.kilobytes()
    }

    /// How evenly connections were served: [`jain_fairness`] of their bytes. `None` also if the workload does not count by
    /// connection.
    pub fn fairness(&self) -> Option<f64> {
        jain_fairness(&self.by_connection)
    }

    /// Kilobytes of payload.
    pub fn kilobytes(&self) -> f64 {
        self.bytes as f64 / 1024.0
    }

    /// What the machine and its locks have done since `account` was taken, in which `bytes` came in `time`. No windows, no cards.
    /// Called by a thread of the machine, which has cleared the profile of the locks then.
    pub(super) fn since(account: &Account, time: Duration, bytes: u64) -> Measured {
        Measured {
            warm_up: Duration::ZERO,
            steady: false,
            time,
            bytes,
            windows: Vec::new(),
            account: machine::account().since(account),
            locks: lock_profile().snapshot().to_vec(),
            handoffs: lock_profile().handoffs(),
            cards: Vec::new(),
            out_of_order: 0,
            by_connection: Vec::new(),
            placement: Vec::new(),
            timeline: None,
            capture: None,
            packets: None,
        }
    }
}

/// Jain's fairness index, (Σx)² / (n Σx²): 1 when all shares are equal, 1/n when one has everything. `None` if there is nothing
/// to share.
pub fn jain_fairness(shares: &[u64]) -> Option<f64> {
    let shares = || shares.iter().map(|&share| share as f64);
    let (sum, squares): (f64, f64) = (shares().sum(), shares().map(|share| share * share).sum());
    (squares > 0.0).then(|| sum * sum / (shares().count() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::jain_fairness;

    #[test]
    fn fairness_is_one_of_equal_shares_and_the_share_of_one_that_has_everything() {
        assert_eq!(jain_fairness(&[7; 5]), Some(1.0));
        assert_eq!(jain_fairness(&[3, 0, 0, 0]), Some(0.25));
        assert_eq!(jain_fairness(&[1, 3]), Some(0.8));
        assert_eq!([&[][..], &[0, 0]].map(jain_fairness), [None, None]);
    }
}
