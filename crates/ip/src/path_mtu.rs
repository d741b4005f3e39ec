//! Path MTU discovery from routers' reports (RFC 1191, RFC 8201).
//!
//! [`estimate`] turns a router's report into the largest packet to send from now on, and every user of a report goes
//! through it: TCP, UDP and the table below. [`PathMtuTable`] keeps estimates by destination. The transport validates
//! an ICMP message against its own state first (RFC 5927); only then is [`PathMtuTable::update`] called. Entries expire
//! after ten minutes, so that an increased path MTU is detected (RFC 1191 section 6.3). The table is bounded: a full
//! table removes the entry that would expire first, which costs one lost packet at most.
//!
//! [`PathMtuAccess`] is the table as the rest of the Internet layer uses it, however it is shared; [`KnownPath`] has the
//! rules for a path over it.
//!
//! No estimate is below [`FLOOR_V4`] or [`FLOOR_V6`], whatever is reported. An IPv4 path with a smaller reported MTU
//! gets packets of the size of the floor that routers may fragment.

mod known_path;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;

use observe::Time;
use wire::ipv4;

pub use known_path::{KnownPath, may_be_fragmented};

/// Least MTU accepted from an IPv4 router, in bytes. The protocol's least is 68, but such a report is far more often an
/// attack than a link; the value is that of Linux (`net.ipv4.route.min_pmtu`).
pub const FLOOR_V4: u16 = 552;
/// Least MTU of an IPv6 link, in bytes (RFC 8200 section 5).
pub const FLOOR_V6: u16 = 1280;
/// How long a learned value is valid (RFC 1191 section 6.3, RFC 8201 section 5.3).
pub const LIFETIME: Duration = Duration::from_secs(600);
/// Number of destinations kept.
pub const CAPACITY: usize = 1024;

/// Likely MTUs, for routers that report none (RFC 1191 section 7.1, those above the floor).
const PLATEAUS: [u16; 7] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006];

/// The estimate of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The largest packet to send, in bytes, never below the floor of its family.
    pub mtu: u16,
    /// The reported MTU of the path is below the floor: routers must be allowed to fragment, or nothing arrives. Linux
    /// treats such a path as one with a locked MTU. IPv4 only.
    pub fragments: bool,
}

/// The estimate from a router's report about a packet of `quoted` bytes to `destination`, where the estimate so far was
/// `current` bytes. `reported` is the MTU of the next hop, 0 if the router does not report it.
///
/// A result that is not smaller than `current` must be ignored: no estimate grows because of a report (RFC 1191 section
/// 3).
pub fn estimate(destination: IpAddr, reported: u32, quoted: usize, current: usize) -> Estimate {
    if destination.is_ipv6() {
        // A report below the least MTU of IPv6 is discarded before, on arrival.
        return Estimate { mtu: u16::try_from(reported).unwrap_or(u16::MAX).max(FLOOR_V6), fragments: false };
    }
    let size = if reported == 0 { plateau_below(quoted, current) } else { reported };
    let mtu = u16::try_from(size).unwrap_or(u16::MAX).max(FLOOR_V4);
    Estimate { mtu, fragments: size < u32::from(FLOOR_V4) }
}

/// The greatest plateau below the length of the quoted packet; 0 where all of those are below the floor.
fn plateau_below(quoted: usize, current: usize) -> u32 {
    // RFC 1191 section 5: routers derived from 4.2BSD add the length of the header, always 20 bytes here, to the quoted
    // length. Others do not, and the two cannot be distinguished if the length is not less than the estimate.
    let quoted = if quoted < current { quoted } else { quoted.saturating_sub(ipv4::HEADER_LEN) };
    let next = PLATEAUS.into_iter().find(|plateau| usize::from(*plateau) < quoted);
    next.unwrap_or_default().into()
}

