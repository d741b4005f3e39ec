//! Transmission of packets that are not segments of a connection: datagrams, fragments, ICMP errors, resets for
//! unmatched segments.

use std::net::IpAddr;

use ip::ErrorKind;
use ip::interface::Cast;
use ip::neighbour::{link_header, resolve_or_queue};
use ip::output::Fragmentation;
use observe::{Counter, Counters, DropReason, Time};
use pktbuf::PktBuf;
use sync::Platform;

use super::Egress;
use crate::control::Control;
use crate::deferred::DeferredEffects;
use crate::flow::{self, Flow};
use crate::route_cache::RouteCache;

/// The length of the header that IP puts in front of a payload to `destination`.
fn header_len(destination: IpAddr) -> usize {
    if destination.is_ipv4() { wire::ipv4::HEADER_LEN } else { wire::ipv6::HEADER_LEN }
}

impl<P: Platform> Egress<P> {
    /// Sends an IP packet that may exceed the MTU: in fragments, if it does.
    pub(crate) fn send_fragmented(
        &self,
        packet: PktBuf,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let hash = self.rss.hash_ip(destination, source);
        match self.route_from(source, destination) {
            Some(route) => self.send_along(route, packet, (source, destination), (protocol, hash), counters, deferred),
            None => counters.count_drop(DropReason::NoRoute),
        }
    }

