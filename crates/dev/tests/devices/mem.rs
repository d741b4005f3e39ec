//! The linked pair.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dev::coalesce::coalesce;
use dev::mem::{MemConfig, loopback, pair};
use dev::rss::Rss;
use dev::{Device, WaitOutcome};
use frames::{Datagram, Fragment, Icmp, Packet};
use observe::DropReason;
use pktbuf::{Checksum, PktBuf};
use sync::{Platform, Real};
use testbed::limit::HANG;
use wire::rss::{MICROSOFT_KEY, SYMMETRIC_KEY};
use wire::tcp::TcpFlags;

use crate::build::{self, Flow, drain, only_queue};

const FIN_PSH_ACK: TcpFlags = TcpFlags(0x19);

fn dropped(device: &dyn Device, reason: DropReason) -> u64 {
    device.counters().expect("mem counts").dropped(reason)
}

#[test]
fn frames_cross_in_both_directions_by_ownership() {
    let (mut a, mut b) = pair::<Real>(MemConfig::default());
    assert_ne!(a.capabilities().mac, b.capabilities().mac);
    let (mut qa, mut qb) = (only_queue(&mut a), only_queue(&mut b));
    let frame = build::data(Flow::v4(4000), 1, b"there");
    let (bytes, address) = (frame.to_vec(), frame.as_ptr());
    qa.tx.transmit(frame).expect("room");
    let there = drain(&mut qb);
    assert_eq!(there.len(), 1);
    assert_eq!(*there[0], *bytes);
    assert_eq!(there[0].as_ptr(), address, "the frame was copied");
    qb.tx.transmit(build::data(Flow::v4(4001), 1, b"back")).expect("room");
    assert_eq!(build::parts(&drain(&mut qa)[0]).2, b"back");
    assert!(a.take_queues().is_empty());
}

#[test]
fn the_receive_queue_is_the_hash_modulo_the_queues() {
    for key in [SYMMETRIC_KEY, MICROSOFT_KEY] {
        let (mut a, mut b) = pair::<Real>(MemConfig { queues: 4, rss_key: key, ..MemConfig::default() });
        let (mut qa, mut qb) = (a.take_queues(), b.take_queues());
        let rss = Rss::new(&key, 4);
        let mut used = [false; 4];
        for port in 1000..1200 {
            let mut frame = build::data(Flow::v4(port), 1, b"x");
            let expected = rss.queue(rss.hash_bytes(&frame));
            // A sender's hash is valid at the receiver only with a symmetric key.
            frame.meta_mut().flow_hash = rss.hash_bytes(&build::data(reversed(Flow::v4(port)), 1, b"x"));
            qa[usize::from(port) % 4].tx.transmit(frame).expect("room");
            for (index, queue) in qb.iter_mut().enumerate() {
                let received = drain(queue);
                assert_eq!(received.len(), usize::from(index == expected), "port {port} queue {index}");
                if let Some(frame) = received.first() {
                    assert_eq!(
                        (frame.meta().queue as usize, frame.meta().flow_hash),
                        (expected, rss.hash_bytes(frame))
                    );
                }
            }
            used[expected] = true;
        }
        assert_eq!(used, [true; 4]);
    }
}

fn reversed(flow: Flow) -> Flow {
    Flow { from: flow.to, to: flow.from }
}

/// The two ends of a connection that a host has with itself are served by the queues that their own hashes name.
#[test]
fn a_port_that_is_linked_to_itself_receives_what_it_transmits_by_the_hash_of_the_receiver() {
    for key in [SYMMETRIC_KEY, MICROSOFT_KEY] {
        let mut port = loopback::<Real>(MemConfig { queues: 4, rss_key: key, ..MemConfig::default() });
        let mut queues = port.take_queues();
        let rss = Rss::new(&key, 4);
        for flow in (1000..1100).flat_map(|port| [Flow::v4(port), reversed(Flow::v4(port))]) {
            let frame = build::data(flow, 1, b"to myself");
            let (bytes, expected) = (frame.to_vec(), rss.queue(rss.hash_bytes(&frame)));
            queues[3 - expected].tx.transmit(frame).expect("room");
            for (index, queue) in queues.iter_mut().enumerate() {
                let received: Vec<Vec<u8>> = drain(queue).iter().map(|frame| frame.to_vec()).collect();
                assert_eq!(received, vec![bytes.clone(); usize::from(index == expected)], "queue {index}");
            }
        }
        assert!(queues.iter().all(|queue| !queue.rx.gone()), "its other end is itself");
    }
}

