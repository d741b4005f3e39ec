//! The remote ends of the connections whose frames arrive on one receive queue.
//!
//! [`RemoteEnds`] is that receive queue: it processes the frames that the stack transmitted, has each [`PeerConnection`]
//! produce its frames, and returns those. It belongs to the thread that polls the queue; only the totals are shared.
//!
//! Two lists refer to a connection's place in the table (connections that may send, connections with an acknowledgment
//! to send). A place is reused only when the connection is closed and in neither list, so a list entry never refers to
//! another connection.

use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use observe::{Counters, DropReason};
use pktbuf::PktBuf;
use sync::Platform;
use wire::tcp::{Header, Options, TcpFlags};
use wire::{FourTuple, SeqNumber, arp, ethernet, icmpv6, tcp};

use super::connection::{ConnectionConfig, PeerConnection, PeerReaction, PeerState};
use super::frames::{self, Frames, pattern};
use super::{PeerConfig, PeerTotals, Published};
use crate::layout::{self, Layout};
use crate::mem::MemRx;
use crate::{RxQueue, WaitOutcome, Wake};

/// Segments that a source sends on one connection before the next one's turn.
const BURST: usize = 4;
/// Connections that a queue opens at one time.
const OPENING: usize = 64;
/// How often outstanding segments are checked for timeouts, in nanoseconds.
const SCAN_EVERY: u64 = 50_000_000;
/// How long a refused connection waits before it is tried again, in nanoseconds.
const REFUSED_WAIT: u64 = 10_000_000;

/// Hashes four-tuples by multiply and fold. The tuples come from this driver or the stack under test, not from an
/// attacker.
#[derive(Default)]
struct FoldHasher(u64);

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0xf39c_c060_5ced_c835) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// A receive queue, and the remote ends of the connections whose frames arrive on it.
pub struct RemoteEnds<P: Platform> {
    /// Frames from the stack.
    from_stack: MemRx<P>,
    address: IpAddr,
    terms: ConnectionConfig,
    frames: Frames,
    /// Most data bytes in one frame; above the MSS with super-segments.
    most_data: usize,
    connections: Vec<PeerConnection>,
    free: Vec<u32>,
    index: HashMap<FourTuple, u32, BuildHasherDefault<FoldHasher>>,
    /// Connections that may have something to send.
    sending: VecDeque<u32>,
    /// Connections that send an acknowledgment once the stack stops sending.
    delayed_acks: Vec<u32>,
    to_open: VecDeque<FourTuple>,
    opening: usize,
    open_after: u64,
    next_scan: u64,
    /// Generated and not yet returned.
    out: VecDeque<PktBuf>,
    now: u64,
    totals: PeerTotals,
    published: Arc<Published>,
    counters: Arc<Counters>,
}

impl<P: Platform> RemoteEnds<P> {
    /// Without connections; those of `to_open` are opened on the first calls.
    pub fn new(
        from_stack: MemRx<P>,
        config: &PeerConfig,
        to_open: VecDeque<FourTuple>,
        published: Arc<Published>,
        counters: Arc<Counters>,
    ) -> RemoteEnds<P> {
        let terms = config.terms();
        let most_data = if config.link.coalescing { frames::LONGEST_DATA - 120 } else { usize::from(terms.mss) };
        RemoteEnds {
            from_stack,
            address: config.address,
            frames: Frames::between(&config.link),
            most_data,
            terms,
            connections: Vec::new(),
            free: Vec::new(),
            index: HashMap::default(),
            sending: VecDeque::new(),
            delayed_acks: Vec::new(),
            to_open,
            opening: 0,
            open_after: 0,
            next_scan: 0,
            out: VecDeque::new(),
            now: 0,
            totals: PeerTotals::default(),
            published,
            counters,
        }
    }

    /// Processes one frame from the stack.
    fn frame_arrives(&mut self, frame: &PktBuf) {
        match Layout::framed(self.frames.framing, frame) {
            Some(layout) if layout.protocol == layout::TCP => self.segment_arrives(frame, &layout),
            Some(_) => self.counters.count_drop(DropReason::UdpNoSocket),
            None => self.other_arrives(frame),
        }
    }

