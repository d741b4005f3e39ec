//! Requirements of RFC 9293 that packet scripts cannot express: addresses of the Internet and link layers, checksums,
//! options byte by byte. Written from the RFC's sentences, over both families and under every architecture.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::TcpSocket;
use sync::Real;
use tcp::{SetOption, SocketOption};
use testbed::frames::{
    Checksum, Ends, Extension, PEER6, Packet, STACK, STACK_MAC, STACK6, Segment, TcpOptions, neighbour_solicitation,
    tcp_of,
};
use testbed::node::{Node, NodeConfig, send};
use wire::ethernet::MacAddr;
use wire::protocol;
use wire::tcp::{Header, TcpFlags};

/// From the peer to the listener over either family.
fn ends(v6: bool) -> Ends {
    if v6 { Ends::PEER_TO_STACK_V6 } else { Ends::PEER_TO_STACK }
}

fn syn(port: u16) -> Segment<'static> {
    Segment::syn(port, 80)
}

/// A stack with an address of each family, which knows the peer by both, and listens at port 80.
fn node(arch: Architecture) -> Node<Real> {
    let addresses = vec![(STACK.into(), 24), (STACK6.into(), 64)];
    let mut node = Node::with_known_peer(NodeConfig { ring_frames: 4096, addresses, ..NodeConfig::new(arch) });
    assert_eq!(node.exchange(&neighbour_solicitation()).len(), 1, "the stack tells its link address");
    node
}

/// The TCP segment that the stack sends after `frame`.
fn answer(node: &mut Node<Real>, frame: &[u8]) -> Option<Header> {
    let answers = node.exchange(frame);
    assert!(answers.len() <= 1, "{} answers", answers.len());
    answers.first().map(|frame| tcp_of(frame).expect("TCP and nothing else").0)
}

