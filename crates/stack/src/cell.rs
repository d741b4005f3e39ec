//! A cell: what one runner at a time may touch, and everything that can happen in it.
//!
//! A cell owns connections, the table that finds them, replicas of what is listened on, and a timer wheel. It is plain
//! data behind `&mut`: *how* a thread comes to hold that `&mut` (it owns the cell, took a lock, won a flag) is all that
//! the architectures with exclusive cells differ in. Segments are emitted before the method returns, that is while the
//! cell is still held; wake-ups are left in [`After`] for when it is not.
//!
//! What may never happen here: a wait, a lock of another cell, a wake-up.

use std::collections::HashMap;
use std::sync::Arc;

use observe::{Counter, Counters, DropReason, Time};
use sync::Platform;
use tcp::{Event, Outbox, PathNews, Pcb, TableChange};
use wire::FourTuple;

use crate::after::After;
use crate::arch::Census;
use crate::call::{self, Call, Control, Datagram, Ingress, OpenRefused, OpenRequest, Reply, Report, Segment};
use crate::containment::{Casualty, Panic, attempt};
use crate::flow::{Flow, Key, Target};
use crate::replicas::{Replicas, Unmatched};
use crate::shared::Shared;
use crate::socket::{Admission, Admitted, Readiness, TcpSocket};
use crate::syn_cache::{Child, SynCache};
use crate::table::private::{Absent, Entry, Table};
use crate::timers::Wheel;
use crate::tx::RouteCache;

/// One connection as its cell keeps it.
pub struct Connection<P: Platform> {
    flow: Flow,
    pcb: Pcb,
    route: RouteCache,
    socket: Arc<TcpSocket<P>>,
}

impl<P: Platform> Entry for Connection<P> {
    fn tuple(&self) -> &FourTuple {
        &self.flow.tuple
    }

    fn flow_hash(&self) -> u32 {
        self.flow.hash
    }
}

/// A segment is being run. If that panics the connection is condemned while the cell is still held, and whoever contains the
/// panic tells its user; else it is forgotten.
struct Doomed<'a, P: Platform> {
    cell: &'a mut Cell<P>,
    slot: u32,
    now: Time,
    after: &'a mut After<P>,
}

impl<P: Platform> Drop for Doomed<'_, P> {
    #[cold]
    fn drop(&mut self) {
        let failures = &self.cell.shared.clone().failures;
        if failures.contains() {
            let condemned = attempt(|| self.cell.condemn(self.slot, self.now, self.after));
            condemned.ok().flatten().into_iter().for_each(|socket| failures.owe(socket));
        }
    }
}

/// What an event left to be done by the cell once its borrow of the connection has ended.
struct Effects {
    deadline: Option<Time>,
    path: PathNews,
    table: TableChange,
}

/// A shard of connections with all that serves them.
pub struct Cell<P: Platform> {
    shared: Arc<Shared<P>>,
    table: Table<Connection<P>>,
    /// What connections owe their listeners that stand in the table before their handshake is complete, by slot: those that
    /// open early.
    early: HashMap<u32, Admission<P>>,
    replicas: Replicas<P>,
    half_open: SynCache<P>,
    wheel: Wheel,
    due: Vec<u32>,
    counters: Counters,
}

impl<P: Platform> Cell<P> {
    /// An empty cell.
    pub fn new(shared: &Arc<Shared<P>>) -> Self {
        Cell {
            shared: shared.clone(),
            table: Table::new(&shared.secrets),
            early: HashMap::new(),
            replicas: Replicas::default(),
            half_open: SynCache::new(&shared.secrets),
            wheel: Wheel::new(shared.clock.now()),
            due: Vec::new(),
            counters: Counters::new(),
        }
    }

    /// Runs an event that came from a device or a timer. One copy of it for all architectures: what they add is then
    /// what can be counted (`cargo xtask exclusive`), and the processor's caches hold it once.
    ///
    /// The event is taken from where it stands, and not moved on the way here.
    #[inline(never)]
    pub fn ingress(&mut self, ingress: &mut Ingress, now: Time, after: &mut After<P>) {
        match ingress {
            Ingress::Segment(arrival) => self.segment(arrival, now, after),
            other => self.rarer(std::mem::take(other), now, after),
        }
    }

