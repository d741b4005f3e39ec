//! Where free blocks are kept: in magazines of each thread, or in the depots alone.
//!
//! The choice and the counts of locks are of the whole process, so everything here is one test in a binary of its own.

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
