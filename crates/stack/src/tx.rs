//! From a segment to the device: IP header, link header, device queue.
//!
//! Called inside the cell that made the segments (phase *inside*): the device queue is chosen by the flow, so segments
//! of one connection reach the wire in the order in which they were assigned (invariant G7). A connection caches the
//! link header of its next hop with the generation of the routes and neighbours; while that has not changed, a segment
//! needs no table but the connection's own. The first emission after a change looks the route up again: it takes the
//! new next hop, drops segments that are too large for the new path, and reports that in the outbox, so that the
//! connection sends the data again in segments that fit (`Egress::path_update`).
//!
//! `tx/packets.rs` sends packets that are not segments of a connection: datagrams, fragments, ICMP errors, resets.

mod packets;

use std::net::IpAddr;
use std::sync::Arc;

use ip::LinkHeader;
use ip::neighbour::{link_header, resolve_or_queue};
use ip::output::{DEFAULT_TTL, Identifications};
use ip::{PerDestination, RouteTable};
use observe::{Counters, DropReason, Time};
use path::{Dirty, Emitter, SendCapabilities, TransmitQueue};
use pktbuf::{PktBuf, RegionId};
use smallvec::SmallVec;
use sync::{CachePadded, ClaimLock, LockClass, LockKind, Platform};
use tcp::{LocalEffects, Outbox, PathUpdate, RouteChanged};
use wire::rss::Toeplitz;

use crate::access::Neighbours;
use crate::account::WaitingPackets;
use crate::batch_checks::BatchChecks;
use crate::charge;
use crate::control::Control;
use crate::deferred::DeferredEffects;
use crate::flow::{Flow, Target};
use crate::links::Links;
use crate::route_cache::RouteCache;
use crate::routes::Routes;

/// The most data segments that one event may emit: a bound on how long a cell is held, and on the cache it sweeps.
const BURST: usize = 64;

/// The low half of a segment's acknowledgement number, if it has one. A SYN has none; nor has the reset that answers an
/// unacceptable acknowledgement, which an attacker may have sent.
fn acknowledgement(segment: &[u8]) -> Option<u16> {
    wire::tcp::acknowledgement(segment).map(|number| number.0 as u16)
}

/// Traffic class and hop limit of the segment's IP header, set by the transport.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//# TCP implementations SHOULD pass the current Differentiated Services field value without change to the IP layer, when
//# it sends segments on the connection (SHLD-22).
#[inline]
fn wishes(segment: &PktBuf) -> (u8, u8) {
    let meta = segment.meta();
    (meta.traffic_class, if meta.hop_limit == 0 { DEFAULT_TTL } else { meta.hop_limit })
}

/// IP and link headers in front of a segment of `flow`.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//# At all other times, a previous segment has either been sent or received on this connection, and TCP
//# implementations MUST use the same local address that was used in those previous segments (MUST-45).
#[inline(always)]
fn headers(segment: &mut PktBuf, flow: &Flow, link: &LinkHeader) {
    let (class, hops) = wishes(segment);
    let (source, destination) = (flow.tuple.local_addr, flow.tuple.remote_addr);
    ip::output::framed(segment, source, destination, wire::protocol::TCP, class, hops, link);
}

/// Whether a path carries a segment of at most `most` bytes with the TCP header, through a device that segments up to
/// `cuts` bytes of data. A segment without data always fits.
fn fits(segment: &PktBuf, most: usize, cuts: usize) -> bool {
    let header = wire::tcp::header_len(segment);
    let data = segment.len().saturating_sub(header);
    match usize::from(segment.meta().segment_size) {
        0 => data == 0 || segment.len() <= most,
        size => data <= cuts && header + size <= most,
    }
}

/// Gives several segments IP and link headers, and then to the device.
#[inline(never)]
fn transmit_all<P: Platform>(
    mut emitter: Emitter<'_, P, Target>,
    port: usize,
    segments: &mut SmallVec<[PktBuf; 8]>,
    (flow, link): (&Flow, &LinkHeader),
) {
    segments.iter_mut().for_each(|segment| headers(segment, flow, link));
    if segments.spilled() {
        // As a `Vec` they are moved to the device's queue as one piece of memory.
        emitter.transmit(port, flow.hash, std::mem::take(segments).into_vec());
    } else {
        emitter.transmit(port, flow.hash, segments.drain(..));
    }
}

