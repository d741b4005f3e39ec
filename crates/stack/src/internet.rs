//! The Internet layer's shared tables behind their locks: neighbours, fragments, path MTUs, the ICMP rate limit.
//!
//! Off the data path: a segment whose connection has a valid route cache touches none of them. Any thread. The rules
//! are all in the `ip` crate; this file has the locks, and sends the packets that a table gives back.

use std::net::IpAddr;

use ip::output::{Fragmentation, Identifications};
use ip::path_mtu::Estimate;
use ip::{
    Effects, ErrorKind, Fragment, LinkHeader, NeighbourTable, PathMtuTable, PerDestination, Reassembled,
    ReassemblyTable, Resolution,
};
use observe::{Counter, Counters, DropReason, Time};
use pktbuf::PktBuf;
use smallvec::{SmallVec, smallvec};
use sync::{Atomic, CachePadded, Guard, Lock, LockClass, LockKind, Ordering, Platform};
use wire::Framing;

use crate::deferred::DeferredEffects;
use crate::flow::{self, Flow};
use crate::route_cache::RouteCache;
use crate::shared::Shared;

/// How often path MTUs are looked through for expired ones. They live for ten minutes.
const PATH_MTU_SWEEP_NS: u64 = 60_000_000_000;

/// The tables.
pub struct Internet<P: Platform> {
    /// By interface.
    neighbours: Vec<Lock<NeighbourTable, P>>,
    reassembly: Lock<ReassemblyTable, P>,
    /// What routers reported about paths.
    pub path_mtu: Lock<PathMtuTable, P>,
    icmp_limit: Lock<PerDestination, P>,
    /// By flow, one for each worker.
    reset_limits: Vec<CachePadded<Lock<PerDestination, P>>>,
    identifications: Lock<Identifications, P>,
    /// When [`Shared::internet_timeouts`] has work, in nanoseconds.
    deadline: P::AtomicU64,
    /// By interface, whether a neighbour is in doubt there; written under the lock of its neighbours.
    doubtful: Box<[P::AtomicBool]>,
    /// Interfaces on which one is.
    doubts: P::AtomicUsize,
}

impl<P: Platform> Internet<P> {
    /// Empty tables for so many interfaces and workers, each of which may send `resets` a second; `seed` blurs their
    /// timing.
    pub fn new(interfaces: usize, (workers, resets): (usize, u32), seed: u64) -> Self {
        let blocking = LockKind::Blocking;
        let table = |index: usize| NeighbourTable::new(seed.wrapping_add(index as u64));
        let limits = |index: usize| {
            let limit = PerDestination::resets(resets, seed.rotate_left(17).wrapping_add(index as u64));
            CachePadded::new(Lock::new(blocking, LockClass::Neighbours, limit))
        };
        Internet {
            neighbours: (0..interfaces).map(|i| Lock::new(blocking, LockClass::Neighbours, table(i))).collect(),
            reset_limits: (0..workers.max(1)).map(limits).collect(),
            identifications: Lock::new(blocking, LockClass::Neighbours, Identifications::new(seed)),
            reassembly: Lock::new(blocking, LockClass::Neighbours, ReassemblyTable::new()),
            path_mtu: Lock::new(blocking, LockClass::Neighbours, PathMtuTable::new()),
            icmp_limit: Lock::new(blocking, LockClass::Neighbours, PerDestination::errors(seed)),
            deadline: P::AtomicU64::new(PATH_MTU_SWEEP_NS),
            doubtful: (0..interfaces).map(|_| P::AtomicBool::new(false)).collect(),
            doubts: P::AtomicUsize::new(0),
        }
    }

    /// When [`Shared::internet_timeouts`] next has work.
    #[inline]
    pub fn deadline(&self) -> Time {
        Time::from_nanos(self.deadline.load(Ordering::Relaxed))
    }

    /// Something has work at `deadline`: a receive thread must look then.
    pub(crate) fn note(&self, deadline: Option<Time>, deferred: &mut DeferredEffects<P>) {
        let Some(deadline) = deadline.map(Time::as_nanos) else { return };
        let mut seen = self.deadline.load(Ordering::Relaxed);
        while deadline < seen {
            match self.deadline.compare_exchange_weak(seen, deadline, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return deferred.due(deadline),
                Err(other) => seen = other,
            }
        }
    }

