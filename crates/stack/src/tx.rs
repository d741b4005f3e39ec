//! From a segment to the device: IP header, link header, device queue.
//!
//! Called inside the cell that made the segments (phase *inside*): the device queue is chosen by the flow, so segments
//! of one connection reach the wire in the order in which they were assigned (invariant G7). A connection caches the
//! link header of its next hop with the generation of the routes and neighbours; while that has not changed, a segment
//! needs no table but the connection's own. The first emission after a change looks the way up again: it takes the new
//! next hop, drops what is too large for the path as it is now, and leaves word in the outbox, so that the connection
//! sends that again in segments that fit ([`Shared::path_news`]).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use dev::{Bells, Capabilities, TxQueue};
use ip::LinkHeader;
use ip::output::DEFAULT_TTL;
use observe::{Counters, DropReason};
use pktbuf::PktBuf;
use smallvec::SmallVec;
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};
use tcp::{Outbox, PathNews};

use crate::after::After;
use crate::flow::{self, Flow, Target};
use crate::rx::STARVED_NAP;
use crate::shared::Shared;

/// Frames kept free in a device queue for acknowledgements and for threads that read the credit at the same time; no more
/// than a quarter of it, for a queue that has room for half or more need not say how much.
const RESERVE: usize = 48;
/// The most data segments that one event may emit: a bound on how long a cell is held, and on the cache it sweeps.
const BURST: usize = 64;

/// What a connection remembers of its route: the header that its frames begin with. 24 bytes.
#[derive(Clone, Copy, Default)]
pub struct RouteCache {
    /// Of routes and neighbours when the way was looked up; 0: never. Less by one if `link` could not be kept, so that it
    /// is looked up each time: generations are odd.
    generation: u32,
    interface: u16,
    /// The low bits of the acknowledgement number that was sent last while the neighbour was in doubt.
    acknowledged: u16,
    link: Option<LinkHeader>,
    /// The neighbour is about to be asked whether it is still there. The cache is not good while that is so.
    in_doubt: bool,
}

const _: () = assert!(size_of::<RouteCache>() == 24);

impl RouteCache {
    /// Nothing is known of the way, but what was said of the path when the routes were of this generation.
    pub fn as_of(generation: u32) -> RouteCache {
        RouteCache { generation: generation ^ 1, ..RouteCache::default() }
    }

    /// The interface that it leads to, if that is known for routes of this generation.
    #[inline]
    pub fn leaves_by(&self, generation: u32) -> Option<usize> {
        (self.generation == generation).then_some(usize::from(self.interface))
    }

    /// Nothing is known of the way but the interface.
    #[inline]
    pub fn by(interface: u16) -> RouteCache {
        RouteCache { interface, ..RouteCache::default() }
    }

    /// It is to be looked up again, as if routes had changed.
    #[cold]
    pub fn outdate(&mut self) {
        if self.generation != 0 {
            self.generation = self.generation.wrapping_sub(2) | 1;
        }
    }

    /// By which interface it leads, as far as it was looked up; else the first.
    #[inline]
    pub fn interface(&self) -> u16 {
        self.interface
    }
}

/// Destinations whose route is kept for the next connection there.
const RECENT_ROUTES: usize = 4;

/// Routes as the connections opened last found them: a new connection to one of those destinations looks up neither
/// route nor neighbour. Whether one is still good, its generation says when it is used. Of whoever owns the cell.
#[derive(Default)]
pub struct RecentRoutes {
    entries: [Option<(IpAddr, RouteCache)>; RECENT_ROUTES],
    /// The place to be overwritten next.
    next: usize,
}

impl RecentRoutes {
    /// What is remembered of the way to `destination`, if it was found when the routes were of this generation.
    #[inline]
    pub fn recall(&self, destination: IpAddr, generation: u32) -> RouteCache {
        let known = self.find(destination).filter(|route| route.generation == generation);
        known.copied().unwrap_or_else(|| RouteCache::as_of(generation))
    }

    #[inline]
    fn find(&self, destination: IpAddr) -> Option<&RouteCache> {
        let mut known = self.entries.iter().flatten();
        known.find(|(address, _)| *address == destination).map(|(_, route)| route)
    }

