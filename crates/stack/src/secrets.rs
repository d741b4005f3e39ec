//! Secrets that an off-path attacker must not guess: the keys of the connection tables, of the initial sequence numbers
//! and timestamp offsets ([`tcp::IsnKey`]), and of the ephemeral ports (RFC 6056). Drawn once, when the stack is built.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher24;
use sync::Platform;
use tcp::IsnKey;
use wire::FourTuple;
use wire::siphash::{siphash_1_3, siphash_2_4};

/// The keys of one stack. Read-only after the stack is built; any thread may use them.
#[derive(Clone)]
pub struct Secrets {
    table: (u64, u64),
    isn: IsnKey,
    timing: (u64, u64),
    port: (u64, u64),
    handshake: tcp::handshake::HandshakeSecrets,
}

impl Secrets {
    /// Keys from the platform's random source.
    pub fn draw<P: Platform>() -> Self {
        Self::of(|| P::random())
    }

    /// Keys derived from `seed`, so that two runs of a test send the same bytes.
    pub fn from_seed(seed: u64) -> Self {
        let mut state = seed;
        let next = || {
            // SplitMix64 (Steele, Lea, Flood 2014): one multiply-xor round per word is plenty for a test.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self::of(next)
    }

    fn of(mut next: impl FnMut() -> u64) -> Self {
        let mut key = || (next(), next());
        let (table, isn, timing, port) = (key(), IsnKey(key()), key(), key());
        let handshake = tcp::handshake::HandshakeSecrets { syn_cookie: key(), fast_open: bytes(key()) };
        Secrets { table, isn, timing, port, handshake }
    }

    /// The keyed hash of a connection's tuple, by which the connection tables are indexed.
    ///
    /// SipHash-1-3. A linear hash takes a third of the time and nothing that leaves this machine is derived from it;
    /// but from two tuples that share a bucket an attacker could compute any number of others.
    #[inline]
    pub fn table_hash(&self, tuple: &FourTuple) -> u64 {
        siphash_1_3(self.table, tuple)
    }

    /// The key of the initial sequence numbers and timestamp offsets.
    pub fn isn(&self) -> &IsnKey {
        &self.isn
    }

    /// The keys of a listener's cookies.
    pub fn handshake(&self) -> &tcp::handshake::HandshakeSecrets {
        &self.handshake
    }

    /// Seed for the random delays of interface `index`, so that stations that start together do not send together.
    pub fn timing_seed(&self, index: usize) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.timing.0, self.timing.1);
        hasher.write_usize(index);
        hasher.finish()
    }

    /// Where the search for an ephemeral port towards a destination begins (RFC 6056, algorithm 3).
    pub fn port_offset(&self, local: IpAddr, remote: IpAddr, remote_port: u16) -> u32 {
        siphash_2_4(self.port, &FourTuple { local_addr: local, remote_addr: remote, local_port: 0, remote_port }) as u32
    }
}

fn bytes((low, high): (u64, u64)) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new("10.0.0.1:80".parse().unwrap(), ([10, 0, 0, 2], port).into())
    }

    /// hashbrown takes the bucket from the low bits and the control byte from the top seven: both must spread.
    #[test]
    fn neighbouring_tuples_spread_over_low_and_high_bits() {
        let secrets = Secrets::from_seed(3);
        for (shift, mask) in [(0, 1023), (57, 127)] {
            let mut counts = vec![0u32; mask + 1];
            (0..64_000).for_each(|port| counts[(secrets.table_hash(&tuple(port)) >> shift) as usize & mask] += 1);
            let expected = 64_000 / counts.len() as u32;
            let fullest = counts.iter().max().unwrap();
            assert!(*fullest < 2 * expected + 8, "{fullest} in one of {} buckets", counts.len());
        }
    }

    #[test]
    fn every_part_of_a_tuple_counts() {
        let secrets = Secrets::from_seed(3);
        let v6 = |local: &str, remote: &str| FourTuple {
            local_addr: local.parse().unwrap(),
            remote_addr: remote.parse().unwrap(),
            ..tuple(1)
        };
        let tuples = [
            tuple(1),
            tuple(2),
            FourTuple { local_port: 81, ..tuple(1) },
            tuple(1).reversed(),
            v6("fe80::1", "fe80::2"),
            v6("fe80::2", "fe80::1"),
            v6("2001:db8::1", "fe80::2"),
            v6("fe80::1", "2001:db8::2"),
        ];
        let mut hashes: Vec<u64> = tuples.iter().map(|tuple| secrets.table_hash(tuple)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), tuples.len());
    }

    #[test]
    fn other_tuples_and_other_seeds_differ() {
        let (one, two) = (Secrets::from_seed(1), Secrets::from_seed(2));
        assert_ne!(one.table_hash(&tuple(1)), one.table_hash(&tuple(2)));
        assert_ne!(one.table_hash(&tuple(1)), two.table_hash(&tuple(1)));
        assert_eq!(one.table_hash(&tuple(1)), Secrets::from_seed(1).table_hash(&tuple(1)));
    }
}
