//! Connections that many threads share, each behind its own lock or locks: the table under one lock, a connection under
//! one, two or six ([`LockPlan`](super::pcb::LockPlan)), or owned by one thread at a time, the wheel under one.
//!
//! # The order of the locks
//! Table, then connection, then wheel. Every entry takes the table lock to find its connection.
//! [`TablePolicy::Dropped`] drops it at once and then waits for the connection. [`TablePolicy::Coupled`] does what
//! FreeBSD 7 did: it keeps the table lock *while waiting for the connection* and until the acknowledgement has been
//! processed (set-up and close: to the end), so that one busy connection stops every thread.
//!
//! # Lifetimes
//! A connection is shared (`Arc`) between the table and the threads that are inside it. Its entry in the slab, or the
//! reserved slot, becomes free when the last of them releases it. A thread that finds a connection and then waits for
//! it may find it in state CLOSED; no event harms a closed PCB. The thread that ran the event which finished a
//! connection removes it from the table, after its guards have dropped.
//!
//! What may never happen: effects of an event are performed while the table lock is held, because performing them may
//! take it; and two connections of one tuple, which is why the table lock is held from the look-up that finds none to
//! the entry of the new one.

mod connection;
mod habits;
mod handlers;
mod left;
mod processed;
mod reference;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use observe::{CounterSnapshot, Counters, PerThreadCounters, Time};
use sync::{Atomic, Guard, Lock, Ordering, PlantedMistake, Platform, Writers, class};
use tcp::{Outbox, TcpEvent};
use udp::{UdpEvent as _, UdpPcb};
use wire::FourTuple;

use super::conclude;
use super::connection::{Connection, Connections};
use super::contents::{Contents, MovingConnection, NotAtRest, Share};
use super::pcb::{ConnectionLocks, CoupledGuard, EmitContext, HeldBeside, SharedPcb, halves, six};
use super::turns::HandlerTurns;
use crate::attempt::attempt;
use crate::call::{self, OpenRefused, OpenRequest, Reply};
use crate::charge::{self, EventWork, LateCheck};
use crate::connections::{
    Arrivals, Calls, DatagramAccess, Directory, DirectoryOf, Effects, NewConnection, Place, Site, UnawaitedEvent,
    Upkeep,
};
use crate::containment::FaultScope;
use crate::deferred::{DeferredEffects, LazyEffects};
use crate::flow::{Flow, Key, UdpName};
use crate::route_cache::RouteCache;
use crate::shared::Shared;
use crate::socket::handler::HandlerState;
use crate::socket::{Admission, Readiness, TcpSocket, UdpShared};
use crate::table::index::VacantEntry;
use crate::timers::{TimerPlace, Wheel};
use crate::udp_table::{Bound, HeldSocket, Stored, StoredUdpPcb, UdpTable};

pub use connection::{LockedConnection, SharedTable};
pub use habits::{Habits, TablePolicy};
pub use left::{LeftEvent, OwnedConnection};
pub use processed::QueuesForProcessors;
pub use reference::ConnectionRef;

use left::ConnectionOwnership;

/// Connections and their tables, behind locks. Any thread.
pub struct Locked<P: Platform, R = Arc<LockedConnection<P>>> {
    shared: Arc<Shared<P>>,
    locks: ConnectionLocks,
    habits: Habits,
    table: Lock<Directory<SharedTable<P, R>, P>, P, class::ConnTable>,
    /// Datagram sockets, each with a lock of its own.
    datagrams: Lock<UdpTable<LockedDatagrams<P>, P>, P, class::ConnTable>,
    timers: Lock<Timers, P, class::Timers>,
    /// The wheel's next deadline in nanoseconds, readable without its lock.
    deadline: P::AtomicU64,
    /// The same for the half-open connections.
    half_open_deadline: P::AtomicU64,
    /// Events in the backlogs of connections.
    left: P::AtomicUsize,
    /// The threads that alone run what is left in backlogs. `None`: the owners of the connections do.
    processors: Option<Arc<dyn QueuesForProcessors<P, R>>>,
    counters: PerThreadCounters<P>,
}

/// The wheel, and the positions of the connections' entries in it, by slot.
struct Timers {
    wheel: Wheel,
    of: Vec<TimerPlace>,
}

