//! An active open takes over the tuple of a connection in TIME-WAIT (`tcp_tw_reuse`).
//!
//! What TIME-WAIT protects from is a segment of the old connection that the new one takes for its own. Timestamps tell
//! them apart once the clock has moved on (RFC 6191, section 2, seen from the accepting end), and sequence numbers that
//! begin beyond a whole window behind the old ones keep even a peer apart that has forgotten the timestamps.

use core::time::Duration;

use observe::{Counter, Time};
use wire::SeqNumber;

use super::Event;
use crate::access::PcbAccess;
use crate::outbox::Outbox;
use crate::state::{Cause, State};

/// The clock of timestamps has moved for certain, and what was under way has mostly arrived.
const SILENCE: Duration = Duration::from_secs(1);

/// So far behind the last sequence number of the old connection begins the new one: the largest window that is not
/// scaled, SYN and FIN.
const DISTANCE: u32 = 65_535 + 2;

/// An active open wants the tuple of this connection. If the connection is in TIME-WAIT, both sides have used
/// timestamps, no user holds it and no segment has arrived for a second, it ends (`out.table` says to remove it).
#[derive(Clone, Copy, Debug)]
pub struct Reclaim;

impl Event for Reclaim {
    /// The initial sequence number for the new connection; `None`: the tuple stays in use.
    type Reply = Option<SeqNumber>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Option<SeqNumber> {
        pcb.whole(out, |mut parts, out| {
            let over = parts.header_in.state == State::TimeWait && !parts.header_in.is_held();
            if !over || !parts.receive_window.timestamps || parts.header_in.silence(now) < SILENCE {
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
