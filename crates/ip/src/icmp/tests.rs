use super::*;
use crate::input::Input;
use crate::testing::*;
use frames::Payload;
use observe::Time;
use wire::{SeqNumber, icmpv4::Message as V4, icmpv6::Message as V6};

fn message_v4(message: V4, body: &[u8]) -> PktBuf {
    let mut bytes = [&[0; 8][..], body].concat();
    message.emit(&mut bytes);
    framed(packet_v4(protocol::ICMP, &bytes))
}

fn message_v6(message: V6, body: &[u8]) -> PktBuf {
    let mut bytes = [&vec![0; message.header_len()][..], body].concat();
    message.emit(PEER6, OURS6, &mut bytes);
    framed(packet_v6(protocol::ICMPV6, &bytes))
}

fn taken(frame: PktBuf) -> Datagram {
    match received(frame) {
        Input::Icmp(datagram) => datagram,
        other => panic!("{other:?}"),
    }
}

fn outcome(frame: PktBuf) -> (ReceivedIcmp, Counters) {
    let counters = Counters::new();
    (receive(taken(frame), &interface(), &counters), counters)
}

#[test]
fn echo_requests_are_answered_where_they_lie() {
    let (reply, _) = outcome(message_v4(V4::EchoRequest { ident: 7, seq: 9 }, b"abcdefg"));
    let ReceivedIcmp::Reply { packet, destination } = reply else { panic!("{reply:?}") };
    assert_eq!(destination, IpAddr::V4(PEER));
    let header = wire::ipv4::parse(&packet).unwrap();
    assert_eq!((header.src, header.dst, header.dont_fragment), (OURS, PEER, true));
    assert_eq!(icmpv4::parse(&packet[20..]).unwrap(), V4::EchoReply { ident: 7, seq: 9 });
    assert_eq!(&packet[28..], b"abcdefg");

    let (reply, _) = outcome(message_v6(V6::EchoRequest { ident: 7, seq: 9 }, b"abcdefg"));
    let ReceivedIcmp::Reply { packet, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(icmpv6::parse(&packet[40..], OURS6, PEER6).unwrap(), V6::EchoReply { ident: 7, seq: 9 });
    assert_eq!(&packet[48..], b"abcdefg");
}

#[test]
fn our_own_requests_come_back_as_replies() {
    for (ours, peer) in [(IpAddr::V4(OURS), IpAddr::V4(PEER)), (OURS6.into(), PEER6.into())] {
        let request = echo_request(peer, ours, 21, 22, b"ping", 1500).unwrap();
        let ReceivedIcmp::Reply { packet, .. } = outcome(framed(request)).0 else { panic!("a reply to {ours}") };
        let there = InterfaceView::new(0, PEER_MAC, 1500).with_address(peer, 24).unwrap();
        let counters = Counters::new();
        let Input::Icmp(datagram) = crate::input::packet(packet, &there, &counters) else { panic!("ICMP") };
        let ReceivedIcmp::EchoReply { datagram, ident: 21, seq: 22 } = receive(datagram, &there, &counters) else {
            panic!("the reply to 21, 22")
        };
        assert_eq!(&*datagram.buf, b"ping");
    }
    assert!(echo_request(PEER.into(), OURS6.into(), 1, 1, b"", 1500).is_none());
}

#[test]
fn a_request_may_be_fragmented_if_it_must_be() {
    for (len, dont_fragment) in [(1472, true), (1473, false)] {
        let request = echo_request(PEER.into(), OURS.into(), 1, 1, &vec![0; len], 1500).unwrap();
        assert_eq!(wire::ipv4::parse(&request).unwrap().dont_fragment, dont_fragment, "{len}");
    }
}

#[test]
fn echo_to_a_group_is_answered_in_ipv6_from_our_own_address_only() {
    let all = crate::interface::ALL_NODES;
    let mut bytes = [&[0; 8][..], b"odd"].concat();
    V6::EchoRequest { ident: 1, seq: 2 }.emit(PEER6, all, &mut bytes);
    let packet = ENDS6.to(all).packet(Payload::Other(protocol::ICMPV6, &bytes));
    let (reply, _) = outcome(framed(buffer(&packet.bytes())));
    let ReceivedIcmp::Reply { packet, .. } = reply else { panic!("{reply:?}") };
    let header = wire::ipv6::parse(&packet).unwrap();
    assert_eq!((header.src, header.dst), (OURS6, PEER6));
    assert!(icmpv6::parse(&packet[40..], OURS6, PEER6).is_ok(), "the checksum follows the new source");

    let mut frame = message_v4(V4::EchoRequest { ident: 1, seq: 2 }, b"smurf");
    frame[14 + 19] = 255;
    repair(&mut frame, 14);
    let (ignored, counters) = outcome(frame);
    assert!(matches!(ignored, ReceivedIcmp::Nothing));
    assert_eq!(counters.dropped(DropReason::IcmpEchoIgnored), 1);
}

#[test]
fn damaged_messages_end_in_a_reason() {
    let cases: [(&str, PktBuf, DropReason); 6] = [
        ("short", framed(packet_v4(protocol::ICMP, &[8, 0, 0])), DropReason::IcmpTruncated),
        ("short", framed(packet_v6(protocol::ICMPV6, &[128, 0, 0])), DropReason::IcmpTruncated),
        ("checksum", framed(packet_v4(protocol::ICMP, &[8, 0, 1, 1, 0, 0, 0, 0])), DropReason::IcmpBadChecksum),
        ("checksum", framed(packet_v6(protocol::ICMPV6, &[128, 0, 1, 1, 0, 0, 0, 0])), DropReason::IcmpBadChecksum),
        ("timestamp", message_v4(V4::Other { kind: 13, code: 0, rest: 0 }, &[]), DropReason::IcmpUnknownType),
        ("redirect", message_v4(V4::Redirect { code: 1, gateway: PEER }, &[0; 28]), DropReason::IcmpTruncated),
    ];
    for (name, frame, reason) in cases {
        let (received, counters) = outcome(frame);
        assert!(matches!(received, ReceivedIcmp::Nothing), "{name}: {received:?}");
        assert_eq!(counters.dropped(reason), 1, "{name}: {counters:?}");
    }
}

/// A packet of ours as a router would quote it: ports 4000 and 80, sequence number 0x01020304.
fn quoted_v4(protocol: u8) -> PktBuf {
    let mut packet = PktBuf::from_slice(&[0x0f, 0xa0, 0, 80, 1, 2, 3, 4]).unwrap();
    output::header(&mut packet, OURS.into(), PEER.into(), protocol, 0, 3);
    packet
}

fn quoted_v6(protocol: u8) -> PktBuf {
    let mut packet = PktBuf::from_slice(&[0x0f, 0xa0, 0, 80, 1, 2, 3, 4]).unwrap();
    output::header(&mut packet, OURS6.into(), PEER6.into(), protocol, 0, 3);
    packet
}

#[test]
fn an_error_means_the_same_in_both_families() {
    let meaning = |frame| match outcome(frame).0 {
        ReceivedIcmp::Error(error) => error.meaning(),
        other => panic!("{other:?}"),
    };
    let v4 = |message| meaning(message_v4(message, &quoted_v4(protocol::TCP)));
    let v6 = |message| meaning(message_v6(message, &quoted_v6(protocol::TCP)));
    let (code4, code6) = (|code| V4::Unreachable { code, mtu: 0 }, |code| V6::Unreachable { code });
    assert_eq!(v4(code4(icmpv4::unreachable::PORT)), IcmpMeaning::Refused);
    assert_eq!(v4(code4(icmpv4::unreachable::PROTOCOL)), IcmpMeaning::Refused);
    assert_eq!(v6(code6(icmpv6::unreachable::PORT)), IcmpMeaning::Refused);
    assert_eq!(v6(code6(icmpv4::unreachable::PORT)), IcmpMeaning::HostUnreachable, "of the other family");
    assert_eq!(v4(code4(icmpv4::unreachable::NETWORK)), IcmpMeaning::NetworkUnreachable);
    assert_eq!(v6(code6(icmpv6::unreachable::NO_ROUTE)), IcmpMeaning::NetworkUnreachable);
    assert_eq!(v4(code4(icmpv4::unreachable::HOST)), IcmpMeaning::HostUnreachable);
    assert_eq!(v6(V6::TimeExceeded { code: 0 }), IcmpMeaning::Transient);
    assert_eq!(v6(V6::PacketTooBig { mtu: 1300 }), IcmpMeaning::PacketTooBig { mtu: 1300 });
}

#[test]
fn errors_are_reduced_to_the_flow_they_are_about() {
    let needed = V4::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu: 1400 };
    let (received, _) = outcome(message_v4(needed, &quoted_v4(protocol::TCP)));
    let ReceivedIcmp::Error(error) = received else { panic!("{received:?}") };
    assert_eq!(error.tuple.to_string(), "10.0.0.1:4000 <- 10.0.0.2:80");
    assert_eq!((error.kind, error.seq), (IcmpErrorKind::PacketTooBig { mtu: 1400 }, Some(SeqNumber(0x0102_0304))));
    assert_eq!((error.protocol, error.sent, error.reporter), (protocol::TCP, 28, PEER.into()));
    assert!(!error.is_refusal());

    let port = V6::Unreachable { code: icmpv6::unreachable::PORT };
    let (received, _) = outcome(message_v6(port, &quoted_v6(protocol::UDP)));
    let ReceivedIcmp::Error(error) = received else { panic!("{received:?}") };
    assert_eq!((error.protocol, error.seq, error.is_refusal()), (protocol::UDP, None, true));
    assert_eq!(error.tuple.local(), "[2001:db8::1]:4000".parse().unwrap());

    let (received, _) = outcome(message_v6(V6::PacketTooBig { mtu: 1300 }, &quoted_v6(protocol::TCP)));
    assert!(matches!(
        received,
        ReceivedIcmp::Error(ReceivedIcmpError { kind: IcmpErrorKind::PacketTooBig { mtu: 1300 }, .. })
    ));
}

