//! From an IP packet to a datagram: checks the length field and the checksum.

use core::net::{IpAddr, SocketAddr};

use observe::{Counter, Counters, DropReason};
use pktbuf::{Checksum, PktBuf};
use wire::udp::{self, HEADER_LEN, Header};
use wire::{FourTuple, ParseError};

/// A received datagram; the buffer holds the payload, the headers are still in its headroom.
#[derive(Debug)]
pub struct ReceivedDatagram {
    /// The payload.
    pub buf: PktBuf,
    /// The sender. Port 0 means that no answer is expected.
    pub source: SocketAddr,
    /// Our address, a group or a broadcast.
    pub destination: SocketAddr,
    /// Type of service or traffic class of the packet.
    pub tos: u8,
    /// The sender sent no checksum: the payload is unprotected, and over IPv6 so are the addresses.
    pub without_checksum: bool,
}

impl ReceivedDatagram {
    /// The flow as its receiver sees it.
    pub fn tuple(&self) -> FourTuple {
        FourTuple::new(self.destination, self.source)
    }
}

/// Checks a packet that begins at its UDP header, from `src` to `dst` with type of service `tos`, and pulls the header.
///
/// A checksum of zero means "none". It is legal over IPv4 (RFC 768), and over IPv6 only if the socket allows it (RFC
/// 6936): the datagram has a flag, so that the socket can decide. Bytes after the datagram's own length are cut off,
/// because the checksum does not cover them.
///
/// # Errors
/// The reason for which the packet must be dropped; the caller counts it.
pub fn parse(
    mut buf: PktBuf,
    src: IpAddr,
    dst: IpAddr,
    tos: u8,
    counters: &Counters,
) -> Result<ReceivedDatagram, DropReason> {
    let header = udp::parse(&buf).map_err(|error| match error {
        ParseError::Truncated if buf.len() < HEADER_LEN => DropReason::UdpTruncated,
        _ => DropReason::UdpBadLength,
    })?;
    if header.dst_port == 0 {
        return Err(DropReason::UdpBadPort);
    }
    buf.truncate(header.len.into());
    let without_checksum = header.checksum == 0;
    if !without_checksum {
        verify(&buf, &header, src, dst, counters)?;
    }
    buf.pull_front(HEADER_LEN);
    let (source, destination) = (SocketAddr::new(src, header.src_port), SocketAddr::new(dst, header.dst_port));
    Ok(ReceivedDatagram { buf, source, destination, tos, without_checksum })
}

#[inline]
fn verify(buf: &PktBuf, header: &Header, src: IpAddr, dst: IpAddr, counters: &Counters) -> Result<(), DropReason> {
    // A partial checksum never crossed a wire: the sender is on this machine and left it to a virtual device.
    if buf.meta().checksum != Checksum::None {
        counters.increment(Counter::ChecksumsOffloaded);
        return Ok(());
    }
    counters.increment(Counter::ChecksumsVerified);
    let sum = header.pseudo_header(src, dst).add(pktbuf::sum(buf));
    if sum.is_valid() { Ok(()) } else { Err(DropReason::UdpBadChecksum) }
}
