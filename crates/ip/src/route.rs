//! Where a packet goes next: the routing table.
//!
//! Longest prefix match over a vector per family, sorted by prefix length (longest first) and network. A lookup masks
//! the destination once for each *distinct* length in the table and searches that run by bisection, so a host with
//! three routes does three comparisons and a table with thousands stays logarithmic. The table is changed by the
//! control plane only; [`RouteTable::generation`] rises with every change so that a connection may cache its next hop
//! until then. The attributes of a path are in its row: a connection that opens needs one more lookup, however many
//! routes have attributes.
//!
//! A *detour* is the host route of a redirect to a better first hop. It changes the next hop only: the attributes of
//! the path are those of the route that would be taken without it. It ends when that route's next hop changes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::interface::{InterfaceView, mask_v4, mask_v6};
use crate::route_attributes::{Route, RouteAttributes, RouteName};

/// One row of the table, as the control plane sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// Network address; bits beyond the prefix are ignored.
    pub network: IpAddr,
    /// Prefix length in bits (0..=32 or 0..=128); 0 is the default route.
    pub prefix_len: u8,
    /// The router to hand packets to; `None` when the network is attached to the interface.
    pub gateway: Option<IpAddr>,
    /// [`InterfaceView::index`] of the interface to send through.
    pub interface: u16,
}

/// The answer to a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Interface to send through.
    pub interface: u16,
    /// Address to resolve on the link: the gateway, or the destination itself.
    pub address: IpAddr,
}

/// The look-ups in the routing table that the Internet layer needs, however the table is shared. Each is exclusive by
/// itself: the table may change between two.
///
/// Implemented by [`RouteTable`], for a user that has it by reference, and in the crate `stack` by the table that threads
/// share.
pub trait RouteAccess {
    /// As [`RouteTable::lookup`].
    fn route(&self, destination: IpAddr) -> Option<NextHop>;
    /// As [`RouteTable::attributes`].
    fn attributes(&self, destination: IpAddr) -> RouteAttributes;
}

/// The first hop of a packet to `destination`, which is not an own address; `None`: there is no route. A group has no
/// gateway; without a route, its packets leave by the first interface.
pub fn first_hop(routes: &impl RouteAccess, destination: IpAddr) -> Option<NextHop> {
    let hop = routes.route(destination);
    if destination.is_multicast() {
        return Some(NextHop { interface: hop.map_or(0, |hop| hop.interface), address: destination });
    }
    hop
}

#[derive(Clone, Debug)]
struct FamilyRoutes<W> {
    rows: Vec<RouteRow<W>>,
    /// Runs of equal prefix length, longest first: mask and range in `rows`.
    runs: Vec<PrefixRun<W>>,
}

#[derive(Clone, Copy, Debug)]
struct RouteRow<W> {
    network: W,
    prefix_len: u8,
    gateway: Option<W>,
    interface: u16,
    /// Of a redirect: it has no attributes.
    redirect_route: bool,
    attributes: RouteAttributes,
}

#[derive(Clone, Copy, Debug)]
struct PrefixRun<W> {
    mask: W,
    start: usize,
    end: usize,
}

impl<W: Copy + Ord + core::ops::BitAnd<Output = W>> FamilyRoutes<W> {
    const fn new() -> Self {
        Self { rows: Vec::new(), runs: Vec::new() }
    }

    fn position(&self, network: W, prefix_len: u8) -> Result<usize, usize> {
        let key = (core::cmp::Reverse(prefix_len), network);
        self.rows.binary_search_by_key(&key, |r| (core::cmp::Reverse(r.prefix_len), r.network))
    }

    fn insert(&mut self, row: RouteRow<W>, mask: impl Fn(u8) -> W) -> Option<RouteRow<W>> {
        let replaced = match self.position(row.network, row.prefix_len) {
            Ok(at) => Some(core::mem::replace(&mut self.rows[at], row)),
            Err(at) => {
                self.rows.insert(at, row);
                None
            }
        };
        let leads = |row: &RouteRow<W>| (row.gateway, row.interface);
        if !row.redirect_route && replaced.as_ref().map(leads) != Some(leads(&row)) {
            self.end_detours(&row, &mask);
        }
        self.rebuild(mask);
        replaced
    }

