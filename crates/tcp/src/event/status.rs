//! STATUS (RFC 9293 section 3.10.6): a consistent snapshot of all parts of the connection.

use core::time::Duration;

use observe::Time;

use super::fast_open;
use super::{OptionValues, TcpEvent};
use crate::access::{PcbAccess, PcbMut};
use crate::congestion::Kind;
use crate::ecn::{EcnCounts, EcnMode};
use crate::error::Error;
use crate::fast_open::FastOpenFailure;
use crate::outbox::{Outbox, Readiness};
use crate::pcb::shaping::Limited;
use crate::pcb::{HeaderOut, Loss, Rate, RecoveryMode, SendWindow, TimerPurpose};
use crate::sack::DUP_THRESH;
use crate::state::State;

/// Ask for a [`StatusReport`].
#[derive(Clone, Copy, Debug)]
pub struct Status;

/// A connection at one moment; its four-tuple is known to the caller. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct StatusReport {
    /// State.
    pub state: State,
    /// Readiness as a level.
    pub ready: Readiness,
    /// Why the connection ended, if that has not been reported yet.
    pub error: Option<Error>,
    /// A soft error (RFC 9293 section 3.9.1.8), if one was noted since the last segment arrived.
    pub soft_error: Option<Error>,
    /// Our data that is queued, sent or not.
    pub send_queue: u32,
    /// Of that, bytes sent and not acknowledged.
    pub unacknowledged: u32,
    /// Size of the send buffer.
    pub send_buffer: u32,
    /// Data of the peer that the user has not read.
    pub receive_queue: u32,
    /// The peer's data that is queued out of order.
    pub out_of_order: u32,
    /// Size of the receive buffer, bytes of data.
    pub receive_buffer: u32,
    /// The receiver's estimate of the round trip, by which its buffer is sized: the shortest time in which a window was
    /// received; zero before the first.
    pub receive_rtt: Duration,
    /// The most that the user read within such a time; before that is known, ten segments.
    pub receive_space: u32,
    /// Our window, as the peer may know it.
    pub receive_window: u32,
    /// Our window as it was last announced.
    pub announced_window: u32,
    /// The peer's window.
    pub send_window: u32,
    /// Data that one segment of ours carries.
    pub mss: u16,
    /// Congestion control.
    pub congestion: Kind,
    /// Congestion window.
    pub cwnd: u32,
    /// Slow-start threshold.
    pub ssthresh: u32,
    /// The sender is recovering from a loss.
    pub recovering: bool,
    /// The sender's recovery state.
    pub recovery: RecoveryState,
    /// Bytes SACKed by the peer.
    pub sacked: u32,
    /// Bytes that are lost and not sent again yet.
    pub lost: u32,
    /// Bytes that are lost, sent again since or not.
    pub lost_in_all: u32,
    /// Retransmitted bytes in flight.
    pub resent: u32,
    /// Bytes believed to be in the network.
    pub pipe: u32,
    /// Segments sent again since the connection began; those of the handshake are not counted.
    pub total_retransmits: u32,
    /// D-SACK blocks received (RFC 2883).
    pub duplicates_reported: u32,
    /// Times that reordering was seen.
    pub reorderings_seen: u32,
    /// The largest distance in segments by which one was late, between DupThresh and 300. For information only: loss is
    /// decided by time (RFC 8985).
    pub reordering: u32,
    /// Recent minimum of the round-trip time.
    pub min_rtt: Option<Duration>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Retransmission time-out, back-off included.
    pub rto: Duration,
    /// The mode of explicit congestion notification.
    pub ecn: EcnMode,
    /// The ECN counters.
    pub marks: EcnCounts,
    /// Data of the SYN has reached the other side, in either direction (Fast Open).
    pub data_on_syn: bool,
    /// Why Fast Open delivered no data to the peer, if it was tried.
    pub fast_open_failure: Option<FastOpenFailure>,
    /// Both sides use timestamps.
    pub timestamps: bool,
    /// Both sides use selective acknowledgements.
    pub sack: bool,
    /// Shift of the peer's window.
    pub send_shift: u8,
    /// Shift of ours.
    pub receive_shift: u8,
    /// Both sides scale their windows, if only by 0.
    pub window_scaling: bool,
    /// MSS that we announced.
    pub announced_mss: u16,
    /// The path MTU as far as the connection knows: MSS, options and headers.
    pub path_mtu: u32,
    /// Largest data seen in a segment of the peer.
    pub peer_segment: u16,
    /// The acknowledgement time-out, which adapts to the gaps between the peer's segments.
    pub delayed_ack: Duration,
    /// Variation of the round-trip time.
    pub rttvar: Option<Duration>,
    /// Exponent of the RTO's back-off.
    pub backoff: u8,
    /// Time-outs of the oldest segment in flight, without any answer.
    pub retransmits: u8,
    /// Window probes without an answer.
    pub probes: u8,
    /// Bytes per second at which segments leave, if they are paced.
    pub pacing_rate: Option<u64>,
    /// The most that the user allows.
    pub max_pacing_rate: Option<u64>,
    /// Traffic counters.
    pub traffic: Traffic,
    /// The limits of the sender; zero unless [`crate::Config::measure_limits`] is set.
    pub limited: Limited,
    /// Position of the urgent mark in the data not yet taken: bytes up to and including the urgent one.
    pub urgent: Option<u32>,
    /// Options in effect.
    pub options: OptionValues,
}