/// RFC 8201 section 4.
#[test]
fn over_ipv6_reports_below_the_least_mtu_are_discarded() {
    for mtu in [0, 1, 67, 68, 300, 551, 552, 576, 1279] {
        for transport in [protocol::TCP, protocol::UDP] {
            let (received, counters) = outcome(message_v6(V6::PacketTooBig { mtu }, &quoted_v6(transport)));
            assert!(matches!(received, ReceivedIcmp::Nothing), "{mtu}: {received:?}");
            assert_eq!(counters.dropped(DropReason::IcmpBelowLeastMtu), 1, "{mtu}");
        }
    }
    let (received, _) = outcome(message_v6(V6::PacketTooBig { mtu: 1280 }, &quoted_v6(protocol::TCP)));
    assert!(matches!(
        received,
        ReceivedIcmp::Error(ReceivedIcmpError { kind: IcmpErrorKind::PacketTooBig { mtu: 1280 }, .. })
    ));
}

#[test]
fn errors_about_nothing_of_ours_end_in_a_reason() {
    let port = V4::Unreachable { code: 3, mtu: 0 };
    let other_host = {
        let mut quoted = quoted_v4(protocol::TCP);
        quoted[15] = 99;
        quoted
    };
    let later_fragment = {
        let mut quoted = quoted_v4(protocol::TCP);
        quoted[7] = 1;
        quoted
    };
    let mut short = quoted_v4(protocol::TCP);
    short.truncate(27);
    let cases = [
        ("another host's", other_host, DropReason::IcmpNoConnection),
        ("a later fragment", later_fragment, DropReason::IcmpNoConnection),
        ("ICMP", quoted_v4(protocol::ICMP), DropReason::IcmpNoConnection),
        ("seven bytes of transport", short, DropReason::IcmpTruncated),
    ];
    for (name, quoted, reason) in cases {
        let (received, counters) = outcome(message_v4(port, &quoted));
        assert!(matches!(received, ReceivedIcmp::Nothing), "{name}: {received:?}");
        assert_eq!(counters.dropped(reason), 1, "{name}: {counters:?}");
    }
}

