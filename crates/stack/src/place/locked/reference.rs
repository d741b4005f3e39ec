//! The pointer by which the table and the threads inside a connection share it.
//!
//! It is `Arc` everywhere. Under `msgp-pool` a stack may be asked to count holders in another way, so that the cost of
//! counting can be measured ([`StackConfig::counting`](crate::StackConfig::counting)). It is a parameter of types, so that no
//! other architecture pays for the choice.

use std::ops::Deref;
use std::sync::Arc;

use sync::{CountedRef, Platform, RefCounting};

use super::LockedConnection;

/// See the head of the file. A thread that has one may use the connection until it drops it.
pub trait ConnectionRef<P: Platform>: Clone + Deref<Target = LockedConnection<P>> + Send + Sync + 'static {
    /// The first one of a connection. `counting` is ignored where the type decides it.
    fn first(connection: LockedConnection<P>, counting: RefCounting) -> Self;
    /// Whether the two are of one connection.
    fn is(&self, other: &Self) -> bool;
    /// Whether no other thread has one.
    fn is_only(&self) -> bool;
    /// The connection, if this was the last.
    fn into_connection(self) -> Option<LockedConnection<P>>;
}

impl<P: Platform> ConnectionRef<P> for Arc<LockedConnection<P>> {
    #[inline]
    fn first(connection: LockedConnection<P>, _: RefCounting) -> Self {
        Arc::new(connection)
    }

    #[inline]
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }

    #[inline]
    fn is_only(&self) -> bool {
        Arc::strong_count(self) == 1
    }

    #[inline]
    fn into_connection(self) -> Option<LockedConnection<P>> {
        Arc::into_inner(self)
    }
}

impl<P: Platform> ConnectionRef<P> for CountedRef<LockedConnection<P>, P> {
    fn first(connection: LockedConnection<P>, counting: RefCounting) -> Self {
        CountedRef::new(counting, connection)
    }

    fn is(&self, other: &Self) -> bool {
        CountedRef::same(self, other)
    }

    fn is_only(&self) -> bool {
        CountedRef::is_only(self)
    }

    fn into_connection(self) -> Option<LockedConnection<P>> {
        self.into_inner()
    }
}
