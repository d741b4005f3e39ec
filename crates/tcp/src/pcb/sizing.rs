//! How large the receive buffer must be: dynamic right-sizing (Fisk and Feng, 2001), measured round by round.
//!
//! A *round* ends when data beyond the presently advertised window arrives, which the peer cannot have sent before our
//! next acknowledgement: a round takes a round trip or longer, and the shortest one is the receiver's estimate of the
//! round trip, without timestamps and without data of its own. The bytes that the user read in a round, scaled to a
//! round trip, are the connection's demand; the buffer has room for twice that, and for more while it still rises,
//! because a sender in slow start is a round ahead of the measurement. Called for arriving data, and by the report;
//! boxed, because most connections never complete a round. What may never happen: a buffer that grows while its user
//! does not read, or that shrinks except under memory pressure.

use core::time::Duration;

use observe::Time;
use wire::SeqNumber;

use super::ReceiveWindow;
use crate::config::Config;
use crate::scarcity::{Pressure, Scarcity};

/// A shorter round trip counts as this long: it then depends on threads, not on the path.
const LEAST_RTT: Duration = Duration::from_millis(1);

/// The results of the rounds.
#[derive(Debug)]
pub(crate) struct Sizing {
    /// When this round began.
    since: Time,
    /// The shortest recent round; zero before the first is over.
    rtt: Duration,
    /// The first unread byte at that time.
    from: SeqNumber,
    /// The most that the user ever read within a round trip, in bytes.
    pub(crate) space: u32,
}

impl Sizing {
    /// A round of `took` is over. A shorter one replaces the estimate at once; a longer one, which may only mean that
    /// the peer had nothing to send, raises it by a sixteenth.
    fn learn(&mut self, took: Duration) {
        self.rtt =
            if self.rtt.is_zero() || took < self.rtt { took } else { self.rtt + (took - self.rtt).min(self.rtt) / 16 };
    }

    /// `bytes`, read in a round of `took`, scaled to a round trip.
    fn per_round_trip(&self, bytes: u32, took: Duration) -> u32 {
        let rtt = self.rtt.max(LEAST_RTT);
        if took <= rtt {
            return bytes;
        }
        (u128::from(bytes) * rtt.as_nanos() / took.as_nanos()) as u32
    }

    /// The buffer for `read` bytes per round trip, of at most `self.space` before: twice as much and some segments,
    /// enlarged by twice the relative rise, to four times at most.
    fn wanted(&self, read: u32, segment: u32) -> u32 {
        let twice = u64::from(read) * 2 + 16 * u64::from(segment);
        // The rise is capped at `self.space`: the result is then at its maximum.
        let rise = u64::from(read - self.space).min(u64::from(self.space.max(1)));
        let rise = twice * 2 * rise / u64::from(self.space.max(1));
        (twice + rise).min(twice * 2).min(1 << 30) as u32
    }
}

impl ReceiveWindow {
    /// Resizes the buffer if a round is over.
    #[inline]
    pub(crate) fn grow(&mut self, config: &Config, scarcity: Scarcity, now: Time) {
        if self.nxt.ge(self.round_end) {
            self.end_round(config, scarcity, now);
        }
    }

    #[cold]
    fn end_round(&mut self, config: &Config, scarcity: Scarcity, now: Time) {
        let read_to = self.nxt - self.unread();
        let first = first_space(self.limit, self.peer_segment);
        let segment = u32::from(self.peer_segment);
        let Some(sizing) = &mut self.sizing else {
            let fresh = Sizing { since: now, rtt: Duration::ZERO, from: read_to, space: first };
            self.sizing = Some(Box::new(fresh));
            // Nothing is measured yet, but a sender in slow start at this point is one round trip from the window's
            // end.
            let came = opening(self.limit) + (self.nxt - self.round_end).max(0) as u32;
            let keeps_up = self.unread() <= came / 2;
            self.resize(if keeps_up { self.limit.saturating_mul(2) } else { 0 }, config, scarcity);
            return self.begin_round();
        };
        // A thread with an older batch may have a `now` before the beginning.
        let took = (now - sizing.since).max(Duration::from_nanos(1));
        sizing.learn(took);
        let read = sizing.per_round_trip((read_to - sizing.from).max(0) as u32, took);
        (sizing.since, sizing.from) = (now, read_to);
        let wanted = if read > sizing.space {
            let wanted = sizing.wanted(read, segment);
            sizing.space = read;
            wanted
        } else {
            0
        };
        self.resize(wanted, config, scarcity);
        self.begin_round();
    }

    /// The new round ends beyond everything that was advertised, or is about to be. A scaled window is rounded up by
    /// less than a unit.
    fn begin_round(&mut self) {
        self.open_window();
        self.round_end = self.edge + (1 << self.shift);
    }

    /// `wanted`: the right size of the buffer in bytes; 0: unchanged.
    fn resize(&mut self, wanted: u32, config: &Config, scarcity: Scarcity) {
        if !self.grows {
            return;
        }
        match scarcity.memory() {
            // The announced window stays; it is not opened again beyond the new limit. The measurement with a larger
            // one is discarded, or the buffer would never grow again.
            Pressure::Severe => {
                self.limit = (self.limit / 2).max(config.receive_buffer.min.min(self.limit));
                self.sizing.iter_mut().for_each(|sizing| sizing.space = sizing.space.min(self.limit / 2));
            }
            Pressure::None if config.receive_growth => {
                self.limit = self.limit.max(wanted.min(config.receive_buffer.max));
            }
            _ => {}
        }
    }

