//! A connection as it is stored in the stack's slab, and the table of connections that one cell owns.
//!
//! A connection is put into the slab once and stays there until it is over: tables, timers and users name it by slot or
//! key, whichever architecture the stack has.

use std::mem::offset_of;
use std::ops::Deref;
use std::sync::Arc;

use observe::Time;
use sync::slab::{Detached, Key, Owner, Slab};
use sync::{LockClass, Platform, PrefetchHint, model_is_over};
use tcp::{Pcb, TimeWait};
use wire::{FlowMark, FourTuple};

use super::time_wait::TimeWaits;
use crate::account::Charge;
use crate::charge;
use crate::flow::Flow;
use crate::route_cache::RouteCache;
use crate::secrets::Secrets;
use crate::socket::TcpSocket;
use crate::socket::poll::Surroundings;
use crate::socket::spare::SpareSockets;
use crate::table::flow_bindings::CellBindings;
use crate::table::index::{Index, VacantEntry};
use crate::timers::TimerPlace;

/// A connection's reference to its socket, which it has until it ends.
pub struct ConnectionSocket<P: Platform>(Option<Arc<TcpSocket<P>>>);

impl<P: Platform> ConnectionSocket<P> {
    /// Holds this one.
    #[inline(always)]
    pub(super) fn new(socket: Arc<TcpSocket<P>>) -> Self {
        ConnectionSocket(Some(socket))
    }
}

impl<P: Platform> Deref for ConnectionSocket<P> {
    type Target = Arc<TcpSocket<P>>;

    #[inline(always)]
    fn deref(&self) -> &Arc<TcpSocket<P>> {
        self.0.as_ref().expect("the connection has not ended")
    }
}

/// One connection, used by one thread at a time. The fields of look-ups come first, in the cache line in which the slab
/// stores the owner; fields that only a transmission and the removal touch are in the last line, after the end of
/// header-out.
#[repr(C)]
pub struct Connection<P: Platform> {
    pub(super) flow: Flow,
    pub(super) socket: ConnectionSocket<P>,
    pub(super) route: RouteCache,
    pub(super) pcb: Pcb,
    /// Its share of the stack's account.
    pub(super) charge: Charge,
    /// The keyed hash of its tuple: removal, or a move to another table, needs no second hash.
    pub(super) hash: VacantEntry,
    /// Its entry in the wheel of its cell. Connections with locks of their own keep it elsewhere.
    pub(super) timer: TimerPlace,
}

impl<P: Platform> Connection<P> {
    /// Not in a table yet, and without a timer.
    #[inline(always)]
    pub(super) fn new(hash: VacantEntry, flow: Flow, socket: Arc<TcpSocket<P>>, route: RouteCache, pcb: Pcb) -> Self {
        let (charge, timer) = (Charge::default(), TimerPlace::UNARMED);
        Connection { flow, socket: ConnectionSocket::new(socket), route, pcb, charge, hash, timer }
    }

    /// What its user will touch; `large`: the thread of its cell has more connections than the caches hold.
    #[inline(always)]
    pub(super) fn surroundings(&self, large: bool) -> Surroundings {
        if !large {
            return Surroundings::CACHED;
        }
        Surroundings { connection: PrefetchHint::of(self), unread: self.pcb.unread_place() }
    }
}

/// The passes in which the processor is asked for connections, so that it waits for none of the lines that lead to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PrefetchPass {
    /// Where the index has the slots of flows.
    Index,
    /// The entries in these slots.
    Entries,
    /// What the connections refer to.
    Contents,
}

impl PrefetchPass {
    /// In their order.
    pub(crate) const ALL: [PrefetchPass; 3] = [PrefetchPass::Index, PrefetchPass::Entries, PrefetchPass::Contents];
}

/// The connections of a stack, under any owner.
pub type Connections<P> = Slab<Connection<P>, P>;

// An entry fills nine cache lines, without a gap before or after the connection, and its PCB has the place in them that
// its layout is made for.
const _: () = {
    let before = Connections::<sync::Real>::BEFORE;
    assert!(before + size_of::<Connection<sync::Real>>() == 9 * 64 && Connections::<sync::Real>::ENTRY == 9 * 64);
    assert!((before + offset_of!(Connection<sync::Real>, pcb)) % 64 == Pcb::BEFORE);
};

