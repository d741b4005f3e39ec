//! The Internet checksum, one 16-bit word at a time, as RFC 1071 states it: what faster ones are compared with.

use std::net::IpAddr;

/// What stands in a checksum field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// What is right.
    #[default]
    Right,
    /// The right one plus this in one's complement: wrong, but for 0 and 0xffff.
    OffBy(u16),
    /// The sum of the pseudo-header alone: the device is to add the rest.
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

/// The one's-complement sum of 16-bit words; an odd last byte is the high half of a word. `start` is the sum of what
/// stands before. A message whose checksum is right has the sum 0xffff.
pub fn sum(bytes: &[u8], start: u16) -> u16 {
    let word = |pair: &[u8]| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
    bytes.chunks(2).fold(start, |sum, pair| add(sum, word(pair)))
}

/// One's-complement addition: a carry comes in again at the other end.
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

/// Makes the checksum of the IPv4 header right that begins at `at`, as far as there is a whole header.
pub fn repair(bytes: &mut [u8], at: usize) {
    let words = bytes.get(at).map_or(0, |first| usize::from(first & 0x0f));
    let Some(header) = bytes.get_mut(at..at + words * 4).filter(|header| header.len() >= 20) else { return };
    header[10..12].fill(0);
    let field = !sum(header, 0);
    header[10..12].copy_from_slice(&field.to_be_bytes());
}
