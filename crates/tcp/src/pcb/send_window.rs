//! The send-window part: the progress of sending, the limits of the peer and of the network, and the one timer for all
//! of this.
//!
//! SND.NXT never moves back. Retransmissions are found from `mode` and `loss`, so loss recovery never disturbs the
//! order of new bytes (invariant G7).

use core::time::Duration;

use observe::{Counter, Time};
use wire::SeqNumber;
use wire::tcp::Header;

use super::{Hold, Loss, MtuSearch, Rare, SenderLimit, Shaping};
use crate::config::{Config, ConnectionOptions};
use crate::congestion::{Controller, Kind};
use crate::isn::{ChildIdentity, Isn};
use crate::outbox::LocalEffects;
use crate::rtt::RttEstimator;
use crate::state::State;
use crate::tick::Tick;

/// Bytes of the timestamps option in a segment.
pub(crate) const TIMESTAMPS_LEN: u16 = 12;

/// Added to every probe time-out, for timers with a granularity of a millisecond and peers that coalesce segments; and
/// to the reordering window on a path that reorders.
pub(crate) const TIMER_SLACK: Duration = Duration::from_millis(2);

/// The same for a probe of recovery that repeats data. New data was sent before it, and if only an acknowledgement was
/// lost, that data arrives alone and in order: its acknowledgement may be delayed (RFC 8985 section 7.2 allows for that
/// where one segment is in flight), by 40 ms on Linux and FreeBSD, and by a busy host.
pub(crate) const RECOVERY_SLACK: Duration = Duration::from_millis(50);
/// Probes of recovery before its retransmission time-out: new data, and then the retransmission again.
pub(crate) const RECOVERY_PROBES: u8 = 2;

/// The sender's recovery state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryMode {
    /// No sign of loss.
    Open,
    /// Something is SACKed, duplicate acknowledgements are coming in, or a tail loss probe is out.
    Disorder,
    /// Fast recovery: RFC 8985 and 9937 with SACK, RFC 6582 without.
    Recovery,
    /// A retransmission time-out: everything unacknowledged is sent again in slow start.
    Loss,
}

impl RecoveryMode {
    /// Whether data is being retransmitted.
    #[inline]
    pub(crate) fn recovers(self) -> bool {
        matches!(self, RecoveryMode::Recovery | RecoveryMode::Loss)
    }
}

/// The purpose of `SendWindow::timer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerPurpose {
    /// Nothing.
    Off,
    /// Retransmission time-out (RFC 6298).
    Retransmit,
    /// Tail loss probe (RFC 8985 section 7); the retransmission time-out follows it.
    Probe,
    /// End of the reordering window (RFC 8985 section 6); the retransmission time-out follows it.
    Reorder,
    /// Window probe (RFC 9293 section 3.8.6.1).
    Persist,
    /// End of the time for which a corked segment is held back.
    Cork,
}

impl TimerPurpose {
    /// Whether it guards the flight.
    #[inline]
    pub(crate) fn guards_flight(self) -> bool {
        matches!(self, TimerPurpose::Retransmit | TimerPurpose::Probe | TimerPurpose::Reorder)
    }
}

/// The notifications of the sending side that the user waits for; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Awaited(u8);

impl Awaited {
    /// Room: a send found none, or not enough.
    pub(crate) const ROOM: Awaited = Awaited(1);
    /// The next acknowledgement of new data.
    pub(crate) const ACKNOWLEDGEMENT: Awaited = Awaited(2);

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn contains(self, other: Awaited) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn insert(&mut self, other: Awaited) {
        self.0 |= other.0;
    }

    pub(crate) fn remove(&mut self, other: Awaited) {
        self.0 &= !other.0;
    }
}