fn limit() -> PerDestination {
    PerDestination::errors(1)
}

fn answer(cause: &Datagram, kind: ErrorKind) -> Result<PktBuf, DropReason> {
    error(cause, kind, &interface(), &mut limit(), Time::from_secs(1))
}

#[test]
fn errors_quote_their_cause_within_bounds() {
    let packet = answer(&udp_datagram(false, &[7; 100]), ErrorKind::PortUnreachable).unwrap();
    let header = wire::ipv4::parse(&packet).unwrap();
    assert_eq!((header.src, header.dst), (OURS, PEER));
    assert_eq!(icmpv4::parse(&packet[20..]).unwrap(), V4::Unreachable { code: 3, mtu: 0 });
    assert_eq!(wire::ipv4::parse_unverified(&packet[28..]).unwrap().src, PEER);
    assert_eq!(packet.len(), 120, "no longer than its cause");
    // Only the minimum quotation makes an error longer than its cause.
    assert_eq!(answer(&udp_datagram(false, &[7; 8]), ErrorKind::PortUnreachable).unwrap().len(), 20 + 8 + 28);
    assert_eq!(answer(&udp_datagram(false, &[7; 1400]), ErrorKind::PortUnreachable).unwrap().len(), 576);

    let packet = answer(&udp_datagram(true, &[7; 1400]), ErrorKind::PacketTooBig { mtu: 1300 }).unwrap();
    assert_eq!(packet.len(), 1280);
    assert_eq!(icmpv6::parse(&packet[40..], OURS6, PEER6).unwrap(), V6::PacketTooBig { mtu: 1300 });
}

