//! Threads that give a cell work while a receive thread looks for some. See `arch/due_cells.rs`.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use observe::Time;
use stack::arch::due_cells::DueCells;
use sync::{Atomic, Ordering, Platform, ThreadClass};

/// The deadline of the first cell, the time, and the deadline that the second cell gets, in nanoseconds.
const EXPIRED: u64 = 1;
const NOW: Time = Time::from_nanos(5);
const LATER: u64 = 9;

/// `lookers` receive threads find a timer expired and look at all cells, while another thread publishes the deadline of a
/// cell: it is not forgotten, nor is a timer that ran a reason to look again.
pub fn deadline_while_looking<P: Platform>(lookers: usize) {
    let due = Arc::new(DueCells::<P>::new(0, 2));
    let words: Arc<[P::AtomicU64; 2]> = Arc::new([u64::MAX; 2].map(P::AtomicU64::new));
    due.publish(&words[0], EXPIRED);
    let looks: Vec<_> = (0..lookers)
        .map(|_| {
            let (due, words) = (due.clone(), words.clone());
            P::spawn("looker", None, ThreadClass::Receive, move || {
                if due.has_expired(NOW) {
                    let deadline = |cell: usize| (words[cell].load(Ordering::Relaxed), true);
                    due.look(2, NOW, deadline, |cell| due.publish(&words[cell], u64::MAX));
                }
            })
        })
        .collect();
    due.publish(&words[1], LATER);
    looks.into_iter().for_each(|look| P::join(look).expect("the thread ends well"));
    assert!(due.has_expired(Time::from_nanos(LATER)), "the deadline is forgotten");
    assert!(!due.has_expired(NOW), "the timer that ran still counts");
}

/// A receive thread looks at its marked cells while another thread sends a message to one: the message is run then or in the next
/// tick.
pub fn message_while_taking<P: Platform>() {
    let due = Arc::new(DueCells::<P>::new(1, 70));
    let mail = Arc::new(P::AtomicUsize::new(0));
    let run = {
        let mail = mail.clone();
        move |cell: usize| {
            assert_eq!(cell, 69);
            let pending = mail.load(Ordering::Relaxed);
            mail.store(0, Ordering::Relaxed);
            pending
        }
    };
    let receiver = {
        let (due, mut ran, run) = (due.clone(), 0, run.clone());
        let total = Arc::new(P::AtomicUsize::new(0));
        let result = total.clone();
        let handle = P::spawn("receiver", None, ThreadClass::Receive, move || {
            due.take(0, |cell| {
                ran += run(cell);
                false
            });
            result.store(ran, Ordering::Relaxed);
        });
        (handle, total)
    };
    mail.store(1, Ordering::Relaxed);
    due.mark(0, 69);
    P::join(receiver.0).expect("the thread ends well");
    let mut ran = receiver.1.load(Ordering::Relaxed);
    due.take(0, |cell| {
        ran += run(cell);
        false
    });
    assert_eq!(ran, 1, "the message is forgotten");
}