/// See the module documentation.
#[derive(Debug)]
#[repr(C)]
pub struct SendWindow {
    // Fields up to `ts_offset` are not touched by a call.
    /// Bytes of data that were acknowledged.
    pub(crate) bytes_acked: u64,
    pub(crate) congestion: Controller,
    /// The record of losses, from the first disorder on; valid unless `mode` is `Open`.
    pub(crate) loss: Option<Box<Loss>>,
    /// SEG.SEQ of the last window update.
    pub(crate) wl1: SeqNumber,
    /// SEG.ACK of the last window update.
    pub(crate) wl2: SeqNumber,
    /// Largest window that the peer ever offered.
    pub(crate) max_wnd: u32,
    /// Offset of our timestamp clock, in ms, to read echoes.
    pub(crate) ts_offset: u32,
    // Fields that segments and calls touch.
    pub(crate) timer: Time,
    /// Earliest wake requested by this part and still pending.
    pub(crate) armed: Time,
    /// Limits that few connections have.
    pub(crate) shaping: Option<Box<Shaping>>,
    pub(crate) una: SeqNumber,
    pub(crate) nxt: SeqNumber,
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //# It is RECOMMENDED that implementations will reserve 32-bit fields for the send and receive window sizes in the
    //# connection record and do all window computations with 32 bits (REC-1).
    pub(crate) wnd: u32,
    /// End of the last segment sent that was not full (Nagle's test, as modified by Minshall).
    pub(crate) small_end: SeqNumber,
    /// The acknowledgement of this sequence number gives an RTT sample, if `rtt` is timing one.
    pub(crate) timed: SeqNumber,
    /// Size of the send buffer.
    pub(crate) limit: u32,
    /// New segments sent with data or FIN, modulo 2^32.
    pub(crate) data_segments_out: u32,
    /// Time of the last progress (user time-out).
    pub(crate) progress: Tick,
    /// When data or FIN was last sent (restart after idle).
    pub(crate) last_sent: Tick,
    pub(crate) rtt: RttEstimator,
    /// Bytes of data that a segment of ours may carry.
    pub(crate) mss: u16,
    /// The rare states of this side.
    pub(crate) rare: Rare,
    /// The peer's window shift.
    pub(crate) shift: u8,
    /// Probes or time-outs without any answer.
    pub(crate) unanswered: u8,
    pub(crate) hold: Hold,
    /// The events that the user waits for.
    pub(crate) awaited: Awaited,
    /// Copy of `HeaderIn::state`.
    pub(crate) state: State,
    pub(crate) timer_kind: TimerPurpose,
    pub(crate) mode: RecoveryMode,
    pub(crate) no_delay: bool,
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    /// The FIN has been sent (and counts in `nxt`).
    pub(crate) fin_sent: bool,
    /// The last transmission stopped at the congestion window.
    pub(crate) cwnd_limited: bool,
    /// The send buffer may grow.
    pub(crate) grows: bool,
}

impl SendWindow {
    #[inline(always)]
    pub(crate) fn new(isn: &Isn, mss: u16, options: &ConnectionOptions, config: &Config, now: Time) -> Self {
        let iss = isn.iss;
        let kind = options.congestion.unwrap_or(config.congestion);
        let shaping = Shaping::of(options, config);
        let window = initial_window(shaping.as_deref(), config, mss);
        SendWindow {
            una: iss,
            nxt: iss,
            wnd: 0,
            wl1: SeqNumber(0),
            wl2: SeqNumber(0),
            max_wnd: 0,
            small_end: iss,
            timed: iss,
            mss,
            ts_offset: isn.ts_offset,
            state: State::Closed,
            mode: RecoveryMode::Open,
            rare: Rare::of_new_sender(shaping.is_some()),
            timer_kind: TimerPurpose::Off,
            shift: 0,
            unanswered: 0,
            no_delay: options.no_delay,
            hold: Hold::new(options.cork),
            timestamps: false,
            sack: false,
            fin_sent: false,
            cwnd_limited: false,
            awaited: Awaited::default(),
            grows: options.send_buffer.is_none(),
            limit: options.send_buffer.unwrap_or(config.send_buffer.initial).clamp(1, 1 << 30),
            data_segments_out: 0,
            bytes_acked: 0,
            rtt: RttEstimator::new(&config.rto),
            timer: Time::MAX,
            armed: Time::MAX,
            progress: Tick::of(now),
            last_sent: Tick::of(now),
            congestion: Controller::new(kind, u32::from(mss), window),
            shaping,
            loss: None,
        }
    }

