//! The packets that a path carries: the least of the MTUs of its link, its route and routers' reports.

use core::net::IpAddr;

use observe::Time;

use super::{Estimate, PathMtuAccess, estimate};
use crate::route_attributes::RouteAttributes;

/// What is known of the path to a destination without the reports of routers.
#[derive(Clone, Copy, Debug)]
pub struct KnownPath {
    /// The destination.
    pub destination: IpAddr,
    /// The largest packet of the destination's family that the path's first link carries, in bytes.
    pub link: usize,
    /// The attributes of its route.
    pub attributes: RouteAttributes,
}

impl KnownPath {
    /// The largest packet to send, in bytes. A locked MTU of the route is not lowered by a report.
    #[inline]
    pub fn mtu(&self, reports: &impl PathMtuAccess, now: Time) -> usize {
        let stated = self.attributes.mtu.map_or(self.link, |mtu| self.link.min(usize::from(mtu)));
        if self.attributes.mtu_locked {
            return stated;
        }
        reports.reported(self.destination, now).map_or(stated, |known| stated.min(usize::from(known.mtu)))
    }

    /// The estimate from a router's report about a packet of `quoted` bytes; see [`estimate`].
    pub fn estimate(&self, reports: &impl PathMtuAccess, reported: u32, quoted: usize, now: Time) -> Estimate {
        estimate(self.destination, reported, quoted, self.mtu(reports, now))
    }

    /// Records the estimate from a report that a transport has accepted. Returns whether cached link headers have become
    /// wrong: they have DF set, but routers must be allowed to fragment on this path from now on.
    #[must_use = "caches must be invalidated"]
    pub fn learn(&self, reports: &mut impl PathMtuAccess, estimate: Estimate, now: Time) -> bool {
        reports.update(self.destination, estimate, self.link, now) && estimate.fragments
    }
}

/// Whether routers may fragment packets to `destination`: the MTU of its route is locked, or a router has reported one
/// below the floor.
pub fn may_be_fragmented(
    destination: IpAddr,
    attributes: RouteAttributes,
    reports: &impl PathMtuAccess,
    now: Time,
) -> bool {
    let below_floor = || reports.reported(destination, now).is_some_and(|known| known.fragments);
    destination.is_ipv4() && (attributes.mtu_locked || below_floor())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_mtu::{FLOOR_V4, LIFETIME, PathMtuTable};

    const NOW: Time = Time::from_secs(5);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn path(mtu: Option<u16>, mtu_locked: bool) -> KnownPath {
        let attributes = RouteAttributes { mtu, mtu_locked, ..RouteAttributes::NONE };
        KnownPath { destination: ip("10.0.0.1"), link: 9000, attributes }
    }

    #[test]
    fn a_path_carries_the_least_of_link_route_and_report() {
        let mut reports = PathMtuTable::new();
        let (plain, stated) = (path(None, false), path(Some(4000), false));
        let mtus = |reports: &PathMtuTable, now| [plain, stated].map(|path| path.mtu(reports, now));
        assert_eq!(mtus(&reports, NOW), [9000, 4000]);
        for (reported, known) in [(6000, [6000, 4000]), (3000, [3000, 3000])] {
            let estimate = plain.estimate(&reports, reported, 9000, NOW);
            assert!(!plain.learn(&mut reports, estimate, NOW), "DF stays");
            assert_eq!(mtus(&reports, NOW), known);
        }
        assert_eq!(mtus(&reports, NOW + LIFETIME), [9000, 4000]);
    }

    /// RFC 1191 section 5: whether a router added the header's length is seen by the estimate so far.
    #[test]
    fn a_report_without_a_size_is_judged_by_the_mtu_so_far() {
        let reports = PathMtuTable::new();
        let estimate = |path: KnownPath| path.estimate(&reports, 0, 4365, NOW).mtu;
        assert_eq!([path(None, false), path(Some(4000), false)].map(estimate), [4352, 2002]);
    }

    #[test]
    fn a_locked_mtu_is_not_lowered_and_its_packets_may_be_fragmented() {
        let mut reports = PathMtuTable::new();
        let locked = path(Some(4000), true);
        assert!(!locked.learn(&mut reports, Estimate { mtu: 1000, fragments: false }, NOW));
        assert_eq!(locked.mtu(&reports, NOW), 4000);
        let may_be = |destination| may_be_fragmented(ip(destination), locked.attributes, &reports, NOW);
        assert!(may_be("10.0.0.1"));
        assert!(!may_be("fd00::1"), "routers of IPv6 do not fragment");
    }

    #[test]
    fn a_report_below_the_floor_makes_cached_headers_wrong_once() {
        let mut reports = PathMtuTable::new();
        let plain = path(None, false);
        let may_be = |reports: &PathMtuTable, now| may_be_fragmented(plain.destination, plain.attributes, reports, now);
        assert!(!may_be(&reports, NOW));
        let estimate = plain.estimate(&reports, 300, 1500, NOW);
        assert!(plain.learn(&mut reports, estimate, NOW));
        assert!(!plain.learn(&mut reports, estimate, NOW), "nothing is new");
        assert!(may_be(&reports, NOW));
        assert_eq!(plain.mtu(&reports, NOW), usize::from(FLOOR_V4));
        assert!(!may_be(&reports, NOW + LIFETIME));
    }
}
