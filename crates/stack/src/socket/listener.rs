//! A listening socket: two bounds (connections in the handshake, connections that wait to be accepted) and the queue
//! of the latter. One for all cells; each cell that can see a SYN holds a reference.
//!
//! A handshake takes its place when its SYN comes, so that a client that got its SYN-ACK is never refused because the
//! queue is full ([`tcp::handshake::admit`] decides). The queue's lock orders a handshake that completes and a listener
//! that closes: a child is either in the queue before it is drained, or refused.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use observe::Time;
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};
use tcp::config::{ConnectionOptions, FastOpenKeys, FastOpenMode};
use tcp::fast_open::PendingRequests;
use tcp::handshake::{Backlog, Occupancy, SynResponse};

use super::TcpSocket;
use super::readiness::{Pollable, Readiness, ReadyState};

/// The state shared by all replicas of one listener. Any thread.
pub struct ListenerShared<P: Platform> {
    /// Readiness ([`Readiness::ACCEPTABLE`]), and its waiters.
    pub ready: ReadyState<P>,
    local: SocketAddr,
    wildcard: bool,
    backlog: P::AtomicUsize,
    syn_backlog: usize,
    options: ConnectionOptions,
    /// See [`ListenerShared::set_hop_limit`]; 0: IP's default.
    hop_limit: P::AtomicU32,
    /// See [`ListenerShared::set_defer_accept`].
    defer_accept: P::AtomicUsize,
    half_open: P::AtomicUsize,
    waiting: P::AtomicUsize,
    /// Until when an acknowledgement may return a cookie, in nanoseconds.
    cookies_until: P::AtomicU64,
    /// See [`ListenerShared::set_fast_open`].
    fast_open: P::AtomicUsize,
    queue: Lock<AcceptQueue<P>, P>,
}

struct AcceptQueue<P: Platform> {
    closed: bool,
    /// Connections opened with their SYN.
    early: PendingRequests,
    /// Secrets of its cookies, if they are not the stack's.
    keys: Option<FastOpenKeys>,
    established: VecDeque<Arc<TcpSocket<P>>>,
}

impl<P: Platform> ListenerShared<P> {
    /// A listener on `local` (an unspecified address matches every address of its family; `[::]` both families).
    /// `backlog` bounds the accept queue, `syn_backlog` the handshakes in progress; both are at least 1.
    pub fn new(local: SocketAddr, backlog: usize, syn_backlog: usize, options: ConnectionOptions) -> Arc<Self> {
        let early = PendingRequests::default();
        let queue = AcceptQueue { closed: false, early, keys: None, established: VecDeque::new() };
        Arc::new(ListenerShared {
            ready: ReadyState::default(),
            local,
            wildcard: local.ip().is_unspecified(),
            backlog: P::AtomicUsize::new(backlog.max(1)),
            syn_backlog: syn_backlog.max(1),
            hop_limit: P::AtomicU32::new(options.hop_limit.unwrap_or(0).into()),
            options,
            defer_accept: P::AtomicUsize::new(0),
            half_open: P::AtomicUsize::new(0),
            waiting: P::AtomicUsize::new(0),
            cookies_until: P::AtomicU64::new(0),
            fast_open: P::AtomicUsize::new(0),
            queue: Lock::new(LockKind::Blocking, LockClass::AcceptQueue, queue),
        })
    }

    /// The address it listens on.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The options that its children inherit, except [`ListenerShared::hop_limit`].
    pub fn options(&self) -> &ConnectionOptions {
        &self.options
    }

    /// Answers SYNs from now on, and opens connections, with this time to live or hop limit; `None`: IP's default.
    pub fn set_hop_limit(&self, limit: Option<u8>) {
        self.hop_limit.store(limit.unwrap_or(0).into(), Ordering::Relaxed);
    }

    /// The value of [`ListenerShared::set_hop_limit`], or that of the options.
    pub fn hop_limit(&self) -> Option<u8> {
        Some(self.hop_limit.load(Ordering::Relaxed) as u8).filter(|limit| *limit > 0)
    }

    /// Sets how many connections may wait to be accepted, at least 1; those that wait already stay.
    pub fn set_backlog(&self, backlog: usize) {
        self.backlog.store(backlog.max(1), Ordering::Relaxed);
    }

