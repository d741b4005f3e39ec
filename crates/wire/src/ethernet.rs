//! Ethernet II frames with at most one 802.1Q tag (IEEE 802.3 clause 3, IEEE 802.1Q clause 9).
//!
//! A tag is skipped: [`parse`] gives the type after the tag and an offset of 18 instead of 14, and [`vlan_tag`] reads
//! it. A second tag is reported as [`EtherType::Vlan`] of the payload, which no caller accepts.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;

/// Bytes of an untagged header.
pub const HEADER_LEN: usize = 14;
/// Bytes of a header with one 802.1Q tag.
pub const TAGGED_HEADER_LEN: usize = 18;
/// Shortest frame without its check sequence; shorter ones are padded by the sender.
pub const MIN_FRAME_LEN: usize = 60;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct View {
    dst: [u8; 6],
    src: [u8; 6],
    ethertype: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TagView {
    control: U16,
    ethertype: U16,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct TaggedView {
    dst: [u8; 6],
    src: [u8; 6],
    tpid: U16,
    tag: TagView,
}

/// A 48-bit hardware address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl From<[u8; 6]> for MacAddr {
    fn from(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }
}

impl From<MacAddr> for [u8; 6] {
    fn from(address: MacAddr) -> Self {
        address.0
    }
}

impl MacAddr {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// All zeros: no address, as in the target field of an ARP request.
    pub const UNSPECIFIED: Self = Self([0; 6]);

    /// Whether it is a group address: multicast or broadcast. Never valid as a source.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The all-ones address.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// Whether it is the address of one station: neither a group nor zero.
    #[inline]
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast()
            && u64::from_ne_bytes([0, 0, self.0[0], self.0[1], self.0[2], self.0[3], self.0[4], self.0[5]]) != 0
    }

    /// The group address that carries an IPv4 multicast group (RFC 1112 section 6.4).
    pub const fn from_ipv4_multicast(group: Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address that carries an IPv6 multicast group (RFC 2464 section 7).
    pub const fn from_ipv6_multicast(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The string is not a hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddrSyntaxError;

impl fmt::Display for MacAddrSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a hardware address; write six two-digit hexadecimal bytes, as in 02:00:00:00:00:01")
    }
}

impl core::error::Error for MacAddrSyntaxError {}

impl FromStr for MacAddr {
    type Err = MacAddrSyntaxError;

    /// Six two-digit hexadecimal bytes separated by `:` or `-`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split([':', '-']);
        let mut bytes = [0u8; 6];
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacAddrSyntaxError)?;
            // The radix parser accepts a sign, which an address does not have.
            if part.len() != 2 || part.starts_with('+') {
                return Err(MacAddrSyntaxError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacAddrSyntaxError)?;
        }
        match parts.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(MacAddrSyntaxError),
        }
    }
}

/// The type of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EtherType {
    /// 0x0800
    Ipv4,
    /// 0x86dd
    Ipv6,
    /// 0x0806
    Arp,
    /// 0x8100, an 802.1Q tag
    Vlan,
    /// Anything else. Below 0x0600 it is the length of an 802.3 frame.
    Other(u16),
}

impl From<u16> for EtherType {
    #[inline]
    fn from(value: u16) -> Self {
        match value {
            0x0800 => Self::Ipv4,
            0x86dd => Self::Ipv6,
            0x0806 => Self::Arp,
            0x8100 => Self::Vlan,
            other => Self::Other(other),
        }
    }
}

impl From<EtherType> for u16 {
    #[inline]
    fn from(value: EtherType) -> Self {
        match value {
            EtherType::Ipv4 => 0x0800,
            EtherType::Ipv6 => 0x86dd,
            EtherType::Arp => 0x0806,
            EtherType::Vlan => 0x8100,
            EtherType::Other(other) => other,
        }
    }
}

/// An 802.1Q tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// VLAN identifier, 0 (priority only) to 4095 (reserved).
    pub id: u16,
}

impl VlanTag {
    #[inline]
    fn from_control(control: u16) -> Self {
        Self { priority: (control >> 13) as u8, drop_eligible: control & 0x1000 != 0, id: control & 0x0fff }
    }

    #[inline]
    fn control(self) -> u16 {
        u16::from(self.priority & 7) << 13 | u16::from(self.drop_eligible) << 12 | self.id & 0x0fff
    }
}

/// The addresses of a frame and the type of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Receiver.
    pub dst: MacAddr,
    /// Sender.
    pub src: MacAddr,
    /// Type of the payload; behind a tag, the type after it.
    pub ethertype: EtherType,
}

/// Reads the header and gives the offset of the payload: 14, or 18 behind an 802.1Q tag.
///
/// # Errors
/// [`ParseError::Truncated`] if the frame is shorter than its header.
#[inline]
pub fn parse(frame: &[u8]) -> Result<(Header, usize), ParseError> {
    let (view, rest) = View::ref_from_prefix(frame).map_err(|_| ParseError::Truncated)?;
    let mut header = Header { dst: MacAddr(view.dst), src: MacAddr(view.src), ethertype: view.ethertype.get().into() };
    if header.ethertype != EtherType::Vlan {
        return Ok((header, HEADER_LEN));
    }
    let (tag, _) = TagView::ref_from_prefix(rest).map_err(|_| ParseError::Truncated)?;
    header.ethertype = tag.ethertype.get().into();
    Ok((header, TAGGED_HEADER_LEN))
}

