//! Conversations with the peer. The test plays the stack, segment by segment.

use std::net::{IpAddr, SocketAddr};

use dev::mem::MemConfig;
use dev::peer::{Opens, Peer, PeerConfig, PeerMonitor, PeerTraffic, pattern};
use dev::{Device, Framing, QueuePair};
use frames::Frame;
use observe::DropReason;
use pktbuf::PktBuf;
use sync::Real;
use wire::ethernet::MacAddr;
use wire::tcp::{Header, Options, TcpFlags, Timestamps};
use wire::{SeqNumber, arp, tcp};

use crate::build::{self, Flow, drain, only_queue};

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const FIN_ACK: TcpFlags = TcpFlags(0x11);

/// The stack's end of one connection, and the device.
struct Talk {
    queue: QueuePair,
    monitor: PeerMonitor,
    flow: Flow,
    seq: u32,
    ack: u32,
}

fn peer(traffic: PeerTraffic, change: impl FnOnce(&mut PeerConfig)) -> Peer<Real> {
    let mut config = PeerConfig { traffic, timestamps: false, verify: true, ..PeerConfig::new(Flow::v4(1).to.ip()) };
    change(&mut config);
    Peer::new(config)
}

/// Header and data of every segment the peer has sent.
fn heard(queue: &mut QueuePair) -> Vec<(Header, Vec<u8>)> {
    let read = |frame: PktBuf| {
        let layout = build::assert_sound(&frame);
        let header = tcp::parse(&frame[layout.l4..]).expect("a TCP header");
        (header, frame[layout.data..layout.end].to_vec())
    };
    let mut batch = Vec::new();
    queue.rx.receive(&mut batch, 64);
    batch.into_iter().map(read).collect()
}

impl Talk {
    fn new(mut peer: Peer<Real>) -> Talk {
        let monitor = peer.monitor();
        Talk { queue: only_queue(&mut peer), monitor, flow: Flow::v4(4000), seq: 100, ack: 0 }
    }

    fn say(&mut self, flags: TcpFlags, window: u16, data: &[u8]) {
        let header = self.header(flags, window);
        self.queue.tx.transmit(build::tcp(self.flow, &header, data)).expect("room");
        let takes = data.len() as u32 + u32::from(flags.intersects(TcpFlags(0x03)));
        self.seq = self.seq.wrapping_add(takes);
    }

    fn header(&self, flags: TcpFlags, window: u16) -> Header {
        let options = Options { mss: flags.contains(SYN).then_some(1000), ..Options::NONE };
        let ack = SeqNumber(self.ack);
        Header { ack, window, options, ..build::header(self.flow, self.seq, flags) }
    }

    fn connect(&mut self, window: u16) {
        self.say(SYN, window, b"");
        let answers = heard(&mut self.queue);
        let [(syn_ack, _)] = &answers[..] else { panic!("expected a SYN-ACK, got {answers:?}") };
        assert_eq!((syn_ack.flags, syn_ack.ack.0), (SYN.union(ACK), self.seq));
        assert_eq!(syn_ack.options.mss, Some(1460));
        assert_eq!(syn_ack.options.window_scale, None, "not offered, so not answered");
        self.ack = syn_ack.seq.0.wrapping_add(1);
        self.say(ACK, window, b"");
    }
}

#[test]
fn a_sink_acknowledges_every_second_segment_and_the_rest_in_silence() {
    let mut talk = Talk::new(peer(PeerTraffic::Sink, |_| ()));
    talk.connect(1000);
    assert_eq!(heard(&mut talk.queue).len(), 0);
    for part in 0..5 {
        talk.say(ACK, 1000, pattern(part * 100, 100));
    }
    let acks: Vec<u32> = heard(&mut talk.queue).iter().map(|(header, _)| header.ack.0 - 101).collect();
    assert_eq!(acks, [200, 400]);
    let acks: Vec<u32> = heard(&mut talk.queue).iter().map(|(header, _)| header.ack.0 - 101).collect();
    assert_eq!(acks, [500], "the odd segment is acknowledged once nothing more comes");
    assert_eq!(heard(&mut talk.queue).len(), 0);
    let totals = talk.monitor.totals();
    assert_eq!((totals.established, totals.segments_in, totals.bytes_in, totals.acks_out), (1, 5, 500, 3));
    assert_eq!((totals.out_of_order, totals.mismatches), (0, 0));
}

