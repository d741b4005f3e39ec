//! One interface in the Internet layer: its link address, MTU, addresses and groups.
//!
//! An [`InterfaceView`] is plain data, changed only by the control plane and read for every packet: input classifies
//! destinations with [`InterfaceView::cast`], output chooses source addresses with [`InterfaceView::source_for`], and
//! so does the neighbour table for solicitations. The lists are short (an interface has a few addresses) and kept per
//! family so that an IPv4 packet compares words, never enums.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smallvec::SmallVec;
use wire::Framing;
use wire::ethernet::MacAddr;

use crate::link::{LinkEnd, LinkHeader};

/// The kind of a destination address, seen from one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// One of the interface's own addresses.
    Unicast,
    /// The limited broadcast or a directed broadcast of an attached subnet (IPv4).
    Broadcast,
    /// A group the interface has joined, all-nodes and solicited-node groups included.
    Multicast,
    /// Another host's address, or a group not joined.
    NotOurs,
}

/// Why an address cannot be put on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The prefix is longer than the address family allows (32 or 128).
    PrefixTooLong {
        /// The address refused.
        address: IpAddr,
        /// The prefix length asked for, in bits.
        prefix_len: u8,
    },
    /// The address is unspecified, multicast or the limited broadcast: no host may own it.
    NotUnicast(IpAddr),
    /// The address means the host itself: every host has it, none on a link (RFC 1122 section 3.2.1.3 g, RFC 4291
    /// section 2.5.3).
    Loopback(IpAddr),
    /// The interface has the address already.
    Duplicate(IpAddr),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrefixTooLong { address, prefix_len } => {
                let most = if address.is_ipv4() { 32 } else { 128 };
                write!(f, "{address}/{prefix_len}: the prefix is too long; use at most /{most}")
            }
            Self::NotUnicast(address) => {
                write!(f, "{address} is not a unicast address; give the interface a host address")
            }
            Self::Loopback(address) => {
                write!(
                    f,
                    "{address} is a loopback address, which every stack has by itself; give the interface another"
                )
            }
            Self::Duplicate(address) => write!(f, "{address} is on the interface already; remove it first"),
        }
    }
}

impl core::error::Error for AddressError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct V4 {
    address: u32,
    mask: u32,
    /// Of the subnet; `u32::MAX`, the limited one, where the subnet has none (RFC 3021).
    broadcast: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct V6 {
    address: Ipv6Addr,
    prefix_len: u8,
    /// Its preferred lifetime is over: new connections use another, if there is one.
    deprecated: bool,
}

/// One interface from the view of the Internet layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceView {
    /// Small number naming the interface in routes and neighbour entries.
    pub index: u16,
    /// The headers of its link. A link without headers and addresses has no neighbours: every packet goes to the other end
    /// of the link.
    pub framing: Framing,
    /// Link address; the source of every frame sent.
    pub mac: MacAddr,
    /// Largest IP packet the link carries, in bytes, link header not included.
    pub mtu: usize,
    /// The same for IPv6, where routers may set it lower (RFC 4861 section 4.6.4): at least 1,280, at most `mtu`.
    pub mtu_v6: usize,
    /// Whether it stands for the host itself and not for a link: all of 127.0.0.0/8 are its addresses (RFC 1122 section
    /// 3.2.1.3 g), and `::1`. No other interface has them.
    pub loopback: bool,
    v4: SmallVec<[V4; 2]>,
    v6: SmallVec<[V6; 2]>,
    groups: SmallVec<[IpAddr; 4]>,
    link_local: Ipv6Addr,
}

impl InterfaceView {
    /// An interface with no address but the link-local one formed from `mac` (RFC 4291 appendix A).
    pub fn new(index: u16, mac: MacAddr, mtu: usize) -> Self {
        let link_local = link_local_from(mac);
        let mut v6 = SmallVec::new();
        v6.push(V6 { address: link_local, prefix_len: 64, deprecated: false });
        let (v4, groups) = (SmallVec::new(), SmallVec::new());
        let framing = Framing::Ethernet;
        Self { index, framing, mac, mtu, mtu_v6: mtu, loopback: false, v4, v6, groups, link_local }
    }

