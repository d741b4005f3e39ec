//! A trace: per-thread rings of the last [`RING_RECORDS`] records, off by default.
//!
//! Switched off, [`record`] is one relaxed load and a branch. Switched on, a record is six stores into memory that only
//! the recording thread writes; nobody waits for anybody. [`collect`] may run at any time from any thread: each slot
//! carries a sequence word, so a record that is being overwritten while it is read is left out and never torn. The ring
//! of a thread that has ended is kept for [`collect`] and taken over by the next thread that starts to record, so
//! memory is bounded by the largest number of threads that ever recorded at once.
//!
//! Under the simulator all virtual processors share one operating-system thread and hence one ring; the record's own
//! words say which processor it was.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Time;

declare! {
    /// What a trace record is about; says what its two words mean.
    pub enum Event {
        FrameIn "A frame was taken from a device: queue, length."
        FrameOut "A frame was given to a device: queue, length."
        SegmentIn "A TCP segment entered its connection: flow hash, sequence number."
        SegmentOut "A TCP segment left its connection: flow hash, sequence number."
        StateChange "A connection changed state: flow hash, old state << 8 | new state."
        Drop "A packet was dropped: index of the reason, length."
        EventPosted "An event was posted: flow hash, cell."
        EventRun "An event was run: flow hash, cell."
        HandOff "An event was handed to another thread: flow hash, cell."
        QueueDrained "A queue was drained: cell, number of events."
        Park "A thread went to sleep: thread index, 0."
        Wake "A sleeping thread was woken: thread index of the sleeper, 0."
        LockTaken "A lock was taken: lock class, 1 if the first try failed."
        LockReleased "A lock was released: lock class, 0."
        TimerFired "A deadline was due: flow hash, lateness in nanoseconds."
        ArchitectureSwitched "The process architecture was changed: index of the old one, index of the new one."
        Mark "A mark set by a program that embeds the stack: its own two words."
    }
}

/// Records kept per thread.
pub const RING_RECORDS: usize = 4096;

/// One trace record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, by the caller's clock.
    pub at: Time,
    /// What happened.
    pub event: Event,
    /// Number of the ring, that is of the recording thread; dense from 0.
    pub ring: u32,
    /// First word, see [`Event`].
    pub a: u64,
    /// Second word, see [`Event`].
    pub b: u64,
}

/// One record and its sequence word: odd while the record is being written, 2 × (record number + 1) when complete.
#[derive(Default)]
struct Slot {
    sequence: AtomicU64,
    at: AtomicU64,
    event: AtomicU64,
    a: AtomicU64,
    b: AtomicU64,
}

struct Ring {
    slots: Box<[Slot]>,
    /// Records ever written; written by the ring's thread only.
    written: AtomicU64,
    in_use: AtomicBool,
}

static ENABLED: AtomicBool = AtomicBool::new(false);
static RINGS: Mutex<Vec<Arc<Ring>>> = Mutex::new(Vec::new());

/// Gives the ring back when its thread ends.
struct Lease(Arc<Ring>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.in_use.store(false, Release);
    }
}

thread_local! {
    static RING: OnceCell<Lease> = const { OnceCell::new() };
}

/// Switches tracing on or off for all threads; takes effect at each thread's next record.
pub fn set_enabled(on: bool) {
    ENABLED.store(on, Relaxed);
}

/// Whether tracing is on.
#[inline]
pub fn is_enabled() -> bool {
    ENABLED.load(Relaxed)
}

/// Records an event if tracing is on. The first record of a thread allocates its ring.
#[inline]
pub fn record(at: Time, event: Event, a: u64, b: u64) {
    if is_enabled() {
        record_enabled(at, event, a, b);
    }
}

#[cold]
fn record_enabled(at: Time, event: Event, a: u64, b: u64) {
    // A record from a destructor that runs after this thread's ring was given back has nowhere to go.
    let _ = RING.try_with(|ring| ring.get_or_init(|| Lease(acquire_ring())).0.push(at, event, a, b));
}

