//! Any thread, any connection, fine-grained locks (Willmann's MsgP, FreeBSD 5-7; Nahum's TCP-1, TCP-2, TCP-6).
//!
//! | cell | exclusive use by | thread | table | order |
//! |---|---|---|---|---|
//! | a connection (1 lock), its halves (2), its six parts (6) | global table lock, then connection lock(s) | caller or receive thread | global, locked | structure |
//!
//! # The table lock
//! Every entry takes the one table lock to find its connection. [`TablePolicy::Dropped`] lets go of it at once and then
//! waits for the connection. [`TablePolicy::Coupled`] does what FreeBSD 7 did: it keeps the table lock *while waiting
//! for the connection* and until the acknowledgement has been processed (or, for set-up and close, to the end), so that
//! one busy connection stops everybody. That is what the papers' table 1 measured; it is here to be reproduced.
//!
//! # Lifetimes
//! A connection is shared (`Arc`) between the table and the threads that are inside it. A thread that finds it and then
//! waits may find it closed when its turn comes: the protocol state says so, and no event does harm to a closed PCB. It
//! is taken out of the table, after its guards dropped, by whoever ran the event that finished it. How it came to be in the
//! table is in `msgp/opening.rs`.

mod opening;

use std::sync::Arc;

use observe::{Counters, Time};
use sync::{Atomic, Guard, Lock, LockClass, Ordering, Platform};
use tcp::{Event, Outbox, PathNews, PcbAccess, TableChange};
use wire::FourTuple;

use super::{Architecture, Census};
use crate::after::After;
use crate::call::{self, Call, Control, Ingress, Reply, Report, Segment};
use crate::containment::{Casualty, Panic, attempt};
use crate::flow::{Flow, Key, Target};
use crate::pcb::{Escorted, Held, LockPlan, SharedPcb, Way, halves, six};
use crate::replicas::Replicas;
use crate::shared::Shared;
use crate::socket::{Admission, TcpSocket, UdpShared};
use crate::syn_cache::SynCache;
use crate::table::private::{Entry, Table};
use crate::timers::Wheel;
use crate::tx::RouteCache;

/// When the table lock is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TablePolicy {
    /// As soon as the connection has been found.
    Dropped,
    /// Hand over hand: kept while waiting for the connection and through acknowledgement processing.
    Coupled,
}

/// The architecture `msgp`.
pub struct MsgP<P: Platform> {
    shared: Arc<Shared<P>>,
    locks: LockPlan,
    policy: TablePolicy,
    table: Lock<Directory<P>, P>,
    timers: Lock<Wheel, P>,
    /// The wheel's next deadline in nanoseconds, readable without its lock.
    deadline: P::AtomicU64,
    /// The same for the half-open connections.
    half_open_deadline: P::AtomicU64,
    counters: Counters,
}

/// What the table lock guards.
struct Directory<P: Platform> {
    connections: Table<Arc<Connection<P>>>,
    replicas: Replicas<P>,
    half_open: SynCache<P>,
}

struct Connection<P: Platform> {
    flow: Flow,
    pcb: SharedPcb<P>,
    /// The interface by which its segments leave; 0 until the first has left.
    leaves_by: P::AtomicU32,
    socket: Arc<TcpSocket<P>>,
    /// When its entry in the wheel fires, in nanoseconds; `u64::MAX` when it has none.
    armed: P::AtomicU64,
    /// What it owes its listener, until the handshake is complete.
    admission: Lock<Option<Admission<P>>, P>,
}

impl<P: Platform> Entry for Arc<Connection<P>> {
    fn tuple(&self) -> &FourTuple {
        &self.flow.tuple
    }

    fn flow_hash(&self) -> u32 {
        self.flow.hash
    }
}

/// The table guard while it is kept.
type TableGuard<'a, P> = Option<Guard<'a, Directory<P>, P>>;

/// What an event left to do, after its guards.
struct Effects {
    deadline: Option<Time>,
    path: PathNews,
    table: TableChange,
}

impl<P: Platform> MsgP<P> {
    /// A global table, and `locks` for each connection, all of the stack's lock kind.
    pub fn new(shared: &Arc<Shared<P>>, locks: LockPlan, policy: TablePolicy) -> Self {
        let directory = Directory {
            connections: Table::new(&shared.secrets),
            replicas: Replicas::default(),
            half_open: SynCache::new(&shared.secrets),
        };
        MsgP {
            shared: shared.clone(),
            locks,
            policy,
            table: Lock::new(shared.lock_kind, LockClass::ConnTable, directory),
            timers: Lock::new(shared.lock_kind, LockClass::Timers, Wheel::new(shared.clock.now())),
            deadline: P::AtomicU64::new(u64::MAX),
            half_open_deadline: P::AtomicU64::new(u64::MAX),
            counters: Counters::shared(),
        }
    }

