//! One connection as the peer sees it: just enough of TCP to load a stack and to check it.
//!
//! A connection owns no buffer: it sends a pattern that can be generated at any offset, and only counts received data
//! (and compares it, if configured). It acknowledges every n-th segment, respects the advertised window, uses window
//! scaling and timestamps when both ends do, goes back to SND.UNA on three duplicate acknowledgments or a timeout, and
//! closes when its stream ends or the stack has closed. It has no congestion control: the link to the stack is memory
//! and loses nothing, so the window is the only limit.

use wire::tcp::{Header, Options, TcpFlags, Timestamps};
use wire::{FourTuple, SeqNumber};

use super::frames::pattern;

/// Out-of-order ranges that are stored; further ones are discarded and retransmitted.
const MAX_RANGES: usize = 64;
/// The configuration of all connections of a peer.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// Receive window in bytes.
    pub window: u32,
    /// MSS that is advertised, and that the link allows.
    pub mss: u16,
    /// Timestamps are offered and accepted.
    pub timestamps: bool,
    /// Acknowledge after this many segments, at least 1.
    pub ack_every: u32,
    /// Bytes to send before closing; `None`: without end. `Some(0)` sends nothing and closes when the stack does.
    pub send: Option<u64>,
    /// Compare received data with the pattern.
    pub verify: bool,
    /// First retransmission timeout, in nanoseconds; doubled with every further one.
    pub first_timeout: u64,
    /// Three duplicate acknowledgments have it send again from SND.UNA.
    pub resends: bool,
    /// The most bytes in flight.
    pub in_flight: u32,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// SYN sent.
    SynSent,
    /// SYN received, SYN-ACK sent.
    SynReceived,
    /// Open; either side may have closed its half.
    Established,
    /// Both halves closed, or reset.
    Closed,
}

/// The actions that an arriving segment requires of the peer, besides the changes to the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReaction {
    /// Acknowledge at once.
    pub ack: bool,
    /// Acknowledge if nothing more arrives.
    pub ack_later: bool,
    /// The handshake segment must be sent (again).
    pub handshake: bool,
    /// The connection got established by this segment.
    pub established: bool,
    /// New data bytes in order.
    pub received: u32,
    /// The segment was not the next in sequence.
    pub out_of_order: bool,
    /// Data differ from the pattern.
    pub mismatch: bool,
    /// Bytes newly acknowledged.
    pub acked: u32,
    /// Sending restarts from SND.UNA.
    pub restarted: bool,
}

/// A segment to send: its header and the position of its data in the stream.
#[derive(Clone, Copy, Debug)]
pub struct PeerSegment {
    /// The header.
    pub header: Header,
    /// Stream offset of the data.
    pub offset: u64,
    /// Bytes of data.
    pub len: usize,
}

/// The peer's end of a connection.
#[derive(Debug)]
pub struct PeerConnection {
    /// Local is the peer, remote the stack.
    pub tuple: FourTuple,
    /// The state of the connection.
    pub state: PeerState,
    /// It is in the list of those that may send.
    pub listed: bool,
    /// It is in the list of connections with a delayed acknowledgment.
    pub ack_pending: bool,
    iss: u32,
    snd_una: u32,
    snd_nxt: u32,
    /// Highest SND.NXT so far: after going back, SND.NXT is below it.
    snd_max: u32,
    /// Stream offset of SND.UNA.
    una_offset: u64,
    window: u32,
    window_shift: u8,
    mss: u16,
    fin_sent: bool,
    dup_acks: u8,
    rcv_nxt: u32,
    rcv_offset: u64,
    unacked: u32,
    fin_received: bool,
    ranges: Vec<(u32, u32)>,
    timestamps: Option<u32>,
    scaling: bool,
    timeout_at: u64,
    first_timeout: u64,
    backoff: u8,
    /// The peer opened it.
    opened_here: bool,
    refused: bool,
}

impl PeerConnection {
    /// A connection that has yet to send its SYN.
    pub fn opening(tuple: FourTuple, iss: u32, terms: &ConnectionConfig, now: u64) -> PeerConnection {
        PeerConnection {
            tuple,
            state: PeerState::SynSent,
            listed: false,
            ack_pending: false,
            iss,
            snd_una: iss,
            snd_nxt: iss.wrapping_add(1),
            snd_max: iss.wrapping_add(1),
            una_offset: 0,
            window: 0,
            window_shift: 0,
            mss: terms.mss,
            fin_sent: false,
            dup_acks: 0,
            rcv_nxt: 0,
            rcv_offset: 0,
            unacked: 0,
            fin_received: false,
            ranges: Vec::new(),
            timestamps: terms.timestamps.then_some(0),
            scaling: true,
            timeout_at: now + terms.first_timeout,
            first_timeout: terms.first_timeout,
            backoff: 0,
            opened_here: true,
            refused: false,
        }
    }

