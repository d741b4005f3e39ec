//! Captures: other implementations read our files, we read theirs, and no input makes the reader panic.

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dev::fault::Pcg;
use dev::mem::{MemConfig, pair};
use dev::pcap::{CaptureDevice, Captured, Direction, ReadError, Reader, Replay, ReplayConfig, ReplayPacing, Writer};
use dev::{Device, Framing};
use observe::{Counter, DropReason, Time};
use pcap_file::pcapng::{Block, PcapNgReader};
use sync::Real;

use crate::build::{self, Flow, drain, only_queue};

/// A writer whose bytes the test can look at, and which can run full.
#[derive(Clone, Default)]
pub struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: Option<usize>,
}

impl Disk {
    /// The bytes written so far.
    pub fn contents(&self) -> Cursor<Vec<u8>> {
        Cursor::new(self.bytes.lock().expect("unpoisoned").clone())
    }
}

impl Write for Disk {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().expect("unpoisoned");
        if self.room.is_some_and(|room| bytes.len() + data.len() > room) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A tap around one end of a pair, with a clock at 1 s and an epoch offset of 1000 s.
fn recorded(disk: &Disk) -> (CaptureDevice, Box<dyn Device>) {
    let (a, b) = pair::<Real>(MemConfig { queues: 2, ..MemConfig::default() });
    let clock = || Time::from_secs(1);
    (CaptureDevice::on_platform(Box::new(a), disk.clone(), clock, 1_000_000_000_000), Box::new(b))
}

#[test]
fn a_recording_reads_back_here_and_elsewhere() {
    let disk = Disk::default();
    let (mut tap, mut far) = recorded(&disk);
    let recording = tap.recording();
    let (mut near, mut far) = (tap.take_queues(), far.take_queues());
    let out = build::data(Flow::v4(1), 1, b"out");
    let back = build::udp(Flow::v4(1), b"back!");
    let (out_bytes, back_bytes) = (out.to_vec(), back.to_vec());
    near[1].tx.transmit(out).expect("room");
    far[0].tx.transmit(back).expect("room");
    let received: Vec<usize> = near.iter_mut().map(|queue| drain(queue).len()).collect();
    let queue = received.iter().position(|count| *count == 1).expect("one frame came");
    recording.flush();
    assert_eq!((recording.frames(), recording.is_recording()), (2, true));
    let bytes = disk.bytes.lock().expect("unpoisoned").clone();

    let ours: Vec<Captured> = Reader::new(&bytes[..]).expect("pcapng").map(|frame| frame.expect("a frame")).collect();
    let time = 1_001_000_000_000;
    let expected = |interface, direction, data: &[u8]| Captured {
        time,
        interface,
        direction,
        link_type: 1,
        original_len: data.len() as u32,
        data: data.to_vec(),
    };
    assert_eq!(ours[0], expected(1, Direction::Outbound, &out_bytes));
    assert_eq!(ours[1], expected(queue as u32, Direction::Inbound, &back_bytes));
    assert_eq!(ours.len(), 2);

    let mut oracle = PcapNgReader::new(Cursor::new(bytes)).expect("the other reader takes it");
    let mut theirs = Vec::new();
    while let Some(block) = oracle.next_block() {
        if let Block::EnhancedPacket(packet) = block.expect("a good block") {
            theirs.push((packet.interface_id, packet.timestamp, packet.data.into_owned()));
        }
    }
    // pcap-file 2.0 treats ticks as nanoseconds whatever the resolution; ours are nanoseconds.
    let theirs_expected =
        [(1, Duration::from_nanos(time), out_bytes), (queue as u32, Duration::from_nanos(time), back_bytes)];
    assert_eq!(theirs, theirs_expected);
    assert_eq!(oracle.interfaces().len(), 2);
}

/// What is recorded, and what a replay discards, is read where it is.
#[test]
fn frames_that_others_hold_are_recorded_and_discarded_without_a_copy() {
    let disk = Disk::default();
    let mut nothing = Vec::new();
    Writer::new(&mut nothing).and_then(|mut writer| writer.interface("wire")).expect("written");
    let reader = Reader::new(&nothing[..]).expect("pcapng");
    let empty = Replay::new(reader, ReplayConfig::default(), || Time::ZERO).expect("readable");
    let mut tap = CaptureDevice::new(Box::new(empty), disk.clone());
    let recording = tap.recording();
    let (counters, mut queues) = (tap.counters().expect("counters"), tap.take_queues());
    let held = build::data(Flow::v4(1), 1, b"held").share();
    pktbuf::refuse(0, u64::MAX);
    let sent = queues[0].tx.transmit_shared(held.clone()).is_ok();
    let refused = u64::MAX - pktbuf::refusals_left();
    pktbuf::refuse(0, 0);
    assert!(sent && held.is_unique());
    assert_eq!((refused, counters.snapshot().get(Counter::FramesOut)), (0, 1));
    recording.flush();
    let reader = Reader::new(disk.contents()).expect("a file");
    let recorded: Vec<Captured> = reader.map(|frame| frame.expect("a frame")).collect();
    assert_eq!(recorded.iter().map(|frame| &frame.data[..]).collect::<Vec<_>>(), [&held[..]]);
}

#[test]
fn several_devices_share_a_recording() {
    let disk = Disk::default();
    let (mut first, mut far) = recorded(&disk);
    let recording = first.recording();
    let (other, mut other_far) = pair::<Real>(MemConfig::default());
    let mut other = CaptureDevice::join(Box::new(other), &recording);
    let (mut first, mut other) = (first.take_queues(), other.take_queues());
    let _peers = (far.take_queues(), other_far.take_queues());
    first[1].tx.transmit(build::data(Flow::v4(1), 1, b"by the first")).expect("room");
    other[0].tx.transmit(build::data(Flow::v4(1), 2, b"by the other")).expect("room");
    recording.flush();
    let bytes = disk.bytes.lock().expect("unpoisoned").clone();
    let interfaces: Vec<u32> =
        Reader::new(&bytes[..]).expect("pcapng").map(|frame| frame.expect("a frame").interface).collect();
    assert_eq!(interfaces, [1, 2], "the first has two queue pairs");
}

#[test]
fn a_full_disk_ends_the_recording_and_loses_no_frame() {
    let disk = Disk { room: Some(40_000), ..Disk::default() };
    let (mut tap, mut far) = recorded(&disk);
    let recording = tap.recording();
    let (mut near, mut far) = (tap.take_queues(), far.take_queues());
    for seq in 0..400 {
        near[0].tx.transmit(build::data(Flow::v4(1), seq, &[1; 1000])).expect("room");
    }
    let arrived: usize = far.iter_mut().map(|queue| drain(queue).len()).sum();
    assert_eq!(arrived, 400);
    assert!(!recording.is_recording() && recording.frames() < 400);
    assert_eq!(recording.take_error().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
    assert!(recording.take_error().is_none(), "an error is reported once");
}

#[test]
fn classic_captures_of_either_byte_order_and_resolution_are_read() {
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    use pcap_file::{Endianness, TsResolution};
    for endianness in [Endianness::Big, Endianness::Little] {
        for ts_resolution in [TsResolution::MicroSecond, TsResolution::NanoSecond] {
            let header = PcapHeader { endianness, ts_resolution, ..PcapHeader::default() };
            let mut writer = PcapWriter::with_header(Vec::new(), header).expect("written");
            let packet = PcapPacket::new(Duration::from_micros(5_000_007), 70, &[1, 2, 3]);
            writer.write_packet(&packet).expect("written");
            let bytes = writer.into_writer();
            let frames: Vec<Captured> =
                Reader::new(&bytes[..]).expect("pcap").map(|frame| frame.expect("a frame")).collect();
            assert_eq!(frames.len(), 1);
            assert_eq!((frames[0].time, frames[0].original_len), (5_000_007_000, 70));
            assert_eq!(frames[0].data, [1, 2, 3]);
        }
    }
}

/// A big-endian section with a microsecond interface at an offset, an enhanced and a simple packet and an unknown
/// block.
fn big_endian_section() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut block = |kind: u32, body: &[u32]| {
        let len = 12 + 4 * body.len() as u32;
        for word in [&[kind, len], body, &[len]].concat() {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
    };
    block(0x0a0d_0d0a, &[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX]);
    block(1, &[0x0001_0000, 2, 0x000e_0008, 0, 100, 0]);
    block(0x0bad, &[1, 2, 3]);
    block(6, &[0, 0, 3_000_000, 2, 9, 0xaabb_0000]);
    block(3, &[60, 0xccdd_0000]);
    bytes
}

#[test]
fn big_endian_sections_resolutions_and_simple_packets() {
    let frames: Vec<Captured> =
        Reader::new(&big_endian_section()[..]).expect("pcapng").map(|frame| frame.expect("a frame")).collect();
    assert_eq!(frames.len(), 2);
    assert_eq!((frames[0].time, frames[0].original_len, &frames[0].data[..]), (103_000_000_000, 9, &[0xaa, 0xbb][..]));
    assert_eq!((frames[1].time, frames[1].original_len, &frames[1].data[..]), (0, 60, &[0xcc, 0xdd][..]));
}

#[test]
fn damaged_captures_end_in_an_error_that_says_where() {
    assert!(matches!(Reader::new(&b"GIF89a.."[..]), Err(ReadError::NotACapture)));
    assert!(matches!(Reader::new(&b""[..]), Err(ReadError::NotACapture)));
    let good = big_endian_section();
    let cut = &good[..good.len() - 3];
    let errors: Vec<ReadError> = Reader::new(cut).expect("pcapng").filter_map(Result::err).collect();
    assert!(matches!(errors[..], [ReadError::Truncated(at)] if at as usize == good.len() - 20), "{errors:?}");
    assert!(errors[0].to_string().contains("byte"));
}

#[test]
fn no_damage_makes_the_reader_panic() {
    let mut ours = Vec::new();
    let mut writer = Writer::new(&mut ours).expect("written");
    let interface = writer.interface("x").expect("written");
    writer.frame(interface, 1, Direction::Outbound, &[1; 33]).expect("written");
    writer.frame(interface, 2, Direction::Inbound, &[1; 61]).expect("written");
    drop(writer);
    let mut rng = Pcg::new(1, 1);
    for original in [ours, big_endian_section()] {
        for _ in 0..20_000 {
            let mut bytes = original.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len() as u32) as usize;
                bytes[at] = rng.next_u32() as u8;
            }
            bytes.truncate(rng.below(bytes.len() as u32 + 1) as usize);
            if let Ok(reader) = Reader::new(&bytes[..]) {
                assert!(reader.count() <= 20, "a reader must come to an end");
            }
        }
    }
}

