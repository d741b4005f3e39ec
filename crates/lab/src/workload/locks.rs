//! The time that a contender's locks take.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use heddle::LockKind;
use sync::{Lock, LockClass, Real};

use super::Bench;
use crate::calibrate::Cost;
use crate::sampling::{Contender, Slice};

impl Bench {
    /// A slice in which waits for locks, and the time that they are held, are measured. Its throughput is not that of a slice
    /// without: two readings of the clock cost several times the lock.
    ///
    /// # Errors
    /// As [`Contender::run_slice`].
    pub fn run_timed_slice(&mut self, duration: Duration) -> io::Result<Slice> {
        sync::profile::set_timed(true);
        let slice = self.run_slice(duration);
        sync::profile::set_timed(false);
        slice
    }
}

/// Nanoseconds to acquire and release a lock of this kind that no other thread wants.
pub fn free_lock_ns(kind: LockKind) -> f64 {
    const BATCH: u32 = 1000;
    let lock = Lock::<u64, Real>::new(kind, LockClass::Control, 0);
    Cost::measure(50, BATCH, || (0..BATCH).for_each(|_| *black_box(&lock).lock() += 1)).nanos
}

#[cfg(test)]
mod tests {
    use super::super::Params;
    use super::*;

    /// Under one lock for everything, which every step of either end takes.
    #[test]
    fn a_timed_slice_has_the_times_of_locks() {
        let params = Params { connections: 2, threads: 1, ..Params::new("giant".parse().unwrap()) };
        let slice = Bench::open(&params).unwrap().run_timed_slice(Duration::from_millis(20)).unwrap();
        let taken: Vec<_> = slice.exact.locks.iter().filter(|lock| lock.acquired > 0).collect();
        assert!(!taken.is_empty() && taken.iter().all(|lock| lock.wait_ns.is_some()), "{taken:?}");
        assert!(taken.iter().any(|lock| lock.hold_ns > Some(0)), "{taken:?}");
    }

    #[test]
    fn a_free_lock_takes_time() {
        let took = free_lock_ns(LockKind::default());
        assert!(took > 0.0 && took.is_finite(), "{took}");
    }
}
