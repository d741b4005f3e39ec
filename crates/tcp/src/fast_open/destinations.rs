//! A client's records about servers (RFC 7413 section 4.1.3): their cookies, their MSS, and whether the path seems to
//! drop SYNs with payload.
//!
//! What may never happen: memory that grows with the number of destinations.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use observe::Time;
use wire::tcp::{Cookie, FastOpen};

use super::{DestinationUpdate, Offer, OfferOutcome};
use crate::config::FastOpenMode;
use crate::mss;

/// Most destinations kept; the oldest is replaced first.
const DESTINATIONS: usize = 1024;
/// Most bytes of options on a SYN: the payload has the rest.
const OPTIONS: u16 = 40;
/// Limit of the doublings of the black-hole time-out.
const DOUBLINGS: u8 = 6;

#[derive(Clone, Copy, Default)]
struct Destination {
    cookie: Option<FastOpen>,
    mss: Option<u16>,
    /// Offers in a row that went unanswered.
    unanswered: u8,
    /// The path counts as a black hole until then: no offer before.
    black_hole_until: Time,
    form: CookieForm,
}

/// The form in which a cookie is requested from a destination.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum CookieForm {
    /// That of RFC 7413.
    #[default]
    Standard,
    /// It ignored that one: the experimental form, once.
    Experimental,
    /// It ignored both: the standard form from now on.
    Settled,
}

/// The cache of servers. The caller must have exclusive use.
#[derive(Default)]
pub struct Destinations {
    known: HashMap<IpAddr, Destination>,
    /// In the order in which they were learnt.
    order: VecDeque<IpAddr>,
}

impl Destinations {
    /// The Fast Open option and the amount of payload that an open towards `remote` may put on its SYN. `route_mss` is
    /// the MSS of the route.
    pub fn offer(&self, remote: IpAddr, route_mss: u16, mode: FastOpenMode, now: Time) -> Offer {
        if !mode.has(FastOpenMode::CLIENT) {
            return Offer::default();
        }
        let known = self.known.get(&remote).copied().unwrap_or_default();
        if now < known.black_hole_until {
            return Offer::default();
        }
        let payload = |default: u16| known.mss.unwrap_or(default).min(route_mss).saturating_sub(OPTIONS);
        match known.cookie {
            // RFC 7413 section 4.1.3: without a cached MSS, that of RFC 9293.
            Some(_) => Offer { option: known.cookie, max_data: payload(mss::default_for(remote)) },
            // A user that disables cookies knows the servers and the paths to them.
            None if mode.has(FastOpenMode::CLIENT_WITHOUT_COOKIE) => {
                Offer { option: None, max_data: payload(route_mss) }
            }
            None => {
                let experimental = known.form == CookieForm::Experimental;
                Offer { option: Some(FastOpen { cookie: Cookie::REQUEST, experimental }), max_data: 0 }
            }
        }
    }

    /// A connection has learnt something about `remote`. After an unanswered offer none is made for
    /// `black_hole_timeout`, which doubles each further time (RFC 7413 section 4.1.3.1).
    pub fn learn(&mut self, remote: IpAddr, update: &DestinationUpdate, black_hole_timeout: Duration, now: Time) {
        let entry = self.entry(remote);
        entry.cookie = update.cookie.or(entry.cookie);
        entry.mss = update.mss.or(entry.mss);
        match update.outcome {
            OfferOutcome::Taken => entry.unanswered = 0,
            OfferOutcome::Answered => {}
            OfferOutcome::Ignored { experimental: false } if entry.form == CookieForm::Standard => {
                entry.form = CookieForm::Experimental;
            }
            OfferOutcome::Ignored { .. } => entry.form = CookieForm::Settled,
            OfferOutcome::Silent => {
                entry.black_hole_until = now + black_hole_timeout * (1 << entry.unanswered);
                entry.unanswered = (entry.unanswered + 1).min(DOUBLINGS);
            }
        }
    }

    /// The entry of `remote`; a new one replaces the oldest destination if the table is full.
    fn entry(&mut self, remote: IpAddr) -> &mut Destination {
        if !self.known.contains_key(&remote) {
            if self.order.len() >= DESTINATIONS
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
            self.order.push_back(remote);
        }
        self.known.entry(remote).or_default()
    }

    /// Number of destinations kept.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
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

    const TIMEOUT: Duration = Duration::from_secs(60);
    const CLIENT: FastOpenMode = FastOpenMode(FastOpenMode::CLIENT);

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut known = Destinations::default();
        let last = 3 * DESTINATIONS as u32;
        for n in 0..=last {
            let update = DestinationUpdate { cookie: cookie(n), mss: None, outcome: OfferOutcome::Answered };
            known.learn(address(n), &update, TIMEOUT, Time::ZERO);
        }
        assert_eq!((known.len(), known.known.len()), (DESTINATIONS, DESTINATIONS));
        let offer = |n| known.offer(address(n), 1460, CLIENT, Time::ZERO);
        assert_eq!(offer(last), Offer { option: cookie(last), max_data: 496 });
        assert!(offer(0).option.is_some_and(|option| option.cookie.is_request()), "the first was forgotten");
    }

    #[test]
    fn a_path_is_taken_for_a_black_hole_for_longer_each_time() {
        let known = std::cell::RefCell::new(Destinations::default());
        let learn = |outcome, now| {
            let update = DestinationUpdate { cookie: cookie(1), mss: Some(1400), outcome };
            known.borrow_mut().learn(address(1), &update, TIMEOUT, now);
        };
        let offers = |now| known.borrow().offer(address(1), 1460, CLIENT, now) != Offer::default();
        let mut now = Time::from_secs(1);
        for wait in [60, 120, 240, 480, 960, 1920, 3840, 3840] {
            learn(OfferOutcome::Silent, now);
            assert!(!offers(now + Duration::from_secs(wait - 1)), "{wait}");
            now += Duration::from_secs(wait);
            assert!(offers(now), "{wait}");
        }
        learn(OfferOutcome::Taken, now);
        learn(OfferOutcome::Silent, now);
        assert!(offers(now + Duration::from_secs(60)), "what works is not suspected for long");
        assert_eq!(known.borrow().offer(address(1), 1460, FastOpenMode(0), now), Offer::default());
    }

    #[test]
    fn a_server_that_ignores_a_request_is_asked_once_in_the_experimental_form() {
        let mut known = Destinations::default();
        let mut form = || {
            let option = known.offer(address(1), 1460, CLIENT, Time::ZERO).option.expect("a request");
            let outcome = OfferOutcome::Ignored { experimental: option.experimental };
            known.learn(address(1), &DestinationUpdate { cookie: None, mss: Some(1400), outcome }, TIMEOUT, Time::ZERO);
            option.experimental
        };
        assert_eq!([form(), form(), form(), form()], [false, true, false, false]);
    }
}
