//! Fragments into packets: IPv4 (RFC 791, by the bookkeeping of RFC 815) and IPv6 (RFC 8200 section 4.5, RFC 5722).
//!
//! **Model.** One entry per packet under assembly, found by its key. An entry holds the fragments themselves, sorted by
//! offset and never overlapping; their payload is copied once, when the last hole closes, into a buffer with a fresh
//! header. Completeness is therefore decided by adding lengths, not by a bitmap.
//!
//! **Overlap.** An exact duplicate is ignored. Every other overlap, equal bytes or not, discards the packet: the entry
//! stays as a tombstone until its deadline, so that later fragments of the packet are dropped too. No fragmenting host
//! produces overlaps; all known ones were attacks on filters or reassemblers. Tiny fragments are legal: RFC 1858 and
//! RFC 3128 are about filters, not about a host, which reads no header before the packet is whole (an IPv6 packet's
//! first fragment must hold all headers nonetheless, RFC 7112; input checks that).
//!
//! **Bounds.** At most [`MAX_PIECES`] fragments to a packet and [`MEMORY_CAP`] bytes in all, where a fragment is
//! charged the whole block it pins, so that a flood of tiny fragments cannot hold a hundred times its size. Above the
//! cap the oldest packet is dropped; if one source holds more than a quarter of it, the oldest of that source
//! (`sources.rs`). Deadlines run from the first arrival and are not extended: [`LIFETIME_V4`], [`LIFETIME_V6`]. Each
//! family has an intrusive list by age (its deadlines are in order of arrival), so that expiry and eviction never
//! search.
//!
//! What may never happen: two payload bytes for one offset, a packet longer than 65,535 bytes, an entry without a
//! deadline.

mod sources;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::HashMap;

use crate::datagram::{Datagram, Fragment};
use crate::icmp::ErrorKind;
use crate::input::Refused;
use crate::interface::Cast;
use crate::output;
use observe::{Counter, Counters, DropReason, Time};
use pktbuf::PktBuf;
use smallvec::SmallVec;
use sources::{SourceLinks, SourceTable};

/// Memory that fragments may pin, in bytes.
pub const MEMORY_CAP: usize = 4 << 20;
/// Most fragments of one packet: 65,535 bytes at an MTU of 276.
pub const MAX_PIECES: usize = 256;
/// How long an IPv4 packet may take to arrive whole. RFC 1122 section 3.3.2 requires 60 to 120 s; Linux and later
/// stacks use half of that, because identifications repeat sooner on fast links (RFC 4963).
pub const LIFETIME_V4: Duration = Duration::from_secs(30);
/// How long an IPv6 packet may take to arrive whole (RFC 8200 section 4.5).
pub const LIFETIME_V6: Duration = Duration::from_secs(60);

/// Charge of an entry besides its fragments, in bytes: tombstones count against the cap too.
const ENTRY_COST: usize = 256;
const MAX_PACKET: usize = 65_535;
const NONE: u32 = u32::MAX;

/// The disposition of a fragment.
#[derive(Debug)]
pub enum Reassembled {
    /// Held, or dropped and counted: there is nothing to do.
    Pending,
    /// The packet is complete, to be given to [`input::reassembled`](crate::input::reassembled).
    Whole(Datagram),
    /// Dropped, with an ICMP error to the sender; the caller counts the reason.
    Refused(Refused),
}