#[test]
fn frames_without_ports_go_to_queue_zero() {
    let (mut a, mut b) = pair::<Real>(MemConfig { queues: 3, ..MemConfig::default() });
    let (mut qa, mut qb) = (a.take_queues(), b.take_queues());
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&[8, 6]);
    let flow = Flow::v4(7);
    let packet = flow.packet(Datagram::new(7, 80, &[1; 32]));
    let first = flow.frame(Packet { fragment: Some(Fragment { more: true, ..Fragment::default() }), ..packet });
    let icmp = flow.frame(flow.packet(Icmp::echo_request(false, &[1; 32])));
    let fragment6 = Flow::v6(7).frame(Packet {
        fragment: Some(Fragment { more: true, ..Fragment::default() }),
        ..Flow::v6(7).packet(Datagram::new(7, 80, &[1; 32]))
    });
    let icmp6 = Flow::v6(7).frame(Flow::v6(7).packet(Icmp::echo_request(true, &[1; 32])));
    for frame in [build::buffer(&arp), first, icmp, fragment6, icmp6] {
        qa[2].tx.transmit(frame).expect("room");
    }
    assert_eq!(drain(&mut qb[0]).len(), 5);
    assert_eq!((drain(&mut qb[1]).len(), drain(&mut qb[2]).len()), (0, 0));
}

#[test]
fn each_ring_is_first_in_first_out_and_none_starves() {
    let (mut a, mut b) = pair::<Real>(MemConfig { queues: 2, ring_frames: 128, ..MemConfig::default() });
    let (mut qa, mut qb) = (a.take_queues(), b.take_queues());
    let flow = Flow::v4(5000);
    let target = Rss::new(&SYMMETRIC_KEY, 2);
    let target = target.queue(target.hash_bytes(&build::data(flow, 0, b"x")));
    for seq in 0..100 {
        for (sender, queue) in qa.iter_mut().enumerate() {
            queue.tx.transmit(build::data(flow, seq, &[sender as u8])).expect("room");
        }
    }
    let mut next = [0; 2];
    let mut batch = Vec::new();
    let mut first_batches = [0; 2];
    for round in 0.. {
        if qb[target].rx.receive(&mut batch, 10) == 0 {
            break;
        }
        for frame in batch.drain(..) {
            let (seq, _, data) = build::parts(&frame);
            let sender = usize::from(data[0]);
            assert_eq!(seq, next[sender], "sender {sender} out of order");
            next[sender] += 1;
            first_batches[sender] += u32::from(round < 2);
        }
    }
    assert_eq!(next, [100, 100]);
    assert_eq!(first_batches, [10, 10], "two batches take turns");
}

#[test]
fn a_full_ring_gives_the_frame_back_and_credit_told_so() {
    let (mut a, mut b) = pair::<Real>(MemConfig { ring_frames: 8, ..MemConfig::default() });
    let (mut qa, mut qb) = (only_queue(&mut a), only_queue(&mut b));
    let flow = Flow::v4(6000);
    let mut sent = 0;
    while qa.tx.credit() > 0 {
        qa.tx.transmit(build::data(flow, sent, b"x")).expect("credit promised room");
        sent += 1;
    }
    assert_eq!(sent, 8);
    let refused = qa.tx.transmit(build::data(flow, 99, b"last")).expect_err("the ring is full");
    assert_eq!(build::parts(&refused).2, b"last");
    let mut batch = Vec::new();
    assert_eq!(qb.rx.receive(&mut batch, 3), 3);
    assert_eq!(qa.tx.credit(), 3);
    qa.tx.transmit(refused).expect("room again");
    assert_eq!(drain(&mut qb).len(), 6);
}

