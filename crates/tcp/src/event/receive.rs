//! RECEIVE (RFC 9293 section 3.10.3): hand data to the user in the buffers it arrived in.

use observe::Time;
use pktbuf::PktBuf;
use smallvec::SmallVec;
use wire::SeqNumber;

use super::TcpEvent;
use crate::access::PcbAccess;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{Ack, Pcb, Reassembly, ReceiveWindow, RecvSnapshot};
use crate::scarcity::of_buffer;
use crate::segment::{holds_later, is_as_sent, is_put_off};
use crate::state::State;

/// Take about `max` bytes of data: whole buffers, at least one if there is any, so it may be more. The caller copies
/// out of them after the guards have dropped, and keeps the rest that its user did not want yet.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    /// Bytes wanted.
    pub max: usize,
}

/// The result of a [`Receive`].
#[derive(Debug, Default)]
pub struct Received {
    /// The data, in order. Room for two inline: a larger value would cost more to move than a long one costs to
    /// allocate.
    pub data: SmallVec<[PktBuf; 2]>,
    /// More data is queued.
    pub more: bool,
    /// The peer may soon exhaust our window, and data beyond `max` was handed out, which counts as unread: report with
    /// [`ReportUnread`] how much of it the user has read. Otherwise the next `Receive`, when all of it is read, is
    /// enough.
    pub window_clamped: bool,
    /// The end of the stream follows `data`: the peer closed.
    pub end: bool,
    /// Bytes of memory by which the connection's buffers have shrunk: those of `data`.
    pub memory: u32,
    /// Position of the urgent mark, if there is one: bytes from the beginning of `data` to the byte after the urgent
    /// one (RFC 6093 section 3.1). It may lie behind `data`.
    pub urgent: Option<usize>,
}

/// Copies about the data that a [`Receive`] of `max` bytes would return, without taking it: nothing counts as read, and
/// the window stays the same.
#[derive(Clone, Copy, Debug)]
pub struct Peek {
    /// Bytes wanted.
    pub max: usize,
    /// The caller holds earlier data, and returns it if there is no more: the reason why the connection ended is kept
    /// for the call that would return nothing.
    pub follows_data: bool,
}

/// The result of a [`Peek`].
#[derive(Debug, Default)]
pub struct Peeked {
    /// The first bytes that were not handed out yet, `max` at most.
    pub data: Vec<u8>,
    /// The end of the stream follows `data`.
    pub end: bool,
    /// As in [`Received::urgent`].
    pub urgent: Option<usize>,
}

/// Reports how many bytes of the last [`Receive`] are still unread: they count as received and not read, and take room
/// from the window. Until then the bytes handed out beyond those requested count. The next [`Receive`] implies that all
/// is read.
#[derive(Clone, Copy, Debug)]
pub struct ReportUnread {
    /// Bytes not read yet; more than 65 535 count as 65 535.
    pub bytes: usize,
}

/// The work left after taking data: a window update to send, or there was no data.
#[derive(Debug)]
pub struct ReceiveRemainder {
    /// Nothing was taken, neither data nor the end of the stream.
    nothing: bool,
    update: Option<RecvSnapshot>,
    state: State,
}

impl Received {
    /// Checks the checksum of data for which that was left to the thread that takes it
    /// ([`ChecksumPlacement::After`](crate::config::ChecksumPlacement::After)); to be called with the connection released. False: some
    /// data is damaged. It and what follows it are dropped, and the connection has to be ended by
    /// [`DamagedData`](crate::DamagedData).
    pub fn check(&mut self) -> bool {
        let good = self.data.iter_mut().map_while(|buffer| holds_later(buffer).then_some(())).count();
        if good == self.data.len() {
            return true;
        }
        self.data.truncate(good);
        (self.more, self.end) = (false, false);
        false
    }
}

impl Receive {
    /// The first half of the event, which needs no outbox and is usually all. The data is put into `received`, which
    /// must be empty: a `Received` is too large to be returned by value cheaply.
    ///
    /// # Errors
    /// An error holds the second half of the event: run it. If that fails, nothing was taken.
    #[inline]
    pub fn take<A: PcbAccess>(self, pcb: &mut A, received: &mut Received) -> Result<(), ReceiveRemainder> {
        pcb.receive_side(|rw, ra| self.take_held(rw, ra, received))
    }

