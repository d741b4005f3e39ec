//! Selection of a port for an active open or a bind to port 0.
//!
//! Ephemeral ports follow RFC 6056, algorithm 3: the search begins at a keyed hash of the destination plus a counter,
//! so that an observer of one destination learns nothing about another. Whether a tuple is free is not decided here:
//! the cell that would hold it refuses it, and the next candidate is tried. Wildcard binds are reserved here, so that
//! two listeners cannot take one address.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use sync::{Atomic, Lock, LockClass, LockKind, Ordering, PerThread, Platform, Writers};

use crate::secrets::Secrets;

/// First and last ephemeral port (RFC 6335, dynamic ports).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49152..=65535;
/// When all dynamic ports towards a destination are taken, the registered ones from here on are tried.
const EXTENDED: u16 = 1024;

/// Transport protocols have separate port spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The counter of RFC 6056 that a search uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortCounter {
    /// The stack's: threads that take the same ports do not try what another one has just taken.
    OfAll,
    /// The calling thread's, for one that passes over the ports of all other threads: no two threads write it.
    OfThread,
}

/// The ports of one stack. Any thread.
pub struct PortNumbers<P: Platform> {
    bound: Lock<HashSet<(Transport, IpAddr, u16)>, P>,
    counter: P::AtomicU32,
    /// Of active opens.
    recent: PerThread<RecentOffset<P>, P>,
}

/// Where the search for a port towards one destination begins: that to which the thread opened last. Its next connection often
/// goes there as well, and needs no keyed hash then.
struct RecentOffset<P: Platform> {
    writers: Writers,
    /// The RFC's counter of this thread, for ports that only it takes.
    counter: P::AtomicU32,
    /// See [`words`]; all are 0 at first, which is no destination.
    words: [P::AtomicU64; 5],
    offset: P::AtomicU32,
}

/// The addresses of a destination as words, and its port with the family's number.
#[inline]
fn words(local: IpAddr, remote: SocketAddr) -> [u64; 5] {
    let port = u64::from(remote.port());
    match (local, remote.ip()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            [4 << 16 | port, u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()), 0, 0, 0]
        }
        (local, remote) => {
            let bits = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                IpAddr::V6(address) => address.to_bits(),
            };
            let (local, remote) = (bits(local), bits(remote));
            [6 << 16 | port, local as u64, (local >> 64) as u64, remote as u64, (remote >> 64) as u64]
        }
    }
}

impl<P: Platform> RecentOffset<P> {
    fn new(writers: Writers) -> Self {
        let words = std::array::from_fn(|_| P::AtomicU64::new(0));
        RecentOffset { writers, counter: P::AtomicU32::new(0), words, offset: P::AtomicU32::new(0) }
    }

    /// Adds to the counter, and returns its value before that.
    #[inline]
    fn count(&self, by: u32) -> u32 {
        match self.writers {
            Writers::One => {
                let before = self.counter.load(Ordering::Relaxed);
                self.counter.store(before.wrapping_add(by), Ordering::Relaxed);
                before
            }
            Writers::Many => self.counter.fetch_add(by, Ordering::Relaxed),
        }
    }

    /// The offset towards this destination, computed by `compute` unless it is the same as the last time.
    #[inline]
    fn towards(&self, words: [u64; 5], compute: impl FnOnce() -> u32) -> u32 {
        let known = self.words.iter().zip(words).all(|(known, word)| known.load(Ordering::Relaxed) == word);
        if known { self.offset.load(Ordering::Relaxed) } else { self.note(words, compute()) }
    }

    #[cold]
    fn note(&self, words: [u64; 5], offset: u32) -> u32 {
        // Several threads would mix up theirs.
        if self.writers == Writers::One {
            self.words.iter().zip(words).for_each(|(known, word)| known.store(word, Ordering::Relaxed));
            self.offset.store(offset, Ordering::Relaxed);
        }
        offset
    }
}

impl<P: Platform> Default for PortNumbers<P> {
    fn default() -> Self {
        PortNumbers {
            bound: Lock::new(LockKind::Blocking, LockClass::Control, HashSet::new()),
            counter: P::AtomicU32::new(0),
            recent: PerThread::new(RecentOffset::new),
        }
    }
}

