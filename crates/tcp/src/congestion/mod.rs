//! Congestion control of one connection: the congestion window, the slow-start threshold, and the two algorithms that
//! move them in congestion avoidance, NewReno (RFC 5681, byte counting after RFC 3465) and CUBIC (RFC 9438).
//!
//! The send side owns a [`Controller`] and reports what happened to it: acknowledgements, entry into and exit from loss
//! recovery, retransmission time-outs, idle periods. It reads [`Controller::cwnd`] before it sends. Which segments are
//! lost, and how much is in the network, is decided elsewhere (`pcb/loss.rs`, `rack.rs`); during recovery the window is
//! what Proportional Rate Reduction says (`prr.rs`), or stands still at the threshold without SACK, and the caller keeps
//! the pipe below it, so no window is ever inflated.
//!
//! Everything is in octets, all arithmetic is on integers, and a controller is 24 octets. What may never happen: a
//! window below one segment or above [`MAX_WINDOW`], or growth that no acknowledgement paid for.
//!
//! An algorithm is one variant of [`Kind`] and one file; it answers how far to cut, and how to grow.

mod cubic;
mod hystart;
mod newreno;
mod prr;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use observe::Time;
use wire::SeqNumber;

use cubic::Cubic;
use hystart::{CSS_GROWTH_DIVISOR, LEAST_WINDOW, Verdict};
pub(crate) use prr::Prr;

/// The largest congestion window: no peer can announce a larger one (RFC 7323 section 2.3).
pub const MAX_WINDOW: u32 = 1 << 30;

/// The largest MSS that the option can express (RFC 9293 section 3.2); CUBIC's integers rely on it.
const MAX_MSS: u32 = u16::MAX as u32;

/// Segments that may leave at once when recovery ends: as many as a connection begins with (RFC 6928).
const BURST: u32 = 10;

/// Which algorithm governs congestion avoidance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RFC 5681: one segment per round trip, half after a loss.
    NewReno,
    /// RFC 9438: a cubic function of the time since the last loss, 0.7 of the window after one.
    #[default]
    Cubic,
}

impl Kind {
    /// Every algorithm, for tables and option parsers.
    pub const ALL: [Kind; 2] = [Kind::NewReno, Kind::Cubic];

    /// The name in configuration, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::NewReno => "newreno",
            Kind::Cubic => "cubic",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no congestion control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind(String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown congestion control `{}`: choose `newreno` or `cubic`", self.0)
    }
}

impl std::error::Error for UnknownKind {}

impl FromStr for Kind {
    type Err = UnknownKind;

    /// Reads a name, in any case; `reno` is taken for `newreno`.
    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        let lower = name.to_ascii_lowercase();
        let wanted = if lower == "reno" { "newreno" } else { &lower };
        Kind::ALL.into_iter().find(|kind| kind.name() == wanted).ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// Where the connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Slow start or congestion avoidance.
    Open,
    /// Slow start at a quarter of its pace (RFC 9406).
    Conservative,
    /// Fast recovery: the window stands still.
    Recovery,
    /// After a time-out, until an acknowledgement arrives.
    Silence,
    /// After a time-out and an acknowledgement, until all that was outstanding is acknowledged.
    Loss,
}

/// The part that all algorithms share.
#[derive(Clone, Debug)]
struct Window {
    /// Congestion window, octets.
    cwnd: u32,
    /// Slow-start threshold, octets.
    ssthresh: u32,
    /// In congestion avoidance octets acknowledged that have not yet paid for growth, in the algorithm's unit. In slow
    /// start the most that was in flight while the window was not the limit.
    credit: u32,
    /// Sender maximum segment size, octets.
    mss: u16,
    phase: Phase,
    kind: Kind,
}

impl Window {
    #[inline]
    fn mss(&self) -> u32 {
        u32::from(self.mss)
    }

    fn set_cwnd(&mut self, octets: u32) {
        self.cwnd = octets.clamp(self.mss(), MAX_WINDOW);
    }

    /// Was at least half of the window in flight, in slow start? Then it grows though it was not the limit, up to twice
    /// what was: a user who writes a little more than before finds room for it (as Linux does since version 3.16).
    #[inline]
    fn half_used(&mut self, acked: u32, flight_before: u32) -> bool {
        if self.cwnd >= self.ssthresh || self.phase == Phase::Recovery {
            return false;
        }
        let most = self.credit.max(flight_before);
        // When nothing is left in flight, what follows is judged by itself.
        self.credit = if acked == flight_before { 0 } else { most };
        self.cwnd < most.saturating_mul(2)
    }