    /// The same interface over FDDI instead of Ethernet. Its addresses, groups and interface identifiers are those of
    /// Ethernet (RFC 1390, RFC 2467).
    pub fn over_fddi(mut self) -> Self {
        self.framing = Framing::Fddi;
        self
    }

    /// The link header to `neighbour` for packets of `destination`'s family.
    pub fn link_header(&self, neighbour: MacAddr, destination: IpAddr) -> LinkHeader {
        self.link_end().header_to(neighbour, destination)
    }

    /// The form of its link headers, and their source.
    pub(crate) fn link_end(&self) -> LinkEnd {
        LinkEnd { framing: self.framing, mac: self.mac }
    }

    /// An interface to a link without headers and addresses, with no address either: no link-local address is formed,
    /// because a duplicate at the other end could not be detected.
    pub fn without_link(index: u16, mtu: usize) -> Self {
        let mut view = Self::new(index, MacAddr::UNSPECIFIED, mtu);
        view.framing = Framing::Packet;
        view.v6.clear();
        view
    }

    /// The interface by which a host reaches itself: it has `127.0.0.1/8` and `::1/128`, and no link.
    pub fn of_host(index: u16, mtu: usize) -> Self {
        let mut view = Self::without_link(index, mtu);
        let home = Ipv4Addr::LOCALHOST.to_bits();
        view.v4.push(V4 { address: home, mask: mask_v4(8), broadcast: home | !mask_v4(8) });
        view.v6.push(V6 { address: Ipv6Addr::LOCALHOST, prefix_len: 128, deprecated: false });
        view.loopback = true;
        view
    }

    /// The same interface with one more address: [`InterfaceView::add_address`] in chained form.
    ///
    /// # Errors
    /// As [`InterfaceView::add_address`].
    pub fn with_address(mut self, address: IpAddr, prefix_len: u8) -> Result<Self, AddressError> {
        self.add_address(address, prefix_len)?;
        Ok(self)
    }