    #[inline(never)]
    fn rarer(&mut self, ingress: Ingress, now: Time, after: &mut After<P>) {
        match ingress {
            Ingress::Segment(_) => debug_assert!(false, "a segment does not come this way"),
            Ingress::Datagram(datagram) => self.datagram(datagram, after),
            Ingress::IcmpError { error, hash } => self.any_icmp_error(&error, hash, now, after),
            Ingress::TransmitReady(target) => {
                if self.table.get(target.key).is_some() {
                    self.run_contained(target.key.slot, tcp::TransmitReady, now, after);
                }
            }
        }
    }

    #[cold]
    fn any_icmp_error(&mut self, error: &ip::IcmpError, hash: u32, now: Time, after: &mut After<P>) {
        let flow = Flow { tuple: error.tuple, hash };
        match self.table.find(&flow.tuple, hash) {
            Ok(slot) => self.icmp_error(slot, error, now, after),
            Err(absent) => {
                if let Some(slot) = self.half_open.find(&flow, absent) {
                    self.shared.half_open_error(&mut self.half_open, slot, error, &self.counters);
                } else if let Some(socket) = self.replicas.udp(&error.tuple) {
                    self.shared.datagram_error(&socket, error, &self.counters, after);
                }
            }
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
    //# TCP implementations MUST act on an ICMP error message passed up from the IP layer, directing it to the
    //# connection that created the error (MUST-54).
    #[cold]
    fn icmp_error(&mut self, slot: u32, error: &ip::IcmpError, now: Time, after: &mut After<P>) {
        match call::report(error) {
            Report::Error(event) => {
                self.run_contained(slot, event, now, after);
            }
            Report::TooBig(event, mtu) => {
                if self.run_contained(slot, event, now, after) == Some(true) {
                    self.shared.learn_path_mtu(error.tuple.remote_addr, mtu, now);
                }
            }
            Report::Nothing => {}
        }
    }

    #[inline(always)]
    fn segment(&mut self, arrival: &mut Segment, now: Time, after: &mut After<P>) {
        let Some(segment) = &arrival.segment else { return };
        match self.table.find(&segment.tuple, arrival.hash) {
            Ok(slot) => {
                let doomed = Doomed { cell: self, slot, now, after };
                let reply = doomed.cell.run(slot, tcp::SegmentArrives(&mut arrival.segment), now, doomed.after);
                std::mem::forget(doomed);
                if let Some(segment) = reply.and_then(call::unclaimed) {
                    self.recycled(segment, arrival.hash, now, after);
                }
            }
            Err(absent) => {
                self.unmatched(&mut arrival.segment, (arrival.hash, absent), now, after);
                self.call_for(self.half_open.cached_deadline(), after);
            }
        }
    }

    /// A SYN that a connection in TIME-WAIT has made way for.
    #[cold]
    fn recycled(&mut self, segment: tcp::Segment, hash: u32, now: Time, after: &mut After<P>) {
        match self.table.find(&segment.tuple, hash) {
            Err(absent) => self.unmatched(&mut Some(segment), (hash, absent), now, after),
            Ok(_) => {
                debug_assert!(false, "a connection that makes way is gone");
                self.counters.drop(DropReason::TcpNoListener);
            }
        }
    }

    /// An active open wants the tuple of the connection in `slot`, which makes way if it may: the initial sequence number for
    /// its successor.
    #[cold]
    fn reclaim(&mut self, slot: u32, now: Time, after: &mut After<P>) -> Option<wire::SeqNumber> {
        if !self.shared.tcp().reclaims_time_wait() {
            return None;
        }
        self.run_contained(slot, tcp::Reclaim, now, after).flatten()
    }

    /// Runs one event of one connection and performs its effects.
    #[inline(always)]
    fn run<E: Event>(&mut self, slot: u32, event: E, now: Time, after: &mut After<P>) -> Option<E::Reply> {
        self.with_pcb(slot, now, after, |pcb, out| event.run(pcb, out, now))
    }

    #[inline(always)]
    fn with_pcb<R>(
        &mut self,
        slot: u32,
        now: Time,
        after: &mut After<P>,
        f: impl FnOnce(&mut tcp::PcbMut<'_>, &mut Outbox<'_>) -> R,
    ) -> Option<R> {
        let connection = self.table.at(slot)?;
        let reply;
        let effects;
        {
            let mut out = self.shared.outbox(&connection.flow, &connection.route, &self.counters);
            sync::walk::note(file!(), "runs the event (tcp/src/event) on the PCB: the whole driver");
            reply = f(&mut connection.pcb.parts(), &mut out);
            self.shared.emit(&connection.flow, &mut connection.route, &mut out, after);
            after.wake(&connection.socket, out.ready);
            if out.progress && self.shared.internet.has_doubts() {
                self.shared.path_works(connection.flow.tuple.remote_addr, after);
            }
            effects = Effects { deadline: out.deadline, path: out.path, table: out.table };
            if out.starved {
                self.shared.starve(&connection.flow, &connection.route, connection.socket.target(), after);
            }
            // It owns nothing then, and to drop it is a call that finds nothing to do.
            if out.segments.is_empty() && !out.segments.spilled() {
                std::mem::forget(out);
            }
        }
        self.settle(slot, effects, now, after);
        Some(reply)
    }

    /// [`Cell::run`], whose panic ends this connection and nothing else; `None` then. For events that are small: a segment
    /// would be copied into the closure, so its panic goes on to the thread's own containment ([`Doomed`]).
    #[inline(always)]
    fn run_contained<E: Event>(&mut self, slot: u32, event: E, now: Time, after: &mut After<P>) -> Option<E::Reply> {
        let mut reply = None;
        if let Err(panic) = attempt(|| reply = self.run(slot, event, now, after)) {
            reply = None;
            self.contain(slot, panic, now, after);
        }
        reply
    }

    #[cold]
    #[inline(never)]
    fn contain(&mut self, slot: u32, panic: Panic, now: Time, after: &mut After<P>) {
        let tuple = self.table.at(slot).map(|connection| connection.flow.tuple);
        let casualty = tuple.map_or(Casualty::Work, Casualty::Connection);
        self.shared.failures.note(panic, casualty, &self.counters);
        if let Some(socket) = self.condemn(slot, now, after) {
            after.wake(&socket, call::CONDEMNED);
        }
    }

    /// An event of this connection has panicked: it is taken out, and its user has to be told. A reset for the peer is
    /// tried; what is left of the PCB may panic again.
    #[cold]
    #[inline(never)]
    fn condemn(&mut self, slot: u32, now: Time, after: &mut After<P>) -> Option<Arc<TcpSocket<P>>> {
        self.wheel.cancel(slot);
        let owed = self.owed(slot);
        let (Connection { flow, mut pcb, mut route, socket }, _) = self.table.remove(slot)?;
        socket.condemn();
        owed.into_iter().for_each(|admission| admission.abandon());
        let (shared, counters) = (&self.shared, &self.counters);
        let _ = attempt(move || {
            let mut out = shared.outbox(&flow, &route, counters);
            tcp::Abort.run(&mut pcb.parts(), &mut out, now);
            shared.emit(&flow, &mut route, &mut out, after);
        });
        Some(socket)
    }

    /// Performs what concerns the cell itself. Mostly that is nothing.
    #[inline(always)]
    fn settle(&mut self, slot: u32, effects: Effects, now: Time, after: &mut After<P>) {
        if let Some(deadline) = effects.deadline {
            let due = self.wheel.arm(slot, deadline);
            self.call_for(due, after);
        }
        if effects.path != PathNews::None {
            self.path_news(slot, effects.path, now, after);
        }
        if effects.table != TableChange::None {
            self.change(slot, effects.table, now, after);
        }
    }

    /// Something has come to light of a connection's path.
    #[cold]
    #[inline(never)]
    fn path_news(&mut self, slot: u32, news: PathNews, now: Time, after: &mut After<P>) {
        let Some(remote) = self.table.at(slot).map(|connection| connection.flow.tuple.remote_addr) else { return };
        if let Some(changed) = self.shared.path_news(remote, news, now, after) {
            self.run(slot, changed, now, after);
        }
    }

    /// Something is due at `nanos`, or nothing (`u64::MAX`): whoever runs timers is to look then.
    #[inline]
    fn call_for(&self, nanos: u64, after: &mut After<P>) {
        if nanos != u64::MAX && self.shared.alarms.run_timers() {
            after.due(nanos);
        }
    }

    #[inline(never)]
    fn change(&mut self, slot: u32, change: TableChange, now: Time, after: &mut After<P>) {
        match change {
            TableChange::None => {}
            TableChange::Established => self.established(slot, now, after),
            TableChange::Remove => self.remove(slot),
            TableChange::Unfinished { reset, remove } => self.unfinished(slot, (reset, remove), now),
            TableChange::News => self.news(slot, now, after),
        }
    }

    /// Takes what the connection in `slot` owes its listener: nearly none owes anything.
    #[inline]
    fn owed(&mut self, slot: u32) -> Option<Admission<P>> {
        if self.early.is_empty() { None } else { self.early.remove(&slot) }
    }

    /// A connection that was open early has failed.
    #[cold]
    fn unfinished(&mut self, slot: u32, (reset, remove): (bool, bool), now: Time) {
        if let Some(admission) = self.owed(slot) {
            if reset { admission.reset(now) } else { admission.abandon() }
        }
        if remove {
            self.remove(slot);
        }
    }

    /// A connection has learnt of its destination.
    #[cold]
    fn news(&mut self, slot: u32, now: Time, after: &mut After<P>) {
        let Some(remote) = self.table.at(slot).map(|connection| connection.flow.tuple.remote_addr) else { return };
        if let Some(news) = self.run(slot, tcp::fast_open::TakeNews, now, after).flatten() {
            self.shared.destinations.learn(remote, &news, self.shared.tcp().fast_open_penance, now);
        }
    }

    /// The handshake of a connection is complete: if it is a child that opened early, it has kept what it owes its listener.
    #[inline(never)]
    fn established(&mut self, slot: u32, now: Time, after: &mut After<P>) {
        if let Some(admission) = self.owed(slot) {
            self.admit(slot, admission, now, after);
        }
    }

    /// A child enters the accept queue, or is reset if the listener has closed.
    #[inline]
    fn admit(&mut self, slot: u32, admission: Admission<P>, now: Time, after: &mut After<P>) {
        let Some(connection) = self.table.at(slot) else { return };
        match admission.enter(&connection.socket) {
            Admitted::New(listener, owed) => {
                if let Some(owed) = owed {
                    self.early.insert(slot, owed);
                }
                self.counters.add(Counter::ConnectionsAccepted, 1);
                after.wake_listener(&listener);
            }
            Admitted::Known => {}
            Admitted::Closed => {
                self.run(slot, tcp::Abort, now, after);
            }
        }
    }

    /// The connection is finished, and no user holds it: it is freed.
    #[inline(never)]
    fn remove(&mut self, slot: u32) {
        self.wheel.cancel(slot);
        if let Some(admission) = self.owed(slot) {
            admission.abandon();
        }
        self.table.free(slot);
    }

    /// A segment that belongs to no connection: perhaps to one that is half open, perhaps a listener wants it.
    #[cold]
    fn unmatched(
        &mut self,
        arrival: &mut Option<tcp::Segment>,
        (hash, absent): (u32, Absent),
        now: Time,
        after: &mut After<P>,
    ) {
        let Some(segment) = &*arrival else { return };
        let flow = Flow { tuple: segment.tuple, hash };
        if let Some(slot) = self.half_open.find(&flow, absent) {
            let effects = (&self.counters, &mut *after);
            let child = self.shared.half_open_arrives(&mut self.half_open, slot, arrival, now, effects);
            if let Some(child) = child {
                self.adopt(child, now, after);
            }
            return;
        }
        match self.replicas.unmatched(segment, now) {
            Unmatched::Listener(listener) => {
                let effects = (&self.counters, &mut *after);
                let child =
                    self.shared.syn_arrives(&mut self.half_open, listener, (flow, absent), arrival, now, effects);
                if let Some(child) = child {
                    self.adopt(child, now, after);
                }
            }
            Unmatched::Cookie(listener) => {
                let effects = (&self.counters, &mut *after);
                let child = self.shared.cookie_arrives(listener, (flow, absent), arrival, now, effects);
                if let Some(child) = child {
                    self.adopt(child, now, after);
                }
            }
            Unmatched::Nobody => {
                self.counters.drop(DropReason::TcpNoListener);
                self.shared.reset(&flow, segment, &self.counters, after);
            }
        }
    }

    /// A handshake is complete, or its connection opens early: it enters the table and the accept queue.
    fn adopt(&mut self, child: Child<P>, now: Time, after: &mut After<P>) {
        let Child { flow, pcb, route, admission, ready, deadline, path, table, starved, absent } = child;
        let socket = TcpSocket::new(flow);
        let key = self.table.insert(Connection { flow, pcb: *pcb, route, socket: socket.clone() }, absent);
        socket.placed(key);
        socket.ready.begin(ready);
        if starved {
            self.shared.starve(&flow, &route, socket.target(), after);
        }
        // Nearly every child is complete when it comes here, and what it owes is paid before this returns.
        if table == TableChange::Established {
            self.settle(key.slot, Effects { deadline, path, table: TableChange::None }, now, after);
            self.admit(key.slot, admission, now, after);
        } else {
            self.early.insert(key.slot, admission);
            self.settle(key.slot, Effects { deadline, path, table }, now, after);
        }
    }

    fn datagram(&mut self, datagram: Datagram, after: &mut After<P>) {
        let socket = self.replicas.udp(&datagram.tuple);
        self.shared.deliver(socket, datagram, &self.counters, after);
    }

    /// Runs a user's call and puts the answer into `reply`. Most calls are two, to send and to receive. They are large values,
    /// as are their answers: the one is taken from where it stands, the other made where it is wanted.
    #[inline(never)]
    pub fn call(&mut self, target: &Target, call: &mut Call<P>, now: Time, after: &mut After<P>, reply: &mut Reply) {
        match call {
            Call::Send(event) => self.send(target.key, event, now, after, reply),
            Call::Receive(event) => self.receive(target.key, *event, now, after, reply),
            _ => *reply = self.rarer_call(target, call.take(), now, after),
        }
    }

    /// Takes text.
    #[inline(always)]
    fn send(&mut self, key: Key, event: &mut tcp::Send, now: Time, after: &mut After<P>, reply: &mut Reply) {
        let known = self.table.get(key).is_some();
        let taken = if known { self.run_contained(key.slot, &mut *event, now, after) } else { None };
        *reply = match taken {
            Some(Ok(accepted)) if event.chunks.is_empty() => {
                Reply::Sent(Ok(tcp::Sent { accepted, rest: tcp::Chunks::new() }))
            }
            Some(Ok(accepted)) => {
                self.exhausted(key.slot, Readiness::WRITABLE);
                Reply::Sent(Ok(tcp::Sent { accepted, rest: std::mem::take(&mut event.chunks) }))
            }
            Some(Err(error)) => Reply::Sent(Err(error)),
            None => Reply::Gone,
        };
    }

    /// Hands out text. As a rule that changes nothing but the receive side, and nothing needs be sent for it.
    #[inline(always)]
    fn receive(&mut self, key: Key, event: tcp::Receive, now: Time, after: &mut After<P>, reply: &mut Reply) {
        *reply = Reply::Received(Ok(tcp::Received::default()));
        let Reply::Received(Ok(received)) = reply else { return };
        let Some(connection) = self.table.get(key) else {
            *reply = Reply::Gone;
            return;
        };
        match attempt(|| event.take(&mut connection.pcb.parts(), received)) {
            Ok(Ok(())) => {}
            Ok(Err(rest)) => self.receive_rest(key.slot, rest, now, after, reply),
            Err(panic) => {
                self.contain(key.slot, panic, now, after);
                *reply = Reply::Gone;
            }
        }
    }

    /// The second half of handing out text, of which `reply` has what the first has given.
    #[inline(never)]
    fn receive_rest(&mut self, slot: u32, rest: tcp::ReceiveRest, now: Time, after: &mut After<P>, reply: &mut Reply) {
        match self.run_contained(slot, rest, now, after) {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                if error == tcp::Error::WouldBlock {
                    self.exhausted(slot, Readiness::READABLE);
                }
                *reply = Reply::Received(Err(error));
            }
            None => *reply = Reply::Gone,
        }
    }

    /// Clears the readiness bit that a call has exhausted; still inside the cell, or an edge could be lost.
    #[inline]
    fn exhausted(&mut self, slot: u32, bit: Readiness) {
        if let Some(connection) = self.table.at(slot) {
            connection.socket.ready.clear(bit);
        }
    }

    #[inline(never)]
    fn rarer_call(&mut self, target: &Target, call: Call<P>, now: Time, after: &mut After<P>) -> Reply {
        let slot = target.key.slot;
        let call = match call {
            Call::Open(request) => return Reply::Opened(self.open(request, now, after)),
            other => other,
        };
        if self.table.get(target.key).is_none() {
            return Reply::Gone;
        }
        let mut reply = None;
        let run = || reply = self.with_pcb(slot, now, after, |pcb, out| call::run(call, pcb, out, now));
        if let Err(panic) = attempt(run) {
            reply = None;
            self.contain(slot, panic, now, after);
        }
        reply.unwrap_or(Reply::Gone)
    }

    /// The PCB is made where it will stay, and opened there.
    #[inline(never)]
    fn open(&mut self, mut request: Box<OpenRequest<P>>, now: Time, after: &mut After<P>) -> Result<Key, OpenRefused> {
        let flow = request.flow();
        let mut found = self.table.find(&flow.tuple, flow.hash);
        if let Ok(slot) = found {
            request.params.iss = self.reclaim(slot, now, after).ok_or(OpenRefused::TupleInUse)?;
            found = self.table.find(&flow.tuple, flow.hash);
        }
        let Err(absent) = found else { return Err(OpenRefused::TupleInUse) };
        let remote = flow.tuple.remote_addr;
        let route = self.half_open.routes.recall(remote, request.generation);
        let pcb = tcp::Pcb::unopened(&request.params, self.shared.tcp(), now);
        let OpenRequest { socket, fast_open, .. } = *request;
        let key = self.table.insert(Connection { flow, pcb, route, socket }, absent);
        if let Some(connection) = self.table.at(key.slot) {
            connection.socket.placed(key);
        }
        let opened = self.run_contained(key.slot, tcp::Open(fast_open), now, after);
        match self.table.get(key).filter(|_| opened.is_some()) {
            Some(connection) => {
                self.half_open.routes.note(remote, &connection.route);
                Ok(key)
            }
            None => Err(OpenRefused::Fault),
        }
    }

    /// Puts a replica in, or takes it out.
    pub fn control(&mut self, change: Control<P>, now: Time, after: &mut After<P>) {
        match change {
            Control::LinkDown(interface) => {
                let shared = self.shared.clone();
                self.each(|connection| shared.goes_by(&connection.flow, interface), tcp::LinkDown, now, after);
            }
            Control::AddressLost(address) => {
                self.half_open.abandon(address);
                self.each(|connection| connection.flow.tuple.local_addr == address, tcp::LinkDown, now, after);
            }
            other => self.replicas.apply(other),
        }
    }

    /// Runs an event of every connection that it concerns.
    #[cold]
    fn each<E: Event + Copy>(
        &mut self,
        concerns: impl Fn(&Connection<P>) -> bool,
        event: E,
        now: Time,
        after: &mut After<P>,
    ) {
        let concerned = self.table.iter_mut().filter(|(_, connection)| concerns(connection));
        let slots: Vec<u32> = concerned.map(|(slot, _)| slot).collect();
        for slot in slots {
            self.run_contained(slot, event, now, after);
        }
    }

    /// Runs the timers that are due.
    pub fn timers(&mut self, now: Time, after: &mut After<P>) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.expire(now, &mut due);
        for slot in due.drain(..) {
            self.run_contained(slot, tcp::Timeouts, now, after);
        }
        self.due = due;
        self.shared.half_open_timeouts(&mut self.half_open, now, &self.counters, after);
    }

    /// When [`Cell::timers`] next has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        let half_open = self.half_open.cached_deadline();
        let half_open = (half_open != u64::MAX).then(|| Time::from_nanos(half_open));
        [self.wheel.next_deadline(), half_open].into_iter().flatten().min()
    }

    /// The same in nanoseconds; `u64::MAX` when nothing is armed. Two loads.
    #[inline]
    pub fn deadline_nanos(&self) -> u64 {
        self.wheel.cached_deadline().min(self.half_open.cached_deadline())
    }

    /// What is in the cell.
    pub fn census(&self) -> Census {
        Census {
            counters: self.counters.snapshot(),
            connections: self.table.len() + self.half_open.len(),
            time_wait: 0,
            timers: self.wheel.len() + self.half_open.len(),
            bytes: self.table.footprint() + self.table.len() * size_of::<TcpSocket<P>>() + self.half_open.footprint(),
        }
    }
}
