//! Link addresses of neighbours: ARP (RFC 826, RFC 5227) and Neighbour Discovery (RFC 4861) in one state machine.
//!
//! ```text
//!              resolve                  answer                    30 s          resolve        5 s
//!   (nothing) --------> INCOMPLETE ---------------> REACHABLE ----------> STALE --------> DELAY ------> PROBE
//!       ^                  |  3 solicitations           ^  ^                ^               |            |  |
//!       |------------------+  unanswered                |  +--- confirm ----|---------------+------------+  |
//!       |                                               +--- answer -------------------------------------+  |
//!       +------------------------- 3 solicitations unanswered ----------------------------------------------+
//! ```
//!
//! **Callers.** Output calls [`NeighbourTable::resolve`] once per packet without a cached link header; transports that
//! received from their peer call [`NeighbourTable::confirm`]; ARP and discovery packets are passed to
//! [`NeighbourTable::arp_arrives`] and [`NeighbourTable::discovery_arrives`]; the timer calls
//! [`NeighbourTable::timeouts`]. All effects are values: frames to send, packets released with their link header.
//!
//! **Cached link headers.** A connection may keep a neighbour's [`LinkHeader`](crate::LinkHeader) as long as
//! [`NeighbourTable::generation`] does not change. It rises when an address changes, an entry is removed, or one
//! becomes STALE: the next packet then calls `resolve` and starts the reachability check that a cached header would
//! prevent.
//!
//! **Untrusted input.** Unsolicited answers create nothing. A request to us creates an entry, but an unconfirmed one,
//! and such entries are evicted first, by each other: a flood of forged senders never evicts a neighbour that was ever
//! confirmed, nor one that is being resolved. A flood of forged *destinations* (handshakes with senders that do not
//! exist) first evicts the entries that never had an answer. An unsolicited ARP packet does not overwrite a confirmed
//! address; it starts a probe of the old one, and only if that is not answered is the new one accepted.
//!
//! **Bounds.** [`CAPACITY`] entries; [`MAX_PENDING_BYTES`] of memory in waiting packets for all of them together, each
//! charged the block it pins, and [`MAX_PENDING_PER_NEIGHBOUR`] packets for one; one solicitation outstanding per
//! neighbour, one a second.
//!
//! What may never happen: a packet that waits for ever, two entries for one address, a reply that is
//! broadcast.

mod arrivals;
mod entry;
pub(crate) mod message;
mod send;
mod timing;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;

use observe::{Counter, Counters, DropReason, Time};
use pktbuf::PktBuf;
use smallvec::SmallVec;
use wire::ethernet::MacAddr;

pub use arrivals::{Conflict, Discovery, NeighbourEffects};
pub use entry::NeighbourState;
pub use send::{link_header, resolve_or_queue};
pub use timing::NeighbourTiming;

use crate::interface::{InterfaceView, group_mac};
use entry::NeighbourEntry;

