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
/// The penance of a destination that let SYNs with an offer go unanswered doubles so often at most.
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
    form: Form,
}

/// In which form a destination without a cookie is asked for one.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    /// That of RFC 7413.
    #[default]
    Standard,
    /// It did not understand that one: the experimental form, once.
    Experimental,
    /// It understood neither: the standard one from now on.
    Settled,
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
        let text = |default: u16| known.mss.unwrap_or(default).min(mss).saturating_sub(OPTIONS);
        match known.cookie {
            // RFC 7413 section 4.1.3: without a cached MSS, that of RFC 9293.
            Some(_) => Offer { option: known.cookie, max_text: text(if remote.is_ipv4() { 536 } else { 1220 }) },
            // Who wants no cookies knows the servers and the paths to them.
            None if mode.has(FastOpenMode::CLIENT_WITHOUT_COOKIE) => Offer { option: None, max_text: text(mss) },
            None => {
                let experimental = known.form == Form::Experimental;
                Offer { option: Some(FastOpen { cookie: Cookie::REQUEST, experimental }), max_text: 0 }
            }
        }
    }

    /// Forgets everything.
    pub fn forget(&self) {
        *self.known.lock() = Known::default();
    }

    /// A connection has learnt something of `remote`. Silence is answered by silence for `penance`, and for twice as long
    /// each further time.
    pub fn learn(&self, remote: IpAddr, news: &News, penance: Duration, now: Time) {
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
            Outcome::Ignored { experimental: false } if entry.form == Form::Standard => {
                entry.form = Form::Experimental;
            }
            Outcome::Ignored { .. } => entry.form = Form::Settled,
            Outcome::Silent => {
                entry.penance = now + penance * (1 << entry.silences);
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
        let keys = listener.fast_open_keys().unwrap_or(self.tcp().fast_open_keys);
        let cookie = |key: [u8; 16]| FastOpen { cookie: cookie_of(&syn.tuple, &key), ..option };
        let current = cookie(keys.primary.unwrap_or(*self.secrets.fast_open_key()));
        if option == current {
            open(None)
        } else if keys.backup.is_some_and(|key| option == cookie(key)) {
            open(Some(current))
        } else {
            Verdict::Cookie(current)
        }
    }
}

/// The cookie of the client at the other end of `tuple`. Both addresses count, so that no other server's cookies are good
/// here; ports do not. It is the one that Linux makes of the same key, so that servers of both kinds behind one address
/// understand each other's.
fn cookie_of(tuple: &FourTuple, key: &[u8; 16]) -> Cookie {
    let hash = secrets::hash_addresses(key, tuple.remote_addr, tuple.local_addr);
    Cookie::new(&hash.to_le_bytes()).unwrap_or_default()
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

    const PENANCE: Duration = Duration::from_secs(60);
    const CLIENT: FastOpenMode = FastOpenMode(FastOpenMode::CLIENT);

    #[test]
    fn what_is_remembered_is_bounded() {
        let known = Destinations::<sync::Real>::default();
        let last = 3 * DESTINATIONS as u32;
        for n in 0..=last {
            known.learn(
                address(n),
                &News { cookie: cookie(n), mss: None, outcome: Outcome::Answered },
                PENANCE,
                Time::ZERO,
            );
        }
        assert_eq!(known.len(), DESTINATIONS);
        let offer = |n| known.offer(address(n), 1460, CLIENT, Time::ZERO);
        assert_eq!(offer(last), Offer { option: cookie(last), max_text: 496 });
        assert!(offer(0).option.is_some_and(|option| option.cookie.is_request()), "the first was forgotten");
    }

    #[test]
    fn silence_is_answered_by_silence_for_longer_each_time() {
        let known = Destinations::<sync::Real>::default();
        let learn = |outcome, now| {
            known.learn(address(1), &News { cookie: cookie(1), mss: Some(1400), outcome }, PENANCE, now);
        };
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
    #[test]
    fn a_server_that_ignores_a_request_is_asked_once_in_the_experimental_form() {
        let known = Destinations::<sync::Real>::default();
        let form = || {
            let option = known.offer(address(1), 1460, CLIENT, Time::ZERO).option.expect("a request");
            let outcome = Outcome::Ignored { experimental: option.experimental };
            known.learn(address(1), &News { cookie: None, mss: Some(1400), outcome }, PENANCE, Time::ZERO);
            option.experimental
        };
        assert_eq!([form(), form(), form(), form()], [false, true, false, false]);
        known.forget();
        assert_eq!((known.len(), form()), (0, false));
    }

    /// Made by Linux 6 of the same keys and addresses.
    #[test]
    fn cookies_are_those_of_linux() {
        let tuple = |remote: &str, local: &str| FourTuple {
            local_addr: local.parse().unwrap(),
            remote_addr: remote.parse().unwrap(),
            local_port: 80,
            remote_port: 4000,
        };
        let key: [u8; 16] = std::array::from_fn(|n| [0xa1, 0xb2, 0xc3, 0xd4][n / 4]);
        let v4 = cookie_of(&tuple("192.0.2.1", "192.168.0.1"), &key);
        assert_eq!(v4.as_slice(), 0x3021_b9d8_8901_7eeb_u64.to_be_bytes());
        let v6 = cookie_of(&tuple("fd3d:fa7b:d17d::1", "fd3d:a0b:17d6::1"), &key);
        assert_eq!(v6.as_slice(), 0xc1d1_e974_2a47_a9bc_u64.to_be_bytes());
    }
}
