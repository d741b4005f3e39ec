//! The take-over of `steal`: a home core that makes connections ready, and a thief that takes one.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use stack::arch::ready_queues::ReadyQueues;
use stack::place::turns::HandlerTurns;
use stack::socket::Readiness;
use sync::{Atomic, LockKind, Ordering, Platform, ThreadClass};

/// Events of the connection.
const EVENTS: usize = 2;
const HOME: usize = 0;
const THIEF: usize = 1;

/// One connection with this home core.
struct Scene<P: Platform> {
    /// Its handler has a number, which no two threads have at once.
    handler: HandlerTurns<u32, P>,
    queues: ReadyQueues<(), P>,
    arrived: P::AtomicUsize,
    /// The number of events that the handler has received.
    seen: P::AtomicUsize,
    busy: P::AtomicBool,
}

impl<P: Platform> Scene<P> {
    /// An event arrives, as under [`stack::arch::steal`].
    fn arrive(&self) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        if self.handler.leave(Readiness::READABLE) {
            self.queues.add(HOME, ());
        }
    }

    /// A core has taken the connection from a queue.
    fn run(&self) {
        let (handler, left) = self.handler.take().expect("a connection is in one queue, once");
        assert!(!self.busy.swap(true, Ordering::AcqRel), "two threads run one handler");
        assert!(!left.is_empty(), "a ready connection has something for its handler");
        self.seen.store(self.arrived.load(Ordering::Relaxed), Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
        if self.handler.put_back(handler) == Ok(true) {
            self.queues.add(HOME, ());
        }
    }
}

/// Events of one connection arrive at its home core, which runs the handler after each; a thief takes the connection
/// meanwhile. One thread at a time runs the handler, and it receives every event.
pub fn taken_by_home_and_thief<P: Platform>() {
    let scene = Arc::new(Scene::<P> {
        handler: HandlerTurns::new(7),
        queues: ReadyQueues::new(LockKind::Blocking, 2),
        arrived: P::AtomicUsize::new(0),
        seen: P::AtomicUsize::new(0),
        busy: P::AtomicBool::new(false),
    });
    let idle = scene.clone();
    let thief = P::spawn("thief", None, ThreadClass::Receive, move || {
        if idle.queues.steal(THIEF).is_some() {
            idle.run();
        }
    });
    for _ in 0..EVENTS {
        scene.arrive();
        if scene.queues.take(HOME).is_some() {
            scene.run();
        }
    }
    P::join(thief).expect("the thief ends well");
    while scene.queues.take(HOME).is_some() {
        scene.run();
    }
    assert_eq!(scene.seen.load(Ordering::Relaxed), EVENTS, "something was left, and no thread was told");
}
