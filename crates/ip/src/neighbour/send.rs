//! The way of a packet to a neighbour: a header that may be cached, or the wait for an answer.

use core::net::IpAddr;

use observe::{Counters, Time};
use pktbuf::PktBuf;
use smallvec::{SmallVec, smallvec};

use super::{NeighbourAccess, Resolution};
use crate::interface::InterfaceView;
use crate::link::LinkHeader;

/// The link header to `next_hop` for packets of `destination`'s family, if its link address is known and fresh, and
/// whether the neighbour's reachability is in doubt: the header must then not be cached. `progress`: the transport has
/// just seen forward progress, which confirms reachability (RFC 4861 section 7.3.1).
#[inline]
pub fn link_header(
    neighbours: &mut impl NeighbourAccess,
    view: &InterfaceView,
    (next_hop, destination): (IpAddr, IpAddr),
    progress: bool,
    now: Time,
) -> Option<(LinkHeader, bool)> {
    if !view.framing.has_addresses() {
        return Some((LinkHeader::None, false));
    }
    let (mac, in_doubt) = neighbours.reach(now, next_hop, progress)?;
    Some((view.link_header(mac, destination), in_doubt))
}

/// Puts a link header in front of an IP packet, or queues it until its neighbour answers. Returns the frames to send now:
/// the packet, or the solicitation. A packet that is dropped is counted.
pub fn resolve_or_queue(
    neighbours: &mut impl NeighbourAccess,
    view: &InterfaceView,
    next_hop: IpAddr,
    packet: PktBuf,
    now: Time,
    counters: &Counters,
) -> SmallVec<[PktBuf; 8]> {
    if !view.framing.has_addresses() {
        return smallvec![packet];
    }
    match neighbours.resolve(now, view, next_hop, packet, counters) {
        Resolution::Ready(mac, mut packet) => {
            view.link_header(mac, next_hop).prepend(&mut packet);
            smallvec![packet]
        }
        Resolution::Queued { solicit } => solicit.into_iter().collect(),
        Resolution::Dropped(reason) => {
            counters.count_drop(reason);
            SmallVec::new()
        }
    }
}