/// The operations of reassembly that the Internet layer needs, however the table is shared. Each is exclusive by itself.
///
/// Implemented by [`ReassemblyTable`], for a user that has it by `&mut`, and in the crate `stack` by the table that threads
/// share, which also records when it next has work and the memory that it takes.
pub trait ReassemblyAccess {
    /// As [`ReassemblyTable::insert`].
    fn insert(&mut self, now: Time, fragment: Fragment, counters: &Counters) -> Reassembled;
    /// As [`ReassemblyTable::timeouts`].
    fn timeouts(&mut self, now: Time, counters: &Counters) -> SmallVec<[Datagram; 2]>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FragmentKey {
    V4 { src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, ident: u16 },
    V6 { src: Ipv6Addr, dst: Ipv6Addr, ident: u32 },
}

#[derive(Debug)]
struct Piece {
    offset: u32,
    end: u32,
    buf: PktBuf,
}

#[derive(Debug)]
struct PartialPacket {
    key: FragmentKey,
    pieces: Vec<Piece>,
    /// Payload length of the whole packet, known once the last fragment has arrived.
    total: Option<u32>,
    /// Payload bytes held.
    held: u32,
    /// Bytes charged against the cap.
    charge: usize,
    deadline: Time,
    /// One bit for each ECN codepoint seen.
    ecn_seen: u8,
    /// Discarded; nothing more is accepted before the deadline.
    dead: bool,
    /// Of the first fragment once it has arrived, of any fragment before.
    protocol: u8,
    tos: u8,
    ttl: u8,
    cast: Cast,
    older: u32,
    newer: u32,
    /// The same among those of its source.
    mates: SourceLinks,
}

/// Entries of one family by age.
#[derive(Clone, Copy, Debug)]
struct Ages {
    oldest: u32,
    newest: u32,
}

/// Packets under assembly, both families.
#[derive(Debug)]
pub struct ReassemblyTable {
    by_key: HashMap<FragmentKey, u32>,
    slots: Vec<Option<PartialPacket>>,
    free: Vec<u32>,
    ages: [Ages; 2],
    sources: SourceTable,
    memory: usize,
    cap: usize,
}

impl Default for ReassemblyTable {
    fn default() -> Self {
        Self::new()
    }
}

impl ReassemblyTable {
    /// An empty table bounded by [`MEMORY_CAP`].
    pub fn new() -> Self {
        Self::with_cap(MEMORY_CAP)
    }

    /// An empty table that pins at most `cap` bytes.
    pub fn with_cap(cap: usize) -> Self {
        let ages = [Ages { oldest: NONE, newest: NONE }; 2];
        Self {
            by_key: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            ages,
            sources: SourceTable::default(),
            memory: 0,
            cap,
        }
    }

    /// Bytes charged against the cap now.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Packets under assembly, tombstones included.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether nothing is under assembly.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    fn entry(&mut self, slot: u32) -> &mut PartialPacket {
        self.slots[slot as usize].as_mut().expect("a slot in the key map or an age list is occupied")
    }

