//! TCP-1: one lock for the connection, held for the whole event.

use sync::slab::Detached;
use sync::{Guard, Lock, LockClass, LockKind, Platform};

use super::super::connection::Connection;

/// A connection under one lock. It stays in its place in the slab; the lock guards the access to it.
pub struct Single<P: Platform>(Lock<Detached<Connection<P>, P>, P>);

impl<P: Platform> Single<P> {
    /// Behind a lock of `kind`.
    pub fn new(kind: LockKind, connection: Detached<Connection<P>, P>) -> Self {
        Single(Lock::new(kind, LockClass::PcbHeaderIn, connection))
    }

    /// The connection; no other thread holds its lock.
    pub fn into_inner(self) -> Detached<Connection<P>, P> {
        self.0.into_inner()
    }

    /// Waits for the connection.
    #[inline]
    pub fn lock(&self) -> Guard<'_, Detached<Connection<P>, P>, P> {
        self.0.lock()
    }
}