    #[inline(always)]
    fn take_held(
        self,
        rw: &mut ReceiveWindow,
        ra: &mut Reassembly,
        received: &mut Received,
    ) -> Result<(), ReceiveRemainder> {
        if rw.is_usual() && take_piece(rw, self.max, received) {
            rw.open_usual_window();
            if !rw.update_due() {
                return Ok(());
            }
            return Err(ReceiveRemainder { nothing: false, update: Some(report(rw, ra)), state: rw.state });
        }
        let kept = rw.kept;
        take(rw, self.max, received);
        // A call that took nothing made no room, even if the buffer's limit has grown meanwhile.
        let empty = received.data.is_empty();
        let update = if empty && kept == 0 { None } else { window_update(rw, ra) };
        // The end of the stream alone is an answer.
        let nothing = empty && !received.end;
        if nothing || update.is_some() { Err(ReceiveRemainder { nothing, update, state: rw.state }) } else { Ok(()) }
    }
}

impl TcpEvent for Receive {
    /// # Errors
    /// [`Error::WouldBlock`] when there is nothing yet, or why the connection ended, once (then
    /// [`Error::NotConnected`]).
    type Reply = Result<Received, Error>;

    #[inline]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<Received, Error> {
        let mut received = Received::default();
        ReceiveInto { max: self.max, received: &mut received }.run(pcb, out, now).map(|()| received)
    }
}

/// As [`Receive`], into a value in place.
#[derive(Debug)]
pub struct ReceiveInto<'r> {
    /// Bytes wanted.
    pub max: usize,
    /// Where the data is put; it must be empty.
    pub received: &'r mut Received,
}

impl TcpEvent for ReceiveInto<'_> {
    /// # Errors
    /// As [`Receive`].
    type Reply = Result<(), Error>;

    #[inline]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<(), Error> {
        let taken = Receive { max: self.max }.take(pcb, self.received);
        out.memory -= i64::from(self.received.memory);
        match taken {
            Ok(()) => Ok(()),
            Err(unfinished) => unfinished.run(pcb, out, now),
        }
    }
}

/// As [`Receive`] of one byte, but all data there is, if it is in one buffer, its checksum was verified and nothing rare is
/// on about the receive side, is returned without a list: mostly a request, or an answer.
#[derive(Debug)]
pub struct ReceivePiece<'r> {
    /// Where the data is put otherwise; it must be `None`, which costs nothing to make and to drop.
    pub rest: &'r mut Option<Received>,
}

impl TcpEvent for ReceivePiece<'_> {
    /// The piece; `None`: what was taken is in the list.
    ///
    /// # Errors
    /// As [`Receive`].
    type Reply = Result<Option<PktBuf>, Error>;

    #[inline(always)]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Self::Reply {
        // Nearly always, where one owner holds all parts.
        if let Some(Pcb { receive_window: rw, .. }) = pcb.all()
            && let Some(piece) = take_alone(rw)
        {
            out.memory -= i64::from(of_buffer(&piece));
            if rw.update_due() {
                report_window(pcb, out, now);
            }
            return Ok(Some(piece));
        }
        self.take_or_wait(pcb, out, now)
    }
}

impl ReceivePiece<'_> {
    #[inline(never)]
    fn take_or_wait<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<Option<PktBuf>, Error> {
        let taken = pcb.receive_side(|rw, ra| match take_alone(rw) {
            Some(piece) => Ok((piece, rw.update_due().then(|| report(rw, ra)))),
            None => Err(Receive { max: 1 }.take_held(rw, ra, self.rest.insert(Received::default()))),
        });
        match taken {
            Ok((piece, update)) => {
                out.memory -= i64::from(of_buffer(&piece));
                if let Some(snapshot) = update {
                    tell_window(snapshot, pcb, out, now);
                }
                Ok(Some(piece))
            }
            Err(taken) => {
                out.memory -= self.rest.as_ref().map_or(0, |rest| i64::from(rest.memory));
                taken.or_else(|unfinished| unfinished.run(pcb, out, now)).map(|()| None)
            }
        }
    }
}

/// The only buffer there is, if its checksum was verified and nothing is rare about the receive side.
#[inline(always)]
fn take_alone(rw: &mut ReceiveWindow) -> Option<PktBuf> {
    if !rw.is_usual() || rw.queue.front_mut().is_none_or(|buffer| is_put_off(buffer)) {
        return None;
    }
    let piece = pop_piece(rw, 1)?;
    rw.open_usual_window();
    Some(piece)
}