/// Traffic of a connection since it began. Segments are counted modulo 2^32; a super-segment counts as one, except that
/// `data_segments_out` counts the segments that the device makes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Segments received.
    pub segments_in: u32,
    /// Segments sent.
    pub segments_out: u32,
    /// Segments received in order with data.
    pub data_segments_in: u32,
    /// Segments sent with data or FIN that was new.
    pub data_segments_out: u32,
    /// Segments that arrived at the peer, SACKed or acknowledged, the SYN among them. The flight counts as full
    /// segments.
    pub segments_delivered: u32,
    /// Bytes of data acknowledged.
    pub bytes_acked: u64,
    /// Bytes of data sent, including retransmissions.
    pub bytes_sent: u64,
    /// Bytes of data sent again.
    pub bytes_again: u64,
    /// Segments received out of order.
    pub out_of_order: u32,
    /// Retransmission time-outs, those of the SYN included.
    pub timeouts: u16,
    /// Recoveries that began with one.
    pub timeout_recoveries: u16,
    /// Time in them.
    pub in_timeouts: Duration,
    /// The rate at which data is delivered; nothing unless [`crate::Config::measure_limits`] is set.
    pub rate: Rate,
    /// Bytes of data received in order.
    pub bytes_received: u64,
    /// Since data or FIN was sent.
    pub since_data_sent: Duration,
    /// Since data arrived in order, or the connection was established; to a quarter of a millisecond.
    pub since_data_received: Duration,
    /// Since any segment arrived.
    pub since_heard: Duration,
}

/// The sender's recovery state; the names are those of Linux's `tcpi_ca_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryState {
    /// Nothing is wrong.
    Open,
    /// Something is SACKed, or duplicate acknowledgements come in.
    Disorder,
    /// The window was cut because of a congestion mark, and the flight of that time is not all acknowledged (CWR).
    Reduced,
    /// Fast recovery.
    Recovery,
    /// Recovery from a retransmission time-out.
    Loss,
}

fn recovery_state(sw: &SendWindow, ho: &HeaderOut) -> RecoveryState {
    match sw.mode {
        RecoveryMode::Open | RecoveryMode::Disorder
            if ho.ecn.as_deref().is_some_and(|ecn| ecn.reduced(sw.bytes_acked)) =>
        {
            RecoveryState::Reduced
        }
        RecoveryMode::Open => RecoveryState::Open,
        RecoveryMode::Disorder => {
            let quiet = |loss: &Loss| loss.board.is_empty() && loss.duplicates == 0;
            if sw.loss.as_deref().is_some_and(quiet) { RecoveryState::Open } else { RecoveryState::Disorder }
        }
        RecoveryMode::Recovery => RecoveryState::Recovery,
        RecoveryMode::Loss => RecoveryState::Loss,
    }
}