#[test]
fn a_replay_plays_what_came_in_at_its_times() {
    let mut capture = Vec::new();
    let mut writer = Writer::new(&mut capture).expect("written");
    writer.interface("wire").expect("written");
    let second = 1_000_000_000;
    let frames = [
        build::data(Flow::v4(1), 1, b"one"),
        build::data(Flow::v4(1), 2, b"two"),
        build::data(Flow::v4(1), 3, &[0; 3000]),
    ];
    writer.frame(0, 50 * second, Direction::Inbound, &frames[0]).expect("written");
    writer.frame(0, 50 * second + 1, Direction::Outbound, &frames[0]).expect("written");
    writer.frame(0, 52 * second, Direction::Unknown, &frames[1]).expect("written");
    writer.frame(0, 53 * second, Direction::Inbound, &frames[2]).expect("written");
    drop(writer);

    let now = Arc::new(Mutex::new(Time::from_secs(7)));
    let time = now.clone();
    let clock = move || *time.lock().expect("unpoisoned");
    let config = ReplayConfig { pacing: ReplayPacing::AsCaptured, gone_at_end: true, ..ReplayConfig::default() };
    let mut replay = Replay::new(Reader::new(&capture[..]).expect("pcapng"), config, clock).expect("readable");
    let counters = replay.counters().expect("counters");
    assert_eq!(counters.dropped(DropReason::FrameTooLong), 1);
    let mut queue = only_queue(&mut replay);
    assert_eq!(build::parts(&drain(&mut queue)[0]).2, b"one");
    *now.lock().expect("unpoisoned") = Time::from_millis(8_999);
    assert_eq!(drain(&mut queue).len(), 0);
    assert!(!queue.rx.gone());
    *now.lock().expect("unpoisoned") = Time::from_secs(9);
    assert_eq!(queue.rx.wait(None), dev::WaitOutcome::Ready);
    assert_eq!(build::parts(&drain(&mut queue)[0]).2, b"two");
    assert!(queue.rx.gone());
    assert_eq!(queue.rx.wait(None), dev::WaitOutcome::Gone);
}