#[test]
fn our_own_errors_are_read_back_by_the_one_they_go_to() {
    for v6 in [false, true] {
        let packet = answer(&udp_datagram(v6, &[0, 53, 0, 99, 0, 8, 0, 0]), ErrorKind::PortUnreachable).unwrap();
        let peer = InterfaceView::new(0, PEER_MAC, 1500).with_address(PEER.into(), 24).unwrap();
        let peer = peer.with_address(PEER6.into(), 64).unwrap();
        let counters = Counters::new();
        let Input::Icmp(datagram) = crate::input::packet(packet, &peer, &counters) else { panic!("ICMP") };
        let ReceivedIcmp::Error(error) = receive(datagram, &peer, &counters) else { panic!("an error") };
        assert_eq!((error.tuple.local_port, error.tuple.remote_port, error.is_refusal()), (53, 99, true));
    }
}

#[test]
fn when_not_to_answer() {
    let port = ErrorKind::PortUnreachable;
    let forbidden = Err(DropReason::IcmpErrorForbidden);
    let len = |result: Result<PktBuf, DropReason>| result.map(|packet| packet.len());
    let mut broadcast = udp_datagram(false, b"x");
    broadcast.cast = Cast::Broadcast;
    assert_eq!(len(answer(&broadcast, port)), forbidden);
    let mut group = udp_datagram(true, b"x");
    group.cast = Cast::Multicast;
    assert_eq!(len(answer(&group, port)), forbidden);
    assert!(answer(&group, ErrorKind::PacketTooBig { mtu: 1280 }).is_ok(), "RFC 4443 section 2.4 e.3");
    assert!(answer(&group, ErrorKind::UnknownOption { pointer: 42 }).is_ok());
    let mut nobody = udp_datagram(true, b"x");
    nobody.src = ip("::");
    assert_eq!(len(answer(&nobody, port)), forbidden);

    let about = |frame| len(answer(&taken(frame), ErrorKind::ReassemblyTimeExceeded));
    assert_eq!(about(message_v4(V4::TimeExceeded { code: 0 }, &quoted_v4(protocol::TCP))), forbidden);
    assert_eq!(about(message_v6(V6::PacketTooBig { mtu: 1 }, &quoted_v6(protocol::TCP))), forbidden);
    assert!(about(message_v4(V4::EchoRequest { ident: 1, seq: 1 }, b"x")).is_ok());
    assert!(about(message_v6(V6::EchoRequest { ident: 1, seq: 1 }, b"x")).is_ok());
}

#[test]
fn errors_are_limited() {
    let (cause, mut limit) = (udp_datagram(false, b"x"), limit());
    let mut send = || error(&cause, ErrorKind::PortUnreachable, &interface(), &mut limit, Time::from_secs(1));
    let sent = (0..1000).filter(|_| send().is_ok()).count();
    assert!((19..=25).contains(&sent), "{sent}");
    assert_eq!(send().unwrap_err(), DropReason::RateLimited);
}
