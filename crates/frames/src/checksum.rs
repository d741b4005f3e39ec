//! The Internet checksum, one 16-bit word at a time, as in RFC 1071: the reference for faster implementations.

use std::net::IpAddr;

/// The value of a checksum field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The right value.
    #[default]
    Right,
    /// The right value plus this in one's complement: wrong, except for 0 and 0xffff.
    OffBy(u16),
    /// Only the sum of the pseudo-header: the device adds the rest.
    Pseudo,
    /// This.
    Value(u16),
}

impl Checksum {
    /// The field for a message: `pseudo` is the sum of its pseudo-header (0 if it has none), `message` has zeros in the
    /// field.
    pub(crate) fn field(self, pseudo: u16, message: &[u8]) -> u16 {
        let right = !sum(message, pseudo);
        match self {
            Checksum::Right => right,
            Checksum::OffBy(by) => add(right, by),
            Checksum::Pseudo => pseudo,
            Checksum::Value(value) => value,
        }
    }
}

/// The one's-complement sum of 16-bit words; an odd last byte is the high half of a word. `start` is the sum of the
/// bytes before. A message with a right checksum has the sum 0xffff.
pub fn sum(bytes: &[u8], start: u16) -> u16 {
    let word = |pair: &[u8]| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
    bytes.chunks(2).fold(start, |sum, pair| add(sum, word(pair)))
}

/// One's-complement addition with end-around carry.
fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

/// The sum of the pseudo-header for `len` bytes (RFC 9293, 3.1; RFC 8200, 8.1).
///
/// # Panics
/// If the addresses are of two families.
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: usize) -> u16 {
    let addresses = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => [src.octets(), dst.octets()].concat(),
        (IpAddr::V6(src), IpAddr::V6(dst)) => [src.octets(), dst.octets()].concat(),
        _ => panic!("{src} and {dst} are of two families"),
    };
    let len = sum(&(len as u32).to_be_bytes(), u16::from(protocol));
    sum(&addresses, len)
}

/// Corrects the checksum of the IPv4 header at `at`, if the header is complete.
pub fn repair(bytes: &mut [u8], at: usize) {
    let words = bytes.get(at).map_or(0, |first| usize::from(first & 0x0f));
    let Some(header) = bytes.get_mut(at..at + words * 4).filter(|header| header.len() >= 20) else { return };
    header[10..12].fill(0);
    let field = !sum(header, 0);
    header[10..12].copy_from_slice(&field.to_be_bytes());
}