    /// Adds a static address. The first address of a family is the preferred source where no better one matches.
    ///
    /// # Errors
    /// [`AddressError`] when the prefix is too long, the address is not unicast or a loopback address, or it is there
    /// already.
    pub fn add_address(&mut self, address: IpAddr, prefix_len: u8) -> Result<(), AddressError> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        if prefix_len > most {
            return Err(AddressError::PrefixTooLong { address, prefix_len });
        }
        if !is_unicast(address) {
            return Err(AddressError::NotUnicast(address));
        }
        if address.is_loopback() {
            return Err(AddressError::Loopback(address));
        }
        if self.is_local(address) {
            return Err(AddressError::Duplicate(address));
        }
        match address {
            IpAddr::V4(a) => {
                let (address, mask) = (a.to_bits(), mask_v4(prefix_len));
                let broadcast = if prefix_len <= 30 { address | !mask } else { u32::MAX };
                self.v4.push(V4 { address, mask, broadcast });
            }
            IpAddr::V6(a) => self.v6.push(V6 { address: a, prefix_len, deprecated: false }),
        }
        Ok(())
    }

    /// Removes an address; false when the interface did not have it.
    pub fn remove_address(&mut self, address: IpAddr) -> bool {
        let before = self.v4.len() + self.v6.len();
        match address {
            IpAddr::V4(a) => self.v4.retain(|x| x.address != a.to_bits()),
            IpAddr::V6(a) => self.v6.retain(|x| x.address != a),
        }
        before != self.v4.len() + self.v6.len()
    }

    /// Whether new connections should avoid an IPv6 address (RFC 4862 section 5.5.4); false when it is not there.
    pub fn set_deprecated(&mut self, address: Ipv6Addr, deprecated: bool) -> bool {
        let found = self.v6.iter_mut().find(|a| a.address == address);
        found.map(|a| a.deprecated = deprecated).is_some()
    }

    /// Largest packet to `destination` that the link carries, in bytes.
    pub fn mtu_for(&self, destination: IpAddr) -> usize {
        if destination.is_ipv4() { self.mtu } else { self.mtu_v6 }
    }

    /// Every address with its prefix length in bits, IPv4 first, each family in the order added.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
        let v4 = self.v4.iter().map(|a| (IpAddr::V4(Ipv4Addr::from_bits(a.address)), a.mask.count_ones() as u8));
        v4.chain(self.v6.iter().map(|a| (IpAddr::V6(a.address), a.prefix_len)))
    }

    /// The link-local address formed from the link address; [`is_local`](Self::is_local) tests whether the interface
    /// has it.
    pub fn link_local(&self) -> Ipv6Addr {
        self.link_local
    }

    /// The groups joined, without those that come with an address.
    pub fn groups(&self) -> &[IpAddr] {
        &self.groups
    }

    /// Accepts datagrams to `group`. This affects input only: [`Autoconf`](crate::autoconf::Autoconf) sends the
    /// reports.
    pub fn join(&mut self, group: IpAddr) {
        if group.is_multicast() && !self.groups.contains(&group) {
            self.groups.push(group);
        }
    }

    /// No longer accepts datagrams to `group`; false when it was not joined.
    pub fn leave(&mut self, group: IpAddr) -> bool {
        let before = self.groups.len();
        self.groups.retain(|g| *g != group);
        before != self.groups.len()
    }

    /// Whether `address` is one of this interface's own.
    #[inline]
    pub fn is_local(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.is_own_v4(a),
            IpAddr::V6(a) => self.is_local_v6(&a),
        }
    }

    #[inline]
    fn is_local_v4(&self, address: u32) -> bool {
        self.v4.iter().any(|a| a.address == address)
    }

    #[inline]
    fn is_local_v6(&self, address: &Ipv6Addr) -> bool {
        self.v6.iter().any(|a| a.address == *address)
    }

    /// Whether `address` is the limited broadcast or a directed broadcast of an attached IPv4 subnet
    /// (RFC 1122 section 3.2.1.3 d and e; prefixes longer than 30 bits have none, RFC 3021).
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let bits = address.to_bits();
        bits == u32::MAX || self.v4.iter().any(|a| bits == a.broadcast)
    }

    /// Whether `address` is one of our own or a broadcast: in either case not another host's. One pass.
    #[inline]
    pub(crate) fn is_local_or_broadcast(&self, address: Ipv4Addr) -> bool {
        let bits = address.to_bits();
        bits == u32::MAX || self.v4.iter().any(|a| bits == a.address || bits == a.broadcast)
    }

    /// The kind of `destination`.
    #[inline]
    pub fn cast(&self, destination: IpAddr) -> Cast {
        match destination {
            IpAddr::V4(a) => self.cast_v4(a),
            IpAddr::V6(a) => self.cast_v6(a),
        }
    }

    /// [`InterfaceView::cast`] for IPv4.
    #[inline]
    pub fn cast_v4(&self, destination: Ipv4Addr) -> Cast {
        if self.is_own_v4(destination) {
            return Cast::Unicast;
        }
        if destination.is_multicast() {
            let all_hosts = destination == Ipv4Addr::new(224, 0, 0, 1);
            let joined = all_hosts || self.groups.contains(&IpAddr::V4(destination));
            return if joined { Cast::Multicast } else { Cast::NotOurs };
        }
        if self.is_broadcast(destination) { Cast::Broadcast } else { Cast::NotOurs }
    }

    /// Whether a packet to `destination` is for this host alone.
    #[inline]
    pub(crate) fn is_own_v4(&self, destination: Ipv4Addr) -> bool {
        self.is_local_v4(destination.to_bits()) || (self.loopback && destination.is_loopback())
    }

    /// The same for IPv6.
    #[inline]
    pub(crate) fn is_own_v6(&self, destination: &Ipv6Addr) -> bool {
        self.is_local_v6(destination)
    }

    /// [`InterfaceView::cast`] for IPv6: all-nodes in interface and link scope, and the solicited-node group of every
    /// address, are joined by owning the addresses (RFC 4291 section 2.8).
    #[inline]
    pub fn cast_v6(&self, destination: Ipv6Addr) -> Cast {
        if self.is_own_v6(&destination) {
            return Cast::Unicast;
        }
        if !destination.is_multicast() {
            return Cast::NotOurs;
        }
        let all_nodes = destination == ALL_NODES || destination == ALL_NODES_INTERFACE;
        let solicited = || self.v6.iter().any(|a| wire::ipv6::solicited_node(a.address) == destination);
        let joined = all_nodes || solicited() || self.groups.contains(&IpAddr::V6(destination));
        if joined { Cast::Multicast } else { Cast::NotOurs }
    }

    /// Whether `address` lies in an attached subnet, so that it is its own next hop.
    pub fn on_link(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.v4.iter().any(|x| (x.address ^ a.to_bits()) & x.mask == 0),
            IpAddr::V6(a) => self.v6.iter().any(|x| shared_prefix(x.address, a) >= u32::from(x.prefix_len)),
        }
    }

    /// The source address for a packet to `destination`: for IPv4 the address of the subnet the destination lies in,
    /// else the first; for IPv6 the destination itself, then the same scope, not deprecated, the same label, the
    /// longest shared prefix (RFC 6724 section 5, rules 1, 2, 3, 6 and 8; choosing the interface fulfils rule 5, and
    /// the other rules concern mobile and temporary addresses). `None` when the interface has no address of the family
    /// (or only link-local ones for a global peer).
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        match destination {
            IpAddr::V4(d) => {
                let attached = self.v4.iter().find(|a| (a.address ^ d.to_bits()) & a.mask == 0);
                let chosen = attached.or_else(|| self.v4.first())?;
                Some(IpAddr::V4(Ipv4Addr::from_bits(chosen.address)))
            }
            IpAddr::V6(d) => self.source_for_v6(d).map(IpAddr::V6),
        }
    }

    fn source_for_v6(&self, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        if self.is_local_v6(&destination) {
            return Some(destination);
        }
        let local_scope = is_link_scope(destination);
        // `max_by_key` keeps the last of equals; reversed, the first address added wins a tie.
        let mut candidates = self.v6.iter().rev().filter(|a| local_scope || !a.address.is_unicast_link_local());
        let last = candidates.next()?;
        // Usually there is one, and nothing to compare.
        let Some(other) = candidates.next() else { return Some(last.address) };
        let best = [last, other].into_iter().chain(candidates).max_by_key(|a| {
            let same_scope = a.address.is_unicast_link_local() == local_scope;
            let same_label = label(a.address) == label(destination);
            let shared = shared_prefix(a.address, destination).min(a.prefix_len.into());
            (same_scope, !a.deprecated, same_label, shared)
        });
        best.map(|a| a.address)
    }
}