impl Timers {
    fn arm(&mut self, slot: u32, deadline: Time) -> u64 {
        if self.of.len() <= slot as usize {
            self.of.resize(slot as usize + 1, TimerPlace::UNARMED);
        }
        self.wheel.arm(&mut self.of[slot as usize], slot, deadline)
    }

    /// Gives back the memory that a peak has left behind; slots in use are below `slots`.
    fn trim(&mut self, slots: usize) {
        self.of.truncate(slots);
        self.of.shrink_to(2 * slots);
        let Timers { wheel, of } = self;
        wheel.trim(|slot, timer| of.get_mut(slot as usize).into_iter().for_each(|place| *place = timer));
    }

    fn cancel(&mut self, slot: u32) {
        if let Some(timer) = self.of.get(slot as usize) {
            self.wheel.cancel(*timer, slot);
        }
    }
}

/// The table guard while it is kept.
type TableGuard<'a, P, R> = Option<Guard<'a, Directory<SharedTable<P, R>, P>, P, class::ConnTable>>;

/// A datagram socket behind its lock.
type LockedDatagrams<P> = Arc<Lock<StoredUdpPcb, P, class::SocketBuffer>>;

impl<P: Platform, R: ConnectionRef<P>> Locked<P, R> {
    /// An empty table, and `locks` for each connection; other locks are of the stack's kind.
    pub fn new(shared: &Arc<Shared<P>>, slab: &Arc<Connections<P>>, locks: ConnectionLocks, habits: Habits) -> Self {
        let directory = Directory::new(SharedTable::new(slab, &shared.secrets));
        let timers = Timers { wheel: Wheel::new(shared.clock().now()), of: Vec::new() };
        Locked {
            shared: shared.clone(),
            locks,
            habits,
            table: Lock::ordered(shared.lock_kind, directory),
            datagrams: Lock::ordered(shared.lock_kind, UdpTable::default()),
            timers: Lock::ordered(shared.lock_kind, timers),
            deadline: P::AtomicU64::new(u64::MAX),
            half_open_deadline: P::AtomicU64::new(u64::MAX),
            left: P::AtomicUsize::new(0),
            processors: None,
            counters: if habits.racy_counters { PerThreadCounters::racy() } else { PerThreadCounters::new() },
        }
    }

    /// Moves everything that is here to `contents`.
    ///
    /// # Errors
    /// A thread is inside a connection or a datagram socket. Nothing has been moved.
    pub(crate) fn dissolve(&self, contents: &mut Contents<P>) -> Result<(), NotAtRest> {
        if self.datagrams.lock().iter().any(|bound| Arc::strong_count(&bound.pcb) != 1) {
            return Err(NotAtRest);
        }
        let mut directory = self.table.lock();
        if directory.connections.iter().any(|connection| !connection.is_only()) {
            return Err(NotAtRest);
        }
        let mut timers = self.timers.lock_after(&directory);
        let mut deadlines: HashMap<u32, Time> = timers.wheel.entries().collect();
        contents.note_wheel_time(timers.wheel.wheel_time());
        timers.wheel = Wheel::new(self.shared.clock().now());
        self.note_deadline(&timers.wheel);
        drop(timers);
        let slots: Vec<u32> = directory.connections.iter().map(|connection| connection.key.slot).collect();
        for slot in slots {
            let admission = directory.take_admission(slot);
            let handler = directory.connections.at(slot).and_then(|connection| handlers::take(connection));
            if let Some(connection) = directory.connections.release(slot) {
                contents.connections.push(MovingConnection {
                    connection,
                    deadline: deadlines.remove(&slot),
                    admission,
                    handler,
                });
            }
        }
        contents.half_open.append(&mut directory.half_open.take());
        self.half_open_deadline.store(u64::MAX, Ordering::Relaxed);
        contents.bound_sockets = std::mem::take(&mut directory.bound_sockets);
        drop(directory);
        let bound = self.datagrams.lock().take();
        contents.datagrams.extend(bound.map(|Bound { socket, pcb }| {
            let empty = StoredUdpPcb::new(socket.local());
            Bound { socket, pcb: std::mem::replace(&mut *pcb.lock(), empty) }
        }));
        contents.counted += &self.counters.snapshot();
        self.shared.control().account().close_threads();
        Ok(())
    }