    /// Another one that has sent a SYN like this one's, and nothing else.
    #[inline(always)]
    pub(crate) fn like(&self, identity: &ChildIdentity<'_>) -> Self {
        let iss = identity.isn.iss;
        SendWindow {
            bytes_acked: self.bytes_acked,
            congestion: self.congestion.without_curve(),
            loss: None,
            wl1: identity.irs,
            wl2: iss,
            max_wnd: self.max_wnd,
            ts_offset: identity.isn.ts_offset,
            timer: self.timer,
            armed: self.armed,
            shaping: None,
            una: iss,
            nxt: iss + 1,
            wnd: self.wnd,
            small_end: iss,
            timed: iss + 1,
            limit: self.limit,
            data_segments_out: self.data_segments_out,
            progress: Tick::of(identity.now),
            last_sent: Tick::of(identity.now),
            rtt: self.rtt.clone(),
            mss: self.mss,
            rare: self.rare,
            shift: self.shift,
            unanswered: self.unanswered,
            hold: self.hold,
            awaited: self.awaited,
            state: self.state,
            timer_kind: self.timer_kind,
            mode: self.mode,
            no_delay: self.no_delay,
            timestamps: self.timestamps,
            sack: self.sack,
            fin_sent: self.fin_sent,
            cwnd_limited: self.cwnd_limited,
            grows: self.grows,
        }
    }

    /// Bytes sent and not acknowledged.
    #[inline]
    pub(crate) fn flight(&self) -> u32 {
        (self.nxt - self.una) as u32
    }

    /// The bytes that a loss reduces: the flight, or the window that it could have filled.
    pub(crate) fn outstanding(&self, config: &Config) -> u32 {
        let whole = config.cubic_cuts_window && self.congestion.kind() == Kind::Cubic;
        if whole { self.flight().max(self.congestion.cwnd()) } else { self.flight() }
    }

    /// Bytes of the send queue that were sent, FIN not counted.
    #[inline]
    pub(crate) fn sent_data(&self) -> u32 {
        let flight = self.flight();
        flight - u32::from(self.fin_sent && flight > 0)
    }

    /// End of the peer's window.
    #[inline]
    pub(crate) fn right_edge(&self) -> SeqNumber {
        self.una + self.wnd
    }

