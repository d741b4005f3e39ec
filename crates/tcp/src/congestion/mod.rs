//! Congestion control of one connection: the congestion window, the slow-start threshold, and the two algorithms that
//! move them in congestion avoidance, NewReno (RFC 5681, byte counting after RFC 3465) and CUBIC (RFC 9438).
//!
//! The send side owns a [`Controller`] and reports what happened to it: acknowledgements, entry into and exit from loss
//! recovery, retransmission time-outs, idle periods. It reads [`Controller::cwnd`] before it sends. Which segments are
//! lost, and how much is in the network, is decided elsewhere (`pcb/loss.rs`, `rack.rs`); during recovery Proportional
//! Rate Reduction sets the window (`prr.rs`), or without SACK it stays at the threshold, and the caller keeps the pipe
//! below it, so no window is ever inflated.
//!
//! Everything is in bytes, all arithmetic is on integers, and a controller is 24 bytes. What may never happen: a window
//! below one segment or above [`MAX_WINDOW`], or growth without an acknowledgement.
//!
//! An algorithm is one variant of [`Kind`] and one file; it decides how far to cut, and how to grow.

mod cubic;
mod hystart;
mod kind;
mod newreno;
mod prr;
#[cfg(test)]
mod tests;
mod window;

use core::time::Duration;

use observe::Time;
use wire::SeqNumber;

use cubic::Cubic;
use hystart::{DelayVerdict, LEAST_WINDOW};
pub use kind::{Kind, UnknownKind};
pub(crate) use prr::Prr;
use window::{CongestionWindow, Phase};

/// The largest congestion window: no peer can announce a larger one (RFC 7323 section 2.3).
pub const MAX_WINDOW: u32 = 1 << 30;

/// The largest MSS that the option can express (RFC 9293 section 3.2); CUBIC's integers rely on it.
const MAX_MSS: u32 = u16::MAX as u32;

/// Segments that may leave at once when recovery ends: as many as a connection begins with (RFC 6928).
const BURST: u32 = 10;

/// The congestion window of one connection and the state that changes it.
#[derive(Clone, Debug)]
pub struct Controller {
    window: CongestionWindow,
    /// CUBIC's state, allocated when first needed: many connections never leave slow start.
    curve: Option<Box<Cubic>>,
}

/// A controller's state before a cut, for [`Controller::restore`].
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    window: CongestionWindow,
    curve: Option<Box<Cubic>>,
}

/// One acknowledgement, as the algorithms see it.
struct Acked {
    bytes: u32,
    srtt: Option<Duration>,
    now: Time,
}

impl Controller {
    /// A connection in slow start with the initial window `iw_bytes` and an unlimited threshold. `mss` (bytes of data)
    /// is cut to 1..=65535.
    pub fn new(kind: Kind, mss: u32, iw_bytes: u32) -> Controller {
        let mss = mss.clamp(1, MAX_MSS) as u16;
        let mut window = CongestionWindow { cwnd: 0, ssthresh: MAX_WINDOW, credit: 0, mss, phase: Phase::Open, kind };
        window.set_cwnd(iw_bytes);
        Controller { window, curve: None }
    }

    /// A copy of one that has no curve yet.
    #[inline(always)]
    pub(crate) fn without_curve(&self) -> Controller {
        Controller { window: self.window.clone(), curve: None }
    }

    /// Whether it has a curve.
    pub(crate) fn has_curve(&self) -> bool {
        self.curve.is_some()
    }

    /// The algorithm.
    pub fn kind(&self) -> Kind {
        self.window.kind
    }

    /// Changes the algorithm; window, threshold and phase stay.
    pub fn set_kind(&mut self, kind: Kind) {
        if kind != self.window.kind {
            self.window.kind = kind;
            self.curve = None;
            self.window.credit = 0;
        }
    }

