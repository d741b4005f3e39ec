//! Undoing a spurious reduction of the congestion window: by the timestamp of the first acknowledgement after the first
//! retransmission (the Eifel algorithm, RFC 3522, response after RFC 4015), or when every retransmitted byte is
//! reported as a duplicate (D-SACK, RFC 2883 and 3708).
//!
//! Armed by the acknowledgement step and the time-outs when they cut the window; `output` reports retransmissions to
//! it. What may never happen: undoing a cut when any of its retransmissions was necessary.

use crate::congestion::Saved;

/// Largest age of an original at its first retransmission (70 minutes), ms.
const MAX_AGE_MS: u32 = 1 << 22;

/// The state to restore, and the evidence so far.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    saved: Option<Saved>,
    /// Bytes sent again since the cut, and not reported as duplicates.
    outstanding: u32,
    /// Value of our timestamp clock in the first retransmission, ms; `None` before it, after the acknowledgement that
    /// is compared with it, and if that acknowledgement would answer another segment.
    stamp: Option<u32>,
    /// Something was sent again since the cut.
    any: bool,
    /// Bytes that were retransmitted without need, as an echoed timestamp has shown, and that the peer has not reported as
    /// duplicates yet.
    late: u32,
}

impl Undo {
    /// The window is being cut; `saved` is the state before. A second cut in the same round of losses keeps the first
    /// state, and the evidence.
    pub(crate) fn arm(&mut self, saved: Saved) {
        *self = Undo { saved: Some(saved), late: self.late, ..Undo::default() };
    }

    /// `bytes` were retransmitted; in a segment with timestamp `stamp` if it is the first of the flight. If the first
    /// retransmission since the cut is not, the hole before it was retransmitted earlier, and the acknowledgement that
    /// moves SND.UNA answers that one.
    pub(crate) fn sent_again(&mut self, bytes: u32, stamp: Option<u32>) {
        if self.saved.is_some() {
            self.outstanding = self.outstanding.saturating_add(bytes);
            if !self.any {
                self.any = true;
                self.stamp = stamp;
            }
        }
    }

    /// SND.UNA moved for the first time since; the acknowledgement echoes `echo`. True: it was triggered by a segment
    /// sent before the first retransmission (RFC 3522 section 3.2), which was spurious.
    pub(crate) fn first_advance(&mut self, echo: Option<u32>) -> bool {
        let stamp = self.stamp.take();
        // An invalid echo, such as 0, proves nothing: the flight is not that old.
        matches!((stamp, echo), (Some(stamp), Some(echo)) if (1..MAX_AGE_MS).contains(&stamp.wrapping_sub(echo)))
    }

    /// The peer reported `bytes` as duplicate. True: all retransmissions were spurious.
    pub(crate) fn duplicate(&mut self, bytes: u32) -> bool {
        let known = bytes.min(self.late);
        self.late -= known;
        if !self.any || self.outstanding == 0 || known == bytes {
            return false;
        }
        self.outstanding = self.outstanding.saturating_sub(bytes);
        self.outstanding == 0
    }

    /// Whether there are retransmitted bytes that the peer has not reported as duplicates.
    pub(crate) fn expects_duplicates(&self) -> bool {
        self.outstanding > 0 || self.late > 0
    }

    /// Takes the state before the cut; nothing is left to undo.
    pub(crate) fn take(&mut self) -> Option<Saved> {
        let saved = self.saved.take();
        *self = Undo { late: self.late.saturating_add(self.outstanding), ..Undo::default() };
        saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{Controller, Kind};

    fn armed() -> Undo {
        let mut undo = Undo::default();
        undo.arm(Controller::new(Kind::Cubic, 1000, 10_000).save());
        undo
    }

    #[test]
    fn an_echo_older_than_the_first_retransmission_says_that_it_was_needless() {
        for (echo, needless) in [(Some(99), true), (Some(100), false), (Some(101), false), (None, false)] {
            let mut undo = armed();
            undo.sent_again(1000, Some(100));
            undo.sent_again(1000, Some(90));
            assert_eq!(undo.first_advance(echo), needless, "{echo:?}");
            assert!(!undo.first_advance(Some(0)), "only the first counts");
        }
        assert!(!armed().first_advance(Some(0)), "nothing was sent again");
    }

    #[test]
    fn an_echo_says_nothing_of_what_is_sent_again_behind_an_older_hole() {
        let mut undo = armed();
        undo.sent_again(1000, None);
        undo.sent_again(1000, Some(100));
        assert!(!undo.first_advance(Some(50)));
    }

    #[test]
    fn every_retransmission_must_be_reported() {
        let mut undo = armed();
        undo.sent_again(1000, Some(1));
        undo.sent_again(500, Some(1));
        assert!(!undo.duplicate(1000) && undo.expects_duplicates());
        assert!(undo.duplicate(500));
        assert!(undo.take().is_some());
        assert!(!undo.duplicate(500) && undo.take().is_none());
    }
}
