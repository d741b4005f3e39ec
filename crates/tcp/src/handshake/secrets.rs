//! The keys of a listener's cookies. This crate draws no randomness: the builder of the stack draws them, once.

use core::hash::Hasher;
use core::net::IpAddr;

use siphasher::sip::SipHasher24;
use wire::{FourTuple, SeqNumber};

/// Keys that a peer must not guess. Any number of threads may use them.
#[derive(Clone)]
pub struct HandshakeSecrets {
    /// For SYN cookies (RFC 4987 section 3.6).
    pub syn_cookie: (u64, u64),
    /// For Fast Open cookies (RFC 7413 section 4.1.2), unless the configuration or the listener has one.
    pub fast_open: [u8; 16],
}

impl HandshakeSecrets {
    /// The keyed hash in a SYN cookie: of both ends, the peer's initial sequence number, the epoch and the MSS class.
    pub(crate) fn mac(&self, tuple: &FourTuple, irs: SeqNumber, epoch: u32, class: u32) -> u32 {
        let mut hasher = SipHasher24::new_with_keys(self.syn_cookie.0, self.syn_cookie.1);
        for (address, port) in [(tuple.local_addr, tuple.local_port), (tuple.remote_addr, tuple.remote_port)] {
            match address {
                IpAddr::V4(v4) => hasher.write_u32(v4.to_bits()),
                IpAddr::V6(v6) => hasher.write_u128(v6.to_bits()),
            }
            hasher.write_u16(port);
        }
        [irs.0, epoch, class].into_iter().for_each(|word| hasher.write_u32(word));
        hasher.finish() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_cookie_covers_counts() {
        let secrets = HandshakeSecrets { syn_cookie: (1, 2), fast_open: [0; 16] };
        let ends = |local: &str, remote: &str| FourTuple {
            local_addr: local.parse().unwrap(),
            remote_addr: remote.parse().unwrap(),
            local_port: 80,
            remote_port: 4000,
        };
        let base = ends("10.0.0.1", "10.0.0.2");
        let tuples = [
            base,
            base.reversed(),
            ends("10.0.0.3", "10.0.0.2"),
            ends("10.0.0.1", "10.0.0.3"),
            FourTuple { local_port: 81, ..base },
            FourTuple { remote_port: 4001, ..base },
            ends("2001:db8::1", "2001:db8::2"),
            ends("2001:db8::2", "2001:db8::1"),
        ];
        let mac = |tuple: &FourTuple, irs, epoch, class| secrets.mac(tuple, SeqNumber(irs), epoch, class);
        let mut macs: Vec<u32> = tuples.iter().map(|tuple| mac(tuple, 7, 1, 2)).collect();
        macs.extend([mac(&base, 8, 1, 2), mac(&base, 7, 2, 2), mac(&base, 7, 1, 3)]);
        macs.push(HandshakeSecrets { syn_cookie: (1, 3), ..secrets.clone() }.mac(&base, SeqNumber(7), 1, 2));
        let all = macs.len();
        macs.sort_unstable();
        macs.dedup();
        assert_eq!(macs.len(), all);
    }
}
