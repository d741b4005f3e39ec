//! Where connections are kept: the part of a process architecture that decides what is exclusive.
//!
//! A [`Place`] keeps connections, the table that finds them, sockets that are bound, half-open connections and a timer
//! wheel, and says how a thread comes to use one connection of it. There are two: a [`Cell`], of which one thread has
//! all by `&mut`, and [`Locked`], of which many threads have one connection each, by its locks. Under both, connections
//! lie in the slab of the stack ([`connection`]), and tables hold slots. *What happens* to a connection is in
//! [`connections`](crate::connections), written once over this trait; *which thread* runs it is in `arch/`.
//!
//! What may never happen here: a protocol rule. A place finds, stores, and runs an event; it does not look at a
//! segment.

pub mod cell;
pub mod connection;
mod contents;
pub mod locked;
pub mod pcb;

use std::collections::HashMap;
use std::sync::Arc;

use observe::{CounterSnapshot, Counters, Time};
use sync::{Platform, Writers};
use tcp::{Event, Outbox, PathUpdate, Pcb, TableChange};
use wire::FourTuple;

use crate::account;
use crate::bound_sockets::BoundSockets;
use crate::call::{ArrivingSegment, OpenRequest, Reply};
use crate::deferred::DeferredEffects;
use crate::flow::{Flow, Key, UdpName};
use crate::handshakes::Handshakes;
use crate::route_cache::RouteCache;
use crate::shared::Shared;
use crate::socket::{Admission, Readiness, TcpSocket, UdpShared};
use crate::table::index::VacantEntry;
use crate::udp_table::HeldSocket;

pub use cell::Cell;
pub use contents::{Contents, NotAtRest};
pub use locked::{Locked, TablePolicy};

/// What an event left to be done once the connection is no longer held.
#[must_use = "deadlines and table changes are lost with it"]
pub struct Effects {
    /// When the connection wants to be woken.
    pub deadline: Option<Time>,
    /// What the event learnt of the connection's path.
    pub path: PathUpdate,
    /// What the table must learn.
    pub table: TableChange,
}

/// What a place keeps under one exclusion: everything that finds a connection, or that may become one.
pub struct Directory<T, P: Platform> {
    /// Connections, in any state from SYN-SENT or SYN-RECEIVED on.
    pub connections: T,
    /// The places in backlogs that connections hold which were opened with their SYN (Fast Open), by slot.
    pub early: HashMap<u32, Admission<P>>,
    /// Bound sockets.
    pub bound_sockets: BoundSockets<P>,
    /// Connections with an incomplete handshake.
    pub half_open: Handshakes<P>,
}

impl<T, P: Platform> Directory<T, P> {
    /// Nothing in it but `connections`.
    pub fn new(connections: T) -> Self {
        Directory {
            connections,
            early: HashMap::new(),
            bound_sockets: BoundSockets::default(),
            half_open: Handshakes::default(),
        }
    }

    /// Takes the place in a backlog that the connection in `slot` holds: nearly none holds one.
    #[inline]
    pub fn owed(&mut self, slot: u32) -> Option<Admission<P>> {
        if self.early.is_empty() { None } else { self.early.remove(&slot) }
    }
}

/// The directory of a place.
pub type DirectoryOf<L> = Directory<<L as Place>::Table, <L as Place>::Platform>;

/// What surrounds a directory.
pub struct Site<'a, L: Place> {
    /// The stack.
    pub shared: &'a Shared<L::Platform>,
    /// The block in which the calling thread counts.
    pub counters: &'a Counters,
    /// How a connection is laid out here.
    pub layout: L::Layout,
    /// Where the account of its connections is kept.
    pub(crate) account: &'a account::Entry<L::Platform>,
    /// See [`Cell::new`].
    pub(crate) writers: Writers,
}