    /// A connection that a SYN opens; its SYN-ACK is still to be sent.
    pub fn opened_by(tuple: FourTuple, syn: &Header, iss: u32, terms: &ConnectionConfig, now: u64) -> PeerConnection {
        let mut connection = PeerConnection::opening(tuple, iss, terms, now);
        connection.state = PeerState::SynReceived;
        connection.opened_here = false;
        connection.learn(syn, terms);
        connection
    }

    /// Takes over the parameters of the other side's SYN.
    fn learn(&mut self, syn: &Header, terms: &ConnectionConfig) {
        self.rcv_nxt = syn.seq.0.wrapping_add(1);
        // RFC 9293 section 3.7.1: 536 bytes by default.
        self.mss = syn.options.mss.unwrap_or(536).min(terms.mss);
        self.scaling = syn.options.window_scale.is_some();
        self.window_shift = syn.options.window_scale.unwrap_or(0).min(14);
        // A SYN's own window is never scaled (RFC 7323 section 2.2).
        self.window = u32::from(syn.window);
        self.timestamps = match syn.options.timestamps {
            Some(timestamps) if terms.timestamps => Some(timestamps.value),
            _ => None,
        };
        if self.timestamps.is_some() {
            self.mss = self.mss.saturating_sub(12).max(1);
        }
    }

    /// Processes a segment with `data` after its header, or `segments` of them if it was coalesced.
    pub fn segment_arrives(
        &mut self,
        header: &Header,
        data: &[u8],
        segments: u32,
        terms: &ConnectionConfig,
        now: u64,
    ) -> PeerReaction {
        let mut answer = PeerReaction::default();
        if header.flags.contains(TcpFlags::RST) {
            self.refused = self.state == PeerState::SynSent;
            self.state = PeerState::Closed;
            return answer;
        }
        match self.state {
            PeerState::SynSent => {
                self.syn_ack_arrives(header, terms, now, &mut answer);
                return answer;
            }
            PeerState::SynReceived if header.flags.contains(TcpFlags::SYN) => {
                answer.handshake = true;
                return answer;
            }
            PeerState::SynReceived => {
                if !header.flags.contains(TcpFlags::ACK) || header.ack.0 != self.iss.wrapping_add(1) {
                    return answer;
                }
                self.establish(now, &mut answer);
            }
            PeerState::Established => {}
            PeerState::Closed => return answer,
        }
        if header.flags.contains(TcpFlags::SYN) {
            // The ACK of the handshake was lost.
            answer.ack = true;
            return answer;
        }
        if let (Some(recent), Some(timestamps)) = (&mut self.timestamps, header.options.timestamps) {
            *recent = timestamps.value;
        }
        self.acknowledgment_arrives(header, data.is_empty(), terms, now, &mut answer);
        self.data_arrives(header, data, segments, terms, &mut answer);
        if self.fin_received && self.fin_sent && self.snd_una == self.snd_max {
            self.state = PeerState::Closed;
        }
        answer
    }

    fn syn_ack_arrives(&mut self, header: &Header, terms: &ConnectionConfig, now: u64, answer: &mut PeerReaction) {
        let is_syn_ack = header.flags.contains(TcpFlags::SYN.union(TcpFlags::ACK));
        if is_syn_ack && header.ack.0 == self.iss.wrapping_add(1) {
            self.learn(header, terms);
            self.establish(now, answer);
            answer.ack = true;
        }
    }

    fn establish(&mut self, now: u64, answer: &mut PeerReaction) {
        self.state = PeerState::Established;
        self.snd_una = self.iss.wrapping_add(1);
        self.timeout_at = now + self.first_timeout;
        self.backoff = 0;
        answer.established = true;
    }

    fn acknowledgment_arrives(
        &mut self,
        header: &Header,
        pure: bool,
        terms: &ConnectionConfig,
        now: u64,
        answer: &mut PeerReaction,
    ) {
        if !header.flags.contains(TcpFlags::ACK) {
            return;
        }
        let window = u32::from(header.window) << if self.scaling { self.window_shift } else { 0 };
        let acked = header.ack.0.wrapping_sub(self.snd_una);
        if acked > 0 && acked <= self.snd_max.wrapping_sub(self.snd_una) {
            self.snd_una = header.ack.0;
            if self.snd_nxt.wrapping_sub(self.snd_una) as i32 <= 0 {
                self.snd_nxt = self.snd_una;
            }
            let fin = u32::from(self.fin_sent && self.snd_una == self.snd_max);
            self.una_offset += u64::from(acked - fin);
            answer.acked = acked - fin;
            self.dup_acks = 0;
            self.backoff = 0;
            self.timeout_at = now + self.first_timeout;
        } else if acked == 0 && pure && window == self.window && self.outstanding() > 0 {
            self.dup_acks = self.dup_acks.saturating_add(1);
            if self.dup_acks == 3 && terms.resends {
                self.go_back();
                answer.restarted = true;
            }
        }
        self.window = window;
    }