/// The operations on the table of reported path MTUs that the Internet layer needs, however the table is shared. Each is
/// exclusive by itself.
///
/// Implemented by [`PathMtuTable`], for a user that has it by `&mut`, and in the crate `stack` by the table that threads
/// share.
pub trait PathMtuAccess {
    /// As [`PathMtuTable::reported`].
    fn reported(&self, destination: IpAddr, now: Time) -> Option<Estimate>;
    /// As [`PathMtuTable::update`].
    fn update(&mut self, destination: IpAddr, estimate: Estimate, link: usize, now: Time) -> bool;
    /// As [`PathMtuTable::timeouts`].
    fn timeouts(&mut self, now: Time) -> bool;
}

impl PathMtuAccess for PathMtuTable {
    #[inline]
    fn reported(&self, destination: IpAddr, now: Time) -> Option<Estimate> {
        PathMtuTable::reported(self, destination, now)
    }

    fn update(&mut self, destination: IpAddr, estimate: Estimate, link: usize, now: Time) -> bool {
        PathMtuTable::update(self, destination, estimate, link, now)
    }

    fn timeouts(&mut self, now: Time) -> bool {
        PathMtuTable::timeouts(self, now)
    }
}

#[derive(Clone, Copy, Debug)]
struct PathMtuEntry {
    estimate: Estimate,
    expires: Time,
}

/// Largest packet known to pass, by destination.
#[derive(Clone, Debug, Default)]
pub struct PathMtuTable {
    entries: HashMap<IpAddr, PathMtuEntry>,
}

