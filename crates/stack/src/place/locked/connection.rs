//! A connection that many threads share, and the table of all of them.

use std::sync::Arc;

use sync::slab::{Detached, Key};
use sync::{Atomic, OnceBox, Ordering, Platform};
use tcp::LimitClass;
use wire::{FlowMark, FourTuple};

use super::super::connection::{self, Connections, charge_change};
use super::super::pcb::{ConnectionLocks, LockPlan, SharedPcb};
use super::super::trim_slots;
use super::handlers::LockedHandler;
use super::{ConnectionRef, Locked};
use crate::account::Charge;
use crate::charge;
use crate::connections::{NewConnection, Site};
use crate::flow::Flow;
use crate::secrets::Secrets;
use crate::shared::Shared;
use crate::socket::TcpSocket;
use crate::table::index::{Index, VacantEntry};

/// One connection. Any thread.
pub struct LockedConnection<P: Platform> {
    pub(super) key: Key,
    hash: VacantEntry,
    pub(super) flow: Flow,
    pub(super) pcb: SharedPcb<P>,
    /// The port by which its segments leave; 0 until the first has left.
    pub(super) leaves_by: P::AtomicU32,
    pub(super) socket: Arc<TcpSocket<P>>,
    /// When its entry in the wheel fires, in nanoseconds; `u64::MAX` when it has none.
    pub(super) armed: P::AtomicU64,
    /// Its share of the stack's account: bytes, in two's complement, and its [`LimitClass`] as a number.
    memory: P::AtomicU64,
    standing: P::AtomicU32,
    /// Its handler.
    pub(super) handler: OnceBox<LockedHandler<P>>,
}

impl<P: Platform> LockedConnection<P> {
    /// The hash of its flow.
    #[inline]
    pub(crate) fn flow_hash(&self) -> u32 {
        self.flow.hash
    }

    /// Charges to the stack's account the amounts in an event's outbox. Two threads may do so at once: each records its
    /// own change.
    #[inline]
    pub(super) fn charge(&self, shared: &Shared<P>, memory: i64, standing: Option<LimitClass>) {
        let (account, config) = (&shared.control().account(), shared.control().tcp());
        if memory != 0 {
            self.memory.fetch_add(memory as u64, Ordering::Relaxed);
            account.take_memory(account.here(), &mut Charge::default(), memory, config);
        }
        if let Some(standing) = standing {
            let before = self.standing.swap(standing as u32, Ordering::Relaxed);
            account.count(account.here(), &mut Charge { memory: 0, standing: standing_of(before) }, standing, config);
        }
    }

    /// The connection has ended: subtracts its share from the account.
    pub(super) fn discharge(&self, shared: &Shared<P>) {
        let memory = self.memory.swap(0, Ordering::Relaxed) as i64;
        let standing = standing_of(self.standing.swap(LimitClass::Free as u32, Ordering::Relaxed));
        shared.control().account().discharge(
            shared.control().account().here(),
            Charge { memory, standing },
            shared.control().tcp(),
        );
    }

    /// Records an entry in the wheel that fires at `nanos`. False: an earlier entry exists and is kept; when it fires
    /// it finds nothing due and arms the later one.
    pub(super) fn takes_entry(&self, nanos: u64) -> bool {
        loop {
            let armed = self.armed.load(Ordering::Acquire);
            if armed <= nanos {
                return false;
            }
            if self.armed.compare_exchange(armed, nanos, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return true;
            }
        }
    }
}

/// The standing that has this number.
fn standing_of(number: u32) -> LimitClass {
    [LimitClass::Free, LimitClass::Orphan, LimitClass::TimeWait]
        .into_iter()
        .find(|s| *s as u32 == number)
        .unwrap_or_default()
}

/// A connection in the slab, without locks.
type Whole<P> = Detached<connection::Connection<P>, P>;

/// All connections of the stack, by slot, key and tuple, and the slab with their slots.
pub struct SharedTable<P: Platform, R = Arc<LockedConnection<P>>> {
    slab: Arc<Connections<P>>,
    index: Index,
    connections: Vec<Option<R>>,
}

impl<P: Platform, R: ConnectionRef<P>> SharedTable<P, R> {
    /// An empty table over the stack's slab.
    pub(super) fn new(slab: &Arc<Connections<P>>, secrets: &Secrets) -> Self {
        SharedTable { slab: slab.clone(), index: Index::new(secrets), connections: Vec::new() }
    }

