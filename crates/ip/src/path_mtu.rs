//! What routers told us about the size of paths: path MTU discovery (RFC 1191, RFC 8201).
//!
//! A small table from destination to the largest packet its path is known to carry. The transport validates an ICMP
//! message against its own state first (RFC 5927); only then is [`PathMtuTable::update`] called. Entries expire after
//! ten minutes, so that a path that became wider is tried again (RFC 1191 section 6.3). The table is bounded: a full
//! table forgets the entry that would expire first, which costs one lost packet and no more.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;

use observe::Time;

/// Least MTU believed of an IPv4 router, in bytes. The protocol's least is 68, but a path that narrow is far more often
/// an attack than a link; the value is that of Linux (`net.ipv4.route.min_pmtu`).
pub const FLOOR_V4: u16 = 552;
/// Least MTU of an IPv6 link, in bytes (RFC 8200 section 5).
pub const FLOOR_V6: u16 = 1280;
/// How long a learned value holds (RFC 1191 section 6.3, RFC 8201 section 5.3).
pub const LIFETIME: Duration = Duration::from_secs(600);
/// Destinations remembered.
pub const CAPACITY: usize = 1024;

/// Likely MTUs, for routers that report none (RFC 1191 section 7.1, those above the floor).
const PLATEAUS: [u16; 7] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006];

#[derive(Clone, Copy, Debug)]
struct Entry {
    mtu: u16,
    expires: Time,
}

/// Largest packet known to pass, by destination.
#[derive(Clone, Debug, Default)]
pub struct PathMtuTable {
    entries: HashMap<IpAddr, Entry>,
}

impl PathMtuTable {
    /// A table that knows of no path.
    pub fn new() -> Self {
        Self::default()
    }

    /// The learned MTU towards `destination` in bytes; `None` when nothing is known or it has expired.
    #[inline]
    pub fn lookup(&self, destination: IpAddr, now: Time) -> Option<u16> {
        if self.entries.is_empty() {
            return None;
        }
        let entry = self.entries.get(&destination)?;
        (now < entry.expires).then_some(entry.mtu)
    }

    /// Takes a router's word that a packet of `sent` bytes did not fit `reported` bytes (0: it did not say). Returns
    /// the new MTU when the path became narrower, `None` when the report changes nothing: it is not below what is
    /// believed now, or the floor is not.
    pub fn update(&mut self, destination: IpAddr, reported: u32, sent: usize, now: Time) -> Option<u16> {
        let floor = if destination.is_ipv4() { FLOOR_V4 } else { FLOOR_V6 };
        let current = self.lookup(destination, now).map_or(sent, usize::from);
        let reported = if reported == 0 { plateau_below(sent) } else { reported };
        let mtu = u16::try_from(reported).unwrap_or(u16::MAX).max(floor);
        if usize::from(mtu) >= current {
            return None;
        }
        if self.entries.len() >= CAPACITY && !self.entries.contains_key(&destination) {
            self.forget_oldest();
        }
        self.entries.insert(destination, Entry { mtu, expires: now + LIFETIME });
        Some(mtu)
    }

    /// Number of destinations remembered, expired ones included until they are swept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets what has expired. Whether there was anything: paths may then be tried with larger packets.
    pub fn timeouts(&mut self, now: Time) -> bool {
        let before = self.entries.len();
        self.entries.retain(|_, entry| now < entry.expires);
        self.entries.len() < before
    }

    /// When [`PathMtuTable::timeouts`] has work. Looks at every entry: ask after a change or a sweep, not per packet.
    pub fn next_deadline(&self) -> Option<Time> {
        self.entries.values().map(|entry| entry.expires).min()
    }

    fn forget_oldest(&mut self) {
        // Learning is an ICMP message that passed validation, not a packet: the scan is paid a few times a second.
        let oldest = self.entries.iter().min_by_key(|(destination, entry)| (entry.expires, **destination));
        if let Some(destination) = oldest.map(|(destination, _)| *destination) {
            self.entries.remove(&destination);
        }
    }
}

fn plateau_below(sent: usize) -> u32 {
    let next = PLATEAUS.into_iter().find(|plateau| usize::from(*plateau) < sent);
    u32::from(next.unwrap_or(FLOOR_V4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn v4(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n))
    }

    #[test]
    fn a_path_only_narrows_and_recovers_after_ten_minutes() {
        let mut table = PathMtuTable::new();
        let start = Time::from_secs(5);
        assert_eq!(table.update(v4(1), 1400, 1500, start), Some(1400));
        assert_eq!(table.update(v4(1), 1450, 1500, start), None);
        assert_eq!(table.update(v4(1), 1400, 1400, start), None);
        assert_eq!(table.lookup(v4(1), start), Some(1400));
        assert_eq!(table.lookup(v4(2), start), None);
        assert_eq!(table.next_deadline(), Some(start + LIFETIME));
        assert_eq!(table.lookup(v4(1), start + LIFETIME), None);
        assert!(!table.timeouts(start));
        assert!(table.timeouts(start + LIFETIME));
        assert!(table.is_empty());
    }

    #[test]
    fn floors_hold_against_small_reports() {
        let mut table = PathMtuTable::new();
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(table.update(v4(1), 68, 1500, Time::ZERO), Some(FLOOR_V4));
        assert_eq!(table.update(v6, 600, 1500, Time::ZERO), Some(FLOOR_V6));
        assert_eq!(table.update(v6, 600, 1280, Time::ZERO), None);
    }

    #[test]
    fn a_router_that_names_no_size_moves_us_one_plateau_down() {
        let mut table = PathMtuTable::new();
        assert_eq!(table.update(v4(1), 0, 9000, Time::ZERO), Some(8166));
        assert_eq!(table.update(v4(2), 0, 1500, Time::ZERO), Some(1492));
        assert_eq!(table.update(v4(2), 0, 1492, Time::ZERO), Some(1006));
        assert_eq!(table.update(v4(3), 0, 700, Time::ZERO), Some(FLOOR_V4));
    }

    #[test]
    fn a_full_table_forgets_the_oldest() {
        let mut table = PathMtuTable::new();
        for n in 0..=CAPACITY as u32 {
            table.update(v4(n), 1400, 1500, Time::from_millis(n.into()));
        }
        let now = Time::from_secs(9);
        assert_eq!(table.len(), CAPACITY);
        assert_eq!(table.lookup(v4(0), now), None);
        assert_eq!(table.lookup(v4(1), now), Some(1400));
    }
}
