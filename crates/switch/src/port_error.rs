//! Why a device cannot be a port.

use std::fmt;

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortError {
    /// Its queues are taken already.
    NoQueues,
    /// Its frames have no Ethernet header.
    NotEthernet,
    /// It merges received segments into super-segments, which are longer than the other ports' frames.
    Coalesces,
    /// The bridge has the maximum number of ports.
    TooMany,
    /// A port of this name exists.
    Exists,
    /// The bridge has ended.
    Stopped,
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortError::NoQueues => "the device has no queue left; it is in use elsewhere",
            PortError::NotEthernet => {
                "the device carries bare packets or FDDI frames; a bridge needs Ethernet frames (TAP, not TUN)"
            }
            PortError::Coalesces => "the device merges received segments; turn its receive offload off",
            PortError::TooMany => "a bridge has at most 4095 ports",
            PortError::Exists => "the bridge has a port of this name; remove that first",
            PortError::Stopped => "the bridge has ended; start another",
        })
    }
}

impl std::error::Error for PortError {}
