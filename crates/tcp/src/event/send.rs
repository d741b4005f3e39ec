//! SEND (RFC 9293 section 3.10.2).

mod alone;

use observe::Time;
use pktbuf::{Chunk, PktBuf};
use smallvec::SmallVec;

pub use alone::{PieceAlone, SendContext, SentAlone};

use super::TcpEvent;
use crate::access::{PcbAccess, PcbMut};
use crate::error::Error;
use crate::lane;
use crate::outbox::Outbox;
use crate::output::Advertised;
use crate::pcb::{Ack, Awaited, HeaderOut, IDLE_CHECK, Push, RetransmitQueue, SendWindow};

/// Data to send, in order. Room for one inline, enough for nearly every call: calls and their replies are moved several
/// times.
pub type Chunks = SmallVec<[Chunk; 1]>;

/// Append data to the send queue, as far as there is space, and send all that may be sent.
#[derive(Default)]
pub struct Send {
    /// The data.
    pub chunks: Chunks,
}

/// The result of a [`Send`].
#[derive(Default)]
pub struct Sent {
    /// Bytes taken.
    pub accepted: usize,
    /// The data not taken for lack of space: wait for `WRITABLE` and send it again.
    pub rest: Chunks,
}

impl TcpEvent for Send {
    /// # Errors
    /// As for `&mut Send`; the chunks are dropped then.
    type Reply = Result<Sent, Error>;

    #[inline]
    fn run<A: PcbAccess>(mut self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<Sent, Error> {
        let accepted = (&mut self).run(pcb, out, now)? as usize;
        Ok(Sent { accepted, rest: self.chunks })
    }
}

/// The event by reference, since it is large: data not taken for lack of space is left in it.
impl TcpEvent for &mut Send {
    /// Bytes taken.
    ///
    /// # Errors
    /// [`Error::NotConnected`] or why the connection ended; [`Error::Shutdown`] after a close or shutdown of this
    /// direction.
    type Reply = Result<u32, Error>;

    #[inline]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<u32, Error> {
        send(&mut self.chunks, Push::Asked, pcb, out, now)
    }
}

/// As `&mut Send` of one chunk. What was not taken for lack of space is left in it.
pub struct SendChunk<'c>(pub &'c mut Option<Chunk>);

impl TcpEvent for SendChunk<'_> {
    /// # Errors
    /// As for `&mut Send`; the chunk stays.
    type Reply = Result<u32, Error>;

    #[inline]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<u32, Error> {
        let SendChunk(chunk) = self;
        let mut accepted = 0;
        let sent = pcb.transmit(out, |sw, rq, ho, out| {
            may_send(sw)?;
            if let Some(Chunk::Pooled(piece)) = chunk
                && fits_whole(sw, rq, piece.len(), out)
                && let Some(Chunk::Pooled(piece)) = chunk.take()
            {
                accepted = piece.len() as u32;
                return Ok(send_whole(sw, rq, ho, (Chunk::Pooled(piece), Push::Asked), out, now));
            }
            if let Some(whole) = chunk.take_if(|chunk| fits_whole(sw, rq, chunk.len(), out)) {
                accepted = whole.len() as u32;
                return Ok(send_unpooled(sw, rq, ho, (whole, Push::Asked), out, now));
            }
            let mut chunks = Chunks::from_iter(chunk.take());
            let (appended, advertised) = append(sw, rq, ho, (&mut chunks, Push::Asked), out, now);
            (*chunk, accepted) = (chunks.pop(), appended as u32);
            Ok(advertised)
        });
        finish(sent, pcb, out, now).map(|()| accepted)
    }
}

/// As `&mut Send` of a few bytes of the caller's, which are copied: mostly a request, or an answer.
#[derive(Debug)]
pub struct SendBytes<'d> {
    /// The data, at least 1 byte.
    pub data: &'d [u8],
    /// Buffers that are to be left in a bounded pool; see [`PktBuf::alloc_leaving`].
    pub leaving: usize,
}