    /// Sends an IP packet to a next hop on an interface, in fragments if it exceeds the MTU there. All of them leave by
    /// the device queue of `hash`, at once or when the neighbour has answered, so none overtakes another.
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
            let (view, mut neighbours) = (self.links.view(interface), self.neighbours.of(interface, deferred));
            let now = self.links.clock().now();
            let mut frames = resolve_or_queue(&mut neighbours, view, next_hop, packet, now, counters);
            self.send_frames(interface, hash, &mut frames, counters, deferred);
        };
        let mtu = self.links.view(interface).mtu_for(destination);
        if packet.len() <= mtu {
            return send(packet);
        }
        let ident = self.identifications.hold().next(source, destination, protocol);
        match ip::output::fragment(packet, mtu, ident) {
            Ok(fragments) => {
                counters.increment(Counter::PacketsFragmented);
                counters.add(Counter::FragmentsOut, fragments.len() as u64);
                fragments.into_iter().for_each(send);
            }
            Err(reason) => counters.count_drop(reason),
        }
    }

    /// Sends a datagram of a socket. `hash` is that of its flow. `known` is the cached route to its destination: if
    /// valid, no table is read; otherwise it is updated.
    pub(crate) fn send_datagram(
        &self,
        datagram: udp::OutgoingDatagram,
        known: &mut RouteCache,
        hash: u32,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        // Read before the tables, so that a change in between makes the result stale.
        let generation = self.routes.generation();
        let udp::OutgoingDatagram { mut buf, src, dst, tos, ttl, loops, interface: chosen } = datagram;
        if let Some(interface) = known.leaves_by(generation).and_then(|port| self.links.interface_of(port))
            && let Some(link) = &known.link
            && let Some(port) = self.links.port_of(interface, hash)
            && buf.len() + header_len(dst) <= self.links.view(interface).mtu_for(dst)
        {
            ip::output::header(&mut buf, src, dst, wire::protocol::UDP, tos, ttl);
            link.prepend(&mut buf);
            return self.links.ports()[port].queue(hash).transmit_one(buf, counters, deferred.emission());
        }
        // A group is on every link: it is its own next hop.
        let chosen = chosen.map(|interface| (usize::from(interface), dst));
        let Some(route) = chosen.or_else(|| self.routes.lookup(&self.links, dst)) else {
            return counters.count_drop(DropReason::NoRoute);
        };
        match (src, dst) {
            // It will be fragmented, and gets its identification from `fragment`.
            (IpAddr::V4(src), IpAddr::V4(dst)) if buf.len() + wire::ipv4::HEADER_LEN > self.links.view(route.0).mtu => {
                let cut = Fragmentation::Allowed { ident: 0 };
                ip::output::ipv4_header(&mut buf, src, dst, wire::protocol::UDP, tos, ttl, cut);
            }
            _ => ip::output::header(&mut buf, src, dst, wire::protocol::UDP, tos, ttl),
        }
        if dst.is_multicast() && !self.links.is_loopback(route.0) {
            let looped = loops && self.links.view(route.0).cast(dst) == Cast::Multicast;
            if looped {
                self.loop_group(&buf, (src, dst), hash, counters, deferred);
            }
            // Such a datagram does not leave the host (RFC 1112 section 6.1).
            if ttl == 0 {
                if !looped {
                    counters.count_drop(DropReason::NoRoute);
                }
                return;
            }
        }
        self.send_along(route, buf, (src, dst), (wire::protocol::UDP, hash), counters, deferred);
        *known = self.way(route, dst, (hash, generation), deferred);
    }

    /// Sends a copy of a packet to a group by the loopback port. It is made before the packet is cut into fragments.
    fn loop_group(
        &self,
        packet: &PktBuf,
        (source, group): (IpAddr, IpAddr),
        hash: u32,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let Some(copy) = packet.duplicate() else { return counters.count_drop(DropReason::NoBuffer) };
        let route = (self.links.loopback(), group);
        self.send_along(route, copy, (source, group), (wire::protocol::UDP, hash), counters, deferred);
    }

    /// The cacheable route to `destination`, looked up when the routes were of this generation.
    fn way(
        &self,
        (interface, next_hop): (usize, IpAddr),
        destination: IpAddr,
        (hash, generation): (u32, u32),
        deferred: &mut DeferredEffects<P>,
    ) -> RouteCache {
        let unknown = RouteCache::at_generation(generation);
        let Some(port) = self.links.port_of(interface, hash).filter(|_| ip::interface::is_unicast(destination)) else {
            return unknown;
        };
        let (view, mut neighbours) = (self.links.view(interface), self.neighbours.of(interface, deferred));
        match link_header(&mut neighbours, view, (next_hop, destination), false, self.batch_now()) {
            Some((link, false)) => {
                RouteCache { generation, port: port as u16, link: Some(link), ..RouteCache::default() }
            }
            _ => unknown,
        }
    }

    /// The identification of a TCP segment that routers may fragment. A device that segments a super-segment increments
    /// it for each part (RFC 6864 section 4.3).
    pub(crate) fn cuttable(&self, segment: &PktBuf, source: IpAddr, destination: IpAddr) -> Fragmentation {
        let parts = match usize::from(segment.meta().segment_size) {
            0 => 1,
            size => segment.len().div_ceil(size),
        };
        let mut identifications = self.identifications.hold();
        let mut next = || identifications.next(source, destination, wire::protocol::TCP) as u16;
        let ident = next();
        for _ in 1..parts {
            next();
        }
        Fragmentation::Allowed { ident }
    }

    /// Sends the ICMP error for a packet, if the rules and the rate limit allow one.
    pub(crate) fn refuse(
        &self,
        cause: &ip::Datagram,
        error: ErrorKind,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let Some((interface, _)) = self.routes.lookup(&self.links, cause.src) else { return };
        let view = self.links.view(interface);
        let now = self.links.clock().now();
        let packet = ip::icmp::error(cause, error, view, &mut self.icmp_limit.hold(), now);
        match packet {
            Ok(mut packet) => {
                counters.increment(Counter::IcmpOut);
                counters.increment(Counter::IcmpErrorsOut);
                let hash = self.rss.hash_ip(cause.src, cause.dst);
                packet.meta_mut().flow_hash = Some(hash);
                self.send_packet(packet, (cause.dst, cause.src), hash, counters, deferred);
            }
            Err(reason) => counters.count_drop(reason),
        }
    }

    /// Whether the worker that serves this flow may send one more reset to its peer now.
    fn may_reset(&self, flow: &Flow, now: Time) -> bool {
        let worker = flow::index(flow.hash, self.reset_limits.len());
        self.reset_limits[worker].hold().allow(now, flow.tuple.remote_addr)
    }

    /// Answers a segment of no connection with a reset, if the RFC requires one and the worker's limits allow it.
    pub(crate) fn reset(
        &self,
        control: &Control<P>,
        flow: &Flow,
        segment: &tcp::Segment,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        if let Some(reset) = tcp::closed::segment_arrives(segment) {
            if !self.may_reset(flow, self.batch_now()) {
                return counters.count_drop(DropReason::RateLimited);
            }
            counters.add(Counter::SegmentsOut, 1);
            counters.add(Counter::ResetsOut, 1);
            let mut route = RouteCache::default();
            let mut out = self.outbox(control, flow, &route, counters);
            out.segments.push(reset);
            self.emit(flow, &mut route, &mut out, deferred);
        }
    }
}
