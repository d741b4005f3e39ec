//! The receive-window part: data received in order, space for more, and the window to advertise.
//!
//! Data is queued in the buffers it arrived in and handed to the user in the same buffers. The part decides *when* an
//! acknowledgement is due; the segment itself is made under the header-out part, from a [`RecvSnapshot`], because the
//! two parts may be held by different threads at different times.

use core::time::Duration;

use observe::Time;
use pktbuf::{Checksum, PktBuf};
use wire::SeqNumber;
use wire::tcp::SackBlocks;

use super::ack_delay::{AckDelay, Gap};
use super::fifo::{Appended, Fifo, behind};
use super::sizing::opening;
use super::{Rare, Reassembly, Sizing};
use crate::config::{Config, ConnectionOptions};
use crate::isn::ChildIdentity;
use crate::outbox::{LocalEffects, Outbox};
use crate::scarcity::of_buffer;
use crate::state::State;
use crate::window_rule::{WindowInputs, WindowRule};

/// Data of up to this many bytes is copied into the buffer before it, if that has room, so that a peer that sends one
/// byte at a time does not pin one buffer per byte. About half of a block for one frame: whatever lengths a peer
/// chooses, two adjacent blocks hold at least as much as one could, and unread data pins at most about three times its
/// length.
pub(crate) const COALESCE: usize = 1024;

/// RFC 7323 section 5.5: a timestamp that was not confirmed for 24 days may have wrapped.
const TS_RECENT_LIFE: u32 = ((24 * 86_400 * 1_000_000_000_u64) >> 30) as u32;

/// `time` in units of 2^30 ns, about a second: a shift; seconds would need a division per segment.
#[inline]
fn ticks_of_2_30_ns(time: Time) -> u32 {
    (time.as_nanos() >> 30) as u32
}

/// `time` in units of 2^18 ns, about a quarter of a millisecond, modulo 2^32: a shift as well.
#[inline]
fn ticks_of_2_18_ns(time: Time) -> u32 {
    (time.as_nanos() >> 18) as u32
}

/// Initial size of the receive buffer, in bytes.
fn buffer(options: &ConnectionOptions, config: &Config) -> u32 {
    options.receive_buffer.unwrap_or(config.receive_buffer.initial).clamp(1, 1 << 30)
}

/// Largest window to announce, in bytes.
fn clamp(options: &ConnectionOptions) -> u32 {
    options.window_clamp.unwrap_or(1 << 30)
}

/// The window of our SYN: the buffer as far as an unscaled field can express it, and no more than configured for this
/// MSS, less the options of every segment where known.
pub(crate) fn first_window(options: &ConnectionOptions, config: &Config, mss: u16) -> u32 {
    let wished = options.initial_receive_window.map_or(u32::MAX, |segments| u32::from(segments) * u32::from(mss));
    let space = config.window_rule.first(buffer(options, config).min(clamp(options)), mss);
    space.min(u32::from(u16::MAX)).min(wished)
}

/// A snapshot of the receive side for the header-out part. Merged monotonically: a stale snapshot changes nothing.
#[derive(Debug)]
pub(crate) struct RecvSnapshot {
    pub(crate) nxt: SeqNumber,
    pub(crate) edge: SeqNumber,
    pub(crate) ts_recent: u32,
    /// Boxed, because data in order has none.
    pub(crate) sack: Option<Box<SackBlocks>>,
    /// Acknowledgements are quick: data that is sent now may be an answer, although nothing is left to acknowledge.
    pub(crate) quick: bool,
}

/// How urgently an acknowledgement must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ack {
    /// Not at all.
    None,
    /// Within the delay, or with any segment sent before.
    Delayed,
    /// At once; a segment with data will do.
    Now,
    /// At once, as a segment without data: a duplicate acknowledgement (RFC 5681) or one that carries SACK blocks.
    Pure,
}

/// How arriving data is treated, and when the user is notified of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMode {
    /// The user is notified when the low-water mark is reached.
    AtLowWater,
    /// The user is notified of every arrival, also while data is unread.
    EveryArrival,
    /// The user reads no more: data is acknowledged and discarded.
    Discard,
}

/// Where the peer's FIN is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fin {
    /// Not seen, or beyond a hole.
    Ahead,
    /// Next in sequence; the slow path takes it.
    Next,
    /// Taken.
    Taken,
}

