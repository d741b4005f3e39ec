//! The input that workers share ([`FrameInput`]): the order of the frames that several threads carry at a time, and what becomes
//! of a batch that does not fit.

use std::sync::Arc;

use observe::Time;
use path::{Frame, StackInput};
use pktbuf::PktBuf;
use stack::arch::frame_input::{ArrivedFrame, FrameInput};
use sync::LockKind;
use wire::Framing;

use crate::scene::{Observed, Scene, State};

/// The thread that carries the later frame.
const LATER: &str = "later";

fn frame(hash: Option<u32>, followed: bool) -> ArrivedFrame {
    let buffer = PktBuf::from_slice(b"text").expect("a packet buffer");
    let frame = Frame { followed, ..Frame::new(Framing::Packet, buffer) };
    ArrivedFrame { interface: 0, input: StackInput::Packet(frame), now: Time::ZERO, hash }
}

/// The test has taken the first of two frames with these hashes, and another thread the second. Whether that one waits for its
/// turn until the first has had its own.
fn waits(ordered: bool, hashes: [u32; 2]) -> bool {
    let scene = Scene::new();
    let input = FrameInput::<Observed>::new(LockKind::Blocking, 2, 8, ordered);
    assert_eq!(input.put(&mut hashes.map(|hash| frame(Some(hash), false)).into()), 0);
    let first = input.take().expect("a frame");
    let theirs = input.clone();
    let later = scene.spawn(LATER, move || {
        let taken = theirs.take().expect("a frame");
        drop(theirs.turn());
        drop(taken);
    });
    let comes = |state: &State| state.done.contains(LATER) || state.sleeps(LATER, &[]);
    let waits = !scene.until(comes).done.contains(LATER);
    assert_eq!(input.turn().is_some(), ordered, "only a frame with a ticket has a turn");
    drop(first);
    later.join();
    assert!(input.is_empty());
    waits
}

/// Nahum et al.: a ticket is drawn where the packet is taken, and packets of a connection get it in that order; those of another
/// connection, and all of a pool without order, overtake it.
#[test]
fn a_frame_waits_for_an_earlier_one_of_its_flow() {
    assert!(waits(true, [5, 5]), "of one flow");
    assert!(!waits(true, [5, 1 << 31]), "of two flows");
    assert!(!waits(false, [5, 5]), "without tickets");
}

/// The frames of a batch that do not fit are refused. The last one that fits does not announce another of its run any more; if
/// all fit, the run goes on.
#[test]
fn a_run_ends_where_the_input_is_full() {
    for (room, refused, last) in [(2, 1, false), (3, 0, true)] {
        let input: Arc<FrameInput<Observed>> = FrameInput::new(LockKind::Blocking, 1, room, false);
        let mut batch = (0..3).map(|_| frame(None, true)).collect();
        assert_eq!((input.put(&mut batch), batch.len()), (refused, 0));
        let followed = std::iter::from_fn(|| match input.take()?.frame.take()?.input {
            StackInput::Frame(frame) | StackInput::Fddi(frame) | StackInput::Packet(frame) => Some(frame.followed),
        });
        let expected: Vec<bool> = (1..room).map(|_| true).chain([last]).collect();
        assert_eq!(followed.collect::<Vec<_>>(), expected);
    }
}