/// A new connection before it has its place.
pub struct NewConnection<P: Platform> {
    /// Its flow.
    pub flow: Flow,
    /// Its PCB: boxed, so that it is moved once, into its place.
    pub pcb: Box<Pcb>,
    /// Its route.
    pub route: RouteCache,
    /// Its user's side.
    pub socket: Arc<TcpSocket<P>>,
}

/// A connection that an active open has put in its place.
pub struct Opened<L: Place> {
    /// The connection.
    pub id: L::Id,
    /// Its name for calls.
    pub key: Key,
    /// The route that its SYN took.
    pub route: RouteCache,
    /// What its SYN left to be done.
    pub effects: Effects,
}

/// Where connections are kept, and how a thread comes to use one; see the module documentation.
///
/// Methods are called by a thread that the architecture lets in: the one that holds the cell, or any thread where
/// connections have locks of their own.
pub trait Place: Sized {
    /// The platform of its locks.
    type Platform: Platform;
    /// A connection, as the thread that works on it names it.
    type Id: Clone;
    /// What a look-up may keep held until the event has processed its acknowledgement (the table lock of FreeBSD 7).
    type Held: Default;
    /// What a look-up that found nothing has learnt for the next.
    type Missing: Copy;
    /// What finds connections by tuple and slot.
    type Table;
    /// How a connection is laid out.
    type Layout: Copy;
    /// Bytes of a connection beside its entry in the slab.
    const BESIDE: usize;

    /// The stack.
    fn shared(&self) -> &Arc<Shared<Self::Platform>>;

    /// The block in which the calling thread counts.
    fn counters(&self) -> &Counters;

    /// What all threads have counted in this place. Exact at rest.
    fn counted(&self) -> CounterSnapshot {
        self.counters().snapshot()
    }

    /// Finds a connection by its tuple.
    ///
    /// # Errors
    /// There is none.
    fn find(&mut self, tuple: &FourTuple, hash: u32) -> Result<(Self::Id, Self::Held), Self::Missing>;

    /// Finds a connection by its name, unless it has gone.
    fn find_key(&mut self, key: Key) -> Option<(Self::Id, Self::Held)>;

    /// Finds the connection of a timer that has fired, unless it is gone.
    fn find_due(&mut self, slot: u32) -> Option<(Self::Id, Self::Held)>;

