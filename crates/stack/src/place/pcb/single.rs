//! TCP-1: one lock for the connection, held for the whole event.

use sync::{Guard, Lock, LockClass, LockKind, Platform};
use tcp::Pcb;

use crate::route_cache::RouteCache;

/// A PCB and its route under one lock.
pub struct Single<P: Platform>(Lock<Whole, P>);

/// What the lock guards.
pub struct Whole {
    /// The connection.
    pub pcb: Pcb,
    /// Its route.
    pub route: RouteCache,
}

impl<P: Platform> Single<P> {
    /// Behind a lock of `kind`.
    pub fn new(kind: LockKind, pcb: Pcb, route: RouteCache) -> Self {
        Single(Lock::new(kind, LockClass::PcbHeaderIn, Whole { pcb, route }))
    }

    /// Waits for the connection.
    #[inline]
    pub fn lock(&self) -> Guard<'_, Whole, P> {
        self.0.lock()
    }
}
