//! The route cache of a connection: the link header of its next hop, and the generation in which it was looked up.
//!
//! Filled and used by [`tx`](crate::tx), kept with the connection. It is valid while its generation is that of the
//! routes and neighbours ([`Routes`](crate::routes::Routes)); a connection is not notified when it becomes stale.

use ip::LinkHeader;

/// The cached route of a connection: the header that its frames begin with. 24 bytes.
#[derive(Clone, Copy, Default)]
pub struct RouteCache {
    /// Generation of routes and neighbours at the look-up; 0: never looked up. Generations are odd; a value one less
    /// means that `link` must not be cached and is looked up each time.
    pub(crate) generation: u32,
    /// The port that it leaves by.
    pub(crate) port: u16,
    /// The low bits of the acknowledgement number last sent while the neighbour was in doubt.
    pub(crate) acknowledged: u16,
    pub(crate) link: Option<LinkHeader>,
    /// The neighbour's reachability is in doubt. The cache is invalid meanwhile.
    pub(crate) in_doubt: bool,
}

const _: () = assert!(size_of::<RouteCache>() == 24);

impl RouteCache {
    /// No route yet; the path is known as of this generation of the routes.
    pub fn at_generation(generation: u32) -> RouteCache {
        RouteCache { generation: generation ^ 1, ..RouteCache::default() }
    }

    /// The port that it leaves by, if that is known for routes of this generation.
    #[inline]
    pub fn leaves_by(&self, generation: u32) -> Option<usize> {
        (self.generation == generation).then_some(usize::from(self.port))
    }

    /// A route with a known port only.
    #[inline]
    pub fn via_port(port: u16) -> RouteCache {
        RouteCache { port, ..RouteCache::default() }
    }

    /// Forces a new look-up, as if routes had changed.
    #[cold]
    pub fn invalidate(&mut self) {
        if self.generation != 0 {
            self.generation = self.generation.wrapping_sub(2) | 1;
        }
    }

    /// The port that it leaves by, if it was looked up; otherwise the first.
    #[inline]
    pub fn port(&self) -> u16 {
        self.port
    }
}