    /// Exclusive use of the directory for the length of a closure, which must not use the place.
    fn with_directory<R>(&mut self, f: impl FnOnce(&mut DirectoryOf<Self>, &Site<'_, Self>) -> R) -> R;

    /// Where a tuple that was missing goes; `None` if another thread has put it there since.
    fn absent(directory: &mut DirectoryOf<Self>, missing: Self::Missing, flow: &Flow) -> Option<VacantEntry>;

    /// The connection's slot, if it still has it.
    fn slot(directory: &mut DirectoryOf<Self>, id: &Self::Id) -> Option<u32>;

    /// Every connection with its flow, by slot.
    fn all(directory: &mut DirectoryOf<Self>) -> Vec<(Self::Id, Flow)>;

    /// The user's side of the connection in `slot`.
    fn user(directory: &mut DirectoryOf<Self>, slot: u32) -> Option<Arc<TcpSocket<Self::Platform>>>;

    /// How many connections there are, and the bytes that they and their table take.
    fn tally(directory: &DirectoryOf<Self>) -> (usize, usize);

    /// Inserts a connection; its socket does not have the key yet.
    fn insert(
        directory: &mut DirectoryOf<Self>,
        site: &Site<'_, Self>,
        new: NewConnection<Self::Platform>,
        absent: VacantEntry,
    ) -> (Self::Id, Key);

    /// Makes the connection of an active open, sends its SYN, and puts it in its place.
    ///
    /// # Errors
    /// The open panicked: nothing is left of it. The panic has been noted.
    fn open(
        directory: &mut DirectoryOf<Self>,
        site: &Site<'_, Self>,
        request: OpenRequest<Self::Platform>,
        absent: VacantEntry,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Result<Opened<Self>, crate::call::OpenRefused>;

    /// Exclusive use of the datagram socket of this name, whose home is here. `None`: it is not bound.
    fn with_socket<R>(&mut self, name: UdpName, f: impl FnOnce(HeldSocket<'_, Self::Platform>) -> R) -> Option<R>;

    /// The same, of the socket that suits a datagram of this tuple best.
    fn with_socket_for<R>(
        &mut self,
        tuple: &FourTuple,
        f: impl FnOnce(HeldSocket<'_, Self::Platform>) -> R,
    ) -> Option<R>;

    /// Makes this place the home of a socket.
    fn bind_socket(&mut self, socket: Arc<UdpShared<Self::Platform>>);

    /// Lets a socket go, and drops what it has queued.
    fn unbind_socket(&mut self, name: UdpName);

    /// Runs an event on a connection; its segments have left for the device when this returns. `None`: it has gone.
    fn work<E: Event>(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Option<(E::Reply, Effects)>;

    /// The connection of a segment was not in the table a moment ago, and is now: another thread has put it there. The
    /// segment is looked at again.
    fn appeared(&mut self, arrival: &mut ArrivingSegment, now: Time, deferred: &mut DeferredEffects<Self::Platform>);

    /// RECEIVE, in the way that costs least here. The connection has been found.
    fn receive(
        &mut self,
        found: (Self::Id, Self::Held),
        event: tcp::Receive,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
        reply: &mut Reply,
    );

    /// A call that may exhaust `bit` of the socket's readiness is about to run.
    fn before_call(&mut self, id: &Self::Id, bit: Readiness);

    /// The call has run; the bit is set now only if the call left something.
    fn after_call(&mut self, id: &Self::Id, bit: Readiness, exhausted: bool);

    /// The connection's flow.
    fn flow(&mut self, id: &Self::Id) -> Option<Flow>;

    /// The user's side of the connection.
    fn socket(&mut self, id: &Self::Id) -> Option<Arc<TcpSocket<Self::Platform>>>;

    /// Wakes the connection no later than at `deadline`. Returns when the wheel is to be turned for that, in
    /// nanoseconds; `u64::MAX` where it will be turned earlier anyway.
    fn arm(&mut self, id: &Self::Id, deadline: Time) -> u64;

    /// Wakes the connection no later than at `deadline`, and for nothing that it asked for before; answers as
    /// [`Place::arm`].
    fn rearm(&mut self, id: &Self::Id, deadline: Option<Time>) -> u64;

    /// The slots of timers that have fired, to be returned to [`Place::recycle`].
    fn expire(&mut self, now: Time) -> Vec<u32>;

    /// Gives back what [`Place::expire`] returned.
    fn recycle(&mut self, _due: Vec<u32>) {}

    /// Connections with an armed timer.
    fn armed(&mut self) -> usize;

    /// Takes the connection out of the wheel and the table; returns what it owed its listener.
    fn unlink(&mut self, id: &Self::Id) -> Option<Admission<Self::Platform>>;
}

/// What every place does with an outbox once the segments have left: wake-ups wait in `deferred`, and what concerns
/// tables and timers is returned.
#[inline(always)]
fn conclude<P: Platform>(
    shared: &Shared<P>,
    flow: &Flow,
    route: &RouteCache,
    (socket, writers): (&Arc<TcpSocket<P>>, Writers),
    out: &Outbox<'_>,
    deferred: &mut DeferredEffects<P>,
) -> Effects {
    deferred.wake(socket, out.ready, writers);
    if out.progress && shared.egress().neighbours().has_doubts() {
        shared.egress().path_works(flow.tuple.remote_addr, deferred);
    }
    if out.tx_blocked {
        shared.egress().wait_for_room(flow, route, socket.target(), deferred);
    }
    Effects { deadline: out.deadline, path: out.path, table: out.table }
}