    /// Removes the detours from `route`, which has changed or is removed.
    fn end_detours(&mut self, route: &RouteRow<W>, mask: impl Fn(u8) -> W) {
        let mask = mask(route.prefix_len);
        self.rows.retain(|row| !row.redirect_route || row.network & mask != route.network);
    }

    fn remove(&mut self, network: W, prefix_len: u8, mask: impl Fn(u8) -> W) -> Option<RouteRow<W>> {
        let at = self.position(network, prefix_len).ok()?;
        let row = self.rows.remove(at);
        if !row.redirect_route {
            self.end_detours(&row, &mask);
        }
        self.rebuild(mask);
        Some(row)
    }

    fn rebuild(&mut self, mask: impl Fn(u8) -> W) {
        self.runs.clear();
        let mut start = 0;
        for run in self.rows.chunk_by(|a, b| a.prefix_len == b.prefix_len) {
            let end = start + run.len();
            self.runs.push(PrefixRun { mask: mask(run[0].prefix_len), start, end });
            start = end;
        }
    }

    /// The rows that match `destination`, the longest prefix first.
    #[inline]
    fn matches(&self, destination: W) -> impl Iterator<Item = &RouteRow<W>> {
        self.runs.iter().filter_map(move |run| {
            let rows = &self.rows[run.start..run.end];
            let network = destination & run.mask;
            rows.binary_search_by_key(&network, |r| r.network).ok().map(|at| &rows[at])
        })
    }

    #[inline]
    fn lookup(&self, destination: W) -> Option<&RouteRow<W>> {
        self.matches(destination).next()
    }

    /// The attributes of the path to `destination`.
    fn attributes(&self, destination: W) -> RouteAttributes {
        self.matches(destination).find(|row| !row.redirect_route).map_or(RouteAttributes::NONE, |row| row.attributes)
    }

    fn exact(&self, network: W, prefix_len: u8) -> Option<&RouteRow<W>> {
        self.position(network, prefix_len).ok().map(|at| &self.rows[at])
    }
}

/// The routing table of a host: longest prefix match, IPv4 and IPv6.
#[derive(Clone, Debug)]
pub struct RouteTable {
    v4: FamilyRoutes<u32>,
    v6: FamilyRoutes<u128>,
    generation: u64,
    /// Rows with attributes.
    described: usize,
}

/// The attributes of a row once it is in the table.
#[derive(Clone, Copy)]
enum RowAttributes {
    /// Those of the row that it replaces.
    AsBefore,
    /// This.
    New(RouteAttributes),
    /// None of its own: it is a detour.
    Redirect,
}

impl Default for RouteTable {
    fn default() -> Self {
        Self::new()
    }
}

impl RouteTable {
    /// An empty table: every lookup answers `None`.
    pub const fn new() -> Self {
        Self { v4: FamilyRoutes::new(), v6: FamilyRoutes::new(), generation: 0, described: 0 }
    }

    /// Adds `route`, replacing the row with the same network and prefix length, which is returned. The attributes of
    /// its path stay: a source that only knows the next hop (a router's advertisement) does not override them.
    ///
    /// # Panics
    /// When the prefix is longer than the family allows or the gateway is of the other family: a configuration that
    /// the control plane must have refused.
    pub fn insert(&mut self, route: RouteEntry) -> Option<RouteEntry> {
        self.put(route, RowAttributes::AsBefore)
    }

    /// Adds a route through `interface` with its attributes, or replaces it.
    pub fn state(&mut self, stated: &Route, interface: u16) {
        let (network, prefix_len) = (stated.network().address(), stated.network().prefix_len());
        let row = RouteEntry { network, prefix_len, gateway: stated.gateway(), interface };
        self.put(row, RowAttributes::New(stated.attributes()));
    }