impl<P: Platform> PortNumbers<P> {
    /// Candidate local ports for a connection to `remote`, each at most once: the dynamic range in a random rotation,
    /// then the registered one.
    #[inline]
    pub fn candidates(
        &self,
        secrets: &Secrets,
        (local, remote): (IpAddr, SocketAddr),
        counter: PortCounter,
    ) -> PortCandidates {
        let compute = || secrets.port_offset(local, remote.ip(), remote.port());
        let offset = self.recent.here().towards(words(local, remote), compute);
        PortCandidates { start: offset.wrapping_add(self.count(1, counter)), tried: 0 }
    }

    /// Records how many candidates were skipped before one was free. The next search begins after them, like the RFC's
    /// counter; otherwise every later search would try the same taken ports again.
    pub fn passed_over(&self, candidates: u32, counter: PortCounter) {
        if candidates > 0 {
            self.count(candidates, counter);
        }
    }

    #[inline]
    fn count(&self, by: u32, counter: PortCounter) -> u32 {
        match counter {
            PortCounter::OfAll => self.counter.fetch_add(by, Ordering::Relaxed),
            PortCounter::OfThread => self.recent.here().count(by),
        }
    }

    /// Reserves `address` (port 0: any free port) for a bound socket.
    ///
    /// # Errors
    /// The port is taken, or none is free.
    pub fn bind(&self, transport: Transport, secrets: &Secrets, address: SocketAddr) -> Result<SocketAddr, PortInUse> {
        let mut bound = self.bound.lock();
        let mut free = |port: u16| {
            let clash = bound.iter().any(|(t, ip, p)| *t == transport && *p == port && overlap(*ip, address.ip()));
            !clash && bound.insert((transport, address.ip(), port))
        };
        if address.port() != 0 {
            return if free(address.port()) { Ok(address) } else { Err(PortInUse) };
        }
        let start = secrets.port_offset(address.ip(), address.ip(), 0);
        let start = start.wrapping_add(self.counter.fetch_add(1, Ordering::Relaxed));
        let port = rotate(*EPHEMERAL.start(), *EPHEMERAL.end(), start).find(|port| free(*port)).ok_or(PortInUse)?;
        Ok(SocketAddr::new(address.ip(), port))
    }

    /// Gives a reservation back.
    pub fn release(&self, transport: Transport, address: SocketAddr) {
        self.bound.lock().remove(&(transport, address.ip(), address.port()));
    }

    /// The number of reservations.
    pub fn bound(&self) -> usize {
        self.bound.lock().len()
    }
}

/// The port is reserved by another socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInUse;

/// Whether sockets bound to two addresses on one port would compete for a segment.
fn overlap(one: IpAddr, other: IpAddr) -> bool {
    if one == other {
        return true;
    }
    match (one.is_unspecified(), other.is_unspecified()) {
        (false, false) => false,
        // `[::]` takes both families, `0.0.0.0` only its own.
        (true, _) if one.is_ipv6() => true,
        (_, true) if other.is_ipv6() => true,
        _ => one.is_ipv4() == other.is_ipv4(),
    }
}

fn rotate(first: u16, last: u16, start: u32) -> impl Iterator<Item = u16> {
    (0..ports_in(first, last)).map(move |n| rotated(first, last, start, n))
}

/// How many ports there are from `first` to `last`.
#[inline(always)]
const fn ports_in(first: u16, last: u16) -> u32 {
    (last - first) as u32 + 1
}

/// Port number `n` of those from `first` to `last`, in the order that begins at `start`.
#[inline(always)]
fn rotated(first: u16, last: u16, start: u32, n: u32) -> u16 {
    let count = ports_in(first, last);
    first + ((start % count + n) % count) as u16
}

/// See [`PortNumbers::candidates`].
pub struct PortCandidates {
    start: u32,
    tried: u32,
}

impl Iterator for PortCandidates {
    type Item = u16;

    #[inline(always)]
    fn next(&mut self) -> Option<u16> {
        const DYNAMIC: u32 = ports_in(*EPHEMERAL.start(), *EPHEMERAL.end());
        let n = self.tried;
        if n < DYNAMIC {
            self.tried += 1;
            return Some(rotated(*EPHEMERAL.start(), *EPHEMERAL.end(), self.start, n));
        }
        self.next_registered(n - DYNAMIC)
    }
}

