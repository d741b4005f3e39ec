//! Routes and paths: the rules over the routing table and the path MTUs that routers have reported. How threads share the
//! two is in [`access`](crate::access).
//!
//! Not touched by a segment of a connection with a valid route cache: a change of routes or neighbours increments the
//! generation, which makes caches stale. Any thread. The rules are in [`ip`].

use std::borrow::Cow;
use std::net::IpAddr;

use ip::icmp::IcmpErrorKind;
use ip::path_mtu::Estimate;
use ip::{KnownPath, PathMtuAccess, Route, RouteAccess, RouteAttributes, RouteEntry, RouteName, RouteTable};
use observe::Time;
use sync::{Atomic, Ordering, Platform};
use tcp::ConnectionOptions;

use crate::access::{SharedPathMtus, SharedRoutes};
use crate::flow::Flow;
use crate::links::Links;

/// See the head of the file.
pub struct Routes<P: Platform> {
    table: SharedRoutes<P>,
    /// Path MTUs that routers reported.
    path_mtus: SharedPathMtus<P>,
    /// Incremented when a cached link header may have become wrong; odd.
    generation: P::AtomicU32,
}

impl<P: Platform> Routes<P> {
    /// These routes, and no known path MTU.
    pub(crate) fn new(table: RouteTable) -> Self {
        Routes {
            table: SharedRoutes::new(table),
            path_mtus: SharedPathMtus::default(),
            generation: P::AtomicU32::new(3),
        }
    }

    /// The calling thread uses the tables without locks from now on; see [`Shared::claim`](crate::Shared::claim).
    pub(crate) fn claim(&self) {
        self.table.claim();
        self.path_mtus.claim();
    }

    /// Ends the calling thread's claims, if it has any.
    pub(crate) fn release_claims(&self) {
        self.table.release_claim();
        self.path_mtus.release_claim();
    }

    /// Generation of routes and neighbours; odd.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Routes or neighbours have changed: every cached link header is looked up again.
    pub(crate) fn invalidate(&self) {
        // It stays odd, and so never becomes 0. Only the claimant of the table, if there is one, changes it.
        if self.table.is_claimed_here() {
            self.generation.store(self.generation().wrapping_add(2), Ordering::Release);
        } else {
            self.generation.fetch_add(2, Ordering::AcqRel);
        }
    }

    /// The interface and next hop towards `destination`. Own addresses are reached only by loopback.
    pub fn lookup(&self, links: &Links<P>, destination: IpAddr) -> Option<(usize, IpAddr)> {
        if links.is_local(destination) {
            return Some((links.loopback(), destination));
        }
        let hop = ip::route::first_hop(&self.table, destination)?;
        Some((usize::from(hop.interface), hop.address))
    }

    /// Whether segments of `flow` leave by this interface.
    pub(crate) fn goes_by(&self, links: &Links<P>, flow: &Flow, interface: usize) -> bool {
        self.lookup(links, flow.tuple.remote_addr).is_some_and(|(leaves_by, _)| leaves_by == interface)
    }

    /// The path attributes of the route to `destination`. None for own addresses.
    #[inline]
    fn attributes(&self, links: &Links<P>, destination: IpAddr) -> RouteAttributes {
        if self.table.describes_paths() && !links.is_local(destination) {
            self.table.attributes(destination)
        } else {
            RouteAttributes::NONE
        }
    }

    /// Adds or changes a route through an interface.
    pub fn state(&self, stated: &Route, interface: usize) {
        self.change(|routes| routes.state(stated, interface as u16));
    }

    /// Removes a route; `None`: there is no route of this name.
    pub fn remove(&self, named: &RouteName) -> Option<RouteEntry> {
        self.change(|routes| routes.remove_named(named))
    }

