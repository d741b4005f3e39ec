//! Reports plain work and plain memory to a platform that charges for them ([`Platform::CHARGED`]).
//!
//! Each function is for one place on a segment's path. On a real machine it is empty, and its arguments, which are
//! references, cost nothing. No other file of the stack calls [`Platform::work`] or [`Platform::touch`] (`cargo xtask
//! rules`), so this file shows that all of it is free. It names no type of the stack: each of its files may report.

use observe::{Counter, Counters, FREQUENT_BYTES};
use pktbuf::{Checksum, PktBuf};
use sync::{Object, Platform, Step};
use tcp::TcpEvent;

/// Bytes of headers and metadata that IP and TCP read of a received frame.
const HEADERS_READ: usize = 128;
/// Bytes written in front of the payload of a frame to send.
const HEADERS_WRITTEN: usize = 64;

/// Reports a read or write of a value in place.
#[inline(always)]
fn touch<P: Platform, T: ?Sized>(object: Object, value: &T, write: bool) {
    P::touch(object, std::ptr::from_ref(value).cast(), size_of_val(value), write);
}

/// A driver polls a receive queue.
#[inline(always)]
pub(crate) fn batch<P: Platform>() {
    if P::CHARGED {
        P::work(Step::Batch, 1);
    }
}

/// Least bytes of headers in a frame with a segment.
const HEADERS: usize = 40;

/// A frame is received. A super-segment counts as the frames that its device has joined.
#[inline(always)]
pub(crate) fn frame<P: Platform>(frame: &PktBuf) {
    if P::CHARGED {
        P::work(Step::Frame, parts(frame.len().saturating_sub(HEADERS), frame));
        touch::<P, _>(Object::Buffer, frame.split_at(frame.len().min(HEADERS_READ)).0, false);
    }
}

/// An event runs on a connection; `state` is all that it may change.
#[inline(always)]
pub(crate) fn event<P: Platform, C, S, E: TcpEvent>(state: &C, socket: &S, event: &E) {
    if P::CHARGED {
        P::work(Step::Event, event.segments());
        touch::<P, _>(Object::Connection, state, true);
        touch::<P, _>(Object::Socket, socket, true);
        let unchecked = event.unchecked();
        if !unchecked.is_empty() {
            P::sum(unchecked.as_ptr(), unchecked.len());
        }
    }
}

/// An event counts in this block.
#[inline(always)]
pub(crate) fn counted<P: Platform>(counters: &Counters) {
    if P::CHARGED {
        P::touch(Object::Counters, std::ptr::from_ref(counters).cast(), FREQUENT_BYTES, true);
    }
}

/// A part of an index of connections, or a timer wheel, is read (`write`: or changed).
#[inline(always)]
pub(crate) fn table<P: Platform, T>(part: Option<&T>, write: bool) {
    if P::CHARGED
        && let Some(part) = part
    {
        touch::<P, _>(Object::Table, part, write);
    }
}

/// A connection is about to be found in a table that threads share.
#[inline(always)]
pub(crate) fn look_up<P: Platform>() {
    if P::CHARGED {
        P::work(Step::LookUp, 1);
    }
}

/// The list of ready sockets, a member of it or an entry in it is changed.
#[inline(always)]
pub(crate) fn ready<P: Platform, T>(part: Option<&T>) {
    if P::CHARGED
        && let Some(part) = part
    {
        touch::<P, _>(Object::Ready, part, true);
    }
}

/// An event has processed this many segments of a run.
#[inline(always)]
pub(crate) fn segments<P: Platform>(count: usize) {
    if P::CHARGED {
        P::work(Step::Event, count);
    }
}

/// The work of an event whose parts of the connection are held one after the other. Each hold-set does a part of the work. The
/// size of a part is not known, so the usual hold-sets get equal parts. The rest is charged with no lock held.
pub struct EventWork {
    /// Of one segment, in quarters.
    left: usize,
    each: usize,
    segments: usize,
    /// The bytes to sum in the first hold-set: address and length.
    unchecked: (*const u8, usize),
}

impl EventWork {
    /// All of an event's.
    #[inline(always)]
    pub fn of<E: TcpEvent>(event: &E) -> EventWork {
        let unchecked = event.unchecked();
        let (each, segments) = (4 / event.hold_sets().clamp(1, 4), event.segments());
        EventWork { left: 4, each, segments, unchecked: (unchecked.as_ptr(), unchecked.len()) }
    }

    /// A hold-set that has `part` of the connection.
    #[inline(always)]
    pub fn hold<P: Platform, T>(&mut self, part: &T) {
        if P::CHARGED {
            let quarters = self.left.min(self.each);
            self.held::<P, T>(part, quarters);
        }
    }

    /// The hold-set of all parts, which are in `parts`.
    #[inline(always)]
    pub fn hold_all<P: Platform, T>(&mut self, parts: &T) {
        if P::CHARGED {
            self.held::<P, T>(parts, self.left);
        }
    }

    fn held<P: Platform, T>(&mut self, part: &T, quarters: usize) {
        P::work_in_part(Step::Event, quarters * self.segments);
        self.left -= quarters;
        touch::<P, _>(Object::Connection, part, true);
        let (address, length) = std::mem::replace(&mut self.unchecked, (std::ptr::null(), 0));
        if length > 0 {
            P::sum(address, length);
        }
    }