impl PortCandidates {
    /// Registered port number `n`.
    #[cold]
    fn next_registered(&mut self, n: u32) -> Option<u16> {
        let (first, last) = (EXTENDED, *EPHEMERAL.start() - 1);
        (n < ports_in(first, last)).then(|| {
            self.tried += 1;
            rotated(first, last, self.start, n)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sync::Real;

    #[test]
    fn candidates_cover_every_port_once() {
        let ports = PortNumbers::<Real>::default();
        let remote = "10.0.0.2:80".parse().unwrap();
        let seen: Vec<u16> = ports
            .candidates(&Secrets::from_seed(3), ("10.0.0.1".parse().unwrap(), remote), PortCounter::OfAll)
            .collect();
        let distinct: HashSet<u16> = seen.iter().copied().collect();
        assert_eq!(seen.len(), distinct.len());
        assert_eq!(seen.len(), 65536 - 1024);
        assert!(EPHEMERAL.contains(&seen[0]));
    }

    #[test]
    fn a_search_begins_behind_what_the_last_one_passed_over() {
        let ports = PortNumbers::<Real>::default();
        let remote = "10.0.0.2:80".parse().unwrap();
        let secrets = Secrets::from_seed(3);
        let ends = ("10.0.0.1".parse().unwrap(), remote);
        for counter in [PortCounter::OfAll, PortCounter::OfThread] {
            let search = || ports.candidates(&secrets, ends, counter);
            let taken = search().nth(48);
            ports.passed_over(48, counter);
            assert_eq!(search().next(), search_after(taken), "one port on, and none of the 48 again");
        }
        let next = |counter| ports.candidates(&secrets, ends, counter).next();
        let of_thread = next(PortCounter::OfThread);
        next(PortCounter::OfAll);
        std::thread::scope(|scope| _ = scope.spawn(|| next(PortCounter::OfThread)));
        assert_eq!(next(PortCounter::OfThread), search_after(of_thread), "what others count does not move it");
    }

    /// What a thread remembers of its last destination serves that one only.
    #[test]
    fn every_destination_has_an_offset_of_its_own() {
        let ports = PortNumbers::<Real>::default();
        let secrets = Secrets::from_seed(3);
        let ends = [
            ("10.0.0.1", "10.0.0.2:80"),
            ("10.0.0.1", "10.0.0.2:80"),
            ("10.0.0.1", "10.0.0.2:81"),
            ("10.0.0.1", "10.0.0.3:81"),
            ("10.0.0.9", "10.0.0.3:81"),
            ("fd00::1", "[fd00::2]:81"),
            ("fd00::1", "[fd00::2]:80"),
            ("fd00::1", "[fd01::2]:80"),
            ("fd00::1", "[fd01::3]:80"),
            ("fd00::9", "[fd01::3]:80"),
            ("fd09::9", "[fd01::3]:80"),
            ("::a00:1", "[::a00:2]:80"),
        ];
        for (searches, (local, remote)) in (0..).zip(ends) {
            let (local, remote): (IpAddr, SocketAddr) = (local.parse().unwrap(), remote.parse().unwrap());
            let start = secrets.port_offset(local, remote.ip(), remote.port()).wrapping_add(searches);
            let first = rotate(*EPHEMERAL.start(), *EPHEMERAL.end(), start).next();
            let candidate = ports.candidates(&secrets, (local, remote), PortCounter::OfAll).next();
            assert_eq!(candidate, first, "{local} to {remote}");
        }
    }

    fn search_after(port: Option<u16>) -> Option<u16> {
        port.map(|port| if port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 })
    }

    #[test]
    fn wildcards_exclude_exact_addresses_and_the_other_way_round() {
        let ports = PortNumbers::<Real>::default();
        let secrets = Secrets::from_seed(3);
        let bind = |address: &str| ports.bind(Transport::Tcp, &secrets, address.parse().unwrap());
        assert!(bind("10.0.0.1:80").is_ok());
        assert!(bind("10.0.0.2:80").is_ok());
        assert_eq!(bind("0.0.0.0:80"), Err(PortInUse));
        assert!(bind("[::]:81").is_ok());
        assert_eq!(bind("10.0.0.1:81"), Err(PortInUse));
        assert!(ports.bind(Transport::Udp, &secrets, "10.0.0.1:80".parse().unwrap()).is_ok());
        ports.release(Transport::Tcp, "10.0.0.1:80".parse().unwrap());
        assert!(bind("10.0.0.1:80").is_ok());
        let any = bind("10.0.0.1:0").unwrap();
        assert!(EPHEMERAL.contains(&any.port()));
    }
}
