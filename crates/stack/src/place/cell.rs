//! A cell: connections that one runner at a time may touch, as plain data behind `&mut`.
//!
//! The architectures with exclusive cells differ only in *how* a thread gets that `&mut`: it owns the cell, took a
//! lock, won a flag. Segments are emitted before an event returns, while the cell is still held; wake-ups are left in
//! [`DeferredEffects`] until it is released.
//!
//! What may never happen here: a wait, a lock of another cell, a wake-up.

use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::Arc;

use observe::{Counters, DropReason, Time};
use path::ArrivingFlow;
use sync::{CachePadded, Platform, Writers};
use tcp::{LimitClass, Pcb, TcpEvent};
use udp::UdpEvent as _;
use wire::{FlowMark, FourTuple};

use super::channels::Channels;
use super::connection::{Connection, ConnectionSocket, Connections, OwnedTable, PrefetchPass};
use super::contents::{Contents, MovingConnection, Share};
use super::handlers::{self, Handlers};
use super::waiting::WAITS;
use super::{conclude, conclude_locally};
use crate::account;
use crate::active_flows::CACHED;
use crate::attempt::attempt;
use crate::call::{ArrivingSegment, OpenRefused, OpenRequest};
use crate::charge;
use crate::connections::{DatagramAccess, Directory, DirectoryOf, Effects, Events, NewConnection, Place, Site};
use crate::containment::FaultScope;
use crate::deferred::{DeferredEffects, LazyEffects, SendEffects};
use crate::flow::{Flow, Key, UdpName};
use crate::shared::Shared;
use crate::socket::handler::HandlerState;
use crate::socket::{Admission, Readiness, TcpSocket, UdpShared};
use crate::table::flow_bindings::{CellBindings, FlowBindings};
use crate::table::index::VacantEntry;
use crate::timers::{TimerPlace, Wheel};
use crate::udp_table::{Bound, HeldSocket, StoredUdpPcb, UdpTable};

/// How many of `cells` cells each of `threads` threads uses, if each has its share.
fn cells_of_thread(cells: usize, threads: usize) -> u32 {
    u32::try_from(cells / threads.max(1)).unwrap_or(u32::MAX).max(1)
}

/// A shard of connections with its tables, timers and counters.
///
/// What each event touches comes first, in two cache lines: a thread may use many cells.
#[repr(C)]
pub struct Cell<P: Platform> {
    pub(super) shared: Arc<Shared<P>>,
    /// Where the account of its connections is kept.
    pub(super) account: Arc<CachePadded<account::AccountEntry<P>>>,
    /// See [`Cell::deadline_nanos`].
    deadline: u64,
    /// How many cells a thread that uses it uses.
    cells_of_thread: u32,
    /// Whether state published for other threads is written by plain stores.
    writers: Writers,
    /// The handlers of connections.
    pub(super) handlers: Handlers<P>,
    /// Its first fields are the second line.
    pub(super) directory: Directory<OwnedTable<P>, P>,
    pub(super) wheel: Wheel,
    /// Buffer for the slots that are due, reused.
    due: Vec<u32>,
    datagrams: UdpTable<StoredUdpPcb, P>,
    /// The channels of connections: data passes between the user and this cell without a call.
    pub(super) channels: Channels<P>,
    pub(super) counters: Counters,
}

// The two lines.
const _: () = {
    let second = offset_of!(Cell<sync::Real>, directory);
    assert!(second <= 64 && second + OwnedTable::<sync::Real>::OF_EACH_EVENT <= 128);
};

impl<P: Platform> Cell<P> {
    /// Segments of these flows are about to arrive, one after another. If the cell has more connections than the
    /// processor's caches hold, asks for theirs, and returns how many those are.
    pub(crate) fn expect(&mut self, flows: &[ArrivingFlow]) -> usize {
        if !self.is_of_more_than(CACHED as usize) {
            return 0;
        }
        let (connections, marks) = (&self.directory.connections, || flows.iter().map(|flow| flow.mark));
        PrefetchPass::ALL.into_iter().map(|pass| connections.prefetch(pass, marks())).sum()
    }

    /// Whether the thread that uses it has more connections than so many, all its cells together.
    #[inline(always)]
    fn is_of_more_than(&self, connections: usize) -> bool {
        self.directory.connections.len() * self.cells_of_thread as usize > connections
    }

    /// Whether the caches of the calling thread are taken not to hold all connections that it uses here and in its other cells.
    #[inline(always)]
    fn is_large(&self, deferred: &DeferredEffects<P>) -> bool {
        self.is_of_more_than(deferred.cached()) && self.directory.connections.slab().may_have_had(CACHED)
    }

