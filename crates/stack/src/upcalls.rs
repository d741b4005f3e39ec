//! Notifications that may run a user's code: a watch of a socket, the delivery of a handler's message, the end of a handler.
//!
//! That code may call the stack, and then waits until the call is done. So the thread that runs it must not have anything
//! that another such thread may wait for: no guard, and no flag of a cell
//! ([`DeferredEffects::flush_all_but_upcalls`](crate::deferred::DeferredEffects::flush_all_but_upcalls)).

use std::sync::Arc;

use sync::Platform;

use crate::attempt::attempt;
use crate::socket::handler::{HandlerState, Post};
use crate::socket::{ListenerShared, Readiness, TcpSocket, UdpShared};

/// What a notification is about.
pub(crate) enum Risen<P: Platform> {
    /// A connection with a readiness edge.
    Connection(Arc<TcpSocket<P>>),
    /// A listener with one.
    Listener(Arc<ListenerShared<P>>),
    /// A datagram socket with one.
    Datagrams(Arc<UdpShared<P>>),
    /// A connection whose handler must be called, if handlers run after the guards.
    Handled(Arc<TcpSocket<P>>),
    /// A handler's message for another one.
    Posted(Box<Post<P>>),
    /// A handler that is over.
    Over(Box<HandlerState<P>>),
}

impl<P: Platform> Risen<P> {
    /// Wakes threads and marks members of poll sets, if that is all. False: a user's code may run, and nothing was done.
    fn tell_threads(&self, bits: Readiness) -> bool {
        match self {
            Risen::Connection(socket) => socket.ready.tell_threads(bits),
            Risen::Listener(listener) => listener.ready.tell_threads(bits),
            Risen::Datagrams(socket) => socket.ready.tell_threads(bits),
            Risen::Handled(_) | Risen::Posted(_) | Risen::Over(_) => false,
        }
    }
}

/// Performs notifications in their order, and delivers handlers' messages at the end. The caller holds no guard.
pub(crate) fn perform<P: Platform>(notifications: impl Iterator<Item = (Risen<P>, Readiness)>) {
    let mut posts = Vec::new();
    for (risen, bits) in notifications {
        sync::walk::note(file!(), "no guard is held any more: wakes the socket's user");
        match risen {
            Risen::Connection(socket) => socket.ready.tell(bits),
            Risen::Listener(listener) => listener.ready.tell(bits),
            Risen::Datagrams(socket) => socket.ready.tell(bits),
            Risen::Handled(_) => debug_assert!(false, "handlers that run after the guards have run by now"),
            Risen::Posted(post) => posts.push(*post),
            Risen::Over(handler) => drop(attempt(|| drop(handler))),
        }
    }
    if !posts.is_empty() {
        Post::deliver(posts);
    }
}

/// Notifications that may run users' code, in the order of their events.
pub(crate) struct Upcalls<P: Platform>(Vec<(Risen<P>, Readiness)>);

impl<P: Platform> Default for Upcalls<P> {
    fn default() -> Self {
        Upcalls(Vec::new())
    }
}

impl<P: Platform> Upcalls<P> {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps those that may run a user's code, and performs the others. The caller holds no guard.
    pub(crate) fn keep(&mut self, notifications: impl Iterator<Item = (Risen<P>, Readiness)>) {
        self.0.extend(notifications.filter(|(risen, bits)| !risen.tell_threads(*bits)));
    }

    /// Adds later ones.
    pub(crate) fn append(&mut self, later: &mut Upcalls<P>) {
        self.0.append(&mut later.0);
    }

    /// Performs them. The caller holds no guard and has no flag of a cell.
    pub(crate) fn perform(self) {
        perform(self.0.into_iter());
    }
}
