//! The numbers that a connection begins with.

use wire::SeqNumber;

/// The numbers that a connection begins with. The caller derives them from its secrets: this crate draws no randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isn {
    /// Initial send sequence number (RFC 6528).
    pub iss: SeqNumber,
    /// Offset of our timestamp clock in ms.
    pub ts_offset: u32,
    /// Flow hash copied to every segment's `Meta::flow_hash`, if the stack has one.
    pub flow_hash: Option<u32>,
}