/// The result of a [`SendBytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesSent {
    /// Bytes taken.
    pub accepted: u32,
    /// There was no room for all, or none is left: `WRITABLE` rises when there is some.
    pub waits: bool,
}

impl TcpEvent for SendBytes<'_> {
    /// # Errors
    /// As for `&mut Send`; [`Error::NoBuffer`].
    type Reply = Result<BytesSent, Error>;

    #[inline]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Self::Reply {
        if let Some(pcb) = pcb.all()
            && lane::send_bytes(pcb, (self.data, self.leaving), out, now)?
        {
            return Ok(BytesSent { accepted: self.data.len() as u32, waits: false });
        }
        send_copy(self, pcb, out, now)
    }
}

/// The data in a buffer of its own, in which it stays.
#[inline(never)]
fn send_copy<A: PcbAccess>(
    SendBytes { data, leaving }: SendBytes<'_>,
    pcb: &mut A,
    out: &mut Outbox<'_>,
    now: Time,
) -> Result<BytesSent, Error> {
    let mut buffer = PktBuf::alloc_from(out.spare.take(), data.len(), leaving).ok_or(Error::NoBuffer)?;
    buffer.copy_from_slice(data);
    let mut chunk = Some(Chunk::Pooled(buffer));
    let accepted = SendChunk(&mut chunk).run(pcb, out, now)?;
    Ok(BytesSent { accepted, waits: chunk.is_some() })
}

/// Append data that more will follow (`MSG_MORE`): a partial segment is not sent by this call, and the last segment
/// carries no PSH. The rest waits for the next send without this, for an acknowledgement that allows it, or for
/// `Config::cork_timeout`.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//# A TCP endpoint MAY implement PUSH flags on SEND calls (MAY-15).
pub struct SendMore(pub Send);

impl TcpEvent for SendMore {
    /// As [`Send`].
    type Reply = Result<Sent, Error>;