    /// The number of connections.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Memory of the table and of its entries in the slab, in bytes.
    pub(super) fn footprint(&self) -> usize {
        let place = size_of::<Option<R>>();
        self.len() * Connections::<P>::ENTRY + self.connections.capacity() * place + self.index.footprint()
    }

    /// Every connection, by slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = &R> {
        self.connections.iter().flatten()
    }

    /// The connection of `tuple`, which hashes to this flow hash; or the value for [`SharedTable::insert`].
    pub(super) fn find(&mut self, tuple: &FourTuple, flow_hash: u32) -> Result<&R, VacantEntry> {
        let SharedTable { index, connections, .. } = self;
        let mark = FlowMark::of(flow_hash, tuple);
        charge::table::<P, _>(index.bucket(mark), false);
        let at = |slot: u32| connections.get(slot as usize)?.as_ref();
        let slot = index.find(tuple, mark, |slot| at(slot).is_some_and(|found| found.flow.tuple == *tuple));
        slot.map(|slot| connections[slot as usize].as_ref().expect("the index names connections"))
    }

    /// The connection in `slot`.
    pub(super) fn at(&self, slot: u32) -> Option<&R> {
        self.connections.get(slot as usize)?.as_ref()
    }

    /// The connection that `key` names.
    pub(super) fn get(&self, key: Key) -> Option<&R> {
        self.at(key.slot).filter(|connection| connection.key == key)
    }

    /// Inserts a new connection after [`SharedTable::find`] has not found its tuple.
    pub(super) fn insert(
        &mut self,
        site: &Site<'_, &Locked<P, R>>,
        new: NewConnection<'_, P>,
        hash: VacantEntry,
    ) -> Option<R> {
        let NewConnection { flow, pcb, route, socket } = new;
        let pcb = pcb.take()?;
        let ConnectionLocks { plan, kind, counting } = site.layout;
        let mut charge = Charge::default();
        site.shared.control().account().begin(site.account, &mut charge, &pcb, site.shared.control().tcp());
        let leaves_by = P::AtomicU32::new(route.port().into());
        let (key, pcb) = match plan {
            LockPlan::One | LockPlan::Backlog => {
                let whole = connection::Connection::new(hash, flow, socket.clone(), route, pcb);
                let whole = self.slab.detached(whole);
                (whole.key(), SharedPcb::whole(plan, kind, whole))
            }
            plan => {
                let place = self.slab.reserve();
                (place.key(), SharedPcb::apart(plan, kind, pcb, route, place))
            }
        };
        let armed = P::AtomicU64::new(u64::MAX);
        let memory = P::AtomicU64::new(charge.memory as u64);
        let standing = P::AtomicU32::new(charge.standing as u32);
        let connection = LockedConnection {
            key,
            hash,
            flow,
            pcb,
            leaves_by,
            socket,
            armed,
            memory,
            standing,
            handler: OnceBox::new(),
        };
        let connection = R::first(connection, counting);
        self.enter(connection.clone());
        Some(connection)
    }

    /// Inserts a connection that another table has released.
    pub(super) fn adopt(&mut self, layout: ConnectionLocks, connection: Whole<P>) -> R {
        let ConnectionLocks { plan, kind, counting } = layout;
        let (key, hash, flow, socket) =
            (connection.key(), connection.hash, connection.flow, Arc::clone(&connection.socket));
        let leaves_by = P::AtomicU32::new(connection.route.port().into());
        let memory = P::AtomicU64::new(connection.charge.memory as u64);
        let standing = P::AtomicU32::new(connection.charge.standing as u32);
        let pcb = match plan {
            LockPlan::One | LockPlan::Backlog => SharedPcb::whole(plan, kind, connection),
            plan => {
                let (place, connection) = connection.take();
                SharedPcb::apart(plan, kind, connection.pcb, connection.route, place)
            }
        };
        let armed = P::AtomicU64::new(u64::MAX);
        let connection = LockedConnection {
            key,
            hash,
            flow,
            pcb,
            leaves_by,
            socket,
            armed,
            memory,
            standing,
            handler: OnceBox::new(),
        };
        let connection = R::first(connection, counting);
        self.enter(connection.clone());
        connection
    }

    /// Releases a connection that no thread is inside. It stays in its slot, or is reassembled there.
    pub(super) fn release(&mut self, slot: u32) -> Option<Whole<P>> {
        let LockedConnection { hash, flow, pcb, socket, memory, standing, .. } =
            self.remove(slot)?.into_connection()?;
        let mut whole = pcb.into_whole(|pcb, route| connection::Connection::new(hash, flow, socket, route, pcb));
        // Its share of the account remains: only where it is stored changes.
        let memory = memory.load(Ordering::Relaxed) as i64;
        whole.charge = Charge { memory, standing: standing_of(standing.load(Ordering::Relaxed)) };
        Some(whole)
    }

    /// Gives back the memory that a peak has left behind.
    pub(super) fn trim(&mut self) {
        trim_slots(&mut self.connections);
        let SharedTable { index, connections, .. } = self;
        index.trim(|slot| connections.get(slot as usize)?.as_ref().map(|connection| connection.hash));
    }

    /// The slots in use are below this number.
    pub(super) fn slots(&self) -> usize {
        self.connections.len()
    }

    /// Makes a connection findable.
    fn enter(&mut self, connection: R) {
        let (slot, mark, hash) = (connection.key.slot, connection.flow.mark(), connection.hash);
        if self.connections.len() <= slot as usize {
            self.connections.resize(slot as usize + 1, None);
        }
        self.connections[slot as usize] = Some(connection);
        let SharedTable { index, connections, .. } = self;
        let hash_of = |other: u32| connections[other as usize].as_ref().map_or(hash, |other| other.hash);
        index.insert(slot, mark, hash, hash_of);
        charge_change::<P>(index, mark);
    }

    /// Removes a connection. Its slot is free once the last user of the connection has dropped it.
    pub(super) fn remove(&mut self, slot: u32) -> Option<R> {
        let connection = self.connections.get_mut(slot as usize)?.take()?;
        let mark = connection.flow.mark();
        self.index.remove(slot, mark, connection.hash);
        charge_change::<P>(&self.index, mark);
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use observe::{Counters, Time};
    use sync::{CountedRef, LockKind, Real, RefCounting};
    use tcp::{Config, OpenParams, Outbox, Pcb};
    use wire::SeqNumber;

    use super::*;
    use crate::route_cache::RouteCache;

    /// A connection with the peer at `port`, in no table.
    fn whole(slab: &Arc<Connections<Real>>, port: u16) -> Whole<Real> {
        let (config, counters) = (Config::default(), Counters::new());
        let tuple = FourTuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into());
        let flow = Flow { tuple, hash: port.into() };
        let params = OpenParams {
            tuple,
            iss: SeqNumber(0),
            ts_offset: 0,
            flow_hash: None,
            mss: 1460,
            options: Default::default(),
        };
        let pcb = Pcb::open_active(&params, &mut Outbox::new(&config, &counters), Time::ZERO);
        let hash = VacantEntry::of(&Secrets::from_seed(3), &tuple);
        slab.detached(connection::Connection::new(hash, flow, TcpSocket::new(flow), RouteCache::at_generation(0), pcb))
    }

    fn is_counted<R: ConnectionRef<Real>>(counting: RefCounting) {
        let slab = connection::connections();
        let mut table = SharedTable::<Real, R>::new(&slab, &Secrets::from_seed(3));
        let layout = ConnectionLocks { counting, ..ConnectionLocks::new(LockPlan::One, LockKind::Blocking) };
        let [one, other] = [1000, 1001].map(|port| table.adopt(layout, whole(&slab, port)));
        assert!(one.is(&one.clone()) && table.get(one.key).is_some_and(|found| found.is(&one)));
        assert!(!one.is(&other));
        assert!(!one.is_only(), "the table has it, too");
        let slot = one.key.slot;
        assert!(table.remove(slot).is_some_and(|removed| removed.into_connection().is_none()));
        assert!(one.is_only());
        assert_eq!(one.into_connection().map(|connection| connection.key.slot), Some(slot));
        assert!(other.into_connection().is_none(), "the table has it");
    }

    #[test]
    fn a_connection_has_as_many_holders_as_were_made() {
        is_counted::<Arc<LockedConnection<Real>>>(RefCounting::Atomic);
        for counting in [RefCounting::Atomic, RefCounting::Locked(LockKind::Blocking)] {
            is_counted::<CountedRef<LockedConnection<Real>, Real>>(counting);
        }
    }

    /// Memory that a peak has left behind counts until it is given back.
    #[test]
    fn places_of_connections_count_as_memory() {
        let mut table = SharedTable::<Real>::new(&connection::connections(), &Secrets::from_seed(3));
        let index = table.footprint();
        table.connections.reserve_exact(1000);
        assert_eq!(table.footprint() - index, 8000, "a pointer each");
        table.trim();
        assert_eq!(table.footprint(), index);
    }
}