/// Which segments have advertised our window so far. The field of a SYN is not scaled: it advertises at most 65 535
/// bytes, exactly. Any other is rounded up to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowAdvertised {
    /// Our SYN alone.
    Syn,
    /// Our SYN alone, and it has acknowledged data.
    SynWithData,
    /// A segment without SYN; none has acknowledged data.
    NoData,
    /// An acknowledgement of data without SYN.
    Data,
}

/// See the module documentation.
#[derive(Debug)]
#[repr(C)]
pub struct ReceiveWindow {
    pub(crate) queue: Fifo<PktBuf>,
    /// When a delayed acknowledgement is due.
    pub(crate) ack_deadline: Time,
    /// Bytes of data received in order.
    pub(crate) bytes_received: u64,
    pub(crate) nxt: SeqNumber,
    /// Right edge of the window, as the peer may know it.
    pub(crate) edge: SeqNumber,
    /// Right edge of the window, as last advertised.
    pub(crate) advertised_edge: SeqNumber,
    pub(crate) last_ack_sent: SeqNumber,
    /// Data bytes in `queue`.
    pub(crate) queued: u32,
    /// Size of the receive buffer.
    pub(crate) limit: u32,
    /// Largest window that is ever announced.
    pub(crate) clamp: u32,
    /// Data bytes handed out beyond the request, which count as unread, 65 535 at most: the rest of a buffer in which a
    /// read ended.
    pub(crate) kept: u16,
    /// For how long an acknowledgement waits.
    pub(crate) delay: AckDelay,
    /// Our window shift.
    pub(crate) shift: u8,
    /// The rare states of this side.
    pub(crate) rare: Rare,
    /// Which segments have advertised our window.
    pub(super) advertised: WindowAdvertised,
    pub(crate) sack: bool,
    // Fields from here on are not touched by a call.
    pub(crate) ts_recent: u32,
    /// Bytes of data that make the socket readable; at least 1.
    pub(crate) low_water: u32,
    /// RCV.NXT at which the round ends in which `sizing` measures.
    pub(crate) round_end: SeqNumber,
    /// Segments in order that carried data, modulo 2^32.
    pub(crate) data_segments_in: u32,
    /// When data last arrived, in units of 2^18 ns modulo 2^32.
    last_data: u32,
    /// Earliest wake requested by this part and still pending.
    pub(crate) armed: Time,
    /// Largest data seen in one segment: the peer's segment size.
    pub(crate) peer_segment: u16,
    // Rarely used fields.
    /// Copy of `HeaderIn::state`.
    pub(crate) state: State,
    /// How the window is chosen.
    pub(super) rule: WindowRule,
    /// The peer's FIN.
    pub(super) fin: Fin,
    /// How arriving data is treated, and when the user is notified.
    pub(crate) reading: ReadMode,
    /// The buffer may grow.
    pub(crate) grows: bool,
    pub(crate) urgent_valid: bool,
    /// The sequence number after the urgent byte, if `urgent_valid`.
    pub(crate) urgent: SeqNumber,
    /// When `ts_recent` was last confirmed, in units of 2^30 ns.
    pub(super) ts_recent_at: u32,
    /// From the second round on.
    pub(crate) sizing: Option<Box<Sizing>>,
}

impl ReceiveWindow {
    /// The peer's FIN is next in sequence.
    #[inline]
    pub(crate) fn fin_next(&self) -> bool {
        self.fin == Fin::Next
    }

    /// Data was taken up to RCV.NXT; `fin`: a FIN follows it.
    #[inline]
    pub(crate) fn note_fin(&mut self, fin: bool) {
        if fin && self.fin == Fin::Ahead {
            self.fin = Fin::Next;
            self.note_closing();
        }
    }

    /// The FIN that is next in sequence is taken.
    pub(crate) fn take_fin(&mut self) {
        self.fin = Fin::Taken;
        self.note_closing();
        self.nxt += 1;
    }

    /// The peer's FIN has arrived, without data. A user that learns of it mostly closes as well, or sends what is left, and its
    /// segment carries the acknowledgement if it comes before the delay is over: a dialogue, as on Linux. If the user has closed,
    /// nothing more comes.
    #[inline]
    pub(crate) fn expect_close(&mut self, config: &Config) {
        if config.delay_fin_acks && self.state == State::Established {
            self.delay.begin_dialogue();
        }
    }

