//! The pool at its limit: only allocations fail, and everything works again when blocks are released.
//!
//! The limit applies to the whole process, so everything here is one test in a binary of its own.

use std::sync::mpsc;
use std::thread;

use pktbuf::{PktBuf, footprint, live, set_limit};

/// Bytes that the block of a frame takes: 2 KiB and a header of one cache line.
const SMALL: usize = 2048 + 64;
/// Bytes that the smallest block takes.
const TINY: usize = 320 + 64;
const BLOCKS: usize = 100;

#[test]
fn the_limit_holds_and_lets_go() {
    // The rest is too small for a block of any size.
    set_limit(BLOCKS * SMALL + TINY - 1);
    exhaustion_is_an_answer_not_an_accident();
    blocks_released_elsewhere_can_be_had();
    other_classes_are_refused_too();
    set_limit(usize::MAX);
    blocks_on_the_shelves_of_another_thread_can_be_had();
    assert!(PktBuf::alloc(65_536).is_some(), "the limit was lifted");
}

fn allocate_all() -> Vec<PktBuf> {
    std::iter::from_fn(|| PktBuf::alloc(1514)).collect()
}

fn exhaustion_is_an_answer_not_an_accident() {
    for _ in 0..3 {
        let held = allocate_all();
        assert_eq!((held.len(), live(), footprint()), (BLOCKS, BLOCKS, BLOCKS * SMALL));
        assert!(PktBuf::from_slice(b"one more").is_none());
        assert!(held[0].duplicate().is_none());
    }
    assert_eq!(live(), 0);
}

/// Under pressure no thread may cache blocks that another needs.
fn blocks_released_elsewhere_can_be_had() {
    let held = allocate_all();
    let holder = thread::spawn(move || {
        drop(held);
        // The thread stays alive, with its caches, until it is unparked.
        thread::park();
    });
    while live() > 0 {
        thread::yield_now();
    }
    let again = allocate_all();
    assert_eq!(again.len(), BLOCKS, "blocks are stuck in the cache of another thread");
    holder.thread().unpark();
    holder.join().unwrap();
}

/// A thread that has lacked blocks finds them on its own shelves again, unless others need them and the pool cannot grow.
fn blocks_on_the_shelves_of_another_thread_can_be_had() {
    const MANY: usize = 600;
    // Those in its magazines stay with it.
    const KEPT: usize = 2 * 64;
    let (done, released) = mpsc::channel();
    let holder = thread::spawn(move || {
        for _ in 0..2 {
            drop((0..MANY).map(|_| PktBuf::alloc(1514).unwrap()).collect::<Vec<_>>());
        }
        done.send(()).unwrap();
        thread::park();
    });
    released.recv().unwrap();
    set_limit(footprint());
    let held = allocate_all();
    assert!(held.len() >= MANY - KEPT, "{} blocks of {MANY}", held.len());
    drop(held);
    set_limit(usize::MAX);
    holder.thread().unpark();
    holder.join().unwrap();
}

fn other_classes_are_refused_too() {
    assert!(PktBuf::alloc(9000).is_none());
    assert!(PktBuf::alloc(65_536).is_none());
    assert_eq!(footprint(), BLOCKS * SMALL);
}
