//! How connections come into the global table: segments that find none there, handshakes, active opens, and what becomes of
//! those that fail before they are known to anybody.
//!
//! The table lock is held from the look that finds no connection to the entry of the new one, so that there are never two
//! of a tuple. What may never happen: the effects of an event are settled while the table lock is held, for to settle them may
//! take it.

use std::sync::Arc;

use observe::{Counter, DropReason, Time};
use sync::{Atomic, Guard, Lock, LockClass, LockKind, Ordering, Platform};
use tcp::Pcb;

use super::{Connection, Directory, Effects, MsgP};
use crate::after::After;
use crate::call::{self, OpenRefused, OpenRequest};
use crate::containment::{Casualty, attempt};
use crate::flow::{Flow, Key};
use crate::pcb::SharedPcb;
use crate::replicas::Unmatched;
use crate::socket::{Admission, Admitted, TcpSocket};
use crate::syn_cache::Child;
use crate::table::private::Absent;
use crate::tx::RouteCache;

impl<P: Platform> MsgP<P> {
    /// For a listener, or for nobody. Set-up holds the table lock to the end, as FreeBSD's does.
    #[cold]
    pub(super) fn unmatched(&self, arrival: &mut Option<tcp::Segment>, hash: u32, now: Time, after: &mut After<P>) {
        let Some(segment) = &*arrival else { return };
        let flow = Flow { tuple: segment.tuple, hash };
        let mut guard = self.table.lock();
        let directory = &mut *guard;
        // While one thread waited for the lock, another may have completed the handshake.
        let absent = match directory.connections.find(&flow.tuple, flow.hash) {
            Err(absent) => absent,
            Ok(slot) => {
                let Some(connection) = directory.connections.at(slot).cloned() else { return };
                let held = self.keep(guard);
                let _ = self.run(&connection, held, tcp::SegmentArrives(arrival), now, after);
                return;
            }
        };
        if let Some(slot) = directory.half_open.find(&flow, absent) {
            let effects = (&self.counters, &mut *after);
            let child = self.shared.half_open_arrives(&mut directory.half_open, slot, arrival, now, effects);
            self.half_open_deadline.store(directory.half_open.cached_deadline(), Ordering::Relaxed);
            if let Some(child) = child {
                self.adopt(guard, child, now, after);
            }
            return;
        }
        match directory.replicas.unmatched(segment, now) {
            Unmatched::Listener(listener) => {
                let effects = (&self.counters, &mut *after);
                let half_open = &mut directory.half_open;
                let child = self.shared.syn_arrives(half_open, listener, (flow, absent), arrival, now, effects);
                self.half_open_deadline.store(directory.half_open.cached_deadline(), Ordering::Relaxed);
                if let Some(child) = child {
                    self.adopt(guard, child, now, after);
                }
            }
            Unmatched::Cookie(listener) => {
                let effects = (&self.counters, &mut *after);
                let child = self.shared.cookie_arrives(listener, (flow, absent), arrival, now, effects);
                if let Some(child) = child {
                    self.adopt(guard, child, now, after);
                }
            }
            Unmatched::Nobody => {
                drop(guard);
                self.counters.drop(DropReason::TcpNoListener);
                self.shared.reset(&flow, segment, &self.counters, after);
            }
        }
    }

    /// An ICMP error about no connection: is it about a handshake?
    #[cold]
    pub(super) fn half_open_error(&self, error: &ip::IcmpError, hash: u32) -> bool {
        let mut directory = self.table.lock();
        let directory = &mut *directory;
        let Err(absent) = directory.connections.find(&error.tuple, hash) else { return false };
        let half_open = &mut directory.half_open;
        let Some(slot) = half_open.find(&Flow { tuple: error.tuple, hash }, absent) else { return false };
        self.shared.half_open_error(half_open, slot, error, &self.counters);
        self.half_open_deadline.store(half_open.cached_deadline(), Ordering::Relaxed);
        true
    }

    pub(super) fn half_open_timeouts(&self, now: Time) {
        let mut after = After::default();
        let mut directory = self.table.lock();
        self.shared.half_open_timeouts(&mut directory.half_open, now, &self.counters, &mut after);
        self.half_open_deadline.store(directory.half_open.cached_deadline(), Ordering::Relaxed);
        drop(directory);
        after.perform(&self.shared);
    }

