//! CLOSE (RFC 9293 section 3.10.4) and its halves.

use observe::{Counter, Time};

use super::TcpEvent;
use crate::access::{PcbAccess, PcbMut};
use crate::error::Error;
use crate::lane;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{Ack, ReadMode};
use crate::state::{Cause, State};

/// The user closes the connection: send the queue, then a FIN, and keep the connection until that is acknowledged. With
/// unread data, or with linger time zero, it is reset instead (RFC 9293 section 3.6.1). After this the connection
/// removes itself (`TableChange::Remove`).
///
/// A user that took buffers and did not read them uses [`super::Abort`] instead.
#[derive(Clone, Copy, Debug)]
pub struct Close;

/// The user closes one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Data that arrives from now on is acknowledged and discarded.
    Read,
    /// The queue is sent, then a FIN.
    Write,
}

impl TcpEvent for Close {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        pcb.whole(out, |mut parts, out| {
            parts.header_in.set_held(false);
            parts.header_in.recount(out);
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
            //# A host MAY implement a "half-duplex" TCP close sequence, so that an application that has called CLOSE
            //# cannot continue to read data from the connection (MAY-1).
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
            //# If such a host issues a CLOSE call while received data is still pending in the TCP connection, or if new
            //# data is received after CLOSE is called, its TCP implementation SHOULD send a RST to show that data was
            //# lost (SHLD-3).
            // Data of a SYN waits for the handshake to be complete.
            let half_open = parts.header_in.state == State::SynReceived && !parts.is_early();
            let unread = parts.receive_window.queued > 0 || half_open && parts.reassembly.bytes() > 0;
            if parts.header_in.resets_on_close() || unread || one_too_many(&parts, out) {
                reset(&mut parts, out, now);
            } else {
                close(&mut parts, out, now);
                watch_fin_wait_2(&mut parts, out, now);
            }
            parts.release(out);
        });
    }
}

/// Whether this connection would exceed the configured number of connections without a user.
fn one_too_many(parts: &PcbMut<'_>, out: &Outbox<'_>) -> bool {
    let many = parts.header_in.is_orphan() && out.scarcity.no_more_orphans();
    out.count(Counter::OrphansReset, many.into());
    many
}

impl TcpEvent for Shutdown {
    /// # Errors
    /// [`Error::NotConnected`] if there is no connection to shut down.
    type Reply = Result<(), Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<(), Error> {
        pcb.whole(out, |mut parts, out| {
            // The send window's copy: a connection may be open before its handshake is complete.
            if !parts.send_window.state.is_synchronised() {
                return Err(Error::NotConnected);
            }
            match self {
                Shutdown::Write => close(&mut parts, out, now),
                Shutdown::Read => discard(&mut parts, out),
            }
            Ok(())
        })
    }
}

fn discard(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>) {
    let rw = &mut *parts.receive_window;
    rw.reading = ReadMode::Discard;
    rw.kept = 0;
    rw.drop_queue(out);
    rw.urgent_valid = false;
    rw.note_rare();
}

/// Ends the connection at once, with a reset to the peer if there is one.
pub(super) fn reset(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let state = parts.header_in.state;
    if state == State::Closed {
        return;
    }
    // RFC 9293 section 3.10.5: no reset in SYN-SENT and from TIME-WAIT on.
    let peer_knows = state.is_synchronised() || state == State::SynReceived;
    if peer_knows && !matches!(state, State::TimeWait) {
        output::reset(parts.send_window, parts.header_out, out, now);
    }
    parts.header_in.error.get_or_insert(Error::Aborted);
    out.count(Counter::ConnectionsReset, 1);
    parts.receive_window.drop_queue(out);
    parts.enter(Cause::Reset, out, now);
}

/// No more data from the user: the FIN follows the queue.
fn close(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    match parts.header_in.state {
        State::SynSent => parts.enter(Cause::Close, out, now),
        // Queued until the connection is established (RFC 9293 section 3.10.4, SYN-RECEIVED).
        // One that is open early sends its FIN at once, and leaves the state with the handshake.
        State::SynReceived | State::Established | State::CloseWait => {
            parts.send_window.queue_fin();
            continue_close(parts, out, now);
            let advertised = parts.transmit(out, |sw, rq, ho, out| lane::transmit(sw, rq, ho, out, now, Ack::None));
            if let Some((nxt, edge)) = advertised {
                parts.receive_window.acked(nxt, edge);
            }
        }
        _ => {}
    }
}

/// Leaves the states in which the user may send, once its close is queued.
pub(super) fn continue_close(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    if !parts.send_window.fin_queued() {
        return;
    }
    match parts.header_in.state {
        State::Established => parts.leave(State::Established, Cause::Close, out, now),
        State::CloseWait => parts.leave(State::CloseWait, Cause::Close, out, now),
        _ => {}
    }
}

/// An orphan must not stay for ever if its peer never closes.
pub(super) fn watch_fin_wait_2(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    if parts.header_in.state == State::FinWait2 && parts.header_in.is_orphan() {
        let own = parts.header_in.settings.as_ref().and_then(|settings| settings.fin_wait_2);
        parts.header_in.state_deadline = now + own.unwrap_or(out.config.fin_wait_2);
        parts.header_in.arm(out);
    }
}
