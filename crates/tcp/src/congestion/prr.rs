//! Proportional Rate Reduction (RFC 9937): how much may be sent per acknowledgement in fast recovery, so that the
//! flight falls to the threshold evenly, and at the end of recovery is as close to it as the losses allow.
//!
//! While the pipe is above the threshold, ssthresh / RecoverFS bytes are sent per byte delivered. Once losses have
//! brought it below, PRR-CRB conserves packets (as many bytes are sent as were delivered), and PRR-SSRB opens the
//! window by one segment more for every *safe* acknowledgement: one that advances SND.UNA and shows no further loss.
//!
//! Begun by the acknowledgement step when recovery begins, fed with every acknowledgement in it, and notified by
//! `output` of every byte sent. What may never happen: a window above the threshold without a delivery.

/// The state of one recovery; all in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    /// Bytes in flight when recovery began, without those the peer had SACKed; at least 1 once begun.
    recover_fs: u32,
    /// Delivered since.
    delivered: u32,
    /// Sent since.
    out: u32,
}

impl Prr {
    /// Recovery begins with `recover_fs` bytes that are neither acknowledged nor SACKed, including those that the
    /// present acknowledgement delivered (RFC 9937 section 6.1).
    pub(crate) fn begin(recover_fs: u32) -> Prr {
        Prr { recover_fs: recover_fs.max(1), delivered: 0, out: 0 }
    }

    /// `bytes` left, new or again.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u32) {
        self.out = self.out.saturating_add(bytes);
    }

    /// The congestion window after an acknowledgement that delivered `delivered` bytes and left `pipe` bytes in the
    /// network; `safe` as above (RFC 9937 section 6.2). `None`: it delivered nothing, and the window stays.
    pub(crate) fn window(&mut self, delivered: u32, pipe: u32, ssthresh: u32, mss: u32, safe: bool) -> Option<u32> {
        if delivered == 0 {
            return None;
        }
        self.delivered = self.delivered.saturating_add(delivered);
        let allowed = if pipe > ssthresh {
            let share = (u64::from(self.delivered) * u64::from(ssthresh)).div_ceil(u64::from(self.recover_fs.max(1)));
            u32::try_from(share).unwrap_or(u32::MAX).saturating_sub(self.out)
        } else {
            let conserved = self.delivered.saturating_sub(self.out).max(delivered);
            let allowed = if safe { conserved.saturating_add(mss) } else { conserved };
            allowed.min(ssthresh - pipe)
        };
        Some(pipe.saturating_add(self.at_least_the_first(allowed, mss)))
    }

    /// The same when loss was found by a timer, without an acknowledgement: bytes delivered before and not yet used may
    /// be sent, and one segment in any case.
    pub(crate) fn window_after_timer(&self, pipe: u32, ssthresh: u32, mss: u32) -> u32 {
        let unspent = self.delivered.saturating_sub(self.out).min(ssthresh.saturating_sub(pipe));
        pipe.saturating_add(unspent.max(mss))
    }

    /// Fast retransmit: the first segment is sent whatever the counters allow.
    fn at_least_the_first(&self, allowed: u32, mss: u32) -> u32 {
        if self.out == 0 { allowed.max(mss) } else { allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    /// One segment of 20 is lost and every other one reported by an acknowledgement of its own.
    #[test]
    fn one_loss_in_twenty_sends_at_half_the_rate() {
        let ssthresh = 10 * MSS;
        let mut prr = Prr::begin(20 * MSS);
        let (mut pipe, mut sent) = (19 * MSS, 0);
        for _ in 0..19 {
            pipe -= MSS;
            let cwnd = prr.window(MSS, pipe, ssthresh, MSS, false).unwrap();
            while cwnd - pipe >= MSS {
                pipe += MSS;
                sent += MSS;
                prr.sent(MSS);
            }
        }
        assert_eq!((sent, pipe), (10 * MSS, 10 * MSS), "the flight ends at the threshold");
    }

    /// RFC 9937 section 6.2: below the threshold CRB conserves packets, SSRB adds a segment for a safe acknowledgement.
    #[test]
    fn below_the_threshold_packets_are_conserved_or_slow_start_is_allowed() {
        let mut prr = Prr::begin(20 * MSS);
        prr.sent(MSS);
        assert_eq!(prr.window(2 * MSS, 3 * MSS, 10 * MSS, MSS, false), Some(5 * MSS));
        prr.sent(2 * MSS);
        assert_eq!(prr.window(2 * MSS, 3 * MSS, 10 * MSS, MSS, true), Some(6 * MSS));
        prr.sent(3 * MSS);
        assert_eq!(prr.window(MSS, 9_900, 10 * MSS, MSS, true), Some(10 * MSS), "never beyond the threshold");
    }

    #[test]
    fn an_acknowledgement_that_delivers_nothing_changes_nothing() {
        let mut prr = Prr::begin(20 * MSS);
        assert_eq!(prr.window(0, 5 * MSS, 10 * MSS, MSS, true), None);
    }

    #[test]
    fn the_fast_retransmit_always_leaves() {
        let mut prr = Prr::begin(20 * MSS);
        assert_eq!(prr.window(1, 15 * MSS, 10 * MSS, MSS, false), Some(16 * MSS));
        assert_eq!(Prr::begin(MSS).window_after_timer(5 * MSS, 2 * MSS, MSS), 6 * MSS);
    }
}
