//! Echo requests of our own (RFC 792, RFC 4443 section 4.1).

use core::net::IpAddr;

use pktbuf::PktBuf;
use wire::{icmpv4, icmpv6};

use super::put_header;

/// An echo request with `data`, beginning at its network header. If it exceeds `mtu` it may be fragmented. `None` when
/// there is no buffer, or the addresses are of different families.
pub fn echo_request(src: IpAddr, dst: IpAddr, ident: u16, seq: u16, data: &[u8], mtu: usize) -> Option<PktBuf> {
    let mut packet = PktBuf::alloc(icmpv4::HEADER_LEN + data.len())?;
    packet.append(icmpv4::HEADER_LEN);
    if !packet.extend_from_slice(data) {
        return None;
    }
    match (src, dst) {
        (IpAddr::V4(_), IpAddr::V4(_)) => {
            icmpv4::Message::EchoRequest { ident, seq }.emit(&mut packet);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            icmpv6::Message::EchoRequest { ident, seq }.emit(src, dst, &mut packet);
        }
        _ => return None,
    }
    put_header(&mut packet, src, dst, 0, mtu);
    Some(packet)
}
