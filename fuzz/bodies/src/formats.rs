//! Packets and capture files.

use std::net::{IpAddr, Ipv6Addr};

use dev::pcap::Reader;
use wire::tcp::{ExtraOptions, Options};
use wire::{arp, ethernet, fddi, icmpv4, icmpv6, igmp, ipv4, ipv6, mld, tcp, udp};

/// Parses `data` as every format; an accepted value must be the same after being written and parsed again.
pub fn wire_formats(data: &[u8]) {
    let _ = (tcp::parse_quoted(data), Options::parse(data), ExtraOptions::parse(data));
    let _ = (ipv4::parse_unverified(data), ipv6::parse_unverified(data));
    if let Ok((_, payload)) = ethernet::parse(data) {
        assert!(payload <= data.len());
    }
    if let Ok(header) = fddi::parse(data) {
        let mut out = [0; fddi::HEADER_LEN];
        fddi::emit(&header, &mut out);
        // All but the priority.
        assert!(out[0] == data[0] & 0xf8 && out[1..] == data[1..fddi::HEADER_LEN]);
    }
    if let Some((first, rest)) = data.split_first() {
        let _ = ipv6::walk(*first, rest);
    }
    arp_comes_back(data);
    network_headers_come_back(data);
    tcp_comes_back(data);
    icmp_comes_back(data);
    group_messages_are_read(data);
    if let Ok(header) = udp::parse(data) {
        let mut out = [0; udp::HEADER_LEN];
        header.emit(&mut out);
        assert_eq!(out[..], data[..udp::HEADER_LEN]);
    }
}

fn arp_comes_back(data: &[u8]) {
    if let Ok(packet) = arp::parse(data) {
        let mut out = [0; arp::PACKET_LEN];
        packet.emit(&mut out);
        assert_eq!(arp::parse(&out), Ok(packet));
    }
}

fn network_headers_come_back(data: &[u8]) {
    if let Ok(header) = ipv4::parse(data) {
        let mut out = vec![0; usize::from(header.total_len)];
        let Some(head) = out.first_chunk_mut() else { panic!("a packet shorter than its header") };
        header.emit(head);
        let header = ipv4::Header { header_len: ipv4::HEADER_LEN as u8, ..header };
        assert_eq!(ipv4::parse(&out), Ok(header));
    }
    if let Ok(header) = ipv6::parse(data) {
        let mut out = vec![0; ipv6::HEADER_LEN + usize::from(header.payload_len)];
        let Some(head) = out.first_chunk_mut() else { panic!("a packet shorter than its header") };
        header.emit(head);
        assert_eq!(ipv6::parse(&out), Ok(header));
    }
}

fn tcp_comes_back(data: &[u8]) {
    let Ok(header) = tcp::parse(data) else { return };
    let mut out = [0; 60];
    let len = header.emit(&mut out);
    if len > 0 {
        let kept = tcp::parse(&out[..len]).expect("what was emitted parses");
        let again = tcp::Header { header_len: len as u8, ..header };
        // If the options fill the header, SACK blocks are dropped.
        if again.options.sack.iter().eq(kept.options.sack.iter()) {
            assert_eq!(kept, again);
        }
    }
}

fn icmp_comes_back(data: &[u8]) {
    if let Ok(message) = icmpv4::parse(data) {
        let mut out = data.to_vec();
        message.emit(&mut out);
        assert_eq!(icmpv4::parse(&out), Ok(message));
    }
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    if let Ok(message) = icmpv6::parse(&with_icmpv6_checksum(data, link_local, all_nodes), link_local, all_nodes) {
        let mut out = vec![0; message.header_len()];
        let len = message.emit(link_local, all_nodes, &mut out);
        assert_eq!(icmpv6::parse(&out[..len], link_local, all_nodes), Ok(message));
    }
}

/// A query has a group or none, and a response time below an hour.
fn group_messages_are_read(data: &[u8]) {
    let mut signed = data.to_vec();
    crate::frame::fill_checksum(
        &mut signed,
        2,
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        wire::protocol::IGMP,
    );
    for message in [data, &signed] {
        if let Ok(igmp::Message::Query(query)) = igmp::parse(message) {
            assert!(query.group.is_unspecified() || query.group.is_multicast());
            assert!(query.max_response.as_secs() < 3600);
        }
        assert!(igmp::parse_report(message).count() <= 1 + data.len() / 8);
    }
    if let Ok(query) = mld::parse_query(data) {
        assert!(query.group.is_unspecified() || query.group.is_multicast());
        assert!(query.max_response.as_secs() < 3 * 3600);
    }
    assert!(mld::parse_report(data).count() <= data.len() / 20);
}

/// The parsers run only with a correct checksum.
fn with_icmpv6_checksum(data: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let mut data = data.to_vec();
    crate::frame::fill_checksum(&mut data, 2, IpAddr::V6(src), IpAddr::V6(dst), wire::protocol::ICMPV6);
    data
}

/// Parses `data` as a capture to its end, or to the first error.
pub fn captures(data: &[u8]) {
    let Ok(mut reader) = Reader::new(data) else { return };
    let mut frames = 0;
    while let Ok(Some(_)) = reader.next_frame() {
        frames += 1;
        assert!(frames <= data.len(), "more frames than bytes");
    }
}