    /// Whether a neighbour may be in doubt: a transport that makes progress is then to say so.
    #[inline]
    pub fn has_doubts(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) != 0
    }

    /// Notes whether a neighbour of the interface is in doubt. The caller holds the lock of `neighbours`.
    fn note_doubts(&self, interface: usize, neighbours: &NeighbourTable) {
        let (noted, doubtful) = (&self.doubtful[interface], neighbours.has_doubts());
        if noted.load(Ordering::Relaxed) == doubtful {
            return;
        }
        noted.store(doubtful, Ordering::Relaxed);
        if doubtful {
            self.doubts.fetch_add(1, Ordering::Relaxed);
        } else {
            self.doubts.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn neighbours(&self, interface: usize) -> Guard<'_, NeighbourTable, P> {
        self.neighbours[interface].lock()
    }

    /// Whether the worker that serves this flow may send one more reset to its peer now.
    pub fn may_reset(&self, flow: &Flow, now: Time) -> bool {
        let worker = flow::index(flow.hash, self.reset_limits.len());
        self.reset_limits[worker].lock().allow(now, flow.tuple.remote_addr)
    }

    /// A router has set the times of neighbour discovery on an interface's link.
    pub(crate) fn set_timing(&self, interface: usize, timing: ip::neighbour::Timing) {
        self.neighbours(interface).set_timing(timing);
    }

    /// Entries of the neighbour tables.
    pub fn neighbour_count(&self) -> usize {
        self.neighbours.iter().map(|table| table.lock().len()).sum()
    }
}

/// The length of the header that IP puts in front of a payload to `destination`.
fn header_len(destination: IpAddr) -> usize {
    if destination.is_ipv4() { wire::ipv4::HEADER_LEN } else { wire::ipv6::HEADER_LEN }
}

impl<P: Platform> Shared<P> {
    /// The link header for `next_hop`, if its link address is known and fresh.
    pub fn link_header(&self, interface: usize, next_hop: IpAddr, destination: IpAddr) -> Option<LinkHeader> {
        let view = self.links().view(interface);
        if view.framing == Framing::Packet {
            return Some(LinkHeader::None);
        }
        let mac = self.internet.neighbours(interface).lookup(next_hop)?;
        Some(LinkHeader::new(view.mac, mac, destination))
    }