#[test]
fn a_sink_counts_disorder_and_bridges_the_hole_afterwards() {
    let mut talk = Talk::new(peer(PeerTraffic::Sink, |_| ()));
    talk.connect(1000);
    let start = talk.seq;
    for part in [0u64, 2, 3, 1] {
        talk.seq = start + part as u32 * 100;
        talk.say(ACK, 1000, pattern(part * 100, 100));
    }
    let acks: Vec<u32> = heard(&mut talk.queue).iter().map(|(header, _)| header.ack.0 - start).collect();
    assert_eq!(acks, [100, 100, 400]);
    let totals = talk.monitor.totals();
    assert_eq!((totals.out_of_order, totals.bytes_in, totals.mismatches), (2, 400, 0));
    // Data that differs from the pattern is detected.
    talk.seq = start + 400;
    talk.say(ACK, 1000, b"something else");
    heard(&mut talk.queue);
    assert_eq!(talk.monitor.totals().mismatches, 1);
}

#[test]
fn a_sink_closes_when_the_stack_does() {
    let mut talk = Talk::new(peer(PeerTraffic::Sink, |_| ()));
    talk.connect(1000);
    talk.say(FIN_ACK, 1000, pattern(0, 10));
    let answers = heard(&mut talk.queue);
    let flags: Vec<TcpFlags> = answers.iter().map(|(header, _)| header.flags).collect();
    assert_eq!(flags[0], ACK);
    assert!(flags[1].contains(FIN_ACK));
    assert!(answers.iter().all(|(header, _)| header.ack.0 == talk.seq), "the FIN takes a place in sequence");
    talk.ack = talk.ack.wrapping_add(1);
    talk.say(ACK, 1000, b"");
    heard(&mut talk.queue);
    assert_eq!(talk.monitor.totals().closed, 1);
    talk.say(ACK, 1000, b"after the end");
    let answers = heard(&mut talk.queue);
    assert!(answers[0].0.flags.contains(TcpFlags::RST));
}

#[test]
fn a_source_keeps_to_the_window_and_sends_in_order() {
    let mut talk = Talk::new(peer(PeerTraffic::Source { bytes: Some(10_500) }, |_| ()));
    talk.connect(4000);
    let mut received = Vec::new();
    let mut closed = false;
    for _ in 0..10 {
        let mut flight = 0;
        for (header, data) in heard(&mut talk.queue) {
            assert_eq!(header.seq.0, talk.ack, "in order");
            assert!(data.len() <= 1000, "our MSS");
            talk.ack = talk.ack.wrapping_add(data.len() as u32);
            flight += data.len();
            received.extend_from_slice(&data);
            if header.flags.contains(TcpFlags::FIN) {
                talk.ack = talk.ack.wrapping_add(1);
                closed = true;
            }
        }
        assert!(flight <= 4000, "{flight} bytes in a window of 4000");
        talk.say(if closed { FIN_ACK } else { ACK }, 4000, b"");
        if closed {
            break;
        }
    }
    assert_eq!(received, pattern(0, 10_500));
    let last = heard(&mut talk.queue);
    assert_eq!((last[0].0.flags, last[0].0.ack.0), (ACK, talk.seq));
    let totals = talk.monitor.totals();
    assert_eq!((totals.bytes_out, totals.bytes_acked, totals.closed, totals.restarted), (10_500, 10_500, 1, 0));
}