/// Data that has arrived in order for a user that takes it where it arrives ([`SegmentArrives::hand_on`](super::SegmentArrives::hand_on)). It was
/// not queued, and counts as unread until it is [taken](PassedData::take).
#[derive(Debug)]
#[must_use]
pub struct PassedData(PktBuf);

impl PassedData {
    #[inline(always)]
    pub(super) fn new(data: PktBuf) -> Self {
        PassedData(data)
    }

    /// Whether a user that is called for this data would find it readable, and nothing before it, where nothing is rare about
    /// the receive side.
    #[inline(always)]
    pub(super) fn may_pass(rw: &ReceiveWindow, data: &PktBuf) -> bool {
        rw.queued == 0 && rw.low_water as usize <= data.len() && !is_put_off(data)
    }

    /// The user takes it, as by [`ReceivePiece`].
    #[inline(never)]
    pub fn take(self, pcb: &mut Pcb, out: &mut Outbox<'_>, now: Time) -> PktBuf {
        let PassedData(data) = self;
        note_taken(&mut pcb.receive_window, data.len(), 1);
        pcb.receive_window.open_usual_window();
        if pcb.receive_window.update_due() {
            report_window(pcb, out, now);
        }
        data
    }
}

/// [`PassedData::take`] of `len` bytes. False: a window update would be due, and nothing has changed.
#[inline(always)]
pub(super) fn take_passed(rw: &mut ReceiveWindow, len: usize) -> bool {
    if rw.may_be_due() {
        return false;
    }
    note_taken(rw, len, 1);
    rw.open_usual_window();
    true
}

/// A window update is due to an owner of all parts.
#[cold]
#[inline(never)]
fn report_window<A: PcbAccess>(pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
    let snapshot = pcb.receive_side(report);
    tell_window(snapshot, pcb, out, now);
}

/// As [`Receive`], with an *application ticket*: the place of the data in the stream, read in the hold-set in which the data
/// is taken. With their tickets, several threads that receive from one connection can restore the order of the data after
/// they have released the connection (Nahum et al., OSDI 1994). The next ticket is this one plus the number of bytes.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveInOrder {
    /// Bytes wanted.
    pub max: usize,
}

/// The result of a [`ReceiveInOrder`].
#[derive(Debug)]
pub struct ReceivedInOrder {
    /// The sequence number of the first byte.
    pub ticket: SeqNumber,
    /// The data.
    pub received: Received,
}

impl TcpEvent for ReceiveInOrder {
    /// # Errors
    /// As [`Receive`].
    type Reply = Result<ReceivedInOrder, Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Self::Reply {
        let mut received = Received::default();
        let (ticket, taken) = pcb.receive_side(|rw, ra| {
            let ticket = rw.first_unread();
            (ticket, Receive { max: self.max }.take_held(rw, ra, &mut received))
        });
        out.memory -= i64::from(received.memory);
        if let Err(unfinished) = taken {
            unfinished.run(pcb, out, now)?;
        }
        Ok(ReceivedInOrder { ticket, received })
    }
}

/// As [`Receive`], if there is as much data as makes the connection readable, or the end of the stream; otherwise nothing
/// changes. For an owner that takes data before its user asks: the reason why a connection failed is kept for the user.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveReady {
    /// Bytes wanted.
    pub max: usize,
    /// Bytes that were taken before and that the user has not read. They and the data of this event count as received and
    /// not read, until [`ReportUnread`] or the next event of this kind.
    pub unread: usize,
}

impl TcpEvent for ReceiveReady {
    type Reply = Option<Received>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Option<Received> {
        let mut received = Received::default();
        let taken = pcb.receive_side(|rw, ra| {
            if !(rw.is_readable() || rw.discards()) {
                return None;
            }
            take(rw, self.max, &mut received);
            let taken: usize = received.data.iter().map(|buffer| buffer.len()).sum();
            rw.kept = kept(self.unread + taken);
            received.window_clamped = rw.kept > 0 && rw.is_clamped();
            Some(window_update(rw, ra))
        });
        out.memory -= i64::from(received.memory);
        if let Some(snapshot) = taken? {
            tell_window(snapshot, pcb, out, now);
        }
        (received.end || !received.data.is_empty()).then_some(received)
    }
}

