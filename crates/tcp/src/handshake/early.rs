//! A connection that opens with its SYN (RFC 7413 section 4.2.2): it takes the SYN's payload, and may send before the
//! handshake is complete. The end of the handshake is in [`crate::fast_open`].

use observe::{DropReason, Time};
use wire::tcp::{ExtraOptions, FastOpen};

use crate::access::PcbMut;
use crate::config::ListenParams;
use crate::event::segment_arrives::take_data;
use crate::isn::Isn;
use crate::outbox::{Outbox, Readiness, TableChange};
use crate::output;
use crate::pcb::{Pcb, TimerPurpose};
use crate::segment::Segment;
use crate::state::State;

use super::half_open::{HalfOpen, agreement};
use super::listen;

/// A SYN with a good cookie makes a connection at once (RFC 7413 section 4.2.2): its payload can be read, and the user
/// may answer. `cookie`: a new one to give to the peer. The SYN-ACK is in `out`, and `out.table` reports that the
/// connection may enter the accept queue; it reports it again when the handshake is complete. The connection is left in
/// `child`.
///
/// Such a connection has no ECN: the bits of its SYN-ACK and those of the data after it would have different meanings.
///
/// # Errors
/// The reason for which none was made, counted already; a reset may be in `out`.
pub fn accept(
    params: &ListenParams<'_>,
    segment: Segment,
    isn: Isn,
    cookie: Option<FastOpen>,
    (child, out): (&mut Option<Pcb>, &mut Outbox<'_>),
    now: Time,
) -> Result<(), DropReason> {
    listen::admit_syn(&segment, out)?;
    let agreed = agreement(&segment.header, &segment.tuple, out.config);
    let half_open = HalfOpen::new(segment.tuple, segment.header.seq, isn, params, &agreed, (out.config, now));
    half_open.revive(child, params, out.config, now).parts().open_early(segment, cookie, out, now);
    Ok(())
}

impl PcbMut<'_> {
    fn open_early(&mut self, segment: Segment, cookie: Option<FastOpen>, out: &mut Outbox<'_>, now: Time) {
        self.header_in.set_held(true);
        let sw = &mut *self.send_window;
        let iss = sw.una;
        sw.una = sw.nxt;
        sw.wl2 = sw.una;
        sw.small_end = sw.una;
        sw.rtt.cancel();
        sw.wnd = u32::from(segment.header.window);
        sw.max_wnd = sw.wnd;
        sw.state = State::Established;
        sw.rare.note_state(State::Established);
        self.receive_window.state = State::Established;
        self.receive_window.rare.note_state(State::Established);
        let mut rest = segment;
        rest.pass_syn();
        let first = (self.receive_window.edge - self.receive_window.nxt).max(0) as u32;
        if !rest.data.is_empty() {
            self.header_in.note_data_on_syn();
            let _ = take_data(&mut Some(rest), self, out, now);
        }
        // The window of a SYN-ACK is not scaled: no more than its value is open before more data arrives, or some is
        // read.
        let rw = &mut *self.receive_window;
        rw.edge = rw.nxt + ((rw.edge - rw.nxt).max(0) as u32).min(first);
        self.header_out.edge = rw.edge;
        let rare = ExtraOptions { fast_open: cookie, ..ExtraOptions::NONE };
        output::syn_ack(iss, self.send_window.sack, &rare, self.header_out, out, now);
        self.receive_window.acked_by_syn(self.header_out.acked, self.header_out.advertised_edge);
        let sw = &mut *self.send_window;
        sw.set_timer(TimerPurpose::Retransmit, sw.rtt.deadline(now));
        sw.arm(out);
        out.ready |= Readiness::ACCEPTABLE | Readiness::WRITABLE;
        out.table = TableChange::Established;
    }
}
