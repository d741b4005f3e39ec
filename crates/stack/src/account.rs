//! Accounts for the resources that the connections of one stack share: buffer memory, orphans, connections in
//! TIME-WAIT.
//!
//! An event reports in its outbox what it has allocated or released. The thread that ran it records that here, and the
//! next event receives the scarcity as a value ([`Account::scarcity`], one load).
//!
//! Each cell has its own [`AccountEntry`]; where connections are behind locks, each thread has one. An entry has one writer at
//! a time, which uses plain loads and stores. An amount is added to the stack's total, and scarcity evaluated again,
//! only when it has moved by more than a *quantum* since it was last added. A single entry is itself the total and
//! needs no read-modify-write. A quantum is a small part of the limit, and 0 where the limit is small: limits of a few
//! connections hold exactly. The sum of the entries ([`Account::sum`]) is exact at rest, whatever the quantum.
//!
//! A switch to another architecture closes the entries of the old one; their amounts go to the first entry opened next,
//! so that entries do not accumulate with each switch.
//!
//! What may never happen: an amount that is entered and never subtracted. Each connection stores what it is charged
//! ([`Charge`]), and the code that removes the connection subtracts that, even after a panic in one of its events.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, CachePadded, Lock, LockClass, LockKind, Ordering, PerThread, Platform, Writers};
use tcp::{LimitClass, Pressure, Scarcity};

/// A resource that the account tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Bytes of the buffers of connections, sent and received, of the receive queues of datagram sockets, of fragments,
    /// and of packets that wait for a neighbour.
    Memory,
    /// Connections that their users have closed and that still wait for the peer.
    Orphans,
    /// Connections in TIME-WAIT.
    TimeWaits,
}

const RESOURCES: [Resource; 3] = [Resource::Memory, Resource::Orphans, Resource::TimeWaits];

impl Resource {
    /// The resource that a connection of this standing uses.
    fn of(standing: LimitClass) -> Option<Resource> {
        match standing {
            LimitClass::Free => None,
            LimitClass::Orphan => Some(Resource::Orphans),
            LimitClass::TimeWait => Some(Resource::TimeWaits),
        }
    }
}

/// Interval between reviews while memory is short, in nanoseconds.
const REVIEW_NS: u64 = 1_000_000;

/// The largest quanta: bytes, and connections.
const QUANTA: [u64; 3] = [64 << 10, 64, 64];

/// Bytes by which waiting packets may change before scarcity is evaluated again.
const WAITING_QUANTUM: u64 = 16 << 10;

/// All quanta together are at most the limit divided by this.
const PART: u64 = 16;

/// The amounts of one cell or one thread: allocated minus released, in two's complement, because memory may be
/// allocated here and released elsewhere.
#[repr(C)]
pub(crate) struct AccountEntry<P: Platform> {
    /// Before the rest: on one cache line with memory, which nearly every event changes.
    writers: Writers,
    lines: [Line<P>; 3],
}

/// One resource in an [`AccountEntry`].
struct Line<P: Platform> {
    amount: P::AtomicU64,
    /// The part of the amount that is in the total.
    settled: P::AtomicU64,
    /// Change of the amount after which it is added to the total.
    quantum: P::AtomicU64,
}

impl<P: Platform> AccountEntry<P> {
    fn new(writers: Writers) -> Self {
        let zero = || P::AtomicU64::new(0);
        let line = |_| Line { amount: zero(), settled: zero(), quantum: zero() };
        AccountEntry { writers, lines: std::array::from_fn(line) }
    }
}

/// Packets that wait for the link addresses of neighbours: the part of the account that the tables of neighbours share
/// with it. They belong to no cell.
pub(crate) struct WaitingPackets<P: Platform> {
    bytes: P::AtomicU64,
    /// The bytes when scarcity was last evaluated for them.
    weighed: P::AtomicU64,
    memory_short: P::AtomicBool,
}

impl<P: Platform> WaitingPackets<P> {
    fn new() -> Self {
        let (bytes, weighed) = (P::AtomicU64::new(0), P::AtomicU64::new(0));
        WaitingPackets { bytes, weighed, memory_short: P::AtomicBool::new(false) }
    }

    /// Enters a change of the bytes of one table, in two's complement. `alone`: no other thread enters one. Returns
    /// whether so much has changed that scarcity must be evaluated ([`Account::weigh_waiting`]).
    pub(crate) fn enter(&self, change: u64, alone: bool) -> bool {
        let now = if alone {
            let now = self.bytes.load(Ordering::Relaxed).wrapping_add(change);
            self.bytes.store(now, Ordering::Relaxed);
            now
        } else {
            self.bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
        };
        now.abs_diff(self.weighed.load(Ordering::Relaxed)) >= WAITING_QUANTUM
    }