/// The transmit path of a stack: its links, the routes over them, the neighbours on them, and the rate limits on errors
/// and resets. Any thread.
pub struct Egress<P: Platform> {
    links: Links<P>,
    routes: Routes<P>,
    neighbours: Neighbours<P>,
    /// The hash by which devices and cells are chosen, for packets outside a connection.
    rss: Toeplitz,
    identifications: ClaimLock<Identifications, P>,
    icmp_limit: ClaimLock<PerDestination, P>,
    /// By flow, one for each worker.
    reset_limits: Vec<CachePadded<ClaimLock<PerDestination, P>>>,
}

/// The rate limits on errors and resets, and the seed of their timing.
pub(crate) struct EgressLimits {
    /// Workers for limits that apply to each worker; at least 1.
    pub workers: usize,
    /// Resets that each worker may send in a second.
    pub resets_per_second: u32,
    /// A random number.
    pub seed: u64,
}

/// The way of the segments of a connection to its device; see [`Egress::known_way`].
pub(crate) struct SegmentWay<'a, P: Platform> {
    link: &'a LinkHeader,
    queue: &'a TransmitQueue<P, Target>,
    capabilities: &'a SendCapabilities,
}

impl<P: Platform> SegmentWay<'_, P> {
    /// What a send without an outbox reads. `None`: the device has no room or splits super-segments, or memory is scarce.
    #[inline(always)]
    pub(crate) fn context<'a>(&self, control: &'a Control<P>, counters: &'a Counters) -> Option<tcp::SendContext<'a>> {
        let &SendCapabilities { segmentation, region } = self.capabilities;
        let usual = self.queue.credit() > 0 && segmentation == 0 && !control.scarcity().is_severe();
        usual.then(|| tcp::SendContext { config: control.tcp(), counters, region })
    }

    /// Emits a segment of `flow`, as [`Egress::emit`] does. Phase *inside*.
    #[inline(always)]
    pub(crate) fn transmit(&self, mut segment: PktBuf, flow: &Flow, counters: &Counters, dirty: &mut Dirty) {
        sync::walk::note(file!(), "puts IP and link headers in front of the outbox's segments");
        charge::emit::<P>(std::slice::from_ref(&segment));
        headers(&mut segment, flow, self.link);
        self.queue.transmit_one(segment, counters, dirty);
    }
}

impl<P: Platform> Egress<P> {
    /// Over these links and routes, without known neighbours.
    pub(crate) fn new(
        links: Links<P>,
        routes: RouteTable,
        rss: Toeplitz,
        EgressLimits { workers, resets_per_second, seed }: EgressLimits,
        checks: Arc<BatchChecks<P>>,
        waiting: Arc<WaitingPackets<P>>,
    ) -> Self {
        let blocking = LockKind::Blocking;
        let limits = |index: usize| {
            let limit = PerDestination::resets(resets_per_second, seed.rotate_left(17).wrapping_add(index as u64));
            CachePadded::new(ClaimLock::new(blocking, LockClass::Neighbours, limit))
        };
        Egress {
            neighbours: Neighbours::new(links.interfaces().len(), seed, checks, waiting),
            routes: Routes::new(routes),
            links,
            rss,
            identifications: ClaimLock::new(blocking, LockClass::Neighbours, Identifications::new(seed)),
            icmp_limit: ClaimLock::new(blocking, LockClass::Neighbours, PerDestination::errors(seed)),
            reset_limits: (0..workers.max(1)).map(limits).collect(),
        }
    }

    /// The calling thread transmits and uses the tables without locks from now on; see
    /// [`Shared::claim`](crate::Shared::claim).
    pub(crate) fn claim(&self) {
        self.links.ports().claim();
        self.routes.claim();
        self.neighbours.claim();
        self.identifications.claim();
        self.icmp_limit.claim();
        self.reset_limits.iter().for_each(|limit| _ = limit.claim());
    }

    /// Ends the calling thread's claims, if it has any.
    pub(crate) fn release_claims(&self) {
        self.links.ports().release_claims();
        self.routes.release_claims();
        self.neighbours.release_claims();
        self.identifications.release_claim();
        self.icmp_limit.release_claim();
        self.reset_limits.iter().for_each(|limit| _ = limit.release_claim());
    }

