//! The hash of a flow with its ports: it differs where a device's hash is weak.
//!
//! Under a key that repeats every 16 bits ([`SYMMETRIC_KEY`](crate::rss::SYMMETRIC_KEY)) the hash has 16 different bits: it depends on the
//! exclusive or of the 16-bit words of addresses and ports alone. Clients with neighbouring addresses, which take their ports in the same
//! order, share few hashes: seven of them with ten connections each have 16. Of two flows of one service that have one
//! hash, the ports differ, unless the addresses have the same exclusive or.

use crate::FourTuple;

/// See the head of the file. The same for both directions of a flow, if the hash is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowMark(u32);

impl FlowMark {
    /// That of a flow with this hash, between these ports.
    #[inline(always)]
    pub const fn new(hash: u32, ports: (u16, u16)) -> FlowMark {
        FlowMark(hash ^ (ports.0 ^ ports.1) as u32)
    }

    /// That of this flow, which has this hash.
    #[inline(always)]
    pub const fn of(hash: u32, tuple: &FourTuple) -> FlowMark {
        FlowMark::new(hash, (tuple.local_port, tuple.remote_port))
    }

    /// As a number. The high half is that of the hash.
    #[inline(always)]
    pub const fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::IpAddr;

    use super::*;
    use crate::rss::Toeplitz;

    /// Seven clients of one service, each with its first ten ports.
    #[test]
    fn flows_that_share_a_symmetric_hash_have_marks_of_their_own() {
        let hash = Toeplitz::default();
        let services: [[IpAddr; 2]; 2] = [
            ["10.9.1.1".parse().unwrap(), "10.9.0.0".parse().unwrap()],
            ["fd09::1:1".parse().unwrap(), "fd09::".parse().unwrap()],
        ];
        for [local_addr, network] in services {
            let client = |number: u8| match network {
                IpAddr::V4(network) => IpAddr::V4((network.to_bits() + u32::from(number)).into()),
                IpAddr::V6(network) => IpAddr::V6((network.to_bits() + u128::from(number)).into()),
            };
            let tuples = (1..=7)
                .flat_map(|number| (1024..1034).map(move |port| (client(number), port)))
                .map(|(remote_addr, remote_port)| FourTuple { local_addr, remote_addr, local_port: 5001, remote_port });
            let (mut hashes, mut marks) = (HashSet::new(), HashSet::new());
            for tuple in tuples {
                let mark = FlowMark::of(hash.hash_tcp(&tuple), &tuple);
                assert_eq!(mark, FlowMark::of(hash.hash_tcp(&tuple.reversed()), &tuple.reversed()));
                hashes.insert(hash.hash_tcp(&tuple));
                marks.insert(mark.get());
            }
            assert_eq!((hashes.len(), marks.len()), (16, 70));
        }
    }

    #[test]
    fn a_mark_keeps_the_high_half_of_the_hash() {
        assert_eq!(FlowMark::new(0x1234_5678, (0x0f00, 0x000f)).get(), 0x1234_5977);
    }
}
