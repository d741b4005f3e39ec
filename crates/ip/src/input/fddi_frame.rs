//! Frames of FDDI (RFC 1390, RFC 2467): the checks of the link, then those of any packet.
//!
//! There is no path of its own for plain segments, as there is none for packets without a link header.

use observe::{Counters, DropReason};
use pktbuf::PktBuf;
use wire::ethernet::EtherType;
use wire::fddi::{self, FddiError};

use super::{Input, by_type, station_cast};
use crate::interface::InterfaceView;

/// Takes a frame from an FDDI interface. Its addresses and its type have the meaning that they have on Ethernet. A frame
/// with a source route has a group address as its source (IEEE 802.5), and is dropped as any such frame.
#[inline(never)]
pub fn fddi(mut frame: PktBuf, interface: &InterfaceView, counters: &Counters) -> Input {
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
