//! The memory of an earlier peak of packet buffers is returned to the system, and only memory that was not needed
//! since. In a process of its own, because the pool is the process's.

use std::sync::{Mutex, PoisonError};

use pktbuf::{PktBuf, footprint, live, trim};

const MANY: usize = 400;

/// One test at a time: they count what the process has.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `test` alone, on a thread of its own: a thread gives its buffers back when it has ended, which is later than
/// the end of its test.
fn alone(test: fn()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(panic) = std::thread::spawn(test).join() {
        std::panic::resume_unwind(panic);
    }
}

fn peak(capacity: usize) -> Vec<PktBuf> {
    fill(capacity, MANY)
}

fn fill(capacity: usize, count: usize) -> Vec<PktBuf> {
    (0..count).map(|n| PktBuf::from_slice(&vec![n as u8; capacity]).expect("a buffer")).collect()
}

fn intact(buffers: &[PktBuf], every: usize, capacity: usize) -> bool {
    buffers
        .iter()
        .enumerate()
        .all(|(n, buffer)| buffer.len() == capacity && buffer.iter().all(|b| *b == (n * every) as u8))
}

/// The memory that remains: for each class the slabs that are kept, and those that other threads of the test program
/// have begun.
const LEFT: usize = 4 << 20;

#[test]
fn memory_is_given_back_after_a_peak() {
    alone(given_back_after_a_peak);
}

fn given_back_after_a_peak() {
    for capacity in [100, 1000, 10_000, 60_000] {
        let mut held = peak(capacity);
        let full = footprint();
        assert!(full >= MANY * capacity);
        trim();
        // Every eighth stays: its slab, of 64, 64, 16 or 4 blocks, cannot be freed if one of them is in it.
        let mut number = 0;
        held.retain(|_| {
            number += 1;
            number % 8 == 1
        });
        assert_eq!(trim(), 0, "all were needed since the last time");
        trim();
        assert!(intact(&held, 8, capacity), "{capacity}");
        let more = fill(capacity, MANY - held.len());
        assert!(footprint() <= full, "what is free is used first");
        drop((held, more));
        trim();
        let given_back = trim();
        assert!(given_back > 0 && trim() == 0 && live() == 0);
        assert!(footprint() <= LEFT, "{} of {full} bytes", footprint());
        let again = peak(capacity);
        assert!(intact(&again, 1, capacity));
        drop(again);
        trim();
        trim();
    }
}

/// Threads come and go with buffers, and pass them on, while another gives memory back.
#[test]
fn memory_is_given_back_while_others_allocate() {
    alone(given_back_while_others_allocate);
}

fn given_back_while_others_allocate() {
    let rounds = if cfg!(miri) { 2 } else { 200 };
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel::<Vec<PktBuf>>();
        let mut threads = Vec::new();
        for capacity in [100, 700, 9_000, 50_000] {
            let sender = sender.clone();
            threads.push(scope.spawn(move || {
                for round in 0..rounds {
                    let buffers = (0..50).map(|n| PktBuf::from_slice(&vec![n as u8; capacity + round]).expect("one"));
                    sender.send(buffers.collect()).expect("it is received");
                }
            }));
        }
        drop(sender);
        threads.push(scope.spawn(move || {
            for buffers in receiver {
                let capacity = buffers[0].len();
                assert!(intact(&buffers, 1, capacity));
                drop(buffers);
                trim();
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}
