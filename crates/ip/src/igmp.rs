//! IGMP messages received (RFC 3376): a host handles queries only. The reports are made by
//! [`Autoconf`](crate::autoconf::Autoconf), which knows the groups.

use core::net::IpAddr;

use observe::{Counter, Counters, DropReason};
use wire::igmp::{self, Message};

use crate::autoconf::GroupQuery;
use crate::datagram::Datagram;

/// The query in an IGMP datagram.
///
/// # Errors
/// [`DropReason::IgmpBadMessage`] when it is malformed, comes from beyond the link, or is addressed to another address
/// than the group queried (RFC 3376 section 9.1); [`DropReason::IgmpIgnored`] for messages to routers.
pub fn receive(datagram: &Datagram, counters: &Counters) -> Result<GroupQuery, DropReason> {
    let message = igmp::parse(&datagram.buf).map_err(|_| DropReason::IgmpBadMessage)?;
    let Message::Query(query) = message else { return Err(DropReason::IgmpIgnored) };
    let about = if query.group.is_unspecified() { igmp::ALL_HOSTS } else { query.group };
    if datagram.ttl != igmp::TTL || datagram.dst != IpAddr::V4(about) {
        return Err(DropReason::IgmpBadMessage);
    }
    counters.increment(Counter::GroupQueriesIn);
    Ok(query.into())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::autoconf::GroupVersion;
    use crate::interface::InterfaceView;
    use crate::output::{Fragmentation, ipv4_header};
    use crate::{Input, input};
    use pktbuf::PktBuf;
    use wire::{checksum, protocol};

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    fn heard(message: &[u8], src: Ipv4Addr, dst: Ipv4Addr, ttl: u8) -> Result<GroupQuery, DropReason> {
        let mut view = InterfaceView::new(0, wire::ethernet::MacAddr([2, 0, 0, 0, 0, 1]), 1500);
        view.add_address("10.0.0.1".parse().unwrap(), 24).unwrap();
        view.join(GROUP.into());
        let mut bytes = message.to_vec();
        let sum = checksum::sum(&bytes).finish();
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut packet = PktBuf::from_slice(&bytes).unwrap();
        ipv4_header(&mut packet, src, dst, protocol::IGMP, igmp::TOS, ttl, Fragmentation::Never);
        let counters = Counters::new();
        match input::packet(packet, &view, &counters) {
            Input::Igmp(datagram) => receive(&datagram, &counters),
            Input::Drop(reason) => Err(reason),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn queries_are_heard_from_the_link_and_nothing_else_is() {
        let router = Ipv4Addr::new(10, 0, 0, 9);
        let general = [igmp::QUERY, 100, 0, 0, 0, 0, 0, 0];
        let specific = [igmp::QUERY, 100, 0, 0, 239, 1, 2, 3, 0, 0, 0, 0];
        let query = heard(&general, router, igmp::ALL_HOSTS, 1).unwrap();
        assert_eq!((query.group, query.version), (Ipv4Addr::UNSPECIFIED.into(), GroupVersion::Old));
        let query = heard(&specific, Ipv4Addr::UNSPECIFIED, GROUP, 1).unwrap();
        assert_eq!((query.group, query.version), (GROUP.into(), GroupVersion::Current), "a switch without an address");
        for (src, dst, ttl) in [(router, igmp::ALL_HOSTS, 2), (router, Ipv4Addr::new(10, 0, 0, 1), 1)] {
            assert_eq!(heard(&general, src, dst, ttl), Err(DropReason::IgmpBadMessage), "{dst} {ttl}");
        }
        assert_eq!(heard(&specific, router, igmp::ALL_HOSTS, 1), Err(DropReason::IgmpBadMessage));
        assert_eq!(heard(&[igmp::QUERY, 1, 0, 0, 0], router, igmp::ALL_HOSTS, 1), Err(DropReason::IgmpBadMessage));
        let report = [igmp::V2_REPORT, 0, 0, 0, 239, 1, 2, 3];
        assert_eq!(heard(&report, router, GROUP, 1), Err(DropReason::IgmpIgnored));
        let loopback = Ipv4Addr::new(127, 0, 0, 1);
        assert_eq!(heard(&general, loopback, igmp::ALL_HOSTS, 1), Err(DropReason::IpMartianSource));
    }
}