#[test]
fn what_does_not_fit_is_dropped_with_its_reason() {
    let (mut a, mut b) = pair::<Real>(MemConfig { mtu: 1000, ..MemConfig::default() });
    let (mut qa, mut qb) = (only_queue(&mut a), only_queue(&mut b));
    let flow = Flow::v4(7000);
    qa.tx.transmit(build::udp(flow, &[0; 1000 - 28])).expect("taken");
    qa.tx.transmit(build::udp(flow, &[0; 1001 - 28])).expect("taken");
    qa.tx.transmit(PktBuf::from_slice(&[0; 13]).expect("a buffer")).expect("taken");
    let mut unsplittable = build::data(flow, 1, &[0; 1200]);
    unsplittable.meta_mut().segment_size = 500;
    qa.tx.transmit(unsplittable).expect("taken");
    assert_eq!(drain(&mut qb).len(), 1);
    assert_eq!((dropped(&a, DropReason::FrameTooLong), dropped(&a, DropReason::FrameTooShort)), (2, 1));
    assert!(!qa.rx.gone());
    drop(qb);
    qa.tx.transmit(build::data(flow, 1, b"x")).expect("taken");
    assert_eq!(dropped(&a, DropReason::InterfaceDown), 1);
    assert!(qa.rx.gone());
    assert_eq!(qa.rx.wait(None), WaitOutcome::Gone);
}

/// A super-segment of `len` bytes, its checksum left to the device.
fn super_segment(flow: Flow, len: usize, segment_size: u16) -> PktBuf {
    let bytes: Vec<u8> = (0..len).map(|i| (i % 253) as u8).collect();
    let mut frame = build::tcp(flow, &build::header(flow, 0xffff_ff00, FIN_PSH_ACK), &bytes);
    frame.meta_mut().segment_size = segment_size;
    frame
}

#[test]
fn super_segments_are_split_into_sound_frames() {
    for flow in [Flow::v4(8000), Flow::v6(8000)] {
        for checksum_offload in [false, true] {
            let config = MemConfig { segmentation: Some(65_535), checksum_offload, ..MemConfig::default() };
            let (mut a, mut b) = pair::<Real>(config);
            let (mut qa, mut qb) = (only_queue(&mut a), only_queue(&mut b));
            let whole = super_segment(flow, 40_001, 1400);
            let data = build::parts(&whole).2.to_vec();
            qa.tx.transmit(whole).expect("room");
            let mut pieces = Vec::new();
            // A small batch must be able to stop in the middle of a super-segment.
            assert_eq!(qb.rx.receive(&mut pieces, 5), 5);
            assert_eq!(qb.rx.wait(None), WaitOutcome::Ready);
            while qb.rx.receive(&mut pieces, 7) > 0 {}
            assert_eq!(pieces.len(), 40_001usize.div_ceil(1400));
            let mut got = Vec::new();
            for (index, piece) in pieces.iter().enumerate() {
                let layout = build::assert_sound(piece);
                let (seq, flags, part) = build::parts(piece);
                assert_eq!(seq, 0xffff_ff00u32.wrapping_add(got.len() as u32));
                let last = index + 1 == pieces.len();
                assert_eq!(u16::from(flags), if last { FIN_PSH_ACK.0 } else { TcpFlags::ACK.0 });
                if !layout.v6 {
                    let ident = u16::from_be_bytes([piece[18], piece[19]]);
                    assert_eq!(ident, 65_534u16.wrapping_add(index as u16));
                }
                let expected = if checksum_offload { Checksum::Verified } else { Checksum::None };
                assert_eq!((piece.meta().checksum, piece.meta().segment_size), (expected, 0));
                got.extend_from_slice(part);
            }
            assert_eq!(got, data);
        }
    }
}

#[test]
fn a_coalescing_receiver_gets_super_segments_whole() {
    let config = MemConfig { segmentation: Some(65_535), coalescing: true, ..MemConfig::default() };
    let (mut a, mut b) = pair::<Real>(config);
    let (mut qa, mut qb) = (only_queue(&mut a), only_queue(&mut b));
    qa.tx.transmit(super_segment(Flow::v4(8001), 60_000, 1400)).expect("room");
    let got = drain(&mut qb);
    assert_eq!((got.len(), got[0].meta().segment_size), (1, 1400));
    build::assert_sound(&got[0]);
}

