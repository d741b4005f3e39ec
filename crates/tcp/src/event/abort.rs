//! ABORT (RFC 9293 section 3.10.5).

use observe::Time;

use super::{TcpEvent, close};
use crate::access::PcbAccess;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::state::State;

/// End the connection at once with a reset, drop all data, and release the user.
#[derive(Clone, Copy, Debug)]
pub struct Abort;

/// The connection's interface has been removed, or its local address is no longer ours (Linux lets such a connection
/// time out; the reset of RFC 5227 section 2.4 cannot be sent any more): the connection ends with
/// [`Error::NetworkDown`] and sends nothing, because no device could carry it. Not an event of RFC 9293; what BSD and
/// Linux call ENETDOWN.
#[derive(Clone, Copy, Debug)]
pub struct LinkDown;

impl TcpEvent for LinkDown {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        pcb.whole(out, |mut parts, out| {
            if parts.header_in.state != State::Closed {
                parts.fail(Error::NetworkDown, out, now);
                parts.release(out);
            }
        });
    }
}

impl TcpEvent for Abort {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        pcb.whole(out, |mut parts, out| {
            parts.header_in.set_held(false);
            close::reset(&mut parts, out, now);
            parts.release(out);
        });
    }
}
