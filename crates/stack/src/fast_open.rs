//! The Fast Open cache of servers, behind a lock of its own. Only an active open with payload takes the lock, and a
//! connection that has learnt about its server. Any thread. [`tcp::fast_open::Destinations`] defines the contents and
//! their lifetime.

use std::net::IpAddr;
use std::time::Duration;

use observe::Time;
use sync::{ClaimLock, LockClass, LockKind, Platform};
use tcp::config::FastOpenMode;
use tcp::fast_open::{DestinationUpdate, Offer};

/// The cache of servers.
pub struct SharedDestinations<P: Platform> {
    known: ClaimLock<tcp::fast_open::Destinations, P>,
}

impl<P: Platform> Default for SharedDestinations<P> {
    fn default() -> Self {
        let known = tcp::fast_open::Destinations::default();
        SharedDestinations { known: ClaimLock::new(LockKind::Blocking, LockClass::Destinations, known) }
    }
}

impl<P: Platform> SharedDestinations<P> {
    /// The Fast Open option and the amount of payload that an open may put on its SYN to `remote`. `mss` is that of the
    /// route.
    pub fn offer(&self, remote: IpAddr, mss: u16, mode: FastOpenMode, now: Time) -> Offer {
        self.known.hold().offer(remote, mss, mode, now)
    }

    /// A connection has learnt something of `remote`; see [`tcp::fast_open::Destinations::learn`].
    pub fn learn(&self, remote: IpAddr, update: &DestinationUpdate, black_hole_timeout: Duration, now: Time) {
        self.known.hold().learn(remote, update, black_hole_timeout, now);
    }

    /// The calling thread uses the cache without a lock from now on; see [`Shared::claim`](crate::Shared::claim).
    pub(crate) fn claim(&self) {
        self.known.claim();
    }

    /// Ends the calling thread's claim, if it has one.
    pub(crate) fn release_claim(&self) {
        self.known.release_claim();
    }

    /// Forgets everything.
    pub fn forget(&self) {
        *self.known.hold() = tcp::fast_open::Destinations::default();
    }
}