    /// Opens connections with the first data, or after this many time-outs of the SYN-ACK (`TCP_DEFER_ACCEPT`); 0: with
    /// the acknowledgement of the SYN-ACK.
    pub fn set_defer_accept(&self, time_outs: u8) {
        self.defer_accept.store(time_outs.into(), Ordering::Relaxed);
    }

    /// The value of [`ListenerShared::set_defer_accept`].
    pub fn defer_accept(&self) -> u8 {
        self.defer_accept.load(Ordering::Relaxed) as u8
    }

    /// How well a segment to `address` on this listener's port matches: `None` not at all; larger is more specific.
    pub fn fits(&self, address: IpAddr) -> Option<u8> {
        if !self.wildcard {
            return (self.local.ip() == address).then_some(2);
        }
        match (self.local.ip(), address) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => Some(1),
            (IpAddr::V6(_), IpAddr::V4(_)) => Some(0),
            (IpAddr::V4(_), IpAddr::V6(_)) => None,
        }
    }

    /// How full the queues are.
    pub fn backlog(&self) -> Backlog {
        self.backlog_with(self.half_open.load(Ordering::Relaxed))
    }

    /// Takes a place among the handshakes, until [`ListenerShared::establish`] or [`ListenerShared::abandon`]. Returns
    /// how full the queues were before; [`tcp::handshake::admit`] decides from that whether the place may be kept.
    pub fn take_place(&self) -> Backlog {
        self.backlog_with(self.half_open.fetch_add(1, Ordering::AcqRel))
    }

    fn backlog_with(&self, half_open: usize) -> Backlog {
        let (waiting, limit) = (self.waiting.load(Ordering::Relaxed), self.backlog.load(Ordering::Relaxed));
        Backlog {
            accept_queue: Occupancy { used: waiting, limit },
            handshakes: Occupancy { used: half_open, limit: self.syn_backlog },
        }
    }

    /// A cookie was sent at `now`.
    pub fn note_cookie(&self, now: Time) {
        let until = now + tcp::syn_cookie::LIFE;
        self.cookies_until.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Whether a cookie may be returned at `now`. Without this check a peer could guess cookies at any time.
    pub fn awaits_cookie(&self, now: Time) -> bool {
        now.as_nanos() < self.cookies_until.load(Ordering::Relaxed)
    }

    /// Opens connections with the data of their SYNs (RFC 7413), at most `limit` at a time with incomplete handshakes;
    /// 0: none (`TCP_FASTOPEN`).
    pub fn set_fast_open(&self, limit: usize) {
        self.fast_open.store(limit, Ordering::Relaxed);
    }

    /// Uses these keys for cookies instead of the stack's (`TCP_FASTOPEN_KEY`).
    pub fn set_fast_open_keys(&self, keys: FastOpenKeys) {
        self.queue.lock().keys = Some(keys);
    }

    /// The keys that were set for this listener.
    pub fn fast_open_keys(&self) -> Option<FastOpenKeys> {
        self.queue.lock().keys
    }

    /// How many connections may be open early under the stack's `mode`.
    pub fn fast_open_limit(&self, mode: FastOpenMode) -> usize {
        let limit = self.fast_open.load(Ordering::Relaxed);
        match limit {
            _ if !mode.has(FastOpenMode::SERVER) => 0,
            0 if mode.has(FastOpenMode::ALL_LISTENERS) => self.backlog.load(Ordering::Relaxed),
            _ => limit,
        }
    }

    /// Admits one more early connection, unless `limit` are open; see [`PendingRequests::admit`].
    pub fn admit_fast_open(&self, limit: usize, now: Time) -> bool {
        self.queue.lock().early.admit(limit, now)
    }

    /// A connection is no longer open early: its handshake is complete, or it has ended.
    pub fn leave_fast_open(&self) {
        self.queue.lock().early.finish();
    }

    /// A connection that was open early was reset at `now`.
    pub fn note_early_reset(&self, now: Time) {
        self.queue.lock().early.reset(now);
    }

    /// Places taken of [`ListenerShared::fast_open_limit`].
    pub fn early(&self) -> usize {
        self.queue.lock().early.len()
    }

    /// A handshake that was admitted has ended without a connection.
    pub fn abandon(&self) {
        self.half_open.fetch_sub(1, Ordering::AcqRel);
    }

    /// A handshake that was admitted is complete: the connection waits to be accepted. Phase *inside*.
    ///
    /// # Errors
    /// The listener has been closed meanwhile: the connection must be reset.
    pub fn establish(&self, child: &Arc<TcpSocket<P>>) -> Result<(), Closed> {
        self.half_open.fetch_sub(1, Ordering::AcqRel);
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(Closed);
        }
        queue.established.push_back(child.clone());
        self.waiting.store(queue.established.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Takes the connection that has waited longest; clears the readiness when none is left.
    ///
    /// Takes no lock if none waits. It may then miss a connection that is being queued: that one is about to set the
    /// readiness, which a caller checks before it sleeps.
    pub fn accept(&self) -> Option<Arc<TcpSocket<P>>> {
        // The readiness may be stale, set after its connection was taken, and must be cleared.
        if self.waiting.load(Ordering::Relaxed) == 0 && !self.ready.get().intersects(Readiness::ACCEPTABLE) {
            return None;
        }
        let mut queue = self.queue.lock();
        let child = queue.established.pop_front();
        self.waiting.store(queue.established.len(), Ordering::Relaxed);
        if queue.established.is_empty() {
            self.ready.clear(Readiness::ACCEPTABLE);
        }
        child
    }

    /// Closes the queue: no child can enter any more. Returns those that were not accepted; they must be reset.
    pub fn close(&self) -> Vec<Arc<TcpSocket<P>>> {
        let mut queue = self.queue.lock();
        queue.closed = true;
        self.waiting.store(0, Ordering::Relaxed);
        std::mem::take(&mut queue.established).into()
    }

    /// Handshakes in progress, and connections waiting to be accepted.
    pub fn occupancy(&self) -> (usize, usize) {
        (self.half_open.load(Ordering::Relaxed), self.waiting.load(Ordering::Relaxed))
    }
}

/// The place of a connection in the backlog of the listener that admitted it, until its handshake is complete.
pub enum Admission<P: Platform> {
    /// A place among the handshakes.
    Handshake(Arc<ListenerShared<P>>),
    /// The same, and one among the connections that are open early.
    Early(Arc<ListenerShared<P>>),
    /// The latter alone: it has entered the accept queue.
    Entered(Arc<ListenerShared<P>>),
}

/// The outcome for a connection that may enter the accept queue.
pub enum Admitted<P: Platform> {
    /// It is queued, and the listener is to be woken; if it was opened early, it still holds a place.
    New(Arc<ListenerShared<P>>, Option<Admission<P>>),
    /// It was in already.
    Known,
    /// The listener has closed: the connection must be reset.
    Closed,
}

impl<P: Platform> Admission<P> {
    /// The place that a connection holds after this answer to its SYN.
    pub fn of(answer: SynResponse, listener: Arc<ListenerShared<P>>) -> Option<Self> {
        match answer {
            SynResponse::HalfOpen { .. } => Some(Admission::Handshake(listener)),
            SynResponse::Early { .. } => Some(Admission::Early(listener)),
            SynResponse::SynCookie => None,
        }
    }

    /// The connection may enter the accept queue. Phase *inside*.
    pub fn enter(self, child: &Arc<TcpSocket<P>>) -> Admitted<P> {
        match self {
            Admission::Handshake(listener) => match listener.establish(child) {
                Ok(()) => Admitted::New(listener, None),
                Err(Closed) => Admitted::Closed,
            },
            Admission::Early(listener) => match listener.establish(child) {
                Ok(()) => Admitted::New(listener.clone(), Some(Admission::Entered(listener))),
                Err(Closed) => {
                    listener.leave_fast_open();
                    Admitted::Closed
                }
            },
            Admission::Entered(listener) => {
                listener.leave_fast_open();
                Admitted::Known
            }
        }
    }

    /// The connection has ended without a complete handshake.
    pub fn abandon(self) {
        match self {
            Admission::Handshake(listener) => listener.abandon(),
            Admission::Early(listener) => {
                listener.abandon();
                listener.leave_fast_open();
            }
            Admission::Entered(listener) => listener.leave_fast_open(),
        }
    }

    /// The same, by a reset of the peer.
    pub fn reset(self, now: Time) {
        match self {
            Admission::Entered(listener) => listener.note_early_reset(now),
            other => other.abandon(),
        }
    }
}

/// The listener was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl<P: Platform> Pollable<P> for ListenerShared<P> {
    fn ready_state(&self) -> &ReadyState<P> {
        &self.ready
    }
}
