//! What the PCBs of the latest handshakes had in common, for the next one. Kept in each cell beside its half-open
//! connections.
//!
//! It is valid for one listener, since its options do not change, and for one version of the configuration. What may never
//! happen: a prototype that is used for another listener, or after a change.

use std::ptr;
use std::sync::{Arc, Weak};

use observe::Time;
use sync::Platform;
use tcp::handshake::ChildPrototype;
use tcp::{HalfOpen, ListenParams};

use crate::socket::ListenerShared;

/// After so many handshakes that a prototype does not serve, another one is made: peers of several kinds that alternate
/// would otherwise cost one for each handshake.
const PATIENCE: u8 = 8;

/// See the module documentation. Belongs to the thread that holds the cell.
pub(crate) struct RecentPrototype<P: Platform> {
    known: Option<Box<KnownPrototype<P>>>,
    /// Handshakes until the next one may be made.
    patience: u8,
}

struct KnownPrototype<P: Platform> {
    /// Its address is no other listener's as long as this exists.
    listener: Weak<ListenerShared<P>>,
    /// The address of the configuration. Versions are kept until the stack ends.
    config: usize,
    prototype: ChildPrototype,
}

impl<P: Platform> Default for RecentPrototype<P> {
    fn default() -> Self {
        RecentPrototype { known: None, patience: 0 }
    }
}

impl<P: Platform> RecentPrototype<P> {
    /// A prototype for the child of this half-open connection; `params` have the listener's own options.
    #[inline]
    pub(crate) fn of(
        &mut self,
        listener: &Arc<ListenerShared<P>>,
        half_open: &HalfOpen,
        params: &ListenParams<'_>,
        (config, now): (&tcp::Config, Time),
    ) -> Option<&ChildPrototype> {
        let serves = self.known.as_deref().is_some_and(|known| {
            ptr::eq(known.listener.as_ptr(), Arc::as_ptr(listener))
                && known.config == ptr::from_ref(config).addr()
                && known.prototype.serves(half_open)
        });
        if !serves && !self.renew(listener, half_open, params, (config, now)) {
            return None;
        }
        self.known.as_deref().map(|known| &known.prototype)
    }

    /// Makes another one, if that is due. False: there is none for this half-open connection.
    #[cold]
    #[inline(never)]
    fn renew(
        &mut self,
        listener: &Arc<ListenerShared<P>>,
        half_open: &HalfOpen,
        params: &ListenParams<'_>,
        (config, now): (&tcp::Config, Time),
    ) -> bool {
        if self.patience > 0 {
            self.patience -= 1;
            return false;
        }
        self.patience = PATIENCE;
        let made = ChildPrototype::of(half_open, params, config, now).map(|prototype| {
            let config = ptr::from_ref(config).addr();
            Box::new(KnownPrototype { listener: Arc::downgrade(listener), config, prototype })
        });
        let is_made = made.is_some();
        self.known = made.or_else(|| self.known.take());
        is_made
    }
}

#[cfg(test)]
mod tests {
    use observe::Counters;
    use pktbuf::PktBuf;
    use sync::Real;
    use tcp::{Config, ConnectionOptions, Isn, Outbox, Verify};
    use testbed::frames::Segment;
    use wire::SeqNumber;

    use super::*;
    use crate::alarm::Alarms;

    const NOW: Time = Time::from_secs(5);

    fn listener() -> Arc<ListenerShared<Real>> {
        let local = "10.0.0.1:80".parse().expect("an address");
        ListenerShared::new(local, (2, 3), ConnectionOptions::default(), Arc::new(Alarms::new(1)))
    }

    /// Whether there is a prototype for a handshake with this listener, over a path with this MSS.
    fn is_served(
        recent: &mut RecentPrototype<Real>,
        listener: &Arc<ListenerShared<Real>>,
        mss: u16,
        config: &Config,
    ) -> bool {
        let (local, remote) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let buffer = PktBuf::from_slice(&Segment::syn(4000, 80).bytes(remote, local)).expect("a buffer");
        let syn = tcp::Segment::parse(local.into(), remote.into(), buffer, Verify::Now).expect("a good segment");
        let params = ListenParams { mss, options: listener.options(), defer_accept: 0 };
        let (isn, counters) = (Isn { iss: SeqNumber(1), ts_offset: 2, flow_hash: Some(3) }, Counters::new());
        let out = &mut Outbox::new(config, &counters);
        let half_open = tcp::listen::syn_arrives(&params, &syn, isn, None, out, NOW).expect("it is a SYN");
        let known = recent.of(listener, &half_open, &params, (config, NOW));
        assert!(known.is_none_or(|prototype| prototype.serves(&half_open)));
        known.is_some()
    }

    /// The first handshake makes one. Others make another in its place only if they keep coming.
    #[test]
    fn a_prototype_is_for_one_kind_of_handshake_until_others_prevail() {
        let (mut recent, one, config) = (RecentPrototype::default(), listener(), Config::default());
        for _ in 0..2 * PATIENCE {
            assert!(is_served(&mut recent, &one, 1460, &config));
        }
        for _ in 0..PATIENCE {
            assert!(!is_served(&mut recent, &one, 1400, &config));
            assert!(is_served(&mut recent, &one, 1460, &config));
        }
        assert!(is_served(&mut recent, &one, 1400, &config));
        assert!(!is_served(&mut recent, &one, 1460, &config));
    }

    #[test]
    fn a_prototype_is_for_one_listener_and_one_version_of_the_configuration() {
        let (one, other) = (listener(), listener());
        let (config, changed) = (Config::default(), Config::default());
        for (listener, later) in [(&other, &config), (&one, &changed)] {
            let mut recent = RecentPrototype::default();
            assert!(is_served(&mut recent, &one, 1460, &config) && is_served(&mut recent, &one, 1460, &config));
            assert!(!is_served(&mut recent, listener, 1460, later));
        }
    }

    /// Another listener at the address of one that has gone would be taken for it.
    #[test]
    fn the_address_of_a_listener_that_has_gone_is_not_used_again() {
        let (mut recent, config) = (RecentPrototype::default(), Config::default());
        let gone = listener();
        let address = Arc::as_ptr(&gone).addr();
        assert!(is_served(&mut recent, &gone, 1460, &config));
        drop(gone);
        let later: Vec<_> = (0..100).map(|_| listener()).collect();
        assert!(later.iter().all(|listener| Arc::as_ptr(listener).addr() != address));
        assert!(!is_served(&mut recent, &later[0], 1460, &config));
    }
}
