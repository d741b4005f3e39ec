//! A UDP header in front of a payload, checksum included.

use core::net::{IpAddr, SocketAddr};

use pktbuf::{Checksum, PktBuf};
use wire::udp::{CHECKSUM_OFFSET, HEADER_LEN, Header};
use wire::{ipv4, ipv6};

use crate::SendError;

/// The longest payload of one datagram to `destination`'s family, in bytes: 65,507 over IPv4, 65,527 over IPv6, whose
/// payload length does not count its own header. IP decides whether it is fragmented.
pub const fn max_payload(destination: IpAddr) -> usize {
    const LARGEST: usize = u16::MAX as usize;
    const _: () = assert!(ipv6::HEADER_LEN > ipv4::HEADER_LEN);
    match destination {
        IpAddr::V4(_) => LARGEST - ipv4::HEADER_LEN - HEADER_LEN,
        IpAddr::V6(_) => LARGEST - HEADER_LEN,
    }
}

/// Where the checksum of a datagram is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksumming {
    /// It is computed here; a sum of zero is sent as 0xffff (RFC 768).
    Here,
    /// It is left to the device ([`Checksum::Partial`]).
    Device,
    /// Nowhere: the field is zero.
    None,
}

/// Puts the UDP header in front of `payload`.
///
/// # Errors
/// [`SendError::TooLong`], [`SendError::FamilyMismatch`]; the payload is dropped.
///
/// # Panics
/// When the payload has less than eight bytes of headroom.
pub fn emit(
    mut payload: PktBuf,
    src: SocketAddr,
    dst: SocketAddr,
    checksumming: Checksumming,
) -> Result<PktBuf, SendError> {
    if src.is_ipv4() != dst.is_ipv4() {
        return Err(SendError::FamilyMismatch { source: src.ip(), destination: dst.ip() });
    }
    let (len, most) = (payload.len(), max_payload(dst.ip()));
    if len > most {
        return Err(SendError::TooLong { len, most });
    }
    let mut header = Header { src_port: src.port(), dst_port: dst.port(), len: (len + HEADER_LEN) as u16, checksum: 0 };
    let pseudo = header.pseudo_header(src.ip(), dst.ip());
    let field = payload.push_front(HEADER_LEN).first_chunk_mut().expect("push_front gives what was asked for");
    if checksumming == Checksumming::Device {
        header.checksum = pseudo.fold();
    }
    header.emit(field);
    payload.meta_mut().checksum = match checksumming {
        Checksumming::Device => Checksum::Partial { start: 0, offset: CHECKSUM_OFFSET as u16 },
        Checksumming::Here | Checksumming::None => Checksum::None,
    };
    if checksumming == Checksumming::Here {
        let checksum = pseudo.add(pktbuf::sum(&payload)).finish_udp();
        payload[CHECKSUM_OFFSET..HEADER_LEN].copy_from_slice(&checksum.to_be_bytes());
    }
    Ok(payload)
}
