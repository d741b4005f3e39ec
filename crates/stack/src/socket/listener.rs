//! A listening socket: two bounds (connections in the handshake, connections that wait to be accepted) and the queue
//! of the latter, which has a shard for each receive thread (`accept_queue.rs`). One for all cells; each cell that can see
//! a SYN holds a reference.
//!
//! A handshake takes its place when its SYN comes, so that a client that got its SYN-ACK is never refused because the
//! queue is full ([`tcp::handshake::admit`] decides). A queue's lock orders a handshake that completes and a listener
//! that closes: a child is either in the queue before it is drained, or refused.

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use observe::Time;
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};
use tcp::config::{ConnectionOptions, FastOpenKeys, FastOpenMode};
use tcp::fast_open::PendingRequests;
use tcp::handshake::{Backlog, Occupancy, SynResponse};

use super::TcpSocket;
use super::accept_queue::AcceptQueues;
pub use super::accept_queue::Closed;
use super::handler::Acceptor;
use super::readiness::{Pollable, Readiness, ReadyState};
use crate::alarm::Alarms;

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
    /// Until when an acknowledgement may return a cookie, in nanoseconds.
    cookies_until: P::AtomicU64,
    /// See [`ListenerShared::set_fast_open`].
    fast_open: P::AtomicUsize,
    /// See [`ListenerShared::serve_by`].
    acceptor: OnceLock<Acceptor<P>>,
    early: Lock<EarlyOpens, P>,
    queues: AcceptQueues<P>,
}

/// Fast Open, as the server.
struct EarlyOpens {
    /// Connections opened with their SYN.
    pending: PendingRequests,
    /// Secrets of its cookies, if they are not the stack's.
    keys: Option<FastOpenKeys>,
}

impl<P: Platform> ListenerShared<P> {
    /// A listener on `local` (an unspecified address matches every address of its family; `[::]` both families).
    /// `backlog` bounds the accept queue, `syn_backlog` the handshakes in progress; both are at least 1. Each receive
    /// thread of `alarms` has an accept queue of its own.
    pub fn new(
        local: SocketAddr,
        (backlog, syn_backlog): (usize, usize),
        options: ConnectionOptions,
        alarms: Arc<Alarms<P>>,
    ) -> Arc<Self> {
        let early = EarlyOpens { pending: PendingRequests::default(), keys: None };
        Arc::new(ListenerShared {
            ready: ReadyState::default(),
            local,
            wildcard: local.ip().is_unspecified(),
            backlog: P::AtomicUsize::new(backlog.max(1)),
            syn_backlog: syn_backlog.max(1),
            hop_limit: P::AtomicU32::new(options.hop_limit.unwrap_or(0).into()),
            options,
            defer_accept: P::AtomicUsize::new(0),
            cookies_until: P::AtomicU64::new(0),
            fast_open: P::AtomicUsize::new(0),
            acceptor: OnceLock::new(),
            early: Lock::new(LockKind::Blocking, LockClass::AcceptQueue, early),
            queues: AcceptQueues::new(alarms),
        })
    }

    /// Gives each connection a handler instead of queueing it for a user that accepts. Called before any cell can reach
    /// the listener.
    pub(crate) fn serve_by(&self, acceptor: Acceptor<P>) {
        let set = self.acceptor.set(acceptor);
        debug_assert!(set.is_ok(), "a listener is given its handlers once");
    }

    /// See [`ListenerShared::serve_by`].
    #[inline]
    pub(crate) fn acceptor(&self) -> Option<&Acceptor<P>> {
        self.acceptor.get()
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
        self.backlog_with(self.queues.half_open())
    }

    /// Takes a place among the handshakes, until [`ListenerShared::establish`] or [`ListenerShared::abandon`]. Returns
    /// how full the queues were before; [`tcp::handshake::admit`] decides from that whether the place may be kept.
    pub fn take_place(&self) -> Backlog {
        self.backlog_with(self.queues.begin_handshake())
    }

    fn backlog_with(&self, half_open: usize) -> Backlog {
        let (waiting, limit) = (self.queues.waiting(), self.backlog.load(Ordering::Relaxed));
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
        self.early.lock().keys = Some(keys);
    }