    /// Adds or changes the host route of a redirect; see the module for its attributes.
    ///
    /// # Panics
    /// As [`RouteTable::insert`].
    pub fn insert_redirect(&mut self, route: RouteEntry) -> Option<RouteEntry> {
        self.put(route, RowAttributes::Redirect)
    }

    fn put(&mut self, route: RouteEntry, said: RowAttributes) -> Option<RouteEntry> {
        self.generation += 1;
        let RouteEntry { prefix_len, interface, .. } = route;
        let before = self.said_at(route.network, prefix_len).unwrap_or_default();
        let attributes = match said {
            RowAttributes::AsBefore => before,
            RowAttributes::New(attributes) => attributes,
            RowAttributes::Redirect => RouteAttributes::NONE,
        };
        let redirect_route = matches!(said, RowAttributes::Redirect);
        self.described += usize::from(attributes != RouteAttributes::NONE);
        self.described -= usize::from(before != RouteAttributes::NONE);
        match (route.network, route.gateway) {
            (IpAddr::V4(network), None | Some(IpAddr::V4(_))) => {
                assert!(prefix_len <= 32, "route {network}/{prefix_len}: the prefix is too long");
                let gateway = route.gateway.map(v4_bits);
                let network = network.to_bits() & mask_v4(prefix_len);
                let row = RouteRow { network, prefix_len, gateway, interface, redirect_route, attributes };
                self.v4.insert(row, mask_v4).map(RouteRow::<u32>::stated)
            }
            (IpAddr::V6(network), None | Some(IpAddr::V6(_))) => {
                assert!(prefix_len <= 128, "route {network}/{prefix_len}: the prefix is too long");
                let gateway = route.gateway.map(v6_bits);
                let network = network.to_bits() & mask_v6(prefix_len);
                let row = RouteRow { network, prefix_len, gateway, interface, redirect_route, attributes };
                self.v6.insert(row, mask_v6).map(RouteRow::<u128>::stated)
            }
            (network, Some(gateway)) => panic!("route {network}: gateway {gateway} is of the other family"),
        }
    }

    /// Whether any route has attributes.
    pub fn has_attributes(&self) -> bool {
        self.described > 0
    }

    /// The attributes of the path to `destination`: those of its route, or of the route from which it is a detour.
    pub fn attributes(&self, destination: IpAddr) -> RouteAttributes {
        match destination {
            IpAddr::V4(d) => self.v4.attributes(d.to_bits()),
            IpAddr::V6(d) => self.v6.attributes(d.to_bits()),
        }
    }

    /// The attributes of the row with exactly this network and prefix length; `None` when there is no such row.
    fn said_at(&self, network: IpAddr, prefix_len: u8) -> Option<RouteAttributes> {
        self.exact(network, prefix_len).map(|(_, _, attributes)| attributes)
    }

    /// Whether the row with exactly this network and prefix length is a detour; `None` when there is no such row.
    pub fn is_detour(&self, network: IpAddr, prefix_len: u8) -> Option<bool> {
        self.exact(network, prefix_len).map(|(_, redirect_route, _)| redirect_route)
    }

    fn exact(&self, network: IpAddr, prefix_len: u8) -> Option<(RouteEntry, bool, RouteAttributes)> {
        match network {
            IpAddr::V4(n) if prefix_len <= 32 => {
                let row = self.v4.exact(n.to_bits() & mask_v4(prefix_len), prefix_len)?;
                Some((row.stated(), row.redirect_route, row.attributes))
            }
            IpAddr::V6(n) if prefix_len <= 128 => {
                let row = self.v6.exact(n.to_bits() & mask_v6(prefix_len), prefix_len)?;
                Some((row.stated(), row.redirect_route, row.attributes))
            }
            _ => None,
        }
    }

    /// Adds the attached network of every address of `interface`.
    pub fn insert_connected(&mut self, interface: &InterfaceView) {
        for (network, prefix_len) in interface.addresses() {
            self.insert(RouteEntry { network, prefix_len, gateway: None, interface: interface.index });
        }
    }