#[test]
fn a_source_goes_back_after_three_duplicate_acknowledgments() {
    let mut talk = Talk::new(peer(PeerTraffic::Source { bytes: None }, |_| ()));
    talk.connect(5000);
    let first = heard(&mut talk.queue);
    assert_eq!(first.len(), 5);
    for _ in 0..3 {
        talk.say(ACK, 5000, b"");
    }
    let again = heard(&mut talk.queue);
    assert_eq!(
        again.iter().map(|(header, _)| header.seq).collect::<Vec<_>>(),
        first.iter().map(|(header, _)| header.seq).collect::<Vec<_>>()
    );
    assert_eq!(again[0].1, first[0].1);
    assert_eq!(talk.monitor.totals().restarted, 1);
    // A zero window stops it.
    talk.ack = talk.ack.wrapping_add(5000);
    talk.say(ACK, 0, b"");
    assert_eq!(heard(&mut talk.queue).len(), 0);
}

#[test]
fn a_coalescing_link_gets_super_segments() {
    let source = PeerTraffic::Source { bytes: Some(30_000) };
    let mut talk = Talk::new(peer(source, |config| config.link.coalescing = true));
    talk.connect(40_000);
    let mut batch = Vec::new();
    talk.queue.rx.receive(&mut batch, 8);
    assert_eq!(batch[0].meta().segment_size, 1000);
    let layout = build::assert_sound(&batch[0]);
    assert_eq!(layout.end - layout.data, 30_000);
}

#[test]
fn window_scaling_and_timestamps_are_used_when_both_offer_them() {
    let mut talk = Talk::new(peer(PeerTraffic::Sink, |config| config.timestamps = true));
    let mut header = talk.header(SYN, 1000);
    header.options.window_scale = Some(7);
    header.options.timestamps = Some(Timestamps { value: 4711, echo: 0 });
    talk.queue.tx.transmit(build::tcp(talk.flow, &header, b"")).expect("room");
    let answers = heard(&mut talk.queue);
    let options = answers[0].0.options;
    assert_eq!(options.timestamps.map(|timestamps| timestamps.echo), Some(4711));
    // A window of 1 MiB fits 16 bits from a shift of 5 on.
    assert_eq!((options.window_scale, answers[0].0.window), (Some(5), 65_535));
}

#[test]
fn the_peer_opens_connections_and_tries_again_when_refused() {
    let to = SocketAddr::from(([10, 0, 0, 1], 80));
    let opens = Some(Opens { connections: 3, to, first_port: 5000 });
    let mut device = peer(PeerTraffic::Sink, |config| config.opens = opens);
    let monitor = device.monitor();
    let mut queue = only_queue(&mut device);
    let syns = heard(&mut queue);
    let ports: Vec<u16> = syns.iter().map(|(header, _)| header.src_port).collect();
    assert_eq!(ports, [5000, 5001, 5002]);
    assert!(syns.iter().all(|(header, _)| header.flags == SYN && header.dst_port == 80));
    let answer = |header: &Header, flags| {
        let flow = Flow { from: to, to: SocketAddr::new(Flow::v4(1).to.ip(), header.src_port) };
        let reply = Header { ack: header.seq + 1, ..build::header(flow, 9000, flags) };
        build::tcp(flow, &reply, b"")
    };
    queue.tx.transmit(answer(&syns[0].0, SYN.union(ACK))).expect("room");
    queue.tx.transmit(answer(&syns[1].0, TcpFlags::RST.union(ACK))).expect("room");
    let answers = heard(&mut queue);
    assert_eq!((answers[0].0.flags, answers[0].0.ack.0), (ACK, 9001));
    assert_eq!(monitor.totals().established, 1);
    assert_eq!(queue.rx.wait(None), dev::WaitOutcome::Ready, "the refused connection is tried again in a while");
    let retries = heard(&mut queue);
    assert!(retries.iter().any(|(header, _)| (header.src_port, header.flags) == (5001, SYN)));
}

