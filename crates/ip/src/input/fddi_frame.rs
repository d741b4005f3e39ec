//! Frames of FDDI (RFC 1390, RFC 2467): the checks of the link, then those of any packet.
//!
//! A plain segment has the path that it has on Ethernet: its link header was read when its headers were found
//! ([`Headers::is_plain_fddi_v4`]), and its addresses are compared with those that were accepted last.

use observe::{Counter, Counters, DropReason};
use pktbuf::PktBuf;
use wire::ethernet::EtherType;
use wire::fddi::{self, FddiError, HEADER_LEN};
use wire::{Framing, Headers, ipv4, ipv6, protocol};

use super::{Input, LastAccepted, by_type, plain_v4, plain_v6, station_cast, v4_datagram, v6_datagram};
use crate::datagram::Datagram;
use crate::interface::{Cast, InterfaceView};

/// Where the addresses of the link are: behind the frame control.
const ADDRESSES: usize = 1;

/// Takes a frame from an FDDI interface. Its addresses and its type have the meaning that they have on Ethernet. A frame
/// with a source route has a group address as its source (IEEE 802.5), and is dropped as any such frame.
pub fn fddi(frame: PktBuf, interface: &InterfaceView, counters: &Counters) -> Input {
    let headers = Headers::of(Framing::Fddi, &frame);
    fddi_to(frame, headers, (interface, &mut LastAccepted::default()), counters, Input::Tcp, |input| input)
}

/// As [`fddi()`], with the frame's `headers` and the addresses that were accepted last, but goes on with one of two continuations:
/// `segment` for a plain segment, `other` for all the rest.
#[inline(always)]
pub fn fddi_to<R>(
    frame: PktBuf,
    headers: Headers,
    (interface, last): (&InterfaceView, &mut LastAccepted),
    counters: &Counters,
    segment: impl FnOnce(Datagram) -> R,
    other: impl FnOnce(Input) -> R,
) -> R {
    match plain(frame, headers, interface, last) {
        Ok(datagram) => {
            counters.increment(Counter::PacketsIn);
            segment(datagram)
        }
        Err(frame) => other(checked(frame, interface, counters)),
    }
}

/// A plain segment to us.
///
/// # Errors
/// It is another packet, or a faulty one: the frame, unchanged.
#[inline(always)]
fn plain(
    mut frame: PktBuf,
    headers: Headers,
    interface: &InterfaceView,
    last: &mut LastAccepted,
) -> Result<Datagram, PktBuf> {
    const V4: usize = HEADER_LEN - ADDRESSES + ipv4::HEADER_LEN;
    const V6: usize = HEADER_LEN - ADDRESSES + ipv6::HEADER_LEN;
    if !headers.is_tcp() {
        return Err(frame);
    }
    if headers.is_plain_fddi_v4() {
        return match plain_v4::<HEADER_LEN, ADDRESSES, V4>(&mut frame, headers, interface, &mut last.v4) {
            Some(header) => Ok(v4_datagram(frame, &header, Cast::Unicast)),
            None => Err(frame),
        };
    }
    if headers.is_plain_fddi_v6() {
        return match plain_v6::<HEADER_LEN, ADDRESSES, V6>(&mut frame, headers, interface, &mut last.v6) {
            Some(header) => Ok(v6_datagram(frame, &header, protocol::TCP, Cast::Unicast)),
            None => Err(frame),
        };
    }
    Err(frame)
}

/// Classifies a frame by all steps.
#[inline(never)]
pub(super) fn checked(mut frame: PktBuf, interface: &InterfaceView, counters: &Counters) -> Input {
    let header = match fddi::parse(&frame) {
        Ok(header) => header,
        Err(error) => return Input::Drop(reason(error)),
    };
    let link = match station_cast(&header, interface) {
        Ok(link) => link,
        Err(reason) => return Input::Drop(reason),
    };
    frame.pull_front(fddi::HEADER_LEN);
    match header.ethertype {
        // Behind SNAP no number is the length of an IEEE 802.3 frame.
        EtherType::Other(_) => Input::Drop(DropReason::UnknownEtherType),
        ethertype => by_type(frame, ethertype, link, interface, counters),
    }
}

fn reason(error: FddiError) -> DropReason {
    match error {
        FddiError::Truncated => DropReason::FrameTooShort,
        FddiError::FrameControl => DropReason::FddiFrameControl,
        FddiError::Llc => DropReason::LlcUnsupported,
        FddiError::Organisation => DropReason::SnapUnknownOrganisation,
    }
}