    /// Whether memory is so short that queues are to hold little.
    pub(crate) fn is_memory_short(&self) -> bool {
        self.memory_short.load(Ordering::Relaxed)
    }
}

/// The entries of cells.
struct CellAccounts<P: Platform> {
    entries: Vec<Arc<CachePadded<AccountEntry<P>>>>,
    /// The amounts of closed entries, until the next opened entry takes them over; all are in the total.
    left: [u64; 3],
}

/// See the head of this file. Any thread.
pub(crate) struct Account<P: Platform> {
    cells: Lock<CellAccounts<P>, P>,
    threads: PerThread<AccountEntry<P>, P>,
    /// Cells that have an entry.
    opened: P::AtomicUsize,
    total: CachePadded<[P::AtomicU64; 3]>,
    /// Bytes of fragments that wait for the rest of their packets. They belong to no cell.
    fragments: P::AtomicU64,
    waiting: Arc<WaitingPackets<P>>,
    /// [`Scarcity`], as bits.
    scarcity: P::AtomicU32,
    /// Time of the next review, in nanoseconds.
    review: P::AtomicU64,
}

/// The amounts of one connection in the account. Kept beside its PCB by its place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charge {
    /// Bytes.
    pub(crate) memory: i64,
    /// How it counts.
    pub(crate) standing: LimitClass,
}

impl<P: Platform> Account<P> {
    /// An empty account. A resource with a limit of 0 is scarce at once.
    pub(crate) fn new(config: &tcp::Config) -> Self {
        let account = Account {
            cells: Lock::new(
                LockKind::Blocking,
                LockClass::Accounts,
                CellAccounts { entries: Vec::new(), left: [0; 3] },
            ),
            threads: PerThread::new(AccountEntry::new),
            opened: P::AtomicUsize::new(0),
            total: CachePadded::new(std::array::from_fn(|_| P::AtomicU64::new(0))),
            fragments: P::AtomicU64::new(0),
            waiting: Arc::new(WaitingPackets::new()),
            scarcity: P::AtomicU32::new(Scarcity::NONE.bits()),
            review: P::AtomicU64::new(0),
        };
        account.limits_changed(config);
        account
    }

    /// An entry for one more cell. It takes over the amounts of closed entries.
    pub(crate) fn open(&self) -> Arc<CachePadded<AccountEntry<P>>> {
        let entry = Arc::new(CachePadded::new(AccountEntry::<P>::new(Writers::One)));
        let mut cells = self.cells.lock();
        for (line, left) in entry.lines.iter().zip(std::mem::take(&mut cells.left)) {
            line.amount.store(left, Ordering::Relaxed);
            line.settled.store(left, Ordering::Relaxed);
        }
        cells.entries.push(entry.clone());
        self.opened.store(cells.entries.len(), Ordering::Relaxed);
        entry
    }

    /// Closes the entry of a cell that has released its connections, which keep their charges for the cells that they
    /// move to. At rest.
    pub(crate) fn close(&self, entry: &Arc<CachePadded<AccountEntry<P>>>) {
        let mut cells = self.cells.lock();
        self.move_out(entry, &mut cells.left);
        cells.entries.retain(|other| !Arc::ptr_eq(other, entry));
        self.opened.store(cells.entries.len(), Ordering::Relaxed);
    }

    /// The same for connections behind locks, which are in the entries of the threads that used them. At rest.
    pub(crate) fn close_threads(&self) {
        let mut cells = self.cells.lock();
        self.threads.iter().for_each(|entry| self.move_out(entry, &mut cells.left));
    }

    /// Adds an entry's amounts to the total and to `left`.
    fn move_out(&self, entry: &AccountEntry<P>, left: &mut [u64; 3]) {
        for ((line, total), left) in entry.lines.iter().zip(self.total.iter()).zip(left) {
            let amount = line.amount.swap(0, Ordering::Relaxed);
            let settled = line.settled.swap(0, Ordering::Relaxed);
            total.fetch_add(amount.wrapping_sub(settled), Ordering::Relaxed);
            *left = left.wrapping_add(amount);
        }
    }

    /// Cells and threads that have an entry.
    pub(crate) fn entries(&self) -> usize {
        self.cells.lock().entries.len() + self.threads.iter().count()
    }

    /// The entry of the calling thread, for connections behind locks.
    #[inline]
    pub(crate) fn here(&self) -> &AccountEntry<P> {
        self.threads.here()
    }

    /// The scarce resources.
    #[inline(always)]
    pub(crate) fn scarcity(&self) -> Scarcity {
        Scarcity::from_bits(self.scarcity.load(Ordering::Relaxed))
    }