    /// Adds a default route through `gateway`, of the gateway's family.
    pub fn insert_default(&mut self, gateway: IpAddr, interface: u16) -> Option<RouteEntry> {
        let network = match gateway {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        self.insert(RouteEntry { network, prefix_len: 0, gateway: Some(gateway), interface })
    }

    /// Removes the route of this name; `None`: there is none. Detours have no names.
    pub fn remove_named(&mut self, named: &RouteName) -> Option<RouteEntry> {
        let (network, prefix_len, gateway) = (named.network.address(), named.network.prefix_len(), named.gateway);
        let (route, redirect_route, _) = self.exact(network, prefix_len)?;
        let meant = !redirect_route && (gateway.is_none() || gateway == route.gateway);
        if meant { self.remove(network, prefix_len) } else { None }
    }

    /// Removes the row with exactly this network and prefix length if it is a detour, and not a route set since.
    pub fn remove_detour(&mut self, network: IpAddr, prefix_len: u8) -> Option<RouteEntry> {
        if self.is_detour(network, prefix_len)? { self.remove(network, prefix_len) } else { None }
    }

    /// Removes the row with exactly this network and prefix length.
    pub fn remove(&mut self, network: IpAddr, prefix_len: u8) -> Option<RouteEntry> {
        let said = self.said_at(network, prefix_len).unwrap_or_default();
        self.described -= usize::from(said != RouteAttributes::NONE);
        let removed = match network {
            IpAddr::V4(n) if prefix_len <= 32 => {
                let row = self.v4.remove(n.to_bits() & mask_v4(prefix_len), prefix_len, mask_v4);
                row.map(RouteRow::<u32>::stated)
            }
            IpAddr::V6(n) if prefix_len <= 128 => {
                let row = self.v6.remove(n.to_bits() & mask_v6(prefix_len), prefix_len, mask_v6);
                row.map(RouteRow::<u128>::stated)
            }
            _ => None,
        };
        self.generation += u64::from(removed.is_some());
        removed
    }

    /// Rises with every change of the table.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The next hop for `destination` under longest prefix match; `None` when there is no route.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<NextHop> {
        match destination {
            IpAddr::V4(d) => {
                let row = self.v4.lookup(d.to_bits())?;
                let address = row.gateway.map_or(d, Ipv4Addr::from_bits);
                Some(NextHop { interface: row.interface, address: IpAddr::V4(address) })
            }
            IpAddr::V6(d) => {
                let row = self.v6.lookup(d.to_bits())?;
                let address = row.gateway.map_or(d, Ipv6Addr::from_bits);
                Some(NextHop { interface: row.interface, address: IpAddr::V6(address) })
            }
        }
    }

    /// The row that [`RouteTable::lookup`] follows for `destination`.
    pub fn row_for(&self, destination: IpAddr) -> Option<RouteEntry> {
        match destination {
            IpAddr::V4(d) => self.v4.lookup(d.to_bits()).copied().map(RouteRow::<u32>::stated),
            IpAddr::V6(d) => self.v6.lookup(d.to_bits()).copied().map(RouteRow::<u128>::stated),
        }
    }

    /// Every row, IPv4 first, longest prefix first.
    pub fn routes(&self) -> impl Iterator<Item = RouteEntry> + '_ {
        let v4 = self.v4.rows.iter().map(|r| RouteRow::<u32>::stated(*r));
        v4.chain(self.v6.rows.iter().map(|r| RouteRow::<u128>::stated(*r)))
    }
}

impl RouteAccess for RouteTable {
    #[inline]
    fn route(&self, destination: IpAddr) -> Option<NextHop> {
        self.lookup(destination)
    }

    #[inline]
    fn attributes(&self, destination: IpAddr) -> RouteAttributes {
        RouteTable::attributes(self, destination)
    }
}