#[test]
fn devices_can_be_wrapped_in_any_order() {
    let (a, mut b) = pair::<Real>(MemConfig::default());
    let disk = Disk::default();
    let plan = || "loss 0% delay 1ns".parse().expect("a plan");
    let tap =
        CaptureDevice::new(Box::new(dev::fault::Fault::new(Box::new(a), plan(), || Time::from_secs(1))), disk.clone());
    let outer =
        CaptureDevice::new(Box::new(dev::fault::Fault::new(Box::new(tap), plan(), || Time::from_secs(1))), disk);
    let mut device: Box<dyn Device> = Box::new(outer);
    let (mut near, mut far) = (only_queue(&mut device), only_queue(&mut b));
    near.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("room");
    near.tx.flush();
    far.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("room");
    assert_eq!(drain(&mut near).len(), 0, "the clock stands still, so the delay never ends");
}

/// The link types of the registry at tcpdump.org: 1, 10 and 101. A replay takes the frames of its own framing.
#[test]
fn each_framing_has_its_link_type() {
    for (framing, number, frame) in [
        (Framing::Ethernet, 1, build::data(Flow::v4(1), 1, b"data").to_vec()),
        (Framing::Fddi, 10, frames::Frame::new(build::MAC, build::MAC, segment()).fddi_bytes()),
        (Framing::Packet, 101, segment().bytes()),
    ] {
        let disk = Disk::default();
        let (a, b) = pair::<Real>(MemConfig { framing, ..MemConfig::default() });
        let mut tap = CaptureDevice::new(Box::new(a), disk.clone());
        let (joined, _) = pair::<Real>(MemConfig { framing, ..MemConfig::default() });
        let recording = tap.recording();
        let mut joined = CaptureDevice::join(Box::new(joined), &recording);
        let (mut near, mut other, _far) = (only_queue(&mut tap), only_queue(&mut joined), b);
        near.tx.transmit(build::buffer(&frame)).expect("room");
        other.tx.transmit(build::buffer(&frame)).expect("room");
        recording.flush();
        let types: Vec<u16> =
            Reader::new(disk.contents()).expect("pcapng").map(|frame| frame.expect("a frame").link_type).collect();
        assert_eq!(types, [number; 2]);

        let mut capture = Vec::new();
        let mut writer = Writer::new(&mut capture).expect("written");
        for (interface, kind) in [Framing::Ethernet, Framing::Fddi, Framing::Packet].into_iter().enumerate() {
            writer.framed_interface("wire", kind).expect("written");
            writer.frame(interface as u32, 1, Direction::Inbound, &frame).expect("written");
        }
        drop(writer);
        let config = ReplayConfig { framing, ..ReplayConfig::default() };
        let clock = || Time::from_secs(1);
        let mut replay = Replay::new(Reader::new(&capture[..]).expect("pcapng"), config, clock).expect("readable");
        assert_eq!(replay.capabilities().framing, framing);
        let played = drain(&mut only_queue(&mut replay));
        assert_eq!(played.iter().map(|frame| frame.to_vec()).collect::<Vec<_>>(), [frame], "{framing:?}");
        assert!(played[0].meta().flow_hash.is_some(), "{framing:?}: its flow is found");
    }
}

fn segment() -> frames::Packet<'static> {
    frames::Ends::PEER_TO_STACK.packet(frames::Segment::data((1, 2), 1, 1, b"data"))
}
