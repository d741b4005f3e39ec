use super::*;
use crate::testing::*;
use wire::ethernet::EtherType;

fn payload(len: usize) -> PktBuf {
    let mut buf = PktBuf::alloc(len).unwrap();
    buf.append(len).iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7) as u8);
    buf
}

#[test]
fn headers_are_what_the_parsers_read() {
    let mut packet = payload(100);
    ipv4_header(&mut packet, OURS, PEER, protocol::TCP, 0x2e, 61, Fragmentation::Never);
    let header = ipv4::parse(&packet).unwrap();
    assert_eq!((header.src, header.dst, header.protocol), (OURS, PEER, protocol::TCP));
    assert_eq!((header.tos, header.ttl, header.total_len), (0x2e, 61, 120));
    assert!(header.dont_fragment && header.ident == 0, "an atomic packet (RFC 6864)");
    assert_eq!(packet.network_packet().unwrap().len(), 120);

    let mut packet = payload(100);
    ipv4_header(&mut packet, OURS, PEER, protocol::UDP, 0, 64, Fragmentation::Allowed { ident: 77 });
    let header = ipv4::parse(&packet).unwrap();
    assert!(!header.dont_fragment && header.ident == 77);

    let mut packet = payload(100);
    ipv6_header(&mut packet, OURS6, PEER6, protocol::UDP, 3, 64, 0xabcde);
    let header = ipv6::parse(&packet).unwrap();
    assert_eq!((header.src, header.dst, header.next_header), (OURS6, PEER6, protocol::UDP));
    assert_eq!((header.traffic_class, header.flow_label, header.payload_len), (3, 0xabcde, 100));
}

#[test]
fn link_headers_are_kept_and_copied() {
    let mut packet = payload(10);
    let link = interface().link_header(PEER_MAC, PEER6.into());
    link.prepend(&mut packet);
    let (header, offset) = ethernet::parse(&packet).unwrap();
    assert_eq!((header.dst, header.src, header.ethertype, offset), (PEER_MAC, OUR_MAC, EtherType::Ipv6, 14));
    assert_eq!(link.destination(), PEER_MAC);
}

#[test]
fn a_partial_checksum_moves_with_the_headers_and_is_completed_before_cutting() {
    let mut packet = payload(3000);
    packet[6..8].copy_from_slice(&0x1234u16.to_be_bytes());
    packet.meta_mut().checksum = Checksum::Partial { start: 0, offset: 6 };
    let whole = pktbuf::sum(&packet).finish_udp();
    header(&mut packet, OURS6.into(), PEER6.into(), protocol::UDP, 0, 64);
    assert_eq!(packet.meta().checksum, Checksum::Partial { start: 40, offset: 6 });
    let pieces = fragment(packet, 1500, 1).unwrap();
    assert_eq!(pieces[0][48 + 6..48 + 8], whole.to_be_bytes());
    assert!(pieces.iter().all(|piece| piece.meta().checksum == Checksum::None));
}

#[test]
fn fragments_fit_and_say_where_they_belong() {
    let mut packet = payload(4000);
    ipv4_header(&mut packet, OURS, PEER, protocol::UDP, 0, 64, Fragmentation::Allowed { ident: 0 });
    let pieces = fragment(packet, 1500, 0x1_0009).unwrap();
    let headers: Vec<_> = pieces.iter().map(|piece| ipv4::parse(piece).unwrap()).collect();
    let places: Vec<_> = headers.iter().map(|h| (h.fragment_offset, h.payload_len(), h.more_fragments)).collect();
    assert_eq!(places, [(0, 1480, true), (1480, 1480, true), (2960, 1040, false)]);
    assert!(headers.iter().all(|h| h.ident == 9 && !h.dont_fragment));
    assert!(pieces.iter().all(|piece| piece.len() <= 1500));
}

#[test]
fn what_may_not_be_cut_is_not() {
    let mut packet = payload(2000);
    header(&mut packet, OURS.into(), PEER.into(), protocol::UDP, 0, 64);
    assert_eq!(fragment(packet, 1500, 1).unwrap_err(), DropReason::TooBigToSend);
    let mut packet = payload(2000);
    header(&mut packet, OURS6.into(), PEER6.into(), protocol::UDP, 0, 64);
    assert_eq!(fragment(packet, 55, 1).unwrap_err(), DropReason::TooBigToSend, "no room for eight bytes");
    let mut packet = payload(1000);
    header(&mut packet, OURS.into(), PEER.into(), protocol::UDP, 0, 64);
    let whole = packet.to_vec();
    let pieces = fragment(packet, 1500, 1).unwrap();
    assert!(pieces.len() == 1 && *pieces[0] == *whole, "a packet that fits passes untouched");
}

#[test]
fn identifications_do_not_repeat_within_a_pair_nor_relate_between_pairs() {
    let mut source = Identifications::new(42);
    let (ours, peer) = (OURS.into(), PEER.into());
    let seen: std::collections::HashSet<u16> =
        (0..u16::MAX).map(|_| source.next(ours, peer, protocol::UDP) as u16).collect();
    assert_eq!(seen.len(), usize::from(u16::MAX));
    let firsts: std::collections::HashSet<u32> =
        (1..=100).map(|n| Identifications::new(n).next(ours, peer, protocol::UDP)).collect();
    assert!(firsts.len() > 95, "the secret decides where a pair begins");
}