    /// The peer's FIN has been taken.
    #[inline]
    pub(crate) fn finished(&self) -> bool {
        self.fin == Fin::Taken
    }

    /// Whether the user reads no more.
    #[inline(always)]
    pub(crate) fn discards(&self) -> bool {
        self.reading == ReadMode::Discard
    }

    /// `first`: the window of our SYN.
    #[inline(always)]
    pub(crate) fn new(state: State, first: u32, options: &ConnectionOptions, config: &Config, now: Time) -> Self {
        let limit = buffer(options, config);
        ReceiveWindow {
            nxt: SeqNumber(0),
            edge: SeqNumber(first),
            advertised_edge: SeqNumber(0),
            last_ack_sent: SeqNumber(0),
            ts_recent: 0,
            peer_segment: 536,
            state,
            shift: 0,
            rule: config.window_rule,
            rare: Rare::of_new_receiver(state),
            delay: AckDelay::new(config.quick_acks),
            sack: false,
            fin: Fin::Ahead,
            reading: ReadMode::AtLowWater,
            grows: options.receive_buffer.is_none(),
            urgent_valid: false,
            advertised: WindowAdvertised::Syn,
            urgent: SeqNumber(0),
            queued: 0,
            kept: 0,
            limit,
            low_water: options.receive_low_water.unwrap_or(1).clamp(1, limit),
            clamp: clamp(options),
            round_end: SeqNumber(0),
            sizing: None,
            ts_recent_at: ticks_of_2_30_ns(now),
            data_segments_in: 0,
            bytes_received: 0,
            last_data: ticks_of_2_18_ns(now),
            ack_deadline: Time::MAX,
            armed: Time::MAX,
            queue: Fifo::new(),
        }
    }

    /// Another one that has received a SYN like this one's, and nothing else.
    #[inline(always)]
    pub(crate) fn like(&self, identity: &ChildIdentity<'_>) -> Self {
        let nxt = identity.irs + 1;
        let edge = nxt + (self.edge - self.nxt) as u32;
        ReceiveWindow {
            queue: Fifo::new(),
            ack_deadline: self.ack_deadline,
            bytes_received: self.bytes_received,
            nxt,
            edge,
            advertised_edge: edge,
            last_ack_sent: nxt,
            queued: self.queued,
            limit: self.limit,
            clamp: self.clamp,
            kept: self.kept,
            delay: self.delay,
            shift: self.shift,
            rare: self.rare,
            advertised: self.advertised,
            sack: self.sack,
            ts_recent: identity.ts_recent,
            low_water: self.low_water,
            round_end: nxt + (self.round_end - self.nxt) as u32,
            data_segments_in: self.data_segments_in,
            last_data: ticks_of_2_18_ns(identity.now),
            armed: self.armed,
            peer_segment: self.peer_segment,
            state: self.state,
            rule: self.rule,
            fin: self.fin,
            reading: self.reading,
            grows: self.grows,
            urgent_valid: self.urgent_valid,
            urgent: self.urgent,
            ts_recent_at: ticks_of_2_30_ns(identity.now),
            sizing: None,
        }
    }

    /// Our SYN-ACK offered `window` bytes.
    pub(crate) fn offer_first(&mut self, window: u32) {
        self.edge = self.nxt + window;
    }

    /// The peer's SYN arrived: RCV.NXT follows it, and the window is that of our SYN.
    pub(crate) fn synchronise(&mut self, irs: SeqNumber) {
        let window = (self.edge - self.nxt).max(0) as u32;
        self.nxt = irs + 1;
        self.last_ack_sent = self.nxt;
        self.edge = self.nxt + window;
        self.advertised_edge = self.edge;
        self.round_end = self.nxt + opening(self.limit);
    }

    /// Bytes that may still arrive beyond RCV.NXT. A scaled window is rounded up on the wire, so the peer may use up to
    /// one unit beyond `edge`.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
    //# The receiver MUST honor, as in window, any segment that would have been in window for any <ACK> sent by the
    //# receiver.
    #[inline]
    pub(crate) fn window(&self) -> u32 {
        let open = self.edge - self.nxt + ((1 << self.shift) - 1);
        open.max(0) as u32
    }

