//! The interface to the place where connections are kept.
//!
//! A [`Place`] keeps connections, their table, bound sockets, half-open connections and a timer wheel, and defines how
//! a thread gets access to one connection. What happens to a connection is written once over this trait, in the other
//! files of this folder; [`place`](crate::place) implements it.
//!
//! What may never happen here: a protocol rule. A place finds and stores connections and runs events; it does not
//! interpret a segment.

use std::collections::HashMap;
use std::sync::Arc;

use observe::{CounterSnapshot, Counters, Time};
use sync::{Platform, Writers};
use tcp::{Outbox, PathUpdate, Pcb, TableChange, TcpEvent};
use wire::FourTuple;

use super::DatagramAccess;
use super::events::Events;
use crate::account;
use crate::bound_sockets::BoundSockets;
use crate::call::{ArrivingSegment, OpenRequest};
use crate::deferred::{DeferredEffects, LazyEffects, SendEffects};
use crate::flow::{Flow, Key};
use crate::handshakes::Handshakes;
use crate::route_cache::RouteCache;
use crate::shared::Shared;
use crate::socket::handler::HandlerState;
use crate::socket::{Admission, Readiness, TcpSocket};
use crate::table::index::VacantEntry;

/// The effects of an event to be performed once the connection is released.
#[must_use = "deadlines and table changes are lost with it"]
pub struct Effects {
    /// The connection's earliest deadline.
    pub deadline: Option<Time>,
    /// The event's information about the connection's path.
    pub path: PathUpdate,
    /// The change for the table.
    pub table: TableChange,
}

impl Effects {
    /// Those that an event has left in its outbox. Most events have none.
    #[inline(always)]
    pub(crate) fn of(out: &Outbox<'_>) -> Option<Effects> {
        let none = out.deadline.is_none() && out.path == PathUpdate::None && out.table == TableChange::None;
        if none { None } else { Some(Effects { deadline: out.deadline, path: out.path, table: out.table }) }
    }
}

/// The tables of a place under one exclusion: connections, and everything that may become one.
#[repr(C)]
pub struct Directory<T, P: Platform> {
    /// Connections, in any state from SYN-SENT or SYN-RECEIVED on. They come first: each event touches them, and most nothing else.
    pub connections: T,
    /// The places in backlogs that are held by connections opened with their SYN (Fast Open), by slot.
    pub early: HashMap<u32, Admission<P>>,
    /// Bound sockets.
    pub bound_sockets: BoundSockets<P>,
    /// Connections with an incomplete handshake.
    pub half_open: Handshakes<P>,
}

impl<T, P: Platform> Directory<T, P> {
    /// A directory with `connections` only.
    pub fn new(connections: T) -> Self {
        Directory {
            connections,
            early: HashMap::new(),
            bound_sockets: BoundSockets::default(),
            half_open: Handshakes::default(),
        }
    }

    /// Gives back the memory of half-open connections and of places in backlogs that a peak has left behind.
    pub(crate) fn trim(&mut self) {
        self.half_open.trim();
        self.early.shrink_to(2 * self.early.len());
    }

    /// Takes the place in a backlog that the connection in `slot` holds; almost no connection holds one.
    #[inline]
    pub fn take_admission(&mut self, slot: u32) -> Option<Admission<P>> {
        if self.early.is_empty() { None } else { self.early.remove(&slot) }
    }
}

/// The directory of a place.
pub type DirectoryOf<L> = Directory<<L as Place>::Table, <L as DatagramAccess>::Platform>;

/// The context of a directory.
pub struct Site<'a, L: Place> {
    /// The stack.
    pub shared: &'a Shared<L::Platform>,
    /// The counters of the calling thread.
    pub counters: &'a Counters,
    /// How a connection is laid out here.
    pub layout: L::Layout,
    /// Where the account of its connections is kept.
    pub(crate) account: &'a account::AccountEntry<L::Platform>,
    /// See [`Cell::new`](crate::place::Cell::new).
    pub(crate) writers: Writers,
}

/// An event that no caller waits for.
pub enum UnawaitedEvent<'a> {
    /// A segment arrives; it is taken from here.
    Segment(&'a mut Option<tcp::Segment>),
    /// The device has room again.
    TransmitReady,
    /// A timer of the connection has fired.
    Timeouts,
}