    /// Installs the contents of another architecture; this one is empty.
    pub(crate) fn install(&self, share: Share<P>) {
        let Share { connections, half_open, datagrams, bound_sockets, wheel_time } = share;
        let mut directory = self.table.lock();
        let mut timers = self.timers.lock_after(&directory);
        if let Some(wheel_time) = wheel_time {
            timers.wheel = Wheel::new(wheel_time);
        }
        for MovingConnection { connection, deadline, admission, handler } in connections {
            let connection = directory.connections.adopt(self.locks, connection);
            let slot = connection.key.slot;
            if let Some(deadline) = deadline {
                timers.arm(slot, deadline);
                connection.armed.store(deadline.as_nanos(), Ordering::Release);
            }
            if let Some(admission) = admission {
                directory.early.insert(slot, admission);
            }
            if let Some(handler) = handler {
                let _ = connection.handler.set(Box::new(HandlerTurns::new(handler)));
            }
        }
        self.note_deadline(&timers.wheel);
        directory.half_open.restore(half_open, self.shared.control().tcp(), self.shared.clock().now());
        self.half_open_deadline.store(directory.half_open.cached_deadline(), Ordering::Relaxed);
        directory.bound_sockets = bound_sockets;
        drop((directory, timers));
        let mut table = self.datagrams.lock();
        datagrams.into_iter().for_each(|Bound { socket, pcb }| table.insert(socket, self.behind_lock(pcb)));
    }

    /// Runs the timers due at `now`; takes no lock if there are none.
    pub fn tick(&self, now: Time, deferred: &mut DeferredEffects<P>) {
        let mut place = self;
        if self.half_open_deadline.load(Ordering::Relaxed) <= now.as_nanos() {
            place.half_open_timers(now, deferred);
        }
        if self.deadline.load(Ordering::Relaxed) <= now.as_nanos() {
            place.connection_timers(now, deferred);
        }
    }

    /// The counters of the calling thread.
    pub fn here(&self) -> &Counters {
        self.counters.here()
    }

