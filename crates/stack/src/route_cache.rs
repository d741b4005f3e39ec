//! What a connection remembers of its way: the link header of its next hop, and when the way was looked up.
//!
//! Filled and used by [`tx`](crate::tx), kept with the connection. It is good while its generation is that of the
//! routes and neighbours ([`Routes`](crate::routes::Routes)); a connection is not notified when
//! it becomes stale.

use ip::LinkHeader;

/// What a connection remembers of its route: the header that its frames begin with. 24 bytes.
#[derive(Clone, Copy, Default)]
pub struct RouteCache {
    /// Of routes and neighbours when the way was looked up; 0: never. Less by one if `link` could not be kept, so that
    /// it is looked up each time: generations are odd.
    pub(crate) generation: u32,
    /// The port that it leaves by.
    pub(crate) port: u16,
    /// The low bits of the acknowledgement number that was sent last while the neighbour was in doubt.
    pub(crate) acknowledged: u16,
    pub(crate) link: Option<LinkHeader>,
    /// The neighbour is about to be asked whether it is still there. The cache is not good while that is so.
    pub(crate) in_doubt: bool,
}

const _: () = assert!(size_of::<RouteCache>() == 24);

impl RouteCache {
    /// No route yet, only what was known of the path when the routes were of this generation.
    pub fn as_of(generation: u32) -> RouteCache {
        RouteCache { generation: generation ^ 1, ..RouteCache::default() }
    }

    /// The port that it leaves by, if that is known for routes of this generation.
    #[inline]
    pub fn leaves_by(&self, generation: u32) -> Option<usize> {
        (self.generation == generation).then_some(usize::from(self.port))
    }

    /// Nothing is known of the way but the port.
    #[inline]
    pub fn by(port: u16) -> RouteCache {
        RouteCache { port, ..RouteCache::default() }
    }

    /// It is to be looked up again, as if routes had changed.
    #[cold]
    pub fn outdate(&mut self) {
        if self.generation != 0 {
            self.generation = self.generation.wrapping_sub(2) | 1;
        }
    }

    /// The port that it leaves by, as far as it was looked up; else the first.
    #[inline]
    pub fn port(&self) -> u16 {
        self.port
    }
}