    /// The keys that were set for this listener.
    pub fn fast_open_keys(&self) -> Option<FastOpenKeys> {
        self.early.lock().keys
    }

    /// The number of connections that may be open early under the stack's `mode`.
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
        self.early.lock().pending.admit(limit, now)
    }

    /// A connection is no longer open early: its handshake is complete, or it has ended.
    pub fn leave_fast_open(&self) {
        self.early.lock().pending.finish();
    }

    /// A connection that was open early was reset at `now`.
    pub fn note_early_reset(&self, now: Time) {
        self.early.lock().pending.reset(now);
    }

    /// Places taken of [`ListenerShared::fast_open_limit`].
    pub fn early(&self) -> usize {
        self.early.lock().pending.len()
    }

    /// A handshake that was admitted has ended without a connection.
    pub fn abandon(&self) {
        self.queues.abandon_handshake();
    }

    /// A handshake that was admitted is complete: the connection waits to be accepted, unless it gets a handler. Phase
    /// *inside*.
    ///
    /// # Errors
    /// The listener has been closed meanwhile: the connection must be reset.
    pub fn establish(&self, child: Arc<TcpSocket<P>>) -> Result<(), Closed> {
        self.queues.establish(child, self.acceptor.get().is_none())
    }

    /// Takes a connection that waits; clears the readiness when none is left. With one receive thread it is the one that has
    /// waited longest. A receive thread takes one that it has received itself if there is one, and leaves the others to the receive
    /// threads that have received them, as long as they keep up with accepting: it returns `None` then, and the readiness stays.
    ///
    /// Takes no lock if none waits. It may then miss a connection that is being queued: that one is about to set the
    /// readiness, which a caller checks before it sleeps.
    pub fn accept(&self) -> Option<Arc<TcpSocket<P>>> {
        // The readiness may be stale, set after its connection was taken, and must be cleared.
        if self.queues.waiting() == 0 && !self.ready.get().intersects(Readiness::ACCEPTABLE) {
            self.queues.ask();
            return None;
        }
        self.queues.accept(&self.ready)
    }

    /// Closes the queue: no child can enter any more. Returns those that were not accepted; they must be reset.
    pub fn close(&self) -> Vec<Arc<TcpSocket<P>>> {
        self.queues.close()
    }

    /// Whether it has been closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.queues.is_closed()
    }

    /// Handshakes in progress, and connections waiting to be accepted.
    pub fn occupancy(&self) -> (usize, usize) {
        (self.queues.half_open(), self.queues.waiting())
    }
}

/// A listener as one cell knows it. The references of a cell are counted in memory of its own, so threads in different
/// cells do not write one counter for each handshake.
pub struct ListenerReplica<P: Platform> {
    known: Arc<KnownListener<P>>,
}

/// The listener of the replicas that one cell counts.
struct KnownListener<P: Platform> {
    shared: Arc<ListenerShared<P>>,
}

impl<P: Platform> ListenerReplica<P> {
    /// For one more cell.
    pub fn of(listener: Arc<ListenerShared<P>>) -> Self {
        ListenerReplica { known: Arc::new(KnownListener { shared: listener }) }
    }

    /// How many replicas the cell has handed out, and its own.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.known)
    }
}

impl<P: Platform> Clone for ListenerReplica<P> {
    fn clone(&self) -> Self {
        ListenerReplica { known: self.known.clone() }
    }
}

impl<P: Platform> Deref for ListenerReplica<P> {
    type Target = Arc<ListenerShared<P>>;

    fn deref(&self) -> &Arc<ListenerShared<P>> {
        &self.known.shared
    }
}

/// The place of a connection in the backlog of the listener that admitted it, until its handshake is complete.
pub enum Admission<P: Platform> {
    /// A place among the handshakes.
    Handshake(ListenerReplica<P>),
    /// The same, and one among the connections that are open early.
    Early(ListenerReplica<P>),
    /// The latter alone: it has entered the accept queue.
    Entered(ListenerReplica<P>),
}