    /// The event is over.
    #[inline(always)]
    pub fn end<P: Platform, S>(&mut self, socket: &S) {
        if P::CHARGED {
            P::work_in_part(Step::Event, std::mem::take(&mut self.left) * self.segments);
            touch::<P, _>(Object::Socket, socket, true);
        }
    }
}

/// The checksum of a segment or datagram is checked.
#[inline(always)]
pub(crate) fn checked<P: Platform>(buffer: &PktBuf) {
    if P::CHARGED && buffer.meta().checksum == Checksum::None {
        P::sum(buffer.as_ptr(), buffer.len());
    }
}

/// Data is checked whose connection has been released.
#[inline(always)]
pub(crate) fn checked_later<P: Platform>(buffer: &PktBuf) {
    if P::CHARGED && matches!(buffer.meta().checksum, Checksum::Later { .. }) {
        P::sum(buffer.as_ptr(), buffer.len());
    }
}

/// Data that an event sums if the check cannot wait for the release of the connection.
pub(crate) struct LateCheck {
    /// Address and length.
    data: (*const u8, usize),
    /// Checks that could not wait, so far.
    inside: u64,
}

impl LateCheck {
    /// That of an event, before it runs.
    #[inline(always)]
    pub(crate) fn of<P: Platform, E: TcpEvent>(event: &E, counters: &Counters) -> LateCheck {
        if !P::CHARGED {
            return LateCheck { data: (std::ptr::null(), 0), inside: 0 };
        }
        let data = event.checked_late();
        LateCheck { data: (data.as_ptr(), data.len()), inside: counters.get(Counter::ChecksumsInside) }
    }

    /// The event has run, and its connection is held.
    #[inline(always)]
    pub(crate) fn end<P: Platform>(self, counters: &Counters) {
        if P::CHARGED && self.data.1 > 0 && counters.get(Counter::ChecksumsInside) != self.inside {
            P::sum(self.data.0, self.data.1);
        }
    }
}

/// Segments have got their headers and a copy of their data, and are given to the device. Counts segments on the wire: a
/// device may make several of one.
#[inline(always)]
pub(crate) fn emit<P: Platform>(segments: &[PktBuf]) {
    if P::CHARGED {
        P::work(Step::Emit, segments.iter().map(on_the_wire).sum());
        for segment in segments {
            let (headers, payload) = segment.split_at(segment.len().min(HEADERS_WRITTEN));
            touch::<P, _>(Object::Buffer, headers, true);
            touch::<P, _>(Object::Payload, payload, true);
        }
    }
}

/// The number of segments into which a device cuts one.
fn on_the_wire(segment: &PktBuf) -> usize {
    parts(segment.len().saturating_sub(wire::tcp::header_len(segment)), segment)
}

/// The number of segments with these bytes of data in a buffer.
fn parts(data: usize, segment: &PktBuf) -> usize {
    match usize::from(segment.meta().segment_size) {
        0 => 1,
        size => data.div_ceil(size).max(1),
    }
}

/// A user's SEND enters the stack. Its data was written by the user, and is read here.
#[inline(always)]
pub(crate) fn send<P: Platform>(send: &tcp::Send) {
    if P::CHARGED {
        P::work(Step::Call, 1);
        send.chunks.iter().for_each(|chunk| touch::<P, _>(Object::Payload, chunk.as_slice(), false));
    }
}

/// The same for RECEIVE, or another call without data.
#[inline(always)]
pub(crate) fn receive<P: Platform>() {
    if P::CHARGED {
        P::work(Step::Call, 1);
    }
}

/// RECEIVE returns. The user reads its data, to copy it.
#[inline(always)]
pub(crate) fn received<P: Platform>(received: &tcp::Received) {
    if P::CHARGED {
        received.data.iter().for_each(|data| touch::<P, _>(Object::Payload, &data[..], false));
    }
}

/// Messages are put into a queue (`write`) or taken from it.
#[inline(always)]
pub(crate) fn messages<'a, P: Platform, M: 'a>(messages: impl IntoIterator<Item = &'a M>, write: bool) {
    if P::CHARGED {
        for message in messages {
            P::work(Step::Message, 1);
            touch::<P, _>(Object::Message, message, write);
        }
    }
}

/// A frame is put into an input that several threads share (`write`), or taken from it.
#[inline(always)]
pub(crate) fn shared_frame<P: Platform, T>(frame: Option<&T>, write: bool) {
    if P::CHARGED
        && let Some(frame) = frame
    {
        P::work(Step::Message, 1);
        touch::<P, _>(Object::Message, frame, write);
    }
}

/// An event is left for the thread that uses its connection, or that processes its work stream (`write`), or taken by it.
#[inline(always)]
pub(crate) fn left<P: Platform, T>(event: &T, write: bool) {
    if P::CHARGED {
        P::work(Step::Message, 1);
        touch::<P, _>(Object::Message, event, write);
    }
}

/// Timers that are due have been found.
#[inline(always)]
pub(crate) fn timers<P: Platform>(n: usize) {
    if P::CHARGED {
        P::work(Step::Timer, n);
    }
}
