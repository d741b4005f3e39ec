//! Maximum segment sizes (RFC 9293 section 3.7.1): of a packet, as announced, and the default for a peer that announces
//! none.

use core::net::IpAddr;

use wire::{ipv4, ipv6, tcp};

use crate::config::ConnectionOptions;

/// The MSS of a peer that announces none (RFC 9293 section 3.7.1, MUST-15), over IPv4.
pub const DEFAULT_V4: u16 = 536;
/// The same over IPv6.
pub const DEFAULT_V6: u16 = 1220;

/// The MSS of a peer at `remote` that announces none.
pub fn default_for(remote: IpAddr) -> u16 {
    if remote.is_ipv4() { DEFAULT_V4 } else { DEFAULT_V6 }
}

/// The MSS for packets of at most `mtu` bytes to `destination`: the rest after the fixed headers of IP and TCP (RFC
/// 6691).
pub fn in_packet(mtu: usize, destination: IpAddr) -> u16 {
    let network = if destination.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    mtu.saturating_sub(network + tcp::HEADER_LEN).min(usize::from(u16::MAX)) as u16
}

/// The MSS that we announce, where the path carries `mss`: the reverse path may differ, and has its own bound.
pub(crate) fn announced(mss: u16, options: &ConnectionOptions) -> u16 {
    let most = options.max_segment.unwrap_or(u16::MAX).max(1);
    options.announced_mss.map_or(mss, |announced| announced.clamp(1, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_holds_what_its_fixed_headers_leave() {
        let (v4, v6) = ("10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!((in_packet(1500, v4), in_packet(1500, v6)), (1460, 1440));
        assert_eq!((in_packet(576, v4), in_packet(1280, v6)), (DEFAULT_V4, DEFAULT_V6));
        assert_eq!((in_packet(39, v4), in_packet(1 << 20, v6)), (0, u16::MAX));
    }
}
