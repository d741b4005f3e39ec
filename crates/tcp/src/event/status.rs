//! STATUS (RFC 9293 section 3.10.6): a picture of the connection, all parts at one moment.

use core::time::Duration;

use observe::Time;
use wire::FourTuple;

use super::Event;
use crate::access::{PcbAccess, PcbMut};
use crate::congestion::Kind;
use crate::error::Error;
use crate::outbox::{Outbox, Readiness};
use crate::pcb::Mode;
use crate::state::State;

/// Ask for a [`StatusReport`].
#[derive(Clone, Copy, Debug)]
pub struct Status;

/// A connection at one moment. Sizes are in octets.
#[derive(Clone, Debug)]
pub struct StatusReport {
    /// State.
    pub state: State,
    /// Both ends.
    pub tuple: FourTuple,
    /// Readiness as a level.
    pub ready: Readiness,
    /// Why the connection ended, if nobody has been told yet.
    pub error: Option<Error>,
    /// Text of ours that is queued, sent or not.
    pub send_queue: u32,
    /// Of that, octets sent and not acknowledged.
    pub unacknowledged: u32,
    /// Size of the send buffer.
    pub send_buffer: u32,
    /// Text of the peer that the user has not read.
    pub receive_queue: u32,
    /// Text of the peer that waits for text before it.
    pub out_of_order: u32,
    /// Size of the receive buffer.
    pub receive_buffer: u32,
    /// Our window, as the peer may know it.
    pub receive_window: u32,
    /// The peer's window.
    pub send_window: u32,
    /// Text that one segment of ours carries.
    pub mss: u16,
    /// Congestion control.
    pub congestion: Kind,
    /// Congestion window.
    pub cwnd: u32,
    /// Slow-start threshold.
    pub ssthresh: u32,
    /// The sender is recovering from a loss.
    pub recovering: bool,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Retransmission time-out, back-off included.
    pub rto: Duration,
    /// Both sides use timestamps.
    pub timestamps: bool,
    /// Both sides use selective acknowledgements.
    pub sack: bool,
    /// Shift of the peer's window.
    pub send_shift: u8,
    /// Shift of ours.
    pub receive_shift: u8,
}

impl Event for Status {
    type Reply = StatusReport;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, _now: Time) -> StatusReport {
        pcb.whole(out, |parts, _| report(&parts))
    }
}

fn report(parts: &PcbMut<'_>) -> StatusReport {
    let (sw, rw, rq) = (&*parts.send_window, &*parts.receive_window, &*parts.retransmit_queue);
    StatusReport {
        state: parts.header_in.state,
        tuple: parts.header_in.tuple,
        ready: level(parts),
        error: parts.header_in.error,
        send_queue: rq.len,
        unacknowledged: sw.flight(),
        send_buffer: sw.limit,
        receive_queue: rw.queued,
        out_of_order: parts.reassembly.bytes(),
        receive_buffer: rw.limit,
        receive_window: (rw.edge - rw.nxt).max(0) as u32,
        send_window: sw.wnd,
        mss: sw.mss,
        congestion: sw.congestion.kind(),
        cwnd: sw.congestion.cwnd(),
        ssthresh: sw.congestion.ssthresh(),
        recovering: sw.mode != Mode::Open,
        srtt: sw.rtt.srtt(),
        rto: sw.rtt.rto(),
        timestamps: sw.timestamps,
        sack: sw.sack,
        send_shift: sw.shift,
        receive_shift: rw.shift,
    }
}

fn level(parts: &PcbMut<'_>) -> Readiness {
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
    set(closed || parts.receive_window.is_readable() || parts.receive_window.discard, Readiness::READABLE);
    let writable = state.is_synchronised() && parts.send_window.is_writable(parts.retransmit_queue);
    set(closed || parts.send_window.fin_queued || writable, Readiness::WRITABLE);
    set(parts.receive_window.finished, Readiness::PEER_CLOSED);
    set(state.is_synchronised(), Readiness::CONNECTED);
    set(parts.receive_window.urgent_valid, Readiness::URGENT);
    ready
}
