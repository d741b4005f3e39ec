//! An active open with Fast Open (RFC 7413): a SYN with a cookie and payload, or with the request for a cookie; the
//! information from the answer; and the fallback without one.

use observe::{Counter, Time};
use wire::SeqNumber;
use wire::tcp::{FastOpen, TcpFlags};

use super::{Chunks, Send, TcpEvent};
use crate::access::{PcbAccess, PcbMut};
use crate::fast_open::{DestinationUpdate, FastOpenFailure, Offer, OfferOutcome, SentOffer};
use crate::outbox::{Outbox, TableChange};
use crate::output;
use crate::pcb::{HeaderIn, Loss, TimerPurpose};
use crate::segment::Segment;
use crate::user_timeout;

/// Parameters of an active open with data, in addition to [`crate::OpenParams`].
pub struct Start {
    /// The Fast Open parts of the SYN.
    pub offer: Offer,
    /// Data to send, no more than the send buffer holds: data that does not fit the SYN follows after the handshake.
    pub data: Chunks,
    /// The user sends more as soon as the connection is open: the acknowledgement of the SYN-ACK may wait for that.
    pub more: bool,
}

/// Why Fast Open delivered no data to the peer, as far as is known.
pub(crate) fn failure(header_in: &HeaderIn) -> Option<FastOpenFailure> {
    header_in.settings.as_deref()?.fast_open?.failure
}

/// Bytes from `una` on that were already sent with the SYN.
pub(crate) fn sent_again(header_in: &HeaderIn, una: SeqNumber) -> u32 {
    let again = header_in.settings.as_deref().and_then(|settings| settings.fast_open?.again);
    again.map_or(0, |end| (end - una).max(0) as u32)
}

/// Take the [`DestinationUpdate`] that [`TableChange::DestinationLearnt`] announced; reported once.
#[derive(Clone, Copy, Debug)]
pub struct TakeDestinationUpdate;

impl TcpEvent for TakeDestinationUpdate {
    type Reply = Option<DestinationUpdate>;

    fn run<A: PcbAccess>(self, pcb: &mut A, _out: &mut Outbox<'_>, _now: Time) -> Option<DestinationUpdate> {
        pcb.header_in(|header_in| header_in.settings.as_deref_mut()?.fast_open.as_mut()?.update.take())
    }
}

impl PcbMut<'_> {
    /// Queue the data, and send our SYN with as much of it as the offer allows.
    #[cold]
    pub(crate) fn open_fast(&mut self, start: Start, out: &mut Outbox<'_>, now: Time) {
        let sent = Send { chunks: start.data }.run(self, out, now);
        debug_assert!(sent.is_ok_and(|sent| sent.rest.is_empty()), "the caller knows the send buffer");
        if start.offer.option.is_some() || start.offer.max_data > 0 || start.more {
            let failure = (start.offer.max_data == 0).then_some(FastOpenFailure::NoCookie);
            self.header_in.settings(out.config).fast_open =
                Some(SentOffer { option: start.offer.option, more: start.more, failure, update: None, again: None });
        }
        self.send_fast_syn(start.offer, out, now);
    }

    /// Send our SYN, with cookie and data as `offer` allows, and start its timer.
    fn send_fast_syn(&mut self, offer: Offer, out: &mut Outbox<'_>, now: Time) {
        let (sw, rq) = (&mut *self.send_window, &mut *self.retransmit_queue);
        let len = rq.len.min(u32::from(offer.max_data));
        sw.nxt = sw.una + 1;
        sw.timed = sw.nxt;
        sw.rtt.start();
        rq.log.sent(sw.una, sw.una, now.as_micros() as u32, 0);
        if output::fast_syn(sw, rq, self.header_out, (offer.option, len), out, now) {
            sw.nxt += len;
        }
        sw.set_timer(TimerPurpose::Retransmit, sw.rtt.deadline(now));
        sw.arm(out);
        self.header_in.arm(out);
    }
}