    /// Changes the table of routes. Every cached route becomes invalid.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut RouteTable) -> R) -> R {
        let result = self.table.change(change);
        self.invalidate();
        result
    }

    /// Reads the table of routes.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&RouteTable) -> R) -> R {
        self.table.look(look)
    }

    /// A packet to `destination` passes the table as in FreeBSD 7 (Willmann et al., figure 4): under the lock of the table its
    /// route is found, the lock of the route is waited for with the table's held, and that is all. Connections have cached
    /// their routes; this is the fault `+routes`.
    #[cold]
    pub(crate) fn pass(&self, destination: IpAddr) {
        sync::walk::note(file!(), "looks up the route of a packet, as if nothing were cached");
        self.table.pass(destination);
    }

    /// Records that the device of a port has vanished, or is back. Returns whether its interface has no device left; if
    /// it has one, its flows move there.
    pub(crate) fn set_port_down(&self, links: &Links<P>, port: usize, interface: Option<usize>, down: bool) -> bool {
        links.ports()[port].set_down(down);
        let Some(interface) = interface else { return false };
        if links.interfaces()[interface].ports().len() > 1 {
            self.invalidate();
        }
        links.is_down(interface)
    }

    /// The largest TCP data towards `destination` without options: path MTU less headers.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
    //# where MMS_R is the maximum size for a transport-layer message that can be received (and reassembled at the IP
    //# layer) (MUST-67).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.3
    //# As a result, when the effective MTU of an interface varies packet-to- packet, TCP implementations SHOULD use the
    //# smallest effective MTU of the interface to calculate the value to advertise in the MSS Option (SHLD-6).
    pub fn mss(&self, links: &Links<P>, destination: IpAddr, now: Time) -> u16 {
        self.mss_by(links, self.lookup(links, destination).map(|(interface, _)| interface), destination, now)
    }

    /// The same, for a known interface of the route (`None`: there is no route).
    #[inline]
    pub(crate) fn mss_by(&self, links: &Links<P>, interface: Option<usize>, destination: IpAddr, now: Time) -> u16 {
        let Some(interface) = interface else { return 536 };
        if self.describes_paths() || self.path_mtus.any() {
            return self.mss_of_path(links, interface, destination, now);
        }
        tcp::mss::in_packet(links.view(interface).mtu_for(destination), destination)
    }

    /// The same, where the path may carry less than its first link.
    #[cold]
    fn mss_of_path(&self, links: &Links<P>, interface: usize, destination: IpAddr, now: Time) -> u16 {
        tcp::mss::in_packet(self.path(links, interface, destination).mtu(&&self.path_mtus, now), destination)
    }

    /// Whether a route has attributes that describe its path. If not, [`Routes::on_path`] has nothing to complete.
    #[inline]
    pub(crate) fn describes_paths(&self) -> bool {
        self.table.describes_paths()
    }

    /// The path to `destination` through this interface.
    #[inline]
    fn path(&self, links: &Links<P>, interface: usize, destination: IpAddr) -> KnownPath {
        let link = links.view(interface).mtu_for(destination);
        KnownPath { destination, link, attributes: self.attributes(links, destination) }
    }

    /// The path MTU to `destination` that routers have reported, if any.
    pub fn reported_mtu(&self, destination: IpAddr, now: Time) -> Option<u16> {
        (&self.path_mtus).reported(destination, now).map(|known| known.mtu)
    }

    /// The largest TCP data without options that the link towards `destination` carries, regardless of the rest of the
    /// path.
    #[cold]
    fn link_mss(&self, links: &Links<P>, destination: IpAddr) -> u16 {
        let Some((interface, _)) = self.lookup(links, destination) else { return 536 };
        tcp::mss::in_packet(links.view(interface).mtu_for(destination), destination)
    }

    /// The estimate from a router's report of an MTU; `None`: there is no such path.
    #[cold]
    pub(crate) fn estimate(
        &self,
        links: &Links<P>,
        error: &ip::ReceivedIcmpError,
        reported: u32,
        now: Time,
    ) -> Option<Estimate> {
        let destination = error.tuple.remote_addr;
        let (interface, _) = self.lookup(links, destination)?;
        Some(self.path(links, interface, destination).estimate(&&self.path_mtus, reported, error.sent, now))
    }

    /// Stores the path MTU that a connection accepted from a router, for all to that destination.
    pub(crate) fn learn_path_mtu(&self, links: &Links<P>, destination: IpAddr, estimate: Estimate, now: Time) {
        let Some((interface, _)) = self.lookup(links, destination) else { return };
        if self.path(links, interface, destination).learn(&mut &self.path_mtus, estimate, now) {
            self.invalidate();
        }
    }

    /// Removes expired path MTUs.
    pub(crate) fn timeouts(&self, now: Time) {
        if (&self.path_mtus).timeouts(now) {
            // Connections look up their route again when they next send (RFC 1191 section 6.3).
            self.invalidate();
        }
    }

    /// Whether routers may fragment packets to `destination`: its route allows it, or a router has reported an MTU
    /// below the accepted minimum.
    #[cold]
    pub(crate) fn may_be_fragmented(&self, links: &Links<P>, destination: IpAddr, now: Time) -> bool {
        let attributes = self.attributes(links, destination);
        ip::path_mtu::may_be_fragmented(destination, attributes, &&self.path_mtus, now)
    }

    /// Whether this is a packet-too-big report for a path with an MTU locked by its route.
    pub(crate) fn is_settled(&self, links: &Links<P>, error: &ip::ReceivedIcmpError) -> bool {
        matches!(error.kind, IcmpErrorKind::PacketTooBig { .. })
            && self.attributes(links, error.tuple.remote_addr).mtu_locked
    }

    /// Completes options that the user did not set from the route to `destination`.
    #[inline]
    pub(crate) fn on_path<'o>(
        &self,
        links: &Links<P>,
        options: &'o ConnectionOptions,
        destination: IpAddr,
    ) -> Cow<'o, ConnectionOptions> {
        if self.table.describes_paths() {
            Cow::Owned(self.filled_in(links, options, destination))
        } else {
            Cow::Borrowed(options)
        }
    }

    #[cold]
    fn filled_in(&self, links: &Links<P>, options: &ConnectionOptions, destination: IpAddr) -> ConnectionOptions {
        let RouteAttributes { announced_mss, initial_window, initial_receive_window, .. } =
            self.attributes(links, destination);
        let announced_mss = options.announced_mss.or(announced_mss);
        ConnectionOptions {
            announced_mss: announced_mss.map(|mss| mss.min(self.link_mss(links, destination))),
            initial_window: options.initial_window.or(initial_window),
            initial_receive_window: options.initial_receive_window.or(initial_receive_window),
            ..options.clone()
        }
    }
}