    /// One pass of [`Cell::expect`] for one flow.
    #[inline(always)]
    pub(crate) fn expect_one(&mut self, pass: PrefetchPass, mark: FlowMark) -> usize {
        let asks = self.is_of_more_than(CACHED as usize);
        if asks { self.directory.connections.prefetch(pass, std::iter::once(mark)) } else { 0 }
    }

    /// An empty cell that threads use in turn, one of `cells` cells that `threads` threads use. Flows are hashed to cells, so each has
    /// about as many connections as the others: those of one tell how many a thread serves.
    pub fn of_threads(shared: &Arc<Shared<P>>, slab: &Arc<Connections<P>>, (cells, threads): (usize, usize)) -> Self {
        Cell { cells_of_thread: cells_of_thread(cells, threads), ..Cell::new(shared, slab, Writers::Many) }
    }

    /// An empty cell over the stack's slab. `writers`: `Writers::One` if only the thread that uses the cell changes its
    /// published state, that is, if its connections have no channels.
    pub fn new(shared: &Arc<Shared<P>>, slab: &Arc<Connections<P>>, writers: Writers) -> Self {
        Cell {
            shared: shared.clone(),
            directory: Directory::new(OwnedTable::new(slab, &shared.secrets)),
            account: shared.control().account().open(),
            deadline: u64::MAX,
            cells_of_thread: 1,
            writers,
            handlers: Handlers::new(),
            datagrams: UdpTable::default(),
            wheel: Wheel::new(shared.clock().now()),
            due: Vec::new(),
            channels: Channels::new(),
            counters: Counters::new(),
        }
    }

    /// From now on state published for other threads is written by plain stores or not, as [`Cell::new`] says.
    pub(crate) fn publish_as(&mut self, writers: Writers) {
        self.writers = writers;
    }

    /// Whether it is written by plain stores.
    #[inline(always)]
    pub(crate) fn is_published_plainly(&self) -> bool {
        self.writers == Writers::One
    }

    /// This is the cell with this index of those to which flows are bound. It has nothing yet.
    pub(crate) fn bind(&mut self, bindings: &Arc<FlowBindings<P>>, index: usize) {
        self.directory.connections.bindings = CellBindings::of(bindings, index);
        self.directory.half_open.bindings = CellBindings::of(bindings, index);
    }

    /// Half-open connections.
    pub fn half_open(&self) -> usize {
        self.directory.half_open.len()
    }

    /// Whether the connection in `slot` has a handler.
    #[inline(always)]
    pub fn is_handled(&mut self, slot: u32) -> bool {
        self.directory.connections.at(slot).is_some_and(|connection| connection.socket.ready.is_handled())
    }

    /// When [`Upkeep::timers`](crate::connections::Upkeep::timers) next has something to do, in nanoseconds; `u64::MAX`
    /// when nothing is armed. One load.
    #[inline]
    pub fn deadline_nanos(&self) -> u64 {
        debug_assert_eq!(self.deadline, self.earliest(), "a deadline was not noted");
        self.deadline
    }

    fn earliest(&self) -> u64 {
        self.wheel.cached_deadline().min(self.directory.half_open.cached_deadline())
    }

    /// The deadline of the wheel, or of half-open connections, has perhaps changed.
    #[inline(always)]
    pub(super) fn note_deadline(&mut self) {
        self.deadline = self.earliest();
    }
}

/// Notes the deadline of a cell after a use of its directory, also on panic.
struct NotedDeadline<'a, P: Platform>(&'a mut Cell<P>);

impl<P: Platform> Drop for NotedDeadline<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.note_deadline();
    }
}

/// The context of a connection in a cell. Last: [`Cell::is_large`].
type Around<'a, P> = (&'a Shared<P>, &'a Counters, &'a account::AccountEntry<P>, Writers, bool);

/// The handlers of a cell, and the slot of the connection that has its handler called.
type HandlerOf<'a, P> = (&'a mut Handlers<P>, u32);

/// Runs an event on a connection of a cell. If the connection has a handler (in `handler`, by its slot), that is called
/// before the segments leave, and its data leaves with them.
#[inline(always)]
fn work<P: Platform, E: TcpEvent>(
    connection: &mut Connection<P>,
    around: Around<'_, P>,
    handler: Option<HandlerOf<'_, P>>,
    event: E,
    now: Time,
    deferred: &mut DeferredEffects<P>,
) -> (E::Reply, Option<Effects>) {
    let (shared, counters, ..) = around;
    let mut out = shared.egress().outbox(shared.control(), &connection.flow, &connection.route, counters);
    sync::walk::note(file!(), "runs the event (tcp/src/event) on the PCB: the whole driver");
    charge::event::<P, _, _, _>(connection, &**connection.socket, &event);
    charge::counted::<P>(counters);
    let late = charge::LateCheck::of::<P, _>(&event, counters);
    let reply = event.run(&mut connection.pcb, &mut out, now);
    late.end::<P>(counters);
    let effects = perform(connection, around, handler, &mut out, now, deferred);
    std::mem::forget(out);
    (reply, effects)
}