#[test]
fn address_questions_are_answered() {
    let mut device = peer(PeerTraffic::Sink, |_| ());
    let counters = device.counters().expect("counters");
    let (stack_mac, peer_mac) = (MemConfig::default().mac_a, MemConfig::default().mac_b);
    assert_eq!(device.capabilities().mac, stack_mac);
    let mut queue = only_queue(&mut device);
    let ask = |target: [u8; 4]| {
        let request = arp::Packet {
            op: arp::Operation::Request,
            sha: stack_mac,
            spa: [10, 0, 0, 1].into(),
            tha: MacAddr::UNSPECIFIED,
            tpa: target.into(),
        };
        build::buffer(&Frame::new(stack_mac, MacAddr::BROADCAST, request).bytes())
    };
    queue.tx.transmit(ask([10, 0, 0, 2])).expect("room");
    queue.tx.transmit(ask([10, 0, 0, 3])).expect("room");
    let replies = drain(&mut queue);
    assert_eq!(replies.len(), 1);
    let reply = arp::parse(&replies[0][14..]).expect("ARP");
    assert_eq!((reply.op, reply.sha, reply.tha), (arp::Operation::Reply, peer_mac, stack_mac));
    assert_eq!(counters.dropped(DropReason::ArpNotForUs), 1);
}

#[test]
fn connections_live_on_the_queue_where_their_answers_arrive() {
    let address: IpAddr = Flow::v4(1).to.ip();
    for framing in [Framing::Ethernet, Framing::Fddi] {
        let link = MemConfig { queues: 4, framing, ..MemConfig::default() };
        let mut device: Peer<Real> = Peer::new(PeerConfig { link, ..PeerConfig::new(address) });
        let mut queues = device.take_queues();
        let rss = dev::rss::Rss::new(&wire::rss::SYMMETRIC_KEY, 4).framed(framing);
        for port in 1000..1050 {
            let flow = Flow::v4(port);
            let packet = flow.packet(frames::Segment::of(&build::header(flow, 1, SYN), b""));
            let frame = Frame::new(build::MAC, build::MAC, packet);
            let syn = build::buffer(&if framing == Framing::Fddi { frame.fddi_bytes() } else { frame.bytes() });
            let answered_on = rss.queue(rss.hash_bytes(&syn));
            queues[usize::from(port) % 4].tx.transmit(syn).expect("room");
            for (index, queue) in queues.iter_mut().enumerate() {
                let answers = drain(queue).len();
                assert_eq!(answers, usize::from(index == answered_on), "{framing:?}");
            }
        }
    }
}

/// A conversation over FDDI in frames: the answer to a question about its address, a handshake, and the next segment of the
/// window, each behind the header of RFC 1390.
#[test]
fn a_peer_on_a_ring_speaks_fddi() {
    for flow in [Flow::v4(4000), Flow::v6(4000)] {
        let v6 = flow.to.is_ipv6();
        let (network, types) = if v6 { (40, [0x86, 0xdd]) } else { (20, [0x08, 0x00]) };
        let link = MemConfig::fddi();
        let head = |ethertype: [u8; 2]| {
            [&[0x50][..], &link.mac_a.0, &link.mac_b.0, &[0xaa, 0xaa, 3, 0, 0, 0], &ethertype].concat()
        };
        let config = PeerConfig { link: link.clone(), timestamps: false, ..PeerConfig::new(flow.to.ip()) };
        let config = PeerConfig { traffic: PeerTraffic::Source { bytes: None }, ..config };
        let mut queue = only_queue(&mut Peer::<Real>::new(config));
        let say = |queue: &mut QueuePair, flags, ack, options| {
            let header = Header { ack: SeqNumber(ack), window: 10_000, options, ..build::header(flow, ack, flags) };
            let packet = flow.packet(frames::Segment::of(&header, b""));
            let frame = Frame::new(link.mac_a, link.mac_b, packet).fddi_bytes();
            queue.tx.transmit(build::buffer(&frame)).expect("room");
            drain(queue)
        };
        let syn_ack = say(&mut queue, SYN, 0, Options { mss: Some(9000), ..Options::NONE });
        assert_eq!((syn_ack.len(), &syn_ack[0][..21]), (1, &head(types)[..]));
        let opened = tcp::parse(&syn_ack[0][21 + network..]).expect("a TCP header");
        let mss = 4352 - network - 20;
        assert_eq!((opened.flags, opened.options.mss), (SYN.union(ACK), Some(mss as u16)));
        let data = say(&mut queue, ACK, opened.seq.0.wrapping_add(1), Options::NONE);
        assert!(data.len() >= 2, "{} segments", data.len());
        assert_eq!((&data[0][..21], data[0].len()), (&head(types)[..], 21 + 4352));
        assert_eq!(data[0][21 + network + 20..], *pattern(0, mss));
        assert_eq!(data[1][21 + network + 20..], *pattern(mss as u64, data[1].len() - 21 - network - 20));
    }
}