/// The outcome for a connection that may enter the accept queue.
pub enum Admitted<P: Platform> {
    /// It is queued, and the listener is to be woken; if it was opened early, it still holds a place.
    New(ListenerReplica<P>, Option<Admission<P>>),
    /// It was in already.
    Known,
    /// The listener has closed: the connection must be reset.
    Closed,
}

impl<P: Platform> Admission<P> {
    /// The place that a connection holds after this answer to its SYN.
    pub fn of(answer: SynResponse, listener: ListenerReplica<P>) -> Option<Self> {
        match answer {
            SynResponse::HalfOpen { .. } => Some(Admission::Handshake(listener)),
            SynResponse::Early { .. } => Some(Admission::Early(listener)),
            SynResponse::SynCookie => None,
        }
    }

    /// The connection may enter the accept queue. Phase *inside*.
    pub fn enter(self, child: Arc<TcpSocket<P>>) -> Admitted<P> {
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

impl<P: Platform> Pollable<P> for ListenerShared<P> {
    fn ready_state(&self) -> &ReadyState<P> {
        &self.ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;
    use sync::Real;

    const START: Time = Time::from_secs(1);

    fn child(port: u16) -> Arc<TcpSocket<Real>> {
        let address = IpAddr::from([10, 0, 0, 1]);
        let tuple = wire::FourTuple { local_addr: address, remote_addr: address, local_port: 80, remote_port: port };
        TcpSocket::new(Flow { tuple, hash: 0 })
    }

    fn listener(local: &str, options: ConnectionOptions) -> Arc<ListenerShared<Real>> {
        ListenerShared::new(local.parse().expect("an address"), (2, 3), options, Arc::new(Alarms::new(1)))
    }

    fn any() -> Arc<ListenerShared<Real>> {
        listener("[::]:80", ConnectionOptions::default())
    }

    fn port(child: Option<Arc<TcpSocket<Real>>>) -> Option<u16> {
        child.map(|child| child.tuple().remote_port)
    }

    /// The more specific a listener is, the better it matches; one of IPv6 with no address takes IPv4, too, and one of
    /// IPv4 takes no IPv6.
    #[test]
    fn the_most_specific_listener_matches_best() {
        let fits = |local: &str, address: &str| {
            listener(local, ConnectionOptions::default()).fits(address.parse().expect("an address"))
        };
        assert_eq!(fits("10.0.0.1:80", "10.0.0.1"), Some(2));
        assert_eq!(fits("10.0.0.1:80", "10.0.0.2"), None);
        assert_eq!(fits("[fd00::1]:80", "fd00::1"), Some(2));
        assert_eq!(fits("[fd00::1]:80", "10.0.0.1"), None);
        assert_eq!((fits("0.0.0.0:80", "10.0.0.1"), fits("[::]:80", "fd00::1")), (Some(1), Some(1)));
        assert_eq!((fits("[::]:80", "10.0.0.1"), fits("0.0.0.0:80", "fd00::1")), (Some(0), None));
    }

    /// Handshakes hold places from their SYN, connections in the queue from the end of their handshake; the limits are
    /// the requested ones, and at least 1.
    #[test]
    fn the_places_that_are_taken_are_counted() {
        let listener = any();
        assert_eq!(listener.local(), "[::]:80".parse().expect("an address"));
        let full = |waiting, half_open, backlog| Backlog {
            accept_queue: Occupancy { used: waiting, limit: backlog },
            handshakes: Occupancy { used: half_open, limit: 3 },
        };
        assert_eq!(listener.take_place(), full(0, 0, 2), "as they were before");
        assert_eq!((listener.take_place(), listener.backlog()), (full(0, 1, 2), full(0, 2, 2)));
        assert_eq!(listener.establish(child(1)), Ok(()));
        assert_eq!((listener.backlog(), listener.occupancy()), (full(1, 1, 2), (1, 1)));
        listener.abandon();
        assert_eq!(listener.occupancy(), (0, 1));
        listener.set_backlog(7);
        assert_eq!(listener.backlog(), full(1, 0, 7));
        listener.set_backlog(0);
        assert_eq!(listener.backlog(), full(1, 0, 1));
        let least = ListenerShared::<Real>::new(
            listener.local(),
            (0, 0),
            ConnectionOptions::default(),
            Arc::new(Alarms::new(1)),
        )
        .backlog();
        assert_eq!((least.accept_queue.limit, least.handshakes.limit), (1, 1));
    }

    #[test]
    fn connections_are_accepted_in_their_order_until_none_is_ready() {
        let listener = any();
        assert_eq!(port(listener.accept()), None);
        for port in [5, 6] {
            listener.take_place();
            assert_eq!(listener.establish(child(port)), Ok(()));
        }
        listener.ready.raise(Readiness::ACCEPTABLE);
        assert_eq!(port(listener.accept()), Some(5));
        assert!(listener.ready.get().contains(Readiness::ACCEPTABLE), "another waits");
        assert_eq!(port(listener.accept()), Some(6));
        assert!(listener.ready.get().is_empty());
        assert_eq!((port(listener.accept()), listener.occupancy()), (None, (0, 0)));
        // Raised after its connection was taken.
        listener.ready.raise(Readiness::ACCEPTABLE);
        assert_eq!(port(listener.accept()), None);
        assert!(listener.ready.get().is_empty(), "stale readiness is cleared, or its user would look for ever");
    }

    /// `accept` takes no lock while no connection waits, so a listener that is polled does not disturb handshakes.
    #[test]
    fn accepting_from_an_empty_queue_takes_no_lock() {
        let listener = any();
        let taken = || {
            let counters = Real::lock_counters().expect("the real machine counts");
            counters.acquisitions(LockClass::AcceptQueue)
        };
        let before = taken();
        assert_eq!(port(listener.accept()), None);
        assert_eq!(taken(), before);
        listener.take_place();
        assert_eq!(listener.establish(child(1)), Ok(()));
        // The readiness comes later.
        assert_eq!((port(listener.accept()), taken()), (Some(1), before + 2));
    }

    #[test]
    fn no_connection_enters_a_closed_queue_and_those_inside_are_handed_over() {
        let listener = any();
        listener.take_place();
        listener.take_place();
        assert_eq!(listener.establish(child(1)), Ok(()));
        assert_eq!(listener.close().into_iter().map(|child| port(Some(child))).collect::<Vec<_>>(), [Some(1)]);
        assert_eq!(listener.occupancy(), (1, 0));
        assert_eq!(listener.establish(child(2)), Err(Closed));
        assert_eq!((listener.occupancy(), port(listener.accept()), listener.close().len()), ((0, 0), None, 0));
    }

    /// A cookie lives for [`tcp::syn_cookie::LIFE`] after the last that was sent.
    #[test]
    fn a_cookie_is_awaited_as_long_as_the_last_one_lives() {
        let (listener, life) = (any(), tcp::syn_cookie::LIFE);
        assert!(!listener.awaits_cookie(START));
        listener.note_cookie(START);
        let last = START + life - std::time::Duration::from_nanos(1);
        assert_eq!([last, START + life].map(|now| listener.awaits_cookie(now)), [true, false]);
        listener.note_cookie(last);
        assert!(listener.awaits_cookie(START + life));
    }

    #[test]
    fn the_last_hop_limit_and_delay_of_acceptance_that_were_set_hold() {
        let listener_of = |hop_limit| listener("0.0.0.0:80", ConnectionOptions { hop_limit, ..Default::default() });
        assert_eq!(listener_of(None).hop_limit(), None);
        let listener = listener_of(Some(9));
        assert_eq!((listener.hop_limit(), listener.options().hop_limit), (Some(9), Some(9)));
        listener.set_hop_limit(Some(1));
        assert_eq!(listener.hop_limit(), Some(1));
        listener.set_hop_limit(None);
        assert_eq!(listener.hop_limit(), None);
        assert_eq!(listener.defer_accept(), 0);
        listener.set_defer_accept(200);
        assert_eq!(listener.defer_accept(), 200);
        listener.ready.raise(Readiness::ACCEPTABLE);
        assert_eq!(listener.ready_state().get(), Readiness::ACCEPTABLE, "what a poll set looks at");
    }

    /// TCP_FASTOPEN and bits 0x2 and 0x400 of the sysctl: a listener that asks for it, or every listener.
    #[test]
    fn a_listener_opens_early_where_it_and_the_stack_allow_it() {
        let listener = any();
        let limit = |bits| listener.fast_open_limit(FastOpenMode(bits));
        let (server, all) = (FastOpenMode::SERVER, FastOpenMode::SERVER | FastOpenMode::ALL_LISTENERS);
        assert_eq!([limit(0), limit(server), limit(all), limit(FastOpenMode::ALL_LISTENERS)], [0, 0, 2, 0]);
        listener.set_fast_open(5);
        assert_eq!([limit(0), limit(FastOpenMode::CLIENT), limit(server), limit(all)], [0, 0, 5, 5]);
        assert_eq!(listener.fast_open_keys(), None);
        let keys = FastOpenKeys { primary: Some([1; 16]), backup: None };
        listener.set_fast_open_keys(keys);
        assert_eq!(listener.fast_open_keys(), Some(keys));
    }

    fn early(listener: &Arc<ListenerShared<Real>>) -> Admission<Real> {
        assert!(listener.admit_fast_open(2, START));
        listener.take_place();
        Admission::of(SynResponse::Early { cookie: None }, ListenerReplica::of(listener.clone()))
            .expect("it holds places")
    }

    fn half_open(listener: &Arc<ListenerShared<Real>>) -> Admission<Real> {
        listener.take_place();
        Admission::of(SynResponse::HalfOpen { cookie: None }, ListenerReplica::of(listener.clone()))
            .expect("it holds a place")
    }

    /// The occupied places: handshakes, waiting connections, connections that are open early.
    fn held(listener: &ListenerShared<Real>) -> (usize, usize, usize) {
        let (half_open, waiting) = listener.occupancy();
        (half_open, waiting, listener.early())
    }

    #[test]
    fn a_handshake_gives_its_place_back_however_it_ends() {
        let listener = any();
        assert!(
            Admission::of(SynResponse::SynCookie, ListenerReplica::of(listener.clone())).is_none(),
            "a cookie holds no place"
        );
        let ends: [fn(Admission<Real>); 2] = [Admission::abandon, |place| place.reset(START)];
        for end in ends {
            let place = half_open(&listener);
            assert_eq!(held(&listener), (1, 0, 0));
            end(place);
            assert_eq!(held(&listener), (0, 0, 0));
            let place = early(&listener);
            assert_eq!(held(&listener), (1, 0, 1));
            end(place);
            assert_eq!(held(&listener), (0, 0, 0));
        }
        assert!(matches!(half_open(&listener).enter(child(1)), Admitted::New(_, None)));
        assert_eq!(held(&listener), (0, 1, 0));
        let place = half_open(&listener);
        listener.close();
        assert!(matches!(place.enter(child(2)), Admitted::Closed));
        assert_eq!(held(&listener), (0, 0, 0));
    }

    /// A connection that is open early waits to be accepted at once, and counts as pending until its handshake is
    /// complete; after a reset, for a while longer (RFC 7413 section 5.1).
    #[test]
    fn an_early_connection_counts_as_pending_until_its_handshake_ends() {
        let listener = any();
        let enter = |place: Admission<Real>| match place.enter(child(1)) {
            Admitted::New(_, Some(place)) => place,
            _ => panic!("it is new, and holds a place"),
        };
        let place = enter(early(&listener));
        assert_eq!(held(&listener), (0, 1, 1));
        assert!(matches!(place.enter(child(1)), Admitted::Known), "its handshake is complete");
        assert_eq!(held(&listener), (0, 1, 0));
        enter(early(&listener)).abandon();
        assert_eq!(held(&listener), (0, 2, 0));
        enter(early(&listener)).reset(START);
        assert_eq!(held(&listener), (0, 3, 1));
        assert!(listener.admit_fast_open(2, START));
        assert!(!listener.admit_fast_open(2, START), "the reset one counts");
        assert!(listener.admit_fast_open(2, START + std::time::Duration::from_secs(60)), "no longer");
        let closed = any();
        let place = early(&closed);
        closed.close();
        assert!(matches!(place.enter(child(1)), Admitted::Closed));
        assert_eq!(held(&closed), (0, 0, 0));
    }
}
