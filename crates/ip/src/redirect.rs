//! Better first hops from redirect messages (RFC 4861 section 8, RFC 1122 section 3.2.2.2), kept as host routes.
//!
//! A redirect is accepted only from the router that is the present first hop, for one destination, and only to a
//! station of the same link; the stack also checks that the message cannot have come from off the link. It is valid for
//! ten minutes or until its target does not answer, and the operator's host routes take precedence. It changes the next
//! hop only: the attributes of the path stay those of the route that would be taken without it. The table is bounded;
//! the oldest is replaced.

use core::net::IpAddr;
use core::time::Duration;

use observe::{DropReason, Time};
use smallvec::SmallVec;

use crate::autoconf::RouteChange;
use crate::interface::{InterfaceView, is_unicast};
use crate::route::{RouteEntry, RouteTable};

/// How long a redirect is valid.
pub const LIFETIME: Duration = Duration::from_secs(600);
/// Redirects held at one time.
pub const CAPACITY: usize = 64;

/// A redirect message, checked as far as it can be by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The router that sent the redirect.
    pub reporter: IpAddr,
    /// The destination.
    pub destination: IpAddr,
    /// The better first hop; the destination itself when that is a neighbour.
    pub target: IpAddr,
}

#[derive(Clone, Copy, Debug)]
struct RedirectRow {
    destination: IpAddr,
    target: IpAddr,
    until: Time,
}

/// The redirects in force.
#[derive(Debug, Default)]
pub struct RedirectTable {
    rows: Vec<RedirectRow>,
}

impl RedirectTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Redirects in force.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether none is in force.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes a redirect received on `interface`; returns the changes of `routes`.
    ///
    /// # Errors
    /// [`DropReason::RedirectRefused`]: it is not accepted.
    pub fn accept(
        &mut self,
        now: Time,
        redirect: &Redirect,
        interface: &InterfaceView,
        routes: &RouteTable,
    ) -> Result<SmallVec<[RouteChange; 2]>, DropReason> {
        let Redirect { reporter, destination, target } = *redirect;
        let hop = routes.lookup(destination).ok_or(DropReason::RedirectRefused)?;
        let from_first_hop = hop.interface == interface.index && hop.address == reporter && reporter != destination;
        if !from_first_hop || !leads_along_the_link(redirect, interface) {
            return Err(DropReason::RedirectRefused);
        }
        let prefix_len = if destination.is_ipv4() { 32 } else { 128 };
        let ours = self.rows.iter().position(|row| row.destination == destination);
        // The operator's route takes precedence, also if it was set after a redirect.
        if routes.is_detour(destination, prefix_len) == Some(false) {
            return Err(DropReason::RedirectRefused);
        }
        let mut changes = SmallVec::new();
        match ours {
            Some(at) => drop(self.rows.remove(at)),
            None if self.rows.len() == CAPACITY => changes.push(self.forget(0)),
            None => {}
        }
        // The newest is last, so the first to expire is first.
        self.rows.push(RedirectRow { destination, target, until: now + LIFETIME });
        let gateway = (target != destination).then_some(target);
        changes.push(RouteChange::Divert(RouteEntry {
            network: destination,
            prefix_len,
            gateway,
            interface: hop.interface,
        }));
        Ok(changes)
    }

    fn forget(&mut self, at: usize) -> RouteChange {
        let row = self.rows.remove(at);
        RouteChange::EndDetour(row.destination, if row.destination.is_ipv4() { 32 } else { 128 })
    }

    /// A neighbour does not answer: removes the redirects to it.
    pub fn neighbour_failed(&mut self, address: IpAddr) -> SmallVec<[RouteChange; 2]> {
        self.forget_where(|row| row.target == address)
    }

    /// Removes expired redirects.
    pub fn timeouts(&mut self, now: Time) -> SmallVec<[RouteChange; 2]> {
        self.forget_where(|row| row.until <= now)
    }

    fn forget_where(&mut self, gone: impl Fn(&RedirectRow) -> bool) -> SmallVec<[RouteChange; 2]> {
        let mut changes = SmallVec::new();
        while let Some(at) = self.rows.iter().position(&gone) {
            changes.push(self.forget(at));
        }
        changes
    }

    /// When [`RedirectTable::timeouts`] has work.
    pub fn next_deadline(&self) -> Option<Time> {
        self.rows.first().map(|row| row.until)
    }
}

