//! The pool between threads: no block is lost or returned twice, and memory stays bounded.
//!
//! `live` and `footprint` are of the whole process, so everything here is one test in a binary of its own.

use std::collections::HashSet;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use pktbuf::{PktBuf, footprint, live};

const ROUNDS: usize = if cfg!(miri) { 3 } else { 300 };
const BATCH: usize = if cfg!(miri) { 70 } else { 200 };
const CAPACITIES: [usize; 4] = [100, 1514, 9000, 65_536];

#[test]
fn blocks_travel_and_the_books_balance() {
    distinct_blocks_on_one_thread();
    one_way_traffic_is_bounded();
    each_size_returns_to_its_own_kind();
    // In a thread that has lacked no blocks: it keeps none beyond its magazines.
    thread::spawn(ended_threads_leave_nothing_behind).join().unwrap();
    shelves_of_ended_threads_are_had();
    each_thread_takes_its_own_blocks_again();
    late_destructors_may_release();
}

fn distinct_blocks_on_one_thread() {
    for capacity in CAPACITIES {
        let mut held: Vec<PktBuf> = (0..BATCH).map(|_| PktBuf::alloc(capacity).unwrap()).collect();
        let addresses: HashSet<_> = held.iter().map(|b| b.as_ptr()).collect();
        assert_eq!((addresses.len(), live()), (BATCH, BATCH));
        for (i, buf) in held.iter_mut().enumerate() {
            let room = buf.tailroom();
            buf.append(room).fill(i as u8);
        }
        for (i, buf) in held.iter().enumerate() {
            assert!(buf[..] == vec![i as u8; buf.len()][..], "block {i} overlaps another");
        }
        drop(held);
        assert_eq!(live(), 0);
    }
}

/// One thread allocates, another releases: magazines must flow back through the depot.
fn one_way_traffic_is_bounded() {
    let (to_sink, from_source) = mpsc::sync_channel::<Vec<PktBuf>>(1);
    let (ack, acked) = mpsc::sync_channel::<()>(1);
    let sink = thread::spawn(move || {
        for batch in from_source {
            for (i, buf) in batch.iter().enumerate() {
                assert_eq!(buf[..], [i as u8; 100], "a block in flight was written by somebody else");
            }
            drop(batch);
            ack.send(()).unwrap();
        }
    });
    // Both threads may fill both their magazines: the phase of a batch in a magazine drifts.
    const CACHES: usize = 2 * 2 * 64 * (320 + 64);
    let mut settled = 0;
    for round in 0..ROUNDS {
        let batch = (0..BATCH).map(|i| PktBuf::from_slice(&[i as u8; 100]).unwrap()).collect();
        to_sink.send(batch).unwrap();
        acked.recv().unwrap();
        if round == 0 {
            settled = footprint();
        }
    }
    drop(to_sink);
    sink.join().unwrap();
    assert_eq!(live(), 0);
    assert!(footprint() <= settled + CACHES, "{} bytes after {ROUNDS} rounds, {settled} after the first", footprint());
}

/// A block that another thread releases serves packets of its size there, and no others.
fn each_size_returns_to_its_own_kind() {
    for capacity in CAPACITIES {
        let sent = PktBuf::alloc(capacity).unwrap();
        let (address, memory) = (sent.as_ptr().addr(), sent.memory());
        let other = thread::spawn(move || {
            drop(sent);
            let held: Vec<PktBuf> = CAPACITIES.iter().map(|&size| PktBuf::alloc(size).unwrap()).collect();
            for (packet, size) in held.iter().zip(CAPACITIES) {
                assert_eq!(packet.as_ptr().addr() == address, size == capacity, "{capacity} served for {size}");
                assert_eq!(packet.memory() == memory, size == capacity);
            }
        });
        other.join().unwrap();
        assert_eq!(live(), 0);
    }
}

