//! SEGMENT ARRIVES in SYN-SENT (RFC 9293 section 3.10.7.3).

use observe::{Counter, DropReason, Time};
use wire::tcp::{Header, TcpFlags};

use super::super::fast_open;
use super::answers::Disposition;
use super::{acknowledgement, data, otherwise, our_syn};
use crate::access::{PcbAccess, PcbMut};
use crate::closed;
use crate::ecn::{self, EcnMode};
use crate::error::Error;
use crate::outbox::{Outbox, Readiness};
use crate::output;
use crate::pcb::Ack;
use crate::segment::Segment;
use crate::state::{Cause, State};
use crate::tick::since;
use crate::user_timeout;

pub(super) fn arrives(
    arrival: &mut Option<Segment>,
    mut parts: PcbMut<'_>,
    out: &mut Outbox<'_>,
    now: Time,
) -> Disposition {
    let Some(segment) = &*arrival else { return Disposition::Done };
    let header = &segment.header;
    let flags = header.flags;
    // First: the ACK bit.
    let acked = flags.contains(TcpFlags::ACK);
    if acked && !acknowledgement::covers_syn(parts.send_window, header.ack) {
        if !flags.contains(TcpFlags::RST) {
            closed::deny(segment, out);
        }
        return Disposition::Dropped(out.dropped(DropReason::TcpBadAck));
    }
    // Second: the RST bit. Without an acceptable ACK it may come from anyone.
    if flags.contains(TcpFlags::RST) {
        //= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
        //# In all other cases the receiver MUST silently discard the segment.
        if !acked {
            return Disposition::Dropped(out.dropped(DropReason::TcpBadReset));
        }
        out.count(Counter::ResetsIn, 1);
        parts.fail(Error::Refused, out, now);
        return Disposition::Done;
    }
    // Fourth and fifth: the SYN bit, and segments without.
    if !flags.contains(TcpFlags::SYN) {
        return Disposition::Dropped(out.dropped(DropReason::TcpBadFlags));
    }
    if !acked {
        return simultaneous(arrival, parts, out, now);
    }
    if !echoes_ours(segment, &mut parts, out, now) {
        closed::deny(segment, out);
        return Disposition::Dropped(out.dropped(DropReason::TcpPaws));
    }
    connected(arrival, parts, out, now)
}

/// Whether the answer echoes a timestamp of one of our SYNs. If not, it answers another connection's SYN.
///
/// It may be part of a batch that began before another thread sent a SYN: the connection's clock is then ahead of the
/// batch's, and so are the timestamps of our SYNs.
fn echoes_ours(segment: &Segment, parts: &mut PcbMut<'_>, out: &Outbox<'_>, now: Time) -> bool {
    let Some(timestamps) = segment.header.options.timestamps else { return true };
    if !out.config.timestamps || timestamps.echo == 0 {
        return true;
    }
    let opening = since(now.as_micros() as u32, parts.retransmit_queue.log.newest()) / 1000;
    let ahead = parts.header_out.ahead(now);
    let age = parts.header_out.clock(now).wrapping_sub(timestamps.echo);
    age <= opening + ahead + 1
}

/// SYN-ACK: the connection is established, and its ACK goes out.
fn connected(arrival: &mut Option<Segment>, mut parts: PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Disposition {
    let Some(segment) = arrival else { return Disposition::Done };
    fast_open::answered(&mut parts, segment, out);
    parts.synchronise(&segment.header, out, now);
    parts.header_out.require_syn_ack_ack();
    let with_data = parts.send_window.flight() > 1;
    our_syn::establish(&mut parts, &segment.header, out, now);
    ecn::connected(&mut parts, segment, out, now);
    parts.leave(State::SynSent, Cause::SynAck, out, now);
    out.ready |= Readiness::CONNECTED | Readiness::WRITABLE;
    user_timeout::receive(segment, &mut parts, out, now);
    // An answer to our SYN may have data and other controls (RFC 9293 section 3.10.7.3), which follow the SYN.
    segment.pass_syn();
    otherwise::urgent(segment, &mut parts, out);
    if segment.seq_len() > 0 {
        otherwise::take_data(arrival, &mut parts, out, now);
    }
    // Its header reports the mark of the SYN-ACK; later ones count marks.
    let accurate = parts.header_in.is_accurate();
    if accurate {
        output::pure_ack(parts.send_window, parts.header_out, out, now);
        ecn::after_first_ack(parts.header_out);
    }
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3
    //# In addition to exchanging UTO options in the SYN segments, a connection that has enabled UTO options SHOULD include
    //# a UTO option in the first packet that does not have the SYN flag set.
    let advertised = user_timeout::advertise(&mut parts, out, now);
    let ack = match () {
        () if accurate || advertised => Ack::None,
        () if fast_open::user_waits(&parts) => Ack::Delayed,
        () => Ack::Now,
    };
    let pending = super::super::send::flush_pending(&mut parts, out, now, ack);
    if ack == Ack::Delayed && pending.is_none() {
        // A dialogue begins: later acknowledgements wait for our data as well.
        parts.receive_window.delay.begin_dialogue();
        parts.receive_window.ack_deadline = now + out.config.delayed_ack;
        parts.receive_window.arm(out);
    }
    if with_data {
        // The segment sent again had its size from the SYN; Nagle's rule does not wait for it.
        parts.send_window.small_end = parts.send_window.una;
    }
    otherwise::note_advertised(&mut parts, pending);
    parts.opened(out);
    Disposition::Done
}

/// SYN without ACK: both ends opened at once (RFC 9293 figure 8).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.5
//# A TCP implementation MUST support simultaneous open attempts (MUST-10).
fn simultaneous(arrival: &mut Option<Segment>, mut parts: PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Disposition {
    let Some(mut segment) = arrival.take() else { return Disposition::Done };
    parts.synchronise(&segment.header, out, now);
    // The mode that we requested applies to both, if the peer requests it as well.
    let asked = parts.header_out.marks.echo() != TcpFlags::NONE;
    let mode = ecn::grant(segment.header.flags, segment.ecn(), out.config.ecn);
    parts.header_out.set_ecn(if asked { mode } else { EcnMode::Off }, segment.ecn());
    parts.enter(Cause::Syn, out, now);
    our_syn::syn_again(&mut parts, out, now);
    segment.pass_syn();
    match store_syn_data(segment, &mut parts, out) {
        Some(reason) => Disposition::Dropped(out.dropped(reason)),
        None => Disposition::Done,
    }
}

/// "If there are other controls or data in the segment, queue them for processing after the ESTABLISHED state has been
/// reached" (RFC 9293 section 3.10.7.3). Data beyond the window is retransmitted, as none of it is acknowledged yet.
fn store_syn_data(segment: Segment, parts: &mut PcbMut<'_>, out: &mut Outbox<'_>) -> Option<DropReason> {
    otherwise::note_urgent(&segment, parts.receive_window);
    if segment.seq_len() == 0 {
        return None;
    }
    let Segment { header: Header { seq, flags, .. }, data, .. } = segment;
    parts.receive_side(|rw, ra| data::store_syn_data(rw, ra, (seq, data, flags.contains(TcpFlags::FIN)), out))
}