/// All nodes of the link, `ff02::1`.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers of the link, `ff02::2`.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES_INTERFACE: Ipv6Addr = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1);

/// The link-local address of a link address: modified EUI-64 under `fe80::/64` (RFC 4291 appendix A).
pub fn link_local_from(mac: MacAddr) -> Ipv6Addr {
    let m = mac.0;
    let id = [m[0] ^ 0x02, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]];
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(u64::from_be_bytes(id)))
}

/// The link address that carries a multicast or limited-broadcast packet (RFC 1112 section 6.4, RFC 2464 section 7);
/// `None` for unicast, which must be resolved.
pub fn group_mac(address: IpAddr) -> Option<MacAddr> {
    match address {
        IpAddr::V4(a) if a.is_broadcast() => Some(MacAddr::BROADCAST),
        IpAddr::V4(a) if a.is_multicast() => Some(MacAddr::from_ipv4_multicast(a)),
        IpAddr::V6(a) if a.is_multicast() => Some(MacAddr::from_ipv6_multicast(a)),
        _ => None,
    }
}

/// Whether a host may own `address`: not unspecified, not multicast, not the limited broadcast or class E.
pub fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.to_bits() != 0 && a.octets()[0] < 224,
        IpAddr::V6(a) => !a.is_unspecified() && !a.is_multicast(),
    }
}

