//! The path MTUs that routers have reported.

use std::net::IpAddr;

use ip::path_mtu::Estimate;
use ip::{PathMtuAccess, PathMtuTable};
use observe::Time;
use sync::{Atomic, ClaimLock, LockClass, LockKind, Ordering, Platform};

/// The table of path MTUs, as all threads share it. Changed by a reference to it, like a lock.
pub(crate) struct SharedPathMtus<P: Platform> {
    table: ClaimLock<PathMtuTable, P>,
    /// The table is not empty. Nearly always false: a connection is then opened without a look into it.
    any: P::AtomicBool,
}

impl<P: Platform> Default for SharedPathMtus<P> {
    /// No path is known.
    fn default() -> Self {
        let table = ClaimLock::new(LockKind::Blocking, LockClass::Neighbours, PathMtuTable::new());
        SharedPathMtus { table, any: P::AtomicBool::new(false) }
    }
}

impl<P: Platform> SharedPathMtus<P> {
    /// The calling thread uses the table without its lock from now on.
    pub(crate) fn claim(&self) {
        self.table.claim();
    }

    /// Ends the calling thread's claim, if it has one.
    pub(crate) fn release_claim(&self) {
        self.table.release_claim();
    }

    /// Whether any path MTU is known.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // Relaxed: a thread that does not see a report yet opens as before it. What comes after the report, in this thread
        // or by any hand-over, sees it.
        self.any.load(Ordering::Relaxed)
    }

    #[cold]
    fn change<R>(&self, change: impl FnOnce(&mut PathMtuTable) -> R) -> R {
        let mut table = self.table.hold();
        let result = change(&mut table);
        self.any.store(!table.is_empty(), Ordering::Relaxed);
        result
    }
}

impl<P: Platform> PathMtuAccess for &SharedPathMtus<P> {
    #[inline]
    fn reported(&self, destination: IpAddr, now: Time) -> Option<Estimate> {
        if self.any() { self.table.hold().reported(destination, now) } else { None }
    }

    fn update(&mut self, destination: IpAddr, estimate: Estimate, link: usize, now: Time) -> bool {
        self.change(|table| table.update(destination, estimate, link, now))
    }

    fn timeouts(&mut self, now: Time) -> bool {
        self.any() && self.change(|table| table.timeouts(now))
    }
}