    /// Records that the connection with `charge` has allocated `bytes` more (negative: released them).
    #[inline(always)]
    pub(crate) fn take_memory(&self, entry: &AccountEntry<P>, charge: &mut Charge, bytes: i64, config: &tcp::Config) {
        charge.memory += bytes;
        self.enter(entry, Resource::Memory, bytes, config);
    }

    /// Enters that the receive queue of a datagram socket has grown by this many bytes (negative: shrunk).
    #[inline]
    pub(crate) fn take_datagrams(&self, entry: &AccountEntry<P>, bytes: i64, config: &tcp::Config) {
        if bytes != 0 {
            self.enter(entry, Resource::Memory, bytes, config);
        }
    }

    /// Sets the number of bytes that fragments hold. The caller has the lock of their table.
    #[cold]
    pub(crate) fn note_fragments(&self, bytes: u64, config: &tcp::Config) {
        if self.fragments.load(Ordering::Relaxed) != bytes {
            self.fragments.store(bytes, Ordering::Relaxed);
            self.weigh_outside(config);
        }
    }

    /// The packets that wait for neighbours.
    pub(crate) fn waiting(&self) -> &Arc<WaitingPackets<P>> {
        &self.waiting
    }

    /// Evaluates scarcity with the packets that wait for neighbours now.
    #[cold]
    pub(crate) fn weigh_waiting(&self, config: &tcp::Config) {
        let bytes = self.waiting.bytes.load(Ordering::Relaxed);
        if self.waiting.weighed.load(Ordering::Relaxed) != bytes {
            self.waiting.weighed.store(bytes, Ordering::Relaxed);
            self.weigh_outside(config);
        }
    }

    fn weigh_outside(&self, config: &tcp::Config) {
        let taken = positive(self.total[Resource::Memory as usize].load(Ordering::Relaxed));
        self.classify(Resource::Memory, taken + self.outside(Resource::Memory), config);
    }

    /// Charges a connection that enters a table for what its buffers already hold: data of its SYN.
    pub(crate) fn begin(&self, entry: &AccountEntry<P>, charge: &mut Charge, pcb: &tcp::Pcb, config: &tcp::Config) {
        let memory = pcb.memory();
        if memory != 0 {
            self.take_memory(entry, charge, memory, config);
        }
    }

    /// Records the new standing of the connection with `charge`.
    pub(crate) fn count(
        &self,
        entry: &AccountEntry<P>,
        charge: &mut Charge,
        standing: LimitClass,
        config: &tcp::Config,
    ) {
        let before = std::mem::replace(&mut charge.standing, standing);
        if before != standing {
            Resource::of(before).into_iter().for_each(|resource| self.enter(entry, resource, -1, config));
            Resource::of(standing).into_iter().for_each(|resource| self.enter(entry, resource, 1, config));
        }
    }

    /// This many connections in TIME-WAIT, which are charged for nothing else, are gone.
    pub(crate) fn end_time_waits(&self, entry: &AccountEntry<P>, ended: usize, config: &tcp::Config) {
        if ended > 0 {
            self.enter(entry, Resource::TimeWaits, -(ended as i64), config);
        }
    }

    /// The connection that has this charge is gone.
    pub(crate) fn discharge(&self, entry: &AccountEntry<P>, mut charge: Charge, config: &tcp::Config) {
        self.count(entry, &mut charge, LimitClass::Free, config);
        if charge.memory != 0 {
            self.enter(entry, Resource::Memory, -charge.memory, config);
        }
    }

    #[inline(always)]
    fn enter(&self, entry: &AccountEntry<P>, resource: Resource, change: i64, config: &tcp::Config) {
        let line = &entry.lines[resource as usize];
        let now = if entry.writers == Writers::One {
            let now = line.amount.load(Ordering::Relaxed).wrapping_add(change as u64);
            line.amount.store(now, Ordering::Relaxed);
            now
        } else {
            line.amount.fetch_add(change as u64, Ordering::Relaxed).wrapping_add(change as u64)
        };
        let quantum = line.quantum.load(Ordering::Relaxed);
        if now.wrapping_sub(line.settled.load(Ordering::Relaxed)).wrapping_add(quantum) > 2 * quantum {
            self.settle(line, resource, now, config);
        }
    }