    /// Answers ARP requests and neighbour solicitations for its address; ignores everything else.
    fn other_arrives(&mut self, frame: &[u8]) {
        let (ethertype, payload) = match self.frames.payload(frame) {
            Ok(payload) => payload,
            Err(reason) => return self.counters.count_drop(reason),
        };
        let reply = match (ethertype, self.address) {
            (ethernet::EtherType::Arp, IpAddr::V4(address)) => match arp::parse(payload) {
                Ok(packet) if packet.op == arp::Operation::Request && packet.tpa == address => {
                    self.frames.arp_reply(&packet, address)
                }
                _ => return self.counters.count_drop(DropReason::ArpNotForUs),
            },
            (ethernet::EtherType::Ipv6, IpAddr::V6(address)) => match solicited(payload) {
                Some((target, asker)) if target == address => self.frames.neighbour_advert(address, asker),
                _ => return self.counters.count_drop(DropReason::IpUnknownProtocol),
            },
            _ => return self.counters.count_drop(DropReason::UnknownEtherType),
        };
        self.emit(reply);
    }

    fn segment_arrives(&mut self, frame: &PktBuf, layout: &Layout) {
        let Ok(header) = tcp::parse(&frame[layout.l4..layout.end]) else {
            return self.counters.count_drop(DropReason::TcpBadHeaderLength);
        };
        let tuple = layout.receiver_tuple(frame);
        if tuple.local_addr != self.address {
            return self.counters.count_drop(DropReason::NotForUs);
        }
        if self.terms.verify && !layout.checksum_is_good(frame) {
            self.totals.mismatches += 1;
            return self.counters.count_drop(DropReason::TcpBadChecksum);
        }
        let data = &frame[layout.data..layout.end];
        match self.index.get(&tuple) {
            Some(&at) => {
                let segments = segments_in(data.len(), frame.meta().segment_size);
                self.totals.segments_in += u64::from(segments);
                let connection = &mut self.connections[at as usize];
                let answer = connection.segment_arrives(&header, data, segments, &self.terms, self.now);
                self.act(at, answer);
            }
            None => self.unmatched_arrives(tuple, &header, data.len()),
        }
    }

    /// A segment of no connection: a SYN opens one, anything else but a reset is reset (RFC 9293 section 3.10.7.1).
    fn unmatched_arrives(&mut self, tuple: FourTuple, header: &Header, data_len: usize) {
        if header.flags.contains(TcpFlags::RST) {
            return;
        }
        if header.flags.contains(TcpFlags::SYN) && !header.flags.contains(TcpFlags::ACK) {
            let iss = P::random() as u32;
            let connection = PeerConnection::opened_by(tuple, header, iss, &self.terms, self.now);
            let at = self.insert(connection);
            return self.send_handshake(at);
        }
        self.counters.count_drop(DropReason::TcpNoConnection);
        let with_ack = header.flags.contains(TcpFlags::ACK);
        let fin = u32::from(header.flags.contains(TcpFlags::FIN));
        let reset = Header {
            src_port: tuple.local_port,
            dst_port: tuple.remote_port,
            seq: if with_ack { header.ack } else { SeqNumber(0) },
            ack: if with_ack { SeqNumber(0) } else { header.seq + (data_len as u32 + fin) },
            flags: if with_ack { TcpFlags::RST } else { TcpFlags::RST.union(TcpFlags::ACK) },
            window: 0,
            urgent: 0,
            header_len: 0,
            options: Options::NONE,
        };
        let reset = self.frames.tcp(&tuple, &reset, &[], 0);
        self.emit(reset);
    }

