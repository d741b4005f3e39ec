//! A shard with a stopped worker: its queue is drained by the threads that use it, until it has a worker again.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use sync::{LockKind, Real};

use super::*;
use crate::arch::cells::tests::{hub, job_of};
use crate::arch::cells::{Exclusion, Hub};

const MODES: [Mode; 3] = [Mode::Fill, Mode::NoDrain, Mode::Process];

fn shard(hub: &Hub<Real>, mode: Mode) -> Squeue<Real> {
    Squeue::new(mode, LockKind::Blocking, Cell::new(&hub.shared, &Contents::empty().slab, Writers::Many), None)
}

/// Sends the shard a message that counts.
fn send(shard: &Squeue<Real>, hub: &Hub<Real>, ran: &Arc<AtomicUsize>) {
    let ran = ran.clone();
    let message = job_of(move || {
        ran.fetch_add(1, Relaxed);
    });
    assert!(shard.send(hub, message, true).is_ok(), "the queue has no bound");
}

/// A message comes while a thread runs its own event. How many messages have been run when that thread has left the shard?
fn ran_by_a_thread_that_leaves(shard: &Squeue<Real>, hub: &Hub<Real>) -> (usize, Arc<AtomicUsize>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let entered = shard.enter(hub, |_| send(shard, hub, &ran));
    assert_eq!(entered, Some(()), "it is free");
    (ran.load(Relaxed), ran)
}

/// Solaris: a thread leaves what has come meanwhile to the worker, unless the mode is `process`.
#[test]
fn what_has_come_meanwhile_is_left_to_the_worker() {
    let hub = hub(true);
    let ran = MODES.map(|mode| ran_by_a_thread_that_leaves(&shard(&hub, mode), &hub).0);
    assert_eq!(ran, [0, 0, 1]);
}

/// A call that waits in the queue of a free shard after its worker has ended would never be answered.
#[test]
fn a_thread_that_leaves_a_shard_without_a_worker_drains_its_queue() {
    let hub = hub(true);
    for mode in MODES {
        let shard = shard(&hub, mode);
        shard.stop();
        assert_eq!(ran_by_a_thread_that_leaves(&shard, &hub).0, 1, "{mode:?}");
    }
}

/// The worker is stopped, and finds a message when it ends.
#[test]
fn a_worker_that_ends_leaves_nothing_in_its_queue() {
    let hub = hub(true);
    let (shard, ran) = (shard(&hub, Mode::Fill), Arc::new(AtomicUsize::new(0)));
    send(&shard, &hub, &ran);
    shard.stop();
    shard.serve(&hub);
    assert_eq!(ran.load(Relaxed), 1);
}

/// An architecture that is not dissolved after all starts its workers again.
#[test]
fn a_shard_that_was_stopped_has_a_worker_again() {
    let hub = hub(true);
    let shard = shard(&hub, Mode::Fill);
    shard.stop();
    shard.serve(&hub);
    shard.resume();
    let (left, ran) = ran_by_a_thread_that_leaves(&shard, &hub);
    assert_eq!(left, 0, "it is the worker's");
    thread::scope(|scope| {
        scope.spawn(|| shard.serve(&hub));
        while ran.load(Relaxed) == 0 {
            thread::yield_now();
        }
        shard.stop();
    });
    assert_eq!(ran.load(Relaxed), 1);
}