    /// An amount has moved by more than a quantum.
    #[cold]
    #[inline(never)]
    fn settle(&self, line: &Line<P>, resource: Resource, now: u64, config: &tcp::Config) {
        let total = &self.total[resource as usize];
        let sum = if self.is_single() {
            line.settled.store(now, Ordering::Relaxed);
            total.store(now, Ordering::Relaxed);
            now
        } else {
            let change = now.wrapping_sub(line.settled.swap(now, Ordering::Relaxed));
            total.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
        };
        line.quantum.store(self.quantum(resource, config), Ordering::Relaxed);
        self.classify(resource, positive(sum) + self.outside(resource), config);
    }

    /// Change of one entry that is not yet added to the total.
    fn quantum(&self, resource: Resource, config: &tcp::Config) -> u64 {
        let entries = match self.opened.load(Ordering::Relaxed) as u64 {
            0 => self.threads.iter().count() as u64,
            cells => cells,
        };
        (limit(resource, config) / (PART * entries.max(1))).min(QUANTA[resource as usize])
    }

    /// Whether there is one cell. No thread has an entry then, or only one that was closed.
    fn is_single(&self) -> bool {
        self.opened.load(Ordering::Relaxed) == 1
    }

    /// Use of a resource in addition to the entries.
    fn outside(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Memory => {
                self.fragments.load(Ordering::Relaxed) + positive(self.waiting.bytes.load(Ordering::Relaxed))
            }
            Resource::Orphans | Resource::TimeWaits => 0,
        }
    }

    /// Publishes whether a resource is scarce when `taken` of it is in use.
    fn classify(&self, resource: Resource, taken: u64, config: &tcp::Config) {
        let limit = limit(resource, config);
        let before = self.scarcity();
        let deferred = |before: Scarcity| match resource {
            Resource::Memory => {
                let memory = config.memory_limits().classify(taken, before.memory());
                Scarcity::new(memory, before.no_more_orphans(), before.no_more_time_waits())
            }
            Resource::Orphans => Scarcity::new(before.memory(), taken >= limit, before.no_more_time_waits()),
            Resource::TimeWaits => Scarcity::new(before.memory(), before.no_more_orphans(), taken >= limit),
        };
        if resource == Resource::Memory {
            let short = deferred(before).memory() == Pressure::Severe;
            self.waiting.memory_short.store(short, Ordering::Relaxed);
        }
        if self.is_single() {
            if deferred(before) != before {
                self.scarcity.store(deferred(before).bits(), Ordering::Relaxed);
            }
            return;
        }
        let mut seen = before;
        while deferred(seen) != seen {
            let (old, new) = (seen.bits(), deferred(seen).bits());
            match self.scarcity.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => seen = Scarcity::from_bits(other),
            }
        }
    }

    /// The sum of all entries; exact at rest.
    pub(crate) fn sum(&self, resource: Resource) -> u64 {
        let amount = |entry: &AccountEntry<P>| entry.lines[resource as usize].amount.load(Ordering::Relaxed);
        let cells = self.cells.lock();
        let left = cells.left[resource as usize];
        let in_cells = cells.entries.iter().map(|entry| amount(entry)).fold(left, u64::wrapping_add);
        positive(self.threads.iter().map(amount).fold(in_cells, u64::wrapping_add)) + self.outside(resource)
    }

    /// While memory is short, evaluates scarcity from the exact sum, at most once a millisecond. Otherwise the total
    /// suffices: what it omits is a small part of the limit.
    #[inline]
    pub(crate) fn review(&self, now: Time, config: &tcp::Config) {
        if self.scarcity().memory() != Pressure::None && now.as_nanos() >= self.review.load(Ordering::Relaxed) {
            self.review.store(now.as_nanos() + REVIEW_NS, Ordering::Relaxed);
            self.classify(Resource::Memory, self.sum(Resource::Memory), config);
        }
    }

    /// Applies changed limits: each entry is added to the total at its next change, and scarcity is evaluated from the
    /// exact sums.
    #[cold]
    pub(crate) fn limits_changed(&self, config: &tcp::Config) {
        let settle_next =
            |entry: &AccountEntry<P>| entry.lines.iter().for_each(|line| line.quantum.store(0, Ordering::Relaxed));
        self.cells.lock().entries.iter().for_each(|entry| settle_next(entry));
        self.threads.iter().for_each(settle_next);
        for resource in RESOURCES {
            self.classify(resource, self.sum(resource), config);
        }
    }
}

/// The amount from which a resource is scarce.
fn limit(resource: Resource, config: &tcp::Config) -> u64 {
    match resource {
        Resource::Memory => config.memory_limits().pressure.min(config.memory_limits().high),
        Resource::Orphans => config.max_orphans.into(),
        Resource::TimeWaits => config.max_time_wait.into(),
    }
}

/// A sum in two's complement. While threads run, a release may be visible before its allocation.
fn positive(sum: u64) -> u64 {
    (sum as i64).max(0) as u64
}