#[test]
fn a_peer_on_a_ring_answers_arp_and_drops_other_frames() {
    let link = MemConfig::fddi();
    let mut device: Peer<Real> = Peer::new(PeerConfig { link: link.clone(), ..PeerConfig::new(Flow::v4(1).to.ip()) });
    let counters = device.counters().expect("counters");
    let mut queue = only_queue(&mut device);
    let (sha, tha) = (link.mac_a, MacAddr::UNSPECIFIED);
    let question =
        arp::Packet { op: arp::Operation::Request, sha, spa: [10, 0, 0, 1].into(), tha, tpa: [10, 0, 0, 2].into() };
    let asked = Frame::new(sha, MacAddr::BROADCAST, question).fddi_bytes();
    queue.tx.transmit(build::buffer(&asked)).expect("room");
    let replies = drain(&mut queue);
    let head = [&[0x50][..], &sha.0, &link.mac_b.0, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 6]].concat();
    assert_eq!((replies.len(), &replies[0][..21]), (1, &head[..]));
    let reply = arp::parse(&replies[0][21..]).expect("ARP");
    assert_eq!((reply.op, reply.sha, reply.tha), (arp::Operation::Reply, link.mac_b, sha));
    let mut management = asked;
    management[0] = 0x41;
    queue.tx.transmit(build::buffer(&management)).expect("room");
    assert_eq!((drain(&mut queue).len(), counters.dropped(DropReason::UnknownEtherType)), (0, 1));
}

/// An MSS below that of the link is announced, and is the length of its segments.
#[test]
fn a_peer_keeps_to_its_own_segment_size() {
    let source = PeerTraffic::Source { bytes: Some(2500) };
    let mut queue = only_queue(&mut peer(source, |config| config.mss = Some(700)));
    let flow = Flow::v4(4000);
    let header = |flags, ack, mss| {
        let options = Options { mss, ..Options::NONE };
        Header { ack: SeqNumber(ack), window: 10_000, options, ..build::header(flow, ack.min(1), flags) }
    };
    queue.tx.transmit(build::tcp(flow, &header(SYN, 0, Some(1460)), b"")).expect("room");
    let opened = heard(&mut queue)[0].0;
    assert_eq!(opened.options.mss, Some(700));
    let ack = Header { seq: SeqNumber(1), ..header(ACK, opened.seq.0.wrapping_add(1), None) };
    queue.tx.transmit(build::tcp(flow, &ack, b"")).expect("room");
    let lengths: Vec<usize> = heard(&mut queue).iter().map(|(_, data)| data.len()).collect();
    assert_eq!(lengths[..3], [700, 700, 700]);
}

/// A checksum may be left to the card, which leaves zero in the field. Over IPv6 zero is no checksum, and the datagram invalid.
#[test]
fn a_datagram_over_ipv6_has_a_checksum_although_the_card_verifies_it() {
    for (ours, theirs, network) in [("fd09::2", "[fd09::1]:5001", 40), ("10.9.0.2", "10.9.0.1:5001", 20)] {
        let [from, to]: [IpAddr; 2] = [ours.parse().unwrap(), theirs.parse::<SocketAddr>().unwrap().ip()];
        let mut config = PeerConfig::new(from);
        config.link.checksum_offload = true;
        let frame = config.datagram(2000, theirs.parse().unwrap(), b"data").expect("there is memory");
        let datagram = &frame[wire::ethernet::HEADER_LEN + network..];
        if from.is_ipv6() {
            let pseudo = wire::checksum::pseudo_header(from, to, wire::protocol::UDP, datagram.len() as u32);
            assert_eq!(pseudo.add(wire::checksum::sum(datagram)).finish(), 0);
        }
        assert_eq!(datagram[6..8] == [0, 0], from.is_ipv4());
    }
}