    /// A handshake is complete, or its connection opens early: it enters the table and the accept queue.
    fn adopt(&self, mut directory: Guard<'_, Directory<P>, P>, child: Child<P>, now: Time, after: &mut After<P>) {
        let Child { flow, pcb, route, admission, ready, deadline, path, table, starved, absent } = child;
        let by = RouteCache::by(route.interface());
        let connection = self.connection(flow, *pcb, route, TcpSocket::new(flow), Some(admission));
        Self::place(&mut directory, &connection, absent);
        drop(directory);
        connection.socket.ready.begin(ready);
        if starved {
            self.shared.starve(&flow, &by, connection.socket.target(), after);
        }
        self.settle(&connection, Effects { deadline, path, table }, now, after);
    }

    pub(super) fn open(&self, request: OpenRequest<P>, now: Time, after: &mut After<P>) -> Result<Key, OpenRefused> {
        let flow = request.flow();
        let OpenRequest { mut params, generation, socket, fast_open } = request;
        if self.shared.tcp().reclaims_time_wait() {
            params.iss = self.reclaim(&flow, now, after).unwrap_or(params.iss);
        }
        let mut directory = self.table.lock();
        let Err(absent) = directory.connections.find(&flow.tuple, flow.hash) else {
            return Err(OpenRefused::TupleInUse);
        };
        let mut route = directory.half_open.routes.recall(flow.tuple.remote_addr, generation);
        let opened = attempt(|| {
            let mut out = self.shared.outbox(&flow, &route, &self.counters);
            let pcb = call::open(&params, fast_open, &mut out, now);
            self.shared.emit(&flow, &mut route, &mut out, after);
            (pcb, Effects { deadline: out.deadline, path: out.path, table: out.table })
        });
        let (pcb, effects) = opened.map_err(|panic| {
            self.shared.failures.note(panic, Casualty::Connection(flow.tuple), &self.counters);
            OpenRefused::Fault
        })?;
        directory.half_open.routes.note(flow.tuple.remote_addr, &route);
        let connection = self.connection(flow, pcb, route, socket, None);
        let key = Self::place(&mut directory, &connection, absent);
        drop(directory);
        self.settle(&connection, effects, now, after);
        Ok(key)
    }

    /// An active open wants `tuple`: if a connection in TIME-WAIT has it and makes way, the initial sequence number for its
    /// successor.
    #[cold]
    fn reclaim(&self, flow: &Flow, now: Time, after: &mut After<P>) -> Option<wire::SeqNumber> {
        let mut directory = self.table.lock();
        let slot = directory.connections.find(&flow.tuple, flow.hash).ok()?;
        let connection = directory.connections.at(slot).cloned()?;
        drop(directory);
        self.run(&connection, None, tcp::Reclaim, now, after).flatten()
    }

    fn connection(
        &self,
        flow: Flow,
        pcb: Pcb,
        route: RouteCache,
        socket: Arc<TcpSocket<P>>,
        admission: Option<Admission<P>>,
    ) -> Arc<Connection<P>> {
        Arc::new(Connection {
            flow,
            leaves_by: P::AtomicU32::new(route.interface().into()),
            pcb: SharedPcb::new(self.locks, self.shared.lock_kind, pcb, route),
            socket,
            armed: P::AtomicU64::new(u64::MAX),
            admission: Lock::new(LockKind::Blocking, LockClass::SocketBuffer, admission),
        })
    }

    fn place(directory: &mut Directory<P>, connection: &Arc<Connection<P>>, absent: Absent) -> Key {
        let key = directory.connections.insert(connection.clone(), absent);
        connection.socket.placed(key);
        key
    }

    pub(super) fn established(&self, connection: &Arc<Connection<P>>, now: Time, after: &mut After<P>) {
        let mut owed = connection.admission.lock();
        let Some(admission) = owed.take() else { return };
        match admission.enter(&connection.socket) {
            Admitted::New(listener, rest) => {
                *owed = rest;
                drop(owed);
                self.counters.add(Counter::ConnectionsAccepted, 1);
                after.wake_listener(&listener);
            }
            Admitted::Known => {}
            Admitted::Closed => {
                drop(owed);
                self.run(connection, None, tcp::Abort, now, after);
            }
        }
    }

    /// A connection that was open early has failed.
    #[cold]
    pub(super) fn unfinished(
        &self,
        connection: &Arc<Connection<P>>,
        (reset, remove): (bool, bool),
        now: Time,
        after: &mut After<P>,
    ) {
        let admission = connection.admission.lock().take();
        // Another thread may be about to enter it into the accept queue, and will find that it has nothing to enter with.
        let unknown = matches!(admission, Some(Admission::Early(_)));
        if let Some(admission) = admission {
            if reset { admission.reset(now) } else { admission.abandon() }
        }
        if remove {
            self.remove(connection);
        } else if unknown {
            self.run(connection, None, tcp::Abort, now, after);
        }
    }
}
