//! A receive thread that is about to sleep, and callers that announce earlier work. See `alarm.rs`.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use dev::Wake;
use observe::Time;
use stack::alarm::Alarms;
use sync::{Atomic, Ordering, Parker, Platform, ThreadClass};

/// When the work is due, in nanoseconds.
const DUE: u64 = 5;

/// Wakes a thread that sleeps.
struct Sleeper<P: Platform>(Parker<P>);

impl<P: Platform> Wake for Sleeper<P> {
    fn wake(&self) {
        self.0.unpark();
    }
}

/// The thread that the caller notifies.
#[derive(Clone, Copy)]
pub enum Calls {
    /// Any thread that can do the work.
    Any,
    /// The only thread that can.
    One,
}

/// `threads` receive threads compute how long they may sleep while a caller announces work: not all of them sleep past
/// it, nor does a thread that is woken by its number. A sleep here ends only by a wake-up, so a lost wake-up is a
/// deadlock.
pub fn due_while_falling_asleep<P: Platform>(threads: usize, calls: Calls) {
    let alarms = Arc::new(Alarms::<P>::new(threads));
    let deadline = Arc::new(P::AtomicU64::new(u64::MAX));
    let seen = Arc::new(Parker::<P>::new());
    let sleepers: Vec<_> = (0..threads)
        .map(|thread| {
            let sleeper = Arc::new(Sleeper::<P>(Parker::new()));
            alarms.add_wakers(thread, std::iter::once(sleeper.clone() as Arc<dyn Wake>));
            let (alarms, deadline, seen) = (alarms.clone(), deadline.clone(), seen.clone());
            let sleep = sleeper.clone();
            let handle = P::spawn("sleeper", None, ThreadClass::Receive, move || {
                let earliest = || match deadline.load(Ordering::Relaxed) {
                    u64::MAX => Time::MAX,
                    nanos => Time::from_nanos(nanos),
                };
                if alarms.park(thread, earliest) == Time::MAX {
                    sleep.0.park(None);
                    alarms.unpark(thread);
                }
                if deadline.load(Ordering::Relaxed) == DUE {
                    seen.unpark();
                }
            });
            (sleeper, handle)
        })
        .collect();
    deadline.store(DUE, Ordering::Relaxed);
    match calls {
        Calls::Any => alarms.due(DUE),
        Calls::One => alarms.due_at(0, DUE),
    }
    // The thread that was called, or that checked in time, has seen the work.
    seen.park(None);
    // The others may stay asleep.
    alarms.wake_all();
    for (sleeper, handle) in sleepers {
        sleeper.wake();
        P::join(handle).expect("the sleeper ends well");
    }
}
