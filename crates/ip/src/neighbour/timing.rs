//! The times of IPv6 neighbour discovery, which routers may set for a link (RFC 4861 section 6.3.4).

use core::time::Duration;

use super::{REACHABLE_TIME, RETRANS_TIMER};

/// A shorter reachable time would cause a probe of every neighbour in use every second.
const LEAST_REACHABLE: Duration = Duration::from_secs(1);
/// The longest that a router may advertise (RFC 4861 section 6.2.1).
const MOST_REACHABLE: Duration = Duration::from_secs(3600);
const LEAST_RETRANS: Duration = Duration::from_millis(100);
/// A longer time between solicitations would let one forged message cause an outage of minutes.
const MOST_RETRANS: Duration = Duration::from_secs(10);

/// How long a confirmation is valid, and the time between solicitations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourTiming {
    /// Mean time for which a confirmation is valid: 1 s to 1 h.
    pub reachable: Duration,
    /// Between solicitations: 100 ms to 10 s.
    pub retrans: Duration,
}

impl Default for NeighbourTiming {
    fn default() -> Self {
        NeighbourTiming { reachable: REACHABLE_TIME, retrans: RETRANS_TIMER }
    }
}

impl NeighbourTiming {
    /// The same with a router's values, in milliseconds, clamped to the bounds; 0 leaves a value unchanged.
    pub fn hearing(self, reachable: u32, retrans: u32) -> NeighbourTiming {
        let said = |millis: u32, old: Duration, least: Duration, most: Duration| match millis {
            0 => old,
            millis => Duration::from_millis(millis.into()).clamp(least, most),
        };
        NeighbourTiming {
            reachable: said(reachable, self.reachable, LEAST_REACHABLE, MOST_REACHABLE),
            retrans: said(retrans, self.retrans, LEAST_RETRANS, MOST_RETRANS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_router_says_is_taken_within_bounds() {
        let usual = NeighbourTiming::default();
        assert_eq!(usual.hearing(0, 0), usual);
        let said = usual.hearing(20_000, 500);
        assert_eq!((said.reachable.as_millis(), said.retrans.as_millis()), (20_000, 500));
        assert_eq!(said.hearing(0, 0), said, "what was said once holds");
        let least = usual.hearing(1, 1);
        assert_eq!((least.reachable, least.retrans), (LEAST_REACHABLE, LEAST_RETRANS));
        let most = usual.hearing(u32::MAX, u32::MAX);
        assert_eq!((most.reachable, most.retrans), (MOST_REACHABLE, MOST_RETRANS));
    }
}