    fn find_or_create(&mut self, now: Time, key: FragmentKey, fragment: &Fragment) -> u32 {
        if let Some(&slot) = self.by_key.get(&key) {
            if now < self.entry(slot).deadline {
                return slot;
            }
            // Expired but not swept yet: its fragments must not mix with those of a later packet.
            self.remove(slot);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(PartialPacket::new(now, key, fragment));
        self.by_key.insert(key, slot);
        self.link_newest(slot, key.family());
        self.link_source(slot);
        self.memory += ENTRY_COST;
        slot
    }

    fn link_newest(&mut self, slot: u32, family: usize) {
        let older = core::mem::replace(&mut self.ages[family].newest, slot);
        self.entry(slot).older = older;
        match older {
            NONE => self.ages[family].oldest = slot,
            _ => self.entry(older).newer = slot,
        }
    }

    fn remove(&mut self, slot: u32) -> PartialPacket {
        let entry = self.slots[slot as usize].take().expect("only occupied slots are removed");
        let ages = entry.key.family();
        match entry.older {
            NONE => self.ages[ages].oldest = entry.newer,
            older => self.entry(older).newer = entry.newer,
        }
        match entry.newer {
            NONE => self.ages[ages].newest = entry.older,
            newer => self.entry(newer).older = entry.older,
        }
        self.by_key.remove(&entry.key);
        self.free.push(slot);
        self.memory -= entry.charge;
        self.unlink_source(entry.source(), entry.charge, entry.mates);
        entry
    }

    fn kill(&mut self, slot: u32, reason: DropReason, counters: &Counters) {
        let entry = self.entry(slot);
        let released = entry.charge - ENTRY_COST;
        entry.charge = ENTRY_COST;
        entry.dead = true;
        counters.count_drops(reason, entry.pieces.len() as u64);
        entry.pieces = Vec::new();
        let source = entry.source();
        self.memory -= released;
        self.charge_source(source, 0, released);
    }

    /// The entry of either family that has waited longest.
    fn oldest(&self) -> Option<u32> {
        let birth = |slot: u32| {
            let entry = self.slots[slot as usize].as_ref()?;
            Some(entry.deadline - entry.key.lifetime())
        };
        let [v4, v6] = self.ages.map(|ages| ages.oldest);
        match (v4, v6) {
            (NONE, NONE) => None,
            (slot, NONE) | (NONE, slot) => Some(slot),
            _ => Some(if birth(v4) <= birth(v6) { v4 } else { v6 }),
        }
    }

    fn shrink_to_cap(&mut self, source: IpAddr, counters: &Counters) {
        loop {
            let oldest = if self.memory > self.cap { self.oldest() } else { None };
            let Some(slot) = self.oldest_above_share(source).or(oldest) else { return };
            let evicted = self.remove(slot);
            counters.count_drops(DropReason::ReassemblyFull, evicted.pieces.len() as u64);
        }
    }

    /// Takes one fragment.
    pub fn insert(&mut self, now: Time, fragment: Fragment, counters: &Counters) -> Reassembled {
        counters.increment(Counter::FragmentsIn);
        if let Err(fault) = check(&fragment) {
            return fault.into_reply(fragment, counters);
        }
        let slot = self.find_or_create(now, FragmentKey::of(&fragment), &fragment);
        let before = self.entry(slot).charge;
        match self.entry(slot).place(fragment) {
            Ok(()) => {}
            Err(Placing::Duplicate) => return Reassembled::Pending,
            Err(Placing::Fatal(reason)) => {
                counters.count_drop(reason);
                self.kill(slot, reason, counters);
                return Reassembled::Pending;
            }
        }
        let entry = self.entry(slot);
        let (added, whole, source) = (entry.charge - before, entry.is_whole(), entry.source());
        self.memory += added;
        self.charge_source(source, added, 0);
        if whole {
            return self.complete(slot, counters);
        }
        // An entry that is itself the oldest is dropped with its fragments, this one included; all are counted.
        self.shrink_to_cap(source, counters);
        Reassembled::Pending
    }

    fn complete(&mut self, slot: u32, counters: &Counters) -> Reassembled {
        let entry = self.remove(slot);
        let pieces = entry.pieces.len() as u64;
        match entry.join() {
            Ok(datagram) => {
                counters.increment(Counter::PacketsReassembled);
                Reassembled::Whole(datagram)
            }
            Err(reason) => {
                counters.count_drops(reason, pieces);
                Reassembled::Pending
            }
        }
    }

    /// Drops packets whose deadline has passed; returns the fragments that hold the beginning of one, for a "time
    /// exceeded" error (RFC 1122 section 3.3.2, RFC 8200 section 4.5).
    pub fn timeouts(&mut self, now: Time, counters: &Counters) -> SmallVec<[Datagram; 2]> {
        let mut expired = SmallVec::new();
        for family in 0..self.ages.len() {
            loop {
                let slot = self.ages[family].oldest;
                if slot == NONE || now < self.entry(slot).deadline {
                    break;
                }
                let entry = self.remove(slot);
                counters.count_drops(DropReason::ReassemblyTimeout, entry.pieces.len() as u64);
                expired.extend(entry.into_first());
            }
        }
        expired
    }

    /// When [`ReassemblyTable::timeouts`] has work.
    pub fn next_deadline(&self) -> Option<Time> {
        let oldest = self.ages.iter().filter_map(|ages| self.slots.get(ages.oldest as usize)?.as_ref());
        oldest.map(|entry| entry.deadline).min()
    }
}

impl ReassemblyAccess for ReassemblyTable {
    fn insert(&mut self, now: Time, fragment: Fragment, counters: &Counters) -> Reassembled {
        ReassemblyTable::insert(self, now, fragment, counters)
    }

