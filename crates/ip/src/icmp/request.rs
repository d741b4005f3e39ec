//! Echo requests of our own (RFC 792, RFC 4443 section 4.1).

use core::net::IpAddr;

use pktbuf::PktBuf;
use wire::{icmpv4, icmpv6, protocol};

use crate::output::{self, DEFAULT_TTL};

/// An echo request with `data`, beginning at its network header; it may exceed the MTU. `None` when there is no buffer,
/// or the addresses are of different families.
pub fn echo_request(src: IpAddr, dst: IpAddr, ident: u16, seq: u16, data: &[u8]) -> Option<PktBuf> {
    let mut packet = PktBuf::alloc(icmpv4::HEADER_LEN + data.len())?;
    packet.append(icmpv4::HEADER_LEN);
    if !packet.extend_from_slice(data) {
        return None;
    }
    let protocol = match (src, dst) {
        (IpAddr::V4(_), IpAddr::V4(_)) => {
            icmpv4::Message::EchoRequest { ident, seq }.emit(&mut packet);
            protocol::ICMP
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            icmpv6::Message::EchoRequest { ident, seq }.emit(src, dst, &mut packet);
            protocol::ICMPV6
        }
        _ => return None,
    };
    output::header(&mut packet, src, dst, protocol, 0, DEFAULT_TTL);
    Some(packet)
}