fn is_syn_ack(header: Option<Header>) -> bool {
    header.is_some_and(|header| header.flags == TcpFlags::SYN.union(TcpFlags::ACK))
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

/// No SYN-ACK, no reset, no ICMP error; whether the link layer sent it to all, to a group or to the stack alone. An
/// acknowledgement, which a listener would answer by a reset, is not answered either.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
//= type=test
//# A TCP implementation MUST silently discard an incoming SYN segment that is addressed to a broadcast or multicast
//# address [(MUST-57)].
#[every_arch]
fn a_syn_to_many_is_met_with_silence(arch: Architecture) {
    let mut node = node(arch);
    let _listener = node.listen(80, 64);
    let four = ["224.0.0.1", "224.0.0.251", "239.1.2.3", "255.255.255.255", "10.0.0.255"];
    let six = ["ff02::1", "ff02::2", "ff02::1:ff00:1", "ff05::1:3", "ff0e::7"];
    let mut port = 2000;
    for (v6, many) in [(false, addresses(&four)), (true, addresses(&six))] {
        for dst in many {
            let ends = ends(v6).to(dst);
            for link in [ends.dst_mac, MacAddr::BROADCAST, STACK_MAC] {
                for flags in [TcpFlags::SYN, TcpFlags::ACK] {
                    port += 1;
                    let segment = Segment { flags, ..syn(port) };
                    let answers = node.exchange(&segment.frame_over(ends.to_mac(link)));
                    assert!(answers.is_empty(), "to {dst} in {link:?}, flags {flags:?}");
                }
            }
        }
        assert!(is_syn_ack(answer(&mut node, &syn(9000).frame_over(ends(v6)))), "the control");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
//= type=test
//# An incoming SYN with an invalid source address MUST be ignored either by TCP or by the IP layer [(MUST-63)] (see
//# Section 3.2.1.3).
#[every_arch]
fn a_syn_from_nobody_is_met_with_silence(arch: Architecture) {
    let mut node = node(arch);
    let _listener = node.listen(80, 64);
    let four =
        ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255", "10.0.0.255"];
    let six = ["::", "::1", "ff02::1", "ff0e::7", "::ffff:10.0.0.2", "::ffff:127.0.0.1"];
    let mut port = 2000;
    for (v6, nobody) in [(false, addresses(&four)), (true, addresses(&six))] {
        let own: IpAddr = if v6 { STACK6.into() } else { STACK.into() };
        for src in nobody.into_iter().chain([own]) {
            for flags in [TcpFlags::SYN, TcpFlags::ACK] {
                port += 1;
                let segment = Segment { flags, ..syn(port) };
                let answers = node.exchange(&segment.frame_over(ends(v6).from(src)));
                assert!(answers.is_empty(), "from {src}, flags {flags:?}");
            }
        }
        assert!(is_syn_ack(answer(&mut node, &syn(9000).frame_over(ends(v6)))), "the control");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# and the receiver MUST check it (MUST-3).
#[every_arch]
fn a_wrong_checksum_is_met_with_silence(arch: Architecture) {
    let mut node = node(arch);
    let _listener = node.listen(80, 64);
    for v6 in [false, true] {
        for (port, spoilt_by) in (2000..).zip([1, 0x80, 0x100, 0x8000, 0xfffe]) {
            let spoilt = Segment { checksum: Checksum::OffBy(spoilt_by), ..syn(port) };
            assert!(node.exchange(&spoilt.frame_over(ends(v6))).is_empty(), "IPv6 {v6}, off by {spoilt_by}");
            assert!(is_syn_ack(answer(&mut node, &syn(port).frame_over(ends(v6)))), "the control");
        }
    }
}

/// Options after an unknown option are processed: the answer has timestamps, and echoes the peer's.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# A TCP implementation MUST (MUST-6) ignore without error any TCP Option it does not implement, assuming that the
//# option has a length field.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# All TCP Options except End of Option List Option (EOL) and No-Operation (NOP) MUST have length fields, including all
//# future options (MUST-68).
#[every_arch]
fn an_option_that_nobody_knows_is_stepped_over(arch: Architecture) {
    let mut node = node(arch);
    let _listener = node.listen(80, 64);
    let stamp = [8, 10, 1, 2, 3, 4, 0, 0, 0, 0];
    let unknown: [&[u8]; 6] = [
        &[77, 2],
        &[253, 6, 0xde, 0xad, 0xbe, 0xef],
        &[254, 6, 0, 0, 0, 0],
        &[19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[6, 6, 1, 2, 3, 4],
        &[255, 2, 200, 3, 9],
    ];
    for v6 in [false, true] {
        for (port, unknown) in (2000..).zip(unknown) {
            let mut options = [unknown, &stamp].concat();
            options.resize(options.len().next_multiple_of(4), 1);
            let header = answer(&mut node, &syn(port).options(TcpOptions::new(&options)).frame_over(ends(v6)));
            assert!(is_syn_ack(header), "IPv6 {v6}, {unknown:?}");
            let echo = header.and_then(|header| header.options.timestamps).map(|stamps| stamps.echo);
            assert_eq!(echo, Some(0x0102_0304), "IPv6 {v6}, {unknown:?}");
        }
    }
}

/// A SYN is answered by SYN-ACK or reset, and the stack does not fail.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# TCP implementations MUST be prepared to handle an illegal option length (e.g., zero); a suggested procedure is to reset
//# the connection and log the error cause (MUST-7).
#[every_arch]
fn illegal_lengths_of_options_do_no_harm(arch: Architecture) {
    let mut node = node(arch);
    let _listener = node.listen(80, 64);
    let illegal: [&[u8]; 10] = [
        &[2, 0, 5, 0xb4],
        &[2, 1, 5, 0xb4],
        &[2, 3, 5, 0xb4],
        &[2, 5, 5, 0xb4],
        &[2, 255, 5, 0xb4],
        &[1, 1, 1, 2],
        &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
        &[8, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1],
        &[5, 3, 1, 0],
        &[4, 0, 3, 0],
    ];
    for v6 in [false, true] {
        for (port, options) in (2000..).zip(illegal) {
            let header = answer(&mut node, &syn(port).options(TcpOptions::new(options)).frame_over(ends(v6)));
            let reset = header.is_some_and(|header| header.flags.contains(TcpFlags::RST));
            assert!(is_syn_ack(header) || reset, "IPv6 {v6}, {options:?}: {header:?}");
        }
        assert!(is_syn_ack(answer(&mut node, &syn(9000).frame_over(ends(v6)))), "the control");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2
//= type=test
//# When received options are passed up to TCP from the IP layer, a TCP implementation MUST ignore options that it does
//# not understand (MUST-50).
#[every_arch]
fn options_of_ip_that_nobody_understands_are_ignored(arch: Architecture) {
    let mut node = node(arch);
    let _listener = node.listen(80, 64);
    let four: [&[u8]; 5] = [
        &[94, 4, 1, 2],
        &[158, 8, 0, 0, 0, 0, 0, 0],
        &[25, 2, 1, 1],
        &[7, 7, 4, 0, 0, 0, 0, 0],
        &[68, 8, 5, 0, 0, 0, 0, 0],
    ];
    // The two high bits of an option's type allow to skip it (RFC 8200, 4.2).
    let six: [&[u8]; 2] = [&[0x1e, 4, 1, 2, 3, 4], &[0x3e, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
    for (v6, lists) in [(false, &four[..]), (true, &six[..])] {
        for (port, options) in (2000..).zip(lists) {
            let packet = ends(v6).packet(syn(port));
            let units = (options.len() + 2).div_ceil(8) as u8 - 1;
            let bytes = [&[units], *options].concat();
            let extensions = [Extension { kind: protocol::IPV6_DESTINATION, bytes: &bytes }];
            let packet = if v6 { Packet { extensions: &extensions, ..packet } } else { Packet { options, ..packet } };
            let header = answer(&mut node, &ends(v6).frame(packet).bytes());
            assert!(is_syn_ack(header), "IPv6 {v6}, {options:?}");
        }
    }
}

/// A connection over IPv6 that the peer opened to this address.
fn connected(node: &mut Node<Real>, dst: Ipv6Addr) -> Arc<TcpSocket<Real>> {
    let listener = node.listen(80, 8);
    let ends = ends(true).to(dst);
    let ack = answer(node, &syn(2000).frame_over(ends)).expect("a SYN-ACK").seq.0.wrapping_add(1);
    node.exchange(&Segment::data((2000, 80), 0, ack, b"").frame_over(ends));
    let socket = listener.accept().expect("a child waits");
    node.stack.unlisten(&listener);
    socket
}

fn ipv6_of(frame: &[u8]) -> wire::ipv6::Header {
    wire::ipv6::parse(&frame[wire::ethernet::HEADER_LEN..]).expect("IPv6")
}

/// Whether it is a solicitation for the peer's link address.
fn is_solicitation(frame: &[u8]) -> bool {
    frame[12..14] == [0x86, 0xdd] && ipv6_of(frame).next_header == protocol::ICMPV6 && frame[54] == 135
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2
//= type=test
//# The TTL value used to send TCP segments MUST be configurable (MUST-49).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//= type=test
//# TCP implementations SHOULD pass the current Differentiated Services field value without change to the IP layer, when
//# it sends segments on the connection (SHLD-22).
#[every_arch]
fn what_a_user_chooses_stands_in_the_header_of_ipv6(arch: Architecture) {
    let mut node = node(arch);
    let socket = connected(&mut node, STACK6);
    let mut chosen = |class, hops| {
        for option in [SocketOption::NoDelay(true), SocketOption::TrafficClass(class), SocketOption::HopLimit(hops)] {
            assert!(matches!(node.call(&socket, Call::SetOption(SetOption(option))), Reply::OptionSet(Ok(()))));
        }
        node.call(&socket, send(&[1; 100]));
        let sent = node.settle();
        assert_eq!(sent.len(), 1);
        let header = ipv6_of(&sent[0]);
        (header.traffic_class, header.hop_limit)
    };
    assert_eq!(chosen(0, None), (0, 64), "nothing is chosen");
    assert_eq!(chosen(0xb8, Some(9)), (0xb8, 9));
    assert_eq!(chosen(0x28, Some(255)), (0x28, 255), "changed while the connection lasts");
}

/// The third retransmission, 200 + 400 + 800 ms after the data; without the advice the neighbour would not be probed
/// for five seconds (RFC 4861, DELAY_FIRST_PROBE_TIME).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# The following procedure MUST be used to handle excessive retransmissions of data segments (MUST-20):
#[every_arch]
fn at_r1_the_neighbour_is_asked_over_ipv6(arch: Architecture) {
    let mut node = node(arch);
    let socket = connected(&mut node, STACK6);
    node.call(&socket, send(&[5; 400]));
    assert_eq!(node.settle().len(), 1, "the data and no question");
    let mut asked = None;
    for tens in 1..=300 {
        node.clock.advance(Duration::from_millis(10));
        if node.settle().iter().any(|frame| is_solicitation(frame)) {
            asked = asked.or(Some(tens * 10));
        }
    }
    assert!(asked.is_some_and(|at| (1400..1500).contains(&at)), "{asked:?}");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# If an application on a multihomed host does not specify the local IP address when actively opening a TCP connection,
//# then the TCP implementation MUST ask the IP layer to select a local IP address before sending the (first) SYN (MUST-44).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# At all other times, a previous segment has either been sent or received on this connection, and TCP implementations
//# MUST use the same local address that was used in those previous segments (MUST-45).
#[every_arch]
fn ip_chooses_the_address_of_an_open_over_ipv6(arch: Architecture) {
    let second: Ipv6Addr = "fd00::7".parse().expect("an address");
    let far: Ipv6Addr = "fd01::1".parse().expect("an address");
    let mut addresses: Vec<(IpAddr, u8)> = [STACK6, second, far].map(|address| (address.into(), 64)).to_vec();
    addresses.push((STACK.into(), 24));
    let mut node = Node::with_known_peer(NodeConfig { addresses, ..NodeConfig::new(arch) });
    node.exchange(&neighbour_solicitation());
    for (remote, ours) in [(PEER6, [STACK6, second]), ("fd01::9".parse().expect("an address"), [far, far])] {
        let remote = SocketAddr::new(remote.into(), 80);
        let socket = node.stack.connect(None, remote, &Default::default()).expect("there is a route");
        assert!(ours.map(IpAddr::from).contains(&socket.tuple().local_addr), "to {remote}: {:?}", socket.tuple());
    }
    node.settle();
    let socket = connected(&mut node, second);
    node.call(&socket, send(&[5; 400]));
    let mut sources = Vec::new();
    for _ in 0..100 {
        let sent = node.settle();
        let ours = sent.iter().filter(|frame| tcp_of(frame).is_some_and(|(header, _)| header.dst_port == 2000));
        sources.extend(ours.map(|frame| ipv6_of(frame).src));
        node.clock.advance(Duration::from_millis(10));
    }
    assert!(sources.len() >= 3, "the data and retransmissions");
    assert!(sources.iter().all(|source| *source == second), "{sources:?}");
}
