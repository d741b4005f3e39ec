//! The established path: plain data and acknowledgements, hold-set by hold-set.
//!
//! The most frequent path, and the only one that the staged drivers run in stages. Between two hold-sets another event
//! of the same connection may run, so each step checks the state again: first the receive side checks the sequence
//! number, then the send side the acknowledgement (no data is accepted from a segment with an impossible
//! acknowledgement, RFC 5961 section 5), then the receive side takes the data, and the transmission merges the results
//! into the header template. Nothing here allocates for a segment in order.

use observe::{Counter, DropReason, Time};

use super::acknowledgement::{self, AckCheck};
use super::answers::{Disposition, challenge, refuse};
use super::otherwise::finish;
use super::{data, sequence};
use crate::access::PcbAccess;
use crate::event::{DamagedData, TcpEvent};
use crate::lane;
use crate::outbox::Outbox;
use crate::pcb::Ack;
use crate::segment::{Segment, holds_later};

/// Processes the header of a segment with only ACK and PSH that arrived in ESTABLISHED. `None`: it has data, for
/// [`take_data`].
///
/// There are two steps so that only the handle of the data is moved, and the header stays where it was parsed.
#[inline]
pub(crate) fn take_header<A: PcbAccess>(
    segment: &mut Segment,
    pcb: &mut A,
    out: &mut Outbox<'_>,
    now: Time,
) -> Option<Disposition> {
    let mut summed = false;
    let checked = pcb.receive_side(|rw, ra| {
        if segment.may_wait() && !data::keeps_whole(rw, ra, segment.header.seq, &segment.data) {
            summed = true;
            if !segment.checksum_holds() {
                return None;
            }
            segment.pass();
        }
        Some(sequence::check(rw, ra, segment, out.config, now))
    });
    if summed {
        out.count(Counter::ChecksumsInside, 1);
    }
    let echo = match checked {
        Some(Ok(echo)) => echo,
        Some(Err(refused)) => return Some(refuse(refused, pcb, out, now)),
        None => return Some(Disposition::Dropped(out.dropped(DropReason::TcpBadChecksum))),
    };
    let len = segment.data.len() as u32;
    let acked = pcb.send_side(|sw, rq| acknowledgement::process(sw, rq, &segment.header, len, out, now));
    let AckCheck::Valid { work, .. } = acked else {
        challenge(pcb, out, now);
        return Some(Disposition::Dropped(out.dropped(DropReason::TcpBadAck)));
    };
    if len > 0 {
        return None;
    }
    out.count(Counter::PureAcksIn, 1);
    if echo.is_some() {
        pcb.receive_side(|rw, _| sequence::take_timestamp(rw, &segment.header, now));
    }
    if work || echo.is_some() {
        transmit(pcb, out, echo, now);
    }
    Some(Disposition::Done)
}

/// Process the data of a segment whose header is accepted.
#[inline]
pub(crate) fn take_data<A: PcbAccess>(
    mut segment: Segment,
    pcb: &mut A,
    out: &mut Outbox<'_>,
    now: Time,
) -> Disposition {
    segment.put_off();
    let Segment { header, mut data, followed, .. } = segment;
    let taken = pcb.receive_side(|rw, ra| {
        // Another event may have run since the header was taken.
        if !data::keeps_whole(rw, ra, header.seq, &data) && !holds_later(&mut data) {
            return None;
        }
        sequence::take_timestamp(rw, &header, now);
        Some(data::accept(rw, ra, (header.seq, data, false), followed, out, now))
    });
    let Some(taken) = taken else {
        // Its header has been believed.
        DamagedData.run(pcb, out, now);
        return Disposition::Dropped(DropReason::TcpDamagedLate);
    };
    // With a FIN behind it, one acknowledgement covers both.
    let ack = if taken.fin { Ack::None } else { taken.ack };
    let advertised = pcb.transmit(out, |sw, rq, ho, out| {
        ho.merge(taken.snapshot);
        lane::transmit(sw, rq, ho, out, now, ack)
    });
    if taken.ack == Ack::Delayed {
        match advertised {
            Some(advertised) => pcb.receive_side(|rw, _| rw.data_sent(advertised, out.config, now)),
            None => out.count(Counter::AcksDelayed, 1),
        }
    }
    if taken.fin {
        finish(pcb, out, now);
    }
    match taken.dropped {
        None => Disposition::Done,
        Some(reason) => Disposition::Dropped(out.dropped(reason)),
    }
}

/// Sends the data that an acknowledgement made room for. Each segment carries any delayed acknowledgement, and from now
/// on the timestamp `echo`.
#[inline]
pub(crate) fn transmit<A: PcbAccess>(pcb: &mut A, out: &mut Outbox<'_>, echo: Option<u32>, now: Time) {
    let advertised = pcb.transmit(out, |sw, rq, ho, out| {
        if let Some(value) = echo {
            ho.echo(value);
        }
        lane::transmit(sw, rq, ho, out, now, Ack::None)
    });
    if let Some(advertised) = advertised {
        pcb.receive_side(|rw, _| rw.data_sent(advertised, out.config, now));
    }
}
