//! The control bits of a segment (RFC 9293 section 3.1).

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// A set of control bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u16);

impl TcpFlags {
    /// No bit.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push: deliver what has arrived.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer field is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);
    /// Accurate ECN (RFC 9768), formerly the nonce sum: the lowest bit of the byte with the data offset.
    pub const AE: Self = Self(0x100);

    const NAMES: [&'static str; 9] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];

    /// Whether every bit of `other` is set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no bit is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits of either: `|` for constants.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits of both: `&` for constants.
    #[inline]
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The bits of `self` that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Sets the bits of `other`.
    #[inline]
    pub const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Clears the bits of `other`.
    #[inline]
    pub const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

impl BitOr for TcpFlags {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for TcpFlags {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.insert(other);
    }
}

impl BitAnd for TcpFlags {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for TcpFlags {
    type Output = Self;
    #[inline]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// `SYN|ACK`, lowest bit first; `-` for none.
impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (bit, name) in Self::NAMES.iter().enumerate() {
            if self.0 >> bit & 1 != 0 {
                write!(f, "{between}{name}")?;
                between = "|";
            }
        }
        if self.is_empty() { f.write_str("-") } else { Ok(()) }
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::TcpFlags;
    use std::string::ToString;

    #[test]
    fn sets() {
        let mut flags = TcpFlags::SYN | TcpFlags::ACK;
        assert!(flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::SYN | TcpFlags::FIN));
        assert!(flags.intersects(TcpFlags::SYN | TcpFlags::FIN) && !flags.intersects(TcpFlags::FIN));
        assert_eq!(flags.to_string(), "SYN|ACK");
        assert_eq!(flags & !TcpFlags::ACK, TcpFlags::SYN);
        flags.remove(TcpFlags::SYN | TcpFlags::ACK);
        assert!(flags.is_empty());
        assert_eq!(flags.to_string(), "-");
        flags |= TcpFlags::CWR;
        assert_eq!(flags.difference(TcpFlags::ECE), TcpFlags(0x80));
    }
}