    /// Estimate of the bytes in the network ("pipe"; without SACK every duplicate acknowledgement counts as a segment
    /// that left the network, which is equivalent to RFC 6582's window inflation).
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        if self.mode == RecoveryMode::Open { self.flight() } else { self.pipe_in_disorder() }
    }

    fn pipe_in_disorder(&self) -> u32 {
        let Some(loss) = &self.loss else { return self.flight() };
        if self.sack || self.mode == RecoveryMode::Loss {
            return loss.pipe(self.una, self.nxt);
        }
        // The first segment is lost until it is retransmitted.
        let gone = u32::from(loss.duplicates) + u32::from(loss.resend_first);
        self.flight().saturating_sub(gone * u32::from(self.mss))
    }

    /// The record of losses, which begins now if there was no disorder before.
    pub(crate) fn begin_disorder(&mut self) -> &mut Loss {
        let una = self.una;
        if self.mode == RecoveryMode::Open {
            self.set_mode(RecoveryMode::Disorder);
            let loss = self.loss.get_or_insert_with(|| Loss::new(una));
            loss.begin(una);
            return loss;
        }
        self.loss.get_or_insert_with(|| Loss::new(una))
    }

    /// Transmissions within this many microseconds of each other are not distinguished: 1/32 of the round trip, and a
    /// quarter of the least one (RFC 8985 section 4).
    #[inline]
    pub(crate) fn slice_width(&self) -> u32 {
        (self.rtt.srtt_us() >> 5).min(self.rtt.min_rtt_us() >> 2)
    }

    /// Sets the timer that guards the flight: a tail loss probe while there is no disorder, else usually the
    /// retransmission time-out.
    #[inline(always)]
    pub(crate) fn guard_flight(&mut self, config: &Config, now: Time) {
        let probes = self.sack && config.tail_loss_probe;
        if probes && (self.mode == RecoveryMode::Open || self.may_probe_recovery()) {
            let at = self.rtt.probe_deadline(now, self.ack_delay(config));
            self.set_timer(TimerPurpose::Probe, at);
        } else {
            self.set_timer(TimerPurpose::Retransmit, self.rtt.deadline(now));
        }
    }

    /// Whether to probe in recovery: if the peer holds data out of order it acknowledges at once (RFC 5681 section
    /// 4.2), and two silent round trips mean that the retransmission is lost, too. New data is sent first, if there is
    /// any: its acknowledgement shows the loss, and the transmission is never wasted. This goes beyond RFC 8985,
    /// similar to RFC 9002 section 6.2; the window is not changed.
    fn may_probe_recovery(&self) -> bool {
        self.mode.recovers()
            && self.rtt.backoff_count() == 0
            && self.loss.as_ref().is_some_and(|loss| loss.probes < RECOVERY_PROBES && !loss.board.is_empty())
    }

    /// How long the peer may delay its acknowledgement: only that of a single segment is delayed.
    #[inline(always)]
    pub(crate) fn ack_delay(&self, config: &Config) -> Duration {
        match self.mode {
            RecoveryMode::Open if self.flight() <= u32::from(self.mss) => config.peer_ack_delay,
            RecoveryMode::Open | RecoveryMode::Disorder => TIMER_SLACK,
            RecoveryMode::Recovery | RecoveryMode::Loss => {
                let repeats = self.loss.as_ref().is_some_and(|loss| loss.probes > 0);
                if repeats { RECOVERY_SLACK } else { TIMER_SLACK }
            }
        }
    }

    /// Sets the timer; [`SendWindow::arm`] requests the wake.
    #[inline]
    pub(crate) fn set_timer(&mut self, kind: TimerPurpose, at: Time) {
        self.timer_kind = kind;
        self.timer = at;
    }

    /// Stops the timer. A wake already requested still comes, and does nothing.
    #[inline]
    pub(crate) fn stop_timer(&mut self) {
        self.set_timer(TimerPurpose::Off, Time::MAX);
    }

    /// Requests a wake for the timer, unless an earlier one is pending. A timer that only moved later costs nothing:
    /// the early wake finds it not due and requests another.
    #[inline]
    pub(crate) fn arm(&mut self, out: &mut LocalEffects<'_>) {
        if let Some(wake) = self.wake() {
            out.wake_by(wake);
        }
    }

    /// The wake that [`SendWindow::arm`] requests.
    #[inline(always)]
    pub(crate) fn wake(&mut self) -> Option<Time> {
        let earlier = self.timer < self.armed;
        if earlier {
            self.armed = self.timer;
        }
        earlier.then_some(self.timer)
    }

    /// SND.UNA has moved, and `queued` bytes of data are left: updates the delivery rate, and the account of what
    /// limits the sender, which stops when nothing waits any more.
    #[cold]
    pub(crate) fn measure(&mut self, queued: u32, now: Time) {
        let (una, delivered, idle) = (self.una, self.delivered_bytes(), self.flight() == 0 && queued == 0);
        let min_rtt = self.rtt.min_rtt_us();
        let Some(shaping) = &mut self.shaping else { return };
        if let Some(rate) = &mut shaping.rate {
            rate.acknowledged(una, delivered, now.as_micros() as u32, min_rtt);
        }
        if let Some(account) = shaping.account.as_mut().filter(|_| idle) {
            account.note(SenderLimit::Idle, now);
        }
    }

    /// Bytes of data that have arrived, acknowledged or SACKed, modulo 2^32.
    pub(crate) fn delivered_bytes(&self) -> u32 {
        (self.bytes_acked as u32).wrapping_add(self.sacked())
    }

    /// Bytes in flight that are SACKed.
    pub(crate) fn sacked(&self) -> u32 {
        self.loss.as_deref().filter(|_| self.mode != RecoveryMode::Open).map_or(0, |loss| loss.board.sacked_bytes())
    }

    /// The limits that few connections have, allocated if necessary.
    pub(crate) fn shaping(&mut self, config: &Config) -> &mut Shaping {
        if self.shaping.is_none() {
            self.note_shaped();
        }
        self.shaping.get_or_insert_with(|| Shaping::new(config))
    }

    /// The pacing rate in bytes per second, if segments are paced: the configured per cent of cwnd / SRTT, but never
    /// more than the user allows.
    pub(crate) fn pacing_rate(&self, config: &Config) -> Option<u64> {
        let shaping = self.shaping.as_ref().filter(|shaping| shaping.paced)?;
        let cwnd = self.congestion.cwnd();
        let percent =
            if cwnd < self.congestion.ssthresh() / 2 { config.pacing.slow_start } else { config.pacing.avoidance };
        let Some(srtt) = self.rtt.srtt().map(|srtt| srtt.as_micros() as u64).filter(|srtt| *srtt > 0) else {
            return Some(shaping.max_rate).filter(|rate| *rate != u64::MAX);
        };
        Some((u64::from(cwnd) * 10_000 * u64::from(percent) / srtt).clamp(1, shaping.max_rate.max(1)))
    }

    /// The initial window in bytes.
    pub(crate) fn initial_window(&self, config: &Config) -> u32 {
        initial_window(self.shaping.as_deref(), config, self.mss)
    }

    /// Bytes of options in every segment.
    pub(crate) fn option_bytes(&self) -> u16 {
        if self.timestamps { TIMESTAMPS_LEN } else { 0 }
    }

    /// Segments carry `mss` bytes of data from now on.
    pub(crate) fn change_mss(&mut self, mss: u16) {
        self.mss = mss;
        self.congestion.set_mss(u32::from(mss));
    }

    /// The search for the path's MTU, if there is one.
    #[inline]
    pub(crate) fn mtu_search(&mut self) -> Option<&mut MtuSearch> {
        self.shaping.as_mut().and_then(|shaping| shaping.mtu_search.as_mut())
    }

    /// Starts a search between `Config::base_mss` and the size in use; returns the former, in bytes of data and
    /// options.
    #[cold]
    pub(crate) fn search_mtu(&mut self, config: &Config, now: Time) -> u16 {
        let limit = self.mss + self.option_bytes();
        let search = MtuSearch::new(config.base_mss.max(config.min_mss), limit, now);
        let low = search.low();
        self.shaping(config).mtu_search = Some(search);
        low
    }

    /// Takes a round-trip sample from the timestamp that the peer has echoed (RFC 7323 section 4).
    #[cold]
    pub(crate) fn sample_echo(&mut self, header: &Header, out: &LocalEffects<'_>, now: Time) {
        let Some(timestamps) = header.options.timestamps else { return };
        let sent = timestamps.echo.wrapping_sub(self.ts_offset);
        let elapsed = (now.as_millis() as u32).wrapping_sub(sent);
        // An echo from the future, or older than any round trip, is not a sample.
        if elapsed < 1 << 22 {
            let expected = self.flight() / (2 * u32::from(self.mss)) + 1;
            self.rtt.sample_one_of(Duration::from_millis(u64::from(elapsed)), expected, now, &out.config.rto);
            out.count(Counter::RttSamples, 1);
        }
    }
}

/// The initial window in bytes (RFC 6928 with the configured number of segments).
fn initial_window(own: Option<&Shaping>, config: &Config, mss: u16) -> u32 {
    let mss = u32::from(mss);
    match own.map_or(0, |shaping| shaping.initial_window) {
        0 => (u32::from(config.initial_window.max(1)) * mss).min(config.initial_window_bytes.max(2 * mss)),
        segments => u32::from(segments) * mss,
    }
}