#[test]
fn super_segments_beyond_the_limits_are_dropped() {
    let config = MemConfig { segmentation: Some(20_000), ..MemConfig::default() };
    let (mut a, mut b) = pair::<Real>(config);
    let (mut qa, mut qb) = (only_queue(&mut a), only_queue(&mut b));
    qa.tx.transmit(super_segment(Flow::v4(1), 20_000, 1400)).expect("taken");
    qa.tx.transmit(super_segment(Flow::v4(1), 10_000, 1460)).expect("taken");
    assert_eq!(drain(&mut qb).len(), 0);
    assert_eq!(dropped(&a, DropReason::FrameTooLong), 2);
}

#[test]
fn partial_checksums_are_completed_or_vouched_for() {
    for checksum_offload in [false, true] {
        let (mut a, mut b) = pair::<Real>(MemConfig { checksum_offload, ..MemConfig::default() });
        let (mut qa, mut qb) = (only_queue(&mut a), only_queue(&mut b));
        for flow in [Flow::v4(9000), Flow::v6(9000)] {
            for frame in [build::data(flow, 3, b"odd"), build::udp(flow, b"evenly")] {
                let complete = frame.to_vec();
                let mut frame = frame;
                let layout = build::assert_sound(&frame);
                let (src, dst) = layout.addresses(&frame);
                let len = (layout.end - layout.l4) as u32;
                let pseudo = wire::checksum::pseudo_header(src, dst, layout.protocol, len).fold();
                let field = layout.checksum_field();
                frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
                let offset = (field - layout.l4) as u16;
                let partial = Checksum::Partial { start: layout.l4 as u16, offset };
                frame.meta_mut().checksum = partial;
                qa.tx.transmit(frame).expect("room");
                let mut got = drain(&mut qb);
                let expected = if checksum_offload { partial } else { Checksum::None };
                assert_eq!(got[0].meta().checksum, expected);
                // Code that forwards the frame to a device without offload completes the checksum.
                dev::layout::complete_checksum(&mut got[0]);
                assert_eq!(*got[0], *complete);
            }
        }
    }
}

#[test]
fn consecutive_segments_of_a_batch_are_coalesced() {
    for (one, other) in [(Flow::v4(100), Flow::v4(101)), (Flow::v6(100), Flow::v6(101))] {
        let mut batch: Vec<PktBuf> = Vec::new();
        let mut stream = Vec::new();
        for index in 0..40u32 {
            let part: Vec<u8> = (0..1400).map(|i| (i * 7 + index) as u8).collect();
            batch.push(build::data(one, 1 + index * 1400, &part));
            batch.push(build::data(other, 9, &part[..10 + index as usize]));
            stream.extend_from_slice(&part);
        }
        coalesce(&mut batch, 0);
        let of_one: Vec<&PktBuf> = batch.iter().filter(|frame| frame[frame_port(frame)] == 100).collect();
        assert_eq!(of_one.len(), 1);
        let (seq, _, data) = build::parts(of_one[0]);
        assert_eq!((seq, data), (1, &stream[..]));
        assert_eq!(of_one[0].meta().segment_size, 1400);
        // The merged segment's checksum is incomplete; completed, it is right.
        let mut whole = PktBuf::from_slice(of_one[0]).expect("a buffer");
        *whole.meta_mut() = *of_one[0].meta();
        assert!(matches!(whole.meta().checksum, Checksum::Partial { .. }));
        dev::layout::complete_checksum(&mut whole);
        assert!(dev::layout::Layout::of(&whole).expect("TCP").checksum_is_good(&whole));
        // Not in sequence: the other flow must not be merged, and keeps its order.
        let lengths: Vec<usize> = batch
            .iter()
            .filter(|frame| frame[frame_port(frame)] == 101)
            .map(|frame| build::parts(frame).2.len())
            .collect();
        assert_eq!(lengths, (10..50).collect::<Vec<_>>());
    }
}