    /// When [`Locked::tick`] next has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        let half_open = self.half_open_deadline.load(Ordering::Relaxed);
        let deadline = self.deadline.load(Ordering::Relaxed).min(half_open);
        (deadline != u64::MAX).then(|| Time::from_nanos(deadline))
    }

    /// Finds a connection. Returns the guard too, if the policy keeps it.
    fn look_up<'a>(
        &'a self,
        find: impl FnOnce(&mut Directory<SharedTable<P, R>, P>) -> Option<R>,
    ) -> Option<(R, TableGuard<'a, P, R>)> {
        sync::walk::note(file!(), "looks for the connection in the global table");
        charge::look_up::<P>();
        if P::makes(PlantedMistake::LookUpWithoutReference) {
            return self.look_up_in_two_steps(find);
        }
        let mut directory = self.table.lock();
        let found = find(&mut directory)?;
        let held = match self.habits.table {
            TablePolicy::Coupled => Some(directory),
            TablePolicy::Dropped => None,
        };
        Some((found, held))
    }

    /// The mistake: the reference that keeps the connection alive is taken after the lock has been released. In memory
    /// without checks the thread would then use a freed connection; here it finds that out.
    #[cold]
    fn look_up_in_two_steps<'a>(
        &'a self,
        find: impl FnOnce(&mut Directory<SharedTable<P, R>, P>) -> Option<R>,
    ) -> Option<(R, TableGuard<'a, P, R>)> {
        let key = find(&mut self.table.lock())?.key;
        let directory = self.table.lock();
        let found = directory.connections.get(key).expect("the connection that was found has been freed").clone();
        Some((found, None))
    }

    fn behind_lock(&self, pcb: StoredUdpPcb) -> LockedDatagrams<P> {
        Arc::new(Lock::ordered(self.shared.lock_kind, pcb))
    }

    /// The lock of the socket is held.
    fn with_held<T>(
        &self,
        socket: &Arc<UdpShared<P>>,
        datagrams: &mut StoredUdpPcb,
        f: impl FnOnce(HeldSocket<'_, P>) -> T,
    ) -> T {
        let (counters, shared) = (self.counters.here(), &*self.shared);
        let StoredUdpPcb { pcb, routes, .. } = datagrams;
        let result = f(HeldSocket { pcb, routes, socket, counters, shared, writers: Writers::Many });
        self.charge_datagrams(datagrams);
        result
    }

    /// Charges the growth of a datagram socket's queue; the caller holds the socket's lock.
    fn charge_datagrams(&self, datagrams: &mut StoredUdpPcb) {
        let control = self.shared.control();
        control.account().take_datagrams(control.account().here(), datagrams.growth(), control.tcp());
    }

    /// Runs an event on a connection, under its locks or by its owner.
    #[inline(always)]
    fn run_under<'a, E: TcpEvent>(
        &'a self,
        connection: &R,
        (held, owner): (TableGuard<'a, P, R>, Option<&mut ConnectionOwnership<'_, P>>),
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> (E::Reply, Option<Effects>) {
        // A hint: the thread that holds the route may be changing it; segments made for another device are then made
        // again.
        let made_for = connection.leaves_by.load(Ordering::Relaxed) as u16;
        let route = RouteCache::via_port(made_for);
        let mut out = self.shared.egress().outbox(self.shared.control(), &connection.flow, &route, &self.counters);
        let way = EmitContext {
            egress: self.shared.egress(),
            flow: &connection.flow,
            leaves_by: &connection.leaves_by,
            made_for,
            locks_routes: self.habits.locks_routes,
            deferred,
        };
        let mut beside = EventLocks { table: held, place: self, connection };
        let socket = &*connection.socket;
        charge::counted::<P>(&self.counters);
        let reply = match owner {
            Some(owner) => {
                sync::walk::note(
                    file!(),
                    "runs the event (tcp/src/event) as the owner of the connection: the whole driver",
                );
                owner.with(|whole| run_whole((whole, socket), way, &mut beside, event, &mut out, now))
            }
            None => {
                sync::walk::note(file!(), "runs the event (tcp/src/event); hold-sets take their locks");
                pass((&connection.pcb, socket), way, &mut beside, event, &mut out, now)
            }
        };
        beside.release();
        connection.charge(&self.shared, out.memory, out.standing);
        if deferred.wake(&connection.socket, out.ready, Writers::Many) {
            deferred.call_handler(&connection.socket, out.ready);
        }
        (reply, conclude(&self.shared, &connection.flow, &route, &connection.socket, &out, deferred))
    }

    fn note_deadline(&self, wheel: &Wheel) {
        self.deadline.store(wheel.next_deadline().map_or(u64::MAX, Time::as_nanos), Ordering::Relaxed);
    }
}

impl<P: Platform, R: ConnectionRef<P>> DatagramAccess for &Locked<P, R> {
    type Platform = P;

    fn shared(&self) -> &Arc<Shared<P>> {
        &self.shared
    }

    fn counters(&self) -> &Counters {
        self.counters.here()
    }

