//! The wake-up protocol of the linked pair under shuttle's schedules: no frame waits for a sleeping receiver, whatever
//! the interleaving. A sender without the flush shows that the checker finds the error. (`cargo test -p heddle-dev
//! --features shuttle`)

use std::panic::{AssertUnwindSafe, catch_unwind};

use dev::mem::{MemConfig, pair};
use dev::{BitSet, Device, QueuePair, TxQueue, WaitOutcome};
use pktbuf::PktBuf;
use sync::shuttle::Shuttle;
use sync::{Platform, ThreadClass};

const FRAMES: u8 = 3;
const SCHEDULES: usize = 2_000;

/// Sends a frame of no further meaning.
fn say(queue: &mut QueuePair) {
    assert!(queue.tx.transmit(PktBuf::from_slice(&[9; 60]).expect("a buffer")).is_ok());
    queue.tx.flush();
}

/// How the sender sends a frame.
type Send = fn(&mut dyn TxQueue, PktBuf);

fn with_flush(queue: &mut dyn TxQueue, frame: PktBuf) {
    assert!(queue.transmit(frame).is_ok());
    queue.flush();
}

fn without_flush(queue: &mut dyn TxQueue, frame: PktBuf) {
    assert!(queue.transmit(frame).is_ok());
}

/// Notifies the receiver only if the queue says so.
fn if_asleep(queue: &mut dyn TxQueue, frame: PktBuf) {
    let mut dirty = BitSet::new();
    assert!(queue.transmit_one(frame, &mut dirty).is_ok());
    if !dirty.is_empty() {
        queue.notifier().expect("a linked pair has one").notify(&dirty);
    }
}

/// One sender, and one receiver that sleeps whenever it finds nothing and is woken explicitly at the end.
fn conversation(send: Send) {
    let (mut a, mut b) = pair::<Shuttle>(MemConfig { ring_frames: 4, ..MemConfig::default() });
    let (mut near, mut far) = (a.take_queues(), b.take_queues());
    let waker = far[0].rx.waker();
    let receiver = Shuttle::spawn("receiver", None, ThreadClass::Receive, move || {
        let (mut batch, mut next) = (Vec::new(), 0);
        while next < FRAMES {
            if far[0].rx.receive(&mut batch, 2) == 0 {
                assert_eq!(far[0].rx.wait(None), WaitOutcome::Ready);
            }
            for frame in batch.drain(..) {
                assert_eq!(frame[0], next);
                next += 1;
            }
        }
        say(&mut far[0]);
        assert_eq!(far[0].rx.wait(None), WaitOutcome::Woken);
        say(&mut far[0]);
        assert_eq!(far[0].rx.wait(None), WaitOutcome::Gone);
    });
    for number in 0..FRAMES {
        send(&mut *near[0].tx, PktBuf::from_slice(&[number; 60]).expect("a buffer"));
    }
    // The receiver's own frame shows that it has everything; only then may it be woken explicitly.
    assert_eq!(near[0].rx.wait(None), WaitOutcome::Ready);
    near[0].rx.receive(&mut Vec::new(), 1);
    waker.wake();
    // The link may be dropped only after it has been woken.
    assert_eq!(near[0].rx.wait(None), WaitOutcome::Ready);
    drop(near);
    Shuttle::join(receiver).expect("the receiver ends");
}

#[test]
fn no_schedule_loses_a_wake_up() {
    for send in [with_flush, if_asleep] {
        shuttle::check_random(move || conversation(send), SCHEDULES);
        shuttle::check_pct(move || conversation(send), SCHEDULES, 3);
    }
}

#[test]
fn a_forgotten_flush_would_be_found() {
    let found =
        catch_unwind(AssertUnwindSafe(|| shuttle::check_random(|| conversation(without_flush), 200 * SCHEDULES)));
    assert!(found.is_err(), "the receiver sleeps for ever in some schedule");
}