fn leads_along_the_link(redirect: &Redirect, interface: &InterfaceView) -> bool {
    let Redirect { reporter, destination, target } = *redirect;
    let sound = is_unicast(destination) && is_unicast(target) && target != reporter && !interface.is_local(target);
    let near = match (target, destination) {
        (IpAddr::V4(address), IpAddr::V4(_)) => interface.on_link(target) && !interface.is_broadcast(address),
        (IpAddr::V6(address), IpAddr::V6(_)) => address.is_unicast_link_local() || target == destination,
        _ => false,
    };
    sound && near && !interface.is_local(destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{interface, ip};

    fn routed() -> RouteTable {
        let mut routes = RouteTable::new();
        routes.insert_connected(&interface());
        routes.insert_default(ip("10.0.0.254"), 0);
        routes.insert_default(ip("fe80::254"), 0);
        routes
    }

    fn apply(routes: &mut RouteTable, changes: SmallVec<[RouteChange; 2]>) {
        changes.into_iter().for_each(|change| change.apply(routes));
    }

    fn redirect(reporter: &str, destination: &str, target: &str) -> Redirect {
        Redirect { reporter: ip(reporter), destination: ip(destination), target: ip(target) }
    }

    #[test]
    fn the_first_hop_may_name_a_better_one_for_ten_minutes() {
        for (router, far, better) in [
            ("10.0.0.254", "192.0.2.1", "10.0.0.253"),
            ("fe80::254", "2600::1", "fe80::253"),
            ("fe80::254", "2600::1", "2600::1"),
        ] {
            let (mut table, mut routes) = (RedirectTable::new(), routed());
            let now = Time::from_secs(100);
            let changes = table.accept(now, &redirect(router, far, better), &interface(), &routes).unwrap();
            apply(&mut routes, changes);
            assert_eq!(routes.lookup(ip(far)).unwrap().address, ip(better));
            assert!(table.timeouts(now + LIFETIME / 2).is_empty());
            let over = table.next_deadline().unwrap();
            let changes = table.timeouts(over);
            apply(&mut routes, changes);
            assert_eq!((routes.lookup(ip(far)).unwrap().address, table.len()), (ip(router), 0));
        }
    }

    #[test]
    fn a_silent_target_gives_the_route_back() {
        let (mut table, mut routes) = (RedirectTable::new(), routed());
        let better = redirect("10.0.0.254", "192.0.2.1", "10.0.0.253");
        apply(&mut routes, table.accept(Time::ZERO, &better, &interface(), &routed()).unwrap());
        assert!(table.neighbour_failed(ip("10.0.0.9")).is_empty());
        let changes = table.neighbour_failed(ip("10.0.0.253"));
        apply(&mut routes, changes);
        assert_eq!(routes.lookup(ip("192.0.2.1")).unwrap().address, ip("10.0.0.254"));
    }

    #[test]
    fn the_path_stays_what_the_route_says_and_the_operator_has_the_last_word() {
        let (mut table, mut routes) = (RedirectTable::new(), routed());
        routes.state(&"192.0.2.0/24 via 10.0.0.254 mtu 1300 initcwnd 3".parse().unwrap(), 0);
        let (far, better) = (ip("192.0.2.1"), redirect("10.0.0.254", "192.0.2.1", "10.0.0.253"));
        let changes = table.accept(Time::ZERO, &better, &interface(), &routes).unwrap();
        apply(&mut routes, changes);
        let found = |routes: &RouteTable| (routes.lookup(far).unwrap().address, routes.attributes(far).mtu);
        assert_eq!(found(&routes), (ip("10.0.0.253"), Some(1300)));
        routes.state(&"192.0.2.1 via 10.0.0.252 mtu 1200".parse().unwrap(), 0);
        let again = redirect("10.0.0.252", "192.0.2.1", "10.0.0.253");
        assert_eq!(table.accept(Time::ZERO, &again, &interface(), &routes), Err(DropReason::RedirectRefused));
        let over = table.next_deadline().unwrap();
        let changes = table.timeouts(over);
        apply(&mut routes, changes);
        assert_eq!(found(&routes), (ip("10.0.0.252"), Some(1200)), "it is not the redirect that is taken away");
    }

    #[test]
    fn liars_are_not_believed() {
        let (mut table, mut routes) = (RedirectTable::new(), routed());
        let static_row =
            RouteEntry { network: ip("198.51.100.1"), prefix_len: 32, gateway: Some(ip("10.0.0.254")), interface: 0 };
        routes.insert(static_row);
        let lies = [
            ("not the first hop", redirect("10.0.0.77", "192.0.2.1", "10.0.0.66")),
            ("off the link", redirect("10.0.0.254", "192.0.2.1", "192.0.2.66")),
            ("to ourselves", redirect("10.0.0.254", "192.0.2.1", "10.0.0.1")),
            ("to itself", redirect("10.0.0.254", "192.0.2.1", "10.0.0.254")),
            ("to a broadcast", redirect("10.0.0.254", "192.0.2.1", "10.0.0.255")),
            ("for a group", redirect("10.0.0.254", "224.0.0.9", "10.0.0.66")),
            ("for our own", redirect("10.0.0.254", "10.0.0.1", "10.0.0.66")),
            ("for a neighbour", redirect("10.0.0.254", "10.0.0.9", "10.0.0.66")),
            ("against the operator", redirect("10.0.0.254", "198.51.100.1", "10.0.0.66")),
            ("global target", redirect("fe80::254", "2600::1", "2600::2")),
            ("families mixed", redirect("fe80::254", "2600::1", "10.0.0.66")),
        ];
        for (name, lie) in lies {
            let refused = table.accept(Time::ZERO, &lie, &interface(), &routes);
            assert_eq!(refused, Err(DropReason::RedirectRefused), "{name}");
        }
        assert!(table.is_empty());
    }

    #[test]
    fn a_flood_is_bounded() {
        let (mut table, mut routes) = (RedirectTable::new(), routed());
        let before = routes.routes().count();
        for n in 0..1000u32 {
            let destination = std::net::Ipv4Addr::from_bits(0xc612_0000 + n).into();
            let one = Redirect { reporter: ip("10.0.0.254"), destination, target: ip("10.0.0.66") };
            let changes = table.accept(Time::from_secs(n.into()), &one, &interface(), &routes).unwrap();
            apply(&mut routes, changes);
        }
        assert_eq!((table.len(), routes.routes().count()), (CAPACITY, before + CAPACITY));
    }
}