    /// Congestion window, bytes: at least one segment, at most [`MAX_WINDOW`].
    #[inline]
    pub fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    /// Slow-start threshold, bytes; [`MAX_WINDOW`] until the first loss.
    #[inline]
    pub fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    /// Whether the window is below the threshold.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.window.cwnd < self.window.ssthresh
    }

    /// An acknowledgement moved SND.UNA by `acked` bytes, of `flight_before` outstanding before it (SND.NXT - SND.UNA,
    /// not the pipe).
    ///
    /// `cwnd_limited`: the window, not the application or the peer, limited what was in flight; a window that was not
    /// used provides no information about the network, and does not grow (RFC 5681 section 3.1, RFC 9438 section 5.8),
    /// except in slow start up to twice the flight. During fast recovery nothing grows either.
    #[inline(always)]
    pub fn on_ack(&mut self, acked: u32, flight_before: u32, srtt: Option<Duration>, now: Time, cwnd_limited: bool) {
        let window = &mut self.window;
        if window.phase == Phase::Silence {
            window.phase = Phase::Loss;
        }
        if let Some(cubic) = &mut self.curve {
            cubic.advance_clock(srtt, now, cwnd_limited);
        }
        // More than was outstanding cannot have been acknowledged; an unused window does not grow.
        let acked = acked.min(flight_before);
        let cwnd_limited = cwnd_limited || window.half_used(acked, flight_before);
        //= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
        //# Implementations that use _cwnd_ MUST use other measures to prevent _cwnd_ from growing when the volume of
        //# bytes in flight is smaller than _cwnd_.
        if acked == 0 || !cwnd_limited || window.phase == Phase::Recovery {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc9438#section-4.10
        //# When _cwnd_ is no more than _ssthresh_, CUBIC MUST employ a slow start algorithm.
        let bytes = if window.cwnd < window.ssthresh {
            let rest = window.slow_start(acked);
            if window.cwnd >= window.ssthresh {
                window.credit = 0;
            }
            rest
        } else {
            acked
        };
        if window.cwnd >= window.ssthresh && matches!(window.phase, Phase::Loss | Phase::Conservative) {
            window.phase = Phase::Open;
        }
        if bytes > 0 {
            match window.kind {
                Kind::NewReno => newreno::grow(window, bytes),
                Kind::Cubic => self.curve.get_or_insert_default().grow(window, &Acked { bytes, srtt, now }),
            }
        }
    }

    /// Whether congestion avoidance may have a part in the acknowledgement of `acked` bytes; if not,
    /// [`Controller::on_ack`] does not use the round-trip time.
    #[inline]
    pub(crate) fn may_avoid(&self, acked: u32) -> bool {
        self.curve.is_some() || self.window.cwnd.saturating_add(acked) >= self.window.ssthresh
    }

    /// Whether the first slow start watches the round-trip time (RFC 9406). Then [`Controller::on_round_trip`] needs a
    /// sample of every acknowledgement.
    #[inline]
    pub(crate) fn watches_round_trips(&self) -> bool {
        let window = &self.window;
        window.ssthresh == MAX_WINDOW && window.kind == Kind::Cubic && window.cwnd >= LEAST_WINDOW * window.mss()
    }

    /// The acknowledgement of everything below `una` took `rtt` microseconds, while everything below `nxt` is sent and
    /// the window is the limit. Call it before [`Controller::on_ack`].
    pub(crate) fn on_round_trip(&mut self, rtt: u32, una: SeqNumber, nxt: SeqNumber) {
        let window = &mut self.window;
        if !matches!(window.phase, Phase::Open | Phase::Conservative) {
            return;
        }
        window.phase = match self.curve.get_or_insert_default().hystart.sample(rtt, una, nxt) {
            DelayVerdict::Grow => Phase::Open,
            DelayVerdict::Conserve => Phase::Conservative,
            DelayVerdict::Leave => {
                window.ssthresh = window.cwnd;
                window.credit = 0;
                Phase::Open
            }
        };
    }

    /// The state, to undo a cut later.
    pub(crate) fn save(&self) -> Saved {
        Saved { window: self.window.clone(), curve: self.curve.clone() }
    }

    /// The cut since `saved` was spurious: window, threshold and curve are restored (RFC 4015 section 3.2, RFC 9438
    /// section 4.9), unless they have grown beyond that.
    pub(crate) fn restore(&mut self, saved: Saved) {
        let (cwnd, ssthresh) =
            (self.window.cwnd.max(saved.window.cwnd), self.window.ssthresh.max(saved.window.ssthresh));
        let (kind, mss) = (self.window.kind, self.window.mss);
        if kind == saved.window.kind {
            self.curve = saved.curve;
            if let Some(cubic) = &mut self.curve {
                cubic.end_epoch();
            }
        }
        self.window = CongestionWindow { cwnd, ssthresh, mss, kind, phase: Phase::Open, credit: 0 };
    }

    /// Sets the window during fast recovery, as Proportional Rate Reduction computes it.
    pub(crate) fn set_recovery_window(&mut self, bytes: u32) {
        debug_assert_eq!(self.window.phase, Phase::Recovery);
        self.window.set_cwnd(bytes);
    }

    /// Loss was found by duplicate acknowledgements or SACK with `flight` bytes outstanding (SND.NXT - SND.UNA): cuts
    /// threshold and window once, and enters fast recovery. Returns the new threshold, which is the window too.
    ///
    /// In recovery already, it changes nothing: one cut per window of data.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
    //# In the case of packet loss, the sender MUST reduce _cwnd_ and _ssthresh_ immediately upon entering loss
    //# recovery, similar to [RFC5681] (and [RFC6675]).
    pub fn on_congestion(&mut self, flight: u32, _now: Time) -> u32 {
        if self.window.phase != Phase::Recovery {
            self.cut(flight);
            self.window.set_cwnd(self.window.ssthresh);
            self.window.phase = Phase::Recovery;
        }
        self.window.ssthresh
    }

    /// Congestion was marked and nothing was lost (RFC 3168 section 6.1.2): sets the threshold to a share of
    /// `outstanding` bytes, as for a loss. The window is at most that, down to one segment (RFC 9438 section 4.6), and
    /// at most the `flight` that met the mark: an unused part of the window is not sent at once, but in slow start. The
    /// caller must call it at most once per window.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
    //# Note that CUBIC MUST continue to reduce _cwnd_ in response to congestion events detected by ECN-Echo ACKs until it
    //# reaches a value of 1 SMSS.
    pub fn on_ecn(&mut self, outstanding: u32, flight: u32, _now: Time) {
        if matches!(self.window.phase, Phase::Open | Phase::Conservative) {
            let target = self.cut(outstanding);
            self.window.set_cwnd(self.window.cwnd.min(target).min(flight));
            self.window.phase = Phase::Open;
        }
    }

    /// Sets the threshold for a loss with `flight` bytes outstanding; never below two segments (RFC 5681 equation 4).
    /// Returns the window without that bound.
    fn cut(&mut self, flight: u32) -> u32 {
        let window = &mut self.window;
        // Bytes that limited transmit sent beyond the window do not count (RFC 5681 section 3.2, step 2).
        let flight = flight.min(window.cwnd.max(2 * window.mss()));
        let target = match window.kind {
            Kind::NewReno => newreno::threshold(flight),
            Kind::Cubic => self.curve.get_or_insert_default().threshold(window, flight),
        };
        window.ssthresh = target.clamp(2 * window.mss(), MAX_WINDOW);
        window.credit = 0;
        target
    }

    /// Everything that was outstanding at [`Controller::on_congestion`] or [`Controller::on_timeout`] is acknowledged,
    /// and `pipe` bytes are in the network.
    ///
    /// Call [`Controller::on_ack`] for that acknowledgement first: it may cover bytes that left the network long ago,
    /// and must not count as growth.
    ///
    /// After fast recovery the window is the threshold (RFC 6582 section 3.2 step 3, full acknowledgement), but allows
    /// no more than ten segments at once: slow start does the rest. After a time-out slow start continues,
    /// unrestricted.
    pub fn on_recovery_exit(&mut self, pipe: u32, _now: Time) {
        if self.window.phase == Phase::Recovery {
            let conserved = pipe.saturating_add(BURST * self.window.mss());
            self.window.set_cwnd(self.window.ssthresh.min(conserved));
        }
        self.window.phase = Phase::Open;
    }

    /// The retransmission timer expired with `flight` bytes outstanding: the window falls to one segment (RFC 5681
    /// section 3.1). The threshold is cut unless the timer already expired since the last acknowledgement, or recovery
    /// is under way: that window of data has had its cut.
    pub fn on_timeout(&mut self, flight: u32, _now: Time) {
        if !matches!(self.window.phase, Phase::Silence | Phase::Recovery) {
            self.cut(flight);
        }
        if let Some(cubic) = &mut self.curve {
            cubic.forget();
        }
        self.window.set_cwnd(self.window.mss());
        self.window.phase = Phase::Silence;
    }

    /// Sending resumes after an idle time of more than one RTO: the window falls to the initial window `iw`, bytes (RFC
    /// 5681 section 4.1). The threshold keeps three quarters of the window that was reached (RFC 2861 section 3.1).
    pub fn on_idle_restart(&mut self, iw: u32) {
        let window = &mut self.window;
        if window.cwnd > iw {
            window.ssthresh = window.ssthresh.max(window.cwnd / 4 * 3);
            window.set_cwnd(iw);
            window.credit = 0;
        }
        if let Some(cubic) = &mut self.curve {
            cubic.end_epoch();
        }
    }

    /// The path's MSS changed to `mss` bytes of data (cut to 1..=65535). The window in bytes stays (RFC 1191 section
    /// 6.5: a smaller MTU is no sign of congestion), unless it is less than one new segment.
    pub fn set_mss(&mut self, mss: u32) {
        self.window.mss = mss.clamp(1, MAX_MSS) as u16;
        self.window.set_cwnd(self.window.cwnd);
        self.window.ssthresh = self.window.ssthresh.max(2 * self.window.mss());
    }
}
