//! Effects that wait until the last guard has dropped: wake-ups, and the doorbells of devices.
//!
//! An event is run inside a cell and leaves here what must not be done inside. Whoever held the cell lets go of it and
//! then calls [`After::perform`]. Nothing is called up or down with a guard alive (invariant G4).

use std::sync::Arc;

use smallvec::SmallVec;
use sync::Platform;

use crate::shared::Shared;
use crate::socket::readiness::Hearer;
use crate::socket::{ListenerShared, PollSet, Pollable, Readiness, TcpSocket, UdpShared};

/// What is left to do when the guard is gone. Make one per guard (or per batch of events under one guard).
pub struct After<P: Platform> {
    /// Connections on which something rose: nearly all that is woken.
    connections: SmallVec<[(Arc<TcpSocket<P>>, Readiness); 4]>,
    others: SmallVec<[Wake<P>; 1]>,
    /// Bit `q` set: device queue `q` has been given frames since its doorbell was rung.
    doorbells: u64,
    /// The bells of these queues' devices that are to be rung, all queues taken together.
    touched: u64,
    /// Bit `c` set: cell `c`, counted modulo 64, was sent events and its thread has not been told.
    unannounced: u64,
    /// When the earliest is due of what was put before a receive thread, in nanoseconds; `u64::MAX`: nothing was.
    alarm: u64,
    /// There is something left to do, or memory to give back: most calls are over before anything is.
    used: bool,
}

enum Wake<P: Platform> {
    Listener(Arc<ListenerShared<P>>),
    Datagrams(Arc<UdpShared<P>>, Readiness),
}

impl<P: Platform> Default for After<P> {
    fn default() -> Self {
        After {
            connections: SmallVec::new(),
            others: SmallVec::new(),
            doorbells: 0,
            touched: 0,
            unannounced: 0,
            alarm: u64::MAX,
            used: false,
        }
    }
}

impl<P: Platform> After<P> {
    /// Something rose on a connection.
    #[inline]
    pub fn wake(&mut self, socket: &Arc<TcpSocket<P>>, bits: Readiness) {
        if !bits.is_empty() {
            self.used = true;
            self.connections.push((socket.clone(), bits));
        }
    }

    /// A connection waits to be accepted.
    pub fn wake_listener(&mut self, listener: &Arc<ListenerShared<P>>) {
        self.used = true;
        self.others.push(Wake::Listener(listener.clone()));
    }

    /// Something rose on a datagram socket.
    pub fn wake_datagrams(&mut self, socket: &Arc<UdpShared<P>>, bits: Readiness) {
        self.used = true;
        self.others.push(Wake::Datagrams(socket.clone(), bits));
    }

    /// Device queue `port` was given frames; `touched` names the bells of its device that this concerns.
    #[inline]
    pub fn ring(&mut self, port: usize, touched: u64) {
        self.used = true;
        self.doorbells |= 1 << (port & 63);
        self.touched |= touched;
    }

    /// Something is due at `nanos`, or nothing (`u64::MAX`), that a receive thread does: see [`crate::alarm`].
    #[inline]
    pub fn due(&mut self, nanos: u64) {
        if nanos < self.alarm {
            self.alarm = nanos;
            self.used = true;
        }
    }

    /// The thread of cell `cell` was sent an event and is to be told at the end of the batch. Kept by the sender and not
    /// beside the queue: a sender that relied on another's mark could find it gone before its own event is seen.
    #[inline]
    pub fn announce(&mut self, cell: usize) {
        self.unannounced |= 1 << (cell & 63);
    }

    /// The cells whose threads are to be told, as bits modulo 64; they are told by who takes them.
    #[inline]
    pub fn take_announcements(&mut self) -> u64 {
        std::mem::take(&mut self.unannounced)
    }

    /// Does what is left, but for announcements. The caller holds no guard.
    #[inline]
    pub fn perform(&mut self, shared: &Shared<P>) {
        if !self.used {
            return;
        }
        if self.doorbells != 0 {
            sync::walk::note(file!(), "rings the device");
            shared.ring_doorbells(std::mem::take(&mut self.doorbells), std::mem::take(&mut self.touched));
        }
        if self.alarm != u64::MAX {
            shared.alarms.due(std::mem::replace(&mut self.alarm, u64::MAX));
        }
        if !self.connections.is_empty() || !self.others.is_empty() {
            self.tell();
        }
        self.used = self.connections.spilled() || self.others.spilled();
    }

    /// Whether it owns nothing once performed, so that to drop it would find nothing to do: who served a single call then
    /// forgets it instead.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.used
    }

    fn tell(&mut self) {
        let mut round = Round { set: None, sockets: SmallVec::new() };
        for (socket, bits) in self.connections.drain(..) {
            sync::walk::note(file!(), "no guard is held any more: wakes the socket's user");
            round.tell(socket, bits);
        }
        for wake in self.others.drain(..) {
            sync::walk::note(file!(), "no guard is held any more: wakes the socket's user");
            match wake {
                Wake::Listener(listener) => round.tell(listener, Readiness::ACCEPTABLE),
                Wake::Datagrams(socket, bits) => round.tell(socket, bits),
            }
        }
        round.end();
    }
}

/// Sockets on their way into one poll set: a batch of edges costs one reference to the set, one lock of its queue and
/// one wake.
struct Round<P: Platform> {
    set: Option<Arc<PollSet<P>>>,
    sockets: SmallVec<[Arc<dyn Pollable<P>>; 16]>,
}

impl<P: Platform> Round<P> {
    #[inline]
    fn tell<S: Pollable<P>>(&mut self, socket: Arc<S>, bits: Readiness) {
        let set = match socket.ready_state().rise(bits) {
            Hearer::Nobody => return,
            Hearer::Set(set) if self.set.as_ref().is_some_and(|same| Arc::ptr_eq(same, set)) => None,
            Hearer::Set(set) => Some(set.clone()),
            Hearer::Moved(set) => Some(set),
        };
        if let Some(set) = set {
            self.end();
            self.set = Some(set);
        }
        self.sockets.push(socket);
    }

    #[inline]
    fn end(&mut self) {
        if let Some(set) = &self.set
            && !self.sockets.is_empty()
        {
            set.push_all(self.sockets.drain(..));
        }
    }
}
