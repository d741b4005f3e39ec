//! A cache of the routes of the connections opened last, for new connections.
//!
//! A server's next client often has the same address as the last one. Kept in each cell beside its half-open
//! connections.

use std::net::IpAddr;

use crate::route_cache::RouteCache;

/// Number of destinations in the cache.
const RECENT_ROUTES: usize = 4;

/// The routes of the connections opened last: a new connection to one of those destinations looks up neither route nor
/// neighbour. Their generation is checked at each use. Belongs to the thread that holds the cell.
#[derive(Default)]
pub struct RecentRoutes {
    entries: [Option<(IpAddr, RouteCache)>; RECENT_ROUTES],
    /// The place to be overwritten next.
    next: usize,
}

impl RecentRoutes {
    /// The cached route to `destination`, if it was found when the routes were of this generation.
    #[inline]
    pub fn recall(&self, destination: IpAddr, generation: u32) -> RouteCache {
        let known = self.find(destination).filter(|route| route.generation == generation);
        known.copied().unwrap_or_else(|| RouteCache::at_generation(generation))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn route(generation: u32, port: u16) -> RouteCache {
        RouteCache { generation, port, ..RouteCache::default() }
    }

    #[test]
    fn a_route_is_remembered_until_enough_others_were_used() {
        let mut routes = RecentRoutes::default();
        routes.note(address(1), &route(1, 7));
        assert_eq!(routes.recall(address(1), 1).port, 7);
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
        assert_eq!((recalled.generation, recalled.port), (3, 8));
        (2..1 + RECENT_ROUTES as u8).for_each(|n| routes.note(address(n), &route(3, 8)));
        assert_eq!(routes.recall(address(1), 3).generation, 3, "it took one place, not two");
    }
}
