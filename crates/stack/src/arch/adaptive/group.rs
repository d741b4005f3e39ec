//! One flow group: its place, and its counts.

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, Lock, Ordering, Platform};

use super::decisions::{GroupDecision, GroupPlace};
use super::load::ReceiveThreads;
use super::number::{NumberWindow, SOME};
use super::policy::{Book, GroupCounts, Lengths, WindowEnd};
use super::queues::{QueueClaims, QueueUse};
use crate::alarm::Alarms;
use crate::arch::due_cells::DueCells;
use crate::arch::polled::{CellUse, Domain};
use crate::batch_checks::REBUILDS;
use crate::place::Cell;
use crate::shared::Shared;

/// The word of a group that is shared.
const SHARED: usize = usize::MAX;

/// One flow group.
pub(super) struct FlowGroup<P: Platform> {
    shared: Arc<Shared<P>>,
    index: usize,
    lengths: Lengths,
    /// The number of the receive thread that is its home, or [`SHARED`].
    home: P::AtomicUsize,
    /// In nanoseconds; `u64::MAX` when nothing is armed. Written by the owner, read by all.
    deadline: P::AtomicU64,
    due: Arc<DueCells<P>>,
    book: Arc<Lock<Book, P>>,
}

impl<P: Platform> FlowGroup<P> {
    /// A shared group; or one that is at home where its flows arrive.
    pub(super) fn new(
        shared: Arc<Shared<P>>,
        index: usize,
        (lengths, at_home): (Lengths, bool),
        due: Arc<DueCells<P>>,
        book: Arc<Lock<Book, P>>,
    ) -> Self {
        let (home, deadline) = (P::AtomicUsize::new(SHARED), P::AtomicU64::new(u64::MAX));
        let group = FlowGroup { shared, index, lengths, home, deadline, due, book };
        if at_home {
            group.home.store(group.arrives_at(), Ordering::Relaxed);
            group.due.mark(group.arrives_at(), index);
        }
        group
    }

    fn alarms(&self) -> &Alarms<P> {
        self.shared.links().alarms()
    }

    /// The number of the receive thread that serves the queues by which the flows of the group arrive, if all devices have a queue
    /// for each thread.
    fn arrives_at(&self) -> usize {
        self.index % self.alarms().threads().max(1)
    }

    /// Whether the group, at `place`, is at home where its flows arrive, and the calling thread is there.
    fn is_at_home(&self, place: GroupPlace) -> bool {
        let is_here = |thread| self.alarms().is_run_here(thread);
        is_here(self.arrives_at()) && matches!(place, GroupPlace::Home(home) if is_here(home))
    }

    /// A window ends, of a group that is `at_home` where its flows arrive, or not. Returns whether the calling thread is to claim its
    /// transmit queues: all groups that arrive at it are at home there.
    fn ends_alone(&self, at_home: bool, now: Time, book: &mut Book) -> bool {
        let (links, thread) = (self.shared.links(), self.arrives_at());
        let holds = || links.has_claimed_served(thread);
        links.flows_leave_where_they_arrive() && book.queues[thread].window(at_home, self.lengths.alone, now, holds)
    }

    #[cold]
    fn end_window(&self, counts: &mut GroupCounts) {
        let place = match self.home.load(Ordering::Relaxed) {
            SHARED => GroupPlace::Shared,
            home => GroupPlace::Home(home),
        };
        let (now, caller, known) = (self.shared.clock().now(), P::thread_index(), self.alarms());
        let end = WindowEnd { group: self.index, place, now, caller, here: known.here(), known };
        let mut book = self.book.lock();
        let is_over = counts.has_begun();
        let next = counts.end(&self.lengths, &end, &mut book);
        let at_home = next.is_none() && self.is_at_home(place);
        let claims = self.ends_alone(at_home, now, &mut book);
        let shared = next.is_none() && place == GroupPlace::Shared;
        let elsewhere = next.unwrap_or(place) != GroupPlace::Home(self.arrives_at());
        let number = NumberWindow { group: self.index, at_home, shared, elsewhere, now };
        let rebuilds = is_over && book.ends(&number);
        drop(book);
        if rebuilds {
            self.shared.links().checks().ask_for(REBUILDS);
        }
        if claims {
            self.shared.links().claim_served_until(self.arrives_at(), self.lengths.mail);
        }
        if let Some(place) = next {
            let home = if let GroupPlace::Home(home) = place { home } else { SHARED };
            let before = self.home.swap(home, Ordering::Relaxed);
            // The one gives it up, and the other takes it over, in its next tick.
            [before, home].into_iter().filter(|home| *home != SHARED).for_each(|home| self.due.mark(home, self.index));
        }
    }
}

impl<P: Platform> ReceiveThreads for Alarms<P> {
    fn sleeps(&self, thread: usize) -> bool {
        Alarms::sleeps(self, thread)
    }

    fn slept(&self, thread: usize) -> u64 {
        self.naps(thread)
    }
}

impl<P: Platform> Domain<P> for FlowGroup<P> {
    const WHOLE: bool = false;
    const SHARED: bool = true;
    const CELLS_OF_A_THREAD: u32 = SOME as u32;
    const BUDGET: usize = 256;
    const TURNS: u32 = 64;
    type Counts = GroupCounts;

    fn is_polled_here(&self) -> bool {
        let home = self.home.load(Ordering::Relaxed);
        home != SHARED && self.alarms().is_run_here(home)
    }

    /// The queues by which its flows leave are claimed later, where a window ends.
    fn claim(&self) {}

    fn release_claims(&self) {
        let (links, thread) = (self.shared.links(), self.arrives_at());
        if links.has_claimed_served(thread) || self.alarms().is_run_here(thread) {
            self.book.lock().queues[thread].leaves();
        }
        links.release_served(thread);
    }

    fn wake(&self) {
        let home = self.home.load(Ordering::Relaxed);
        if home != SHARED {
            self.due.mark(home, self.index);
            self.alarms().due_at(home, 0);
        }
    }

    fn leave(&self, nanos: u64) {
        if nanos == 0 {
            // Until a thread has been in the group again.
            self.due.publish(&self.deadline, 0);
        }
        self.alarms().due(nanos);
    }

    #[inline(always)]
    fn enters(&self, how: CellUse) {
        let what = match how {
            CellUse::Visit(_) => "owns the flow's group for this event",
            CellUse::Owner(_) => "has the flow's group at home",
            CellUse::Message { .. } => "runs what was queued in the flow's group",
            CellUse::Look => return,
        };
        sync::walk::note(file!(), what);
    }

    #[inline(always)]
    fn changed(&self, cell: &Cell<P>) {
        self.due.publish(&self.deadline, cell.deadline_nanos());
    }

    #[inline(always)]
    fn used(&self, counts: &mut GroupCounts, how: CellUse) {
        if counts.add(how, P::known_thread_index()) {
            self.end_window(counts);
        }
    }

    fn due(&self) -> Option<&DueCells<P>> {
        Some(&self.due)
    }

    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    fn decisions(&self) -> Vec<GroupDecision> {
        self.book.lock().log.all()
    }

    fn book(&self) -> Option<&Arc<Lock<Book, P>>> {
        Some(&self.book)
    }

    fn queue_claims(&self) -> Vec<QueueClaims> {
        self.book.lock().queues.iter().map(QueueUse::claims).filter(|claims| claims.made > 0).collect()
    }
}