    /// Right edge up to which data is accepted.
    #[inline]
    pub(crate) fn accept_edge(&self) -> SeqNumber {
        self.nxt + self.window()
    }

    /// RCV.NXT + RCV.WND as last advertised: the field is unscaled in a SYN, and rounded up to a unit later.
    #[inline]
    pub(crate) fn advertised_right_edge(&self) -> SeqNumber {
        let unit = if matches!(self.advertised, WindowAdvertised::Syn | WindowAdvertised::SynWithData) {
            1
        } else {
            1 << self.shift
        };
        self.advertised_in_units(unit)
    }

    /// [`ReceiveWindow::advertised_right_edge`], with a window field in this unit.
    #[inline(always)]
    fn advertised_in_units(&self, unit: u32) -> SeqNumber {
        let window = (self.advertised_edge - self.last_ack_sent).max(0) as u32;
        self.last_ack_sent + ((window + (unit - 1)) & !(unit - 1))
    }

    /// Note that data of `bytes` arrived in order at `now`. `usual`: nothing is rare about this side, so it is not the
    /// first.
    #[inline(always)]
    pub(crate) fn tally(&mut self, bytes: usize, usual: bool, config: &Config, now: Time) {
        let first = !usual && self.bytes_received == 0;
        if !first {
            self.delay.data_arrived(self.gap(now), config);
        }
        self.data_segments_in = self.data_segments_in.wrapping_add(1);
        self.bytes_received += bytes as u64;
        self.last_data = ticks_of_2_18_ns(now);
        if first {
            self.note_beginning();
        }
    }

    /// The time since data last arrived.
    #[inline(always)]
    fn gap(&self, now: Time) -> Gap {
        Gap::new(ticks_of_2_18_ns(now).wrapping_sub(self.last_data))
    }

    /// A segment with data was sent, which advertised RCV.NXT and the right edge.
    #[inline(always)]
    pub(crate) fn data_sent(&mut self, (nxt, edge): (SeqNumber, SeqNumber), config: &Config, now: Time) {
        if self.bytes_received > 0 {
            self.delay.data_sent(self.gap(now), config);
        }
        self.acked(nxt, edge);
    }

    /// Data may arrive from now on: until it does, `now` counts as its last arrival.
    pub(crate) fn begin_data(&mut self, now: Time) {
        self.last_data = ticks_of_2_18_ns(now);
    }

    /// Time since data last arrived, to a quarter of a millisecond; wrong after 13 days of silence.
    pub(crate) fn since_data(&self, now: Time) -> Duration {
        Duration::from_nanos(u64::from(ticks_of_2_18_ns(now).wrapping_sub(self.last_data)) << 18)
    }

    /// Append in-order data. `usual`: nothing is rare about this side.
    #[inline(always)]
    pub(crate) fn append(&mut self, mut data: PktBuf, usual: bool) -> Appended {
        let len = data.len();
        self.nxt += len as u32;
        if !usual && self.discards() {
            return Appended::NOTHING;
        }
        let alone = self.queued == 0;
        self.queued += len as u32;
        // Data that the user has left unread lies in the last buffer; usually there is none.
        if !alone
            && len <= COALESCE
            && let Some(tail) = self.queue.back_mut()
        {
            let checked = !matches!(tail.meta().checksum, Checksum::Later { .. });
            if checked && tail.tailroom() >= len && tail.extend_from_slice(&data) {
                return Appended::NOTHING;
            }
            data = behind(tail, data);
        }
        let memory = of_buffer(&data);
        Appended { memory, spilled: self.queue.push(data) }
    }

    /// Drop the data that the user has not taken.
    pub(crate) fn drop_queue(&mut self, out: &mut Outbox<'_>) {
        out.memory -= i64::from(self.memory());
        self.queue.clear();
        self.queued = 0;
    }

    /// Bytes of memory that the data which the user has not taken occupies.
    pub(crate) fn memory(&self) -> u32 {
        (0..).map_while(|index| self.queue.get(index)).map(of_buffer).sum()
    }

    /// Free space for data from RCV.NXT on, in bytes. Data out of order lies inside it, and does not reduce it.
    #[inline]
    fn space(&self) -> u32 {
        if self.discards() { self.limit } else { self.limit.saturating_sub(self.unread()) }
    }