/// A new connection before it has its place.
pub struct NewConnection<'a, P: Platform> {
    /// Its flow.
    pub flow: Flow,
    /// Its PCB, which is taken.
    pub pcb: &'a mut Option<Pcb>,
    /// Its route.
    pub route: RouteCache,
    /// Its user's side.
    pub socket: Arc<TcpSocket<P>>,
}

/// Where connections are kept, and how a thread gets access to one. Datagram sockets have their home in a place, too; the
/// access to them is the supertrait.
///
/// Methods are called by a thread that the architecture admits: the one that holds the cell, or any thread where
/// connections have locks of their own.
pub trait Place: DatagramAccess + Sized {
    /// A connection, as the thread that works on it names it.
    type Id: Clone;
    /// A lock that a look-up may keep until the event has processed its acknowledgement (the table lock of FreeBSD 7).
    type Held: Default;
    /// The value that a failed look-up passes to the insertion.
    type Missing: Copy;
    /// The table of connections by tuple and slot.
    type Table;
    /// How a connection is laid out.
    type Layout: Copy;
    /// Whether [`Place::rearm`] sets the wake-up. If so, an event that replaces it needs no [`Place::arm`] before.
    const REARMS: bool;

    /// The counters of all threads in this place. Exact at rest.
    fn counted(&self) -> CounterSnapshot {
        self.counters().snapshot()
    }

    /// Finds a connection by its tuple.
    ///
    /// # Errors
    /// There is no such entry.
    fn find(&mut self, tuple: &FourTuple, hash: u32) -> Result<(Self::Id, Self::Held), Self::Missing>;

    /// Finds a connection by its name, unless it has gone.
    fn find_key(&mut self, key: Key) -> Option<(Self::Id, Self::Held)>;

    /// Finds the connection of a timer that has fired, unless it is gone.
    fn find_due(&mut self, slot: u32) -> Option<(Self::Id, Self::Held)>;