    /// A connection to `destination` has used this route.
    #[inline]
    pub fn note(&mut self, destination: IpAddr, route: &RouteCache) {
        let good = route.generation & 1 != 0;
        if good && self.find(destination).is_none_or(|known| known.generation != route.generation) {
            self.keep(destination, route);
        }
    }

    #[cold]
    fn keep(&mut self, destination: IpAddr, route: &RouteCache) {
        let same = self.entries.iter().position(|entry| entry.is_some_and(|(address, _)| address == destination));
        let place = same.unwrap_or(self.next);
        if same.is_none() {
            self.next = (self.next + 1) % RECENT_ROUTES;
        }
        self.entries[place] = Some((destination, *route));
    }
}

/// The low half of a segment's acknowledgement number, if it has one. A SYN has none, nor has the reset that answers an
/// impossible acknowledgement, which anybody can have sent.
fn acknowledgement(segment: &[u8]) -> Option<u16> {
    wire::tcp::acknowledgement(segment).map(|number| number.0 as u16)
}

/// Traffic class and hop limit that the transport wants in the segment's IP header.
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
    ip::output::header(segment, source, destination, wire::protocol::TCP, class, hops);
    link.prepend(segment);
}

/// Whether a path carries a segment, of at most `most` octets with the TCP header, by way of a device that cuts up to `cuts`
/// octets of text. What has no text has no other size.
fn fits(segment: &PktBuf, most: usize, cuts: usize) -> bool {
    let header = wire::tcp::header_len(segment);
    let text = segment.len().saturating_sub(header);
    match usize::from(segment.meta().segment_size) {
        0 => text == 0 || segment.len() <= most,
        size => text <= cuts && header + size <= most,
    }
}

/// Frames that may wait for room in a device beyond its own ring.
const OVERFLOW: usize = 4096;

/// One device queue, with the connections that wait for room in it.
pub struct TxPort<P: Platform> {
    state: Lock<TxState, P>,
    /// Frames that may be sent now; a hint, refreshed at each transmission.
    credit: P::AtomicUsize,
    /// Of these, how many data segments leave alone.
    reserve: usize,
    starved: P::AtomicUsize,
    /// Rung without the lock, where the device can be.
    bells: Option<Arc<dyn Bells>>,
}

struct TxState {
    queue: Box<dyn TxQueue>,
    /// Frames that found no room, ahead of all later ones. Credit keeps it short: it fills only when several threads
    /// spend the same credit at once.
    overflow: VecDeque<PktBuf>,
    starved: VecDeque<Target>,
}

impl TxState {
    /// Gives the device what waits for it.
    fn drain(&mut self) {
        while let Some(frame) = self.overflow.pop_front() {
            if let Err(back) = self.queue.transmit(frame) {
                self.overflow.push_front(back);
                return;
            }
        }
    }

    #[inline]
    fn transmit(&mut self, frame: PktBuf, counters: &Counters) {
        let back = if self.overflow.is_empty() { self.queue.transmit(frame).err() } else { Some(frame) };
        if let Some(frame) = back {
            self.put_off(frame, counters);
        }
    }

    #[cold]
    fn put_off(&mut self, frame: PktBuf, counters: &Counters) {
        if self.overflow.len() < OVERFLOW {
            self.overflow.push_back(frame);
        } else {
            counters.drop(DropReason::TxRingFull);
        }
    }

    #[inline]
    fn credit(&self) -> usize {
        if self.overflow.is_empty() { self.queue.credit() } else { 0 }
    }
}

impl<P: Platform> TxPort<P> {
    /// A port over a device's queue, which is empty.
    pub fn new(queue: Box<dyn TxQueue>, lock: LockKind) -> Self {
        let (credit, bells) = (queue.credit(), queue.bells());
        TxPort {
            bells,
            state: Lock::new(
                lock,
                LockClass::DeviceTx,
                TxState { queue, overflow: VecDeque::new(), starved: VecDeque::new() },
            ),
            credit: P::AtomicUsize::new(credit),
            // Nothing has been sent yet: what there is room for now is all that there ever is.
            reserve: RESERVE.min(credit / 4),
            starved: P::AtomicUsize::new(0),
        }
    }

    /// How many data segments an event may emit now.
    #[inline]
    pub fn credit(&self) -> u32 {
        self.credit.load(Ordering::Relaxed).saturating_sub(self.reserve).min(BURST) as u32
    }

