//! Tests of the public interface: packets in, datagrams out, errors.

use core::net::{IpAddr, SocketAddr};

use observe::{Counter, Counters, DropReason};
use pktbuf::{Checksum, PktBuf};
use proptest::prelude::*;

use crate::*;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn emitted(payload: &[u8], src: &str, dst: &str) -> PktBuf {
    emit(PktBuf::from_slice(payload).unwrap(), at(src), at(dst), Checksumming::Here).unwrap()
}

fn parsed(packet: PktBuf, src: &str, dst: &str) -> Result<ReceivedDatagram, DropReason> {
    parse(packet, at(src).ip(), at(dst).ip(), 0, &Counters::new())
}

const A4: &str = "10.0.0.1:4000";
const B4: &str = "10.0.0.2:53";
const A6: &str = "[2001:db8::1]:4000";
const B6: &str = "[2001:db8::2]:53";

fn arriving(payload: &[u8], src: &str, dst: &str) -> DatagramArrives {
    DatagramArrives(parsed(emitted(payload, src, dst), src, dst).unwrap())
}

fn bound() -> UdpPcb {
    UdpPcb::new(at("10.0.0.2:53"))
}

proptest! {
    #[test]
    fn what_is_sent_arrives(payload in proptest::collection::vec(any::<u8>(), 0..2000), v6: bool) {
        let (src, dst) = if v6 { (A6, B6) } else { (A4, B4) };
        let datagram = parsed(emitted(&payload, src, dst), src, dst).unwrap();
        prop_assert_eq!(&*datagram.buf, &payload[..]);
        prop_assert_eq!((datagram.source, datagram.destination), (at(src), at(dst)));
    }

    #[test]
    fn random_bytes_are_datagrams_or_drops(bytes in proptest::collection::vec(any::<u8>(), 0..64), v6: bool) {
        let (src, dst) = if v6 { (A6, B6) } else { (A4, B4) };
        let len = bytes.len();
        if let Ok(datagram) = parsed(PktBuf::from_slice(&bytes).unwrap(), src, dst) {
            prop_assert!(datagram.buf.len() + 8 <= len);
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed(payload in proptest::collection::vec(any::<u8>(), 1..100), bit in 0usize..800) {
        let mut packet = emitted(&payload, A4, B4);
        let bit = bit % (packet.len() * 8);
        // Not the length field, which decides what is covered; wrong lengths are in the table below.
        prop_assume!(!(32..48).contains(&bit));
        packet[bit / 8] ^= 1 << (bit % 8);
        // A checksum of one set bit becomes "none" when that bit flips: the only flip that RFC 768 cannot detect.
        let disarmed = packet[6] == 0 && packet[7] == 0;
        prop_assert!(disarmed || parsed(packet, A4, B4).is_err());
    }
}

#[test]
fn malformed_packets_end_in_a_reason() {
    type Mutation = fn(&mut PktBuf);
    let mutants: [(&str, Mutation, DropReason); 8] = [
        ("empty", |p| p.truncate(0), DropReason::UdpTruncated),
        ("seven bytes", |p| p.truncate(7), DropReason::UdpTruncated),
        ("length beyond the packet", |p| p[5] = 200, DropReason::UdpBadLength),
        ("length of the header less one", |p| p[5] = 7, DropReason::UdpBadLength),
        ("length zero", |p| p[5] = 0, DropReason::UdpBadLength),
        ("length one short", |p| p[5] -= 1, DropReason::UdpBadChecksum),
        ("port zero", |p| (p[2], p[3]) = (0, 0), DropReason::UdpBadPort),
        ("another payload", |p| p[9] ^= 0x10, DropReason::UdpBadChecksum),
    ];
    for (src, dst) in [(A4, B4), (A6, B6)] {
        for (name, mutate, reason) in mutants {
            let mut packet = emitted(b"payload", src, dst);
            mutate(&mut packet);
            assert_eq!(parsed(packet, src, dst).unwrap_err(), reason, "{name} from {src}");
        }
    }
}

#[test]
fn a_missing_checksum_is_legal_over_ipv4_and_where_the_socket_takes_it() {
    let without = |src: &str, dst: &str| {
        let packet = emit(PktBuf::from_slice(b"x").unwrap(), at(src), at(dst), Checksumming::None).unwrap();
        assert_eq!((packet[6], packet[7]), (0, 0));
        let datagram = parsed(packet, src, dst).unwrap();
        assert!(datagram.without_checksum);
        DatagramArrives(datagram)
    };
    let counters = Counters::new();
    let mut out = UdpOutbox::new(&counters);
    assert_eq!(without(A4, B4).run(&mut bound(), &mut out), Ok(()));
    let mut pcb = UdpPcb::new(at(B6));
    assert_eq!(without(A6, B6).run(&mut pcb, &mut out), Err(DropReason::UdpNoChecksum));
    pcb.accept_without_checksum = true;
    assert_eq!(without(A6, B6).run(&mut pcb, &mut out), Ok(()));
    // A socket that takes datagrams without checksum still refuses wrong ones.
    let mut wrong = emitted(b"x", A6, B6);
    wrong[8] ^= 1;
    assert_eq!(parsed(wrong, A6, B6).unwrap_err(), DropReason::UdpBadChecksum);
}

#[test]
fn a_socket_may_send_without_checksum() {
    let counters = Counters::new();
    for (local, remote, offload) in [(A4, B4, false), (A6, B6, false), (A6, B6, true)] {
        let mut pcb = UdpPcb::new(at(local));
        pcb.omit_checksum = true;
        let mut out = UdpOutbox::new(&counters);
        out.offload = offload;
        let payload = PktBuf::from_slice(b"tunnelled").unwrap();
        SendTo { payload, to: Some(at(remote)), source: at(local).ip() }.run(&mut pcb, &mut out).unwrap();
        let sent = &out.datagrams[0].buf;
        assert_eq!((&sent[6..8], sent.meta().checksum), (&[0u8, 0][..], Checksum::None));
    }
}

#[test]
fn a_sum_of_zero_is_sent_as_ones() {
    // The payload is chosen so that everything sums to all ones, whose complement is zero.
    let plain = emitted(&[0, 0], A4, B4);
    let checksum = [plain[6], plain[7]];
    let packet = emitted(&checksum, A4, B4);
    assert_eq!(packet[6..8], [0xff, 0xff]);
    assert!(parsed(packet, A4, B4).is_ok());
}

#[test]
fn bytes_behind_the_datagram_are_cut_off() {
    let mut packet = emitted(b"payload", A4, B4);
    assert!(packet.extend_from_slice(b"surplus"));
    assert_eq!(&*parsed(packet, A4, B4).unwrap().buf, b"payload");
}

#[test]
fn a_checksum_left_to_the_device_is_described_and_trusted_on_the_way_in() {
    let packet = emit(PktBuf::from_slice(b"payload").unwrap(), at(A4), at(B4), Checksumming::Device).unwrap();
    assert_eq!(packet.meta().checksum, Checksum::Partial { start: 0, offset: 6 });
    let mut whole = PktBuf::from_slice(&packet).unwrap();
    let checksum = pktbuf::sum(&whole).finish_udp();
    whole[6..8].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(&*whole, &*emitted(b"payload", A4, B4));
    assert_eq!(&*parsed(packet, A4, B4).unwrap().buf, b"payload");
}

#[test]
fn oversize_payloads_name_the_limit() {
    let payload = || {
        let mut buf = PktBuf::alloc(65_528).unwrap();
        buf.append(65_528).fill(7);
        buf
    };
    let error = emit(payload(), at(A4), at(B4), Checksumming::Here).unwrap_err();
    assert_eq!(error, SendError::TooLong { len: 65_528, most: 65_507 });
    let error = emit(payload(), at(A6), at(B6), Checksumming::Here).unwrap_err();
    assert_eq!(error, SendError::TooLong { len: 65_528, most: 65_527 });
    assert!(error.to_string().contains("65527"), "{error}");
    let mut longest = payload();
    longest.truncate(65_507);
    assert_eq!(emit(longest, at(A4), at(B4), Checksumming::Here).unwrap().len(), 65_515);
}

#[test]
fn a_socket_receives_in_order_and_wakes_once() {
    let (counters, mut pcb) = (Counters::new(), bound());
    let mut out = UdpOutbox::new(&counters);
    assert_eq!(ReceiveFrom.run(&mut pcb, &mut out).unwrap_err(), ReceiveError::WouldBlock);
    arriving(b"one", A4, B4).run(&mut pcb, &mut out).unwrap();
    assert_eq!(out.ready, UdpReadiness::READABLE);
    out.ready = UdpReadiness::NONE;
    arriving(b"two", A4, B4).run(&mut pcb, &mut out).unwrap();
    assert!(out.ready.is_empty(), "a socket that was readable does not become so");
    let first = ReceiveFrom.run(&mut pcb, &mut out).unwrap();
    assert_eq!((&*first.buf, first.source), (&b"one"[..], at(A4)));
    assert_eq!(&*ReceiveFrom.run(&mut pcb, &mut out).unwrap().buf, b"two");
    assert_eq!(pcb.held(), 0);
    assert_eq!(counters.get(Counter::DatagramsIn), 2);
}

#[test]
fn the_queue_is_bounded_by_the_memory_it_pins() {
    let (counters, mut pcb) = (Counters::new(), bound());
    let mut out = UdpOutbox::new(&counters);
    pcb.set_receive_limit(64 << 10);
    let mut taken = 0;
    let reason = loop {
        match arriving(b"x", A4, B4).run(&mut pcb, &mut out) {
            Ok(()) => taken += 1,
            Err(reason) => break reason,
        }
        assert!(pcb.held() <= 64 << 10);
    };
    assert_eq!((reason, taken), (DropReason::SocketQueueFull, 204));
    ReceiveFrom.run(&mut pcb, &mut out).unwrap();
    assert_eq!(arriving(b"x", A4, B4).run(&mut pcb, &mut out), Ok(()));
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    let (counters, mut pcb) = (Counters::new(), UdpPcb::new(at("0.0.0.0:53")));
    let mut out = UdpOutbox::new(&counters);
    arriving(b"stranger", "10.0.0.9:1", B4).run(&mut pcb, &mut out).unwrap();
    arriving(b"peer", A4, B4).run(&mut pcb, &mut out).unwrap();
    UdpConnect { remote: at(A4), source: ip("10.0.0.2") }.run(&mut pcb, &mut out).unwrap();
    assert_eq!(pcb.local, at(B4));
    assert_eq!(counters.dropped(DropReason::UdpWrongPeer), 1);
    let refused = arriving(b"stranger", "10.0.0.9:1", B4).run(&mut pcb, &mut out);
    assert_eq!(refused, Err(DropReason::UdpWrongPeer));
    assert_eq!(&*ReceiveFrom.run(&mut pcb, &mut out).unwrap().buf, b"peer");
    Disconnect.run(&mut pcb, &mut out);
    arriving(b"stranger", "10.0.0.9:1", B4).run(&mut pcb, &mut out).unwrap();
}

#[test]
fn sending_needs_a_destination_and_uses_the_right_source() {
    let (counters, mut pcb) = (Counters::new(), UdpPcb::new(at("0.0.0.0:53")));
    let mut out = UdpOutbox::new(&counters);
    let send = |to: Option<&str>| SendTo {
        payload: PktBuf::from_slice(b"hello").unwrap(),
        to: to.map(at),
        source: ip("10.0.0.2"),
    };
    assert_eq!(send(None).run(&mut pcb, &mut out), Err(SendError::NoDestination));
    assert_eq!(send(Some("10.0.0.1:0")).run(&mut pcb, &mut out), Err(SendError::BadDestination));
    assert!(matches!(send(Some(A6)).run(&mut pcb, &mut out), Err(SendError::FamilyMismatch { .. })));
    assert!(out.datagrams.is_empty());
    assert_eq!(send(Some(A4)).run(&mut pcb, &mut out), Ok(5));
    let sent = out.datagrams.pop().unwrap();
    assert_eq!((sent.src, sent.dst, sent.ttl), (ip("10.0.0.2"), ip("10.0.0.1"), 64));
    assert_eq!(&*parsed(sent.buf, B4, A4).unwrap().buf, b"hello");
    UdpClose.run(&mut pcb, &mut out);
    assert_eq!(send(Some(A4)).run(&mut pcb, &mut out), Err(SendError::Closed));
}

#[test]
fn errors_reach_connected_sockets_once() {
    let (counters, mut pcb) = (Counters::new(), bound());
    let mut out = UdpOutbox::new(&counters);
    let refused = UdpIcmpError::Refused { remote: at(A4) };
    assert_eq!(refused.run(&mut pcb, &mut out), Err(DropReason::IcmpNoConnection), "not connected");
    UdpConnect { remote: at(A4), source: ip("10.0.0.2") }.run(&mut pcb, &mut out).unwrap();
    let other = UdpIcmpError::Refused { remote: at("10.0.0.9:1") };
    assert_eq!(other.run(&mut pcb, &mut out), Err(DropReason::IcmpNoConnection), "another peer");
    refused.run(&mut pcb, &mut out).unwrap();
    assert!(out.ready.contains(UdpReadiness::ERROR) && pcb.readiness().contains(UdpReadiness::ERROR));
    assert_eq!(ReceiveFrom.run(&mut pcb, &mut out).unwrap_err(), ReceiveError::Refused);
    assert_eq!(ReceiveFrom.run(&mut pcb, &mut out).unwrap_err(), ReceiveError::WouldBlock);
    UdpIcmpError::PacketTooBig { remote: at(A4), mtu: 1400 }.run(&mut pcb, &mut out).unwrap();
    let payload = PktBuf::from_slice(b"x").unwrap();
    let send = SendTo { payload, to: None, source: ip("10.0.0.2") };
    assert_eq!(send.run(&mut pcb, &mut out), Err(SendError::PathTooNarrow { mtu: 1400 }));
}

#[test]
fn closing_empties_the_queue_and_counts_what_was_in_it() {
    let (counters, mut pcb) = (Counters::new(), bound());
    let mut out = UdpOutbox::new(&counters);
    arriving(b"late", A4, B4).run(&mut pcb, &mut out).unwrap();
    UdpClose.run(&mut pcb, &mut out);
    assert_eq!((pcb.held(), counters.dropped(DropReason::UdpNoSocket)), (0, 1));
    assert_eq!(ReceiveFrom.run(&mut pcb, &mut out).unwrap_err(), ReceiveError::Closed);
    assert_eq!(arriving(b"later", A4, B4).run(&mut pcb, &mut out), Err(DropReason::UdpNoSocket));
}

#[test]
fn the_most_specific_socket_scores_highest() {
    let mut connected = bound();
    connected.remote = Some(at(A4));
    let sockets = [UdpPcb::new(at("0.0.0.0:53")), bound(), connected];
    let scores: Vec<_> = sockets.iter().map(|pcb| pcb.score(at(A4), at(B4))).collect();
    assert!(scores.is_sorted() && scores[0] < scores[1] && scores[1] < scores[2], "{scores:?}");
    assert_eq!(sockets[2].score(at("10.0.0.9:1"), at(B4)), None);
    assert_eq!(sockets[0].score(at(A6), at(B6)), None);
    assert_eq!(sockets[1].score(at(A4), at("10.0.0.3:53")), None);
    let any = UdpPcb::new(at("[::]:53"));
    assert!(any.score(at(A4), at(B4)).is_some() && any.score(at(A6), at(B6)).is_some(), "`[::]` takes both families");
}

#[test]
fn what_is_sent_to_a_group_is_for_its_members_and_stays_on_the_link() {
    let (counters, group) = (Counters::new(), at("239.1.2.3:53"));
    let mut out = UdpOutbox::new(&counters);
    let mut pcb = UdpPcb::new(at("0.0.0.0:53"));
    let membership = Membership { group: group.ip(), interface: 0 };
    assert_eq!(pcb.score(at(A4), group), None, "a stranger");
    assert_eq!(JoinGroup(membership).run(&mut pcb, &mut out), Ok(()));
    assert!(pcb.score(at(A4), group).is_some() && pcb.score(at(A4), at("239.1.2.4:53")).is_none());
    assert!(pcb.score(at(A4), at("224.0.0.1:53")).is_some(), "everybody is in this one");
    assert_eq!(JoinGroup(membership).run(&mut pcb, &mut out), Err(JoinError::Joined(group.ip())));
    let wrong = Membership { group: ip("10.0.0.1"), interface: 0 };
    assert_eq!(JoinGroup(wrong).run(&mut pcb, &mut out), Err(JoinError::NotAGroup(wrong.group)));
    for (group, ttl) in [("239.1.2.3:9", 1), (A4, 64)] {
        let payload = PktBuf::from_slice(b"x").unwrap();
        SendTo { payload, to: Some(at(group)), source: ip("10.0.0.2") }.run(&mut pcb, &mut out).unwrap();
        assert_eq!(out.datagrams.last().map(|sent| sent.ttl), Some(ttl), "{group}");
    }
    assert!(LeaveGroup(membership).run(&mut pcb, &mut out) && !LeaveGroup(membership).run(&mut pcb, &mut out));
    assert_eq!(pcb.score(at(A4), group), None);
    for n in 0..MAX_MEMBERSHIPS as u16 {
        assert_eq!(JoinGroup(Membership { interface: n, ..membership }).run(&mut pcb, &mut out), Ok(()));
    }
    let more = Membership { interface: 99, ..membership };
    assert_eq!(JoinGroup(more).run(&mut pcb, &mut out), Err(JoinError::TooMany));
}
