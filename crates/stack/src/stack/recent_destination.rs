//! Where the connections to a destination leave the stack: the interface that its route leads to, and the address of that
//! interface from which to send. A thread remembers it of the destination to which it opened last. Its next connection often
//! goes there as well, and searches neither the routes nor the addresses then.
//!
//! What was found is valid as long as the routes have the generation that they had before the search; each change of a route
//! or of an address ends it. What may never happen: an answer for another destination, or of an earlier generation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sync::{Atomic, Ordering, PerThread, Platform, Writers};

/// The interface by which connections to a destination leave, and their source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) interface: usize,
    pub(super) source: IpAddr,
}

/// The destination to which each thread opened last.
pub(super) struct RecentDestination<P: Platform> {
    threads: PerThread<LastDestination<P>, P>,
}

struct LastDestination<P: Platform> {
    writers: Writers,
    /// Of the routes; 0, which they never have: nothing is known.
    generation: P::AtomicU32,
    /// The number of the interface, and the family below it: 1 for IPv6.
    interface: P::AtomicU32,
    remote: [P::AtomicU64; 2],
    source: [P::AtomicU64; 2],
}

/// The bits of an address. Those of IPv4 may be those of an IPv6 address.
#[inline]
fn words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [0, address.to_bits().into()],
        IpAddr::V6(address) => [(address.to_bits() >> 64) as u64, address.to_bits() as u64],
    }
}

impl<P: Platform> LastDestination<P> {
    fn new(writers: Writers) -> Self {
        let words = || [P::AtomicU64::new(0), P::AtomicU64::new(0)];
        let (generation, interface) = (P::AtomicU32::new(0), P::AtomicU32::new(0));
        LastDestination { writers, generation, interface, remote: words(), source: words() }
    }
}

impl<P: Platform> Default for RecentDestination<P> {
    fn default() -> Self {
        RecentDestination { threads: PerThread::new(LastDestination::new) }
    }
}

impl<P: Platform> RecentDestination<P> {
    /// The interface by which connections to `remote` leave, if the calling thread knows it from when the routes were of this
    /// generation.
    #[inline]
    pub(super) fn interface(&self, remote: IpAddr, generation: u32) -> Option<usize> {
        let last = self.threads.here();
        let interface = last.interface.load(Ordering::Relaxed);
        let is_it = last.generation.load(Ordering::Relaxed) == generation
            && interface & 1 == u32::from(remote.is_ipv6())
            && last.remote.iter().zip(words(remote)).all(|(known, word)| known.load(Ordering::Relaxed) == word);
        is_it.then_some((interface >> 1) as usize)
    }

    /// The same of the source address.
    #[inline]
    pub(super) fn source(&self, remote: IpAddr, generation: u32) -> Option<IpAddr> {
        self.interface(remote, generation)?;
        let [high, low] = self.threads.here().source.each_ref().map(|word| word.load(Ordering::Relaxed));
        Some(match remote {
            IpAddr::V4(_) => Ipv4Addr::from_bits(low as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
        })
    }

    /// The calling thread has found this for `remote`, after it had read the generation of the routes.
    #[cold]
    pub(super) fn note(&self, remote: IpAddr, generation: u32, found: Departure) {
        let last = self.threads.here();
        let Departure { interface, source } = found;
        // Several threads would mix up theirs.
        if last.writers == Writers::Many || source.is_ipv6() != remote.is_ipv6() {
            return;
        }
        let store = |to: &[P::AtomicU64; 2], from| {
            to.iter().zip(words(from)).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        };
        store(&last.remote, remote);
        store(&last.source, source);
        last.interface.store((interface as u32) << 1 | u32::from(remote.is_ipv6()), Ordering::Relaxed);
        last.generation.store(generation, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    impl RecentDestination<Real> {
        fn recall(&self, remote: IpAddr, generation: u32) -> Option<Departure> {
            let interface = self.interface(remote, generation);
            let source = self.source(remote, generation);
            assert_eq!(interface.is_some(), source.is_some());
            Some(Departure { interface: interface?, source: source? })
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn what_is_known_of_a_destination_is_said_of_no_other_and_at_no_other_time() {
        let recent = RecentDestination::<Real>::default();
        let others = ["10.0.0.2", "10.0.0.3", "10.9.0.2", "::a00:2", "fd00::2", "fd00::3", "fd01::2", "fd00::1:0:0:2"];
        assert!(others.iter().all(|other| recent.recall(address(other), 3).is_none()), "nothing is known yet");
        for (remote, source) in [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00:1::1"), ("::a00:2", "::a00:1")] {
            let found = Departure { interface: 70_000, source: address(source) };
            recent.note(address(remote), 3, found);
            assert_eq!(recent.recall(address(remote), 3), Some(found), "{remote}");
            assert_eq!(recent.recall(address(remote), 5), None, "the routes have changed");
            let known = others.iter().filter(|other| recent.recall(address(other), 3).is_some());
            assert_eq!(known.copied().collect::<Vec<_>>(), [remote]);
        }
    }

    #[test]
    fn a_thread_knows_nothing_of_what_another_has_found() {
        let recent = RecentDestination::<Real>::default();
        recent.note(address("10.0.0.2"), 3, Departure { interface: 1, source: address("10.0.0.1") });
        let known = std::thread::scope(|scope| scope.spawn(|| recent.recall(address("10.0.0.2"), 3)).join());
        assert_eq!(known.expect("no panic"), None);
    }
}