    /// Exclusive use of the directory for the length of a closure, which must not use the place.
    fn with_directory<R>(&mut self, f: impl FnOnce(&mut DirectoryOf<Self>, &Site<'_, Self>) -> R) -> R;

    /// The vacant entry of a tuple that was missing; `None` if another thread has inserted it since.
    fn absent(directory: &mut DirectoryOf<Self>, missing: Self::Missing, flow: &Flow) -> Option<VacantEntry>;

    /// The connection's slot, if it still has it.
    fn slot(directory: &mut DirectoryOf<Self>, id: &Self::Id) -> Option<u32>;

    /// The connections for which `concerns` is true of their flow, by slot.
    fn those(&mut self, concerns: impl Fn(&Flow) -> bool) -> Vec<Self::Id>;

    /// The user's side of the connection in `slot`.
    fn user(directory: &mut DirectoryOf<Self>, slot: u32) -> Option<Arc<TcpSocket<Self::Platform>>>;

    /// The number of connections, and the bytes that they, their sockets and their table take.
    fn tally(directory: &DirectoryOf<Self>) -> (usize, usize);

    /// The socket of a connection that is about to be inserted.
    fn new_socket(_: &mut DirectoryOf<Self>, flow: &Flow) -> Arc<TcpSocket<Self::Platform>> {
        TcpSocket::new(*flow)
    }

    /// Inserts a connection; its socket does not have the key yet.
    fn insert(
        directory: &mut DirectoryOf<Self>,
        site: &Site<'_, Self>,
        new: NewConnection<'_, Self::Platform>,
        absent: VacantEntry,
    ) -> Option<(Self::Id, Key)>;

    /// Makes the connection of an active open, sends its SYN, and puts it in its place. `effects`: where those of its SYN go,
    /// and those that wait until the place is released.
    ///
    /// # Errors
    /// The open panicked; nothing remains of it, and the panic is recorded.
    fn open(
        directory: &mut DirectoryOf<Self>,
        site: &Site<'_, Self>,
        request: &mut OpenRequest<Self::Platform>,
        absent: VacantEntry,
        now: Time,
        effects: (&mut Option<Effects>, &mut DeferredEffects<Self::Platform>),
    ) -> Result<(Self::Id, Key), crate::call::OpenRefused>;

    /// Whether the calling thread runs this event of a connection, as its next step. False: the thread that uses the
    /// connection will run it, or it was dropped and counted.
    #[inline(always)]
    fn admit(&mut self, _id: &Self::Id, _event: UnawaitedEvent<'_>, _now: Time) -> bool {
        true
    }

    /// Runs an event on a connection; its segments have left for the device when this returns. `None`: it has gone.
    fn work<E: TcpEvent>(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Option<(E::Reply, Option<Effects>)>;

    /// A segment of the connection arrives, and is taken: [`Events::run`] of that event, in the cheapest way for this place.
    /// Returns it if it is for a new connection ([`tcp::Disposition::Recycled`]).
    #[inline(always)]
    fn arrives(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        segment: &mut Option<tcp::Segment>,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Option<Box<tcp::Segment>> {
        self.run(id, held, tcp::SegmentArrives(segment), now, deferred).and_then(tcp::Disposition::recycled)
    }

    /// Another thread has inserted the connection of a segment since the look-up. The segment is processed again.
    fn appeared(&mut self, arrival: &mut ArrivingSegment, now: Time, deferred: &mut DeferredEffects<Self::Platform>);

    /// RECEIVE, in the cheapest way for this place. The connection has been found. The clock is read if it is needed: mostly
    /// it is not. `By` names the caller: code that catches
    /// panics is a part of its caller only if it has one.
    fn receive<By>(
        &mut self,
        found: (Self::Id, Self::Held),
        event: tcp::Receive,
        now: impl FnOnce() -> Time,
        deferred: &mut LazyEffects<'_, Self::Platform>,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>>;

    /// SEND, if the data is one piece that leaves at once as the only segment in flight, and this place can do that without
    /// an outbox: the bytes taken, all of them. 0: nothing has changed. The connection has been found.
    #[inline(always)]
    fn send_alone(
        &mut self,
        _id: &Self::Id,
        _event: &mut tcp::Send,
        _now: Time,
        _effects: &mut SendEffects<Self::Platform>,
    ) -> u32 {
        0
    }

    /// A call that may exhaust `bit` of the socket's readiness is about to run.
    fn before_call(&mut self, id: &Self::Id, bit: Readiness);

    /// The call has run; the bit is set now only if data or room is left.
    fn after_call(&mut self, id: &Self::Id, bit: Readiness, exhausted: bool);

    /// Keeps the handler of a connection.
    fn keep_handler(&mut self, id: &Self::Id, handler: Box<HandlerState<Self::Platform>>);

    /// Whether the connection's handler may have set a timer. Called when a timer of the connection has fired.
    fn has_handler_timer(&mut self, id: &Self::Id) -> bool;

    /// The connection is ended by a panic of the stack: the last callback of its handler, if it has one.
    fn abort_handler(&mut self, id: &Self::Id, now: Time, deferred: &mut DeferredEffects<Self::Platform>);

    /// The connection's flow.
    fn flow(&mut self, id: &Self::Id) -> Option<Flow>;

    /// The user's side of the connection.
    fn socket(&mut self, id: &Self::Id) -> Option<Arc<TcpSocket<Self::Platform>>>;

    /// Notes in the socket that the connection is in TIME-WAIT, and that its user has closed it.
    fn release_user(&mut self, id: &Self::Id) {
        self.socket(id).into_iter().for_each(|socket| socket.let_go());
    }

    /// Wakes the connection no later than at `deadline`. Returns when the wheel must be advanced for that, in
    /// nanoseconds; `u64::MAX` if it will be advanced earlier anyway.
    fn arm(&mut self, id: &Self::Id, deadline: Time) -> u64;

    /// Replaces the connection's wake-up by one no later than `deadline`; returns the same as [`Place::arm`].
    fn rearm(&mut self, id: &Self::Id, deadline: Option<Time>) -> u64;

    /// The slots of timers that have fired, to be returned to [`Place::recycle`].
    fn expire(&mut self, now: Time) -> Vec<u32>;

    /// Returns the list from [`Place::expire`], so that its memory is reused.
    fn recycle(&mut self, _due: Vec<u32>) {}

    /// Connections with an armed timer.
    fn armed(&mut self) -> usize;

    /// Gives back the memory of tables and queues that a peak has left behind.
    fn trim(&mut self);

    /// The connection is in TIME-WAIT until `deadline`, and no user holds it: it may take less memory from now on, and
    /// its identifier name a connection that has gone. Its wake-up is replaced; returns the same as [`Place::arm`].
    fn wait(&mut self, id: &Self::Id, deadline: Option<Time>, _now: Time) -> u64 {
        self.rearm(id, deadline)
    }

    /// Removes the connection from the wheel and the table; returns the place that it held in a backlog.
    fn unlink(&mut self, id: &Self::Id) -> Option<Admission<Self::Platform>>;
}