    /// Bytes that the user has not read: those in the queue, and the rest of a buffer that it holds.
    #[inline]
    pub(crate) fn unread(&self) -> u32 {
        self.queued + u32::from(self.kept)
    }

    /// Whether the user's progress in the buffer it holds matters. It does not while half of the receive buffer is open
    /// to the peer: the next `Receive` reports it in time.
    pub(crate) fn is_clamped(&self) -> bool {
        ((self.advertised_edge - self.nxt).max(0) as u32) < self.limit / 2
    }

    /// Moves the right edge if that opens the window by a useful amount, as the rule defines it. It never moves back.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
    //# A TCP receiver SHOULD NOT shrink the window, i.e., move the right window edge to the left (SHLD-14).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.2
    //# A TCP implementation MUST include a SWS avoidance algorithm in the receiver (MUST-39).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
    //# A TCP implementation MAY keep its offered receive window closed indefinitely (MAY-8).
    #[inline(always)]
    pub(crate) fn open_window(&mut self) {
        let usual = self.rule == WindowRule::Linux && self.shift != 0 && self.bytes_received != 0;
        let free = self.advertisable(self.space());
        // What the rule chooses at nearly every segment and read, and where it is all that is free.
        if usual && free >= self.limit / 2 {
            self.open_by(free);
        } else {
            self.open_by_rule(free);
        }
    }

    /// [`ReceiveWindow::open_window`] where nothing is rare about this side: the rule is Linux's, the window is scaled, the
    /// user reads, and data was acknowledged before.
    #[inline(always)]
    pub(crate) fn open_usual_window(&mut self) {
        debug_assert!(self.is_usual());
        let unread = self.unread();
        let free = self.advertisable(self.limit.saturating_sub(unread));
        if free < self.limit / 2 {
            return self.open_by_rule(free);
        }
        let edge = self.nxt + free;
        if edge.gt(self.edge) {
            self.edge = edge;
        }
        if self.edge - self.advertised_edge < 1 << self.shift {
            self.keep_at(self.advertised_in_units(1 << self.shift), unread);
        }
    }

    /// What a window field can say of so many free bytes, and the user allows.
    #[inline(always)]
    fn advertisable(&self, free: u32) -> u32 {
        free.min(self.clamp).min(u32::from(u16::MAX) << self.shift)
    }

    #[inline(never)]
    fn open_by_rule(&mut self, free: u32) {
        if self.rule == WindowRule::Linux && self.bytes_received == 0 {
            // The first data shows the size of its segments; until then the first window stays.
            return;
        }
        let window = self.rule.choose(WindowInputs {
            free,
            limit: self.limit,
            clamp: self.clamp,
            open: (self.edge - self.nxt).max(0) as u32,
            offered: (self.advertised_edge - self.last_ack_sent).max(0) as u32,
            segment: self.peer_segment.into(),
            shift: self.shift,
        });
        self.open_by(window);
    }

    /// Moves the right edge to `window` bytes beyond RCV.NXT, if that is further.
    #[inline(always)]
    fn open_by(&mut self, window: u32) {
        let edge = self.nxt + window;
        if edge.gt(self.edge) {
            self.edge = edge;
        }
        // The advertised edge is less than a unit beyond the intended one: usually the edge has already moved further.
        if self.edge - self.advertised_edge < 1 << self.shift {
            self.keep_edge();
        }
    }

    /// Moves the edge to the last advertised one. The window field counts units from RCV.NXT and is rounded up. If the
    /// edge stayed at the intended place while RCV.NXT moves by a part of a unit, the next field could be a unit
    /// smaller, and the edge that the peer sees would move left.
    ///
    /// So the window reaches beyond the buffer, by a quarter of the buffer at most: otherwise small unread segments
    /// would keep the window open for ever. Beyond that the edge that the peer sees does move left, by less than a unit
    /// at a time, which RFC 7323 section 2.4 allows.
    #[inline]
    fn keep_edge(&mut self) {
        let unread = if self.discards() { 0 } else { self.unread() };
        self.keep_at(self.advertised_right_edge(), unread);
    }