    fn data_arrives(
        &mut self,
        header: &Header,
        data: &[u8],
        segments: u32,
        terms: &ConnectionConfig,
        answer: &mut PeerReaction,
    ) {
        let fin = header.flags.contains(TcpFlags::FIN);
        if data.is_empty() && !fin {
            return;
        }
        let ahead = header.seq.0.wrapping_sub(self.rcv_nxt) as i32;
        let end = header.seq.0.wrapping_add(data.len() as u32);
        if ahead > 0 {
            // A hole: store the range, and send a duplicate acknowledgment.
            answer.out_of_order = true;
            answer.ack = true;
            if ahead.unsigned_abs() < terms.window && !fin {
                let offset = self.rcv_offset + u64::from(ahead.unsigned_abs());
                answer.mismatch = terms.verify && data != pattern(offset, data.len());
                self.remember(header.seq.0, end);
            }
            return;
        }
        let old = ahead.unsigned_abs() as usize;
        if old < data.len() {
            let fresh = &data[old..];
            answer.mismatch = terms.verify && fresh != pattern(self.rcv_offset, fresh.len());
            // A segment that fills a hole is acknowledged at once (RFC 5681 section 4.2).
            let hole = !self.ranges.is_empty();
            answer.received = self.advance(end);
            self.unacked += segments;
            answer.ack = self.unacked >= terms.ack_every || hole;
            answer.ack_later = !answer.ack;
        } else if !data.is_empty() {
            answer.ack = true;
        }
        if fin && self.rcv_nxt == end && !self.fin_received {
            self.fin_received = true;
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        }
        answer.ack |= fin;
    }

    /// Moves RCV.NXT to `end` and past all data that is queued there; returns by how much.
    fn advance(&mut self, end: u32) -> u32 {
        let before = self.rcv_nxt;
        self.rcv_nxt = end;
        while let Some(at) = self.ranges.iter().position(|(left, _)| left.wrapping_sub(self.rcv_nxt) as i32 <= 0) {
            let (_, right) = self.ranges.swap_remove(at);
            if right.wrapping_sub(self.rcv_nxt) as i32 > 0 {
                self.rcv_nxt = right;
            }
        }
        let moved = self.rcv_nxt.wrapping_sub(before);
        self.rcv_offset += u64::from(moved);
        moved
    }

    fn remember(&mut self, left: u32, right: u32) {
        if let Some(range) = self.ranges.iter_mut().find(|range| range.1 == left) {
            range.1 = right;
        } else if let Some(range) = self.ranges.iter_mut().find(|range| range.0 == right) {
            range.0 = left;
        } else if self.ranges.len() < MAX_RANGES {
            self.ranges.push((left, right));
        }
    }

    fn outstanding(&self) -> u32 {
        self.snd_max.wrapping_sub(self.snd_una)
    }

    fn go_back(&mut self) {
        self.snd_nxt = self.snd_una;
    }

    /// Bytes of the stream from SND.NXT to its end.
    fn left(&self, terms: &ConnectionConfig) -> u64 {
        let offset = self.una_offset + u64::from(self.snd_nxt.wrapping_sub(self.snd_una));
        match terms.send {
            // The stack closed: an endless source ends too.
            None if self.fin_received => u64::from(self.snd_max.wrapping_sub(self.snd_nxt) - u32::from(self.fin_sent)),
            None => u64::MAX,
            Some(total) => total.saturating_sub(offset),
        }
    }

    /// Whether a FIN follows the last byte: a finite source closes by itself, any other connection once the stack has
    /// closed.
    fn will_close(&self, terms: &ConnectionConfig) -> bool {
        terms.send.is_some_and(|total| total > 0) || self.fin_received
    }