/// An empty slab for the connections of one stack.
pub fn connections<P: Platform>() -> Arc<Connections<P>> {
    Slab::new(LockClass::ConnSlab)
}

/// Reports that a connection with this mark has entered an index, or left it.
#[inline(always)]
pub(super) fn charge_change<P: Platform>(index: &Index, mark: FlowMark) {
    charge::table::<P, _>(Some(index), true);
    charge::table::<P, _>(index.bucket(mark), true);
}

/// The connections that one cell owns, by slot, key and tuple.
#[repr(C)]
pub struct OwnedTable<P: Platform> {
    owner: Owner<Connection<P>, P>,
    /// Its cache of flow hashes comes first.
    index: Index,
    /// The references to the bindings of flows.
    pub(super) bindings: CellBindings<P>,
    /// Those in TIME-WAIT without a user, which have no slot.
    pub(super) waits: TimeWaits,
    /// The sockets of connections that have ended.
    pub(super) sockets: SpareSockets<P>,
}

impl<P: Platform> OwnedTable<P> {
    /// Its first bytes, which each event touches.
    pub(super) const OF_EACH_EVENT: usize = offset_of!(OwnedTable<P>, index) + Index::OF_EACH_EVENT;

    /// An empty table over the stack's slab.
    pub(super) fn new(slab: &Arc<Connections<P>>, secrets: &Secrets) -> Self {
        let (index, waits) = (Index::new(secrets), TimeWaits::new());
        let (bindings, sockets) = (CellBindings::default(), SpareSockets::new());
        OwnedTable { owner: slab.owner(), index, bindings, waits, sockets }
    }

    /// The slab with the connections of the stack.
    #[inline(always)]
    pub(super) fn slab(&self) -> &Connections<P> {
        self.owner.slab()
    }