    fn run<A: PcbAccess>(mut self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<Sent, Error> {
        let accepted = send(&mut self.0.chunks, Push::Held, pcb, out, now)? as usize;
        Ok(Sent { accepted, rest: self.0.chunks })
    }
}

/// Takes as much of `chunks` as there is space for; returns the bytes taken: 32 bits count what a send buffer can hold, and
/// the answer fits a register.
#[inline]
fn send<A: PcbAccess>(
    chunks: &mut Chunks,
    push: Push,
    pcb: &mut A,
    out: &mut Outbox<'_>,
    now: Time,
) -> Result<u32, Error> {
    let mut accepted = 0;
    let sent = pcb.transmit(out, |sw, rq, ho, out| {
        may_send(sw)?;
        if let [Chunk::Pooled(piece)] = &chunks[..]
            && fits_whole(sw, rq, piece.len(), out)
            && let Some(Chunk::Pooled(piece)) = chunks.pop()
        {
            accepted = piece.len() as u32;
            return Ok(send_whole(sw, rq, ho, (Chunk::Pooled(piece), push), out, now));
        }
        if let [chunk] = &chunks[..]
            && fits_whole(sw, rq, chunk.len(), out)
            && let Some(whole) = chunks.pop()
        {
            accepted = whole.len() as u32;
            return Ok(send_unpooled(sw, rq, ho, (whole, push), out, now));
        }
        let (appended, advertised) = append(sw, rq, ho, (&mut *chunks, push), out, now);
        accepted = appended as u32;
        Ok(advertised)
    });
    finish(sent, pcb, out, now).map(|()| accepted)
}

/// Whether there is room for all of a chunk of `len` bytes, without a question that only a nearly full buffer needs.
#[inline(always)]
fn fits_whole(sw: &SendWindow, rq: &RetransmitQueue, len: usize, out: &Outbox<'_>) -> bool {
    !out.scarcity.is_severe() && sw.fits_easily(rq, len, out.config)
}

/// [`send_whole`] for the chunks of other kinds than a pooled buffer, with which nearly every call comes: where the kind is
/// known, nothing asks for it again.
#[inline(never)]
fn send_unpooled(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    (chunk, push): (Chunk, Push),
    out: &mut Outbox<'_>,
    now: Time,
) -> Advertised {
    send_whole(sw, rq, ho, (chunk, push), out, now)
}

/// Queues a chunk that fits, and sends what may be sent.
#[inline(always)]
fn send_whole(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    (chunk, push): (Chunk, Push),
    out: &mut Outbox<'_>,
    now: Time,
) -> Advertised {
    let len = chunk.len() as u32;
    sw.hold.set_push(push);
    enqueue(rq, chunk, out, now);
    let advertised = if len == rq.len && len > 0 && push == Push::Asked {
        lane::transmit_piece(sw, rq, ho, out, now, len)
    } else {
        lane::transmit(sw, rq, ho, out, now, Ack::None)
    };
    sw.hold.set_push(push.after_call());
    advertised
}

/// The second half of a send: the receive side learns what the segments have advertised, or a refusal gets its reason.
#[inline(always)]
fn finish<A: PcbAccess>(
    sent: Result<Advertised, Error>,
    pcb: &mut A,
    out: &mut Outbox<'_>,
    now: Time,
) -> Result<(), Error> {
    match sent {
        Ok(None) => Ok(()),
        Ok(Some(advertised)) => {
            pcb.receive_side(|rw, _| rw.data_sent(advertised, out.config, now));
            Ok(())
        }
        Err(Error::NotConnected) => Err(pcb.header_in(|header_in| header_in.error).unwrap_or(Error::NotConnected)),
        Err(error) => Err(error),
    }
}

/// Append data whose last byte is urgent (`MSG_OOB`), and send what may be sent. Urgent data takes its place in the
/// stream like any other (RFC 6093 section 6).
pub struct SendUrgent(pub Send);

impl TcpEvent for SendUrgent {
    /// As [`Send`]; the mark is set if all data was taken.
    type Reply = Result<Sent, Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<Sent, Error> {
        let len: usize = self.0.chunks.iter().map(Chunk::len).sum();
        pcb.send_side(|sw, rq| {
            let fits = len > 0 && len <= sw.space(rq, out.config, out.scarcity) as usize && may_send(sw).is_ok();
            if fits {
                // Before the data is queued, or its segments would be made without the mark.
                let end = sw.una + rq.len + len as u32;
                sw.shaping(out.config).urgent = Some(end);
            }
        });
        self.0.run(pcb, out, now)
    }
}

/// Append data that ends a record (`MSG_EOR`), and send what may be sent: no segment, not even a retransmission,
/// carries data from both sides of the end, and the end of a record does not wait for data that cannot join it.
pub struct SendRecord(pub Send);

impl TcpEvent for SendRecord {
    /// As [`Send`]; the record ends if all data was taken.
    type Reply = Result<Sent, Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<Sent, Error> {
        let len: usize = self.0.chunks.iter().map(Chunk::len).sum();
        pcb.send_side(|sw, rq| {
            if len > 0 && len <= sw.space(rq, out.config, out.scarcity) as usize && may_send(sw).is_ok() {
                // Before the data is queued, or its segments would be made without the mark.
                let end = sw.una + rq.len + len as u32;
                sw.shaping(out.config).records.push_back(end);
            }
        });
        self.0.run(pcb, out, now)
    }
}

#[inline]
pub(super) fn may_send(sw: &SendWindow) -> Result<(), Error> {
    if sw.fin_queued() {
        return Err(Error::Shutdown);
    }
    if !sw.state.accepts_send() {
        return Err(Error::NotConnected);
    }
    Ok(())
}

/// Queues as much of `chunks` as there is space for, leaves the rest, and sends what may be sent, also half-way,
/// because sending makes room for more. Returns the bytes queued.
fn append(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    (chunks, mut push): (&mut Chunks, Push),
    out: &mut Outbox<'_>,
    now: Time,
) -> (usize, Advertised) {
    let (accepted, advertised) = if out.config.send_whole {
        (append_whole(sw, rq, chunks, out, now), None)
    } else {
        append_parts(sw, rq, ho, chunks, out, now)
    };
    if !chunks.is_empty() {
        sw.awaited.insert(Awaited::ROOM);
        // A writer that waits for room needs the accepted data to leave.
        push = Push::Asked;
    }
    sw.hold.set_push(push);
    let advertised = lane::transmit(sw, rq, ho, out, now, Ack::None).or(advertised);
    sw.hold.set_push(push.after_call());
    (accepted, advertised)
}

/// Queues chunks whole as long as a writer would be woken ([`Config::send_whole`](crate::config::Config::send_whole)). Something
/// is left if the next send would find no room, even if it is empty. Returns the bytes queued.
#[cold]
fn append_whole(
    sw: &SendWindow,
    rq: &mut RetransmitQueue,
    chunks: &mut Chunks,
    out: &mut Outbox<'_>,
    now: Time,
) -> usize {
    let mut accepted = 0;
    for chunk in core::mem::take(chunks) {
        if chunks.is_empty() && sw.is_writable(rq, out.config, out.scarcity) {
            accepted += chunk.len();
            enqueue(rq, chunk, out, now);
        } else {
            chunks.push(chunk);
        }
    }
    if chunks.is_empty() && !sw.is_writable(rq, out.config, out.scarcity) {
        chunks.push(Chunk::Static(&[]));
    }
    accepted
}

/// Queues chunks as far as there is space, and sends half-way. Returns the bytes queued.
fn append_parts(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    chunks: &mut Chunks,
    out: &mut Outbox<'_>,
    now: Time,
) -> (usize, Advertised) {
    let mut advertised = None;
    let (mut accepted, mut seen) = (0, 0);
    for mut chunk in core::mem::take(chunks) {
        let mut portion = if chunks.is_empty() { room(sw, rq, chunk.len(), out) } else { 0 };
        while portion > 0
            && chunk.len() > portion
            && let Some(head) = chunk.split(portion)
        {
            accepted += portion;
            enqueue(rq, head, out, now);
            // The reader should get data before half of its window is full.
            let much = accepted - seen > sw.max_wnd as usize / 2;
            if much {
                seen = accepted;
            }
            sw.hold.set_push(if much { Push::Asked } else { Push::Held });
            advertised = lane::transmit(sw, rq, ho, out, now, Ack::None).or(advertised);
            portion = room(sw, rq, chunk.len(), out);
        }
        if chunk.len() > portion {
            chunks.push(chunk);
            continue;
        }
        accepted += chunk.len();
        enqueue(rq, chunk, out, now);
    }
    (accepted, advertised)
}

/// Bytes to take now of `len`, or more. A buffer that is too small for the beginning of a connection grows first.
pub(super) fn room(sw: &mut SendWindow, rq: &RetransmitQueue, len: usize, out: &Outbox<'_>) -> usize {
    if sw.space(rq, out.config, out.scarcity) == 0 {
        sw.grow_to_begin(out.config, out.scarcity);
    }
    let space = sw.space(rq, out.config, out.scarcity);
    if len <= space as usize { space as usize } else { sw.portion(rq, space, out.config) as usize }
}

#[inline(always)]
pub(super) fn enqueue(rq: &mut RetransmitQueue, chunk: Chunk, out: &mut Outbox<'_>, now: Time) {
    let pushed = rq.push(chunk);
    out.memory += i64::from(pushed.memory);
    if pushed.spilled {
        out.wake_by(now + IDLE_CHECK);
    }
}

/// The connection has just been established: send the data that was queued before, and the acknowledgement.
pub(super) fn flush_pending(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time, ack: Ack) -> Advertised {
    super::close::continue_close(parts, out, now);
    parts.transmit(out, |sw, rq, ho, out| lane::transmit(sw, rq, ho, out, now, ack))
}