    /// Slow start for `acked` octets; returns those left for congestion avoidance.
    ///
    /// Every octet acknowledged opens the window by one (RFC 3465 with L unlimited, as its peers do now: a receiver
    /// that coalesces segments acknowledges dozens at once). After a time-out an acknowledgement may cover octets that
    /// left the network long ago, and counts for one segment at most (RFC 3465 section 2.3).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
    //# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion avoidance, and
    //# exponential backoff of RTO to avoid creating congestion collapse conditions (MUST-19).
    fn slow_start(&mut self, acked: u32) -> u32 {
        let counted = match self.phase {
            Phase::Loss => acked.min(self.mss()),
            Phase::Conservative => acked / CSS_GROWTH_DIVISOR,
            _ => acked,
        };
        let grown = counted.min(self.ssthresh - self.cwnd);
        self.set_cwnd(self.cwnd + grown);
        counted - grown
    }
}

/// The congestion window of one connection and what moves it.
#[derive(Clone, Debug)]
pub struct Controller {
    window: Window,
    /// What CUBIC remembers, once there is something: many connections never leave slow start.
    curve: Option<Box<Cubic>>,
}

/// A controller's state before a cut, for [`Controller::restore`].
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    window: Window,
    curve: Option<Box<Cubic>>,
}

/// One acknowledgement, as the algorithms see it.
struct Acked {
    octets: u32,
    srtt: Option<Duration>,
    now: Time,
}

impl Controller {
    /// A connection in slow start with the initial window `iw_bytes` and an unlimited threshold. `mss` (octets of text)
    /// is cut to 1..=65535.
    pub fn new(kind: Kind, mss: u32, iw_bytes: u32) -> Controller {
        let mss = mss.clamp(1, MAX_MSS) as u16;
        let mut window = Window { cwnd: 0, ssthresh: MAX_WINDOW, credit: 0, mss, phase: Phase::Open, kind };
        window.set_cwnd(iw_bytes);
        Controller { window, curve: None }
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

    /// Congestion window, octets: at least one segment, at most [`MAX_WINDOW`].
    #[inline]
    pub fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    /// Slow-start threshold, octets; [`MAX_WINDOW`] until the first loss.
    #[inline]
    pub fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    /// Whether the window is below the threshold.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.window.cwnd < self.window.ssthresh
    }

    /// An acknowledgement moved SND.UNA by `acked` octets, of `flight_before` outstanding before it (SND.NXT - SND.UNA,
    /// not the pipe).
    ///
    /// `cwnd_limited`: the window, not the application or the peer, limited what was in flight; a window that was not
    /// used says nothing about the network, and does not grow (RFC 5681 section 3.1, RFC 9438 section 5.8), but in slow
    /// start to twice what was. During fast recovery nothing grows either.
    #[inline]
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
        let octets = if window.cwnd < window.ssthresh {
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
        if octets > 0 {
            match window.kind {
                Kind::NewReno => newreno::grow(window, octets),
                Kind::Cubic => self.curve.get_or_insert_default().grow(window, &Acked { octets, srtt, now }),
            }
        }
    }

