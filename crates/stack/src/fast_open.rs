//! Fast Open (RFC 7413) outside a connection: cookies for clients, and what is remembered of servers.
//!
//! A cookie is a keyed hash of both addresses; nothing is remembered of clients. Of servers a bounded number of
//! destinations is: their cookies, their MSS, and whether SYNs with text seem to vanish on the way to them. Any thread.
//! What may never happen: memory that grows with the number of destinations.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use observe::Time;
use sync::{Lock, LockClass, LockKind, Platform};
use tcp::config::FastOpenMode;
use tcp::fast_open::{News, Offer, Outcome};
use wire::FourTuple;
use wire::tcp::{Cookie, FastOpen};

use crate::secrets;
use crate::shared::Shared;
use crate::socket::ListenerShared;

/// Destinations remembered; the one that was learnt first makes way.
const DESTINATIONS: usize = 1024;
/// Octets of options on a SYN at most: text has what remains.
const OPTIONS: u16 = 40;
/// A destination that let a SYN with an offer go unanswered gets none for so long, and twice as long each further time.
const FIRST_PENANCE: Duration = Duration::from_secs(60);
/// Doublings of that at most: a little more than an hour.
const DOUBLINGS: u8 = 6;

/// What a listener makes of a SYN.
pub(crate) enum Verdict {
    /// A SYN like any other.
    Plain,
    /// The client gets this cookie, and its text is not taken.
    Cookie(FastOpen),
    /// The connection opens at once, and counts against the listener's limit; perhaps with a new cookie for the client.
    Open(Option<FastOpen>),
}

#[derive(Clone, Copy, Default)]
struct Destination {
    cookie: Option<FastOpen>,
    mss: Option<u16>,
    /// Offers in a row that went unanswered.
    silences: u8,
    /// No offer before.
    penance: Time,
}

#[derive(Default)]
struct Known {
    destinations: HashMap<IpAddr, Destination>,
    /// In the order in which they were learnt.
    order: VecDeque<IpAddr>,
}

/// What is remembered of servers.
pub struct Destinations<P: Platform> {
    known: Lock<Known, P>,
}

impl<P: Platform> Default for Destinations<P> {
    fn default() -> Self {
        Destinations { known: Lock::new(LockKind::Blocking, LockClass::Destinations, Known::default()) }
    }
}

impl<P: Platform> Destinations<P> {
    /// What an open with text towards `remote` may put on its SYN, `mss` being what the route carries.
    pub fn offer(&self, remote: IpAddr, mss: u16, mode: FastOpenMode, now: Time) -> Offer {
        if !mode.has(FastOpenMode::CLIENT) {
            return Offer::default();
        }
        let known = self.known.lock().destinations.get(&remote).copied().unwrap_or_default();
        if now < known.penance {
            return Offer::default();
        }
        // RFC 7413 section 4.1.3: without a cached MSS, that of RFC 9293.
        let default = if remote.is_ipv4() { 536 } else { 1220 };
        let max_text = known.mss.unwrap_or(default).min(mss).saturating_sub(OPTIONS);
        match known.cookie {
            Some(_) => Offer { option: known.cookie, max_text },
            None if mode.has(FastOpenMode::CLIENT_WITHOUT_COOKIE) => Offer { option: None, max_text },
            None => Offer { option: Some(FastOpen { cookie: Cookie::REQUEST, experimental: false }), max_text: 0 },
        }
    }

    /// A connection has learnt something of `remote`.
    pub fn learn(&self, remote: IpAddr, news: &News, now: Time) {
        let mut known = self.known.lock();
        let Known { destinations, order } = &mut *known;
        if !destinations.contains_key(&remote) {
            if order.len() >= DESTINATIONS
                && let Some(oldest) = order.pop_front()
            {
                destinations.remove(&oldest);
            }
            order.push_back(remote);
        }
        let entry = destinations.entry(remote).or_default();
        entry.cookie = news.cookie.or(entry.cookie);
        entry.mss = news.mss.or(entry.mss);
        match news.outcome {
            Outcome::Taken => entry.silences = 0,
            Outcome::Answered => {}
            Outcome::Silent => {
                entry.penance = now + FIRST_PENANCE * (1 << entry.silences);
                entry.silences = (entry.silences + 1).min(DOUBLINGS);
            }
        }
    }

