//! The fault `connp-l:G+lazy-broadcast`: a timer that takes the lock of every group.
//!
//! In the kernel of Willmann et al. a timer told every group of the changes among half-open connections, whether or not the
//! group had any connection (section 5.1), so that each time every group's lock was taken. Here a group is told how many
//! half-open connections all groups have. The paper gives neither the contents of the broadcast nor its period. Nothing here
//! uses the contents: only the cost of the locks is reproduced.

use std::sync::Arc;
use std::time::Duration;

use observe::Time;
use sync::{Atomic, Ordering, Platform};

/// From the first change among half-open connections to the broadcast: the period of BSD's slow timer.
const LAZINESS: Duration = Duration::from_millis(500);

/// The groups of `connp-l`, and whether they have the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    /// The number of groups.
    pub count: u16,
    /// See the head of the file.
    pub lazy_broadcast: bool,
}

impl Groups {
    /// So many groups, and no fault.
    pub const fn new(count: u16) -> Groups {
        Groups { count, lazy_broadcast: false }
    }
}

/// The state of the broadcast that all groups share.
pub(super) struct Broadcast<P: Platform> {
    /// Half-open connections of all groups.
    half_open: P::AtomicUsize,
    /// A group has taken on the next broadcast.
    is_due: P::AtomicBool,
}

/// A group's part in the broadcast. Changed under the group's lock.
pub(super) struct BroadcastPart<P: Platform> {
    of: Arc<Broadcast<P>>,
    /// Half-open connections of this group, as the others will be told.
    own: P::AtomicUsize,
    /// Those of all groups, as this one was told.
    all: P::AtomicUsize,
    /// When this group tells all, in nanoseconds; `u64::MAX`: another one will, or nothing has changed.
    tells: P::AtomicU64,
}

impl<P: Platform> Broadcast<P> {
    /// For the groups of one stack.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Broadcast { half_open: P::AtomicUsize::new(0), is_due: P::AtomicBool::new(false) })
    }

    /// The part of one group.
    pub(super) fn part(self: &Arc<Self>) -> Box<BroadcastPart<P>> {
        Box::new(BroadcastPart {
            of: self.clone(),
            own: P::AtomicUsize::new(0),
            all: P::AtomicUsize::new(0),
            tells: P::AtomicU64::new(u64::MAX),
        })
    }
}

impl<P: Platform> BroadcastPart<P> {
    /// Notes the number of half-open connections of this group. Returns the time of its broadcast. The group's lock is held.
    #[cold]
    pub(super) fn note(&self, half_open: usize, now: impl FnOnce() -> Time) -> u64 {
        let before = self.own.swap(half_open, Ordering::Relaxed);
        if before != half_open {
            // Wrapping: fewer than before.
            self.of.half_open.fetch_add(half_open.wrapping_sub(before), Ordering::Relaxed);
            if !self.of.is_due.swap(true, Ordering::AcqRel) {
                self.tells.store((now() + LAZINESS).as_nanos(), Ordering::Relaxed);
            }
        }
        self.tells.load(Ordering::Relaxed)
    }

    /// Whether this group's broadcast is due and the calling thread has to make it.
    #[cold]
    pub(super) fn takes_the_turn(&self, now: Time) -> bool {
        let due = self.tells.load(Ordering::Relaxed);
        let taken = due <= now.as_nanos()
            && self.tells.compare_exchange(due, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if taken {
            // A change from here on has a broadcast of its own.
            self.of.is_due.store(false, Ordering::Release);
        }
        taken
    }

    /// This group receives the broadcast. Its lock is held.
    pub(super) fn hear(&self) {
        self.all.store(self.of.half_open.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