impl RouteRow<u32> {
    fn stated(self) -> RouteEntry {
        RouteEntry {
            network: IpAddr::V4(Ipv4Addr::from_bits(self.network)),
            prefix_len: self.prefix_len,
            gateway: self.gateway.map(|g| IpAddr::V4(Ipv4Addr::from_bits(g))),
            interface: self.interface,
        }
    }
}

impl RouteRow<u128> {
    fn stated(self) -> RouteEntry {
        RouteEntry {
            network: IpAddr::V6(Ipv6Addr::from_bits(self.network)),
            prefix_len: self.prefix_len,
            gateway: self.gateway.map(|g| IpAddr::V6(Ipv6Addr::from_bits(g))),
            interface: self.interface,
        }
    }
}

fn v4_bits(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(a) => a.to_bits(),
        IpAddr::V6(a) => panic!("{a} where an IPv4 gateway was matched"),
    }
}

fn v6_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V6(a) => a.to_bits(),
        IpAddr::V4(a) => panic!("{a} where an IPv6 gateway was matched"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn route(network: &str, prefix_len: u8, gateway: Option<&str>, interface: u16) -> RouteEntry {
        RouteEntry { network: ip(network), prefix_len, gateway: gateway.map(ip), interface }
    }

    #[test]
    fn a_group_has_no_gateway_and_needs_no_route() {
        let mut table = RouteTable::new();
        let first = |table: &RouteTable, to| first_hop(table, ip(to)).map(|hop| (hop.interface, hop.address));
        assert_eq!(first(&table, "224.0.0.9"), Some((0, ip("224.0.0.9"))));
        assert_eq!(first(&table, "10.0.0.9"), None);
        table.insert_default(ip("10.0.0.1"), 3);
        assert_eq!(first(&table, "224.0.0.9"), Some((3, ip("224.0.0.9"))));
        assert_eq!(first(&table, "10.0.0.9"), Some((3, ip("10.0.0.1"))));
    }

    #[test]
    fn the_longest_prefix_wins_and_the_default_catches_the_rest() {
        let mut table = RouteTable::new();
        table.insert_default(ip("10.0.0.1"), 0);
        table.insert(route("10.0.0.0", 24, None, 0));
        table.insert(route("10.0.0.128", 25, None, 1));
        table.insert(route("10.0.0.200", 32, Some("10.0.0.2"), 2));
        let cases = [
            ("10.0.0.7", 0, "10.0.0.7"),
            ("10.0.0.130", 1, "10.0.0.130"),
            ("10.0.0.200", 2, "10.0.0.2"),
            ("192.0.2.1", 0, "10.0.0.1"),
        ];
        for (destination, interface, address) in cases {
            let expected = NextHop { interface, address: ip(address) };
            assert_eq!(table.lookup(ip(destination)), Some(expected), "{destination}");
        }
        assert_eq!(table.lookup(ip("2001:db8::1")), None);
    }

    #[test]
    fn every_change_and_only_a_change_raises_the_generation() {
        let mut table = RouteTable::new();
        let before = table.generation();
        table.insert(route("10.0.0.0", 8, None, 0));
        assert!(table.generation() > before);
        let before = table.generation();
        assert_eq!(table.remove(ip("10.0.0.0"), 9), None);
        assert_eq!(table.generation(), before);
        assert_eq!(table.remove(ip("10.9.9.9"), 8), Some(route("10.0.0.0", 8, None, 0)));
        assert!(table.generation() > before);
        assert_eq!(table.lookup(ip("10.0.0.1")), None);
    }

    #[test]
    fn a_second_row_for_a_network_replaces_the_first() {
        let mut table = RouteTable::new();
        table.insert(route("2001:db8::", 32, None, 0));
        let old = table.insert(route("2001:db8::", 32, Some("fe80::1"), 3));
        assert_eq!(old, Some(route("2001:db8::", 32, None, 0)));
        assert_eq!(table.lookup(ip("2001:db8::5")), Some(NextHop { interface: 3, address: ip("fe80::1") }));
        assert_eq!(table.routes().count(), 1);
    }

    #[test]
    fn a_path_is_what_the_route_that_is_taken_says() {
        let mut table = RouteTable::new();
        let state = |table: &mut RouteTable, text: &str| table.state(&text.parse().unwrap(), 0);
        table.insert(route("10.0.0.0", 24, None, 0));
        assert!(!table.has_attributes());
        state(&mut table, "default via 10.0.0.1 mtu 1400");
        state(&mut table, "192.0.2.77/24 via 10.0.0.2 mtu lock 900 initcwnd 3");
        let mtu = |table: &RouteTable, destination| table.attributes(ip(destination)).mtu;
        assert_eq!(mtu(&table, "198.51.100.1"), Some(1400));
        assert_eq!(mtu(&table, "192.0.2.1"), Some(900));
        assert_eq!(mtu(&table, "10.0.0.9"), None, "the attached network says nothing");
        assert_eq!(mtu(&table, "fd00::1"), None, "no route");
        state(&mut table, "192.0.2.0/24 via 10.0.0.3 advmss 500");
        assert_eq!(table.attributes(ip("192.0.2.1")).announced_mss, Some(500));
        assert_eq!(mtu(&table, "192.0.2.1"), None, "changed as a whole");
        table.remove(ip("192.0.2.0"), 24);
        assert_eq!(mtu(&table, "192.0.2.1"), Some(1400));
    }

    #[test]
    fn a_detour_says_of_the_path_what_the_route_says_that_it_leaves() {
        let mut table = RouteTable::new();
        let state = |table: &mut RouteTable, text: &str| table.state(&text.parse().unwrap(), 0);
        state(&mut table, "192.0.2.0/24 via 10.0.0.1 mtu 1400 initcwnd 4");
        let far = ip("192.0.2.7");
        table.insert_redirect(route("192.0.2.7", 32, Some("10.0.0.9"), 0));
        assert_eq!((table.lookup(far).unwrap().address, table.attributes(far).mtu), (ip("10.0.0.9"), Some(1400)));
        state(&mut table, "192.0.2.0/24 via 10.0.0.1 mtu 1300");
        assert_eq!((table.attributes(far).mtu, table.attributes(far).initial_window), (Some(1300), None));
        assert_eq!(table.is_detour(far, 32), Some(true));
        state(&mut table, "192.0.2.7 via 10.0.0.2 mtu 900");
        assert_eq!((table.attributes(far).mtu, table.is_detour(far, 32)), (Some(900), Some(false)));
        assert_eq!(table.remove_detour(far, 32), None, "it was stated since");
        let named = |text: &str| text.parse().unwrap();
        assert_eq!(table.remove_named(&named("192.0.2.7 via 10.0.0.3")), None, "by another router");
        assert!(table.remove_named(&named("192.0.2.7 via 10.0.0.2")).is_some());
        table.insert_redirect(route("192.0.2.7", 32, Some("10.0.0.9"), 0));
        assert_eq!(table.remove_named(&named("192.0.2.7")), None, "nobody stated it");
        assert_eq!(table.is_detour(ip("192.0.2.8"), 32), None);
    }

    #[test]
    fn a_detour_ends_when_the_route_that_it_leaves_leads_elsewhere() {
        let changes: [fn(&mut RouteTable); 4] = [
            |table| table.state(&"192.0.2.0/24 via 10.0.0.3".parse().unwrap(), 0),
            |table| table.state(&"192.0.2.0/28 via 10.0.0.3".parse().unwrap(), 0),
            |table| assert!(table.insert(route("192.0.2.0", 24, Some("10.0.0.3"), 0)).is_some()),
            |table| assert!(table.remove(ip("192.0.2.0"), 24).is_some()),
        ];
        for change in changes {
            let mut table = RouteTable::new();
            table.insert_default(ip("10.0.0.3"), 0);
            table.insert(route("192.0.2.0", 24, Some("10.0.0.1"), 0));
            table.insert_redirect(route("192.0.2.7", 32, Some("10.0.0.9"), 0));
            table.insert_redirect(route("198.51.100.7", 32, Some("10.0.0.9"), 0));
            table.insert(route("192.0.2.0", 24, Some("10.0.0.1"), 0));
            assert_eq!(table.lookup(ip("192.0.2.7")).unwrap().address, ip("10.0.0.9"), "nothing has changed");
            change(&mut table);
            assert_eq!(table.lookup(ip("192.0.2.7")).unwrap().address, ip("10.0.0.3"));
            assert_eq!(table.lookup(ip("198.51.100.7")).unwrap().address, ip("10.0.0.9"), "of another route");
        }
    }

    #[test]
    fn whether_anything_is_said_follows_every_change() {
        let mut table = RouteTable::new();
        let state = |table: &mut RouteTable, text: &str| table.state(&text.parse().unwrap(), 0);
        for third in 0..=255u8 {
            state(&mut table, &format!("10.0.{third}.0/24 via 10.9.9.9 mtu {}", 1000 + u16::from(third)));
        }
        assert_eq!(table.attributes(ip("10.0.200.1")).mtu, Some(1200));
        table.insert(route("10.0.200.0", 24, Some("10.9.9.8"), 0));
        assert_eq!(table.attributes(ip("10.0.200.1")).mtu, Some(1200), "another next hop says nothing of the path");
        for third in 0..=255u8 {
            assert!(table.has_attributes());
            match third % 3 {
                0 => drop(table.remove(IpAddr::from([10, 0, third, 0]), 24)),
                1 => state(&mut table, &format!("10.0.{third}.0/24 via 10.9.9.9")),
                _ => drop(table.insert_redirect(RouteEntry {
                    network: IpAddr::from([10, 0, third, 0]),
                    ..route("10.0.0.0", 24, None, 0)
                })),
            }
        }
        assert!(!table.has_attributes());
    }

    #[test]
    fn an_interface_brings_its_attached_networks() {
        let mac = wire::ethernet::MacAddr([2, 0, 0, 0, 0, 1]);
        let view = InterfaceView::new(4, mac, 1500).with_address(ip("10.0.0.1"), 24).unwrap();
        let mut table = RouteTable::new();
        table.insert_connected(&view);
        assert_eq!(table.lookup(ip("10.0.0.9")), Some(NextHop { interface: 4, address: ip("10.0.0.9") }));
        assert_eq!(table.lookup(ip("fe80::9")), Some(NextHop { interface: 4, address: ip("fe80::9") }));
        assert_eq!(table.lookup(ip("10.0.1.9")), None);
    }

    fn naive(routes: &[RouteEntry], destination: u32) -> Option<u16> {
        let matches = |r: &&RouteEntry| {
            let IpAddr::V4(n) = r.network else { return false };
            (0..u32::from(r.prefix_len)).all(|bit| {
                let probe = 1 << (31 - bit);
                n.to_bits() & probe == destination & probe
            })
        };
        routes.iter().rev().filter(matches).max_by_key(|r| r.prefix_len).map(|r| r.prefix_len.into())
    }

    proptest! {
        #[test]
        fn lookups_agree_with_a_naive_search(
            rows in proptest::collection::vec((0u32..64, 0u8..=32), 0..40),
            probes in proptest::collection::vec(0u32..64, 1..40),
        ) {
            // Networks differ in the top three and bottom three bits only, so that prefixes nest often.
            let spread = |x: u32| (x >> 3) << 29 | (x & 7);
            let mut table = RouteTable::new();
            let mut routes = Vec::new();
            for (network, prefix_len) in rows {
                let network = IpAddr::V4(Ipv4Addr::from_bits(spread(network)));
                let row = RouteEntry { network, prefix_len, gateway: None, interface: prefix_len.into() };
                table.insert(row);
                routes.push(row);
            }
            for probe in probes {
                let found = table.lookup(IpAddr::V4(Ipv4Addr::from_bits(spread(probe)))).map(|hop| hop.interface);
                prop_assert_eq!(found, naive(&routes, spread(probe)));
            }
        }
    }
}