    fn timeouts(&mut self, now: Time, counters: &Counters) -> SmallVec<[Datagram; 2]> {
        ReassemblyTable::timeouts(self, now, counters)
    }
}

impl FragmentKey {
    fn of(fragment: &Fragment) -> Self {
        match (fragment.datagram.src, fragment.datagram.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                Self::V4 { src, dst, protocol: fragment.datagram.protocol, ident: fragment.ident as u16 }
            }
            (src, dst) => Self::V6 { src: as_v6(src), dst: as_v6(dst), ident: fragment.ident },
        }
    }

    fn addresses(self) -> (IpAddr, IpAddr) {
        match self {
            Self::V4 { src, dst, .. } => (src.into(), dst.into()),
            Self::V6 { src, dst, .. } => (src.into(), dst.into()),
        }
    }

    fn family(self) -> usize {
        usize::from(matches!(self, Self::V6 { .. }))
    }

    fn lifetime(self) -> Duration {
        if self.family() == 0 { LIFETIME_V4 } else { LIFETIME_V6 }
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V6(a) => a,
        IpAddr::V4(a) => a.to_ipv6_mapped(),
    }
}

/// Why a fragment cannot be placed.
enum Placing {
    /// Exactly this fragment is held already.
    Duplicate,
    /// The whole packet must go.
    Fatal(DropReason),
}

impl PartialPacket {
    fn new(now: Time, key: FragmentKey, fragment: &Fragment) -> Self {
        let Datagram { protocol, tos, ttl, cast, .. } = fragment.datagram;
        let deadline = now + key.lifetime();
        Self {
            key,
            pieces: Vec::new(),
            total: None,
            held: 0,
            charge: ENTRY_COST,
            deadline,
            ecn_seen: 0,
            dead: false,
            protocol,
            tos,
            ttl,
            cast,
            older: NONE,
            newer: NONE,
            mates: SourceLinks::NONE,
        }
    }

    /// The source that is charged for it.
    fn source(&self) -> IpAddr {
        sources::source_of(self.key.addresses().0)
    }

    fn place(&mut self, fragment: Fragment) -> Result<(), Placing> {
        if self.dead {
            return Err(Placing::Fatal(DropReason::FragmentOverlap));
        }
        let Fragment { datagram, offset, more, .. } = fragment;
        let end = offset + datagram.buf.len() as u32;
        let at = self.position(offset, end, &datagram.buf)?;
        self.note_end(end, more)?;
        if self.pieces.len() == MAX_PIECES {
            return Err(Placing::Fatal(DropReason::FragmentTooMany));
        }
        if offset == 0 {
            (self.protocol, self.tos, self.ttl, self.cast) =
                (datagram.protocol, datagram.tos, datagram.ttl, datagram.cast);
        }
        self.ecn_seen |= 1 << (datagram.tos & 3);
        self.held += end - offset;
        self.charge += block_len(&datagram.buf);
        self.pieces.insert(at, Piece { offset, end, buf: datagram.buf });
        Ok(())
    }

    /// The position of the range in `pieces`, or its fault. In order, the usual case, only the last piece is compared.
    fn position(&self, offset: u32, end: u32, bytes: &[u8]) -> Result<usize, Placing> {
        let at = match self.pieces.last() {
            Some(last) if offset < last.end => self.pieces.partition_point(|p| p.end <= offset),
            _ => self.pieces.len(),
        };
        match self.pieces.get(at) {
            Some(next) if next.offset == offset && next.end == end && *next.buf == *bytes => Err(Placing::Duplicate),
            Some(next) if next.offset < end => Err(Placing::Fatal(DropReason::FragmentOverlap)),
            _ => Ok(at),
        }
    }

