//! What all cells and all threads of one stack share: configuration, interfaces, routes, neighbours, transmit queues.
//!
//! Nothing here belongs to a connection. It is read-mostly; what changes (routes, neighbours, fragments) is behind a
//! lock of its own class and is not touched by a segment whose connection has a valid route cache. Any thread.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ip::icmp::IcmpErrorKind;
use ip::path_mtu::Estimate;
use ip::{Route, RouteAttributes, RouteEntry, RouteName, RouteTable};
use observe::{Counter, Counters, DropReason, PerThreadCounters, Time};
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};
use tcp::{ConnectionOptions, OpenParams, Outbox, PathUpdate, RouteChanged};
use wire::rss::Toeplitz;

use crate::addresses::Addresses;
use crate::clock::{BatchClock, Clock};
use crate::containment::Failures;
use crate::control::Control;
use crate::deferred::DeferredEffects;
use crate::fast_open::Destinations;
use crate::flow::Flow;
use crate::interface::{Interface, Ports};
use crate::internet::Internet;
use crate::links::Links;
use crate::pings::Pings;
use crate::route_cache::RouteCache;
use crate::secrets::Secrets;

const UNSPECIFIED: wire::FourTuple = wire::FourTuple {
    local_addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    remote_addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    local_port: 0,
    remote_port: 0,
};

/// The shared part of one stack.
pub struct Shared<P: Platform> {
    /// Keys.
    pub secrets: Secrets,
    /// Kind of the locks that the architecture uses.
    pub lock_kind: LockKind,
    control: Control<P>,
    links: Links<P>,
    /// The hash by which devices and cells are chosen, for what is sent outside a connection.
    pub rss: Toeplitz,
    /// Where packets go.
    pub routes: Lock<RouteTable, P>,
    /// Some route says something of its path.
    describes_paths: P::AtomicBool,
    /// Neighbours, fragments, and what routers reported.
    pub internet: Internet<P>,
    /// Addresses that look after themselves.
    pub addresses: Addresses<P>,
    /// Echo requests of ours.
    pub pings: Pings<P>,
    /// What Fast Open remembers of servers.
    pub destinations: Destinations<P>,
    /// Panics that were contained.
    pub failures: Failures<P>,
    /// Counters of work that belongs to no cell.
    pub counters: PerThreadCounters<P>,
    /// Rises when a cached link header may have become wrong.
    generation: P::AtomicU32,
}

/// What [`Shared::new`] is given besides the interfaces.
pub struct Settings<P: Platform> {
    /// Where `now` comes from.
    pub clock: Clock<P>,
    /// See [`Shared::secrets`].
    pub secrets: Secrets,
    /// See [`Shared::lock_kind`].
    pub lock_kind: LockKind,
    /// TCP's parameters.
    pub tcp: tcp::Config,
    /// See [`Shared::rss`].
    pub rss: Toeplitz,
    /// Workers that what is limited per worker is counted for; at least 1.
    pub workers: usize,
    /// Receive threads.
    pub drivers: usize,
    /// See [`crate::StackConfig::resets_per_second`].
    pub resets_per_second: u32,
    /// See [`crate::StackConfig::contain`].
    pub contain: bool,
}

impl<P: Platform> Shared<P> {
    /// Everything in place, nothing learnt yet.
    pub fn new(
        settings: Settings<P>,
        (interfaces, ports): (Vec<Interface<P>>, Ports<P>),
        routes: RouteTable,
        addresses: Addresses<P>,
    ) -> Arc<Self> {
        let Settings { clock, secrets, lock_kind, tcp, rss, workers, drivers, resets_per_second, contain } = settings;
        let internet = Internet::new(interfaces.len(), (workers, resets_per_second), secrets.table_hash(&UNSPECIFIED));
        Arc::new(Shared {
            secrets,
            lock_kind,
            control: Control::new(tcp),
            links: Links::new(BatchClock::new(clock), (interfaces, ports), drivers),
            rss,
            describes_paths: P::AtomicBool::new(routes.has_attributes()),
            routes: Lock::new(LockKind::Blocking, LockClass::Routes, routes),
            internet,
            addresses,
            pings: Pings::default(),
            destinations: Destinations::default(),
            failures: Failures::new(contain),
            counters: PerThreadCounters::new(),
            generation: P::AtomicU32::new(3),
        })
    }

    /// TCP's parameters, and what connections have taken of their limits.
    #[inline(always)]
    pub fn control(&self) -> &Control<P> {
        &self.control
    }

    /// Interfaces, ports, and the receive threads that serve them.
    #[inline(always)]
    pub fn links(&self) -> &Links<P> {
        &self.links
    }

    /// Where `now` comes from.
    #[inline(always)]
    pub fn clock(&self) -> &BatchClock<P> {
        self.links.clock()
    }