fn ended_threads_leave_nothing_behind() {
    // This thread's magazines are full from now on.
    drop(thread::spawn(many).join().unwrap());
    let mut before = 0;
    for round in 0..ROUNDS.min(50) {
        let held = thread::spawn(|| {
            drop(PktBuf::alloc(1514).unwrap());
            (0..10).map(|_| PktBuf::alloc(1514).unwrap()).collect::<Vec<_>>()
        })
        .join()
        .unwrap();
        assert_eq!(live(), 10, "what an ended thread allocated is still counted");
        drop(held);
        assert_eq!(live(), 0);
        if round == 0 {
            before = footprint();
        }
    }
    assert_eq!(footprint(), before, "the blocks of ended threads are used again");
}

/// More blocks than two magazines have, so that the depot gets the rest.
fn many() -> Vec<PktBuf> {
    (0..BATCH * 3).map(|_| PktBuf::alloc(1514).unwrap()).collect()
}

fn addresses(held: &[PktBuf]) -> HashSet<usize> {
    held.iter().map(|buf| buf.as_ptr().addr()).collect()
}

/// The depot keeps for a thread what it has lacked before, until the thread ends. Then another one has it, whatever its number.
fn shelves_of_ended_threads_are_had() {
    thread::spawn(|| drop((many(), many()))).join().unwrap();
    let before = footprint();
    let next = || {
        // This thread has the number of the ended one now.
        let _one = PktBuf::alloc(1514);
        thread::spawn(|| drop(many())).join().unwrap();
    };
    thread::spawn(next).join().unwrap();
    assert_eq!(footprint(), before, "the shelves of an ended thread are lost");
}

/// Two threads that need many blocks at different times do not exchange them: their processors have them in their caches.
fn each_thread_takes_its_own_blocks_again() {
    let turn = Arc::new(Barrier::new(2));
    let worker = |first: bool| {
        let turn = turn.clone();
        thread::spawn(move || {
            let mut had = Vec::new();
            for round in 0..6 {
                // One of them has its blocks while the other has none.
                for now in [first, !first] {
                    turn.wait();
                    if now {
                        let held = many();
                        if round >= 3 {
                            had.push(addresses(&held));
                        }
                    }
                }
            }
            had
        })
    };
    let [one, other] = [true, false].map(worker).map(|worker| worker.join().unwrap());
    for blocks in [&one, &other] {
        let all: HashSet<usize> = blocks.iter().flatten().copied().collect();
        assert!(all.len() <= BATCH * 3 + 2 * 64, "{} blocks by turns, of {} at a time", all.len(), BATCH * 3);
    }
    let both = one.iter().flatten().filter(|block| other.iter().any(|had| had.contains(block))).count();
    assert_eq!(both, 0, "blocks went from thread to thread");
}

/// A thread-local that is destroyed after the pool's own cache still releases its buffer.
fn late_destructors_may_release() {
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<PktBuf>> = const { std::cell::RefCell::new(Vec::new()) };
        static AGAIN: Reallocating = const { Reallocating };
    }
    struct Reallocating;
    impl Drop for Reallocating {
        fn drop(&mut self) {
            drop(PktBuf::alloc(100).unwrap());
        }
    }
    let mut before = 0;
    // More rounds than a slab has blocks: if each lost one, the pool would grow.
    for round in 0..300 {
        thread::spawn(|| {
            // Registered before the pool's cache is; the order of their destruction depends on the platform.
            AGAIN.with(|_| ());
            KEPT.with(|kept| kept.borrow_mut().push(PktBuf::alloc(100).unwrap()));
        })
        .join()
        .unwrap();
        thread::spawn(|| {
            drop(PktBuf::alloc(100).unwrap());
            KEPT.with(|kept| kept.borrow_mut().push(PktBuf::alloc(100).unwrap()));
            AGAIN.with(|_| ());
        })
        .join()
        .unwrap();
        assert_eq!(live(), 0);
        if round == 0 {
            before = footprint();
        }
    }
    assert_eq!(footprint(), before, "no block is lost with the cache of an ended thread");
}