    /// [`ReceiveWindow::keep_edge`] with the edge that was advertised and the bytes that are unread.
    #[inline(always)]
    fn keep_at(&mut self, advertised: SeqNumber, unread: u32) {
        if advertised.gt(self.edge) {
            let taken = unread + (advertised - self.nxt).max(0) as u32;
            if taken <= self.limit + (self.limit / 4).max(1 << self.shift) {
                self.edge = advertised;
            }
        }
    }

    /// Whether the window has opened far enough, since it was last advertised, for a window update.
    #[inline(always)]
    pub(crate) fn update_due(&self) -> bool {
        self.may_be_due() && self.edge_has_gained()
    }

    /// Whether a window update may be due, however far the window has opened. Nearly always at least half of the buffer is still
    /// open to the peer, and it is not.
    #[inline(always)]
    pub(crate) fn may_be_due(&self) -> bool {
        ((self.advertised_edge - self.nxt).max(0) as u32) < self.limit / 2
    }

    #[inline(never)]
    fn edge_has_gained(&self) -> bool {
        if !self.edge.gt(self.advertised_edge) {
            return false;
        }
        let gain = self.edge - self.advertised_right_edge();
        // While much of the advertised window is left, an update would be a needless segment. The window of a SYN is
        // limited by its field; the first acknowledgement of data advertises the rest of the buffer.
        let much = if matches!(self.advertised, WindowAdvertised::Syn | WindowAdvertised::NoData) {
            (self.limit / 2).min(u32::from(u16::MAX) / 2)
        } else {
            self.limit / 2
        };
        // A peer with less than half of the largest window left may wait until it has half, which can need a smaller
        // gain in whole segments.
        let frees = || self.rule == WindowRule::Linux && (self.edge - self.nxt) as u32 >= self.limit / 2;
        // Rounding to the scale's unit may have put the advertised edge beyond the intended one; that part is no loss.
        let part = (1 << self.shift) - 1;
        gain > 0
            && (gain as u32 + part >= (self.limit / 2).min(2 * u32::from(self.peer_segment)) || frees())
            && ((self.advertised_edge - self.nxt).max(0) as u32) < much
    }

    /// The snapshot for the header-out part.
    #[inline]
    pub(crate) fn snapshot(&self, reassembly: &mut Reassembly) -> RecvSnapshot {
        let sack = if self.sack && reassembly.has_blocks() { self.blocks(reassembly) } else { None };
        RecvSnapshot { nxt: self.nxt, edge: self.edge, ts_recent: self.ts_recent, sack, quick: self.delay.is_quick() }
    }

    #[cold]
    fn blocks(&self, reassembly: &mut Reassembly) -> Option<Box<SackBlocks>> {
        let blocks = reassembly.sack_blocks(self.nxt);
        (!blocks.is_empty()).then(|| Box::new(blocks))
    }

    /// The peer's timestamp was stored just now.
    #[inline]
    pub(crate) fn confirm_timestamp(&mut self, now: Time) {
        self.ts_recent_at = ticks_of_2_30_ns(now);
    }

    /// Whether the peer's timestamp was confirmed recently enough that it cannot have wrapped since.
    pub(crate) fn timestamp_is_fresh(&self, now: Time) -> bool {
        ticks_of_2_30_ns(now).saturating_sub(self.ts_recent_at) <= TS_RECENT_LIFE
    }

    /// Records that a segment with this acknowledgement and window was sent.
    #[inline(always)]
    pub(crate) fn acked(&mut self, nxt: SeqNumber, edge: SeqNumber) {
        if nxt.ge(self.last_ack_sent) {
            if self.advertised != WindowAdvertised::Data {
                self.first_advertised(nxt);
            }
            self.last_ack_sent = nxt;
            // Another thread may have received more since the segment was made.
            if nxt == self.nxt {
                self.ack_deadline = Time::MAX;
            }
        }
        if edge.gt(self.advertised_edge) {
            self.advertised_edge = edge;
        }
    }

    /// One of the first segments without SYN was sent.
    #[cold]
    fn first_advertised(&mut self, nxt: SeqNumber) {
        let data = nxt != self.last_ack_sent || self.advertised == WindowAdvertised::SynWithData;
        self.advertised = if data { WindowAdvertised::Data } else { WindowAdvertised::NoData };
        self.note_beginning();
    }

