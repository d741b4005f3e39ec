//! Bounded queues between threads: [`spsc`] for one producer and one consumer, [`Mpsc`] for many producers.
//!
//! Both hold a power of two of elements, keep producer's and consumer's words on separate cache lines, never allocate
//! after construction, return a refused value ([`Full`]), and drop remaining values.

mod mpsc;
pub mod spsc;

pub use mpsc::{Consuming, Mpsc, MpscReceiver, MpscSender};

use std::fmt;

/// The ring has no room; contains the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring is full; let its consumer run, or make the ring larger")
    }
}

impl<T> std::error::Error for Full<T> {}

/// The number of slots for a ring asked to hold `capacity` elements.
///
/// # Panics
/// If `capacity` is 0, or too large to be rounded up to a power of two.
fn slots(capacity: usize) -> usize {
    assert!(capacity > 0, "a ring of capacity 0 passes nothing; ask for at least 1");
    match capacity.checked_next_power_of_two() {
        Some(slots) => slots,
        None => panic!("a ring of capacity {capacity} is larger than memory"),
    }
}
