//! What an attacker off the path must not guess: the keys of the connection tables, of the initial sequence numbers
//! (RFC 6528), of the timestamp offsets and of the ephemeral ports (RFC 6056). Drawn once, when the stack is built.

use std::hash::Hasher;

use observe::Time;
use siphasher::sip::{SipHasher13, SipHasher24};
use std::net::{IpAddr, Ipv4Addr};
use sync::Platform;
use wire::{FourTuple, SeqNumber};

/// The keys of one stack. Read-only after the stack is built; any thread may use them.
#[derive(Clone)]
pub struct Secrets {
    table: (u64, u64),
    /// Of the numbers that a connection begins with.
    beginning: (u64, u64),
    timing: (u64, u64),
    port: (u64, u64),
    handshake: tcp::handshake::Secrets,
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
        let (table, beginning, timing, port) = (key(), key(), key(), key());
        let handshake = tcp::handshake::Secrets { syn_cookie: key(), fast_open: bytes(key()) };
        Secrets { table, beginning, timing, port, handshake }
    }

    /// The keyed hash of a connection's tuple: what the connection tables are indexed by. About 5 ns for IPv4.
    ///
    /// SipHash-1-3 and not something linear, which takes a third of that: nothing that leaves this machine is made of it,
    /// but who measured that two tuples share a bucket could make as many more as he likes from their distance.
    #[inline]
    pub fn table_hash(&self, tuple: &FourTuple) -> u64 {
        if let (IpAddr::V4(local), IpAddr::V4(remote)) = (tuple.local_addr, tuple.remote_addr) {
            return sip::<1, 3>(self.table, words(local, remote, tuple));
        }
        let mut hasher = SipHasher13::new_with_keys(self.table.0, self.table.1);
        write_tuple(&mut hasher, tuple);
        hasher.finish()
    }

    /// The numbers that a connection begins with: its initial send sequence number, F(tuple, secret) + a clock of 4
    /// microseconds (RFC 6528), and the offset of the timestamps that it sends, so that they tell no peer the uptime (RFC
    /// 7323, 5.4). F has 64 bits, a half for each.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //# A TCP implementation MUST use the above type of "clock" for clock-driven selection of initial sequence numbers
    //# (MUST-8),
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //# and SHOULD generate its initial sequence numbers with the expression: ISN = M + F(localip, localport, remoteip,
    //# remoteport, secretkey) where M is the 4 microsecond timer, and F() is a pseudorandom function (PRF) of the
    //# connection's identifying parameters ("localip, localport, remoteip, remoteport") and a secret key ("secretkey")
    //# (SHLD-1).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //# F() MUST NOT be computable from the outside (MUST-9),
    pub fn beginning(&self, tuple: &FourTuple, now: Time) -> (SeqNumber, u32) {
        let keyed = sip24(self.beginning, tuple);
        (SeqNumber((keyed as u32).wrapping_add((now.as_nanos() / 4_000) as u32)), (keyed >> 32) as u32)
    }

    /// The initial send sequence number of a connection that begins at `now`.
    pub fn initial_sequence_number(&self, tuple: &FourTuple, now: Time) -> SeqNumber {
        self.beginning(tuple, now).0
    }

    /// The offset of a connection's timestamps, in ms.
    pub fn timestamp_offset(&self, tuple: &FourTuple) -> u32 {
        self.beginning(tuple, Time::ZERO).1
    }

    /// The keys of a listener's cookies.
    pub fn handshake(&self) -> &tcp::handshake::Secrets {
        &self.handshake
    }

    /// What spreads the first messages of interface `index` over time, so that stations that start together do not speak
    /// together.
    pub fn timing_seed(&self, index: usize) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.timing.0, self.timing.1);
        hasher.write_usize(index);
        hasher.finish()
    }

    /// Where the search for an ephemeral port towards a destination begins (RFC 6056, algorithm 3).
    pub fn port_offset(&self, local: IpAddr, remote: IpAddr, remote_port: u16) -> u32 {
        sip24(self.port, &FourTuple { local_addr: local, remote_addr: remote, local_port: 0, remote_port }) as u32
    }
}

/// SipHash-2-4 of a tuple.
#[inline]
fn sip24(key: (u64, u64), tuple: &FourTuple) -> u64 {
    if let (IpAddr::V4(local), IpAddr::V4(remote)) = (tuple.local_addr, tuple.remote_addr) {
        return sip::<2, 4>(key, words(local, remote, tuple));
    }
    let mut hasher = SipHasher24::new_with_keys(key.0, key.1);
    write_tuple(&mut hasher, tuple);
    hasher.finish()
}

/// A tuple of IPv4 in twelve octets, which make two words: the top octet of the last is the length.
#[inline]
fn words(local: Ipv4Addr, remote: Ipv4Addr, tuple: &FourTuple) -> [u64; 2] {
    let addresses = u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits());
    let ports = u64::from(tuple.local_port) << 16 | u64::from(tuple.remote_port);
    [addresses, 12 << 56 | ports]
}

