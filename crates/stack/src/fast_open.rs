//! The Fast Open cache of servers, behind a lock of its own. Only an active open with payload takes the lock, and a
//! connection that has learnt about its server. Any thread. [`tcp::fast_open::Destinations`] defines the contents and
//! their lifetime.

use std::net::IpAddr;
use std::time::Duration;

use observe::Time;
use sync::{Lock, LockClass, LockKind, Platform};
use tcp::config::FastOpenMode;
use tcp::fast_open::{DestinationUpdate, Offer};

/// The cache of servers.
pub struct SharedDestinations<P: Platform> {
    known: Lock<tcp::fast_open::Destinations, P>,
}

impl<P: Platform> Default for SharedDestinations<P> {
    fn default() -> Self {
        let known = tcp::fast_open::Destinations::default();
        SharedDestinations { known: Lock::new(LockKind::Blocking, LockClass::Destinations, known) }
    }
}

impl<P: Platform> SharedDestinations<P> {
    /// What an open with payload may put on its SYN to `remote`. `mss` is that of the route.
    pub fn offer(&self, remote: IpAddr, mss: u16, mode: FastOpenMode, now: Time) -> Offer {
        self.known.lock().offer(remote, mss, mode, now)
    }

    /// A connection has learnt something of `remote`; see [`tcp::fast_open::Destinations::learn`].
    pub fn learn(&self, remote: IpAddr, update: &DestinationUpdate, black_hole_timeout: Duration, now: Time) {
        self.known.lock().learn(remote, update, black_hole_timeout, now);
    }

    /// Forgets everything.
    pub fn forget(&self) {
        *self.known.lock() = tcp::fast_open::Destinations::default();
    }
}