/// Most neighbours of one interface.
pub const CAPACITY: usize = 512;
/// Memory that packets waiting for neighbours may pin, in bytes, for all neighbours together: some 256 full frames.
pub const MAX_PENDING_BYTES: usize = 512 << 10;
/// The same while memory is short, in bytes: a first packet to a neighbour still waits for the answer.
pub const LEAST_PENDING_BYTES: usize = 16 << 10;
/// Most packets waiting for one neighbour; the oldest is dropped first (RFC 4861 section 7.2.2). Six connections'
/// initial windows; a datagram of 64 KB in fragments fits.
pub const MAX_PENDING_PER_NEIGHBOUR: usize = 64;
/// A confirmed neighbour unused for this long may be evicted like one that never answered. Its connections, if any, are
/// idle and resolve it again.
pub const IDLE_TIME: Duration = Duration::from_secs(300);
/// Mean time for which a confirmation is valid; each is randomised by half of it either way (RFC 4861 section 6.3.2).
pub const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// Grace before a stale neighbour in use is probed (RFC 4861 section 10).
pub const DELAY_FIRST_PROBE_TIME: Duration = Duration::from_secs(5);
/// The last part of that grace: cached link headers become invalid, so that senders call `resolve` again and can report
/// that the neighbour answers ([`NeighbourTable::confirm`]). Before that, no sender is slowed down.
pub const DOUBT_TIME: Duration = Duration::from_secs(2);
/// A neighbour confirmed within this time is not probed at once when a transport reports a silent path through it:
/// others may make progress through it, and one lossy path must not cause a probe for each of its time-outs.
pub const TRUST_TIME: Duration = Duration::from_secs(5);
/// Between solicitations (RFC 4861 section 10), unless a router sets it.
pub const RETRANS_TIMER: Duration = Duration::from_secs(1);
/// Solicitations before a neighbour is given up, multicast or unicast (RFC 4861 section 10).
pub const MAX_SOLICITS: u8 = 3;
/// Between two defences of one of our addresses (RFC 5227 section 2.4).
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// The result of resolving a packet's link address.
#[derive(Debug)]
pub enum Resolution {
    /// Known: the packet is returned unchanged, to be sent with a link header to this address. The header may be cached
    /// as long as the table's generation does not change.
    Ready(MacAddr, PktBuf),
    /// The packet waits. Send the solicitation, if one is due.
    Queued {
        /// A whole frame: an ARP request or a neighbour solicitation.
        solicit: Option<PktBuf>,
    },
    /// The packet was dropped; the caller counts the reason.
    Dropped(DropReason),
}

/// The operations on the neighbours of one interface that a packet to be sent needs, however the table is shared. Each is
/// exclusive by itself.
///
/// Implemented by [`NeighbourTable`], for a user that has it by `&mut`, and in the crate `stack` by the table that threads
/// share, which also records when it next has work and the memory of waiting packets.
pub trait NeighbourAccess {
    /// As [`NeighbourTable::reach`].
    fn reach(&mut self, now: Time, next_hop: IpAddr, progress: bool) -> Option<(MacAddr, bool)>;
    /// As [`NeighbourTable::resolve`].
    fn resolve(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        next_hop: IpAddr,
        packet: PktBuf,
        counters: &Counters,
    ) -> Resolution;
}

/// The neighbours of one interface.
#[derive(Debug)]
pub struct NeighbourTable {
    by_address: HashMap<IpAddr, u32>,
    slots: Vec<Option<NeighbourEntry>>,
    free: Vec<u32>,
    pending: usize,
    pending_bytes: usize,
    pending_limit: usize,
    generation: u64,
    /// Lower bound of all deadlines; may be too early after an entry was confirmed or removed.
    earliest: Time,
    /// Times of IPv6 neighbours.
    timing: NeighbourTiming,
    /// When each of our addresses was last defended; one row per contested address.
    defences: SmallVec<[(IpAddr, Time); 1]>,
    random: u64,
}

/// The reason for a new entry: decides which entries it may evict.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Creator {
    /// We send there.
    Local,
    /// A request to us.
    Remote,
}

impl NeighbourTable {
    /// An empty table. `seed` randomises the reachable time; the same seed gives the same times.
    pub fn new(seed: u64) -> Self {
        Self {
            by_address: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            pending: 0,
            pending_bytes: 0,
            pending_limit: MAX_PENDING_BYTES,
            generation: 0,
            earliest: Time::MAX,
            timing: NeighbourTiming::default(),
            defences: SmallVec::new(),
            random: seed | 1,
        }
    }

    /// Uses these times for IPv6 from now on: a router has advertised them (RFC 4861 section 6.3.4). Running timers are
    /// not changed.
    pub fn set_timing(&mut self, timing: NeighbourTiming) {
        self.timing = timing;
    }

    /// Times for the family of `address`. No router sets those of ARP.
    fn timing(&self, address: IpAddr) -> NeighbourTiming {
        if address.is_ipv6() { self.timing } else { NeighbourTiming::default() }
    }

    /// Entries in any state.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Packets waiting for an answer.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Memory that waiting packets pin, in bytes; at most [`MAX_PENDING_BYTES`].
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Whether the stack is short of memory: packets wait within [`LEAST_PENDING_BYTES`] then. Those that wait already
    /// stay.
    pub fn set_memory_short(&mut self, short: bool) {
        self.pending_limit = if short { LEAST_PENDING_BYTES } else { MAX_PENDING_BYTES };
    }

