//! Where free blocks are kept: in magazines of each thread and on its shelves of the depot, in a depot of all, or in the depots alone.
//!
//! The choice and the counts of locks are of the whole process, so everything here is one test in a binary of its own.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;

use pktbuf::{Caching, PktBuf, live, set_caching};
use sync::{LockClass, profile};

const ROUNDS: u64 = 1000;

#[test]
fn a_process_chooses_where_free_blocks_are() {
    assert!(acquisitions(use_buffers) < ROUNDS / 16, "magazines");
    set_caching(Caching::Global);
    // The first release of a thread gives up its magazines.
    drop(buffer());
    assert_eq!(acquisitions(use_buffers), 2 * ROUNDS, "each allocation and each release");
    what_one_thread_releases_another_allocates();
    set_caching(Caching::PerThread);
    a_depot_is_of_each_thread_or_of_all();
    use_buffers();
    assert!(acquisitions(use_buffers) < ROUNDS / 16, "magazines again");
    assert_eq!(live(), 0);
}

fn buffer() -> PktBuf {
    PktBuf::alloc(100).expect("the pool has no limit here")
}

fn use_buffers() {
    (0..ROUNDS).for_each(|_| drop(buffer()));
}

/// Locks of depots that `act` takes; no other thread is in the pool.
fn acquisitions(act: impl FnOnce()) -> u64 {
    let count = || profile::snapshot()[LockClass::BufferPool.index()].acquired;
    let before = count();
    act();
    count() - before
}

fn what_one_thread_releases_another_allocates() {
    let mine = buffer();
    let address = mine.as_ptr().addr();
    drop(mine);
    let other = thread::spawn(move || buffer().as_ptr().addr() == address);
    assert!(other.join().expect("no panic"), "a thread has kept the block");
}

/// A thread that has lacked blocks before keeps them on shelves of its own, unless the depot is for all threads.
fn a_depot_is_of_each_thread_or_of_all() {
    const MANY: usize = 600;
    for (caching, goes_on) in [(Caching::PerThread, false), (Caching::SharedDepot, true)] {
        set_caching(caching);
        let many = || (0..MANY).map(|_| buffer()).collect::<Vec<_>>();
        let addresses = |held: &[PktBuf]| held.iter().map(|buf| buf.as_ptr().addr()).collect::<HashSet<_>>();
        let (done, released) = mpsc::channel();
        let other = thread::spawn(move || {
            let held = many();
            done.send(addresses(&held)).expect("it waits");
            drop(held);
            done.send(HashSet::new()).expect("it waits");
            // The thread stays alive, with its caches, until it is unparked.
            thread::park();
        });
        let theirs = released.recv().expect("it sends them");
        released.recv().expect("it has released them");
        let found = addresses(&many()).intersection(&theirs).count();
        assert_eq!(found > MANY / 2, goes_on, "{caching:?}: {found} of {MANY}");
        other.thread().unpark();
        other.join().expect("no panic");
    }
    set_caching(Caching::PerThread);
}