    /// Generation of routes and neighbours; odd.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Routes or neighbours have changed: every cached link header is looked up again.
    pub fn invalidate_routes(&self) {
        // It stays odd, and so never becomes 0.
        self.generation.fetch_add(2, Ordering::AcqRel);
    }

    /// The device of a port has vanished, or is back. Whether its interface has none left by that; if it has, its flows
    /// look for another.
    pub(crate) fn set_port_down(&self, port: usize, interface: Option<usize>, down: bool) -> bool {
        self.links.ports()[port].set_down(down);
        let Some(interface) = interface else { return false };
        if self.links.interfaces()[interface].ports().len() > 1 {
            self.invalidate_routes();
        }
        self.links.is_down(interface)
    }

    /// The outbox for an event of `flow`. Always inlined: it is built where it is used, not moved there.
    #[inline(always)]
    pub fn outbox<'a>(&'a self, flow: &Flow, route: &RouteCache, counters: &'a Counters) -> Outbox<'a> {
        let (credit, cuts, region) = self.room(flow, route);
        Outbox::for_device(self.control.tcp(), counters, credit, cuts)
            .with_routes(self.generation())
            .with_scarcity(self.control.scarcity())
            .in_region(region)
    }

    /// The interface and next hop towards `destination`.
    pub fn route(&self, destination: IpAddr) -> Option<(usize, IpAddr)> {
        let hop = self.routes.lock().lookup(destination);
        if destination.is_multicast() {
            // A group has no gateway. Without a route the first interface is as good as any.
            return Some((hop.map_or(0, |hop| usize::from(hop.interface)), destination));
        }
        let hop = hop?;
        Some((usize::from(hop.interface), hop.address))
    }