fn acquire_ring() -> Arc<Ring> {
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let free = |ring: &&Arc<Ring>| ring.in_use.compare_exchange(false, true, Acquire, Relaxed).is_ok();
    if let Some(ring) = rings.iter().find(free) {
        return Arc::clone(ring);
    }
    let slots = (0..RING_RECORDS).map(|_| Slot::default()).collect();
    let ring = Arc::new(Ring { slots, written: AtomicU64::new(0), in_use: AtomicBool::new(true) });
    rings.push(Arc::clone(&ring));
    ring
}

impl Ring {
    fn push(&self, at: Time, event: Event, a: u64, b: u64) {
        let number = self.written.load(Relaxed);
        let slot = &self.slots[number as usize % RING_RECORDS];
        slot.sequence.store(2 * number + 1, Relaxed);
        // A reader that sees one of the new words also sees the odd sequence word.
        fence(Release);
        slot.at.store(at.as_nanos(), Relaxed);
        slot.event.store(event.index() as u64, Relaxed);
        slot.a.store(a, Relaxed);
        slot.b.store(b, Relaxed);
        slot.sequence.store(2 * number + 2, Release);
        self.written.store(number + 1, Relaxed);
    }

    fn read(&self, ring: u32, slot: &Slot) -> Option<Record> {
        let before = slot.sequence.load(Acquire);
        if before == 0 || before % 2 == 1 {
            return None;
        }
        let record = Record {
            at: Time::from_nanos(slot.at.load(Relaxed)),
            event: *Event::ALL.get(slot.event.load(Relaxed) as usize)?,
            ring,
            a: slot.a.load(Relaxed),
            b: slot.b.load(Relaxed),
        };
        fence(Acquire);
        (slot.sequence.load(Relaxed) == before).then_some(record)
    }
}

/// The records of all rings, ordered by time; records of one ring with equal times stay in the order of recording.
pub fn collect() -> Vec<Record> {
    let rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut records = Vec::new();
    for (i, ring) in rings.iter().enumerate() {
        let oldest = ring.written.load(Relaxed) as usize % RING_RECORDS;
        let (newer, older) = ring.slots.split_at(oldest);
        records.extend(older.iter().chain(newer).filter_map(|slot| ring.read(i as u32, slot)));
    }
    records.sort_by_key(|r| r.at);
    records
}

/// Forgets all records. A record that a thread writes meanwhile may survive.
pub fn clear() {
    for ring in RINGS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        for slot in &ring.slots {
            slot.sequence.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because tracing is switched for the whole process.
    #[test]
    fn records_what_was_recorded_and_keeps_the_last() {
        record(Time::ZERO, Event::Mark, 1, 1);
        assert!(collect().is_empty(), "nothing is recorded while tracing is off");

        set_enabled(true);
        let extra = 10;
        for i in 0..(RING_RECORDS + extra) as u64 {
            record(Time::from_nanos(i), Event::SegmentIn, i, !i);
        }
        let records = collect();
        assert_eq!(records.len(), RING_RECORDS);
        for (r, i) in records.iter().zip(extra as u64..) {
            assert_eq!((r.at, r.event, r.a, r.b), (Time::from_nanos(i), Event::SegmentIn, i, !i));
        }

        clear();
        assert!(collect().is_empty());
        for i in 0..3 {
            std::thread::spawn(move || record(Time::from_nanos(i), Event::Park, i, 0)).join().unwrap();
        }
        let records = collect();
        assert_eq!(records.iter().map(|r| r.a).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(records[0].ring, records[2].ring, "the ring of an ended thread is taken over");

        torn_records_are_left_out();
        set_enabled(false);
        clear();
    }

    fn torn_records_are_left_out() {
        std::thread::scope(|s| {
            let writer = s.spawn(|| {
                for i in 0..200_000u64 {
                    record(Time::from_nanos(i), Event::FrameIn, i, i);
                }
            });
            while !writer.is_finished() {
                for r in collect().iter().filter(|r| r.event == Event::FrameIn) {
                    assert!(r.a == r.b && r.at.as_nanos() == r.a, "torn record {r:?}");
                }
            }
        });
    }
}