    /// Performs the actions that a connection's segment requires.
    fn act(&mut self, at: u32, answer: PeerReaction) {
        let totals = &mut self.totals;
        totals.bytes_in += u64::from(answer.received);
        totals.bytes_acked += u64::from(answer.acked);
        totals.out_of_order += u64::from(answer.out_of_order);
        totals.mismatches += u64::from(answer.mismatch);
        totals.restarted += u64::from(answer.restarted);
        totals.established += u64::from(answer.established);
        let connection = &mut self.connections[at as usize];
        if answer.established && self.opening > 0 && connection.was_opened_here() {
            self.opening -= 1;
        }
        if connection.state == PeerState::Closed {
            if answer.ack {
                self.send_acknowledgment(at);
            }
            return self.remove(at);
        }
        if connection.wants_to_send(&self.terms) && !connection.listed {
            connection.listed = true;
            self.sending.push_back(at);
        }
        if answer.handshake {
            self.send_handshake(at);
        } else if answer.ack {
            self.send_acknowledgment(at);
        } else if answer.ack_later && !self.connections[at as usize].ack_pending {
            self.connections[at as usize].ack_pending = true;
            self.delayed_acks.push(at);
        }
    }

    fn insert(&mut self, connection: PeerConnection) -> u32 {
        let tuple = connection.tuple;
        let at = match self.free.pop() {
            Some(at) => {
                self.connections[at as usize] = connection;
                at
            }
            None => {
                self.connections.push(connection);
                (self.connections.len() - 1) as u32
            }
        };
        self.index.insert(tuple, at);
        at
    }

    /// Removes a connection. Its place is reused once it is in no list any more.
    fn remove(&mut self, at: u32) {
        let connection = &mut self.connections[at as usize];
        self.index.remove(&connection.tuple);
        self.totals.closed += 1;
        if connection.was_refused() {
            self.totals.closed -= 1;
            self.opening -= 1;
            self.to_open.push_back(connection.tuple);
            self.open_after = self.now + REFUSED_WAIT;
        }
        if !connection.listed && !connection.ack_pending {
            self.free.push(at);
        }
    }

    /// Takes a connection off one of the lists; frees its place if it was removed meanwhile.
    fn unlisted(&mut self, at: u32) -> bool {
        let connection = &self.connections[at as usize];
        let closed = connection.state == PeerState::Closed;
        if closed && !connection.listed && !connection.ack_pending {
            self.free.push(at);
        }
        !closed
    }

    fn emit(&mut self, frame: Option<PktBuf>) {
        match frame {
            Some(frame) => self.out.push_back(frame),
            None => self.counters.count_drop(DropReason::NoBuffer),
        }
    }

    fn send_handshake(&mut self, at: u32) {
        let connection = &self.connections[at as usize];
        let header = connection.handshake(&self.terms, self.now);
        let frame = self.frames.tcp(&connection.tuple, &header, &[], 0);
        self.emit(frame);
    }

    fn send_acknowledgment(&mut self, at: u32) {
        let connection = &mut self.connections[at as usize];
        let header = connection.acknowledgment(&self.terms, self.now);
        let frame = self.frames.tcp(&connection.tuple, &header, &[], 0);
        self.totals.acks_out += 1;
        self.emit(frame);
    }

    /// Sends delayed acknowledgments, after the stack has stopped sending.
    fn send_delayed_acks(&mut self) {
        while let Some(at) = self.delayed_acks.pop() {
            self.connections[at as usize].ack_pending = false;
            if self.unlisted(at) && self.connections[at as usize].has_unacked() {
                self.send_acknowledgment(at);
            }
        }
    }

    fn open_connections(&mut self) {
        while self.opening < OPENING && self.now >= self.open_after {
            let Some(tuple) = self.to_open.pop_front() else { return };
            let connection = PeerConnection::opening(tuple, P::random() as u32, &self.terms, self.now);
            let at = self.insert(connection);
            self.opening += 1;
            self.send_handshake(at);
        }
    }

    /// Generates data until `max` frames are waiting to be returned or no window is open.
    fn send_data(&mut self, max: usize) {
        while self.out.len() < max {
            let Some(at) = self.sending.pop_front() else { return };
            let mut more = true;
            for _ in 0..BURST.min(max - self.out.len()) {
                more = self.connections[at as usize].state != PeerState::Closed && self.send_segment(at);
                if !more {
                    break;
                }
            }
            if more {
                self.sending.push_back(at);
            } else {
                self.connections[at as usize].listed = false;
                self.unlisted(at);
            }
        }
    }