    /// The receiver's estimate of the round trip; zero before a window has passed.
    pub(crate) fn receive_rtt(&self) -> Duration {
        self.sizing.as_ref().map_or(Duration::ZERO, |sizing| sizing.rtt)
    }

    /// The most that the user ever read within a round trip, in bytes; before that was measured, a first flight of
    /// segments of `mss`.
    pub(crate) fn receive_space(&self, mss: u16) -> u32 {
        self.sizing.as_ref().map_or(first_space(self.limit, mss), |sizing| sizing.space)
    }
}

/// Bytes of data that a connection receives before anything is measured: one that receives only a request needs no
/// larger buffer.
pub(super) fn opening(limit: u32) -> u32 {
    limit.min(u32::from(u16::MAX)) / 4
}

/// A first flight (RFC 6928), or the space of a buffer that need not grow.
fn first_space(limit: u32, segment: u16) -> u32 {
    (10 * u32::from(segment)).min(limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConnectionOptions;
    use crate::state::State;

    const MS: Duration = Duration::from_millis(1);

    fn sizing() -> Sizing {
        Sizing { since: Time::ZERO, rtt: Duration::ZERO, from: SeqNumber(0), space: 10_000 }
    }

    #[test]
    fn the_shortest_round_counts_and_a_longer_one_only_little() {
        let mut s = sizing();
        s.learn(50 * MS);
        s.learn(20 * MS);
        assert_eq!(s.rtt, 20 * MS);
        s.learn(3600 * 1000 * MS);
        assert_eq!(s.rtt, 20 * MS + 20 * MS / 16, "an hour of silence is no path of an hour");
        // The path has become longer for good.
        (0..100).for_each(|_| s.learn(200 * MS));
        assert!(s.rtt > 150 * MS && s.rtt <= 200 * MS, "{:?}", s.rtt);
    }

    #[test]
    fn what_is_read_slowly_is_scaled_to_a_round_trip() {
        let mut s = sizing();
        s.learn(20 * MS);
        assert_eq!(s.per_round_trip(60_000, 60 * MS), 20_000);
        assert_eq!(s.per_round_trip(60_000, 20 * MS), 60_000);
        s.rtt = Duration::from_micros(10);
        assert_eq!(s.per_round_trip(60_000, MS), 60_000, "a machine's own pauses make no path");
    }

    #[test]
    fn room_for_twice_what_is_read_and_for_four_times_while_it_rises() {
        let s = sizing();
        assert_eq!(s.wanted(10_000, 1000), 36_000);
        assert_eq!(s.wanted(11_000, 1000), 38_000 + 38_000 * 2 / 10);
        assert_eq!(s.wanted(40_000, 1000), 192_000);
        assert_eq!(s.wanted(u32::MAX, u32::from(u16::MAX)), 1 << 30);
    }

    /// One window per `rtt`, which the user reads at once.
    fn rounds(rw: &mut ReceiveWindow, config: &Config, count: u32, rtt: Duration) {
        for round in 0..count {
            rw.bytes_received += u64::from((rw.round_end - rw.nxt) as u32);
            rw.nxt = rw.round_end;
            rw.grow(config, Scarcity::NONE, Time::from_millis(1000) + rtt * round);
            rw.open_window();
            rw.advertised_edge = rw.edge;
        }
    }

    fn window(config: &Config) -> ReceiveWindow {
        let mut rw = ReceiveWindow::new(State::Established, 65_535, &ConnectionOptions::default(), config, Time::ZERO);
        rw.shift = config.window_shift();
        rw.peer_segment = 1460;
        rw.synchronise(SeqNumber(0xffff_f000));
        rw
    }

    #[test]
    fn a_connection_that_fills_its_window_comes_to_the_largest_buffer_and_no_further() {
        let config = Config::default();
        let mut rw = window(&config);
        rounds(&mut rw, &config, 3, 100 * MS);
        assert!(rw.limit > 2 * config.receive_buffer.initial, "{}", rw.limit);
        let mut rw = window(&config);
        rounds(&mut rw, &config, 10, 100 * MS);
        assert_eq!((rw.limit, rw.receive_rtt()), (config.receive_buffer.max, 100 * MS));
        assert!(rw.receive_space(1460) >= config.receive_buffer.max, "{}", rw.receive_space(1460));
    }

    #[test]
    fn who_does_not_read_and_who_set_a_size_keeps_what_it_has() {
        let config = Config::default();
        let mut rw = window(&config);
        let (limit, first) = (rw.limit, rw.nxt);
        for round in 1..5 {
            rw.nxt = rw.round_end;
            rw.queued = (rw.nxt - first) as u32;
            rw.grow(&config, Scarcity::NONE, Time::from_millis(1000 + 100 * round));
        }
        assert_eq!(rw.limit, limit, "nothing was read");
        let mut rw = window(&config);
        rw.grows = false;
        rounds(&mut rw, &config, 10, 100 * MS);
        assert_eq!((rw.limit, rw.receive_rtt()), (limit, 100 * MS), "measured all the same");
    }
}