    fn with_socket<T>(&mut self, name: UdpName, f: impl FnOnce(HeldSocket<'_, P>) -> T) -> Option<T> {
        let (socket, pcb) = found(self.datagrams.lock().find(name))?;
        Some(self.with_held(&socket, &mut pcb.lock(), f))
    }

    fn with_socket_for<T>(&mut self, tuple: &FourTuple, f: impl FnOnce(HeldSocket<'_, P>) -> T) -> Option<T> {
        let (socket, pcb) = found(self.datagrams.lock().best(tuple))?;
        Some(self.with_held(&socket, &mut pcb.lock(), f))
    }

    fn bind_socket(&mut self, socket: Arc<UdpShared<P>>) {
        let pcb = self.behind_lock(StoredUdpPcb::new(socket.local()));
        self.datagrams.lock().insert(socket, pcb);
    }

    fn unbind_socket(&mut self, name: UdpName) {
        let removed = self.datagrams.lock().remove(name);
        if let Some(bound) = removed {
            let mut datagrams = bound.pcb.lock();
            udp::UdpClose.run(&mut datagrams.pcb, &mut udp::UdpOutbox::new(self.counters()));
            self.charge_datagrams(&mut datagrams);
        }
    }
}

impl<'a, P: Platform, R: ConnectionRef<P>> Place for &'a Locked<P, R> {
    type Id = R;
    type Held = TableGuard<'a, P, R>;
    type Missing = ();
    type Table = SharedTable<P, R>;
    type Layout = ConnectionLocks;
    const REARMS: bool = false;

    fn counted(&self) -> CounterSnapshot {
        self.counters.snapshot()
    }

    fn find(&mut self, tuple: &FourTuple, hash: u32) -> Result<(Self::Id, Self::Held), ()> {
        self.look_up(|directory| directory.connections.find(tuple, hash).ok().cloned()).ok_or(())
    }

    fn find_key(&mut self, key: Key) -> Option<(Self::Id, Self::Held)> {
        self.look_up(|directory| directory.connections.get(key).cloned())
    }

    fn find_due(&mut self, slot: u32) -> Option<(Self::Id, Self::Held)> {
        let (connection, held) = self.look_up(|directory| directory.connections.at(slot).cloned())?;
        connection.armed.store(u64::MAX, Ordering::Release);
        Some((connection, held))
    }

    fn with_directory<T>(&mut self, f: impl FnOnce(&mut DirectoryOf<Self>, &Site<'_, Self>) -> T) -> T {
        let mut directory = self.table.lock();
        let site = Site {
            shared: &self.shared,
            counters: &self.counters,
            layout: self.locks,
            account: self.shared.control().account().here(),
            writers: Writers::Many,
        };
        let result = f(&mut directory, &site);
        let deadline = directory.half_open.cached_deadline();
        if self.half_open_deadline.load(Ordering::Relaxed) != deadline {
            self.half_open_deadline.store(deadline, Ordering::Relaxed);
        }
        result
    }

    /// While one thread waited for the lock, another may have completed the handshake.
    fn absent(directory: &mut DirectoryOf<Self>, (): (), flow: &Flow) -> Option<VacantEntry> {
        directory.connections.find(&flow.tuple, flow.hash).err()
    }

    fn slot(directory: &mut DirectoryOf<Self>, id: &Self::Id) -> Option<u32> {
        let slot = id.socket.slot()?;
        directory.connections.at(slot).is_some_and(|found| found.is(id)).then_some(slot)
    }

    fn those(&mut self, concerns: impl Fn(&Flow) -> bool) -> Vec<Self::Id> {
        let all = self.with_directory(|directory, _| directory.connections.iter().cloned().collect::<Vec<_>>());
        all.into_iter().filter(|connection| concerns(&connection.flow)).collect()
    }

    fn user(directory: &mut DirectoryOf<Self>, slot: u32) -> Option<Arc<TcpSocket<P>>> {
        directory.connections.at(slot).map(|connection| connection.socket.clone())
    }

    fn tally(directory: &DirectoryOf<Self>) -> (usize, usize) {
        let each = size_of::<LockedConnection<P>>() + 2 * size_of::<usize>() + size_of::<TcpSocket<P>>();
        (directory.connections.len(), directory.connections.footprint() + directory.connections.len() * each)
    }

    fn insert(
        directory: &mut DirectoryOf<Self>,
        site: &Site<'_, Self>,
        new: NewConnection<'_, P>,
        absent: VacantEntry,
    ) -> Option<(Self::Id, Key)> {
        let connection = directory.connections.insert(site, new, absent)?;
        let key = connection.key;
        Some((connection, key))
    }

    /// The PCB is opened before any other thread can find it, so no lock of its own is taken.
    fn open(
        directory: &mut DirectoryOf<Self>,
        site: &Site<'_, Self>,
        request: &mut OpenRequest<P>,
        absent: VacantEntry,
        now: Time,
        (effects, deferred): (&mut Option<Effects>, &mut DeferredEffects<P>),
    ) -> Result<(Self::Id, Key), OpenRefused> {
        let flow = request.flow();
        let OpenRequest { params, generation, socket, fast_open, .. } = request;
        let socket = socket.get_or_insert_with(|| TcpSocket::new(flow)).clone();
        let fast_open = fast_open.take();
        let mut route = directory.half_open.routes.recall(flow.tuple.remote_addr, *generation);
        let opened = attempt(|| {
            let mut out = site.shared.egress().outbox(site.shared.control(), &flow, &route, site.counters);
            let pcb = call::open(params, fast_open, &mut out, now);
            site.shared.egress().emit(&flow, &mut route, &mut out, deferred);
            *effects = Effects::of(&out);
            Some(pcb)
        });
        let mut pcb = opened.map_err(|panic| {
            site.shared.failures.note(panic, FaultScope::Connection(flow.tuple), site.counters);
            OpenRefused::Fault
        })?;
        let new = NewConnection { flow, pcb: &mut pcb, route, socket };
        let (id, key) = Self::insert(directory, site, new, absent).ok_or(OpenRefused::Fault)?;
        id.socket.placed(key);
        directory.half_open.routes.note(flow.tuple.remote_addr, &route);
        Ok((id, key))
    }

    fn admit(&mut self, connection: &Self::Id, event: UnawaitedEvent<'_>, now: Time) -> bool {
        Locked::admit(self, connection, event, now)
    }

    fn work<E: TcpEvent>(
        &mut self,
        connection: &Self::Id,
        held: Self::Held,
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<(E::Reply, Option<Effects>)> {
        let SharedPcb::Owned(owned) = &connection.pcb else {
            return Some(self.run_under(connection, (held, None), event, now, deferred));
        };
        if self.processors.is_some() {
            return Some(self.work_beside_processor((connection, owned), held, event, now, deferred));
        }
        let mut owner = owned.own();
        let done = self.run_under(connection, (held, Some(&mut owner)), event, now, deferred);
        self.let_go(connection, owner, deferred);
        Some(done)
    }

    fn appeared(&mut self, arrival: &mut call::ArrivingSegment, now: Time, deferred: &mut DeferredEffects<P>) {
        let segment = arrival.segment.take();
        self.ingress(&mut call::Ingress::Segment(call::ArrivingSegment { segment, ..*arrival }), now, deferred);
    }

    fn receive<By>(
        &mut self,
        (id, held): (Self::Id, Self::Held),
        event: tcp::Receive,
        now: impl FnOnce() -> Time,
        deferred: &mut LazyEffects<'_, P>,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        match self.serve(&id, held, call::Call::Receive(event), now(), deferred.record()) {
            Reply::Received(taken) => Some(taken.map(|taken| *received = taken)),
            _ => None,
        }
    }

    /// Cleared before the call and set again after it: between the hold-sets of a staged event another thread may add
    /// data.
    fn before_call(&mut self, id: &Self::Id, bit: Readiness) {
        id.socket.ready.clear(bit);
    }

    fn after_call(&mut self, id: &Self::Id, bit: Readiness, exhausted: bool) {
        if !exhausted {
            id.socket.ready.restore(bit);
        }
    }

    fn keep_handler(&mut self, id: &Self::Id, handler: Box<HandlerState<P>>) {
        let set = id.handler.set(Box::new(HandlerTurns::new(handler)));
        debug_assert!(set.is_ok(), "a connection is given its handler once");
    }

    fn has_handler_timer(&mut self, id: &Self::Id) -> bool {
        id.socket.ready.is_handled()
    }

    fn abort_handler(&mut self, id: &Self::Id, now: Time, deferred: &mut DeferredEffects<P>) {
        Locked::abort_handler(self, id, now, deferred);
    }

    fn flow(&mut self, id: &Self::Id) -> Option<Flow> {
        Some(id.flow)
    }

    fn socket(&mut self, id: &Self::Id) -> Option<Arc<TcpSocket<P>>> {
        Some(id.socket.clone())
    }

    fn arm(&mut self, id: &Self::Id, deadline: Time) -> u64 {
        let Some(slot) = id.socket.slot().filter(|_| id.takes_entry(deadline.as_nanos())) else { return u64::MAX };
        let mut timers = self.timers.lock();
        charge::table::<P, _>(Some(&timers.wheel), true);
        let due = timers.arm(slot, deadline);
        self.note_deadline(&timers.wheel);
        due
    }

    /// Was done while the connection was held (`EventLocks::cancel_wake_up`): by now another thread may have armed the entry.
    fn rearm(&mut self, _: &Self::Id, _: Option<Time>) -> u64 {
        u64::MAX
    }

    fn expire(&mut self, now: Time) -> Vec<u32> {
        let mut due = Vec::new();
        let mut timers = self.timers.lock();
        timers.wheel.expire(now, &mut due);
        self.note_deadline(&timers.wheel);
        due
    }

    fn armed(&mut self) -> usize {
        self.timers.lock().wheel.len()
    }

    fn trim(&mut self) {
        let mut directory = self.table.lock();
        directory.trim();
        directory.connections.trim();
        let slots = directory.connections.slots();
        self.timers.lock_after(&directory).trim(slots);
    }

    /// The entry in the wheel is removed before the slot. A thread that arms a timer for the connection later leaves an
    /// entry that finds the slot free, or wakes the slot's next connection without effect.
    fn unlink(&mut self, id: &Self::Id) -> Option<Admission<P>> {
        let mut directory = self.table.lock();
        let slot = Self::slot(&mut directory, id)?;
        self.timers.lock_after(&directory).cancel(slot);
        directory.connections.remove(slot);
        id.discharge(&self.shared);
        directory.take_admission(slot)
    }
}

/// A datagram socket that was found, for use after the table has been released.
fn found<P: Platform>(
    bound: Option<&mut Bound<LockedDatagrams<P>, P>>,
) -> Option<(Arc<UdpShared<P>>, LockedDatagrams<P>)> {
    bound.map(|bound| (bound.socket.clone(), bound.pcb.clone()))
}

impl<P: Platform> Stored for LockedDatagrams<P> {
    fn look<R>(&self, f: impl FnOnce(&UdpPcb) -> R) -> R {
        f(&self.lock().pcb)
    }
}

/// Locks and timers that an event may release or cancel while it holds the connection.
struct EventLocks<'a, P: Platform, R> {
    table: TableGuard<'a, P, R>,
    place: &'a Locked<P, R>,
    connection: &'a LockedConnection<P>,
}

impl<P: Platform, R: ConnectionRef<P>> HeldBeside for EventLocks<'_, P, R> {
    #[inline(always)]
    fn release(&mut self) {
        self.table = None;
    }

    fn is_held(&self) -> bool {
        self.table.is_some()
    }

    /// A thread that arms an entry for a later event of the connection does so after this.
    #[cold]
    fn cancel_wake_up(&mut self) {
        let Some(slot) = self.connection.socket.slot() else { return };
        let mut timers = self.place.timers.lock();
        self.connection.armed.store(u64::MAX, Ordering::Release);
        timers.cancel(slot);
    }
}

/// Runs an event on a whole connection, which the calling thread has for itself.
#[inline(always)]
fn run_whole<P: Platform, R: ConnectionRef<P>, E: TcpEvent>(
    (whole, socket): (&mut Connection<P>, &TcpSocket<P>),
    mut way: EmitContext<'_, P>,
    held: &mut EventLocks<'_, P, R>,
    event: E,
    out: &mut Outbox<'_>,
    now: Time,
) -> E::Reply {
    charge::event::<P, _, _, _>(whole, socket, &event);
    let late = LateCheck::of::<P, _>(&event, out.counters);
    let mut pcb = CoupledGuard { pcb: &mut whole.pcb, held };
    let reply = event.run(&mut pcb, out, now);
    late.end::<P>(out.counters);
    way.emit(&mut whole.route, out);
    reply
}

/// Runs an event on a PCB under its locks; the table guard, if kept, is dropped during the event.
fn pass<P: Platform, R: ConnectionRef<P>, E: TcpEvent>(
    (pcb, socket): (&SharedPcb<P>, &TcpSocket<P>),
    way: EmitContext<'_, P>,
    held: &mut EventLocks<'_, P, R>,
    event: E,
    out: &mut Outbox<'_>,
    now: Time,
) -> E::Reply {
    match pcb {
        SharedPcb::Single(single) => {
            let mut whole = single.lock();
            run_whole((&mut **whole, socket), way, held, event, out, now)
        }
        SharedPcb::Owned(_) => unreachable!("its owner runs its events"),
        SharedPcb::Halves(pcb, _) => {
            let mut guard = halves::HalvesGuard { pcb, way, held, work: EventWork::of(&event) };
            let reply = event.run(&mut guard, out, now);
            guard.work.end::<P, _>(socket);
            reply
        }
        SharedPcb::Six(pcb, _) => {
            let mut guard = six::SixGuard { pcb, way, held, work: EventWork::of(&event) };
            let reply = event.run(&mut guard, out, now);
            guard.work.end::<P, _>(socket);
            reply
        }
    }
}
