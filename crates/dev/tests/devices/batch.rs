//! A batch is equivalent to its frames one by one, for every device: the same frames cross, the same are refused, in
//! the same order, and a recording is the same.

use std::collections::VecDeque;
use std::time::Duration;

use dev::fault::Fault;
use dev::mem::{MemConfig, pair};
use dev::pcap::{CaptureDevice, Reader};
use dev::{BitSet, Device, TxQueue};
use observe::Time;
use pktbuf::PktBuf;
use sync::Real;

use crate::build::{self, Flow, drain, only_queue};
use crate::pcap::Disk;

const RING: usize = 16;

fn frames(count: u32) -> VecDeque<PktBuf> {
    (0..count).map(|seq| build::data(Flow::v4(1), seq, &[seq as u8; 10])).collect()
}

/// Gives the queue all frames one by one, as far as it accepts them.
fn one_by_one(queue: &mut dyn TxQueue, frames: &mut VecDeque<PktBuf>) {
    while let Some(frame) = frames.pop_front() {
        if let Err(back) = queue.transmit(frame) {
            return frames.push_front(back);
        }
    }
}

/// The same by the call that also records receivers and reads the credit.
fn in_one_call(queue: &mut dyn TxQueue, frames: &mut VecDeque<PktBuf>) {
    let mut receivers = BitSet::new();
    while let Some(frame) = frames.pop_front() {
        match queue.transmit_one(frame, &mut receivers) {
            Ok(credit) => assert_eq!(credit, queue.credit()),
            Err(back) => {
                frames.push_front(back);
                break;
            }
        }
    }
}

fn numbers<'a>(frames: impl IntoIterator<Item = &'a PktBuf>) -> Vec<u32> {
    frames.into_iter().map(|frame| build::parts(frame).0).collect()
}

/// Of 20 frames offered to a ring of 16: those that arrive, those refused, and those that arrive once there is room
/// again.
fn story(
    wrap: impl Fn(Box<dyn Device>) -> Box<dyn Device>,
    give: impl Fn(&mut dyn TxQueue, &mut VecDeque<PktBuf>),
) -> [Vec<u32>; 3] {
    let (near, mut far) = pair::<Real>(MemConfig { ring_frames: RING, ..MemConfig::default() });
    let mut device = wrap(Box::new(near));
    let (mut near, mut far) = (only_queue(&mut device), only_queue(&mut far));
    let mut offered = frames(20);
    give(&mut *near.tx, &mut offered);
    near.tx.flush();
    let arrived = numbers(&drain(&mut far));
    let refused = numbers(&offered);
    give(&mut *near.tx, &mut offered);
    near.tx.flush();
    assert!(offered.is_empty());
    [arrived, refused, numbers(&drain(&mut far))]
}

#[test]
fn a_batch_is_what_its_frames_are_one_by_one() {
    type Wrap = fn(Box<dyn Device>) -> Box<dyn Device>;
    let wraps: [(&str, Wrap); 3] = [
        ("mem", |device| device),
        ("fault", |device| {
            let plan = "loss 20% dup 10% reorder 10% distance 3 seed 5".parse().expect("a plan");
            Box::new(Fault::new(device, plan, || Time::from_secs(1)))
        }),
        ("pcap", |device| Box::new(CaptureDevice::new(device, Disk::default()))),
    ];
    for (name, wrap) in wraps {
        let single = story(wrap, one_by_one);
        let batch = story(wrap, |queue, frames| queue.transmit_batch(frames));
        assert_eq!(batch, single, "{name}");
        assert_eq!(story(wrap, in_one_call), single, "{name}");
        assert!(name == "fault" || single[1] == [16, 17, 18, 19], "{name}: {single:?}");
    }
}

#[test]
fn a_recording_of_a_batch_has_every_frame_once() {
    let (disk, clock) = (Disk::default(), || Time::from_secs(1));
    let (near, mut far) = pair::<Real>(MemConfig { ring_frames: RING, ..MemConfig::default() });
    let mut device = CaptureDevice::<Real>::on_platform(Box::new(near), disk.clone(), clock, 0);
    let recording = device.recording();
    let (mut near, mut far) = (only_queue(&mut device), only_queue(&mut far));
    let mut offered = frames(40);
    for _ in 0..3 {
        near.tx.transmit_batch(&mut offered);
        drain(&mut far);
    }
    assert!(offered.is_empty());
    recording.flush();
    let recorded = Reader::new(disk.contents()).expect("a capture").map(|frame| frame.expect("a frame").data);
    let all: Vec<_> = frames(40).iter().map(|frame| frame.to_vec()).collect();
    assert_eq!(recorded.collect::<Vec<_>>(), all);
}

/// A receiver that is awake looks for frames before it sleeps. One whose earlier frame is recorded stays recorded.
#[test]
fn one_call_records_no_receiver_that_is_awake() {
    let (mut near, _far) = pair::<Real>(MemConfig { ring_frames: RING, ..MemConfig::default() });
    let (mut near, mut receivers) = (only_queue(&mut near), BitSet::new());
    let before = near.tx.credit();
    let mut frames = frames(3).into_iter();
    let mut next = || frames.next().expect("three frames");
    let credit = near.tx.transmit_one(next(), &mut receivers).ok();
    assert_eq!((credit, receivers.as_mask()), (Some(before - 1), Some(0)));
    assert!(near.tx.transmit(next()).is_ok());
    let credit = near.tx.transmit_one(next(), &mut receivers).ok();
    assert_eq!((credit, receivers.as_mask()), (Some(before - 3), Some(1)), "the frame before it was not flushed");
}

/// 70 queues send to 70 receivers: each records exactly the receivers of its own frames.
#[test]
fn a_queue_notes_exactly_the_receivers_it_sent_to() {
    let (mut near, mut far) = pair::<Real>(MemConfig { queues: 70, ring_frames: RING, ..MemConfig::default() });
    let (mut near, mut far) = (near.take_queues(), far.take_queues());
    for sender in [0, 63, 64, 69] {
        let mut frames = VecDeque::new();
        for receiver in [1, 65, 69] {
            let mut frame = build::data(Flow::v4(1), receiver, b"x");
            frame.meta_mut().flow_hash = Some(receiver);
            frames.push_back(frame);
        }
        near[sender].tx.transmit_batch(&mut frames);
        let mut dirty = BitSet::new();
        near[sender].tx.take_dirty(&mut dirty);
        let sent_to: Vec<usize> = std::iter::from_fn(|| dirty.pop()).collect();
        assert_eq!(sent_to, [1, 65, 69]);
        near[sender].tx.take_dirty(&mut dirty);
        assert!(dirty.is_empty(), "once");
        let arrived: Vec<usize> = (0..70).map(|queue| drain(&mut far[queue]).len()).collect();
        assert!(arrived.iter().enumerate().all(|(queue, count)| *count == usize::from(sent_to.contains(&queue))));
    }
    assert_eq!(far[3].rx.wait(Some(Duration::ZERO)), dev::WaitOutcome::TimedOut);
}