impl PathMtuTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The estimate of the path to `destination`; `None` when nothing was reported or it has expired.
    #[inline]
    pub fn reported(&self, destination: IpAddr, now: Time) -> Option<Estimate> {
        if self.entries.is_empty() {
            return None;
        }
        let entry = self.entries.get(&destination)?;
        (now < entry.expires).then_some(entry.estimate)
    }

    /// Records an estimate of the path to `destination`; the MTU of its first link is `link` bytes. Returns whether the
    /// path's MTU became smaller, or its packets must now allow fragmentation.
    pub fn update(&mut self, destination: IpAddr, estimate: Estimate, link: usize, now: Time) -> bool {
        let link = u16::try_from(link).unwrap_or(u16::MAX);
        let known = self.reported(destination, now).unwrap_or(Estimate { mtu: link, fragments: false });
        let mtu = estimate.mtu.min(known.mtu).min(link);
        let next = Estimate { mtu, fragments: estimate.fragments || known.fragments };
        if next == known {
            return false;
        }
        if self.entries.len() >= CAPACITY && !self.entries.contains_key(&destination) {
            self.forget_oldest();
        }
        self.entries.insert(destination, PathMtuEntry { estimate: next, expires: now + LIFETIME });
        true
    }

    /// Number of destinations kept, expired ones included until they are swept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes expired entries. Returns whether there were any: paths may then be tried with larger packets.
    pub fn timeouts(&mut self, now: Time) -> bool {
        let before = self.entries.len();
        self.entries.retain(|_, entry| now < entry.expires);
        self.entries.len() < before
    }

    /// When [`PathMtuTable::timeouts`] has work. Scans every entry: call it after a change or a sweep, not per packet.
    pub fn next_deadline(&self) -> Option<Time> {
        self.entries.values().map(|entry| entry.expires).min()
    }

    fn forget_oldest(&mut self) {
        // Called for validated ICMP messages, not for packets: the scan happens a few times a second.
        let oldest = self.entries.iter().min_by_key(|(destination, entry)| (entry.expires, **destination));
        if let Some(destination) = oldest.map(|(destination, _)| *destination) {
            self.entries.remove(&destination);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    /// The MTU that is known towards `destination`.
    fn mtu(table: &PathMtuTable, destination: IpAddr, now: Time) -> Option<u16> {
        table.reported(destination, now).map(|estimate| estimate.mtu)
    }

    /// Whether routers must be allowed to fragment on the way to `destination`.
    fn fragments(table: &PathMtuTable, destination: IpAddr, now: Time) -> bool {
        table.reported(destination, now).is_some_and(|estimate| estimate.fragments)
    }

    const FLOOR: Estimate = Estimate { mtu: FLOOR_V4, fragments: true };

    fn v4(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n))
    }

    fn v6() -> IpAddr {
        "2001:db8::1".parse().unwrap()
    }

    fn plain(mtu: u16) -> Estimate {
        Estimate { mtu, fragments: false }
    }

    #[test]
    fn a_path_only_narrows_and_recovers_after_ten_minutes() {
        let mut table = PathMtuTable::new();
        let start = Time::from_secs(5);
        assert!(table.update(v4(1), plain(1400), 1500, start));
        assert!(!table.update(v4(1), plain(1450), 1500, start));
        assert!(!table.update(v4(1), plain(1400), 1400, start));
        assert_eq!(mtu(&table, v4(1), start), Some(1400));
        assert_eq!(mtu(&table, v4(2), start), None);
        assert_eq!(table.next_deadline(), Some(start + LIFETIME));
        assert_eq!(mtu(&table, v4(1), start + LIFETIME), None);
        assert!(!table.timeouts(start));
        assert!(table.timeouts(start + LIFETIME));
        assert!(table.is_empty());
    }

    /// RFC 1191 section 3 and the floor of `SECURITY.md`.
    #[test]
    fn no_report_goes_below_the_floor_of_ipv4() {
        for (reported, expected) in
            [(1, FLOOR), (67, FLOOR), (68, FLOOR), (300, FLOOR), (551, FLOOR), (552, plain(552)), (576, plain(576))]
        {
            assert_eq!(estimate(v4(1), reported, 1500, 1500), expected, "{reported}");
        }
        assert_eq!(estimate(v4(1), 70_000, 1500, 1500), plain(u16::MAX));
    }

    #[test]
    fn no_estimate_of_ipv6_is_below_1280() {
        for (reported, expected) in [(0, 1280), (600, 1280), (1280, 1280), (1400, 1400), (70_000, u16::MAX)] {
            assert_eq!(estimate(v6(), reported, 1500, 1500), plain(expected), "{reported}");
        }
    }

    /// RFC 1191 section 5 and the table of section 7.1.
    #[test]
    fn a_router_that_names_no_size_moves_us_one_plateau_down() {
        for (quoted, current, expected) in [
            (9000, 9180, plain(8166)),
            (1500, 9000, plain(1492)),
            (1492, 1500, plain(1006)),
            (1040, 1500, plain(1006)),
            (1006, 1500, FLOOR),
            (552, 552, FLOOR),
            (68, 1500, FLOOR),
            (0, 1500, FLOOR),
            // Not less than the estimate: the router may have added the length of the header.
            (1500, 1500, plain(1006)),
            (1512, 1492, plain(1006)),
            (1513, 1493, plain(1492)),
            (65_535, 1500, plain(32_000)),
        ] {
            assert_eq!(estimate(v4(1), 0, quoted, current), expected, "{quoted} of {current}");
        }
    }

    #[test]
    fn a_path_below_the_floor_stays_open_to_fragmentation() {
        let mut table = PathMtuTable::new();
        assert!(table.update(v4(1), FLOOR, 1500, Time::ZERO));
        assert!(fragments(&table, v4(1), Time::ZERO));
        assert!(!fragments(&table, v4(2), Time::ZERO));
        assert!(!table.update(v4(1), plain(552), 1500, Time::ZERO), "what is known of it stays");
        assert!(fragments(&table, v4(1), Time::ZERO));
        assert!(!fragments(&table, v4(1), Time::ZERO + LIFETIME));
        assert!(table.update(v4(2), FLOOR, 400, Time::ZERO), "the link is narrower than the floor");
        assert_eq!(mtu(&table, v4(2), Time::ZERO), Some(400));
        assert!(table.update(v4(3), plain(552), 1500, Time::ZERO));
        assert!(table.update(v4(3), FLOOR, 1500, Time::ZERO), "as wide as before, but not whole");
    }

    #[test]
    fn a_full_table_forgets_the_oldest() {
        let mut table = PathMtuTable::new();
        for n in 0..=CAPACITY as u32 {
            table.update(v4(n), plain(1400), 1500, Time::from_millis(n.into()));
        }
        let now = Time::from_secs(9);
        assert_eq!(table.len(), CAPACITY);
        assert_eq!(mtu(&table, v4(0), now), None);
        assert_eq!(mtu(&table, v4(1), now), Some(1400));
    }
}