/// SipHash (Aumasson, Bernstein 2012) of two words, little end first, with `C` rounds for each word and `D` at the end: without
/// the buffer that bytes of any number need.
#[inline]
fn sip<const C: usize, const D: usize>(key: (u64, u64), words: [u64; 2]) -> u64 {
    let mut v = [
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ];
    for word in words {
        v[3] ^= word;
        (0..C).for_each(|_| sip_round(&mut v));
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    (0..D).for_each(|_| sip_round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn sip_round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32).wrapping_add(v[3]);
    v[2] = v[2].wrapping_add(v[1]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

fn bytes((low, high): (u64, u64)) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

#[inline]
fn write_tuple(hasher: &mut impl Hasher, tuple: &FourTuple) {
    match (tuple.local_addr, tuple.remote_addr) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            hasher.write_u64((u64::from(local.to_bits()) << 32) | u64::from(remote.to_bits()));
        }
        (local, remote) => {
            write_address(hasher, local);
            write_address(hasher, remote);
        }
    }
    hasher.write_u32((u32::from(tuple.local_port) << 16) | u32::from(tuple.remote_port));
}

fn write_address(hasher: &mut impl Hasher, address: IpAddr) {
    hasher.write_u128(bits(address));
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local_addr: "10.0.0.1".parse().unwrap(),
            remote_addr: "10.0.0.2".parse().unwrap(),
            local_port: 80,
            remote_port: port,
        }
    }

    /// Each of the four counts: without the port that the peer chose, and without its address.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //= type=test
    //# and SHOULD generate its initial sequence numbers with the expression: ISN = M + F(localip, localport, remoteip,
    //# remoteport, secretkey) where M is the 4 microsecond timer, and F() is a pseudorandom function (PRF) of the
    //# connection's identifying parameters ("localip, localport, remoteip, remoteport") and a secret key ("secretkey")
    //# (SHLD-1).
    #[test]
    fn each_of_the_four_parameters_makes_another_sequence_number() {
        let secrets = Secrets::from_seed(7);
        let base = tuple(1);
        let six = |last: &str| format!("2001:db8::{last}").parse().unwrap();
        let tuples = [
            base,
            FourTuple { local_addr: "10.0.0.9".parse().unwrap(), ..base },
            FourTuple { local_port: 81, ..base },
            FourTuple { remote_addr: "10.0.0.3".parse().unwrap(), ..base },
            FourTuple { remote_port: 2, ..base },
            FourTuple { local_addr: six("1"), remote_addr: six("2"), ..base },
            FourTuple { local_addr: six("2"), remote_addr: six("1"), ..base },
            FourTuple { local_addr: six("1"), remote_addr: six("3"), ..base },
        ];
        let numbers = tuples.map(|tuple| secrets.initial_sequence_number(&tuple, Time::ZERO).0);
        let distinct: std::collections::HashSet<_> = numbers.into_iter().collect();
        assert_eq!(distinct.len(), tuples.len(), "{numbers:?}");
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //= type=test
    //# A TCP implementation MUST use the above type of "clock" for clock-driven selection of initial sequence numbers
    //# (MUST-8),
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //= type=test
    //# and SHOULD generate its initial sequence numbers with the expression: ISN = M + F(localip, localport, remoteip,
    //# remoteport, secretkey) where M is the 4 microsecond timer, and F() is a pseudorandom function (PRF) of the
    //# connection's identifying parameters ("localip, localport, remoteip, remoteport") and a secret key ("secretkey")
    //# (SHLD-1).
    #[test]
    fn sequence_numbers_of_one_tuple_follow_the_clock() {
        let secrets = Secrets::from_seed(7);
        let first = secrets.initial_sequence_number(&tuple(1), Time::from_nanos(0));
        let later = secrets.initial_sequence_number(&tuple(1), Time::from_nanos(4_000_000));
        assert_eq!(later - first, 1000);
    }

    #[test]
    fn the_short_way_is_siphash() {
        let secrets = Secrets::from_seed(11);
        for port in [0, 1, 0xff00, 0xffff] {
            let mut hasher = SipHasher13::new_with_keys(secrets.table.0, secrets.table.1);
            write_tuple(&mut hasher, &tuple(port));
            assert_eq!(secrets.table_hash(&tuple(port)), hasher.finish());
            let mut hasher = SipHasher24::new_with_keys(secrets.port.0, secrets.port.1);
            write_tuple(&mut hasher, &tuple(port));
            assert_eq!(sip24(secrets.port, &tuple(port)), hasher.finish());
        }
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

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //= type=test
    //# F() MUST NOT be computable from the outside (MUST-9),
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //= type=test
    //# and SHOULD generate its initial sequence numbers with the expression: ISN = M + F(localip, localport, remoteip,
    //# remoteport, secretkey) where M is the 4 microsecond timer, and F() is a pseudorandom function (PRF) of the
    //# connection's identifying parameters ("localip, localport, remoteip, remoteport") and a secret key ("secretkey")
    //# (SHLD-1).
    #[test]
    fn other_tuples_other_seeds_and_other_keys_differ() {
        let (one, two) = (Secrets::from_seed(1), Secrets::from_seed(2));
        assert_ne!(one.table_hash(&tuple(1)), one.table_hash(&tuple(2)));
        assert_ne!(one.table_hash(&tuple(1)), two.table_hash(&tuple(1)));
        assert_ne!(one.timestamp_offset(&tuple(1)), one.timestamp_offset(&tuple(2)));
        let isn = |secrets: &Secrets, port| secrets.initial_sequence_number(&tuple(port), Time::ZERO);
        assert_ne!(isn(&one, 1), isn(&one, 2), "each connection has its own");
        assert_ne!(isn(&one, 1), isn(&two, 1), "and without the key it cannot be computed");
        assert_eq!(one.table_hash(&tuple(1)), Secrets::from_seed(1).table_hash(&tuple(1)));
    }
}