    /// Sends one segment of a connection; false if it may send none now.
    fn send_segment(&mut self, at: u32) -> bool {
        let connection = &mut self.connections[at as usize];
        let mss = usize::from(connection.mss());
        let most = (self.most_data / mss).max(1) * mss;
        let Some(outgoing) = connection.next_segment(most.min(self.most_data.max(mss)), &self.terms, self.now) else {
            return false;
        };
        let segment_size = if outgoing.len > mss { mss as u16 } else { 0 };
        let data = pattern(outgoing.offset, outgoing.len);
        let frame = self.frames.tcp(&connection.tuple, &outgoing.header, data, segment_size);
        if outgoing.len > 0 {
            self.totals.segments_out += u64::from(segments_in(outgoing.len, segment_size));
            self.totals.bytes_out += outgoing.len as u64;
        }
        self.emit(frame);
        true
    }

    /// Checks all connections for timeouts, periodically.
    fn scan(&mut self) {
        if self.now < self.next_scan {
            return;
        }
        self.next_scan = self.now + SCAN_EVERY;
        for at in 0..self.connections.len() as u32 {
            let connection = &mut self.connections[at as usize];
            if connection.timeout().is_none_or(|timeout| timeout > self.now) {
                continue;
            }
            if connection.timed_out(self.now) {
                self.send_handshake(at);
            } else {
                self.totals.restarted += 1;
                if !connection.listed {
                    connection.listed = true;
                    self.sending.push_back(at);
                }
            }
        }
    }

    /// Whether there are frames to return now. Generates frames that are due.
    fn is_ready(&mut self) -> bool {
        self.now = P::now();
        self.open_connections();
        self.scan();
        !self.out.is_empty() || !self.sending.is_empty() || !self.delayed_acks.is_empty()
    }
}

/// The target and the asker of a neighbour solicitation.
fn solicited(packet: &[u8]) -> Option<(core::net::Ipv6Addr, core::net::Ipv6Addr)> {
    let header = wire::ipv6::parse(packet).ok()?;
    if header.next_header != wire::protocol::ICMPV6 {
        return None;
    }
    let message = packet.get(wire::ipv6::HEADER_LEN..)?.get(..usize::from(header.payload_len))?;
    match icmpv6::parse(message, header.src, header.dst) {
        Ok(icmpv6::Message::NeighbourSolicit { target, .. }) => Some((target, header.src)),
        _ => None,
    }
}

/// Segments that `len` data bytes were on the wire.
fn segments_in(len: usize, segment_size: u16) -> u32 {
    match segment_size {
        0 => u32::from(len > 0),
        size => len.div_ceil(usize::from(size)) as u32,
    }
}

impl<P: Platform> RxQueue for RemoteEnds<P> {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        self.now = P::now();
        let mut heard = false;
        while self.out.len() < max {
            let Some(frame) = self.from_stack.next() else { break };
            heard = true;
            self.frame_arrives(&frame);
        }
        self.from_stack.end_batch();
        self.open_connections();
        self.send_data(max);
        if !heard {
            self.send_delayed_acks();
            self.scan();
        }
        let count = self.out.len().min(max);
        batch.extend(self.out.drain(..count));
        self.published.store(self.totals);
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        let deadline = timeout.map(|timeout| P::now().saturating_add(timeout.as_nanos() as u64));
        loop {
            if self.is_ready() {
                return WaitOutcome::Ready;
            }
            let busy = !self.index.is_empty();
            let next = if !self.to_open.is_empty() && self.opening < OPENING {
                Some(self.open_after)
            } else {
                busy.then_some(self.next_scan)
            };
            let until = deadline.into_iter().chain(next).min();
            let outcome = self.from_stack.wait(until.map(|until| Duration::from_nanos(until.saturating_sub(self.now))));
            let expired = deadline.is_some_and(|deadline| deadline <= P::now());
            if outcome != WaitOutcome::TimedOut || expired {
                return outcome;
            }
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.from_stack.waker()
    }

    fn gone(&self) -> bool {
        false
    }
}
