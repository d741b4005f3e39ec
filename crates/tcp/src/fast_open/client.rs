//! The active side: a SYN with a cookie and text, or with the request for a cookie; what its answer teaches; and what is
//! done when there is none.

use observe::{Counter, Time};
use wire::SeqNumber;
use wire::tcp::{FastOpen, TcpFlags};

use crate::access::{PcbAccess, PcbMut};
use crate::config::OpenParams;
use crate::event::{Chunks, Event, Open, Send};
use crate::outbox::{Outbox, TableChange};
use crate::output;
use crate::pcb::{HeaderIn, Loss, Pcb, Timer};
use crate::segment::Segment;
use crate::user_timeout;

/// What the SYN of an active open may carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// A cookie that the peer gave before, or the request for one.
    pub option: Option<FastOpen>,
    /// Octets of text on the SYN at most; 0 unless there is a cookie, or the peer is known to want none.
    pub max_text: u16,
}

/// What an active open with text needs beside [`OpenParams`].
pub struct Start {
    /// What the SYN may carry.
    pub offer: Offer,
    /// Text to send, no more than the send buffer holds: what does not fit the SYN follows after the handshake.
    pub text: Chunks,
    /// The user sends more as soon as the connection is open: the acknowledgement of the SYN-ACK may wait for that.
    pub more: bool,
}

/// How a peer has dealt with an [`Offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took text of the SYN.
    Taken,
    /// It answered, and took none, or there was none.
    Answered,
    /// It answered the first SYN, which asked for a cookie, and gave none.
    Ignored {
        /// The SYN asked in the experimental form.
        experimental: bool,
    },
    /// It did not answer in time: perhaps a device on the path drops such SYNs (RFC 7413 section 7.1).
    Silent,
}

/// What an active open has learnt of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// The cookie to show next time.
    pub cookie: Option<FastOpen>,
    /// The MSS that the peer announced; `None` if it has not answered.
    pub mss: Option<u16>,
    /// What became of the offer.
    pub outcome: Outcome,
}

/// Why text did not go with the SYN, numbered as `tcpi_fastopen_client_fail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FastOpenFailure {
    /// There was no cookie to show, so that the SYN only asked for one.
    NoCookie = 1,
    /// The peer acknowledged the SYN without its text.
    NotTaken = 2,
    /// The SYN had to be sent again, without text.
    SentAgain = 3,
}

/// What a connection remembers of its offer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    option: Option<FastOpen>,
    more: bool,
    news: Option<News>,
    failure: Option<FastOpenFailure>,
    /// Where the text ends that left with the SYN and must leave again.
    again: Option<SeqNumber>,
}

/// Why Fast Open took no text to the peer, as far as is known.
pub(crate) fn failure(header_in: &HeaderIn) -> Option<FastOpenFailure> {
    header_in.settings.as_deref()?.fast_open?.failure
}

/// Octets from `una` on that left with the SYN already.
pub(crate) fn sent_again(header_in: &HeaderIn, una: SeqNumber) -> u32 {
    let again = header_in.settings.as_deref().and_then(|settings| settings.fast_open?.again);
    again.map_or(0, |end| (end - una).max(0) as u32)
}

/// Take the [`News`] that [`TableChange::News`] announced; reported once.
#[derive(Clone, Copy, Debug)]
pub struct TakeNews;

impl Event for TakeNews {
    type Reply = Option<News>;

    fn run<A: PcbAccess>(self, pcb: &mut A, _out: &mut Outbox<'_>, _now: Time) -> Option<News> {
        pcb.header_in(|header_in| header_in.settings.as_deref_mut()?.fast_open.as_mut()?.news.take())
    }
}

impl Pcb {
    /// Open actively with text: the PCB in SYN-SENT, its SYN in `out` with as much of the text as the offer allows.
    pub fn open_fast(params: &OpenParams, start: Start, out: &mut Outbox<'_>, now: Time) -> Pcb {
        let mut pcb = Pcb::unopened(params, out.config, now);
        Open(Some(Box::new(start))).run(&mut pcb.parts(), out, now);
        pcb
    }
}

