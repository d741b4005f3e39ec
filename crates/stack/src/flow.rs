//! How a connection is named on its way through the stack.

pub use path::index;
pub use sync::slab::Key;
use wire::{FlowMark, FourTuple};

/// A connection for classification: its tuple, and the RSS hash that selects the cell and the device queue that serve
/// it. The hash is the device's own (Toeplitz), so that hardware and software agree. Padded to 48 bytes for copying: 44
/// bytes are copied in overlapping pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(align(8))]
pub struct Flow {
    /// Addresses and ports; *local* is this stack.
    pub tuple: FourTuple,
    /// Toeplitz hash of a segment of this flow as it arrives here.
    pub hash: u32,
}

impl Flow {
    /// Which of `n` cells or queues serves this flow. `n` must not be 0.
    #[inline]
    pub fn index(&self, n: usize) -> usize {
        index(self.hash, n)
    }

    /// Its mark, by which caches of look-ups know it.
    #[inline(always)]
    pub fn mark(&self) -> FlowMark {
        FlowMark::of(self.hash, &self.tuple)
    }
}

/// A datagram socket as its user names it. Its home is the cell to which datagrams for its port are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpName {
    /// The port that it is bound to.
    pub port: u16,
    /// A number unique in the stack, because several sockets may share a port.
    pub number: u32,
}

impl UdpName {
    /// Used instead of a flow's hash to choose a cell, for all sockets of a port.
    #[inline]
    pub fn home(port: u16) -> u32 {
        port.into()
    }
}

/// The name of a connection for its user, under every architecture: its slot and the generation of that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Hash of its flow, which selects the cell.
    pub hash: u32,
    /// Slot and generation in the stack's slab of connections. A stale key finds nothing.
    pub key: Key,
}

impl Target {
    /// Which of `n` cells or queues serves it; as [`Flow::index`].
    #[inline]
    pub fn index(&self, n: usize) -> usize {
        index(self.hash, n)
    }
}