impl TcpEvent for ReceiveRemainder {
    /// # Errors
    /// As [`Receive`].
    type Reply = Result<(), Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<(), Error> {
        let ReceiveRemainder { nothing, update, state } = self;
        if let Some(snapshot) = update {
            tell_window(snapshot, pcb, out, now);
        }
        if nothing { Err(why_nothing(state, pcb)) } else { Ok(()) }
    }
}

impl TcpEvent for Peek {
    /// # Errors
    /// As [`Receive`].
    type Reply = Result<Peeked, Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, _out: &mut Outbox<'_>, _now: Time) -> Result<Peeked, Error> {
        let (peeked, state) = pcb.receive_side(|rw, _| (peek(rw, self.max), rw.state));
        match peeked {
            Peeked { data, end: false, .. } if data.is_empty() && self.follows_data => Err(Error::WouldBlock),
            Peeked { data, end: false, .. } if data.is_empty() => Err(why_nothing(state, pcb)),
            peeked => Ok(peeked),
        }
    }
}

/// The reason why there is neither data nor the end of the stream. A failure of the connection is reported once.
fn why_nothing<A: PcbAccess>(state: State, pcb: &mut A) -> Error {
    match state {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.6
        //# If the local TCP connection is closed by the remote side due to a FIN or RST received from the
        //# remote side, then the local application MUST be informed whether it closed normally or was aborted
        //# (MUST-12).
        State::Closed => pcb.header_in(|header_in| header_in.error.take()).unwrap_or(Error::NotConnected),
        _ => Error::WouldBlock,
    }
}

fn peek(rw: &ReceiveWindow, max: usize) -> Peeked {
    let mut data = Vec::with_capacity(max.min(rw.queued as usize));
    let buffers = (0..).map_while(|index| rw.queue.get(index));
    for buffer in buffers {
        if !is_as_sent(buffer) {
            break;
        }
        let count = buffer.len().min(max - data.len());
        data.extend_from_slice(&buffer[..count]);
        if data.len() == max {
            break;
        }
    }
    let end = data.len() == rw.queued as usize && (rw.finished() || rw.discards());
    let first = rw.nxt - (rw.queued + u32::from(rw.finished()));
    let urgent = rw.urgent_valid.then(|| usize::try_from(rw.urgent - first).ok()).flatten();
    Peeked { data, end, urgent }
}

impl TcpEvent for ReportUnread {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        let update = pcb.receive_side(|rw, ra| {
            if rw.discards() {
                return None;
            }
            rw.kept = kept(self.bytes);
            window_update(rw, ra)
        });
        if let Some(snapshot) = update {
            tell_window(snapshot, pcb, out, now);
        }
    }
}