/// The label of an address in the default policy table (RFC 6724 section 2.1): addresses with equal labels are
/// preferred.
fn label(address: Ipv6Addr) -> u8 {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => 0,
        [0, 0, 0, 0, 0, 0xffff, ..] => 4,
        [0, 0, 0, 0, 0, 0, ..] => 3,
        [0x2002, ..] => 2,
        [0x2001, 0, ..] => 5,
        [0x3ffe, ..] => 12,
        [first, ..] if first & 0xfe00 == 0xfc00 => 13,
        [first, ..] if first & 0xffc0 == 0xfec0 => 11,
        _ => 1,
    }
}

fn is_link_scope(address: Ipv6Addr) -> bool {
    // The low four bits of the second byte are a group's scope; 1 and 2 do not leave the link.
    address.is_unicast_link_local() || (address.is_multicast() && address.octets()[1] & 0x0f <= 2)
}

fn shared_prefix(a: Ipv6Addr, b: Ipv6Addr) -> u32 {
    (a.to_bits() ^ b.to_bits()).leading_zeros()
}

/// The mask of an IPv4 prefix of `len` bits (0..=32).
pub(crate) fn mask_v4(len: u8) -> u32 {
    if len == 0 { 0 } else { u32::MAX << (32 - u32::from(len)) }
}

