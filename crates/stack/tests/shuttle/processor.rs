//! The hand-off of `backlog:processor`: a thread that receives and leaves work, a user that owns the value meanwhile, and the
//! processor, which alone does what was left.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use stack::arch::ready_queues::ReadyQueues;
use stack::place::pcb::{Backlogged, LeftForProcessor, Ownership};
use sync::{LockKind, Platform, ThreadClass};

/// What the receiving thread leaves.
const LEFT: [u32; 3] = [1, 2, 3];
/// What the user does itself.
const USED: u32 = 0;
const PROCESSOR: usize = 0;

struct Scene<P: Platform> {
    /// A list of all work that was done.
    value: Backlogged<Vec<u32>, u32, P>,
    queues: ReadyQueues<(), P>,
}

impl<P: Platform> Scene<P> {
    fn leave(&self, work: u32) {
        match self.value.leave(1, LEFT.len(), || work) {
            LeftForProcessor::Queue => self.queues.add(PROCESSOR, ()),
            LeftForProcessor::Known => {}
            LeftForProcessor::Full => panic!("there is room for all of it"),
        }
    }

    fn use_it(&self) {
        let mut owner = self.value.own_patiently();
        owner.with(|done| done.push(USED));
        self.release(owner);
    }

    fn release(&self, owner: Ownership<'_, Vec<u32>, u32, P>) {
        if owner.hand_over() {
            self.queues.add(PROCESSOR, ());
        }
    }

    /// The processor takes the value from its queue, if it is there: one piece of work, or as long as there is some.
    fn process(&self, most: usize) -> bool {
        let Some(()) = self.queues.take(PROCESSOR) else { return false };
        assert!(self.queues.length(PROCESSOR) == 0, "the value is queued twice");
        let mut turn = self.value.turn(|_| 1);
        for _ in 0..most {
            let Some((work, mut owner)) = turn.take() else { return true };
            owner.with(|done| done.push(work));
            turn = owner.next_in_turn(|_| 1);
        }
        if let Some((work, mut owner)) = turn {
            owner.with(|done| done.push(work));
            self.release(owner);
        }
        true
    }
}

/// Work arrives while a user owns the value, or does not. The processor does all of it, in its order, and the value
/// is never in its queue twice.
pub fn left_beside_a_user<P: Platform>() {
    let scene = Arc::new(Scene::<P> {
        value: Backlogged::new(LockKind::Blocking, Vec::new()),
        queues: ReadyQueues::new(LockKind::Blocking, 1),
    });
    let (used, processed) = (scene.clone(), scene.clone());
    let user = P::spawn("user", None, ThreadClass::Application, move || used.use_it());
    let processor = P::spawn("processor", None, ThreadClass::Protocol, move || {
        processed.process(LEFT.len());
    });
    LEFT.into_iter().for_each(|work| scene.leave(work));
    for thread in [user, processor] {
        P::join(thread).expect("it ends well");
    }
    while scene.process(LEFT.len()) {}
    let done = Arc::into_inner(scene).expect("no thread is left").value.into_inner();
    assert_eq!(done.iter().filter(|work| **work == USED).count(), 1, "the user's work is lost or done twice: {done:?}");
    let left: Vec<u32> = done.into_iter().filter(|work| *work != USED).collect();
    assert_eq!(left, LEFT, "work is left for ever, done twice or in another order");
}