/// Bytes of the two addresses, which begin a header.
pub const ADDRESSES_LEN: usize = 12;

/// Whether a frame carries neither IP nor a tag, before which IP could be.
#[inline(always)]
pub fn is_other_than_ip(frame: &[u8]) -> bool {
    let Some(head) = frame.first_chunk::<HEADER_LEN>() else { return true };
    !matches!([head[12], head[13]], [0x08, 0x00] | [0x86, 0xdd] | [0x81, 0x00])
}

/// Whether a frame with this header is unicast to the station `to` and comes from a single station.
#[inline(always)]
pub fn is_from_one_to(header: &[u8; HEADER_LEN], to: MacAddr) -> bool {
    let view: View = zerocopy::transmute!(*header);
    MacAddr(view.dst) == to && MacAddr(view.src).is_unicast()
}

/// The 802.1Q tag of a frame, if it has one.
#[inline]
pub fn vlan_tag(frame: &[u8]) -> Option<VlanTag> {
    let (view, rest) = View::ref_from_prefix(frame).ok()?;
    if EtherType::from(view.ethertype.get()) != EtherType::Vlan {
        return None;
    }
    let (tag, _) = TagView::ref_from_prefix(rest).ok()?;
    Some(VlanTag::from_control(tag.control.get()))
}

/// Bytes of an 802.1Q tag.
pub const TAG_LEN: usize = 4;

/// Inserts a tag into a frame in front of which [`TAG_LEN`] bytes are free: `bytes` begins with those, and is the frame
/// with its tag afterwards. Nothing if it ends before the addresses do.
pub fn insert_tag(bytes: &mut [u8], tag: VlanTag) {
    if let Some(head) = bytes.first_chunk_mut::<16>() {
        head.copy_within(TAG_LEN.., 0);
        let [.., a, b, c, d] = head;
        [*a, *b] = u16::from(EtherType::Vlan).to_be_bytes();
        [*c, *d] = tag.control().to_be_bytes();
    }
}

/// Removes the tag of a frame: the frame without it begins [`TAG_LEN`] bytes later. Returns false, with the frame
/// unchanged, if it has none.
pub fn remove_tag(bytes: &mut [u8]) -> bool {
    let tagged = vlan_tag(bytes).is_some();
    if let (true, Some(head)) = (tagged, bytes.first_chunk_mut::<16>()) {
        head.copy_within(..12, TAG_LEN);
    }
    tagged
}

/// Overwrites the tag of a frame. Does nothing if it has none.
pub fn replace_tag(bytes: &mut [u8], tag: VlanTag) {
    if vlan_tag(bytes).is_some()
        && let Some([.., a, b]) = bytes.first_chunk_mut::<16>()
    {
        [*a, *b] = tag.control().to_be_bytes();
    }
}

impl Header {
    /// Writes an untagged header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        *out =
            zerocopy::transmute!(View { dst: self.dst.0, src: self.src.0, ethertype: U16::new(self.ethertype.into()) });
    }

    /// Writes a header with one 802.1Q tag. Bits of `tag` beyond their fields are dropped.
    #[inline]
    pub fn emit_tagged(&self, tag: VlanTag, out: &mut [u8; TAGGED_HEADER_LEN]) {
        *out = zerocopy::transmute!(TaggedView {
            dst: self.dst.0,
            src: self.src.0,
            tpid: U16::new(EtherType::Vlan.into()),
            tag: TagView { control: U16::new(tag.control()), ethertype: U16::new(self.ethertype.into()) },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_inserted_replaced_and_taken_out_again() {
        let header = Header {
            dst: MacAddr([1, 2, 3, 4, 5, 6]),
            src: MacAddr([7, 8, 9, 10, 11, 12]),
            ethertype: EtherType::Other(0x88b5),
        };
        let mut plain = [0xaa; 20];
        header.emit(plain.first_chunk_mut().unwrap());
        let mut bytes = [0; 24];
        bytes[TAG_LEN..].copy_from_slice(&plain);
        let tag = VlanTag { priority: 5, drop_eligible: true, id: 0x123 };
        insert_tag(&mut bytes, tag);
        assert_eq!(parse(&bytes), Ok((header, TAGGED_HEADER_LEN)));
        assert_eq!(vlan_tag(&bytes), Some(tag));
        assert_eq!(bytes[TAGGED_HEADER_LEN..], plain[HEADER_LEN..]);
        let other = VlanTag { priority: 0, drop_eligible: false, id: 9 };
        replace_tag(&mut bytes, other);
        assert_eq!(vlan_tag(&bytes), Some(other));
        assert!(remove_tag(&mut bytes));
        assert_eq!(bytes[TAG_LEN..], plain);
        // A frame without a tag, or too short for one, is unchanged.
        let before = plain;
        replace_tag(&mut plain, tag);
        assert!(!remove_tag(&mut plain) && plain == before);
        let mut short = [7; 15];
        insert_tag(&mut short, tag);
        assert!(!remove_tag(&mut short) && short == [7; 15]);
    }
}