fn kept(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

fn tell_window<A: PcbAccess>(snapshot: RecvSnapshot, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
    let advertised = pcb.transmit(out, |sw, rq, ho, out| {
        ho.merge(snapshot);
        // Between the two hold-sets another thread may have taken the peer's FIN and acknowledged it. A later
        // acknowledgement is not needed, and the peer, if it is gone by then, answers it with a reset.
        let ack = if sw.state.accepts_data() { Ack::Now } else { Ack::None };
        output::transmit(sw, rq, ho, out, now, ack)
    });
    if advertised.is_some() {
        out.count(observe::Counter::WindowUpdatesOut, 1);
    }
}

/// [`take`] for the lane: where nothing is rare about the receive side, and all that is queued is in one buffer. False:
/// it is not, and nothing has changed.
#[inline(always)]
fn take_piece(rw: &mut ReceiveWindow, max: usize, received: &mut Received) -> bool {
    let Some(buffer) = pop_piece(rw, max) else { return false };
    received.memory += of_buffer(&buffer);
    received.data.push(buffer);
    received.window_clamped = rw.kept > 0 && rw.is_clamped();
    true
}

/// The only buffer of which a user wants `max` bytes; `None` where there are, or were, more.
#[inline(always)]
fn pop_piece(rw: &mut ReceiveWindow, max: usize) -> Option<PktBuf> {
    let buffer = rw.queue.pop_single()?;
    note_taken(rw, buffer.len(), max);
    Some(buffer)
}

/// A buffer of `len` bytes was handed to a user that wants `max` bytes.
#[inline(always)]
fn note_taken(rw: &mut ReceiveWindow, len: usize, max: usize) {
    rw.queued -= len as u32;
    rw.kept = kept(len.saturating_sub(max));
}

#[inline(always)]
fn take(rw: &mut ReceiveWindow, max: usize, received: &mut Received) {
    let first = rw.nxt - (rw.queued + u32::from(rw.finished()));
    // All at once, where they exceed the room that the value has of its own.
    received.data.reserve(rw.queue.len().min(max / usize::from(rw.peer_segment).max(1) + 1));
    let mut taken = 0;
    rw.queue.take_while(|buffer| {
        taken += buffer.len();
        received.memory += of_buffer(&buffer);
        received.data.push(buffer);
        taken < max
    });
    rw.queued -= taken as u32;
    rw.kept = kept(taken.saturating_sub(max));
    received.window_clamped = rw.kept > 0 && rw.is_clamped();
    received.more = rw.queued > 0;
    received.end = !received.more && (rw.finished() || rw.discards());
    if rw.urgent_valid {
        let mark = rw.urgent - first;
        received.urgent = usize::try_from(mark).ok();
        // Urgent mode ends past the mark.
        rw.urgent_valid = mark > taken as i32;
        rw.note_rare();
    }
}

/// Reading made room: decides whether it is enough for a window update.
#[inline(always)]
fn window_update(rw: &mut ReceiveWindow, ra: &mut Reassembly) -> Option<RecvSnapshot> {
    if !rw.state.accepts_data() {
        return None;
    }
    rw.open_window();
    rw.update_due().then(|| report(rw, ra))
}

/// The snapshot for a window update, which counts as sent.
#[cold]
fn report(rw: &mut ReceiveWindow, ra: &mut Reassembly) -> RecvSnapshot {
    let snapshot = rw.snapshot(ra);
    rw.acked(snapshot.nxt, snapshot.edge);
    snapshot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConnectionOptions};

    /// A receive side with `bytes` of unread data in one buffer.
    fn holding(bytes: &[u8]) -> ReceiveWindow {
        let (options, config) = (ConnectionOptions::default(), Config::default());
        let mut rw = ReceiveWindow::new(State::Established, 60_000, &options, &config, Time::ZERO);
        rw.append(PktBuf::from_slice(bytes).expect("the pool is not bounded"), false);
        rw
    }

    /// The one buffer that is all there is leaves the same behind as if there could be more.
    #[test]
    fn a_piece_is_taken_as_any_data() {
        for (len, max) in [(64, 64), (64, 63), (64, 1), (64, 0), (1, 0), (1448, 2000), (1448, 100)] {
            let bytes = vec![7; len];
            let (mut piece, mut any) = (holding(&bytes), holding(&bytes));
            let (mut of_piece, mut of_any) = (Received::default(), Received::default());
            assert!(take_piece(&mut piece, max, &mut of_piece));
            take(&mut any, max, &mut of_any);
            assert_eq!(format!("{of_piece:?}"), format!("{of_any:?}"), "{max} of {len}");
            assert_eq!(format!("{piece:?}"), format!("{any:?}"), "{max} of {len}");
        }
    }

    #[test]
    fn several_pieces_are_none() {
        let mut rw = holding(&[1; 2000]);
        rw.append(PktBuf::from_slice(&[2; 2000]).expect("the pool is not bounded"), false);
        assert!(!take_piece(&mut rw, 4000, &mut Received::default()));
        assert_eq!(rw.queued, 4000);
    }

    /// The buffer after a small one that is full has room for those that follow, so a peer that sends little at a time does not keep a block
    /// for each segment.
    #[test]
    fn many_short_pieces_share_blocks() {
        for len in [1, 64, 150] {
            let mut rw = holding(&vec![0; len]);
            for n in 1..300 {
                rw.append(PktBuf::from_slice(&vec![n as u8; len]).expect("the pool is not bounded"), false);
            }
            let (all, blocks) = (300 * len, rw.queue.len());
            let most = (all / (2048 - len) + 1) * (384 + 2112);
            assert!(rw.memory() as usize <= most, "{} for {all}", rw.memory());
            assert_eq!((rw.queued as usize, rw.queue.get(blocks)), (all, None));
            let mut read = Vec::new();
            rw.queue.take_while(|data| {
                read.extend_from_slice(&data);
                true
            });
            assert_eq!(read, (0..300).flat_map(|n| vec![n as u8; len]).collect::<Vec<_>>());
        }
    }
}