/// The mask of an IPv6 prefix of `len` bits (0..=128).
pub(crate) fn mask_v6(len: u8) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - u32::from(len)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn interface() -> InterfaceView {
        let view = InterfaceView::new(0, MAC, 1500);
        let view = view.with_address(ip("10.1.2.3"), 24).unwrap();
        let view = view.with_address(ip("192.168.0.1"), 31).unwrap();
        view.with_address(ip("2001:db8::7"), 64).unwrap()
    }

    #[test]
    fn link_local_flips_the_universal_bit_and_inserts_fffe() {
        assert_eq!(IpAddr::V6(interface().link_local()), ip("fe80::11:22ff:fe33:4455"));
    }

    #[test]
    fn destinations_are_cast() {
        let table = [
            ("10.1.2.3", Cast::Unicast),
            ("10.1.2.4", Cast::NotOurs),
            ("10.1.2.255", Cast::Broadcast),
            ("10.1.3.255", Cast::NotOurs),
            ("255.255.255.255", Cast::Broadcast),
            ("192.168.0.1", Cast::Unicast),
            ("224.0.0.1", Cast::Multicast),
            ("224.0.0.9", Cast::NotOurs),
            ("127.0.0.1", Cast::NotOurs),
            ("2001:db8::7", Cast::Unicast),
            ("2001:db8::8", Cast::NotOurs),
            ("ff02::1", Cast::Multicast),
            ("ff02::1:ff00:7", Cast::Multicast),
            ("ff02::1:ff33:4455", Cast::Multicast),
            ("ff02::1:ff00:8", Cast::NotOurs),
            ("ff05::1", Cast::NotOurs),
            ("::1", Cast::NotOurs),
        ];
        for (destination, cast) in table {
            assert_eq!(interface().cast(ip(destination)), cast, "{destination}");
        }
    }

    #[test]
    fn a_prefix_of_31_bits_has_no_directed_broadcast() {
        assert!(!interface().is_broadcast(Ipv4Addr::new(192, 168, 0, 1)));
        assert!(!interface().is_broadcast(Ipv4Addr::new(192, 168, 0, 0)));
    }

    #[test]
    fn sources_follow_subnet_scope_and_prefix() {
        let mut view = interface();
        view.add_address(ip("2001:db8:5::7"), 64).unwrap();
        let table = [
            ("10.1.2.9", Some("10.1.2.3")),
            ("192.168.0.0", Some("192.168.0.1")),
            ("8.8.8.8", Some("10.1.2.3")),
            ("2001:db8:5::1", Some("2001:db8:5::7")),
            ("2001:db8::1", Some("2001:db8::7")),
            ("fe80::1", Some("fe80::11:22ff:fe33:4455")),
            ("ff02::1", Some("fe80::11:22ff:fe33:4455")),
        ];
        for (destination, source) in table {
            assert_eq!(view.source_for(ip(destination)), source.map(ip), "{destination}");
        }
        // Rule 3: a deprecated address only when there is no other. Rule 6: a private network from its own address.
        let (own, other) = ("2001:db8::7".parse().unwrap(), "fd00:1::7".parse().unwrap());
        assert!(view.set_deprecated(own, true));
        assert_eq!(view.source_for(ip("2001:db8::1")), Some(ip("2001:db8:5::7")));
        view.add_address(IpAddr::V6(other), 64).unwrap();
        assert_eq!(view.source_for(ip("fd00:9::1")), Some(IpAddr::V6(other)));
        assert_eq!(view.source_for(ip("2600::1")), Some(ip("2001:db8:5::7")));
        assert!(view.remove_address(ip("2001:db8:5::7")) && view.remove_address(IpAddr::V6(other)));
        assert_eq!(view.source_for(ip("2001:db8::1")), Some(IpAddr::V6(own)));
        assert!(!view.set_deprecated(other, true));
        let bare = InterfaceView::new(0, MAC, 1500);
        assert_eq!(bare.source_for(ip("10.0.0.1")), None);
        assert_eq!(bare.source_for(ip("2001:db8::1")), None, "a link-local source never leaves the link");
    }

    /// Linux's `lo`: all of 127.0.0.0/8 is local, and the source is 127.0.0.1 unless the
    /// destination is another address of the interface.
    #[test]
    fn the_interface_of_the_host_has_all_loopback_addresses_and_no_other_has_one() {
        let (host, link) = (InterfaceView::of_host(1, 65_535), interface());
        for address in ["127.0.0.1", "127.9.8.7", "::1"].map(ip) {
            assert_eq!((host.cast(address), link.cast(address)), (Cast::Unicast, Cast::NotOurs), "{address}");
            assert_eq!((host.is_local(address), link.is_local(address)), (true, false), "{address}");
        }
        for (destination, source) in [("127.0.0.1", "127.0.0.1"), ("127.9.8.7", "127.0.0.1"), ("::1", "::1")] {
            assert_eq!(host.source_for(ip(destination)), Some(ip(source)), "{destination}");
        }
        assert_eq!(host.addresses().collect::<Vec<_>>(), [(ip("127.0.0.1"), 8), (ip("::1"), 128)]);
        assert_eq!(host.cast(ip("126.0.0.1")), Cast::NotOurs);
    }

    #[test]
    fn groups_are_joined_and_left() {
        let mut view = interface();
        view.join(ip("224.0.0.251"));
        assert_eq!(view.cast(ip("224.0.0.251")), Cast::Multicast);
        assert!(view.leave(ip("224.0.0.251")));
        assert_eq!(view.cast(ip("224.0.0.251")), Cast::NotOurs);
        assert!(!view.leave(ip("224.0.0.251")));
    }

    #[test]
    fn unfit_addresses_are_refused_with_the_remedy() {
        let mut view = interface();
        let refused = [
            ("10.0.0.1", 33),
            ("224.0.0.1", 24),
            ("0.0.0.0", 0),
            ("10.1.2.3", 24),
            ("::", 64),
            ("127.0.0.1", 8),
            ("::1", 128),
        ];
        for (address, prefix_len) in refused {
            let error = view.add_address(ip(address), prefix_len).unwrap_err();
            assert!(error.to_string().contains(address), "{error}");
        }
        assert!(view.remove_address(ip("10.1.2.3")));
        assert!(!view.is_local(ip("10.1.2.3")));
    }

    #[test]
    fn groups_map_to_link_addresses() {
        assert_eq!(group_mac(ip("224.129.2.3")), Some(MacAddr([1, 0, 0x5e, 1, 2, 3])));
        assert_eq!(group_mac(ip("ff02::1:ff00:7")), Some(MacAddr([0x33, 0x33, 0xff, 0, 0, 7])));
        assert_eq!(group_mac(ip("255.255.255.255")), Some(MacAddr([0xff; 6])));
        assert_eq!(group_mac(ip("10.0.0.1")), None);
    }
}