    /// Gives the device frames. The bells that are to be rung for them, when no guard is held any more.
    fn transmit(&self, frames: &mut SmallVec<[PktBuf; 8]>, counters: &Counters) -> u64 {
        self.with_queue(|state| frames.drain(..).for_each(|frame| state.transmit(frame, counters)))
    }

    /// [`TxPort::transmit`] for segments that have no IP and link headers yet.
    #[inline(never)]
    fn transmit_all(
        &self,
        segments: &mut SmallVec<[PktBuf; 8]>,
        flow: &Flow,
        link: &LinkHeader,
        counters: &Counters,
    ) -> u64 {
        segments.iter_mut().for_each(|segment| headers(segment, flow, link));
        self.transmit(segments, counters)
    }

    /// [`TxPort::transmit`] for one frame.
    #[inline]
    fn transmit_one(&self, frame: PktBuf, counters: &Counters) -> u64 {
        self.with_queue(|state| state.transmit(frame, counters))
    }

    #[inline]
    fn with_queue(&self, give: impl FnOnce(&mut TxState)) -> u64 {
        let mut state = self.state.lock();
        let state = &mut *state;
        if !state.overflow.is_empty() {
            state.drain();
        }
        give(state);
        self.credit.store(state.credit(), Ordering::Relaxed);
        state.queue.take_touched()
    }

    /// Tells the device that it was given frames: those for which [`TxPort::transmit`] named these bells, or more.
    #[inline]
    fn ring(&self, touched: u64) {
        match &self.bells {
            Some(bells) => bells.ring(touched),
            None => self.flush(),
        }
    }

    /// Notes that a connection has data and found no credit; it will be given a `TransmitReady`.
    pub fn starve(&self, target: Target) {
        let mut state = self.state.lock();
        state.starved.push_back(target);
        self.starved.store(state.starved.len(), Ordering::Relaxed);
    }

    /// Whether connections wait for room here.
    #[inline]
    pub fn has_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed) != 0
    }

    /// Whether connections, or frames, may be waiting for room here: nobody tells when there is some.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.has_starved() || self.credit.load(Ordering::Relaxed) == 0
    }

    /// Takes the connection that has waited longest, if the device has room again.
    pub fn next_starved(&self) -> Option<Target> {
        let mut state = self.state.lock();
        state.drain();
        let credit = state.credit();
        self.credit.store(credit, Ordering::Relaxed);
        if credit <= self.reserve {
            return None;
        }
        let target = state.starved.pop_front();
        self.starved.store(state.starved.len(), Ordering::Relaxed);
        target
    }

    /// Tells the device that it was given frames.
    pub fn flush(&self) {
        self.state.lock().queue.flush();
    }

    /// Gives the device what waits for room in it. Whether something did.
    pub fn drain(&self) -> bool {
        // No credit is left while something waits, so the hint tells without the lock.
        if self.credit.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let mut state = self.state.lock();
        let waited = !state.overflow.is_empty();
        state.drain();
        self.credit.store(state.credit(), Ordering::Relaxed);
        waited
    }
}

/// One device as the output path sees it.
pub struct Egress<P: Platform> {
    /// What the device can do.
    pub capabilities: Capabilities,
    /// Its queues.
    pub ports: Vec<TxPort<P>>,
    /// Number of `ports[0]` among the ports of all devices: names doorbells.
    pub first_port: usize,
}

impl<P: Platform> Egress<P> {
    /// The queue that serves flows of this hash.
    #[inline]
    pub fn port(&self, hash: u32) -> &TxPort<P> {
        &self.ports[flow::index(hash, self.ports.len())]
    }
}

impl<P: Platform> Shared<P> {
    /// Emits the segments that an event of `flow` left in its outbox. Phase *inside*.
    #[inline]
    pub fn emit(&self, flow: &Flow, route: &mut RouteCache, out: &mut Outbox<'_>, after: &mut After<P>) {
        if out.segments.is_empty() {
            return;
        }
        sync::walk::note(file!(), "puts IP and link headers in front of the outbox's segments");
        if route.generation != out.routes && !self.resolve(flow, route, out, after) {
            return self.emit_unresolved(flow, &mut out.segments, out.counters, after);
        }
        let (segments, counters) = (&mut out.segments, out.counters);
        // By reference: a copy of fourteen bytes is made in other pieces than it is read back in.
        let Some(link) = &route.link else { return };
        let egress = &self.interfaces[route.interface as usize].egress;
        let port = flow::index(flow.hash, egress.ports.len());
        // Most events send one segment, and loops cost more than that.
        let touched = if segments.len() == 1
            && let Some(mut segment) = segments.pop()
        {
            headers(&mut segment, flow, link);
            egress.ports[port].transmit_one(segment, counters)
        } else {
            egress.ports[port].transmit_all(segments, flow, link, counters)
        };
        after.ring(egress.first_port + port, touched);
    }

