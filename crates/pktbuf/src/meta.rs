//! The metadata of a packet, in the first cache line of its block.

/// Side information of a packet; reset to [`Meta::default`] by every allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Arrival stamp, nanoseconds by the receiving device's clock, or a sequence number that the device counts; 0 if
    /// none.
    pub stamp: u64,
    /// Receive-side scaling hash of the flow (Toeplitz), if it was computed.
    pub flow_hash: Option<u32>,
    /// The state of the transport checksum.
    pub checksum: Checksum,
    /// Segment size of a super-segment, in bytes of data: the size of the segments that the device splits it into
    /// (transmit) or coalesced it from (receive). 0 for an ordinary packet.
    pub segment_size: u16,
    /// Device queue that the packet came from or goes to.
    pub queue: u16,
    /// Where the network header begins: the value of [`PktBuf::headroom`](crate::PktBuf::headroom) while it was in
    /// front. 0 if unknown. See [`PktBuf::mark_network_header`](crate::PktBuf::mark_network_header).
    pub l3: u16,
    /// Type of service (IPv4) or traffic class (IPv6): DSCP in the high six bits, the ECN codepoint in the low two. For
    /// a received packet the value in its IP header; for one to send the value requested by the transport.
    pub traffic_class: u8,
    /// Time to live or hop limit for the IP header, requested by the transport; 0: the default.
    pub hop_limit: u8,
}

impl Meta {
    /// The ECN codepoint of the packet (RFC 3168 section 5): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    #[inline]
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 3
    }
}

// The metadata shares the first cache line of a block with the pool's own words.
const _: () = assert!(size_of::<Meta>() == 32);

/// The state of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: a received packet must be verified; a packet to send is complete.
    #[default]
    None,
    /// A device or an earlier layer verified it.
    Verified,
    /// Left to the sender of the packet: the field holds the folded pseudo-header sum, not complemented, and the sum
    /// over everything from `start` to the end, complemented, belongs there (the meaning of virtio 1.2 section
    /// 5.1.6.2).
    Partial {
        /// Where summing begins, in bytes from the first byte of the packet: 0 in a bare segment. Code that prepends a
        /// header adds its length, so that a device counts from the first byte of the frame.
        start: u16,
        /// Where the checksum field is, in bytes after `start`.
        offset: u16,
    },
    /// Of received data without its headers, which has been accepted: it must be verified before it is used.
    Later {
        /// The folded sum, in host order, of all that the checksum covers besides the data; even in length.
        rest: u16,
    },
}
