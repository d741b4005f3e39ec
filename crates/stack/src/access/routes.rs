//! The routing table.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ip::{NextHop, RouteAccess, RouteAttributes, RouteTable};
use sync::{Atomic, ClaimLock, Lock, LockClass, LockKind, Ordering, Platform, class};

/// The routing table, with a lock for each route where packets take it ([`SharedRoutes::pass`]).
struct LockedRoutes<P: Platform> {
    rows: RouteTable,
    /// By network and prefix length. A route has one once a packet has passed.
    locks: HashMap<(IpAddr, u8), RouteLock<P>>,
}

/// The lock of a route, around the number of packets that it has carried.
type RouteLock<P> = Arc<Lock<u64, P, class::Route>>;

impl<P: Platform> LockedRoutes<P> {
    /// The lock of the route to `destination`; `None`: there is no route.
    fn lock_for(&mut self, destination: IpAddr) -> Option<RouteLock<P>> {
        let route = self.rows.row_for(destination)?;
        let new = || Arc::new(Lock::ordered(LockKind::Blocking, 0));
        Some(self.locks.entry((route.network, route.prefix_len)).or_insert_with(new).clone())
    }

    /// Removes the locks of routes that have gone.
    fn keep_locks_of_routes(&mut self) {
        let rows = &self.rows;
        self.locks.retain(|name, _| rows.routes().any(|row| (row.network, row.prefix_len) == *name));
    }
}

/// The routing table, as all threads share it.
pub(crate) struct SharedRoutes<P: Platform> {
    table: ClaimLock<LockedRoutes<P>, P>,
    /// Some route has path attributes.
    describes_paths: P::AtomicBool,
}

impl<P: Platform> SharedRoutes<P> {
    /// This table.
    pub(crate) fn new(table: RouteTable) -> Self {
        SharedRoutes {
            describes_paths: P::AtomicBool::new(table.has_attributes()),
            table: ClaimLock::new(
                LockKind::Blocking,
                LockClass::Routes,
                LockedRoutes { rows: table, locks: HashMap::new() },
            ),
        }
    }

    /// The calling thread uses the table without its lock from now on.
    pub(crate) fn claim(&self) {
        self.table.claim();
    }

    /// Ends the calling thread's claim, if it has one.
    pub(crate) fn release_claim(&self) {
        self.table.release_claim();
    }

    /// Whether the calling thread has claimed the table.
    pub(crate) fn is_claimed_here(&self) -> bool {
        self.table.is_claimed_here()
    }

    /// Whether some route has path attributes.
    #[inline]
    pub(crate) fn describes_paths(&self) -> bool {
        self.describes_paths.load(Ordering::Relaxed)
    }

    /// Changes the table.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut RouteTable) -> R) -> R {
        let mut table = self.table.hold();
        let result = change(&mut table.rows);
        self.describes_paths.store(table.rows.has_attributes(), Ordering::Relaxed);
        if !table.locks.is_empty() {
            table.keep_locks_of_routes();
        }
        result
    }

    /// Reads the table.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&RouteTable) -> R) -> R {
        look(&self.table.hold().rows)
    }

    /// See [`Routes::pass`](crate::routes::Routes::pass).
    #[cold]
    pub(crate) fn pass(&self, destination: IpAddr) {
        let mut table = self.table.hold();
        let Some(lock) = table.lock_for(destination) else { return };
        let mut carried = lock.lock();
        drop(table);
        *carried += 1;
    }
}

impl<P: Platform> RouteAccess for SharedRoutes<P> {
    #[inline]
    fn route(&self, destination: IpAddr) -> Option<NextHop> {
        self.table.hold().rows.lookup(destination)
    }

    /// Without a look into the table where no route has any.
    #[inline]
    fn attributes(&self, destination: IpAddr) -> RouteAttributes {
        if self.describes_paths() { self.table.hold().rows.attributes(destination) } else { RouteAttributes::NONE }
    }
}