    /// Fills the route cache if the next hop's link address is known. Notes in `out` whether there is no route, and
    /// whether routes have changed since the connection last sent; what is too large then is dropped.
    ///
    /// While the neighbour is in doubt every emission comes this way, for five seconds at most. That the acknowledgement
    /// number moves from one emission to the next means that new text has come from a peer who hears us: the neighbour
    /// is there, and need not be asked (RFC 4861 section 7.3.1).
    #[cold]
    fn resolve(&self, flow: &Flow, route: &mut RouteCache, out: &mut Outbox<'_>, after: &mut After<P>) -> bool {
        // Read before the tables: a change in between makes the cache stale at once, not for ever.
        let generation = self.generation();
        // What one event makes is all made for the path as it was, though it may leave piece by piece.
        let (again, lost, suspect) = match out.path {
            PathNews::None => (false, false, false),
            PathNews::Suspect => (false, false, true),
            PathNews::Changed { lost, suspect } => (true, lost, suspect),
        };
        let changed = again || route.generation != 0 && route.generation | 1 != generation;
        (route.generation, route.link) = (generation ^ 1, None);
        let remote = flow.tuple.remote_addr;
        let Some((interface, next_hop)) = self.route(remote) else {
            out.path = PathNews::Changed { lost, suspect };
            return false;
        };
        if changed {
            out.path = PathNews::Changed { lost: self.drop_oversized(remote, interface, out) || lost, suspect };
        }
        route.interface = interface as u16;
        if self.may_be_fragmented(remote, self.batch_now()) {
            // Every packet needs an identification of its own, and so goes the long way.
            return false;
        }
        let acknowledged =
            out.segments.first().and_then(|segment| acknowledgement(segment)).unwrap_or(route.acknowledged);
        let progress = route.in_doubt && route.acknowledged != acknowledged;
        let found = self.link_header_in_use(interface, next_hop, remote, progress, after);
        let Some((link, in_doubt)) = found else { return false };
        let generation = if in_doubt || changed { generation ^ 1 } else { generation };
        *route = RouteCache { generation, interface: interface as u16, acknowledged, link: Some(link), in_doubt };
        true
    }

    /// Drops the segments that were made for a wider path, or for a device that cuts what its successor does not. Whether
    /// there were any.
    fn drop_oversized(&self, remote: IpAddr, interface: usize, out: &mut Outbox<'_>) -> bool {
        let most = usize::from(self.route_mss(remote, self.batch_now())) + wire::tcp::HEADER_LEN;
        let cuts = self.interfaces[interface].egress.capabilities.segmentation.unwrap_or(0);
        let before = out.segments.len();
        out.segments.retain(|segment| fits(segment, most, cuts));
        let dropped = before - out.segments.len();
        (0..dropped).for_each(|_| out.counters.drop(DropReason::TooBigToSend));
        dropped > 0
    }

    /// The neighbour is not known yet: the frames wait in its entry, and it is asked for. Or packets may be cut on their way.
    #[cold]
    fn emit_unresolved(
        &self,
        flow: &Flow,
        segments: &mut SmallVec<[PktBuf; 8]>,
        counters: &Counters,
        after: &mut After<P>,
    ) {
        for mut segment in segments.drain(..) {
            let (source, destination) = (flow.tuple.local_addr, flow.tuple.remote_addr);
            let (class, hops) = wishes(&segment);
            match (source, destination) {
                (IpAddr::V4(from), IpAddr::V4(to)) if self.may_be_fragmented(destination, self.batch_now()) => {
                    let cut = self.cuttable(&segment, source, destination);
                    ip::output::ipv4_header(&mut segment, from, to, wire::protocol::TCP, class, hops, cut);
                }
                _ => ip::output::header(&mut segment, source, destination, wire::protocol::TCP, class, hops),
            }
            self.send_packet(segment, flow.tuple.remote_addr, flow.hash, counters, after);
        }
    }

