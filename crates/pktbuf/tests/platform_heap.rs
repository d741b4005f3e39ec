//! The pool of a platform with threads that share one thread of the kernel, under shuttle's schedules: every thread has
//! its own magazines, waits for a depot are waits of the platform, and no block is lost. (`cargo test -p heddle-pktbuf
//! --features shuttle`)
#![cfg(feature = "shuttle")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pktbuf::{Caching, PktBuf, PlatformHeap, balance, in_use};
use sync::profile::{ProfileTable, ThreadCounters};
use sync::shuttle::Shuttle;
use sync::{LockClass, LockKind, Platform, ThreadClass};
use testbed::over::{Variant, Variation};

/// Shuttle's platform with a lock profile.
type Profiled = Variation<Shuttle, Profile>;

#[derive(Clone, Copy, Debug, Default)]
struct Profile;

static PROFILE: ProfileTable<Profiled> = ProfileTable::new();

impl Variant for Profile {
    fn lock_counters() -> Option<&'static ThreadCounters> {
        Some(PROFILE.slot(Profiled::thread_index()))
    }
}

type Heap = PlatformHeap<Profiled>;

/// One test at a time: memory in use and refusals concern the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `model` under a few hundred schedules, with a heap that its first thread makes and drops.
fn explore(model: impl Fn(&Heap) + Send + Sync + 'static) {
    let one = move || {
        let heap = Heap::new(LockKind::Blocking);
        heap.enter(|| model(&heap));
    };
    shuttle::check_random(one, 300);
}

fn buffer() -> PktBuf {
    PktBuf::alloc(100).expect("the pool has no limit here")
}

fn join(threads: Vec<<Profiled as Platform>::JoinHandle>) {
    threads.into_iter().for_each(|thread| Profiled::join(thread).expect("no panic"));
}

/// Only the magazine that a block was released to returns it again.
#[test]
fn each_thread_has_magazines_of_its_own() {
    let _alone = alone();
    explore(|_| {
        let mine = buffer();
        let address = mine.as_ptr().addr();
        drop(mine);
        let other = Profiled::spawn("other", None, ThreadClass::Application, move || {
            let held: Vec<PktBuf> = (0..3).map(|_| buffer()).collect();
            assert!(held.iter().all(|buf| buf.as_ptr().addr() != address), "the magazine is shared");
        });
        join(vec![other]);
        assert_eq!(buffer().as_ptr().addr(), address, "the block has left the magazine");
    });
}

/// Threads that contend for a depot wait as for any lock of the platform, and the profile shows it.
#[test]
fn contention_on_the_depot_is_seen() {
    let _alone = alone();
    PROFILE.reset();
    explore(|_| {
        let worker = |_| {
            Profiled::spawn("worker", None, ThreadClass::Application, || {
                drop((0..70).map(|_| buffer()).collect::<Vec<_>>())
            })
        };
        join((0..3).map(worker).collect());
    });
    let profile = PROFILE.snapshot()[LockClass::BufferPool.index()];
    // Each of three workers fetches a magazine twice in each of 300 runs.
    assert!(profile.acquired >= 3 * 2 * 300, "{profile:?}");
    assert!(profile.first_try_failed > 0, "nobody ever waited: {profile:?}");
}

/// Blocks move from thread to thread through the depot; none is in two places, and all are free in the end.
#[test]
fn the_books_balance() {
    let _alone = alone();
    let (live, used) = (balance(), in_use());
    explore(move |_| {
        let before = balance();
        let held: Vec<PktBuf> = (0..70).map(|_| buffer()).collect();
        let addresses: HashSet<usize> = held.iter().map(|buf| buf.as_ptr().addr()).collect();
        assert_eq!((addresses.len(), balance() - before), (70, 70));
        let held = Arc::new(Mutex::new(held));
        let worker = |_| {
            let held = held.clone();
            Profiled::spawn("worker", None, ThreadClass::Application, move || {
                for _ in 0..35 {
                    let one = held.lock().expect("no panic").pop();
                    drop((one, buffer()));
                }
            })
        };
        join((0..2).map(worker).collect());
        assert_eq!(balance(), before);
    });
    assert_eq!(balance(), live);
    assert!(in_use() <= used, "a heap that has gone kept {} bytes", in_use() - used);
}

/// With global caches what one thread releases the next one allocates, and no thread keeps a block.
#[test]
fn global_caches_are_shared() {
    let _alone = alone();
    PROFILE.reset();
    let one = || {
        let heap = Heap::with_caching(LockKind::Blocking, Caching::Global);
        heap.enter(|| {
            let mine = buffer();
            let address = mine.as_ptr().addr();
            drop(mine);
            let other = Profiled::spawn("other", None, ThreadClass::Application, move || {
                assert_eq!(buffer().as_ptr().addr(), address, "the block was kept");
            });
            join(vec![other]);
        });
    };
    shuttle::check_random(one, 100);
    // Two allocations and two releases; the first has no block and makes a slab's worth.
    assert_eq!(PROFILE.snapshot()[LockClass::BufferPool.index()].acquired, 100 * 5);
}

/// The tests of refused allocations work on any platform.
#[test]
fn allocations_can_be_refused() {
    let _alone = alone();
    explore(|_| {
        pktbuf::refuse(1, 2);
        let seen: Vec<bool> = (0..4).map(|_| PktBuf::alloc(100).is_some()).collect();
        assert_eq!((seen, pktbuf::refusals_left()), (vec![true, false, false, true], 0));
    });
}