    /// The next segment with data or FIN that the window allows, of at most `most` bytes of data.
    pub fn next_segment(&mut self, most: usize, terms: &ConnectionConfig, now: u64) -> Option<PeerSegment> {
        if self.state != PeerState::Established {
            return None;
        }
        let in_flight = self.snd_nxt.wrapping_sub(self.snd_una);
        // A sent FIN occupies a sequence number; after going back it is retransmitted like data.
        if self.fin_is_out() {
            return None;
        }
        let room = self.window.min(terms.in_flight).saturating_sub(in_flight) as usize;
        let left = self.left(terms);
        let len = (most as u64).min(left) as usize;
        // Avoids the silly window syndrome: sends a whole segment, the end of the stream, or into a window that never
        // holds a segment.
        let len = if len <= room {
            len
        } else if in_flight == 0 {
            room
        } else {
            return None;
        };
        if len == 0 && left > 0 {
            return None;
        }
        let fin = len as u64 == left && self.will_close(terms);
        if len == 0 && !fin {
            return None;
        }
        if self.outstanding() == 0 {
            self.timeout_at = now + self.first_timeout;
        }
        let offset = self.una_offset + u64::from(in_flight);
        let mut flags = TcpFlags::ACK;
        if fin {
            flags = flags.union(TcpFlags::FIN).union(TcpFlags::PSH);
            self.fin_sent = true;
        }
        let header = self.header(flags, self.snd_nxt, terms, now);
        self.snd_nxt = self.snd_nxt.wrapping_add(len as u32 + u32::from(fin));
        if self.snd_nxt.wrapping_sub(self.snd_max) as i32 > 0 {
            self.snd_max = self.snd_nxt;
        }
        self.unacked = 0;
        Some(PeerSegment { header, offset, len })
    }

    /// Whether [`next_segment`](Connection::next_segment) may have something.
    pub fn wants_to_send(&self, terms: &ConnectionConfig) -> bool {
        self.state == PeerState::Established && !self.fin_is_out() && (self.left(terms) > 0 || self.will_close(terms))
    }

    fn fin_is_out(&self) -> bool {
        self.fin_sent && self.snd_nxt == self.snd_max
    }

    /// Whether the peer opened the connection.
    pub fn was_opened_here(&self) -> bool {
        self.opened_here
    }

    /// Whether the peer's SYN was answered by a reset.
    pub fn was_refused(&self) -> bool {
        self.refused
    }

    /// Most data bytes in one segment on the wire.
    pub fn mss(&self) -> u16 {
        self.mss
    }

    /// The current acknowledgment.
    pub fn acknowledgment(&mut self, terms: &ConnectionConfig, now: u64) -> Header {
        self.unacked = 0;
        self.header(TcpFlags::ACK, self.snd_nxt, terms, now)
    }

    /// Whether received segments have not been acknowledged.
    pub fn has_unacked(&self) -> bool {
        self.unacked > 0
    }

    /// The SYN or SYN-ACK of a connection that is being opened.
    pub fn handshake(&self, terms: &ConnectionConfig, now: u64) -> Header {
        let flags = match self.state {
            PeerState::SynSent => TcpFlags::SYN,
            _ => TcpFlags::SYN.union(TcpFlags::ACK),
        };
        let mut header = self.header(flags, self.iss, terms, now);
        header.window = terms.window.min(65_535) as u16;
        header.options.mss = Some(terms.mss);
        header.options.window_scale = self.scaling.then(|| window_shift(terms.window));
        header
    }

    fn header(&self, flags: TcpFlags, seq: u32, terms: &ConnectionConfig, now: u64) -> Header {
        let shift = if self.scaling { window_shift(terms.window) } else { 0 };
        let timestamps = self.timestamps.map(|echo| Timestamps { value: (now / 1_000_000) as u32, echo });
        Header {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: SeqNumber(seq),
            ack: SeqNumber(if self.state == PeerState::SynSent { 0 } else { self.rcv_nxt }),
            flags,
            window: (terms.window >> shift).min(65_535) as u16,
            urgent: 0,
            header_len: 0,
            options: Options { timestamps, ..Options::NONE },
        }
    }

    /// When outstanding data must be retransmitted; `None` if there is none.
    pub fn timeout(&self) -> Option<u64> {
        let opening = matches!(self.state, PeerState::SynSent | PeerState::SynReceived);
        (opening || (self.state == PeerState::Established && self.outstanding() > 0)).then_some(self.timeout_at)
    }

    /// Handles the timeout. True: the handshake segment must be sent again; false: sending continues from SND.UNA.
    pub fn timed_out(&mut self, now: u64) -> bool {
        self.backoff = (self.backoff + 1).min(8);
        self.timeout_at = now + (self.first_timeout << self.backoff);
        if self.state == PeerState::Established {
            self.go_back();
            return false;
        }
        true
    }
}

/// The scale at which a window fits 16 bits (RFC 7323 section 2.2).
fn window_shift(window: u32) -> u8 {
    (0..14).find(|shift| window >> shift <= 65_535).unwrap_or(14)
}
