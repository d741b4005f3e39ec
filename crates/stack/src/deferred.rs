//! Effects that wait until the last guard has dropped: wake-ups of sockets' users, and of the receivers behind devices.
//!
//! An event is run inside a cell and stores here what must not be done inside. The thread that held the cell releases
//! it and then calls [`DeferredEffects::flush`]. No other layer is called while a guard is held (invariant G4).

use std::sync::Arc;

use dev::BitSet;
use path::Dirty;
use smallvec::SmallVec;
use sync::{Platform, Writers};

use crate::links::Links;
use crate::socket::poll::Number;
use crate::socket::readiness::Audience;
use crate::socket::{ListenerShared, PollSet, Readiness, ReadyState, TcpSocket, UdpShared};

/// What is left to do when the guard is gone. Make one per guard (or per batch of events under one guard).
pub struct DeferredEffects<P: Platform> {
    /// Members of `set` on which something rose: nearly all that is woken. Their bits are set already.
    members: SmallVec<[Number; 4]>,
    /// The poll set of the first edge: one reference for a batch of them.
    set: Option<Arc<PollSet<P>>>,
    /// Other sockets on which something rose. Their bits are set as well.
    others: SmallVec<[(Risen<P>, Readiness); 1]>,
    /// Transmit queues that were given frames, and the receivers behind them.
    dirty: Dirty,
    /// Cells that were sent events and whose thread has not been notified.
    unannounced: BitSet,
    /// When the earliest is due of what was put before a receive thread, in nanoseconds; `u64::MAX`: nothing was.
    alarm: u64,
    /// There is something left to do, or memory to give back: most calls are over before anything is.
    used: bool,
}

enum Risen<P: Platform> {
    Connection(Arc<TcpSocket<P>>),
    Listener(Arc<ListenerShared<P>>),
    Datagrams(Arc<UdpShared<P>>),
}

impl<P: Platform> Default for DeferredEffects<P> {
    fn default() -> Self {
        DeferredEffects {
            members: SmallVec::new(),
            set: None,
            others: SmallVec::new(),
            dirty: Dirty::new(),
            unannounced: BitSet::new(),
            alarm: u64::MAX,
            used: false,
        }
    }
}

impl<P: Platform> DeferredEffects<P> {
    /// Something rose on a connection.
    #[inline(always)]
    pub(crate) fn wake(&mut self, socket: &Arc<TcpSocket<P>>, bits: Readiness, writers: Writers) {
        if !bits.is_empty() && !self.noted(&socket.ready, bits, writers) {
            self.others.push((Risen::Connection(socket.clone()), bits));
        }
    }

    /// A connection waits to be accepted.
    pub fn wake_listener(&mut self, listener: &Arc<ListenerShared<P>>) {
        let bits = Readiness::ACCEPTABLE;
        if !self.noted(&listener.ready, bits, Writers::Many) {
            self.others.push((Risen::Listener(listener.clone()), bits));
        }
    }

    /// Something rose on a datagram socket.
    pub(crate) fn wake_datagrams(&mut self, socket: &Arc<UdpShared<P>>, bits: Readiness, writers: Writers) {
        if !self.noted(&socket.ready, bits, writers) {
            self.others.push((Risen::Datagrams(socket.clone()), bits));
        }
    }

    /// Sets the bits of a socket, and notes its number in the one poll set that most edges of a batch are for. False:
    /// somebody else is to be told.
    #[inline]
    fn noted(&mut self, socket: &ReadyState<P>, bits: Readiness, writers: Writers) -> bool {
        let (set, number) = match socket.rise(bits, writers) {
            Audience::Nobody => {
                sync::walk::note(file!(), "the socket's user finds it ready: nobody sleeps on it");
                return true;
            }
            Audience::Member(set, number) => (set, number),
            Audience::Others => {
                self.used = true;
                return false;
            }
        };
        self.used = true;
        match &self.set {
            Some(known) if !Arc::ptr_eq(known, set) => return false,
            Some(_) => {}
            None => self.set = Some(set.clone()),
        }
        self.members.push(number);
        true
    }

    /// Where transmit queues put what is to be notified of what they were given.
    #[inline]
    pub fn dirty(&mut self) -> &mut Dirty {
        self.used = true;
        &mut self.dirty
    }

    /// Something is due at `nanos`, or nothing (`u64::MAX`), that a receive thread does: see [`crate::alarm`].
    #[inline]
    pub fn due(&mut self, nanos: u64) {
        if nanos < self.alarm {
            self.alarm = nanos;
            self.used = true;
        }
    }

    /// The thread of cell `cell` was sent an event and is to be notified at the end of the batch. The sender keeps this
    /// note, not the queue: a sender that relied on another sender's note could find it cleared before its own event is
    /// seen.
    #[inline]
    pub fn announce(&mut self, cell: usize) {
        self.unannounced.insert(cell);
        self.used |= !self.unannounced.is_plain();
    }

    /// Takes a cell whose thread is to be notified.
    #[inline]
    pub fn next_announcement(&mut self) -> Option<usize> {
        self.unannounced.pop()
    }

    /// Does what is left, but for announcements. The caller holds no guard.
    #[inline]
    pub fn flush(&mut self, links: &Links<P>) {
        if !self.used {
            return;
        }
        if !self.dirty.is_empty() {
            sync::walk::note(file!(), "notifies the device");
            links.notify(&mut self.dirty);
        }
        if self.alarm != u64::MAX {
            links.alarms().due(std::mem::replace(&mut self.alarm, u64::MAX));
        }
        if self.set.is_some() || !self.others.is_empty() {
            self.tell();
        }
        let plain = self.dirty.is_plain() & self.unannounced.is_plain();
        self.used = self.members.spilled() | self.others.spilled() | !plain;
    }

    /// Whether it owns nothing once performed, so that dropping it would do nothing: code that served a single call
    /// then forgets it instead.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.used
    }

    fn tell(&mut self) {
        if let Some(set) = self.set.take() {
            sync::walk::note(file!(), "no guard is held any more: wakes the socket's user");
            set.mark_all(&self.members);
            self.members.clear();
        }
        for (socket, bits) in self.others.drain(..) {
            sync::walk::note(file!(), "no guard is held any more: wakes the socket's user");
            match socket {
                Risen::Connection(socket) => socket.ready.tell(bits),
                Risen::Listener(listener) => listener.ready.tell(bits),
                Risen::Datagrams(socket) => socket.ready.tell(bits),
            }
        }
    }
}