    /// As [`ReceiveWindow::acked`], for a SYN-ACK.
    pub(crate) fn acked_by_syn(&mut self, nxt: SeqNumber, edge: SeqNumber) {
        let data = nxt != self.last_ack_sent;
        self.acked(nxt, edge);
        self.advertised = if data { WindowAdvertised::SynWithData } else { WindowAdvertised::Syn };
        self.note_beginning();
    }

    /// Decides how urgent the acknowledgement of newly arrived in-order data is, and records the decision.
    ///
    /// If more data follows at once (`followed`), its segment is acknowledged for both. At most a quarter of the buffer
    /// is deferred this way, so that the peer does not run out of window. The delay starts nevertheless, because the
    /// following segment may be damaged.
    #[inline(always)]
    pub(crate) fn schedule_ack(&mut self, followed: bool, out: &mut LocalEffects<'_>, now: Time) -> Ack {
        let pending = (self.nxt - self.last_ack_sent).max(0) as u32;
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
        //# In general, the processing of received segments MUST be implemented to aggregate ACK segments whenever
        //# possible (MUST-58).
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
        //# For example, if the TCP endpoint is processing a series of queued segments, it MUST process them all before
        //# sending any ACK segments (MUST-59).
        let may_wait = followed && pending <= self.limit / 4;
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
        //# An ACK SHOULD be generated for at least every second full-sized segment or 2*RMSS bytes of new data (where
        //# RMSS is the MSS specified by the TCP endpoint receiving the segments to be acknowledged, or the default
        //# value if not specified) (SHLD-19).
        if !may_wait && (pending > u32::from(self.peer_segment) || self.delay.is_quick()) {
            self.delay.count_quick();
            return Ack::Now;
        }
        if self.ack_deadline == Time::MAX {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
            //# A TCP endpoint SHOULD implement a delayed ACK (SHLD-18),
            self.ack_deadline = now + self.delay.time(out.config);
            self.arm(out);
        }
        Ack::Delayed
    }

    /// Requests a wake for the delayed acknowledgement, unless an earlier one is pending.
    #[inline]
    pub(crate) fn arm(&mut self, out: &mut LocalEffects<'_>) {
        if self.ack_deadline < self.armed {
            self.armed = self.ack_deadline;
            out.wake_by(self.ack_deadline);
        }
    }

    /// The sequence number of the first byte that the user has not taken.
    #[inline]
    pub(crate) fn first_unread(&self) -> SeqNumber {
        self.nxt - (self.queued + u32::from(self.finished()))
    }

    /// Bytes from the first not taken by the user up to and including the urgent one, unless that was taken.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
    //# The TCP implementation MUST (MUST-33) provide a way for the application to learn how much urgent data remains to
    //# be read from the connection, or at least to determine whether more urgent data remains to be read [19].
    pub(crate) fn urgent_ahead(&self) -> Option<u32> {
        u32::try_from(self.urgent - self.first_unread()).ok().filter(|ahead| self.urgent_valid && *ahead > 0)
    }

    /// Whether there is data to receive, or the end of the stream is reached.
    pub(crate) fn is_readable(&self) -> bool {
        self.queued >= self.low_water || self.finished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer with less than half of the largest window waits, and no data that would be acknowledged is under way.
    #[test]
    fn who_may_wait_for_a_larger_window_is_told_when_all_has_been_read() {
        for rule in [WindowRule::Linux, WindowRule::FreeBsd, WindowRule::Rfc] {
            let config = Config { window_rule: rule, ..Config::default() };
            let options = ConnectionOptions::default();
            for (segment, left) in
                [512, 3734, 5000, 8192].into_iter().flat_map(|s| [0, 1000, 3734, 4095].map(|l| (s, l)))
            {
                let mut rw = ReceiveWindow::new(State::Established, 1460, &options, &config, Time::ZERO);
                (rw.limit, rw.peer_segment, rw.bytes_received) = (8192, segment, 1);
                rw.edge = rw.nxt + left;
                rw.note_rare();
                (rw.advertised_edge, rw.last_ack_sent) = (rw.edge, rw.nxt);
                rw.open_window();
                assert!(rw.update_due(), "{rule:?}: segments of {segment}, {left} left");
                assert!(rw.edge - rw.nxt >= 4096, "{rule:?}: segments of {segment}, {left} left");
            }
        }
    }
}