    /// As [`Shared::link_header`], and whether the neighbour is in doubt: the answer may then not be kept. `progress`
    /// says that the peer's transport has just shown that it hears us, which ends the doubt (RFC 4861 section 7.3.1).
    pub fn link_header_in_use(
        &self,
        interface: usize,
        next_hop: IpAddr,
        destination: IpAddr,
        progress: bool,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<(LinkHeader, bool)> {
        let view = self.links().view(interface);
        if view.framing == Framing::Packet {
            return Some((LinkHeader::None, false));
        }
        let now = self.clock().batch_now();
        let mut neighbours = self.internet.neighbours(interface);
        let mac = neighbours.lookup(next_hop)?;
        let mut in_doubt = neighbours.is_in_doubt(next_hop);
        if in_doubt && progress {
            neighbours.confirm(now, next_hop);
            self.internet.note(neighbours.next_deadline(), deferred);
            self.internet.note_doubts(interface, &neighbours);
            in_doubt = false;
        }
        Some((LinkHeader::new(view.mac, mac, destination), in_doubt))
    }

    /// Asks the next hop towards `destination` whether it is still there, because a transport hears nothing from beyond
    /// it. A gateway that does not answer gives way to another.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
    //# The following procedure MUST be used to handle excessive retransmissions of data segments (MUST-20):
    #[cold]
    pub fn suspect_path(&self, destination: IpAddr, deferred: &mut DeferredEffects<P>) {
        let Some((interface, next_hop)) = self.route(destination) else { return };
        let mut neighbours = self.internet.neighbours(interface);
        let changed = neighbours.suspect(self.clock().batch_now(), next_hop);
        self.internet.note(neighbours.next_deadline(), deferred);
        self.internet.note_doubts(interface, &neighbours);
        drop(neighbours);
        if changed {
            self.invalidate_routes();
        }
    }

    /// Data of ours towards `destination` was acknowledged while a neighbour is in doubt: if it is the next hop there,
    /// it need not be asked (RFC 4861 section 7.3.1).
    #[cold]
    pub fn path_works(&self, destination: IpAddr, deferred: &mut DeferredEffects<P>) {
        let Some((interface, next_hop)) = self.route(destination) else { return };
        let mut neighbours = self.internet.neighbours(interface);
        if neighbours.is_in_doubt(next_hop) {
            neighbours.confirm(self.clock().batch_now(), next_hop);
            self.internet.note(neighbours.next_deadline(), deferred);
            self.internet.note_doubts(interface, &neighbours);
        }
    }

    /// Puts a link header in front of an IP packet, or lets it wait for its neighbour. The frames to send now: the
    /// packet, or the solicitation.
    pub fn resolve_or_queue(
        &self,
        interface: usize,
        next_hop: IpAddr,
        packet: PktBuf,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) -> SmallVec<[PktBuf; 8]> {
        let now = self.clock().now();
        let view = self.links().view(interface);
        if view.framing == Framing::Packet {
            return smallvec![packet];
        }
        let mut neighbours = self.internet.neighbours(interface);
        let resolution = neighbours.resolve(now, view, next_hop, packet, counters);
        self.internet.note(neighbours.next_deadline(), deferred);
        drop(neighbours);
        match resolution {
            Resolution::Ready(mac, mut packet) => {
                LinkHeader::new(view.mac, mac, next_hop).prepend(&mut packet);
                smallvec![packet]
            }
            Resolution::Queued { solicit } => solicit.into_iter().collect(),
            Resolution::Dropped(reason) => {
                counters.drop(reason);
                SmallVec::new()
            }
        }
    }

    /// An ARP packet has come.
    pub fn arp_arrives(
        &self,
        interface: usize,
        packet: &wire::arp::Packet,
        now: Time,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        if self.arp_under_test(interface, packet, now, counters, deferred) {
            return;
        }
        let view = self.links().view(interface);
        let mut neighbours = self.internet.neighbours(interface);
        let effects = neighbours.arp_arrives(now, view, packet, counters);
        self.internet.note(neighbours.next_deadline(), deferred);
        drop(neighbours);
        self.neighbour_effects(interface, effects, now, counters, deferred);
    }

    /// A neighbour solicitation or advertisement has come.
    pub fn discovery_arrives(
        &self,
        interface: usize,
        discovery: &ip::neighbour::Discovery,
        now: Time,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        if self.discovery_under_test(interface, discovery, now, counters, deferred) {
            return;
        }
        let view = self.links().view(interface);
        let mut neighbours = self.internet.neighbours(interface);
        let effects = neighbours.discovery_arrives(now, view, discovery, counters);
        self.internet.note(neighbours.next_deadline(), deferred);
        drop(neighbours);
        self.neighbour_effects(interface, effects, now, counters, deferred);
    }

    fn neighbour_effects(
        &self,
        interface: usize,
        effects: Effects,
        now: Time,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) -> SmallVec<[ip::IcmpError; 2]> {
        if effects.changed {
            self.invalidate_routes();
        }
        let view = self.links().view(interface);
        let lost = effects.unreachable.iter().filter_map(|packet| ip::icmp::undelivered(packet, view)).collect();
        if let Some(conflict) = effects.conflict {
            self.address_conflict(interface, conflict, now, counters, deferred);
        }
        for address in effects.failed {
            self.neighbour_failed(interface, address, now, counters, deferred);
        }
        for frame in effects.frames {
            // By the flow's own queue, or what waited could be overtaken by what comes after (G7).
            let hash = frame.meta().flow_hash.unwrap_or(0);
            self.send_frames(interface, hash, &mut smallvec![frame], counters, deferred);
        }
        lost
    }

    /// A fragment has come: the whole datagram, if this was the last missing piece.
    pub fn fragment_arrives(
        &self,
        fragment: Fragment,
        now: Time,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<ip::Datagram> {
        let mut reassembly = self.internet.reassembly.lock();
        let result = reassembly.insert(now, fragment, counters);
        self.internet.note(reassembly.next_deadline(), deferred);
        drop(reassembly);
        match result {
            Reassembled::Whole(datagram) => return Some(datagram),
            Reassembled::Pending => {}
            Reassembled::Refused(refused) => {
                counters.drop(refused.reason);
                self.refuse(&refused.datagram, refused.error, counters, deferred);
            }
        }
        None
    }

    /// Sends an IP packet that may exceed the MTU: in fragments, if it does.
    pub fn send_fragmented(
        &self,
        packet: PktBuf,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let hash = self.rss.hash_ip(destination, source);
        match self.route(destination) {
            Some(route) => self.send_along(route, packet, (source, destination), (protocol, hash), counters, deferred),
            None => counters.drop(DropReason::NoRoute),
        }
    }

    /// Sends an IP packet to a next hop on an interface, in fragments if it exceeds the MTU there. All of them leave by
    /// the device queue that `hash` names, at once or when the neighbour has answered: none overtakes another.
    fn send_along(
        &self,
        (interface, next_hop): (usize, IpAddr),
        packet: PktBuf,
        (source, destination): (IpAddr, IpAddr),
        (protocol, hash): (u8, u32),
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let mut send = |mut packet: PktBuf| {
            packet.meta_mut().flow_hash = Some(hash);
            let mut frames = self.resolve_or_queue(interface, next_hop, packet, counters, deferred);
            self.send_frames(interface, hash, &mut frames, counters, deferred);
        };
        let mtu = self.links().view(interface).mtu_for(destination);
        if packet.len() <= mtu {
            return send(packet);
        }
        let ident = self.internet.identifications.lock().next(source, destination, protocol);
        match ip::output::fragment(packet, mtu, ident) {
            Ok(fragments) => {
                counters.increment(Counter::PacketsFragmented);
                counters.add(Counter::FragmentsOut, fragments.len() as u64);
                fragments.into_iter().for_each(send);
            }
            Err(reason) => counters.drop(reason),
        }
    }

    /// Sends a datagram that a socket made. `hash` is that of its flow. `known` is what is remembered of the way to its
    /// destination: where that is good, no table is looked at; else it is what was found now.
    pub(crate) fn send_datagram(
        &self,
        datagram: udp::Outgoing,
        known: &mut RouteCache,
        hash: u32,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        // Read before the tables: a change in between makes what is found stale at once, not for ever.
        let generation = self.generation();
        let udp::Outgoing { mut buf, src, dst, tos, ttl } = datagram;
        if let Some(interface) = known.leaves_by(generation).and_then(|port| self.links().interface_of(port))
            && let Some(link) = &known.link
            && let Some(port) = self.links().port_of(interface, hash)
            && buf.len() + header_len(dst) <= self.links().view(interface).mtu_for(dst)
        {
            ip::output::header(&mut buf, src, dst, wire::protocol::UDP, tos, ttl);
            link.prepend(&mut buf);
            return self.links().ports()[port].queue(hash).transmit_one(buf, counters, deferred.dirty());
        }
        let Some(route) = self.route(dst) else { return counters.drop(DropReason::NoRoute) };
        match (src, dst) {
            // It will be cut, and then gets its identification from `fragment`.
            (IpAddr::V4(src), IpAddr::V4(dst))
                if buf.len() + wire::ipv4::HEADER_LEN > self.links().view(route.0).mtu =>
            {
                let cut = Fragmentation::Allowed { ident: 0 };
                ip::output::ipv4_header(&mut buf, src, dst, wire::protocol::UDP, tos, ttl, cut);
            }
            _ => ip::output::header(&mut buf, src, dst, wire::protocol::UDP, tos, ttl),
        }
        self.send_along(route, buf, (src, dst), (wire::protocol::UDP, hash), counters, deferred);
        *known = self.way(route, dst, (hash, generation), deferred);
    }

    /// What a sender may remember of the way to `destination`, which was looked up when the routes were of this
    /// generation.
    fn way(
        &self,
        (interface, next_hop): (usize, IpAddr),
        destination: IpAddr,
        (hash, generation): (u32, u32),
        deferred: &mut DeferredEffects<P>,
    ) -> RouteCache {
        let unknown = RouteCache::as_of(generation);
        let Some(port) = self.links().port_of(interface, hash).filter(|_| ip::interface::is_unicast(destination))
        else {
            return unknown;
        };
        match self.link_header_in_use(interface, next_hop, destination, false, deferred) {
            Some((link, false)) => {
                RouteCache { generation, port: port as u16, link: Some(link), ..RouteCache::default() }
            }
            _ => unknown,
        }
    }

    /// For a TCP segment that routers may cut. The parts that a device makes of a super-segment count on from its
    /// identification (RFC 6864 section 4.3).
    pub(crate) fn cuttable(&self, segment: &PktBuf, source: IpAddr, destination: IpAddr) -> Fragmentation {
        let parts = match usize::from(segment.meta().segment_size) {
            0 => 1,
            size => segment.len().div_ceil(size),
        };
        let mut identifications = self.internet.identifications.lock();
        let mut next = || identifications.next(source, destination, wire::protocol::TCP) as u16;
        let ident = next();
        for _ in 1..parts {
            next();
        }
        Fragmentation::Allowed { ident }
    }

    /// A connection has believed a router's packet-too-big: others to that destination profit.
    pub fn learn_path_mtu(&self, destination: IpAddr, estimate: Estimate, now: Time) {
        let Some((interface, _)) = self.route(destination) else { return };
        let link = self.links().view(interface).mtu_for(destination);
        let changed = self.internet.path_mtu.lock().update(destination, estimate, link, now);
        if changed && estimate.fragments {
            // Cached headers forbid what routers must be allowed to do.
            self.invalidate_routes();
        }
    }

    /// Sends the ICMP error that is owed for a packet, if the rules and the rate limit allow one.
    pub fn refuse(
        &self,
        cause: &ip::Datagram,
        error: ErrorKind,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let Some((interface, _)) = self.route(cause.src) else { return };
        let view = self.links().view(interface);
        let now = self.clock().now();
        let packet = ip::icmp::error(cause, error, view, &mut self.internet.icmp_limit.lock(), now);
        match packet {
            Ok(mut packet) => {
                counters.increment(Counter::IcmpOut);
                counters.increment(Counter::IcmpErrorsOut);
                let hash = self.rss.hash_ip(cause.src, cause.dst);
                packet.meta_mut().flow_hash = Some(hash);
                self.send_packet(packet, cause.src, hash, counters, deferred);
            }
            Err(reason) => counters.drop(reason),
        }
    }

    /// Solicits again, gives neighbours and fragments up, forgets old path MTUs. Returns the errors for the transports
    /// whose packets waited for a neighbour that does not answer.
    pub fn internet_timeouts(
        &self,
        now: Time,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) -> SmallVec<[ip::IcmpError; 2]> {
        self.internet.deadline.store(now.as_nanos().saturating_add(PATH_MTU_SWEEP_NS), Ordering::Relaxed);
        if self.internet.path_mtu.lock().timeouts(now) {
            // Connections look at the way again when they next send (RFC 1191 section 6.3).
            self.invalidate_routes();
        }
        let mut reassembly = self.internet.reassembly.lock();
        let owed = reassembly.timeouts(now, counters);
        self.internet.note(reassembly.next_deadline(), deferred);
        drop(reassembly);
        for datagram in owed {
            self.refuse(&datagram, ErrorKind::ReassemblyTimeExceeded, counters, deferred);
        }
        self.address_timeouts(now, counters, deferred);
        let mut lost = SmallVec::new();
        for interface in 0..self.links().interfaces().len() {
            let mut neighbours = self.internet.neighbours(interface);
            let effects = neighbours.timeouts(now, counters);
            self.internet.note(neighbours.next_deadline(), deferred);
            self.internet.note_doubts(interface, &neighbours);
            drop(neighbours);
            lost.extend(self.neighbour_effects(interface, effects, now, counters, deferred));
        }
        lost
    }
}
