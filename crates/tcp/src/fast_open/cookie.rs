//! The cookies of a server (RFC 7413 section 4.1.2), and the answer to a SYN with a cookie or a request for one.
//!
//! A cookie is a keyed hash of both addresses; no state is kept per client.

use core::hash::Hasher;
use core::net::IpAddr;

use siphasher::sip::SipHasher24;
use wire::FourTuple;
use wire::tcp::{Cookie, FastOpen};

use crate::config::{FastOpenKeys, FastOpenMode};
use crate::segment::Segment;

/// The keys that make and check the cookies of a listener.
#[derive(Clone, Copy)]
pub struct CookieKeys {
    primary: [u8; 16],
    backup: Option<[u8; 16]>,
}

/// The decision about a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieDecision {
    /// A SYN like any other.
    Regular,
    /// The client gets this cookie, and its payload is not accepted.
    Cookie(FastOpen),
    /// The connection opens at once, and the client perhaps gets a new cookie.
    Open(Option<FastOpen>),
}

impl CookieKeys {
    /// The configured keys `set`, with `drawn` as the primary one if none is set.
    pub fn new(set: FastOpenKeys, drawn: &[u8; 16]) -> Self {
        CookieKeys { primary: set.primary.unwrap_or(*drawn), backup: set.backup }
    }

    /// Decides about `syn`. A cookie made with the backup key is accepted, and replaced.
    pub(crate) fn classify(&self, syn: &Segment, mode: FastOpenMode) -> CookieDecision {
        if mode.has(FastOpenMode::SERVER_WITHOUT_COOKIE) && !syn.data.is_empty() {
            return CookieDecision::Open(None);
        }
        let Some(shown) = syn.rare_options().fast_open else { return CookieDecision::Regular };
        let cookie = |key: &[u8; 16]| FastOpen { cookie: cookie_of(&syn.tuple, key), ..shown };
        let current = cookie(&self.primary);
        if shown == current {
            CookieDecision::Open(None)
        } else if self.backup.is_some_and(|key| shown == cookie(&key)) {
            CookieDecision::Open(Some(current))
        } else {
            CookieDecision::Cookie(current)
        }
    }
}

/// The cookie of the client at the other end of `tuple`. Both addresses count, so that no other server's cookies are
/// valid here; ports do not. Linux makes the same cookie of the same key, so servers of both kinds can share one
/// address.
fn cookie_of(tuple: &FourTuple, key: &[u8; 16]) -> Cookie {
    let mut hasher = SipHasher24::new_with_key(key);
    for address in [tuple.remote_addr, tuple.local_addr] {
        match address {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
    }
    Cookie::new(&hasher.finish().to_le_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by Linux 6 with the same keys and addresses.
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