    /// Destinations remembered.
    pub fn len(&self) -> usize {
        self.known.lock().order.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<P: Platform> Shared<P> {
    /// What `listener`, which has admitted the handshake, makes of `syn`. On [`Verdict::Open`] one place of its limit is
    /// taken.
    pub(crate) fn judge_fast_open(&self, listener: &ListenerShared<P>, syn: &tcp::Segment, now: Time) -> Verdict {
        let mode = self.tcp().fast_open;
        let limit = listener.fast_open_limit(mode);
        if limit == 0 {
            return Verdict::Plain;
        }
        let option = syn.rare_options().fast_open;
        let open = |cookie| if listener.admit_fast_open(limit, now) { Verdict::Open(cookie) } else { Verdict::Plain };
        if mode.has(FastOpenMode::SERVER_WITHOUT_COOKIE) && !syn.text.is_empty() {
            return open(None);
        }
        let Some(option) = option else { return Verdict::Plain };
        let keys = self.tcp().fast_open_keys;
        let cookie = |key: [u8; 16]| FastOpen { cookie: self.fast_open_cookie(&syn.tuple, &key), ..option };
        let current = cookie(keys.primary.unwrap_or(*self.secrets.fast_open_key()));
        if option == current {
            open(None)
        } else if keys.backup.is_some_and(|key| option == cookie(key)) {
            open(Some(current))
        } else {
            Verdict::Cookie(current)
        }
    }

    /// The cookie of the client at the other end of `tuple`. Both addresses count, so that no other server's cookies are
    /// good here; ports do not.
    fn fast_open_cookie(&self, tuple: &FourTuple, key: &[u8; 16]) -> Cookie {
        let hash = secrets::hash_addresses(key, tuple.remote_addr, tuple.local_addr);
        Cookie::new(&hash.to_be_bytes()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(n).into()
    }

    fn cookie(n: u32) -> Option<FastOpen> {
        Some(FastOpen { cookie: Cookie::new(&n.to_be_bytes()).unwrap(), experimental: false })
    }

    const CLIENT: FastOpenMode = FastOpenMode(FastOpenMode::CLIENT);

    #[test]
    fn what_is_remembered_is_bounded() {
        let known = Destinations::<sync::Real>::default();
        let last = 3 * DESTINATIONS as u32;
        for n in 0..=last {
            known.learn(address(n), &News { cookie: cookie(n), mss: None, outcome: Outcome::Answered }, Time::ZERO);
        }
        assert_eq!(known.len(), DESTINATIONS);
        let offer = |n| known.offer(address(n), 1460, CLIENT, Time::ZERO);
        assert_eq!(offer(last), Offer { option: cookie(last), max_text: 496 });
        assert!(offer(0).option.is_some_and(|option| option.cookie.is_request()), "the first was forgotten");
    }

    #[test]
    fn silence_is_answered_by_silence_for_longer_each_time() {
        let known = Destinations::<sync::Real>::default();
        let learn = |outcome, now| known.learn(address(1), &News { cookie: cookie(1), mss: Some(1400), outcome }, now);
        let offers = |now| known.offer(address(1), 1460, CLIENT, now) != Offer::default();
        let mut now = Time::from_secs(1);
        for wait in [60, 120, 240, 480, 960, 1920, 3840, 3840] {
            learn(Outcome::Silent, now);
            assert!(!offers(now + Duration::from_secs(wait - 1)), "{wait}");
            now += Duration::from_secs(wait);
            assert!(offers(now), "{wait}");
        }
        learn(Outcome::Taken, now);
        learn(Outcome::Silent, now);
        assert!(offers(now + Duration::from_secs(60)), "what works is not suspected for long");
        assert_eq!(known.offer(address(1), 1460, FastOpenMode(0), now), Offer::default());
    }
}