    /// Every entry: address, link address unless unknown, state.
    pub fn entries(&self) -> impl Iterator<Item = (IpAddr, Option<MacAddr>, NeighbourState)> + '_ {
        self.slots.iter().flatten().map(|e| {
            let known = e.state != NeighbourState::Incomplete;
            (e.address, known.then_some(e.mac), e.state)
        })
    }

    fn entry(&mut self, slot: u32) -> &mut NeighbourEntry {
        self.slots[slot as usize].as_mut().expect("a slot in the key map is occupied")
    }

    fn find_or_create(
        &mut self,
        now: Time,
        address: IpAddr,
        interface: &InterfaceView,
        creator: Creator,
        counters: &Counters,
    ) -> Option<u32> {
        if let Some(&slot) = self.by_address.get(&address) {
            return Some(slot);
        }
        let source = interface.source_for(address)?;
        if self.by_address.len() >= CAPACITY {
            self.make_room(now, creator, counters)?;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(NeighbourEntry::new(address, interface.link_end(), source));
        self.by_address.insert(address, slot);
        Some(slot)
    }

    /// Evicts the least valuable entry, the one longest unused among equals. A full table means an attack or a very
    /// large link; the scan of 512 entries is then paid per *new* neighbour, never per packet.
    fn make_room(&mut self, now: Time, creator: Creator, counters: &Counters) -> Option<()> {
        let most = if creator == Creator::Local { entry::VALUE_STALE } else { entry::VALUE_UNSOLICITED };
        let candidates = self.slots.iter().enumerate().filter_map(|(slot, e)| Some((slot, e.as_ref()?)));
        let least = candidates.map(|(slot, e)| (e.value(now), e.used, slot)).min()?;
        let (value, _, slot) = least;
        (value <= most).then(|| {
            let displaced = self.remove_slot(slot as u32);
            counters.count_drops(DropReason::NeighbourTableFull, displaced.pending.len() as u64);
        })
    }

    fn remove_slot(&mut self, slot: u32) -> NeighbourEntry {
        let entry = self.slots[slot as usize].take().expect("only occupied slots are removed");
        self.by_address.remove(&entry.address);
        self.free.push(slot);
        self.pending -= entry.pending.len();
        self.pending_bytes -= entry.pending.iter().map(pinned).sum::<usize>();
        self.generation += u64::from(entry.state != NeighbourState::Incomplete);
        entry
    }

    fn queue(&mut self, slot: u32, packet: PktBuf, counters: &Counters) -> Result<(), DropReason> {
        let charge = pinned(&packet);
        let crowded = self.entry(slot).pending.len() >= MAX_PENDING_PER_NEIGHBOUR;
        let short = self.pending_bytes + charge > self.pending_limit;
        if (crowded || short)
            && let Some(oldest) = self.entry(slot).pending.pop_front()
        {
            counters.count_drop(DropReason::NeighbourQueueFull);
            self.pending -= 1;
            self.pending_bytes -= pinned(&oldest);
        }
        // If other queues hold the memory, a packet for a neighbour with an empty queue is dropped.
        if self.pending_bytes + charge > self.pending_limit {
            return Err(DropReason::NeighbourQueueFull);
        }
        self.entry(slot).pending.push_back(packet);
        self.pending += 1;
        self.pending_bytes += charge;
        Ok(())
    }

    fn start_resolution(&mut self, now: Time, slot: u32, counters: &Counters) -> Option<PktBuf> {
        let address = self.entry(slot).address;
        let deadline = now + self.timing(address).retrans;
        let entry = self.entry(slot);
        entry.set(NeighbourState::Incomplete, deadline);
        entry.solicits = 1;
        let solicit = entry.solicit(counters);
        self.earliest = self.earliest.min(deadline);
        solicit
    }

    /// When a confirmation made now expires: 0.5 to 1.5 of its family's reachable time, so that neighbours learned
    /// together are not probed together (xorshift64).
    fn reachable_until(&mut self, now: Time, slot: u32) -> Time {
        let address = self.entry(slot).address;
        let mean = self.timing(address).reachable;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = (self.random >> 32) as u32 % 1000;
        let until = now + mean / 2 + mean * share / 1000;
        self.earliest = self.earliest.min(until);
        until
    }

    fn expire(&mut self, now: Time, slot: u32, out: &mut NeighbourEffects, counters: &Counters) {
        let address = self.entry(slot).address;
        let retrans = self.timing(address).retrans;
        let entry = self.entry(slot);
        match entry.state {
            NeighbourState::Reachable => {
                entry.set(NeighbourState::Stale, Time::MAX);
                out.changed = true;
            }
            NeighbourState::Delay if !entry.in_doubt && now < entry.deadline + DOUBT_TIME => {
                entry.in_doubt = true;
                entry.deadline += DOUBT_TIME;
                out.changed = true;
            }
            NeighbourState::Delay => {
                entry.set(NeighbourState::Probe, now + retrans);
                entry.solicits = 1;
                // Senders with a cached link header look it up again, and may confirm it.
                out.changed = true;
                out.frames.extend(entry.solicit(counters));
            }
            NeighbourState::Incomplete | NeighbourState::Probe if entry.solicits < MAX_SOLICITS => {
                entry.solicits += 1;
                entry.deadline = now + retrans;
                out.frames.extend(entry.solicit(counters));
            }
            NeighbourState::Incomplete | NeighbourState::Probe => {
                out.changed |= entry.state == NeighbourState::Probe;
                let entry = self.remove_slot(slot);
                out.failed.push(entry.address);
                counters.increment(Counter::NeighboursFailed);
                counters.count_drops(DropReason::NeighbourUnresolved, entry.pending.len() as u64);
                out.unreachable.extend(entry.pending);
            }
            NeighbourState::Stale => {}
        }
    }
}