/// The second half of the arrival of a predicted segment: what is to be sent, and what the connection's handler sends.
#[inline(never)]
fn answer<P: Platform>(
    connection: &mut Connection<P>,
    around: Around<'_, P>,
    handler: HandlerOf<'_, P>,
    local: tcp::LocalEffects<'_>,
    predicted: tcp::Predicted,
    now: Time,
    deferred: &mut DeferredEffects<P>,
) -> Option<Effects> {
    let (shared, _, _, writers, large) = around;
    let mut out = shared.egress().outbox_with(local, &connection.flow, &connection.route);
    predicted.send(&mut connection.pcb, &mut out, now);
    if connection.socket.ready.is_handled() {
        if !out.ready.is_empty() {
            connection.socket.ready.rise_handled(out.ready, writers);
            let (handlers, slot) = handler;
            handlers.run(slot, (&connection.flow, &mut connection.pcb, &mut out), (shared, now), deferred);
        }
    } else {
        deferred.wake_amid(&connection.socket, out.ready, writers, || connection.surroundings(large));
    }
    shared.egress().emit_one(&connection.flow, &mut connection.route, &mut out, deferred);
    let effects = finish(connection, around, &mut out, deferred);
    std::mem::forget(out);
    effects
}

/// Performs what an event on a connection has left in its outbox, which owns nothing then: dropping it would be a call that does
/// nothing.
#[inline(always)]
fn perform<P: Platform>(
    connection: &mut Connection<P>,
    around: Around<'_, P>,
    handler: Option<HandlerOf<'_, P>>,
    out: &mut tcp::Outbox<'_>,
    now: Time,
    deferred: &mut DeferredEffects<P>,
) -> Option<Effects> {
    let (shared, _, _, writers, large) = around;
    if deferred.wake_amid(&connection.socket, out.ready, writers, || connection.surroundings(large))
        && let Some((handlers, slot)) = handler
    {
        handlers.run_rarely(slot, (&connection.flow, &mut connection.pcb, &mut *out), (shared, now), deferred);
    }
    if !out.segments.is_empty() {
        shared.egress().emit(&connection.flow, &mut connection.route, out, deferred);
    }
    finish(connection, around, out, deferred)
}

/// Performs what is left in an outbox when the user was notified and the segments have left.
#[inline(always)]
fn finish<P: Platform>(
    connection: &mut Connection<P>,
    around: Around<'_, P>,
    out: &mut tcp::Outbox<'_>,
    deferred: &mut DeferredEffects<P>,
) -> Option<Effects> {
    let (shared, _, account, ..) = around;
    let effects = conclude(shared, &connection.flow, &connection.route, &connection.socket, out, deferred);
    enter_memory(shared, account, connection, out.memory);
    if let Some(standing) = out.standing
        && standing != connection.charge.standing
    {
        shared.control().account().count(account, &mut connection.charge, standing, out.config);
    }
    if let Some(spare) = out.spare.take() {
        drop(spare);
    }
    if !out.segments.is_empty() || out.segments.spilled() {
        drop(std::mem::take(&mut out.segments));
    }
    effects
}

/// The connection's buffers have grown by so many bytes.
#[inline(always)]
fn enter_memory<P: Platform>(
    shared: &Shared<P>,
    account: &account::AccountEntry<P>,
    connection: &mut Connection<P>,
    bytes: i64,
) {
    if bytes != 0 {
        shared.control().account().take_memory(account, &mut connection.charge, bytes, shared.control().tcp());
    }
}

