//! Values replaced under readers, on the real machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread;

use sync::{Qsbr, Rcu};

const CHANGES: usize = if cfg!(miri) { 20 } else { 2_000 };

/// Two words that agree while the value lives.
struct Pair(usize, usize, Arc<AtomicUsize>);

impl Drop for Pair {
    fn drop(&mut self) {
        self.1 = usize::MAX;
        self.2.fetch_add(1, Relaxed);
    }
}

#[test]
fn readers_never_see_a_freed_value_and_every_value_is_freed() {
    let (freed, done) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let domain: Arc<Qsbr> = Qsbr::new();
    let rcu: Rcu<Pair> = Rcu::new(&domain, Pair(0, 0, freed.clone()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut reader, mut newest) = (domain.reader(), 0);
                while !done.load(Relaxed) {
                    let pair = rcu.read(&reader);
                    assert!(pair.0 == pair.1 && pair.0 >= newest, "{} {} after {newest}", pair.0, pair.1);
                    newest = pair.0;
                    reader.quiescent();
                    if newest % 16 == 0 {
                        reader.offline(thread::yield_now);
                    }
                }
            });
        }
        for value in 1..=CHANGES {
            assert_eq!(rcu.replace(Pair(value, value, freed.clone())).0, value - 1);
        }
        done.store(true, Relaxed);
    });
    drop(rcu);
    assert_eq!(freed.load(Relaxed), CHANGES + 1);
}

#[test]
#[should_panic(expected = "its own read")]
fn a_writer_that_reads_is_told_so() {
    let domain: Arc<Qsbr> = Qsbr::new();
    let _reader = domain.reader();
    domain.synchronize();
}

#[test]
fn a_reader_that_is_away_holds_up_nobody() {
    let domain: Arc<Qsbr> = Qsbr::new();
    let rcu: Rcu<u32> = Rcu::new(&domain, 1);
    let mut reader = domain.reader();
    assert_eq!(reader.offline(|| rcu.replace(2)), 1);
    assert_eq!(*rcu.read(&reader), 2);
}

#[test]
#[should_panic(expected = "another Qsbr")]
fn a_reader_of_another_domain_is_refused() {
    let rcu: Rcu<u32> = Rcu::new(&Qsbr::new(), 1);
    rcu.read(&Qsbr::new().reader());
}