impl NeighbourTable {
    /// Returns the link address of `next_hop`, or keeps `packet` (beginning at its network header) until it is known.
    pub fn resolve(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        next_hop: IpAddr,
        packet: PktBuf,
        counters: &Counters,
    ) -> Resolution {
        if let Some(mac) = group_or_broadcast(interface, next_hop) {
            return Resolution::Ready(mac, packet);
        }
        let known = self.by_address.contains_key(&next_hop);
        let Some(slot) = self.find_or_create(now, next_hop, interface, Creator::Local, counters) else {
            let full = interface.source_for(next_hop).is_some();
            let reason = if full { DropReason::NeighbourTableFull } else { DropReason::NoSourceAddress };
            return Resolution::Dropped(reason);
        };
        let entry = self.entry(slot);
        entry.used = now;
        if known && entry.state != NeighbourState::Incomplete {
            let mac = entry.mac;
            if entry.start_delay(now) {
                let deadline = entry.deadline;
                self.earliest = self.earliest.min(deadline);
            }
            return Resolution::Ready(mac, packet);
        }
        if let Err(reason) = self.queue(slot, packet, counters) {
            if !known {
                self.remove_slot(slot);
            }
            return Resolution::Dropped(reason);
        }
        let solicit = if known { None } else { self.start_resolution(now, slot, counters) };
        Resolution::Queued { solicit }
    }

    /// The link address of `next_hop` if it may be used without a check: neither unknown nor stale.
    #[inline]
    pub fn lookup(&self, next_hop: IpAddr) -> Option<MacAddr> {
        let slot = *self.by_address.get(&next_hop)?;
        let entry = self.slots[slot as usize].as_ref()?;
        (!matches!(entry.state, NeighbourState::Incomplete | NeighbourState::Stale)).then_some(entry.mac)
    }

    /// The link address of `next_hop`, as [`NeighbourTable::lookup`], and whether it is still in doubt. `progress`: the
    /// transport has just seen forward progress through it, which confirms it.
    pub fn reach(&mut self, now: Time, next_hop: IpAddr, progress: bool) -> Option<(MacAddr, bool)> {
        let mac = self.lookup(next_hop)?;
        let in_doubt = self.is_in_doubt(next_hop);
        if in_doubt && progress {
            self.confirm(now, next_hop);
        }
        Some((mac, in_doubt && !progress))
    }