/// Uses a datagram socket of a cell, and enters the growth of its queue.
#[inline(always)]
fn hold<P: Platform, R>(
    Bound { socket, pcb: datagrams }: &mut Bound<StoredUdpPcb, P>,
    (shared, counters, account, writers, _): Around<'_, P>,
    f: impl FnOnce(HeldSocket<'_, P>) -> R,
) -> R {
    let StoredUdpPcb { pcb, routes, .. } = datagrams;
    let result = f(HeldSocket { pcb, routes, socket, counters, shared, writers });
    shared.control().account().take_datagrams(account, datagrams.growth(), shared.control().tcp());
    result
}

impl<P: Platform> DatagramAccess for Cell<P> {
    type Platform = P;

    #[inline(always)]
    fn shared(&self) -> &Arc<Shared<P>> {
        &self.shared
    }

    #[inline(always)]
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn with_socket<R>(&mut self, name: UdpName, f: impl FnOnce(HeldSocket<'_, P>) -> R) -> Option<R> {
        let bound = self.datagrams.find(name)?;
        Some(hold(bound, (&self.shared, &self.counters, &self.account, self.writers, false), f))
    }

    fn with_socket_for<R>(&mut self, tuple: &FourTuple, f: impl FnOnce(HeldSocket<'_, P>) -> R) -> Option<R> {
        let bound = self.datagrams.best(tuple)?;
        Some(hold(bound, (&self.shared, &self.counters, &self.account, self.writers, false), f))
    }

    fn bind_socket(&mut self, socket: Arc<UdpShared<P>>) {
        let pcb = StoredUdpPcb::new(socket.local());
        self.datagrams.insert(socket, pcb);
    }

    fn unbind_socket(&mut self, name: UdpName) {
        if let Some(mut bound) = self.datagrams.remove(name) {
            udp::UdpClose.run(&mut bound.pcb.pcb, &mut udp::UdpOutbox::new(&self.counters));
            let control = self.shared.control();
            control.account().take_datagrams(&self.account, bound.pcb.growth(), control.tcp());
        }
    }
}

impl<P: Platform> Place for Cell<P> {
    /// Its slot.
    type Id = u32;
    type Held = ();
    type Missing = VacantEntry;
    type Table = OwnedTable<P>;
    type Layout = ();
    const REARMS: bool = true;

    #[inline(always)]
    fn find(&mut self, tuple: &FourTuple, hash: u32) -> Result<(u32, ()), VacantEntry> {
        match self.directory.connections.recall(tuple, hash) {
            Some(slot) => Ok((slot, ())),
            None => self.search(tuple, hash),
        }
    }

    #[inline(always)]
    fn find_key(&mut self, key: Key) -> Option<(u32, ())> {
        self.directory.connections.has(key).then_some((key.slot, ()))
    }

    #[inline]
    fn find_due(&mut self, slot: u32) -> Option<(u32, ())> {
        Some((slot, ()))
    }

    #[inline(always)]
    fn with_directory<R>(&mut self, f: impl FnOnce(&mut DirectoryOf<Self>, &Site<'_, Self>) -> R) -> R {
        let noted = NotedDeadline(self);
        let Cell { shared, directory, counters, account, writers, .. } = &mut *noted.0;
        f(directory, &Site { shared, counters, layout: (), account, writers: *writers })
    }

    #[inline]
    fn absent(_: &mut DirectoryOf<Self>, missing: VacantEntry, _: &Flow) -> Option<VacantEntry> {
        Some(missing)
    }

    #[inline]
    fn slot(_: &mut DirectoryOf<Self>, id: &u32) -> Option<u32> {
        Some(*id)
    }

    fn those(&mut self, concerns: impl Fn(&Flow) -> bool) -> Vec<u32> {
        self.revive_those(&concerns);
        let connections = &mut self.directory.connections;
        let slots = connections.slots().into_iter();
        slots.filter(|slot| connections.at(*slot).is_some_and(|connection| concerns(&connection.flow))).collect()
    }

    fn user(directory: &mut DirectoryOf<Self>, slot: u32) -> Option<Arc<TcpSocket<P>>> {
        directory.connections.at(slot).map(|connection| Arc::clone(&connection.socket))
    }

    fn tally(directory: &DirectoryOf<Self>) -> (usize, usize) {
        (directory.connections.len(), directory.connections.footprint())
    }

    #[inline(always)]
    fn new_socket(directory: &mut DirectoryOf<Self>, flow: &Flow) -> Arc<TcpSocket<P>> {
        directory.connections.sockets.take(flow)
    }

    #[inline(always)]
    fn insert(
        directory: &mut DirectoryOf<Self>,
        site: &Site<'_, Self>,
        new: NewConnection<'_, P>,
        absent: VacantEntry,
    ) -> Option<(u32, Key)> {
        let NewConnection { flow, pcb, route, socket } = new;
        if pcb.is_none() {
            return None;
        }
        let key = directory.connections.insert(absent, &flow, || Connection {
            hash: absent,
            timer: TimerPlace::UNARMED,
            flow,
            socket: ConnectionSocket::new(socket),
            route,
            charge: account::Charge::default(),
            // Moved once, to where it stays.
            pcb: pcb.take().expect("there is one"),
        });
        if let Some(Connection { charge, pcb, .. }) = directory.connections.at(key.slot) {
            site.shared.control().account().begin(site.account, charge, pcb, site.shared.control().tcp());
        }
        Some((key.slot, key))
    }

    /// The PCB is made where it will stay, and opened there.
    #[inline(always)]
    fn open(
        directory: &mut DirectoryOf<Self>,
        site: &Site<'_, Self>,
        request: &mut OpenRequest<P>,
        absent: VacantEntry,
        now: Time,
        (effects, deferred): (&mut Option<Effects>, &mut DeferredEffects<P>),
    ) -> Result<(u32, Key), OpenRefused> {
        let flow = request.flow();
        directory.half_open.conceal(&flow);
        let route = directory.half_open.routes.recall(flow.tuple.remote_addr, request.generation);
        let recalled = route.generation;
        let OpenRequest { params, socket, fast_open, .. } = request;
        let socket = &*socket.get_or_insert_with(|| directory.connections.sockets.take(&flow));
        socket.ready.begin(Readiness::NONE, site.writers);
        let (socket, fast_open) = (socket.clone(), fast_open.take());
        let unopened = || Pcb::unopened(params, site.shared.control().tcp(), now);
        let key = directory.connections.insert(absent, &flow, || Connection {
            hash: absent,
            timer: TimerPlace::UNARMED,
            flow,
            socket: ConnectionSocket::new(socket),
            route,
            charge: account::Charge::default(),
            pcb: unopened(),
        });
        let connection = directory.connections.at(key.slot).ok_or(OpenRefused::Fault)?;
        connection.socket.placed(key);
        let around = (site.shared, site.counters, site.account, site.writers, false);
        let open = || *effects = work(connection, around, None, tcp::Open(fast_open), now, deferred).1;
        if let Err(panic) = attempt(open) {
            connection.socket.abort();
            site.shared.control().account().discharge(site.account, connection.charge, site.shared.control().tcp());
            directory.connections.free(key.slot);
            site.shared.failures.note(panic, FaultScope::Connection(flow.tuple), site.counters);
            return Err(OpenRefused::Fault);
        }
        if connection.route.generation != recalled {
            directory.half_open.routes.note(flow.tuple.remote_addr, &connection.route);
        }
        Ok((key.slot, key))
    }

    #[inline(always)]
    fn work<E: TcpEvent>(
        &mut self,
        slot: &u32,
        (): (),
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<(E::Reply, Option<Effects>)> {
        let large = self.is_large(deferred);
        let connection = self.directory.connections.at(*slot)?;
        let around = (&*self.shared, &self.counters, &**self.account, self.writers, large);
        Some(work(connection, around, Some((&mut self.handlers, *slot)), event, now, deferred))
    }

    /// A predicted segment needs an outbox only if something may be sent: few events of a user that reads and writes later have
    /// anything to send.
    #[inline(always)]
    fn arrives(
        &mut self,
        slot: &u32,
        (): (),
        segment: &mut Option<tcp::Segment>,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<Box<tcp::Segment>> {
        let event = tcp::SegmentArrives(segment);
        if P::CHARGED {
            // What an event is charged with, it is charged with before it runs.
            return self.run(slot, (), event, now, deferred).and_then(tcp::Disposition::recycled);
        }
        let large = self.is_large(deferred);
        let connection = self.directory.connections.at(*slot)?;
        let socket = &*connection.socket;
        if socket.ready.is_handled() && self.handlers.take_at_once(*slot) {
            return self.exchange(*slot, event, now, deferred);
        }
        let control = self.shared.control();
        let mut local = tcp::LocalEffects::new(control.tcp(), &self.counters, control.scarcity());
        let predicted = match event.predict(&mut connection.pcb, &mut local, now) {
            Ok(predicted) => predicted,
            Err(event) => return self.arrives_unpredicted(slot, event, now, deferred),
        };
        sync::walk::note(file!(), "runs the event (tcp/src/event) on the PCB: the whole driver");
        if predicted.has_to_send() || !local.ready.is_empty() && socket.ready.is_handled() {
            let (handler, around) =
                ((&mut self.handlers, *slot), (&*self.shared, &self.counters, &**self.account, self.writers, large));
            if let Some(effects) = answer(connection, around, handler, local, predicted, now, deferred) {
                self.settle_later(slot, effects, now, deferred);
            }
            return None;
        }
        let around = || connection.surroundings(large);
        let called = deferred.wake_amid(socket, local.ready, self.writers, around);
        debug_assert!(!called, "a connection is given a handler by the thread that uses the cell");
        conclude_locally(&self.shared, &connection.flow, &local, deferred);
        enter_memory(&self.shared, &self.account, connection, local.memory);
        if let Some(spare) = local.spare.take() {
            drop(spare);
        }
        if let Some(deadline) = local.deadline {
            let due = self.arm(slot, deadline);
            self.call_for(due, deferred);
        }
        None
    }

    /// Cannot happen in a cell: while one thread holds it, no other changes the table.
    #[cold]
    fn appeared(&mut self, _: &mut ArrivingSegment, _: Time, _: &mut DeferredEffects<P>) {
        debug_assert!(false, "a cell is changed by the thread that holds it");
        self.counters.count_drop(DropReason::TcpNoListener);
    }

    /// Taking payload usually changes only the receive side and sends nothing, so it needs no outbox.
    #[inline(always)]
    fn receive<By>(
        &mut self,
        (slot, ()): (u32, ()),
        event: tcp::Receive,
        now: impl FnOnce() -> Time,
        deferred: &mut LazyEffects<'_, P>,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        let connection = self.directory.connections.at(slot)?;
        charge::event::<P, _, _, _>(connection, &**connection.socket, &event);
        // Beside the result: moved out of it, it would cost every call more than all else here.
        let mut rest = None;
        let taken = attempt(|| rest = event.take(&mut connection.pcb.parts(), received).err());
        if received.memory != 0 {
            let given_back = -i64::from(received.memory);
            self.shared.control().account().take_memory(
                &self.account,
                &mut connection.charge,
                given_back,
                self.shared.control().tcp(),
            );
        }
        if let Err(panic) = taken {
            self.contain(&slot, panic, now(), deferred.record());
            return None;
        }
        match rest {
            None => Some(Ok(())),
            Some(rest) => self.receive_rest(slot, rest, now(), deferred.record()),
        }
    }

    #[inline(always)]
    fn send_alone(&mut self, slot: &u32, event: &mut tcp::Send, now: Time, effects: &mut SendEffects<P>) -> u32 {
        let Some(connection) = self.directory.connections.at(*slot) else { return 0 };
        let shared = &*self.shared;
        let Some(way) = shared.egress().known_way(&connection.flow, &connection.route) else { return 0 };
        let Some(context) = way.context(shared.control(), &self.counters) else { return 0 };
        let Some(piece) = event.piece_alone(&connection.pcb, &context) else { return 0 };
        sync::walk::note(file!(), "runs the event (tcp/src/event) on the PCB: the whole driver");
        charge::event::<P, _, _, _>(&*connection, &**connection.socket, &&mut *event);
        charge::counted::<P>(&self.counters);
        let Some(sent) = event.leave_alone(piece, &mut connection.pcb, &context, now) else { return 0 };
        let tcp::SentAlone { segment, accepted, memory, wake } = sent;
        way.transmit(segment, &connection.flow, &self.counters, effects.emission());
        let (account, charge) = (shared.control().account(), &mut connection.charge);
        account.take_memory(&self.account, charge, memory.into(), context.config);
        if let Some(wake) = wake {
            self.wake_for_send(slot, wake, effects);
        }
        accepted
    }

    #[inline(always)]
    fn before_call(&mut self, _: &u32, _: Readiness) {}

    /// Still inside the cell, or an edge could be lost.
    #[inline(always)]
    fn after_call(&mut self, slot: &u32, bit: Readiness, exhausted: bool) {
        if exhausted && let Some(connection) = self.directory.connections.at(*slot) {
            connection.socket.ready.clear_as(bit, self.writers);
        }
    }

    fn keep_handler(&mut self, slot: &u32, handler: Box<HandlerState<P>>) {
        self.handlers.put(*slot, handler);
    }

    #[inline]
    fn has_handler_timer(&mut self, slot: &u32) -> bool {
        self.handlers.deadline(*slot).is_some()
    }

    fn abort_handler(&mut self, slot: &u32, now: Time, deferred: &mut DeferredEffects<P>) {
        if let Some(handler) = self.handlers.take(*slot)
            && let Some(flow) = self.flow(slot)
        {
            handlers::abort(handler, (&self.shared, &flow, &self.counters), now, deferred);
        }
    }

    #[inline]
    fn flow(&mut self, slot: &u32) -> Option<Flow> {
        self.directory.connections.at(*slot).map(|connection| connection.flow)
    }

    fn socket(&mut self, slot: &u32) -> Option<Arc<TcpSocket<P>>> {
        self.directory.connections.at(*slot).map(|connection| Arc::clone(&connection.socket))
    }

    #[inline(always)]
    fn release_user(&mut self, slot: &u32) {
        if let Some(connection) = self.directory.connections.at(*slot) {
            connection.socket.let_go();
        }
    }

    #[inline(always)]
    fn arm(&mut self, slot: &u32, deadline: Time) -> u64 {
        let Some(connection) = self.directory.connections.at(*slot) else { return u64::MAX };
        charge::table::<P, _>(Some(&self.wheel), true);
        let due = self.wheel.arm(&mut connection.timer, *slot, deadline);
        // Nothing has become later.
        self.deadline = self.deadline.min(due);
        due
    }

    fn rearm(&mut self, slot: &u32, deadline: Option<Time>) -> u64 {
        if let Some(connection) = self.directory.connections.at(*slot) {
            self.wheel.cancel(connection.timer, *slot);
        }
        deadline.map_or(u64::MAX, |deadline| self.arm(slot, deadline))
    }

    fn expire(&mut self, now: Time) -> Vec<u32> {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.expire(now, &mut due);
        self.note_deadline();
        if let Some(at) = due.iter().position(|slot| *slot == WAITS) {
            due.remove(at);
            self.expire_waits(now);
        }
        due
    }

    fn recycle(&mut self, mut due: Vec<u32>) {
        due.clear();
        self.due = due;
    }

    fn armed(&mut self) -> usize {
        let waits = &self.directory.connections.waits;
        self.wheel.len() + waits.len() - usize::from(self.wheel.has(waits.timer, WAITS))
    }

    fn trim(&mut self) {
        self.directory.trim();
        self.directory.connections.trim();
        let connections = &mut self.directory.connections;
        self.wheel.trim(|slot, timer| match slot {
            WAITS => connections.waits.timer = timer,
            _ => connections.at(slot).into_iter().for_each(|it| it.timer = timer),
        });
        self.handlers.trim();
        self.channels.trim();
        self.due = Vec::new();
    }

    fn wait(&mut self, slot: &u32, deadline: Option<Time>, now: Time) -> u64 {
        self.lay_down(*slot, now).unwrap_or_else(|| self.rearm(slot, deadline))
    }

    #[inline(always)]
    fn unlink(&mut self, slot: &u32) -> Option<Admission<P>> {
        if let Some(connection) = self.directory.connections.at(*slot) {
            self.wheel.cancel(connection.timer, *slot);
            self.shared.control().account().discharge(&self.account, connection.charge, self.shared.control().tcp());
        }
        self.channels.remove(*slot);
        let admission = self.directory.take_admission(*slot);
        self.directory.connections.free(*slot);
        admission
    }
}

impl<P: Platform> Cell<P> {
    /// Moves everything that is in the cell to `contents`.
    pub(crate) fn dissolve(&mut self, contents: &mut Contents<P>) {
        debug_assert!(self.channels.is_unused(), "channels end first: that may send segments");
        self.revive_those(&|_| true);
        let mut deadlines: HashMap<u32, Time> = self.wheel.entries().collect();
        contents.note_wheel_time(self.wheel.wheel_time());
        for slot in self.directory.connections.slots() {
            let admission = self.directory.take_admission(slot);
            if let Some(connection) = self.directory.connections.release(slot) {
                contents.connections.push(MovingConnection {
                    connection,
                    deadline: deadlines.remove(&slot),
                    admission,
                    handler: self.handlers.take(slot),
                });
            }
        }
        contents.half_open.append(&mut self.directory.half_open.take());
        contents.datagrams.extend(self.datagrams.take());
        contents.bound_sockets = std::mem::take(&mut self.directory.bound_sockets);
        contents.counted += &self.counters.snapshot();
        self.shared.control().account().close(&self.account);
        self.wheel = Wheel::new(self.shared.clock().now());
        self.note_deadline();
    }

    /// Installs this cell's share; the cell is empty.
    pub(crate) fn install(&mut self, share: Share<P>) {
        let Share { connections, half_open, datagrams, bound_sockets, wheel_time } = share;
        if let Some(wheel_time) = wheel_time {
            self.wheel = Wheel::new(wheel_time);
        }
        let mut waiting = Vec::new();
        for MovingConnection { connection, deadline, admission, handler } in connections {
            let waits = connection.charge.standing == LimitClass::TimeWait;
            let slot = self.directory.connections.adopt(connection);
            if waits {
                waiting.push((deadline, slot));
            }
            if let Some(deadline) = deadline {
                self.arm(&slot, deadline);
            }
            if let Some(admission) = admission {
                self.directory.early.insert(slot, admission);
            }
            if let Some(handler) = handler {
                self.handlers.put(slot, handler);
            }
        }
        self.directory.half_open.restore(half_open, self.shared.control().tcp(), self.shared.clock().now());
        self.note_deadline();
        datagrams.into_iter().for_each(|Bound { socket, pcb }| self.datagrams.insert(socket, pcb));
        self.directory.bound_sockets = bound_sockets;
        self.lay_down_all(waiting);
    }

    /// Look-up of a tuple that the cache of flow hashes does not know. One that has a half-open connection is usually that of the
    /// acknowledgement which completes its handshake: the table does not have it, and is not asked.
    #[inline(never)]
    fn search(&mut self, tuple: &FourTuple, hash: u32) -> Result<(u32, ()), VacantEntry> {
        if !self.directory.half_open.is_empty()
            && let Some(absent) = self.directory.half_open.recall(tuple, hash)
        {
            return Err(absent);
        }
        match self.directory.connections.search(tuple, hash) {
            Ok(slot) => Ok((slot, ())),
            Err(absent) if self.directory.connections.waits.is_empty() => Err(absent),
            Err(absent) => self.find_waiting(&Flow { tuple: *tuple, hash }, absent),
        }
    }

    /// A segment arrives for a handler that takes data at once ([`Handlers::take_at_once`]): if it is predicted, all of it, with one
    /// outbox for the event and for the handler's answer. Data does not pass through the receive queue.
    #[inline(never)]
    fn exchange(
        &mut self,
        slot: u32,
        mut event: tcp::SegmentArrives<'_>,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<Box<tcp::Segment>> {
        let (shared, counters, writers) = (&*self.shared, &self.counters, self.writers);
        let connection = self.directory.connections.at(slot)?;
        let Connection { flow, socket, route, pcb, .. } = &mut *connection;
        let mut out = shared.egress().outbox(shared.control(), flow, route, counters);
        let data = match event.hand_on(pcb, &mut out, now) {
            tcp::HandedOn::Taken => event.taken(),
            tcp::HandedOn::Passed(predicted) => {
                predicted.send(pcb, &mut out, now);
                event.passed().map(|passed| passed.take(pcb, &mut out, now))
            }
            tcp::HandedOn::Processed(predicted) => {
                predicted.send(pcb, &mut out, now);
                None
            }
            tcp::HandedOn::Unpredicted => {
                std::mem::forget(out);
                return self.arrives_unpredicted(&slot, event.unpredicted(), now, deferred);
            }
        };
        sync::walk::note(file!(), "runs the event (tcp/src/event) on the PCB: the whole driver");
        if let Some(data) = data {
            // By itself, as a constant: nearly always it is all that has risen.
            socket.ready.rise_handled(Readiness::READABLE, writers);
            out.ready = out.ready.difference(Readiness::READABLE);
            if !out.ready.is_empty() {
                socket.ready.rise_handled(out.ready, writers);
            }
            self.handlers.hand_on(slot, (flow, pcb, &mut out), data, (shared, now), deferred);
        } else if !out.ready.is_empty() {
            socket.ready.rise_handled(out.ready, writers);
            self.handlers.run_rarely(slot, (flow, pcb, &mut out), (shared, now), deferred);
        }
        shared.egress().emit_one(flow, route, &mut out, deferred);
        // A handler is called instead of waking a user: no place is asked for.
        let effects = finish(connection, (shared, counters, &self.account, writers, false), &mut out, deferred);
        std::mem::forget(out);
        if let Some(effects) = effects {
            self.settle_later(&slot, effects, now, deferred);
        }
        None
    }

    /// A segment arrives that was not predicted. Not a part of [`Place::arrives`]: its registers and memory would hold what
    /// this needs.
    #[inline(never)]
    fn arrives_unpredicted(
        &mut self,
        slot: &u32,
        event: tcp::UnpredictedArrives<'_>,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<Box<tcp::Segment>> {
        self.run(slot, (), event, now, deferred).and_then(tcp::Disposition::recycled)
    }

    /// [`Events::settle`], which nearly no answer needs.
    #[inline(never)]
    fn settle_later(&mut self, slot: &u32, effects: Effects, now: Time, deferred: &mut DeferredEffects<P>) {
        self.settle(slot, effects, now, deferred);
    }

    /// A send needs an earlier wake than the connection has.
    #[inline(never)]
    fn wake_for_send(&mut self, slot: &u32, wake: Time, effects: &mut SendEffects<P>) {
        let due = self.arm(slot, wake);
        if due != u64::MAX {
            self.call_for(due, effects.record());
        }
    }

    /// The second half of taking payload.
    #[inline(never)]
    fn receive_rest(
        &mut self,
        slot: u32,
        rest: tcp::ReceiveRemainder,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<Result<(), tcp::Error>> {
        let taken = self.run_contained(&slot, (), rest, now, deferred)?;
        if let Err(error) = taken {
            self.after_call(&slot, Readiness::READABLE, error == tcp::Error::WouldBlock);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that are more than the cells use the same ones in turn.
    #[test]
    fn threads_share_the_cells() {
        for (cells, threads, each) in
            [(1, 1, 1), (1, 2, 1), (16, 1, 16), (32, 2, 16), (128, 4, 32), (4, 8, 1), (8, 0, 8)]
        {
            assert_eq!(cells_of_thread(cells, threads), each, "{cells} cells, {threads} threads");
        }
    }
}