/// The buffer of what is coalesced has about its size: that of a frame is enough for a few short segments.
#[test]
fn short_segments_are_coalesced_in_a_buffer_of_a_frame() {
    for (parts, most) in [(1, 384), (2, 2112), (25, 2112), (40, 73_792)] {
        let mut batch: Vec<PktBuf> =
            (0..parts).map(|index| build::data(Flow::v4(100), 1 + index * 64, &[index as u8; 64])).collect();
        coalesce(&mut batch, 0);
        let [frame] = &batch[..] else { panic!("{} frames", batch.len()) };
        assert_eq!((build::parts(frame).2.len(), frame.memory()), (64 * parts as usize, most));
    }
}

/// Offset of the low byte of the source port.
fn frame_port(frame: &PktBuf) -> usize {
    dev::layout::Layout::of(frame).expect("TCP").l4 + 1
}

#[test]
fn coalescing_stops_where_headers_differ() {
    let flow = Flow::v4(200);
    let segment =
        |seq: u32, flags: TcpFlags, len: usize| build::tcp(flow, &build::header(flow, seq, flags), &vec![1; len]);
    let ack = TcpFlags::ACK;
    let cases: [(&str, Vec<PktBuf>, usize); 6] = [
        ("a gap", vec![segment(0, ack, 100), segment(101, ack, 100)], 2),
        ("a FIN", vec![segment(0, ack, 100), segment(100, TcpFlags(0x11), 100)], 2),
        ("a pure ACK between", vec![segment(0, ack, 100), segment(100, ack, 0), segment(100, ack, 100)], 3),
        ("a short one ends it", vec![segment(0, ack, 100), segment(100, ack, 50), segment(150, ack, 50)], 2),
        (
            "a pushed one ends it",
            vec![segment(0, ack, 100), segment(100, TcpFlags(0x18), 100), segment(200, ack, 100)],
            2,
        ),
        ("a longer one", vec![segment(0, ack, 100), segment(100, ack, 200)], 2),
    ];
    for (name, mut batch, expected) in cases {
        coalesce(&mut batch, 0);
        assert_eq!(batch.len(), expected, "{name}");
    }
    let mut corrupt = vec![segment(0, ack, 100), segment(100, ack, 100)];
    corrupt[1][80] ^= 1;
    coalesce(&mut corrupt, 0);
    assert_eq!(corrupt.len(), 2, "a bad checksum must stay visible");
}

#[test]
fn what_is_coalesced_and_split_again_is_what_was_sent() {
    let flow = Flow::v4(300);
    let sent: Vec<Vec<u8>> = (0..10).map(|i| build::data(flow, i * 1000, &vec![i as u8; 1000]).to_vec()).collect();
    let mut batch: Vec<PktBuf> = sent.iter().map(|bytes| PktBuf::from_slice(bytes).expect("a buffer")).collect();
    assert_eq!(coalesce(&mut batch, 0), 9);
    let Ok(mut splitter) = dev::segment::Splitter::new(batch.remove(0)) else { panic!("no super-segment") };
    assert_eq!(splitter.remaining(), 10);
    for bytes in &sent {
        let piece = splitter.next_piece().expect("a piece").expect("a buffer");
        build::assert_sound(&piece);
        assert_eq!(build::parts(&piece), build::parts(bytes));
    }
    assert!(splitter.next_piece().is_none());
}

/// More receivers than a word has bits sleep at once. Each is woken by the frame for its queue, which one flush announces
/// with all others.
#[test]
fn seventy_sleeping_receivers_are_woken_each_by_its_frame() {
    testbed::limit::within(wake_seventy);
}

