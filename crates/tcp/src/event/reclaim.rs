//! An active open takes over the tuple of a connection in TIME-WAIT (`tcp_tw_reuse`).
//!
//! TIME-WAIT protects from segments of the old connection that the new one would accept. Timestamps distinguish them
//! once the clock has advanced (RFC 6191, section 2, seen from the accepting end). An initial sequence number more than
//! a window beyond the old ones protects even if the peer has lost the timestamps.

use core::time::Duration;

use observe::{Counter, Time};
use wire::SeqNumber;

use super::TcpEvent;
use crate::access::PcbAccess;
use crate::outbox::Outbox;
use crate::state::{Cause, State};

/// By then the timestamp clock has advanced, and most segments in the network have arrived.
const SILENCE: Duration = Duration::from_secs(1);

/// Distance of the new initial sequence number from the last one of the old connection: the largest unscaled window,
/// SYN and FIN.
const DISTANCE: u32 = 65_535 + 2;

/// An active open requests the tuple of this connection. If the connection is in TIME-WAIT, both sides have used
/// timestamps, no user holds it and no segment has arrived for a second, it ends (`out.table` requests its removal).
#[derive(Clone, Copy, Debug)]
pub struct Reclaim;

impl TcpEvent for Reclaim {
    /// The initial sequence number for the new connection; `None`: the tuple stays in use.
    type Reply = Option<SeqNumber>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Option<SeqNumber> {
        pcb.whole(out, |mut parts, out| {
            let over = parts.header_in.state == State::TimeWait && !parts.header_in.is_held();
            if !over || !parts.receive_window.timestamps() || parts.header_in.silence(now) < SILENCE {
                return None;
            }
            out.count(Counter::TimeWaitReused, 1);
            let next = parts.send_window.nxt + DISTANCE;
            parts.enter(Cause::Expired, out, now);
            parts.release(out);
            Some(next)
        })
    }
}
