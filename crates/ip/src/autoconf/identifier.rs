//! Interface identifiers: the lower half of an address that the interface forms.

use core::hash::Hasher;
use core::net::Ipv6Addr;

use siphasher::sip::SipHasher24;
use wire::ethernet::MacAddr;

use crate::interface::link_local_from;

/// How interface identifiers are formed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Identifiers {
    /// From the link address, by modified EUI-64 (RFC 4291 appendix A): the same in every network, so the host can be
    /// tracked.
    Eui64,
    /// From a keyed hash of prefix and link address (RFC 7217): stable in one network, different in every other.
    Stable {
        /// The secret; the same secret gives the same addresses.
        key: [u8; 16],
    },
}

impl core::fmt::Debug for Identifiers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Eui64 => "Eui64",
            Self::Stable { .. } => "Stable",
        })
    }
}

impl Identifiers {
    /// The address of an interface in `prefix` (64 bits). `attempt` is the number of earlier results that were
    /// duplicates; EUI-64 has no alternative and returns `None` if it is not 0.
    pub fn address(&self, prefix: Ipv6Addr, mac: MacAddr, attempt: u8) -> Option<Ipv6Addr> {
        let id = match self {
            Self::Eui64 if attempt > 0 => return None,
            Self::Eui64 => link_local_from(mac).to_bits() as u64,
            Self::Stable { key } => stable(key, prefix, mac, attempt),
        };
        Some(Ipv6Addr::from_bits(prefix.to_bits() >> 64 << 64 | u128::from(id)))
    }
}

/// RFC 7217 section 5, with SipHash-2-4 as the function. Reserved identifiers (RFC 5453) are skipped by hashing again,
/// as in section 5.
fn stable(key: &[u8; 16], prefix: Ipv6Addr, mac: MacAddr, attempt: u8) -> u64 {
    (0u8..=255).map(|again| hash(key, prefix, mac, attempt, again)).find(|id| !is_reserved(*id)).unwrap_or(1)
}

fn hash(key: &[u8; 16], prefix: Ipv6Addr, mac: MacAddr, attempt: u8, again: u8) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(&prefix.octets()[..8]);
    hasher.write(&mac.0);
    hasher.write(&[attempt, again]);
    hasher.finish()
}

/// The subnet-router anycast identifier, the block of the reserved anycast identifiers and that of proxies (RFC 5453).
fn is_reserved(id: u64) -> bool {
    id == 0 || id >> 32 == 0x0200_5eff || (id >> 8 == 0x00fd_ffff_ffff_ffff && id & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);

    #[test]
    fn stable_identifiers_follow_the_prefix_the_key_and_the_attempt() {
        let prefix = |n| Ipv6Addr::new(0x2001, 0xdb8, 0, n, 0, 0, 0, 0);
        let form =
            |key: u8, n, attempt| Identifiers::Stable { key: [key; 16] }.address(prefix(n), MAC, attempt).unwrap();
        let one = form(1, 1, 0);
        assert_eq!(one, form(1, 1, 0));
        assert_eq!(one.segments()[..4], prefix(1).segments()[..4]);
        let others = [form(2, 1, 0), form(1, 2, 0), form(1, 1, 1)];
        assert!(others.iter().all(|other| other.to_bits() as u64 != one.to_bits() as u64), "{others:?}");
    }

    #[test]
    fn eui64_has_no_second_choice() {
        let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);
        let address = Identifiers::Eui64.address(prefix, MAC, 0);
        assert_eq!(address, Some("2001:db8::11:22ff:fe33:4455".parse().unwrap()));
        assert_eq!(Identifiers::Eui64.address(prefix, MAC, 1), None);
    }

    #[test]
    fn reserved_identifiers_are_known() {
        assert!(is_reserved(0) && is_reserved(0x0200_5eff_fe00_5213) && is_reserved(0xfdff_ffff_ffff_ffff));
        assert!(!is_reserved(0xfdff_ffff_ffff_ff7f) && !is_reserved(1));
    }
}
