//! The channel for authors of devices: bounded, in order, and it ends.

use std::sync::mpsc::TrySendError;
use std::time::Duration;

use dev::{RxQueue, WaitOutcome, channel};
use pktbuf::PktBuf;
use sync::Real;

fn frame(number: u8) -> PktBuf {
    PktBuf::from_slice(&[number; 60]).expect("a buffer")
}

#[test]
fn as_many_frames_as_there_is_credit_for_arrive_in_order() {
    let (mut sender, mut receiver) = channel::<Real>(8);
    let credit = sender.credit();
    assert!(credit >= 8, "{credit}");
    for number in 0..credit {
        assert!(sender.try_send(frame(number as u8)).is_ok(), "{number} of {credit}");
    }
    assert_eq!(sender.credit(), 0);
    match sender.try_send(frame(77)) {
        Err(TrySendError::Full(back)) => assert_eq!(back[..], [77; 60]),
        other => panic!("{other:?}"),
    }
    let mut batch = vec![frame(99)];
    assert_eq!((receiver.receive(&mut batch, 3), receiver.receive(&mut batch, 100)), (3, credit - 3));
    let numbers: Vec<usize> = batch[1..].iter().map(|frame| frame[0].into()).collect();
    assert_eq!(numbers, (0..credit).collect::<Vec<_>>());
    assert_eq!(sender.credit(), credit);
}

#[test]
fn a_channel_without_its_other_end_says_so() {
    let (mut sender, receiver) = channel::<Real>(8);
    drop(receiver);
    assert!(matches!(sender.try_send(frame(1)), Err(TrySendError::Disconnected(_))));

    let (mut sender, mut receiver) = channel::<Real>(8);
    assert!(!receiver.gone());
    assert_eq!(receiver.wait(Some(Duration::ZERO)), WaitOutcome::TimedOut);
    assert!(sender.try_send(frame(1)).is_ok());
    drop(sender);
    // Frames that have arrived are delivered first.
    assert!(!receiver.gone());
    assert_eq!(receiver.wait(None), WaitOutcome::Ready);
    assert_eq!(receiver.receive(&mut Vec::new(), 8), 1);
    assert!(receiver.gone());
    assert_eq!(receiver.wait(None), WaitOutcome::Gone);
}
