//! Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323 section 5.4): both from one keyed hash of the
//! connection's four-tuple. This crate draws no randomness: the builder of the stack draws the key, once.

use observe::Time;
use wire::siphash::siphash_2_4;
use wire::{FourTuple, SeqNumber};

/// The numbers that a connection begins with. See [`IsnKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isn {
    /// Initial send sequence number (RFC 6528).
    pub iss: SeqNumber,
    /// Offset of our timestamp clock in ms.
    pub ts_offset: u32,
    /// Flow hash copied to every segment's `Meta::flow_hash`, if the stack has one.
    pub flow_hash: Option<u32>,
}

/// The values in which the PCBs of similar handshakes differ.
pub(crate) struct ChildIdentity<'a> {
    pub(crate) tuple: &'a FourTuple,
    pub(crate) isn: Isn,
    /// The sequence number of the peer's SYN.
    pub(crate) irs: SeqNumber,
    pub(crate) ts_recent: u32,
    /// When the SYN-ACK was sent, in microseconds modulo 2^32.
    pub(crate) sent: u32,
    pub(crate) now: Time,
}

/// The secret key. Any thread may use it.
#[derive(Clone)]
pub struct IsnKey(pub (u64, u64));

impl IsnKey {
    /// The initial send sequence number of a connection that begins at `now`, F(tuple, key) + a clock of 4 microseconds
    /// (RFC 6528), and the offset of its timestamps in ms, so that they do not reveal the uptime. F has 64 bits, one
    /// half for each.
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
        let keyed = siphash_2_4(self.0, tuple);
        (SeqNumber((keyed as u32).wrapping_add((now.as_nanos() / 4_000) as u32)), (keyed >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new("10.0.0.1:80".parse().unwrap(), ([10, 0, 0, 2], port).into())
    }

    /// Each element of the four-tuple counts.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.1
    //= type=test
    //# and SHOULD generate its initial sequence numbers with the expression: ISN = M + F(localip, localport, remoteip,
    //# remoteport, secretkey) where M is the 4 microsecond timer, and F() is a pseudorandom function (PRF) of the
    //# connection's identifying parameters ("localip, localport, remoteip, remoteport") and a secret key ("secretkey")
    //# (SHLD-1).
    #[test]
    fn each_of_the_four_parameters_makes_another_sequence_number() {
        let key = IsnKey((7, 8));
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
        let numbers = tuples.map(|tuple| key.beginning(&tuple, Time::ZERO).0.0);
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
        let key = IsnKey((7, 8));
        let first = key.beginning(&tuple(1), Time::from_nanos(0)).0;
        let later = key.beginning(&tuple(1), Time::from_nanos(4_000_000)).0;
        assert_eq!(later - first, 1000);
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
    fn other_tuples_and_other_keys_make_other_numbers() {
        let (one, two) = (IsnKey((1, 2)), IsnKey((1, 3)));
        let (isn, offset) = one.beginning(&tuple(1), Time::ZERO);
        let (other_isn, other_offset) = one.beginning(&tuple(2), Time::ZERO);
        assert_ne!(isn, other_isn, "each connection has its own");
        assert_ne!(offset, other_offset);
        assert_ne!(isn, two.beginning(&tuple(1), Time::ZERO).0, "and without the key it cannot be computed");
    }
}
