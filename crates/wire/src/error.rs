//! The one error of every parser in this crate.

use core::fmt;

/// Why received bytes are not a valid header. Callers convert it to a drop reason; it has no position because the whole
/// packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseError {
    /// Fewer bytes than the fixed header, or than the length its own length field announces.
    Truncated,
    /// A length field is inconsistent: smaller than its header, or not of the size that the format requires.
    BadLength,
    /// The version nibble is not that of the protocol.
    BadVersion,
    /// The one's-complement sum over the covered bytes is not all ones.
    BadChecksum,
    /// An option is malformed and the format does not allow the rest to be used (RFC 4861 section 4.6).
    BadOption,
    /// A field has a value that the specification forbids, so the packet must be dropped.
    BadField,
    /// More than eight IPv6 extension headers, or more than 256 bytes of them.
    ChainTooLong,
    /// The hardware or protocol type is not supported.
    Unsupported,
}

impl ParseError {
    /// A description of the error, in one sentence.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Truncated => {
                "the packet ends before its header does; check the capture length or the MTU of the sender"
            }
            Self::BadLength => "a length field contradicts the header it is in; the sender is broken or the bytes are",
            Self::BadVersion => "the IP version does not match the frame's type; check the sender's encapsulation",
            Self::BadChecksum => {
                "the checksum does not match; the packet was damaged, or checksum offload is on where nothing fills it in"
            }
            Self::BadOption => "an option has a length the specification forbids; the sender is broken or hostile",
            Self::BadField => "a field has a value the specification forbids; the sender is broken or hostile",
            Self::ChainTooLong => "the IPv6 extension chain exceeds 8 headers or 256 bytes; send fewer extensions",
            Self::Unsupported => "the hardware or protocol type is not spoken here; only IP over Ethernet is",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

impl core::error::Error for ParseError {}