    /// Sends an IP packet (header complete) to `destination` by way of the routes and neighbours.
    pub fn send_packet(
        &self,
        packet: PktBuf,
        destination: IpAddr,
        hash: u32,
        counters: &Counters,
        after: &mut After<P>,
    ) {
        let Some((interface, next_hop)) = self.route(destination) else {
            return counters.drop(DropReason::NoRoute);
        };
        let mut frames = self.resolve_or_queue(interface, next_hop, packet, counters, after);
        self.send_frames(interface, hash, &mut frames, counters, after);
    }

    /// Sends complete frames out of one interface.
    pub fn send_frames(
        &self,
        interface: usize,
        hash: u32,
        frames: &mut SmallVec<[PktBuf; 8]>,
        counters: &Counters,
        after: &mut After<P>,
    ) {
        if frames.is_empty() {
            return;
        }
        let egress = &self.interfaces[interface].egress;
        let port = flow::index(hash, egress.ports.len());
        let touched = egress.ports[port].transmit(frames, counters);
        after.ring(egress.first_port + port, touched);
    }

    /// The device of a connection, as far as its route is known.
    #[inline]
    pub fn egress_of(&self, route: &RouteCache) -> &Egress<P> {
        &self.interfaces[usize::from(route.interface)].egress
    }

    /// The port that serves a connection's flow, as far as its route is known.
    #[inline]
    pub fn port_of(&self, flow: &Flow, route: &RouteCache) -> &TxPort<P> {
        self.egress_of(route).port(flow.hash)
    }

    /// A connection has data and found no room in its device: it gets its turn from the queue's driver.
    #[cold]
    pub fn starve(&self, flow: &Flow, route: &RouteCache, target: Target, after: &mut After<P>) {
        let egress = self.egress_of(route);
        let port = flow::index(flow.hash, egress.ports.len());
        egress.ports[port].starve(target);
        // Whoever rings looks whether the driver sleeps.
        after.ring(egress.first_port + port, 0);
    }

    /// Rings the devices whose bits are set in `ports`, for receivers whose bits are set in `touched`.
    #[inline]
    pub fn ring_doorbells(&self, ports: u64, touched: u64) {
        for interface in &self.interfaces {
            for (index, port) in interface.egress.ports.iter().enumerate() {
                if ports & (1 << ((interface.egress.first_port + index) & 63)) != 0 {
                    port.ring(touched);
                    // Nobody tells when there is room: the queue's own driver has to look, and may be asleep.
                    if port.has_waiting() {
                        self.alarms.due_at(index, (self.clock.now() + STARVED_NAP).as_nanos());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn route(generation: u32, interface: u16) -> RouteCache {
        RouteCache { generation, interface, ..RouteCache::default() }
    }

    #[test]
    fn a_route_is_remembered_until_enough_others_were_used() {
        let mut routes = RecentRoutes::default();
        routes.note(address(1), &route(1, 7));
        assert_eq!(routes.recall(address(1), 1).interface, 7);
        assert_eq!(routes.recall(address(1), 3).generation, 2, "what is known is of another time");
        assert_eq!(routes.recall(address(2), 3).generation, 2, "nothing is known of it");
        (2..2 + RECENT_ROUTES as u8).for_each(|n| routes.note(address(n), &route(1, 8)));
        assert_eq!(routes.recall(address(1), 1).generation, 0, "it has made way");
    }

    #[test]
    fn a_newer_route_takes_the_place_of_the_old_and_one_in_doubt_does_not() {
        let mut routes = RecentRoutes::default();
        routes.note(address(1), &route(1, 7));
        routes.note(address(1), &route(3, 8));
        routes.note(address(1), &route(2, 9));
        let recalled = routes.recall(address(1), 3);
        assert_eq!((recalled.generation, recalled.interface), (3, 8));
        (2..1 + RECENT_ROUTES as u8).for_each(|n| routes.note(address(n), &route(3, 8)));
        assert_eq!(routes.recall(address(1), 3).generation, 3, "it took one place, not two");
    }
}
