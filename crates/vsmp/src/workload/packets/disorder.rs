//! The order in which packets reach the application, and the turnstile of its tickets.

use std::cmp::Ordering::Greater;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dev::peer::pattern;
use sync::{Atomic, Ordering, Platform};

use super::PERIOD;

/// Classes of distances: 1, 2, 3 to 4, 5 to 8, and so on.
pub const DISTANCES: usize = 12;

/// Pieces of data that reached the application, and how many of them did so after a later one. A piece is a packet, except that TCP may
/// put the data of packets of up to 1024 bytes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disorder {
    /// Pieces.
    pub packets: u64,
    /// Those that arrived after a packet that follows them in the stream.
    pub inversions: u64,
    /// These by their distance from the furthest packet, in packets: 1, 2, 3 to 4, 5 to 8, and so on.
    pub distances: [u64; DISTANCES],
}

impl Disorder {
    pub(super) fn and(&self, other: &Disorder) -> Disorder {
        self.with(other, |a, b| a + b)
    }

    pub(super) fn since(&self, before: &Disorder) -> Disorder {
        self.with(before, |now, then| now - then)
    }

    fn with(&self, other: &Disorder, of: impl Fn(u64, u64) -> u64) -> Disorder {
        Disorder {
            packets: of(self.packets, other.packets),
            inversions: of(self.inversions, other.inversions),
            distances: std::array::from_fn(|at| of(self.distances[at], other.distances[at])),
        }
    }
}

/// One connection's packets at the application.
pub(super) struct Arrivals<P: Platform> {
    payload: usize,
    seen: Mutex<Seen>,
    /// The ticket that has its turn, plus 2^32; 0 before the first. A word of the machine: threads wait for it.
    turn: P::AtomicU64,
    /// Bytes that have arrived, and those of them that are not what was sent.
    taken: AtomicU64,
    wrong: AtomicU64,
}

#[derive(Default)]
struct Seen {
    disorder: Disorder,
    /// The ticket of a beginning of a period, and that of the packet that is furthest in the stream.
    base: Option<u32>,
    furthest: u32,
}

/// The number of bytes that differ from those at this place of the stream.
pub(super) fn differing(data: &[u8], at: u64) -> u64 {
    let should = pattern(at, data.len());
    if data == should {
        return 0;
    }
    data.iter().zip(should).filter(|(is, should)| is != should).count() as u64
}

/// A ticket as it is in the word.
fn word(ticket: u32) -> u64 {
    1 << 32 | u64::from(ticket)
}

impl<P: Platform> Arrivals<P> {
    pub(super) fn new(payload: usize) -> Arrivals<P> {
        Arrivals {
            payload,
            seen: Mutex::default(),
            turn: P::AtomicU64::new(0),
            taken: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
        }
    }

    /// One thread of the kernel runs a virtual machine, and none can switch while it has this: never contended there.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a ticket. The `first` of the stream need not wait.
    pub(super) fn wait_for(&self, ticket: u32, first: bool) {
        let mut spins = 0;
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn == word(ticket) || turn == 0 && first {
                return;
            }
            P::relax(spins);
            spins = spins.saturating_add(1);
        }
    }

    /// The turn of the next ticket.
    pub(super) fn pass(&self, next: u32) {
        self.turn.store(word(next), Ordering::Release);
    }

    /// A packet has reached the application, in one piece or several.
    pub(super) fn note<'a>(&self, ticket: u32, data: impl Iterator<Item = &'a [u8]> + Clone) {
        let first = data.clone().flatten().next();
        let base = self.order(ticket, first.map_or(0, |byte| u32::from(*byte)));
        let mut at = i64::from(ticket.wrapping_sub(base) as i32).rem_euclid(PERIOD as i64) as u64;
        let (mut taken, mut wrong) = (0, 0);
        for piece in data {
            (taken, wrong) = (taken + piece.len() as u64, wrong + differing(piece, at));
            at += piece.len() as u64;
        }
        self.taken.fetch_add(taken, Relaxed);
        self.wrong.fetch_add(wrong, Relaxed);
    }

    /// Counts a packet in its order. Its first byte is `phase`. Returns the ticket of a beginning of a period.
    fn order(&self, ticket: u32, phase: u32) -> u32 {
        let mut seen = self.seen();
        seen.disorder.packets += 1;
        let behind = seen.furthest.wrapping_sub(ticket) as i32;
        if seen.disorder.packets > 1 && behind.cmp(&0) == Greater {
            let distance = (behind as usize).div_ceil(self.payload);
            let class = (distance.next_power_of_two().trailing_zeros() as usize).min(DISTANCES - 1);
            seen.disorder.inversions += 1;
            seen.disorder.distances[class] += 1;
        } else {
            seen.furthest = ticket;
        }
        *seen.base.get_or_insert(ticket.wrapping_sub(phase))
    }

    pub(super) fn disorder(&self) -> Disorder {
        self.seen().disorder
    }

    /// Bytes that have reached the application.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    pub(super) fn wrong(&self) -> u64 {
        self.wrong.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use sync::ThreadClass;

    use super::*;
    use crate::workload::nap;
    use crate::{Costs, Machine, Vsmp};

    /// Packets of one byte: TCP has put 251 of them together, so the data of the second ticket begins like the stream.
    #[test]
    fn only_the_first_of_the_stream_need_not_wait() {
        let (order, _) = Machine::new(2, Costs::opteron_275()).run(|| {
            let (arrivals, order) = (Arc::new(Arrivals::<Vsmp>::new(1)), Arc::new(Mutex::new(Vec::new())));
            let (later, seen) = (arrivals.clone(), order.clone());
            let thread = Vsmp::spawn("later", Some(1), ThreadClass::Worker, move || {
                later.wait_for(1251, false);
                seen.lock().unwrap().push(1251);
            });
            nap::<Vsmp>(Duration::from_micros(200));
            arrivals.wait_for(1000, true);
            order.lock().unwrap().push(1000);
            arrivals.pass(1251);
            Vsmp::join(thread).unwrap();
            order.lock().unwrap().clone()
        });
        assert_eq!(order, [1000, 1251]);
    }
}