impl TcpEvent for Status {
    type Reply = StatusReport;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> StatusReport {
        pcb.whole(out, |parts, out| report(&parts, out, now))
    }
}

fn report(parts: &PcbMut<'_>, out: &Outbox<'_>, now: Time) -> StatusReport {
    let persists = parts.send_window.timer_kind == TimerPurpose::Persist;
    let (sw, rw, rq) = (&*parts.send_window, &*parts.receive_window, &*parts.retransmit_queue);
    let loss = sw.loss.as_deref();
    let disorder = loss.filter(|_| sw.mode != RecoveryMode::Open);
    let again = if sw.mode.recovers() { 0 } else { fast_open::sent_again(parts.header_in, sw.una) };
    StatusReport {
        state: parts.header_in.state,
        ready: level(parts, out),
        error: parts.header_in.error,
        soft_error: parts.header_in.soft_error(),
        send_queue: rq.len,
        unacknowledged: sw.flight(),
        send_buffer: sw.limit,
        receive_queue: rw.queued,
        out_of_order: parts.reassembly.bytes(),
        receive_buffer: rw.limit,
        receive_rtt: rw.receive_rtt(),
        receive_space: rw.receive_space(parts.header_out.announce_mss.saturating_sub(sw.option_bytes())),
        receive_window: (rw.edge - rw.nxt).max(0) as u32,
        announced_window: (rw.advertised_edge - rw.last_ack_sent).max(0) as u32,
        send_window: sw.wnd,
        mss: sw.mss,
        congestion: sw.congestion.kind(),
        cwnd: sw.congestion.cwnd(),
        ssthresh: sw.congestion.ssthresh(),
        recovering: sw.mode.recovers(),
        recovery: recovery_state(sw, parts.header_out),
        sacked: sw.sacked(),
        lost: disorder.map_or(0, |loss| loss.lost(sw.una)),
        lost_in_all: disorder.map_or(0, |loss| loss.lost_in_all(sw.una)),
        resent: disorder.map_or(0, |loss| loss.resent_bytes()) + again,
        pipe: sw.pipe(),
        total_retransmits: loss.map_or(0, |loss| loss.totals.retransmits),
        duplicates_reported: loss.map_or(0, |loss| loss.totals.duplicates),
        reorderings_seen: loss.map_or(0, |loss| loss.totals.reorderings),
        reordering: loss.map_or(DUP_THRESH, |loss| DUP_THRESH.max(loss.totals.reordering.into())),
        min_rtt: sw.rtt.min_rtt(),
        srtt: sw.rtt.srtt(),
        rto: sw.rtt.rto(),
        ecn: parts.header_out.ecn.as_deref().map_or(EcnMode::Off, |ecn| ecn.mode),
        marks: parts.header_out.ecn.as_deref().map(|ecn| ecn.counts()).unwrap_or_default(),
        fast_open_failure: fast_open::failure(parts.header_in),
        timestamps: sw.timestamps,
        sack: sw.sack,
        send_shift: sw.shift,
        receive_shift: rw.shift,
        window_scaling: parts.header_out.scales(),
        data_on_syn: parts.header_in.has_data_on_syn(),
        announced_mss: parts.header_out.announce_mss,
        path_mtu: path_mtu(parts),
        peer_segment: rw.peer_segment,
        delayed_ack: rw.delay.time(out.config),
        rttvar: sw.rtt.rttvar(),
        backoff: sw.rtt.backoff_count() as u8,
        retransmits: if persists { 0 } else { sw.unanswered },
        probes: if persists { sw.unanswered } else { 0 },
        pacing_rate: sw.pacing_rate(out.config),
        max_pacing_rate: sw.shaping.as_ref().map(|shaping| shaping.max_rate).filter(|rate| *rate != u64::MAX),
        traffic: traffic(parts, now),
        limited: sw.shaping.as_ref().and_then(|s| s.account).map(|account| account.totals(now)).unwrap_or_default(),
        urgent: rw.urgent_ahead(),
        options: super::options::read(parts, out.config),
    }
}