    /// Interfaces, ports, and the receive threads that serve them.
    #[inline(always)]
    pub fn links(&self) -> &Links<P> {
        &self.links
    }

    /// Routes, and path MTUs.
    #[inline(always)]
    pub fn routes(&self) -> &Routes<P> {
        &self.routes
    }

    /// The neighbours on the links.
    #[inline(always)]
    pub fn neighbours(&self) -> &Neighbours<P> {
        &self.neighbours
    }

    /// The hash by which devices and cells are chosen.
    #[inline]
    pub(crate) fn rss(&self) -> &Toeplitz {
        &self.rss
    }

    /// Time of the current batch.
    fn batch_now(&self) -> Time {
        self.links.clock().batch_now()
    }

    /// The outbox for an event of `flow`. Always inlined: it is built where it is used, not moved there.
    #[inline(always)]
    pub(crate) fn outbox<'a>(
        &'a self,
        control: &'a Control<P>,
        flow: &Flow,
        route: &RouteCache,
        counters: &'a Counters,
    ) -> Outbox<'a> {
        self.outbox_with(LocalEffects::new(control.tcp(), counters, control.scarcity()), flow, route)
    }

    /// The outbox for the rest of an event that has had these effects.
    #[inline(always)]
    pub(crate) fn outbox_with<'a>(&'a self, local: LocalEffects<'a>, flow: &Flow, route: &RouteCache) -> Outbox<'a> {
        let (credit, cuts, region) = self.room(flow, route);
        Outbox::for_device(local, credit, cuts).with_routes(self.routes.generation()).in_region(region)
    }

    /// The way of the segments of `flow`, if the next hop is known and nothing has changed since.
    #[inline(always)]
    pub(crate) fn known_way<'a>(&'a self, flow: &Flow, route: &'a RouteCache) -> Option<SegmentWay<'a, P>> {
        let link = route.link.as_ref()?;
        let generation = self.routes.generation();
        let port = self.links.ports().get(route.port.into())?;
        let queue = port.queue(flow.hash);
        (route.generation == generation).then_some(SegmentWay { link, queue, capabilities: port.send_capabilities() })
    }

    /// Emits the segments that an event of `flow` left in its outbox. Phase *inside*.
    #[inline]
    pub fn emit(&self, flow: &Flow, route: &mut RouteCache, out: &mut Outbox<'_>, deferred: &mut DeferredEffects<P>) {
        if out.segments.is_empty() {
            return;
        }
        sync::walk::note(file!(), "puts IP and link headers in front of the outbox's segments");
        charge::emit::<P>(&out.segments);
        if route.generation != out.routes && !self.resolve(flow, route, out, deferred) {
            return self.emit_unresolved(flow, &mut out.segments, out.local.counters, deferred);
        }
        let (segments, counters) = (&mut out.segments, out.local.counters);
        // By reference: a copy of fourteen bytes would be written in other pieces than it is read back in.
        let Some(link) = &route.link else { return };
        let port = usize::from(route.port);
        let mut emitter = Emitter::new(self.links.ports(), counters, deferred.emission());
        // Most events send one segment, and loops cost more than that.
        if segments.len() == 1
            && let Some(mut segment) = segments.pop()
        {
            headers(&mut segment, flow, link);
            emitter.transmit_one(port, flow.hash, segment);
        } else {
            transmit_all(emitter, port, segments, (flow, link));
        }
    }

    /// [`Egress::emit`] where there is mostly one segment, on a way that is known, and there may be none.
    #[inline(always)]
    pub(crate) fn emit_one(
        &self,
        flow: &Flow,
        route: &mut RouteCache,
        out: &mut Outbox<'_>,
        deferred: &mut DeferredEffects<P>,
    ) {
        if route.generation == out.routes
            && let Some(link) = &route.link
            && let Some(port) = self.links.ports().get(route.port.into())
            && out.segments.len() == 1
            && let Some(segment) = out.segments.pop()
        {
            let way = SegmentWay { link, queue: port.queue(flow.hash), capabilities: port.send_capabilities() };
            return way.transmit(segment, flow, out.counters, deferred.emission());
        }
        // With nothing to send no route is needed, nor the address of a neighbour.
        if !out.segments.is_empty() {
            self.emit(flow, route, out, deferred);
        }
    }

    /// Fills the route cache if the next hop's link address is known. Records in `out` whether there is no route, and
    /// whether routes have changed since the connection last sent; segments that are then too large are dropped.
    ///
    /// Every emission runs this code while the neighbour's reachability is in doubt, for five seconds at most. An
    /// acknowledgement number that has advanced since the last emission means that new data has come from a peer that
    /// receives ours: the neighbour is reachable and need not be probed (RFC 4861 section 7.3.1).
    #[cold]
    fn resolve(
        &self,
        flow: &Flow,
        route: &mut RouteCache,
        out: &mut Outbox<'_>,
        deferred: &mut DeferredEffects<P>,
    ) -> bool {
        // Read before the tables, so that a change in between makes the cache stale.
        let generation = self.routes.generation();
        // All segments of one event are made for the old path, though they may be emitted in several calls.
        let (again, lost, suspect) = match out.path {
            PathUpdate::None => (false, false, false),
            PathUpdate::Suspect => (false, false, true),
            PathUpdate::Changed { lost, suspect } => (true, lost, suspect),
        };
        let changed = again || route.generation != 0 && route.generation | 1 != generation;
        (route.generation, route.link) = (generation ^ 1, None);
        let remote = flow.tuple.remote_addr;
        let Some((interface, next_hop)) = self.route_from(flow.tuple.local_addr, remote) else {
            out.path = PathUpdate::Changed { lost, suspect };
            return false;
        };
        let Some(port) = self.links.port_of(interface, flow.hash) else { return false };
        // The generation alone is not enough: the table may have changed since it was read, and the first segments of a
        // connection may be made before its route was looked up.
        let moved = port != usize::from(route.port);
        let dropped = (changed || moved) && self.drop_oversized((remote, interface), port, out);
        let changed = changed || dropped;
        if changed {
            out.path = PathUpdate::Changed { lost: dropped || lost, suspect };
        }
        route.port = port as u16;
        if self.routes.may_be_fragmented(&self.links, remote, self.batch_now()) {
            // Every packet needs an identification of its own, so the cache does not apply.
            return false;
        }
        let acknowledged =
            out.segments.first().and_then(|segment| acknowledgement(segment)).unwrap_or(route.acknowledged);
        let progress = route.in_doubt && route.acknowledged != acknowledged;
        let (view, mut neighbours) = (self.links.view(interface), self.neighbours.of(interface, deferred));
        let found = link_header(&mut neighbours, view, (next_hop, remote), progress, self.batch_now());
        let Some((link, in_doubt)) = found else { return false };
        let generation = if in_doubt || changed { generation ^ 1 } else { generation };
        *route = RouteCache { generation, port: port as u16, acknowledged, link: Some(link), in_doubt };
        true
    }

    /// Drops the segments that were made for a larger path MTU, or for a device with segmentation offload that the port
    /// of this interface lacks. Returns whether there were any.
    fn drop_oversized(&self, (remote, interface): (IpAddr, usize), port: usize, out: &mut Outbox<'_>) -> bool {
        let mss = self.routes.mss_by(&self.links, Some(interface), remote, self.batch_now());
        let most = usize::from(mss) + wire::tcp::HEADER_LEN;
        let cuts = self.links.ports()[port].send_capabilities().segmentation;
        let before = out.segments.len();
        out.segments.retain(|segment| fits(segment, most, cuts));
        let dropped = before - out.segments.len();
        (0..dropped).for_each(|_| out.counters.count_drop(DropReason::TooBigToSend));
        dropped > 0
    }

    /// Slow path: the neighbour is not known yet, so the frames wait in its entry while it is solicited; or routers may
    /// fragment the packets.
    #[cold]
    fn emit_unresolved(
        &self,
        flow: &Flow,
        segments: &mut SmallVec<[PktBuf; 8]>,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let (source, destination) = (flow.tuple.local_addr, flow.tuple.remote_addr);
        for mut segment in segments.drain(..) {
            let (class, hops) = wishes(&segment);
            match (source, destination) {
                (IpAddr::V4(from), IpAddr::V4(to))
                    if self.routes.may_be_fragmented(&self.links, destination, self.batch_now()) =>
                {
                    let cut = self.cuttable(&segment, source, destination);
                    ip::output::ipv4_header(&mut segment, from, to, wire::protocol::TCP, class, hops, cut);
                }
                _ => ip::output::header(&mut segment, source, destination, wire::protocol::TCP, class, hops),
            }
            self.send_packet(segment, (source, destination), flow.hash, counters, deferred);
        }
    }

    /// Sends an IP packet (header complete) from `source` to `destination`, with look-ups of route and neighbour.
    pub fn send_packet(
        &self,
        packet: PktBuf,
        (source, destination): (IpAddr, IpAddr),
        hash: u32,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let Some((interface, next_hop)) = self.route_from(source, destination) else {
            return counters.count_drop(DropReason::NoRoute);
        };
        let now = self.links.clock().now();
        let (view, mut neighbours) = (self.links.view(interface), self.neighbours.of(interface, deferred));
        let mut frames = resolve_or_queue(&mut neighbours, view, next_hop, packet, now, counters);
        self.send_frames(interface, hash, &mut frames, counters, deferred);
    }

    /// Sends complete frames out of one interface.
    pub fn send_frames(
        &self,
        interface: usize,
        hash: u32,
        frames: &mut SmallVec<[PktBuf; 8]>,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        if frames.is_empty() {
            return;
        }
        match self.links.port_of(interface, hash) {
            Some(port) => {
                Emitter::new(self.links.ports(), counters, deferred.dirty()).transmit(port, hash, frames.drain(..))
            }
            None => frames.drain(..).for_each(|_| counters.count_drop(DropReason::InterfaceDown)),
        }
    }

    /// How many data segments an event of `flow` may emit now, how much data its device segments, and the memory region
    /// that it requires.
    #[inline(always)]
    pub(crate) fn room(&self, flow: &Flow, route: &RouteCache) -> (u32, usize, Option<RegionId>) {
        // Without a device nothing is sent, and no connection waits for room.
        let Some(port) = self.links.ports().get(route.port.into()) else { return (BURST as u32, 0, None) };
        let credit = port.queue(flow.hash).credit().min(BURST) as u32;
        let &SendCapabilities { segmentation, region } = port.send_capabilities();
        (credit, segmentation, region)
    }

    /// A connection has data and its device has no room: the queue's driver will give it a turn.
    #[cold]
    pub fn wait_for_room(&self, flow: &Flow, route: &RouteCache, target: Target, deferred: &mut DeferredEffects<P>) {
        let Some(port) = self.links.ports().get(route.port.into()) else { return };
        let queue = port.queue(flow.hash);
        queue.wait_for_room(target.key.to_bits(), target);
        // The thread that notifies checks whether the driver sleeps.
        deferred.dirty().mark(queue.number());
    }

    /// Records in IP a connection's information about its path to `remote` ([`PathUpdate`]). Returns the event for the
    /// connection that follows, if any.
    #[cold]
    pub(crate) fn path_update(
        &self,
        remote: IpAddr,
        update: PathUpdate,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<RouteChanged> {
        let (suspect, lost) = match update {
            PathUpdate::None => (false, None),
            PathUpdate::Suspect => (true, None),
            PathUpdate::Changed { lost, suspect } => (suspect, Some(lost)),
        };
        if suspect {
            self.suspect_path(remote, deferred);
        }
        lost.map(|lost| RouteChanged {
            mss: self.routes.lookup(&self.links, remote).map(|_| self.routes.mss(&self.links, remote, now)),
            lost,
        })
    }

    /// Probes the next hop towards `destination`, because a transport receives nothing from beyond it. A gateway that
    /// does not answer is replaced by another.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
    //# The following procedure MUST be used to handle excessive retransmissions of data segments (MUST-20):
    #[cold]
    pub fn suspect_path(&self, destination: IpAddr, deferred: &mut DeferredEffects<P>) {
        let Some((interface, next_hop)) = self.routes.lookup(&self.links, destination) else { return };
        if self.neighbours.suspect(interface, next_hop, self.batch_now(), deferred) {
            self.routes.invalidate();
        }
    }

    /// Data sent to `destination` was acknowledged while a neighbour is in doubt: if that is its next hop, it need not
    /// be probed (RFC 4861 section 7.3.1).
    #[cold]
    pub(crate) fn path_works(&self, destination: IpAddr, deferred: &mut DeferredEffects<P>) {
        if let Some((interface, next_hop)) = self.routes.lookup(&self.links, destination) {
            self.neighbours.confirm(interface, next_hop, self.batch_now(), deferred);
        }
    }
}