impl PcbMut<'_> {
    /// Queue the text, and send our SYN with as much of it as the offer allows.
    #[cold]
    pub(crate) fn open_fast(&mut self, start: Start, out: &mut Outbox<'_>, now: Time) {
        let sent = Send { chunks: start.text }.run(self, out, now);
        debug_assert!(sent.is_ok_and(|sent| sent.rest.is_empty()), "the caller knows the send buffer");
        if start.offer.option.is_some() || start.offer.max_text > 0 || start.more {
            let failure = (start.offer.max_text == 0).then_some(FastOpenFailure::NoCookie);
            self.header_in.settings(out.config).fast_open =
                Some(Asked { option: start.offer.option, more: start.more, failure, news: None, again: None });
        }
        self.send_fast_syn(start.offer, out, now);
    }

    /// Send our SYN with what `offer` allows, and start its timer.
    fn send_fast_syn(&mut self, offer: Offer, out: &mut Outbox<'_>, now: Time) {
        let (sw, rq) = (&mut *self.send_window, &mut *self.retransmit_queue);
        let len = rq.len.min(u32::from(offer.max_text));
        sw.nxt = sw.una + 1;
        sw.timed = sw.nxt;
        sw.rtt.start();
        rq.log.sent(sw.una, sw.una, now.as_micros() as u32, 0);
        if output::fast_syn(sw, rq, self.header_out, (offer.option, len), out, now) {
            sw.nxt += len;
        }
        sw.set_timer(Timer::Retransmit, sw.rtt.deadline(now));
        sw.arm(out);
        self.header_in.arm(out);
    }
}

/// The SYN-ACK has come: note what it says of our offer, before anything of it is processed.
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
        _ if taken => Outcome::Taken,
        Some(FastOpen { experimental, .. }) => Outcome::Ignored { experimental },
        None => Outcome::Answered,
    };
    asked.news = Some(News { cookie, mss: segment.header.options.mss, outcome });
    out.table = TableChange::News;
    if !taken && parts.send_window.flight() > 1 {
        asked.failure = asked.failure.or(Some(FastOpenFailure::NotTaken));
    }
    if taken && ack.ge(parts.send_window.nxt) {
        parts.header_in.note_text_on_syn();
    }
}

/// Does the user wait to send more?
pub(crate) fn user_waits(parts: &PcbMut<'_>) -> bool {
    let asked = parts.header_in.settings.as_deref().and_then(|settings| settings.fast_open.as_ref());
    asked.is_some_and(|asked| asked.more)
}

/// The path does not carry the SYN that had text: it leaves again at once, without.
pub(crate) fn too_large(parts: &mut PcbMut<'_>, mss: u16, out: &mut Outbox<'_>, now: Time) {
    parts.header_out.announce_mss = parts.header_out.announce_mss.min(mss);
    parts.send_window.rtt.cancel();
    out.count(Counter::Retransmits, 1);
    let rare = user_timeout::of_syn(parts.header_in);
    output::syn(parts.send_window, &rare, parts.header_out, out, now);
}

/// The SYN with our offer was not answered in time; it is sent again without (RFC 7413 section 4.1.3).
pub(crate) fn silent(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>) {
    let first = parts.send_window.unanswered == 1;
    let settings = parts.header_in.settings.as_deref_mut().filter(|_| first);
    let Some(asked) = settings.and_then(|settings| settings.fast_open.as_mut()) else { return };
    asked.news = Some(News { cookie: None, mss: None, outcome: Outcome::Silent });
    asked.failure = Some(FastOpenFailure::SentAgain);
    out.table = TableChange::News;
}

/// Our SYN, which had text, is acknowledged up to `ack`: the rest of the text counts as never sent, for the peer has not
/// kept it (RFC 7413 section 4.2.2), and leaves again at once. It stays a segment of its own, pushed however often it leaves,
/// as in Linux.
#[cold]
pub(crate) fn settle_text(parts: &mut PcbMut<'_>, ack: SeqNumber, out: &mut Outbox<'_>) {
    let (sw, rq) = (&mut *parts.send_window, &mut *parts.retransmit_queue);
    let taken = ((ack - sw.una).max(0) as u32).min(sw.flight());
    out.memory -= rq.acknowledge(taken);
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