    /// The source address for packets to `destination`.
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let (interface, _) = self.route(destination)?;
        self.links.view(interface).source_for(destination)
    }

    /// Whether segments of `flow` leave by this interface.
    pub fn goes_by(&self, flow: &Flow, interface: usize) -> bool {
        self.route(flow.tuple.remote_addr).is_some_and(|(leaves_by, _)| leaves_by == interface)
    }

    /// The largest TCP data towards `destination` without options: path MTU less headers.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
    //# where MMS_R is the maximum size for a transport-layer message that can be received (and reassembled at the IP
    //# layer) (MUST-67).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.3
    //# As a result, when the effective MTU of an interface varies packet-to- packet, TCP implementations SHOULD use the
    //# smallest effective MTU of the interface to calculate the value to advertise in the MSS Option (SHLD-6).
    pub fn route_mss(&self, destination: IpAddr, now: Time) -> u16 {
        self.mss_by(self.route(destination).map(|(interface, _)| interface), destination, now)
    }

    /// The same where the interface that the route leads to is known, or that there is none.
    pub fn mss_by(&self, interface: Option<usize>, destination: IpAddr, now: Time) -> u16 {
        let Some(interface) = interface else { return 536 };
        tcp::mss::in_packet(self.path_mtu(interface, destination, now), destination)
    }

    /// The largest packet that is believed to reach `destination` by way of this interface.
    fn path_mtu(&self, interface: usize, destination: IpAddr, now: Time) -> usize {
        let device = self.links.view(interface).mtu_for(destination);
        let stated = self.path_attributes(destination);
        let device = stated.mtu.map_or(device, |mtu| device.min(usize::from(mtu)));
        let known = {
            let table = self.internet.path_mtu.lock();
            // Nearly always; a lookup costs a keyed hash.
            if table.is_empty() || stated.mtu_locked { None } else { table.lookup(destination, now) }
        };
        known.map_or(device, |known| device.min(usize::from(known)))
    }

    /// What a router's report of an MTU is worth; `None`: there is no path that it could be about.
    #[cold]
    pub fn estimate(&self, error: &ip::IcmpError, reported: u32, now: Time) -> Option<Estimate> {
        let destination = error.tuple.remote_addr;
        let (interface, _) = self.route(destination)?;
        let current = self.path_mtu(interface, destination, now);
        Some(ip::path_mtu::estimate(destination, reported, error.sent, current))
    }

    /// Whether routers may fragment what is sent to `destination`: its route allows it, or a router has reported an MTU
    /// below the least that is accepted.
    #[cold]
    pub fn may_be_fragmented(&self, destination: IpAddr, now: Time) -> bool {
        destination.is_ipv4()
            && (self.path_attributes(destination).mtu_locked
                || self.internet.path_mtu.lock().fragments(destination, now))
    }

    /// The largest TCP data without options that the link towards `destination` takes, whatever lies behind it.
    #[cold]
    fn link_mss(&self, destination: IpAddr) -> u16 {
        let Some((interface, _)) = self.route(destination) else { return 536 };
        tcp::mss::in_packet(self.links.view(interface).mtu_for(destination), destination)
    }

    /// What the route to `destination` says of the path.
    #[inline]
    pub fn path_attributes(&self, destination: IpAddr) -> RouteAttributes {
        if self.describes_paths() { self.routes.lock().attributes(destination) } else { RouteAttributes::NONE }
    }

    #[inline]
    fn describes_paths(&self) -> bool {
        self.describes_paths.load(Ordering::Relaxed)
    }

    /// Adds a route by way of an interface, or changes it.
    pub fn state_route(&self, stated: &Route, interface: usize) {
        self.with_routes(|routes| routes.state(stated, interface as u16));
    }

    /// Takes a route away; `None`: there is none of this name.
    pub fn remove_route(&self, named: &RouteName) -> Option<RouteEntry> {
        self.with_routes(|routes| routes.remove_named(named))
    }

    /// Changes the table of routes. Every cached route becomes invalid.
    pub(crate) fn with_routes<R>(&self, change: impl FnOnce(&mut RouteTable) -> R) -> R {
        let mut routes = self.routes.lock();
        let result = change(&mut routes);
        self.describes_paths.store(routes.has_attributes(), Ordering::Relaxed);
        drop(routes);
        self.invalidate_routes();
        result
    }

    /// A connection has learnt something about its path to `remote` ([`PathUpdate`]): IP records it; what the
    /// connection in turn must be told, if anything, is returned.
    #[cold]
    pub fn path_news(
        &self,
        remote: IpAddr,
        news: PathUpdate,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<RouteChanged> {
        let (suspect, lost) = match news {
            PathUpdate::None => (false, None),
            PathUpdate::Suspect => (true, None),
            PathUpdate::Changed { lost, suspect } => (suspect, Some(lost)),
        };
        if suspect {
            self.suspect_path(remote, deferred);
        }
        lost.map(|lost| RouteChanged { mss: self.route(remote).map(|_| self.route_mss(remote, now)), lost })
    }

    /// Fills in what the user left open and the route to `destination` says.
    #[inline]
    pub fn on_path<'o>(&self, options: &'o ConnectionOptions, destination: IpAddr) -> Cow<'o, ConnectionOptions> {
        if self.describes_paths() { Cow::Owned(self.filled_in(options, destination)) } else { Cow::Borrowed(options) }
    }

    #[cold]
    fn filled_in(&self, options: &ConnectionOptions, destination: IpAddr) -> ConnectionOptions {
        let RouteAttributes { announced_mss, initial_window, initial_receive_window, .. } =
            self.path_attributes(destination);
        let announced_mss = options.announced_mss.or(announced_mss);
        ConnectionOptions {
            announced_mss: announced_mss.map(|mss| mss.min(self.link_mss(destination))),
            initial_window: options.initial_window.or(initial_window),
            initial_receive_window: options.initial_receive_window.or(initial_receive_window),
            ..options.clone()
        }
    }

    /// Is this a router's word of the size of a path of which the route is certain?
    pub fn is_settled(&self, error: &ip::IcmpError) -> bool {
        matches!(error.kind, IcmpErrorKind::PacketTooBig { .. })
            && self.path_attributes(error.tuple.remote_addr).mtu_locked
    }

    /// What an active open of `flow` needs that leaves by this interface, if there is a route.
    #[inline]
    pub fn open_params(
        &self,
        flow: &Flow,
        options: &ConnectionOptions,
        interface: Option<usize>,
        now: Time,
    ) -> OpenParams {
        let (iss, ts_offset) = self.secrets.isn().beginning(&flow.tuple, now);
        OpenParams {
            tuple: flow.tuple,
            iss,
            ts_offset,
            flow_hash: Some(flow.hash),
            mss: self.mss_by(interface, flow.tuple.remote_addr, now),
            options: self.on_path(options, flow.tuple.remote_addr).into_owned(),
        }
    }

    /// Answers a segment of no connection with a reset, if it deserves one and the worker's limits allow it.
    pub fn reset(&self, flow: &Flow, segment: &tcp::Segment, counters: &Counters, deferred: &mut DeferredEffects<P>) {
        if let Some(reset) = tcp::closed::segment_arrives(segment) {
            if !self.internet.may_reset(flow, self.clock().batch_now()) {
                return counters.drop(DropReason::RateLimited);
            }
            counters.add(Counter::SegmentsOut, 1);
            counters.add(Counter::ResetsOut, 1);
            let mut route = RouteCache::default();
            let mut out = self.outbox(flow, &route, counters);
            out.segments.push(reset);
            self.emit(flow, &mut route, &mut out, deferred);
        }
    }
}
