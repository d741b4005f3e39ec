//! SEND (RFC 9293 section 3.10.2), and the continuation of a transmission that the device held up.

use observe::Time;
use pktbuf::Chunk;
use smallvec::SmallVec;

use super::Event;
use super::segment_arrives::text::IDLE_CHECK;
use crate::access::{PcbAccess, PcbMut};
use crate::error::Error;
use crate::fast_path;
use crate::outbox::Outbox;
use crate::output::{self, Told};
use crate::pcb::{Ack, RetransmitQueue, SendWindow};
use crate::state::State;

/// Text to send, in order. Room for one inline, which is what nearly every call gives: calls and their answers are moved
/// several times.
pub type Chunks = SmallVec<[Chunk; 1]>;

/// Append text to the send queue, as far as there is space, and send what may be sent.
#[derive(Default)]
pub struct Send {
    /// The text.
    pub chunks: Chunks,
}

/// What became of a [`Send`].
#[derive(Default)]
pub struct Sent {
    /// Octets taken.
    pub accepted: usize,
    /// What was not taken, for lack of space: wait for `WRITABLE` and send it again.
    pub rest: Chunks,
}

impl Event for Send {
    /// # Errors
    /// [`Error::NotConnected`] or why the connection ended; [`Error::Shutdown`] after a close or shutdown of this
    /// direction. The chunks are dropped then.
    type Reply = Result<Sent, Error>;

    #[inline]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<Sent, Error> {
        let mut sent = Sent::default();
        let told = pcb.transmit(out, |sw, rq, ho, out| {
            append(sw, rq, self.chunks, &mut sent, out, now)?;
            Ok(output::transmit(sw, rq, ho, out, now, Ack::None))
        });
        if let Ok(Some((nxt, edge))) = told {
            pcb.receive_side(|rw, _| {
                // Text carried the acknowledgement: this is a dialogue, and delaying pays.
                rw.quick = 0;
                rw.acked(nxt, edge);
            });
        }
        match told {
            Ok(_) => Ok(sent),
            Err(Error::NotConnected) => Err(pcb.header_in(|header_in| header_in.error).unwrap_or(Error::NotConnected)),
            Err(error) => Err(error),
        }
    }
}

/// Append text whose last octet is urgent (`MSG_OOB`), and send what may be sent. Urgent text takes its place in the stream
/// like any other (RFC 6093 section 6).
pub struct SendUrgent(pub Send);

impl Event for SendUrgent {
    /// As [`Send`]; the mark is set if all text was taken.
    type Reply = Result<Sent, Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<Sent, Error> {
        let len: usize = self.0.chunks.iter().map(Chunk::len).sum();
        pcb.send_side(|sw, rq| {
            let fits = len > 0 && len <= sw.space(rq) as usize && sw.state.accepts_send() && !sw.fin_queued;
            if fits {
                // Before the text is queued, or the segments that it leaves in would not know.
                let end = sw.una + rq.len + len as u32;
                sw.shaping(out.config).urgent = Some(end);
            }
        });
        self.0.run(pcb, out, now)
    }
}

/// Append text that ends a record (`MSG_EOR`), and send what may be sent: no segment carries text from both sides of the end,
/// sent for the first time or again, and the end of a record does not wait for text that cannot join it.
pub struct SendRecord(pub Send);

impl Event for SendRecord {
    /// As [`Send`]; the record ends if all text was taken.
    type Reply = Result<Sent, Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<Sent, Error> {
        let len: usize = self.0.chunks.iter().map(Chunk::len).sum();
        pcb.send_side(|sw, rq| {
            if len > 0 && len <= sw.space(rq) as usize && sw.state.accepts_send() && !sw.fin_queued {
                // Before the text is queued, or the segments that it leaves in would not know.
                let end = sw.una + rq.len + len as u32;
                sw.shaping(out.config).records.push_back(end);
            }
        });
        self.0.run(pcb, out, now)
    }
}

/// Queue as much of `chunks` as there is space for.
#[inline]
fn append(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    mut chunks: Chunks,
    sent: &mut Sent,
    out: &mut Outbox<'_>,
    now: Time,
) -> Result<(), Error> {
    if sw.fin_queued {
        return Err(Error::Shutdown);
    }
    if !sw.state.accepts_send() {
        return Err(Error::NotConnected);
    }
    if let [chunk] = &chunks[..]
        && chunk.len() <= sw.space(rq) as usize
    {
        sent.accepted = chunk.len();
        chunks.pop().into_iter().for_each(|chunk| enqueue(rq, chunk, out, now));
        return Ok(());
    }
    append_some(sw, rq, chunks, sent, out, now);
    Ok(())
}

/// [`append`] for several chunks, or one that does not fit.
fn append_some(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    chunks: Chunks,
    sent: &mut Sent,
    out: &mut Outbox<'_>,
    now: Time,
) {
    for mut chunk in chunks {
        let space = sw.space(rq) as usize;
        let len = chunk.len();
        if len > space || !sent.rest.is_empty() {
            if space > 0
                && sent.rest.is_empty()
                && let Some(head) = chunk.split(space)
            {
                sent.accepted += space;
                enqueue(rq, head, out, now);
            }
            sent.rest.push(chunk);
            sw.blocked = true;
            continue;
        }
        sent.accepted += len;
        enqueue(rq, chunk, out, now);
    }
}

#[inline]
fn enqueue(rq: &mut RetransmitQueue, chunk: Chunk, out: &mut Outbox<'_>, now: Time) {
    if rq.push(chunk) {
        out.wake_by(now + IDLE_CHECK);
    }
}

/// The connection has just been established: send what was queued before, and the acknowledgement.
pub(super) fn flush_pending(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time, ack: Ack) -> Told {
    super::close::continue_close(parts, out, now);
    parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, ack))
}

/// The device (or the buffer pool) takes segments again: go on where [`Outbox::starved`] was set.
#[derive(Clone, Copy, Debug)]
pub struct TransmitReady;

impl Event for TransmitReady {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        if pcb.send_side(|sw, rq| sw.state != State::Closed && sw.has_work(rq)) {
            fast_path::transmit(pcb, out, None, now);
        }
    }
}