    /// Does the first slow start watch the round-trip time (RFC 9406)? Then [`Controller::on_round_trip`] wants a sample
    /// of every acknowledgement.
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
            Verdict::Grow => Phase::Open,
            Verdict::Conserve => Phase::Conservative,
            Verdict::Leave => {
                window.ssthresh = window.cwnd;
                window.credit = 0;
                Phase::Open
            }
        };
    }

    /// The state, to take a cut back later.
    pub(crate) fn save(&self) -> Saved {
        Saved { window: self.window.clone(), curve: self.curve.clone() }
    }

    /// The cut since `saved` was without cause: window, threshold and curve are again what they were (RFC 4015 section
    /// 3.2, RFC 9438 section 4.9), unless they have outgrown that.
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
        self.window = Window { cwnd, ssthresh, mss, kind, phase: Phase::Open, credit: 0 };
    }

    /// During fast recovery the window is what Proportional Rate Reduction says.
    pub(crate) fn set_recovery_window(&mut self, octets: u32) {
        debug_assert_eq!(self.window.phase, Phase::Recovery);
        self.window.set_cwnd(octets);
    }

    /// Loss was found by duplicate acknowledgements or SACK with `flight` octets outstanding (SND.NXT - SND.UNA): cuts
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

    /// Congestion was marked and nothing was lost (RFC 3168 section 6.1.2), with `flight` octets outstanding: cuts
    /// threshold and window as for a loss, without recovery, the window down to one segment (RFC 9438 section 4.6). The
    /// caller sees to it that this happens once per window.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
    //# Note that CUBIC MUST continue to reduce _cwnd_ in response to congestion events detected by ECN-Echo ACKs until it
    //# reaches a value of 1 SMSS.
    pub fn on_ecn(&mut self, flight: u32, _now: Time) {
        if matches!(self.window.phase, Phase::Open | Phase::Conservative) {
            let target = self.cut(flight);
            self.window.set_cwnd(self.window.cwnd.min(target));
            self.window.phase = Phase::Open;
        }
    }

    /// Sets the threshold for a loss with `flight` octets outstanding; never below two segments (RFC 5681 equation 4).
    /// Returns what it would be without that bound.
    fn cut(&mut self, flight: u32) -> u32 {
        let window = &mut self.window;
        // What limited transmit sent beyond the window does not count (RFC 5681 section 3.2, step 2).
        let flight = flight.min(window.cwnd.max(2 * window.mss()));
        let target = match window.kind {
            Kind::NewReno => newreno::threshold(flight),
            Kind::Cubic => self.curve.get_or_insert_default().threshold(window, flight),
        };
        window.ssthresh = target.clamp(2 * window.mss(), MAX_WINDOW);
        window.credit = 0;
        target
    }

    /// Everything that was outstanding at [`Controller::on_congestion`] or [`Controller::on_timeout`] is acknowledged, and
    /// `pipe` octets are in the network.
    ///
    /// Call [`Controller::on_ack`] for that acknowledgement first: it may cover octets that left the network long ago, and
    /// must not count as growth.
    ///
    /// After fast recovery the window is the threshold (RFC 6582 section 3.2 step 3, full acknowledgement), but lets no
    /// more than ten segments out at once: slow start does the rest. After a time-out slow start goes on,
    /// unrestricted.
    pub fn on_recovery_exit(&mut self, pipe: u32, _now: Time) {
        if self.window.phase == Phase::Recovery {
            let conserved = pipe.saturating_add(BURST * self.window.mss());
            self.window.set_cwnd(self.window.ssthresh.min(conserved));
        }
        self.window.phase = Phase::Open;
    }

    /// The retransmission timer expired with `flight` octets outstanding: the window falls to one segment (RFC 5681
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

    /// Sending resumes after an idle time of more than one RTO: the window falls to the initial window `iw`, octets (RFC
    /// 5681 section 4.1). The threshold remembers three quarters of the window that was reached (RFC 2861 section 3.1).
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

    /// The path's MSS changed to `mss` octets of text (cut to 1..=65535). The window in octets stays (RFC 1191 section
    /// 6.5: a smaller MTU is no sign of congestion), unless it is less than one new segment.
    pub fn set_mss(&mut self, mss: u32) {
        self.window.mss = mss.clamp(1, MAX_MSS) as u16;
        self.window.set_cwnd(self.window.cwnd);
        self.window.ssthresh = self.window.ssthresh.max(2 * self.window.mss());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1000;

    fn start(kind: Kind) -> Controller {
        Controller::new(kind, MSS, 10 * MSS)
    }

    /// An acknowledgement of `octets` with the window in use.
    fn ack(c: &mut Controller, octets: u32) {
        c.on_ack(octets, c.cwnd().max(octets), None, Time::ZERO, true);
    }

    #[test]
    fn is_small() {
        assert!(size_of::<Controller>() <= 24, "{} octets", size_of::<Controller>());
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("Reno".parse(), Ok(Kind::NewReno));
        let error = "bbr".parse::<Kind>().unwrap_err().to_string();
        assert_eq!(error, "unknown congestion control `bbr`: choose `newreno` or `cubic`");
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.10
    //= type=test
    //# When _cwnd_ is no more than _ssthresh_, CUBIC MUST employ a slow start algorithm.
    #[test]
    fn slow_start_doubles_the_window_per_round_trip() {
        for kind in Kind::ALL {
            let mut c = start(kind);
            assert!(c.in_slow_start());
            for expected in [20, 40, 80] {
                for _ in 0..c.cwnd() / (2 * MSS) {
                    ack(&mut c, 2 * MSS);
                }
                assert_eq!(c.cwnd(), expected * MSS, "{kind}");
            }
        }
    }

    #[test]
    fn slow_start_ends_at_the_threshold_and_the_rest_counts_for_avoidance() {
        let mut c = Controller::new(Kind::NewReno, MSS, 20 * MSS);
        c.on_congestion(20 * MSS, Time::ZERO);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        c.on_idle_restart(8 * MSS);
        ack(&mut c, 5 * MSS);
        assert_eq!((c.cwnd(), c.in_slow_start()), (10 * MSS, false));
        ack(&mut c, 7 * MSS);
        assert_eq!(c.cwnd(), 11 * MSS, "3 of the 5 segments were left over");
    }

    /// What is in flight at once is remembered until all of it is acknowledged.
    #[test]
    fn slow_start_makes_room_for_twice_what_was_in_flight() {
        let mut c = start(Kind::Cubic);
        let mut ack = |acked, flight| {
            c.on_ack(acked * MSS, flight * MSS, None, Time::ZERO, false);
            c.cwnd() / MSS
        };
        assert_eq!([ack(2, 9), ack(2, 7), ack(2, 5), ack(2, 3), ack(1, 1)], [12, 14, 16, 18, 18]);
        assert_eq!([ack(2, 9), ack(7, 7)], [18, 18]);
        assert_eq!(ack(1, 10), 19);
        c.on_congestion(19 * MSS, Time::ZERO);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        let before = c.cwnd();
        c.on_ack(MSS, 2 * before, None, Time::ZERO, false);
        assert_eq!(c.cwnd(), before, "in congestion avoidance only what was the limit grows");
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
    //= type=test
    //# Implementations that use _cwnd_ MUST use other measures to prevent _cwnd_ from growing when the volume of bytes
    //# in flight is smaller than _cwnd_.
    #[test]
    fn an_unused_window_does_not_grow() {
        for kind in Kind::ALL {
            let mut c = start(kind);
            c.on_ack(5 * MSS, 5 * MSS, None, Time::ZERO, false);
            assert_eq!(c.cwnd(), 10 * MSS);
            c.on_congestion(10 * MSS, Time::ZERO);
            c.on_recovery_exit(u32::MAX, Time::ZERO);
            let before = c.cwnd();
            for s in 0..100 {
                c.on_ack(MSS, MSS, None, Time::from_secs(s), false);
            }
            assert_eq!(c.cwnd(), before);
        }
    }

    #[test]
    fn one_cut_per_recovery_and_no_growth_in_it() {
        for (kind, left) in [(Kind::NewReno, 10_000), (Kind::Cubic, 14_000)] {
            let mut c = Controller::new(kind, MSS, 20 * MSS);
            assert_eq!(c.on_congestion(20 * MSS, Time::ZERO), left);
            assert_eq!(c.on_congestion(20 * MSS, Time::ZERO), left);
            ack(&mut c, 5 * MSS);
            assert_eq!((c.cwnd(), c.ssthresh()), (left, left));
            c.on_recovery_exit(u32::MAX, Time::ZERO);
            assert_eq!((c.cwnd(), c.ssthresh()), (left, left));
            assert!(c.on_congestion(left, Time::ZERO) < left);
        }
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_its_repetition_leaves_the_threshold() {
        for (kind, left) in [(Kind::NewReno, 10_000), (Kind::Cubic, 14_000)] {
            let mut c = Controller::new(kind, MSS, 20 * MSS);
            c.on_timeout(20 * MSS, Time::ZERO);
            assert_eq!((c.cwnd(), c.ssthresh()), (MSS, left));
            c.on_timeout(5 * MSS, Time::ZERO);
            assert_eq!((c.cwnd(), c.ssthresh()), (MSS, left), "section 3.1: held constant");
            ack(&mut c, MSS);
            c.on_timeout(6 * MSS, Time::ZERO);
            assert!(c.ssthresh() < left);
        }
    }

    #[test]
    fn after_a_timeout_an_acknowledgement_counts_for_one_segment_until_the_outstanding_is_acknowledged() {
        let mut c = Controller::new(Kind::NewReno, MSS, 40 * MSS);
        c.on_timeout(40 * MSS, Time::ZERO);
        ack(&mut c, 15 * MSS);
        assert_eq!(c.cwnd(), 2 * MSS);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        assert_eq!(c.cwnd(), 2 * MSS, "leaving loss recovery opens nothing by itself");
        ack(&mut c, 2 * MSS);
        assert_eq!(c.cwnd(), 4 * MSS);
    }

    #[test]
    fn a_timeout_in_recovery_does_not_cut_again_but_a_loss_after_it_does() {
        let mut c = Controller::new(Kind::NewReno, MSS, 40 * MSS);
        c.on_congestion(40 * MSS, Time::ZERO);
        c.on_timeout(30 * MSS, Time::ZERO);
        assert_eq!((c.cwnd(), c.ssthresh()), (MSS, 20 * MSS), "one cut per window of data");
        ack(&mut c, MSS);
        c.on_recovery_exit(MSS, Time::ZERO);
        (0..6).for_each(|_| ack(&mut c, MSS));
        assert_eq!(c.on_congestion(8 * MSS, Time::ZERO), 4 * MSS);
    }

    #[test]
    fn idle_restart_slow_starts_towards_the_window_that_was() {
        for kind in Kind::ALL {
            let mut c = Controller::new(kind, MSS, 100 * MSS);
            c.on_idle_restart(10 * MSS);
            assert_eq!(c.cwnd(), 10 * MSS);
            c.on_idle_restart(20 * MSS);
            assert_eq!(c.cwnd(), 10 * MSS, "never opens the window");
            c.on_congestion(10 * MSS, Time::ZERO);
            c.on_recovery_exit(u32::MAX, Time::ZERO);
            let low = c.ssthresh();
            (0..2000).for_each(|i| c.on_ack(MSS, c.cwnd(), None, Time::from_millis(10 * i), true));
            let reached = c.cwnd();
            c.on_idle_restart(2 * MSS);
            assert!(c.ssthresh() > low && c.ssthresh() >= reached / 4 * 3 - 3);
        }
    }

    #[test]
    fn a_smaller_mss_keeps_the_window_and_a_larger_one_its_minimum() {
        let mut c = start(Kind::Cubic);
        c.set_mss(500);
        assert_eq!(c.cwnd(), 10 * MSS);
        c.on_timeout(10 * MSS, Time::ZERO);
        assert_eq!(c.cwnd(), 500);
        c.set_mss(9000);
        assert_eq!((c.cwnd(), c.ssthresh()), (9000, 18_000));
    }

    #[test]
    fn the_algorithm_can_be_changed_in_flight() {
        let mut c = start(Kind::Cubic);
        c.on_congestion(10 * MSS, Time::ZERO);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        c.set_kind(Kind::NewReno);
        assert_eq!((c.kind(), c.cwnd()), (Kind::NewReno, 7 * MSS));
        ack(&mut c, 7 * MSS);
        assert_eq!(c.cwnd(), 8 * MSS);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ack { octets: u32, flight: u32, rtt_us: Option<u64>, wait_us: u64, limited: bool },
        Congestion(u32),
        Exit,
        Timeout(u32),
        Idle(u32),
        Mss(u32),
        Kind(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        let ack = (any::<u32>(), any::<u32>(), any::<Option<u64>>(), 0u64..1 << 40, any::<bool>()).prop_map(
            |(octets, flight, rtt_us, wait_us, limited)| Step::Ack { octets, flight, rtt_us, wait_us, limited },
        );
        prop_oneof![
            8 => ack,
            1 => any::<u32>().prop_map(Step::Congestion),
            1 => Just(Step::Exit),
            1 => any::<u32>().prop_map(Step::Timeout),
            1 => any::<u32>().prop_map(Step::Idle),
            1 => any::<u32>().prop_map(Step::Mss),
            1 => any::<bool>().prop_map(Step::Kind),
        ]
    }

    proptest! {
        /// Whatever is reported, nothing overflows, the window keeps its bounds, and an acknowledgement never opens it
        /// by more octets than were outstanding, or one segment.
        #[test]
        fn bounds_hold_for_any_history(mss in any::<u32>(), iw in any::<u32>(), steps in proptest::collection::vec(step(), 1..100)) {
            let mut c = Controller::new(Kind::Cubic, mss, iw);
            let mut now = Time::ZERO;
            for step in steps {
                let before = c.cwnd();
                match step {
                    Step::Ack { octets, flight, rtt_us, wait_us, limited } => {
                        now += Duration::from_micros(wait_us);
                        let starting = c.in_slow_start();
                        c.on_ack(octets, flight, rtt_us.map(Duration::from_micros), now, limited);
                        let grown = c.cwnd() - before;
                        prop_assert!(grown <= octets.min(flight).max(c.window.mss()), "grew by {grown}");
                        prop_assert!(limited || starting || grown == 0);
                    }
                    Step::Congestion(flight) => { c.on_congestion(flight, now); }
                    Step::Exit => c.on_recovery_exit(u32::MAX, now),
                    Step::Timeout(flight) => c.on_timeout(flight, now),
                    Step::Idle(iw) => c.on_idle_restart(iw),
                    Step::Mss(mss) => c.set_mss(mss),
                    Step::Kind(cubic) => c.set_kind(if cubic { Kind::Cubic } else { Kind::NewReno }),
                }
                prop_assert!(c.cwnd() >= c.window.mss() && c.cwnd() <= MAX_WINDOW);
                prop_assert!(c.ssthresh() >= 2 * c.window.mss() && c.ssthresh() <= MAX_WINDOW);
            }
        }
    }
}