/// The SYN-ACK has arrived: note its answer to our offer, before it is processed.
pub(crate) fn answered(parts: &mut PcbMut<'_>, segment: &Segment, out: &mut Outbox<'_>) {
    let Some(settings) = parts.header_in.settings.as_deref_mut() else { return };
    let Some(asked) = settings.fast_open.as_mut() else { return };
    let ack = segment.header.ack;
    let taken = segment.header.flags.contains(TcpFlags::ACK) && ack.gt(parts.send_window.una + 1);
    // A cookie that was not requested is ignored.
    let given = segment.rare_options().fast_open.filter(|option| !option.cookie.is_request());
    let cookie = given.filter(|_| asked.option.is_some());
    let first = parts.send_window.unanswered == 0;
    let request = asked.option.filter(|option| option.cookie.is_request() && cookie.is_none() && first);
    let outcome = match request {
        _ if taken => OfferOutcome::Taken,
        Some(FastOpen { experimental, .. }) => OfferOutcome::Ignored { experimental },
        None => OfferOutcome::Answered,
    };
    asked.update = Some(DestinationUpdate { cookie, mss: segment.header.options.mss, outcome });
    out.table = TableChange::DestinationLearnt;
    if !taken && parts.send_window.flight() > 1 {
        asked.failure = asked.failure.or(Some(FastOpenFailure::NotTaken));
    }
    if taken && ack.ge(parts.send_window.nxt) {
        parts.header_in.note_data_on_syn();
    }
}

/// Whether the user is about to send more.
pub(crate) fn user_waits(parts: &PcbMut<'_>) -> bool {
    let asked = parts.header_in.settings.as_deref().and_then(|settings| settings.fast_open.as_ref());
    asked.is_some_and(|asked| asked.more)
}

/// The path does not carry the SYN with data: it is sent again at once, without data.
pub(crate) fn too_large(parts: &mut PcbMut<'_>, mss: u16, out: &mut Outbox<'_>, now: Time) {
    parts.header_out.announce_mss = parts.header_out.announce_mss.min(mss);
    parts.send_window.rtt.cancel();
    out.count(Counter::Retransmits, 1);
    let rare = user_timeout::of_syn(parts.header_in);
    output::syn(parts.send_window, &rare, parts.header_out, out, now);
}

/// The SYN with our offer was not answered in time; it is sent again without the offer (RFC 7413 section 4.1.3).
pub(crate) fn silent(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>) {
    let first = parts.send_window.unanswered == 1;
    let settings = parts.header_in.settings.as_deref_mut().filter(|_| first);
    let Some(asked) = settings.and_then(|settings| settings.fast_open.as_mut()) else { return };
    asked.update = Some(DestinationUpdate { cookie: None, mss: None, outcome: OfferOutcome::Silent });
    asked.failure = Some(FastOpenFailure::SentAgain);
    out.table = TableChange::DestinationLearnt;
}

/// Our SYN, which had data, is acknowledged up to `ack`: the rest of the data counts as never sent, because the peer
/// has not kept it (RFC 7413 section 4.2.2), and is sent again at once. It stays a segment of its own, always with PSH,
/// as on Linux.
#[cold]
pub(crate) fn settle_data(parts: &mut PcbMut<'_>, ack: SeqNumber, out: &mut Outbox<'_>) {
    let (sw, rq) = (&mut *parts.send_window, &mut *parts.retransmit_queue);
    let taken = ((ack - sw.una).max(0) as u32).min(sw.flight());
    rq.acknowledge(taken, out);
    rq.rewind();
    sw.bytes_acked += u64::from(taken);
    sw.una += taken;
    let end = std::mem::replace(&mut sw.nxt, sw.una);
    let left = (end - sw.una) as u32;
    if left > 0 {
        let (una, segments) = (sw.una, left.div_ceil(sw.mss.into()));
        sw.loss.get_or_insert_with(|| Loss::new(una)).totals.left_with_syn(segments, left);
        sw.shaping(out.config).records.push_back(end);
        if let Some(asked) = parts.header_in.settings.as_deref_mut().and_then(|settings| settings.fast_open.as_mut()) {
            asked.again = Some(end);
        }
    }
}