/// MTU that corresponds to the MSS in use.
fn path_mtu(parts: &PcbMut<'_>) -> u32 {
    let ip = if parts.header_in.is_ipv6() { 40 } else { 20 };
    let options = parts.send_window.option_bytes();
    u32::from(parts.send_window.mss) + u32::from(options) + 20 + ip
}

fn traffic(parts: &PcbMut<'_>, now: Time) -> Traffic {
    let (sw, rw) = (&*parts.send_window, &*parts.receive_window);
    let totals = sw.loss.as_deref().map(|loss| loss.totals).unwrap_or_default();
    let data_in_flight = if parts.send_window.state.is_synchronised() { sw.sent_data() } else { 0 };
    Traffic {
        segments_in: parts.header_in.segments_in,
        segments_out: parts.header_out.segments_out,
        data_segments_in: rw.data_segments_in,
        data_segments_out: sw.data_segments_out,
        segments_delivered: delivered(parts),
        bytes_acked: sw.bytes_acked,
        bytes_sent: sw.bytes_acked + u64::from(data_in_flight) + totals.bytes_again,
        bytes_again: totals.bytes_again,
        out_of_order: parts.reassembly.out_of_order(),
        timeouts: totals.timeouts,
        timeout_recoveries: totals.timeout_recoveries,
        in_timeouts: Duration::from_millis(totals.in_timeouts(now).into()),
        rate: sw.shaping.as_ref().and_then(|s| s.rate.as_ref()).map(|rate| rate.rate()).unwrap_or_default(),
        bytes_received: rw.bytes_received,
        since_data_sent: sw.last_sent.elapsed(now),
        since_data_received: rw.since_data(now),
        since_heard: parts.header_in.silence(now),
    }
}

/// Segments that the peer has: those sent less those in flight, and the SYN.
fn delivered(parts: &PcbMut<'_>) -> u32 {
    let sw = &*parts.send_window;
    if !sw.state.is_synchronised() {
        return 0;
    }
    let data = sw.sent_data().saturating_sub(sw.sacked());
    let fin_alone = data == 0 && sw.flight() > sw.sent_data();
    let in_flight = data.div_ceil(sw.mss.into()) + u32::from(fin_alone);
    // Counted in segments of the present MSS, the flight may be more segments than were sent. The SYN of a connection
    // that is open early is not acknowledged.
    sw.data_segments_out
        .saturating_sub(in_flight)
        .saturating_add(u32::from(parts.header_in.state != State::SynReceived))
}

fn level(parts: &PcbMut<'_>, out: &Outbox<'_>) -> Readiness {
    let state = parts.header_in.state;
    let mut ready = Readiness::NONE;
    let mut set = |condition, bit| {
        if condition {
            ready |= bit;
        }
    };
    let closed = state == State::Closed;
    set(closed, Readiness::CLOSED);
    set(parts.header_in.error.is_some(), Readiness::ERROR);
    set(closed || parts.receive_window.is_readable() || parts.receive_window.discards(), Readiness::READABLE);
    // The send window's copy: a connection may be open before its handshake is complete.
    let sw = &*parts.send_window;
    let writable = sw.state.is_synchronised() && sw.is_writable(parts.retransmit_queue, out.config, out.scarcity);
    set(closed || parts.send_window.fin_queued() || writable, Readiness::WRITABLE);
    set(parts.receive_window.finished(), Readiness::PEER_CLOSED);
    set(state.is_synchronised(), Readiness::CONNECTED);
    set(parts.receive_window.urgent_valid, Readiness::URGENT);
    ready
}
