//! The queue of a CPU under `softint`: a hard handler puts frames into it, one batch for each interrupt, and the
//! soft-interrupt thread takes them one at a time and sleeps when there are none.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use observe::Time;
use path::{Frame, StackInput};
use pktbuf::PktBuf;
use stack::arch::frame_input::{ArrivedFrame, FrameInput};
use sync::{Lock, LockClass, LockKind, Parker, Platform, ThreadClass};
use wire::Framing;

/// The hard handler.
pub const HARD: &str = "hard";
/// The soft-interrupt thread.
pub const SOFT: &str = "soft";

/// Frames of each interrupt, one more than may wait: the number of each is its only byte.
const INTERRUPTS: [&[u8]; 2] = [&[1, 2], &[3]];
/// The number of frames that may wait.
const LIMIT: usize = 1;

struct Scene<P: Platform> {
    input: Arc<FrameInput<P>>,
    /// Numbers of the frames that were carried, and how many were refused.
    seen: Lock<(Vec<u8>, usize), P>,
    /// Where the thread that checks waits until all have been carried or refused.
    all_seen: Parker<P>,
}

impl<P: Platform> Scene<P> {
    fn see(&self, frame: Option<u8>, refused: usize) {
        let mut seen = self.seen.lock();
        seen.0.extend(frame);
        seen.1 += refused;
        let all = seen.0.len() + seen.1 == INTERRUPTS.concat().len();
        drop(seen);
        if all {
            self.all_seen.unpark();
        }
    }

    /// As a receive thread does with a batch.
    fn interrupt(&self, frames: &[u8]) {
        let arrived = |number: &u8| {
            let buffer = PktBuf::from_slice(&[*number]).expect("a packet buffer");
            let input = StackInput::Packet(Frame::new(Framing::Packet, buffer));
            ArrivedFrame { interface: 0, input, now: Time::ZERO, hash: None }
        };
        let refused = self.input.put(&mut frames.iter().map(arrived).collect());
        self.see(None, refused);
    }

    /// As [`stack::arch::frame_workers`] does.
    fn serve(&self) {
        while !self.input.is_stopped() {
            match self.input.take() {
                Some(mut taken) => {
                    let frame = taken.frame.take().map(|frame| match frame.input {
                        StackInput::Frame(frame) | StackInput::Fddi(frame) | StackInput::Packet(frame) => {
                            frame.buffer[0]
                        }
                    });
                    drop(taken);
                    self.see(frame, 0);
                }
                None if self.input.wait(0) => {}
                None => return,
            }
        }
    }
}

/// Two interrupts while the soft-interrupt thread takes frames or falls asleep. Each frame is carried once, in the order of
/// arrival, or refused because the queue is full; and none is left in the queue of a thread that sleeps.
pub fn interrupts_while_falling_asleep<P: Platform>() {
    let scene = Arc::new(Scene::<P> {
        input: FrameInput::new(LockKind::Blocking, 1, LIMIT, false),
        seen: Lock::new(LockKind::Blocking, LockClass::Control, (Vec::new(), 0)),
        all_seen: Parker::new(),
    });
    let serves = scene.clone();
    let soft = P::spawn(SOFT, None, ThreadClass::Protocol, move || serves.serve());
    let interrupts = scene.clone();
    let hard = P::spawn(HARD, None, ThreadClass::Receive, move || {
        INTERRUPTS.into_iter().for_each(|frames| interrupts.interrupt(frames));
    });
    let all = INTERRUPTS.concat().len();
    while {
        let seen = scene.seen.lock();
        seen.0.len() + seen.1 < all
    } {
        scene.all_seen.park(None);
    }
    P::join(hard).expect("the hard handler ends well");
    scene.input.stop();
    P::join(soft).expect("the soft-interrupt thread ends well");
    let (carried, refused) = &*scene.seen.lock();
    assert!(carried.is_sorted() && carried.contains(&1), "frames are carried out of order: {carried:?}");
    assert!((1..=2).contains(refused) && carried.len() + refused == all, "{carried:?} carried, {refused} refused");
    assert!(scene.input.is_empty());
}