    /// Takes the packet's end from its last fragment and checks every other against it.
    fn note_end(&mut self, end: u32, more: bool) -> Result<(), Placing> {
        let furthest = self.pieces.last().map_or(0, |last| last.end);
        let consistent = match self.total {
            Some(total) if more => end < total,
            Some(total) => end == total,
            None => more || end >= furthest,
        };
        if !consistent {
            return Err(Placing::Fatal(DropReason::FragmentInconsistent));
        }
        if !more {
            self.total = Some(end);
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.total == Some(self.held)
    }

    /// The packet, with a new header of its family in the headroom, which ICMP can quote.
    fn join(self) -> Result<Datagram, DropReason> {
        let tos = self.joined_tos().ok_or(DropReason::FragmentEcnMixed)?;
        let mut buf = PktBuf::alloc(self.held as usize).ok_or(DropReason::NoBuffer)?;
        for piece in &self.pieces {
            buf.append(piece.buf.len()).copy_from_slice(&piece.buf);
        }
        let first = *self.pieces[0].buf.meta();
        (buf.meta_mut().queue, buf.meta_mut().stamp) = (first.queue, first.stamp);
        buf.meta_mut().traffic_class = tos;
        let (src, dst) = self.key.addresses();
        let (protocol, ttl, cast) = (self.protocol, self.ttl, self.cast);
        let payload = buf.headroom();
        output::header(&mut buf, src, dst, protocol, tos, ttl);
        buf.pull_front(payload - buf.headroom());
        Ok(Datagram { buf, src, dst, protocol, tos, ttl, cast })
    }

    /// DSCP of the first fragment; CE if any fragment had CE. `None` when some were marked and others were not
    /// ECN-capable (RFC 3168 section 5.3).
    fn joined_tos(&self) -> Option<u8> {
        const NOT_ECT: u8 = 1 << 0;
        const CE: u8 = 1 << 3;
        match (self.ecn_seen & CE != 0, self.ecn_seen & NOT_ECT != 0) {
            (true, true) => None,
            (true, false) => Some(self.tos | 3),
            (false, _) => Some(self.tos),
        }
    }

    fn into_first(self) -> Option<Datagram> {
        let (src, dst) = self.key.addresses();
        let first = self.pieces.into_iter().next().filter(|piece| piece.offset == 0)?;
        let Self { protocol, tos, ttl, cast, .. } = self;
        Some(Datagram { buf: first.buf, src, dst, protocol, tos, ttl, cast })
    }
}

fn block_len(buf: &PktBuf) -> usize {
    buf.headroom() + buf.len() + buf.tailroom()
}

/// A fault of one fragment, apart from any other.
struct FragmentFault {
    reason: DropReason,
    /// IPv6 answers with a parameter problem that points at this byte of the packet.
    error: Option<ErrorKind>,
}

impl FragmentFault {
    fn into_reply(self, fragment: Fragment, counters: &Counters) -> Reassembled {
        match self.error {
            Some(error) if fragment.datagram.src.is_ipv6() => {
                Reassembled::Refused(Refused { datagram: fragment.datagram, error, reason: self.reason })
            }
            _ => {
                counters.count_drop(self.reason);
                Reassembled::Pending
            }
        }
    }
}

/// The checks that need no other fragment. The pointers are those that RFC 8200 section 4.5 names: the payload length
/// field of the IPv6 header, and the offset field of the fragment header.
fn check(fragment: &Fragment) -> Result<(), FragmentFault> {
    const PAYLOAD_LENGTH_FIELD: u32 = 4;
    let Fragment { datagram, offset, more, .. } = fragment;
    let len = datagram.buf.len();
    if len == 0 || (*more && len % 8 != 0) {
        let error = (len != 0).then_some(ErrorKind::BadHeader { pointer: PAYLOAD_LENGTH_FIELD });
        return Err(FragmentFault { reason: DropReason::FragmentBadLength, error });
    }
    let header = if datagram.src.is_ipv4() { 20 } else { 0 };
    if *offset as usize + len + header > MAX_PACKET {
        // The fragment header is the last before the payload, its offset field two bytes in.
        let pointer = datagram.network_header_len().saturating_sub(6) as u32;
        return Err(FragmentFault {
            reason: DropReason::FragmentTooBig,
            error: Some(ErrorKind::BadHeader { pointer }),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