    /// The number of connections.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.index.len() + self.waits.len()
    }

    /// Memory of the table, its connections and their sockets, in bytes, without data behind pointers.
    pub(super) fn footprint(&self) -> usize {
        let each = Connections::<P>::ENTRY + size_of::<TcpSocket<P>>();
        self.index.len() * each + self.index.footprint() + self.waits.footprint() + self.sockets.footprint()
    }

    /// The slots of its connections, in rising order.
    pub(super) fn slots(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self.index.iter().collect();
        slots.sort_unstable();
        slots
    }

    /// The slot of the connection of `tuple`, which hashes to this flow hash; or the value for [`OwnedTable::insert`].
    #[inline(always)]
    pub(super) fn find(&mut self, tuple: &FourTuple, flow_hash: u32) -> Result<u32, VacantEntry> {
        match self.recall(tuple, flow_hash) {
            Some(slot) => Ok(slot),
            None => self.search(tuple, flow_hash),
        }
    }

    /// The first half of [`OwnedTable::find`]: what the cache of flow hashes knows.
    #[inline(always)]
    pub(super) fn recall(&mut self, tuple: &FourTuple, flow_hash: u32) -> Option<u32> {
        let OwnedTable { owner, index, .. } = self;
        let mark = FlowMark::of(flow_hash, tuple);
        charge::table::<P, _>(index.bucket(mark), false);
        index.recall(mark, |slot| owner.locate(slot).is_some_and(|found| found.flow.tuple == *tuple))
    }

    /// The second half.
    pub(super) fn search(&mut self, tuple: &FourTuple, flow_hash: u32) -> Result<u32, VacantEntry> {
        let OwnedTable { owner, index, .. } = self;
        let mark = FlowMark::of(flow_hash, tuple);
        index.search(tuple, mark, |slot| owner.locate(slot).is_some_and(|found| found.flow.tuple == *tuple))
    }

    /// Segments of these flows are about to arrive: asks the processor for what they will touch in this pass. Returns the number of
    /// connections that these may be, in the last one.
    #[inline(always)]
    pub(super) fn prefetch(&self, pass: PrefetchPass, marks: impl Iterator<Item = FlowMark>) -> usize {
        let OwnedTable { owner, index, .. } = self;
        let slots = |mark| index.candidates(mark);
        let ask = |connection: &Connection<P>| {
            connection.socket.ready.prefetch();
            connection.pcb.prefetch_unacknowledged();
        };
        match pass {
            PrefetchPass::Index => marks.for_each(|mark| index.prefetch(mark)),
            PrefetchPass::Entries => {
                marks.flat_map(slots).for_each(|slot| owner.prefetch(slot, Connections::<P>::ENTRY / 64));
            }
            PrefetchPass::Contents => {
                return marks.flat_map(slots).filter_map(|slot| owner.get(slot)).map(ask).count();
            }
        }
        0
    }

    /// The connection in `slot`.
    #[inline(always)]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut Connection<P>> {
        self.owner.get_mut(slot)
    }

    /// Whether `key` names a connection of this cell.
    #[inline(always)]
    pub(super) fn has(&mut self, key: Key) -> bool {
        self.owner.get_by_key(key).is_some()
    }

    /// Inserts a connection after [`OwnedTable::find`] has not found its tuple. `make` makes it where it will stay.
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: VacantEntry, flow: &Flow, make: impl FnOnce() -> Connection<P>) -> Key {
        let key = self.owner.insert_with(make);
        self.enter(key.slot, flow, hash);
        key
    }

    #[inline(never)]
    fn enter(&mut self, slot: u32, flow: &Flow, hash: VacantEntry) {
        let OwnedTable { owner, index, bindings, .. } = self;
        bindings.hold(flow.hash);
        index.insert(slot, flow.mark(), hash, |other| owner.get(other).map_or(hash, |other| other.hash));
        charge_change::<P>(index, flow.mark());
    }

    /// Gives back the memory that a peak has left behind. That of free entries goes to the slab, to which this
    /// announces that the cell accesses none of them now.
    pub(super) fn trim(&mut self) {
        let OwnedTable { owner, index, .. } = self;
        index.trim(|slot| owner.get(slot).map(|connection| connection.hash));
        owner.trim();
        self.waits.trim();
        self.sockets.clear();
    }

    /// Keeps the connection in `slot`, which is in TIME-WAIT and has no user, as `kept`: the slot is free. False: it
    /// must stay.
    pub(super) fn lay_down(&mut self, slot: u32, kept: TimeWait, now: Time) -> bool {
        let key = self.waits.out().and_then(|_| self.owner.key(slot));
        let Some(connection) = self.owner.get(slot) else { return false };
        let laid_down = self.waits.put(key, (&connection.flow.tuple, connection.hash), kept, now);
        if laid_down {
            self.bindings.hold(connection.flow.hash);
            self.free(slot);
        }
        laid_down
    }

    /// Removes a connection from the table without moving it in the slab.
    pub(super) fn release(&mut self, slot: u32) -> Option<Detached<Connection<P>, P>> {
        let connection = self.owner.get(slot)?;
        self.bindings.release(connection.flow.hash);
        let mark = connection.flow.mark();
        self.index.remove(slot, mark, connection.hash);
        charge_change::<P>(&self.index, mark);
        self.owner.detach(slot)
    }

    /// Inserts a connection that another table has released, and returns its slot.
    ///
    /// # Panics
    /// If it is in another slab.
    pub(super) fn adopt(&mut self, mut connection: Detached<Connection<P>, P>) -> u32 {
        connection.timer = TimerPlace::UNARMED;
        let (flow, hash) = (connection.flow, connection.hash);
        let slot = self.owner.attach(connection).ok().expect("connections of one stack lie in one slab").slot;
        self.enter(slot, &flow, hash);
        slot
    }

    /// Ends a connection: it leaves the table, and its slot is free.
    pub(super) fn free(&mut self, slot: u32) {
        let Some(connection) = self.owner.get_mut(slot) else { return };
        if let Some(socket) = connection.socket.0.take() {
            self.sockets.keep(socket);
        }
        self.bindings.release(connection.flow.hash);
        let mark = connection.flow.mark();
        self.index.remove(slot, mark, connection.hash);
        charge_change::<P>(&self.index, mark);
        self.owner.free(slot);
    }
}

impl<P: Platform> Drop for OwnedTable<P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.slots().into_iter().for_each(|slot| self.free(slot));
        }
    }
}