    /// Whether `next_hop` is being probed, or about to be: a transport that has received an answer through it avoids
    /// the probe by [`NeighbourTable::confirm`].
    pub fn is_in_doubt(&self, next_hop: IpAddr) -> bool {
        let entry = self.by_address.get(&next_hop).and_then(|slot| self.slots[*slot as usize].as_ref());
        entry.is_some_and(NeighbourEntry::is_in_doubt)
    }

    /// Whether any neighbour is in doubt. A scan of the table: called only after a change.
    pub fn has_doubts(&self) -> bool {
        self.slots.iter().flatten().any(NeighbourEntry::is_in_doubt)
    }

    /// A transport received an answer through `next_hop`: it is reachable (RFC 4861 section 7.3.1).
    pub fn confirm(&mut self, now: Time, next_hop: IpAddr) {
        let Some(&slot) = self.by_address.get(&next_hop) else { return };
        if self.entry(slot).state == NeighbourState::Incomplete {
            return;
        }
        let until = self.reachable_until(now, slot);
        let entry = self.entry(slot);
        (entry.used, entry.heard) = (now, now);
        entry.confirmed = true;
        entry.set(NeighbourState::Reachable, until);
    }

    /// A transport gets no answers through `next_hop` (negative advice, RFC 1122 section 3.3.1.4): it is in doubt from
    /// now on, and is probed after [`DOUBT_TIME`], and at least [`TRUST_TIME`] after its last confirmation, unless a
    /// transport that makes progress through it confirms it meanwhile ([`NeighbourTable::confirm`]). True if cached
    /// link headers became invalid, so that such transports resolve it again.
    pub fn suspect(&mut self, now: Time, next_hop: IpAddr) -> bool {
        let Some(&slot) = self.by_address.get(&next_hop) else { return false };
        let entry = self.entry(slot);
        if entry.in_doubt
            || !matches!(entry.state, NeighbourState::Reachable | NeighbourState::Stale | NeighbourState::Delay)
        {
            return false;
        }
        let asked = if entry.confirmed { (now + DOUBT_TIME).max(entry.heard + TRUST_TIME) } else { now };
        entry.set(NeighbourState::Delay, asked);
        entry.in_doubt = true;
        self.earliest = self.earliest.min(asked);
        let changed = asked > now;
        self.generation += u64::from(changed);
        changed
    }

    /// Repeats solicitations, gives neighbours up, expires confirmations.
    pub fn timeouts(&mut self, now: Time, counters: &Counters) -> NeighbourEffects {
        let mut out = NeighbourEffects::default();
        if now < self.earliest {
            return out;
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|e| e.deadline <= now) {
                self.expire(now, slot as u32, &mut out, counters);
            }
        }
        self.earliest = self.slots.iter().flatten().map(|e| e.deadline).min().unwrap_or(Time::MAX);
        self.generation += u64::from(out.changed);
        out
    }

    /// When [`NeighbourTable::timeouts`] may have work; never too late.
    pub fn next_deadline(&self) -> Option<Time> {
        (self.earliest != Time::MAX).then_some(self.earliest)
    }

    /// Rises whenever a cached link header may have become invalid.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl NeighbourAccess for NeighbourTable {
    fn reach(&mut self, now: Time, next_hop: IpAddr, progress: bool) -> Option<(MacAddr, bool)> {
        NeighbourTable::reach(self, now, next_hop, progress)
    }

    fn resolve(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        next_hop: IpAddr,
        packet: PktBuf,
        counters: &Counters,
    ) -> Resolution {
        NeighbourTable::resolve(self, now, interface, next_hop, packet, counters)
    }
}

/// Memory that a waiting packet pins: its whole block.
fn pinned(packet: &PktBuf) -> usize {
    packet.headroom() + packet.len() + packet.tailroom()
}

fn group_or_broadcast(interface: &InterfaceView, next_hop: IpAddr) -> Option<MacAddr> {
    match next_hop {
        IpAddr::V4(a) if interface.is_broadcast(a) => Some(MacAddr::BROADCAST),
        _ => group_mac(next_hop),
    }
}

#[cfg(test)]
mod tests;
