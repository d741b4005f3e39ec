//! The work stream of `netisr:hybrid`: packets that wait for the swi, and packets that their receive thread processes
//! directly.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use stack::arch::work_stream::WorkStream;
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Parker, Platform, ThreadClass};

/// The receive thread on the CPU of the stream.
pub const HYBRID: &str = "hybrid";
/// A receive thread of another CPU, which then does the work of the swi.
pub const BESIDE: &str = "swi";

/// Packets of one flow, in the order in which the thread receives them.
const FLOW: [u32; 2] = [1, 2];
/// The packet from the other CPU.
const OTHER: u32 = 9;

struct Scene<P: Platform> {
    stream: WorkStream<u32, P>,
    /// A packet is being processed.
    busy: P::AtomicBool,
    done: Lock<Vec<u32>, P>,
    /// Where the thread that checks waits until all have been processed.
    all_done: Parker<P>,
    stop: P::AtomicBool,
}

impl<P: Platform> Scene<P> {
    fn process(&self, packet: u32) {
        assert!(!self.busy.swap(true, Ordering::AcqRel), "two packets of a stream are processed at once");
        let mut done = self.done.lock();
        done.push(packet);
        let all = done.len() == FLOW.len() + 1;
        drop(done);
        self.busy.store(false, Ordering::Release);
        if all {
            self.all_done.unpark();
        }
    }

    /// As [`stack::arch::netisr`] does for a packet of the calling thread's own CPU.
    fn bring(&self, packet: u32) {
        if let Some(_direct) = self.stream.dispatch() {
            return self.process(packet);
        }
        if self.stream.leave(packet) == Ok(true) {
            self.stream.wake();
        }
    }

    fn serve(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let mut turn = self.stream.turn();
            while let Some(running) = &mut turn {
                while let Some(packet) = running.taken.pop_front() {
                    self.process(packet);
                }
                if !running.more() {
                    turn = None;
                }
            }
            self.stream.wait();
        }
    }
}

/// A packet from another CPU waits, and packets of one flow are received on the stream's own CPU meanwhile: they are
/// processed directly, or behind it. Each is processed once, one at a time, and the flow in its order; and the swi is
/// not left asleep.
pub fn deferred_and_directly<P: Platform>() {
    let scene = Arc::new(Scene::<P> {
        stream: WorkStream::new(LockKind::Blocking, FLOW.len() + 1),
        busy: P::AtomicBool::new(false),
        done: Lock::new(LockKind::Blocking, LockClass::Control, Vec::new()),
        all_done: Parker::new(),
        stop: P::AtomicBool::new(false),
    });
    let beside = scene.clone();
    let swi = P::spawn(BESIDE, None, ThreadClass::Protocol, move || {
        let left = beside.stream.leave(OTHER);
        assert!(left.is_ok(), "there is room");
        beside.serve();
    });
    let brings = scene.clone();
    let hybrid =
        P::spawn(HYBRID, None, ThreadClass::Receive, move || FLOW.into_iter().for_each(|packet| brings.bring(packet)));
    while scene.done.lock().len() <= FLOW.len() {
        scene.all_done.park(None);
    }
    P::join(hybrid).expect("the receive thread ends well");
    scene.stop.store(true, Ordering::Release);
    scene.stream.wake();
    P::join(swi).expect("the swi ends well");
    let done = scene.done.lock();
    let flow: Vec<u32> = done.iter().copied().filter(|packet| *packet != OTHER).collect();
    assert_eq!(flow, FLOW, "packets of a flow are processed out of order: {done:?}");
    assert!(scene.stream.is_idle());
}