    /// Finds a connection. The guard comes along if the policy keeps it.
    fn find(&self, tuple: &FourTuple, hash: u32) -> Option<(Arc<Connection<P>>, TableGuard<'_, P>)> {
        sync::walk::note(file!(), "looks for the connection in the global table");
        let mut directory = self.table.lock();
        let slot = directory.connections.find(tuple, hash).ok()?;
        let connection = directory.connections.at(slot)?.clone();
        Some((connection, self.keep(directory)))
    }

    fn find_key(&self, key: Key) -> Option<(Arc<Connection<P>>, TableGuard<'_, P>)> {
        sync::walk::note(file!(), "looks for the connection in the global table");
        let mut directory = self.table.lock();
        let connection = directory.connections.get(key)?.clone();
        Some((connection, self.keep(directory)))
    }

    fn udp(&self, tuple: &FourTuple) -> Option<Arc<UdpShared<P>>> {
        self.table.lock().replicas.udp(tuple)
    }

    fn keep<'a>(&self, guard: Guard<'a, Directory<P>, P>) -> TableGuard<'a, P> {
        match self.policy {
            TablePolicy::Coupled => Some(guard),
            TablePolicy::Dropped => None,
        }
    }

    /// Runs one event of one connection under its locks, and then performs its effects.
    fn run<E: Event>(
        &self,
        connection: &Arc<Connection<P>>,
        held: TableGuard<'_, P>,
        event: E,
        now: Time,
        after: &mut After<P>,
    ) -> Option<E::Reply> {
        self.enter(connection, held, now, after, WithEvent(event))
    }

    /// [`MsgP::work`], whose panic ends this connection and nothing else; `None` then.
    fn enter<W: Work<P>>(
        &self,
        connection: &Arc<Connection<P>>,
        held: TableGuard<'_, P>,
        now: Time,
        after: &mut After<P>,
        work: W,
    ) -> Option<W::Reply> {
        let mut reply = None;
        match attempt(|| {
            let (answer, effects) = self.work(connection, held, now, after, work);
            reply = Some(answer);
            effects
        }) {
            Ok(effects) => {
                self.settle(connection, effects, now, after);
                reply
            }
            Err(panic) => {
                self.condemn(connection, panic, now, after);
                None
            }
        }
    }

    /// An event of this connection has panicked: it is taken out and its user told. A reset for the peer is tried; what is
    /// left of the PCB may panic again. A thread that waits for the connection finds it closed.
    #[cold]
    fn condemn(&self, connection: &Arc<Connection<P>>, panic: Panic, now: Time, after: &mut After<P>) {
        self.shared.failures.note(panic, Casualty::Connection(connection.flow.tuple), &self.counters);
        self.remove(connection);
        connection.socket.condemn();
        after.wake(&connection.socket, call::CONDEMNED);
        let _ = attempt(|| self.work(connection, None, now, after, WithEvent(tcp::Abort)));
    }

    /// Runs something on a connection under its locks; what it leaves to do is the caller's to settle.
    fn work<W: Work<P>>(
        &self,
        connection: &Arc<Connection<P>>,
        mut held: TableGuard<'_, P>,
        now: Time,
        after: &mut After<P>,
        work: W,
    ) -> (W::Reply, Effects) {
        // A hint: whoever holds the route may be changing it, and what is made for another device is made anew.
        let made_for = connection.leaves_by.load(Ordering::Relaxed) as u16;
        let route = RouteCache::by(made_for);
        let mut out = self.shared.outbox(&connection.flow, &route, &self.counters);
        let way =
            Way { shared: &self.shared, flow: &connection.flow, leaves_by: &connection.leaves_by, made_for, after };
        sync::walk::note(file!(), "runs the event (tcp/src/event); hold-sets take their locks");
        let reply = match &connection.pcb {
            SharedPcb::Single(single) => {
                let mut way = way;
                let mut whole = single.lock();
                let whole = &mut *whole;
                let mut pcb = Escorted { parts: whole.pcb.parts(), held: &mut held };
                let reply = work.run(&mut pcb, &mut out, now);
                way.emit(&mut whole.route, &mut out);
                reply
            }
            SharedPcb::Halves(pcb) => work.run(&mut halves::Passage { pcb, way, held: &mut held }, &mut out, now),
            SharedPcb::Six(pcb) => work.run(&mut six::Passage { pcb, way, held: &mut held }, &mut out, now),
        };
        held.release();
        after.wake(&connection.socket, out.ready);
        if out.progress && self.shared.internet.has_doubts() {
            self.shared.path_works(connection.flow.tuple.remote_addr, after);
        }
        let effects = Effects { deadline: out.deadline, path: out.path, table: out.table };
        if out.starved {
            let target = connection.socket.target();
            self.shared.starve(&connection.flow, &route, target, after);
        }
        (reply, effects)
    }

    /// Performs what concerns the tables; no lock of the connection is held any more.
    fn settle(&self, connection: &Arc<Connection<P>>, effects: Effects, now: Time, after: &mut After<P>) {
        if let Some(deadline) = effects.deadline {
            self.arm(connection, deadline, after);
        }
        if effects.path != PathNews::None {
            self.path_news(connection, effects.path, now, after);
        }
        match effects.table {
            TableChange::None => {}
            TableChange::Established => self.established(connection, now, after),
            TableChange::Remove => self.remove(connection),
            TableChange::Unfinished { reset, remove } => self.unfinished(connection, (reset, remove), now, after),
            TableChange::News => self.news(connection, now, after),
        }
    }

    /// Something has come to light of a connection's path.
    #[cold]
    fn path_news(&self, connection: &Arc<Connection<P>>, news: PathNews, now: Time, after: &mut After<P>) {
        if let Some(changed) = self.shared.path_news(connection.flow.tuple.remote_addr, news, now, after) {
            self.run(connection, None, changed, now, after);
        }
    }

    /// A connection has learnt of its destination.
    #[cold]
    fn news(&self, connection: &Arc<Connection<P>>, now: Time, after: &mut After<P>) {
        if let Some(news) = self.run(connection, None, tcp::fast_open::TakeNews, now, after).flatten() {
            let penance = self.shared.tcp().fast_open_penance;
            self.shared.destinations.learn(connection.flow.tuple.remote_addr, &news, penance, now);
        }
    }

    fn arm(&self, connection: &Arc<Connection<P>>, deadline: Time, after: &mut After<P>) {
        let nanos = deadline.as_nanos();
        let Some(slot) = connection.socket.slot() else { return };
        // An entry that fires earlier is kept: it will find nothing due and arm the later one.
        loop {
            let armed = connection.armed.load(Ordering::Acquire);
            if armed <= nanos {
                return;
            }
            if connection.armed.compare_exchange(armed, nanos, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                break;
            }
        }
        let mut wheel = self.timers.lock();
        after.due(wheel.arm(slot, deadline));
        self.deadline.store(wheel.next_deadline().map_or(u64::MAX, Time::as_nanos), Ordering::Relaxed);
    }

    /// The connection is finished, and no user holds it. Its entry in the wheel goes before the slot does. A thread that
    /// arms one for it later leaves an entry that finds the slot free, or wakes its next tenant for nothing.
    fn remove(&self, connection: &Arc<Connection<P>>) {
        let admission = connection.admission.lock().take();
        admission.into_iter().for_each(Admission::abandon);
        let Some(slot) = connection.socket.slot() else { return };
        let mut directory = self.table.lock();
        if directory.connections.at(slot).is_some_and(|other| Arc::ptr_eq(other, connection)) {
            self.timers.lock().cancel(slot);
            directory.connections.remove(slot);
        }
    }

    fn segment(&self, arrival: &mut Segment, now: Time, after: &mut After<P>) {
        let Some(segment) = &arrival.segment else { return };
        let Some((connection, held)) = self.find(&segment.tuple, arrival.hash) else {
            self.unmatched(&mut arrival.segment, arrival.hash, now, after);
            return;
        };
        let reply = self.run(&connection, held, tcp::SegmentArrives(&mut arrival.segment), now, after);
        if let Some(segment) = reply.and_then(call::unclaimed) {
            self.unmatched(&mut Some(segment), arrival.hash, now, after);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
    //# TCP implementations MUST act on an ICMP error message passed up from the IP layer, directing it to the
    //# connection that created the error (MUST-54).
    #[cold]
    fn icmp_error(
        &self,
        connection: &Arc<Connection<P>>,
        held: TableGuard<'_, P>,
        error: &ip::IcmpError,
        now: Time,
        after: &mut After<P>,
    ) {
        match call::report(error) {
            Report::Error(event) => {
                self.run(connection, held, event, now, after);
            }
            Report::TooBig(event, mtu) => {
                if self.run(connection, held, event, now, after) == Some(true) {
                    self.shared.learn_path_mtu(error.tuple.remote_addr, mtu, now);
                }
            }
            Report::Nothing => {}
        }
    }

    /// Runs an event of every connection that it concerns.
    #[cold]
    fn each<E: Event + Copy>(&self, concerns: impl Fn(&Flow) -> bool, event: E) {
        let now = self.shared.clock.now();
        let all: Vec<Arc<Connection<P>>> =
            self.table.lock().connections.iter_mut().map(|(_, connection)| connection.clone()).collect();
        let mut after = After::default();
        for connection in all.iter().filter(|connection| concerns(&connection.flow)) {
            self.run(connection, None, event, now, &mut after);
        }
        after.perform(&self.shared);
    }

    fn answer(&self, target: &Target, call: Call<P>, now: Time, after: &mut After<P>) -> Reply {
        if let Call::Open(request) = call {
            return Reply::Opened(self.open(*request, now, after));
        }
        let Some((connection, held)) = self.find_key(target.key) else { return Reply::Gone };
        // Cleared before and set again after: between the hold-sets of a staged event another may add data.
        let bit = call::level_of(&call);
        connection.socket.ready.clear(bit);
        let reply = self.enter(&connection, held, now, after, WithCall(call));
        if !reply.as_ref().is_some_and(call::exhausted) {
            connection.socket.ready.restore(bit);
        }
        reply.unwrap_or(Reply::Gone)
    }
}

/// Something to run on a connection, whichever way its parts are held.
trait Work<P: Platform> {
    type Reply;
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Self::Reply;
}

struct WithEvent<E>(E);

impl<P: Platform, E: Event> Work<P> for WithEvent<E> {
    type Reply = E::Reply;
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> E::Reply {
        self.0.run(pcb, out, now)
    }
}

struct WithCall<P: Platform>(Call<P>);

impl<P: Platform> Work<P> for WithCall<P> {
    type Reply = Reply;
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Reply {
        call::run(self.0, pcb, out, now)
    }
}

impl<P: Platform> Architecture<P> for MsgP<P> {
    fn post(&self, ingress: &mut Ingress, now: Time, after: &mut After<P>) {
        if let Ingress::Segment(arrival) = ingress {
            return self.segment(arrival, now, after);
        }
        match std::mem::take(ingress) {
            Ingress::Segment(_) => debug_assert!(false, "a segment does not come this way"),
            Ingress::Datagram(datagram) => {
                let socket = self.udp(&datagram.tuple);
                self.shared.deliver(socket, datagram, &self.counters, after);
            }
            Ingress::IcmpError { error, hash } => {
                if let Some((connection, held)) = self.find(&error.tuple, hash) {
                    self.icmp_error(&connection, held, &error, now, after);
                } else if self.half_open_error(&error, hash) {
                    // It was about a handshake.
                } else if let Some(socket) = self.udp(&error.tuple) {
                    self.shared.datagram_error(&socket, &error, &self.counters, after);
                }
            }
            Ingress::TransmitReady(target) => {
                if let Some((connection, held)) = self.find_key(target.key) {
                    self.run(&connection, held, tcp::TransmitReady, now, after);
                }
            }
        }
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        let mut after = After::default();
        *reply = self.answer(target, call.take(), self.shared.clock.now(), &mut after);
        after.perform(&self.shared);
    }

    fn control(&self, change: Control<P>) {
        match change {
            Control::LinkDown(interface) => self.each(|flow| self.shared.goes_by(flow, interface), tcp::LinkDown),
            Control::AddressLost(address) => {
                self.table.lock().half_open.abandon(address);
                self.each(|flow| flow.tuple.local_addr == address, tcp::LinkDown);
            }
            other => self.table.lock().replicas.apply(other),
        }
    }

    fn tick(&self, now: Time) {
        if self.half_open_deadline.load(Ordering::Relaxed) <= now.as_nanos() {
            self.half_open_timeouts(now);
        }
        if self.deadline.load(Ordering::Relaxed) > now.as_nanos() {
            return;
        }
        let mut due = Vec::new();
        {
            let mut wheel = self.timers.lock();
            wheel.expire(now, &mut due);
            self.deadline.store(wheel.next_deadline().map_or(u64::MAX, Time::as_nanos), Ordering::Relaxed);
        }
        let mut after = After::default();
        for slot in due {
            let mut directory = self.table.lock();
            let Some(connection) = directory.connections.at(slot).cloned() else { continue };
            let held = self.keep(directory);
            connection.armed.store(u64::MAX, Ordering::Release);
            self.run(&connection, held, tcp::Timeouts, now, &mut after);
            after.perform(&self.shared);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let half_open = self.half_open_deadline.load(Ordering::Relaxed);
        let deadline = self.deadline.load(Ordering::Relaxed).min(half_open);
        (deadline != u64::MAX).then(|| Time::from_nanos(deadline))
    }

    fn is_quiescent(&self) -> bool {
        true
    }

    fn census(&self) -> Census {
        let timers = self.timers.lock().len();
        let directory = self.table.lock();
        let connections = directory.connections.len();
        let half_open = directory.half_open.len();
        let each = size_of::<Connection<P>>() + size_of::<TcpSocket<P>>();
        Census {
            counters: self.counters.snapshot(),
            connections: connections + half_open,
            time_wait: 0,
            timers: timers + half_open,
            bytes: directory.connections.footprint() + connections * each + directory.half_open.footprint(),
        }
    }
}