/// A sleep here ends only by a wake-up: one that is lost is a hang.
fn wake_seventy() {
    const QUEUES: usize = 70;
    static ABOUT_TO_SLEEP: AtomicUsize = AtomicUsize::new(0);
    let (mut a, mut b) = pair::<Real>(MemConfig { queues: QUEUES, ..MemConfig::default() });
    let rss = Rss::new(&SYMMETRIC_KEY, QUEUES);
    let mut sender = a.take_queues().swap_remove(0);
    let receivers: Vec<_> = b
        .take_queues()
        .into_iter()
        .map(|mut queue| {
            std::thread::spawn(move || {
                ABOUT_TO_SLEEP.fetch_add(1, Ordering::Relaxed);
                assert_eq!(queue.rx.wait(None), WaitOutcome::Ready);
                assert_eq!(drain(&mut queue).len(), 1);
            })
        })
        .collect();
    while ABOUT_TO_SLEEP.load(Ordering::Relaxed) < QUEUES {
        std::thread::yield_now();
    }
    let mut served = [false; QUEUES];
    for frame in (1000..).map(|port| build::data(Flow::v4(port), 1, b"x")) {
        let queue = rss.queue(rss.hash_bytes(&frame));
        if !std::mem::replace(&mut served[queue], true) {
            sender.tx.transmit(frame).expect("room");
        }
        if served.iter().all(|served| *served) {
            break;
        }
    }
    sender.tx.flush();
    receivers.into_iter().for_each(|receiver| receiver.join().expect("it was woken"));
}

#[test]
fn a_sleeping_receiver_is_woken_by_a_flush_and_by_its_waker() {
    let (mut a, mut b) = pair::<Real>(MemConfig { queues: 2, ..MemConfig::default() });
    let (mut qa, mut qb) = (a.take_queues(), b.take_queues());
    let mut rx = qb.remove(0).rx;
    let waker = rx.waker();
    assert_eq!(rx.wait(Some(Duration::ZERO)), WaitOutcome::TimedOut);
    waker.wake();
    waker.wake();
    assert_eq!(rx.wait(None), WaitOutcome::Woken);
    assert_eq!(rx.wait(Some(Duration::ZERO)), WaitOutcome::TimedOut, "wakes do not add up");
    const FRAMES: u32 = 2000;
    let receiver = std::thread::spawn(move || {
        let (mut batch, mut received) = (Vec::new(), 0);
        while received < FRAMES {
            // A lost wake-up shows as a wait that ends only by its long timeout.
            assert_eq!(rx.wait(Some(HANG)), WaitOutcome::Ready);
            rx.receive(&mut batch, 16);
            for frame in batch.drain(..) {
                assert_eq!(build::parts(&frame).0, received);
                received += 1;
            }
        }
        assert_eq!(rx.wait(None), WaitOutcome::Gone);
    });
    let flow = (1..).map(Flow::v4).find(|flow| {
        let rss = Rss::new(&SYMMETRIC_KEY, 2);
        rss.queue(rss.hash_bytes(&build::data(*flow, 0, b"x"))) == 0
    });
    let flow = flow.expect("some port hashes to queue 0");
    for seq in 0..FRAMES {
        let mut frame = build::data(flow, seq, b"x");
        while let Err(back) = qa[1].tx.transmit(frame) {
            frame = back;
            qa[1].tx.flush();
            Real::yield_now();
        }
        qa[1].tx.flush();
    }
    drop(qa);
    receiver.join().expect("the receiver saw every frame");
}

/// IPv6's payload length does not count its header, so the longest packet has 40 bytes more than one of IPv4.
#[test]
fn the_longest_ipv6_packet_crosses_and_a_longer_mtu_is_refused() {
    let (link, longest) = (wire::ethernet::HEADER_LEN, wire::ipv6::HEADER_LEN + 65_535);
    let of = |mtu| MemConfig { mtu, ..MemConfig::default() };
    let (mut a, mut b) = pair::<Real>(of(longest));
    let (mut qa, mut qb) = (only_queue(&mut a), only_queue(&mut b));
    let mut frame = PktBuf::alloc(link + longest).expect("there is memory");
    frame.append(link + longest).fill(7);
    qa.tx.transmit(frame).expect("room");
    let there = drain(&mut qb);
    assert_eq!((there.len(), there[0].len()), (1, link + longest));
    assert!(std::panic::catch_unwind(|| pair::<Real>(of(longest + 1))).is_err());
}
