//! The account of what the connections of one stack share: memory of their buffers, orphans, connections in TIME-WAIT.
//!
//! An event reports in its outbox what it has taken or given back; the thread that ran it records that here, and the
//! next event receives what is scarce as a value ([`Account::scarcity`], one load).
//!
//! Each cell has an [`Entry`] of its own, and so has each thread where connections are behind locks. An entry has one
//! writer at a time and is written by plain loads and stores. Only when an amount has moved by more than a *quantum*
//! since it was last settled is it added to the stack's total, and what is scarce judged anew; with a single entry
//! there is no other that it could be added to, and no read-modify-write at all. A quantum is a small part of the
//! limit, and 0 where the limit is small: limits of a few connections hold exactly. The sum of the entries
//! ([`Account::sum`]) is exact at rest, whatever the quantum.
//!
//! A stack that goes on under another architecture closes the entries of the old one; their amounts go to the first entry
//! that is opened next, so that entries do not add up with each switch.
//!
//! What may never happen: an amount that is entered and not taken back. Each connection remembers what it is charged
//! ([`Charge`]), and the code that removes it takes that back, also where an event of it has panicked.

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, CachePadded, Lock, LockClass, LockKind, Ordering, PerThread, Platform, Writers};
use tcp::{Pressure, Scarcity, Standing};

/// What is kept account of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Bytes of the buffers of connections, sent and received, of the receive queues of datagram sockets, and of fragments.
    Memory,
    /// Connections that their users have closed and that wait for their peers.
    Orphans,
    /// Connections in TIME-WAIT.
    TimeWaits,
}

const RESOURCES: [Resource; 3] = [Resource::Memory, Resource::Orphans, Resource::TimeWaits];

impl Resource {
    /// What a connection of this standing counts as.
    fn of(standing: Standing) -> Option<Resource> {
        match standing {
            Standing::Free => None,
            Standing::Orphan => Some(Resource::Orphans),
            Standing::TimeWait => Some(Resource::TimeWaits),
        }
    }
}

/// How long a judgement holds that nothing has called for, in nanoseconds.
const REVIEW_NS: u64 = 1_000_000;

/// The largest quanta: bytes, and connections.
const QUANTA: [u64; 3] = [64 << 10, 64, 64];

/// All quanta together are at most this part of a limit.
const PART: u64 = 16;

/// What one cell or one thread has entered: sums of what it took less what it gave back, in two's complement, for
/// memory may be taken here and given back elsewhere.
pub(crate) struct Entry<P: Platform> {
    lines: [Line<P>; 3],
    writers: Writers,
}

/// One resource in an [`Entry`].
struct Line<P: Platform> {
    amount: P::AtomicU64,
    /// So much of the amount is in the total.
    settled: P::AtomicU64,
    /// By so much the amount may move before it is settled.
    quantum: P::AtomicU64,
}

impl<P: Platform> Entry<P> {
    fn new(writers: Writers) -> Self {
        let zero = || P::AtomicU64::new(0);
        let line = |_| Line { amount: zero(), settled: zero(), quantum: zero() };
        Entry { lines: std::array::from_fn(line), writers }
    }
}

/// The entries of cells.
struct Cells<P: Platform> {
    entries: Vec<Arc<CachePadded<Entry<P>>>>,
    /// What entries that were closed had, until the next entry that is opened takes it over; all of it is settled.
    left: [u64; 3],
}

/// See the head of this file. Any thread.
pub(crate) struct Account<P: Platform> {
    cells: Lock<Cells<P>, P>,
    threads: PerThread<Entry<P>, P>,
    /// Cells that have an entry.
    opened: P::AtomicUsize,
    total: CachePadded<[P::AtomicU64; 3]>,
    /// Bytes of fragments that wait for the rest of their packets. They belong to no cell.
    fragments: P::AtomicU64,
    /// [`Scarcity`], as bits.
    scarcity: P::AtomicU32,
    /// When it is to be judged again, in nanoseconds.
    review: P::AtomicU64,
}

/// What a connection has in the account. Kept beside its PCB by the place that it is in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charge {
    /// Bytes.
    pub(crate) memory: i64,
    /// How it counts.
    pub(crate) standing: Standing,
}

impl<P: Platform> Account<P> {
    /// Nothing is taken; of what is limited to nothing even that is too much.
    pub(crate) fn new(config: &tcp::Config) -> Self {
        let account = Account {
            cells: Lock::new(LockKind::Blocking, LockClass::Accounts, Cells { entries: Vec::new(), left: [0; 3] }),
            threads: PerThread::new(Entry::new),
            opened: P::AtomicUsize::new(0),
            total: CachePadded::new(std::array::from_fn(|_| P::AtomicU64::new(0))),
            fragments: P::AtomicU64::new(0),
            scarcity: P::AtomicU32::new(Scarcity::NONE.bits()),
            review: P::AtomicU64::new(0),
        };
        account.limits_changed(config);
        account
    }

    /// An entry for one more cell. It takes over what the entries had that were closed before.
    pub(crate) fn open(&self) -> Arc<CachePadded<Entry<P>>> {
        let entry = Arc::new(CachePadded::new(Entry::<P>::new(Writers::One)));
        let mut cells = self.cells.lock();
        for (line, left) in entry.lines.iter().zip(std::mem::take(&mut cells.left)) {
            line.amount.store(left, Ordering::Relaxed);
            line.settled.store(left, Ordering::Relaxed);
        }
        cells.entries.push(entry.clone());
        self.opened.store(cells.entries.len(), Ordering::Relaxed);
        entry
    }

    /// A cell has given up its connections, which keep what they are charged: its entry makes way for those of the
    /// cells that they go to. At rest.
    pub(crate) fn close(&self, entry: &Arc<CachePadded<Entry<P>>>) {
        let mut cells = self.cells.lock();
        self.move_out(entry, &mut cells.left);
        cells.entries.retain(|other| !Arc::ptr_eq(other, entry));
        self.opened.store(cells.entries.len(), Ordering::Relaxed);
    }

    /// The same of connections behind locks, which are in the entries of the threads that used them. At rest.
    pub(crate) fn close_threads(&self) {
        let mut cells = self.cells.lock();
        self.threads.iter().for_each(|entry| self.move_out(entry, &mut cells.left));
    }

    /// Settles what an entry has, and adds it to `left`.
    fn move_out(&self, entry: &Entry<P>, left: &mut [u64; 3]) {
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
    pub(crate) fn here(&self) -> &Entry<P> {
        self.threads.here()
    }

    /// What is scarce.
    #[inline(always)]
    pub(crate) fn scarcity(&self) -> Scarcity {
        Scarcity::from_bits(self.scarcity.load(Ordering::Relaxed))
    }

    /// Enters that `bytes` more are taken (negative: given back) by the connection that has `charge`.
    #[inline(always)]
    pub(crate) fn take_memory(&self, entry: &Entry<P>, charge: &mut Charge, bytes: i64, config: &tcp::Config) {
        charge.memory += bytes;
        self.enter(entry, Resource::Memory, bytes, config);
    }

    /// Enters that the receive queue of a datagram socket has grown by so many bytes (negative: shrunk).
    #[inline]
    pub(crate) fn take_datagrams(&self, entry: &Entry<P>, bytes: i64, config: &tcp::Config) {
        if bytes != 0 {
            self.enter(entry, Resource::Memory, bytes, config);
        }
    }

    /// Fragments hold so many bytes now. The caller has the lock of their table.
    #[cold]
    pub(crate) fn note_fragments(&self, bytes: u64, config: &tcp::Config) {
        if self.fragments.load(Ordering::Relaxed) != bytes {
            self.fragments.store(bytes, Ordering::Relaxed);
            let taken = positive(self.total[Resource::Memory as usize].load(Ordering::Relaxed));
            self.classify(Resource::Memory, taken + bytes, config);
        }
    }

    /// A connection enters a table with what its buffers hold already: data of its SYN.
    pub(crate) fn begin(&self, entry: &Entry<P>, charge: &mut Charge, pcb: &tcp::Pcb, config: &tcp::Config) {
        let memory = pcb.memory();
        if memory != 0 {
            self.take_memory(entry, charge, memory, config);
        }
    }

    /// Enters how the connection that has `charge` counts from now on.
    pub(crate) fn count(&self, entry: &Entry<P>, charge: &mut Charge, standing: Standing, config: &tcp::Config) {
        let before = std::mem::replace(&mut charge.standing, standing);
        if before != standing {
            Resource::of(before).into_iter().for_each(|resource| self.enter(entry, resource, -1, config));
            Resource::of(standing).into_iter().for_each(|resource| self.enter(entry, resource, 1, config));
        }
    }

    /// The connection that has this charge is gone.
    pub(crate) fn discharge(&self, entry: &Entry<P>, mut charge: Charge, config: &tcp::Config) {
        self.count(entry, &mut charge, Standing::Free, config);
        if charge.memory != 0 {
            self.enter(entry, Resource::Memory, -charge.memory, config);
        }
    }

    #[inline(always)]
    fn enter(&self, entry: &Entry<P>, resource: Resource, change: i64, config: &tcp::Config) {
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

    /// By how much one entry may move unnoticed.
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

    /// What is taken of a resource beside what entries say.
    fn outside(&self, resource: Resource) -> u64 {
        if resource == Resource::Memory { self.fragments.load(Ordering::Relaxed) } else { 0 }
    }

    /// Publishes whether a resource of which so much is taken is scarce.
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

    /// What all entries come to; exact at rest.
    pub(crate) fn sum(&self, resource: Resource) -> u64 {
        let amount = |entry: &Entry<P>| entry.lines[resource as usize].amount.load(Ordering::Relaxed);
        let cells = self.cells.lock();
        let left = cells.left[resource as usize];
        let in_cells = cells.entries.iter().map(|entry| amount(entry)).fold(left, u64::wrapping_add);
        positive(self.threads.iter().map(amount).fold(in_cells, u64::wrapping_add)) + self.outside(resource)
    }

    /// While memory is short, judges by the exact sum, once a millisecond at most. While there is enough, entries that
    /// are settled suffice: what they leave out is a small part of the limit.
    #[inline]
    pub(crate) fn review(&self, now: Time, config: &tcp::Config) {
        if self.scarcity().memory() != Pressure::None && now.as_nanos() >= self.review.load(Ordering::Relaxed) {
            self.review.store(now.as_nanos() + REVIEW_NS, Ordering::Relaxed);
            self.classify(Resource::Memory, self.sum(Resource::Memory), config);
        }
    }

    /// The limits have changed: entries are settled at their next change, and what is scarce is judged by the exact
    /// sums.
    #[cold]
    pub(crate) fn limits_changed(&self, config: &tcp::Config) {
        let settle_next =
            |entry: &Entry<P>| entry.lines.iter().for_each(|line| line.quantum.store(0, Ordering::Relaxed));
        self.cells.lock().entries.iter().for_each(|entry| settle_next(entry));
        self.threads.iter().for_each(settle_next);
        for resource in RESOURCES {
            self.classify(resource, self.sum(resource), config);
        }
    }
}

/// From how much on a resource is scarce.
fn limit(resource: Resource, config: &tcp::Config) -> u64 {
    match resource {
        Resource::Memory => config.memory_limits().pressure.min(config.memory_limits().high),
        Resource::Orphans => config.max_orphans.into(),
        Resource::TimeWaits => config.max_time_wait.into(),
    }
}

/// A sum in two's complement. While threads run, memory may be seen to be given back before it is seen to be taken.
fn positive(sum: u64) -> u64 {
    (sum as i64).max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use sync::Real;

    const LIMIT: u64 = 100;

    fn config() -> tcp::Config {
        tcp::Config { max_time_wait: LIMIT as u32, ..tcp::Config::default() }
    }

    fn enter(account: &Account<Real>, entry: &Entry<Real>, count: i64, config: &tcp::Config) {
        let (before, after) = match count {
            0.. => (Standing::Free, Standing::TimeWait),
            _ => (Standing::TimeWait, Standing::Free),
        };
        for _ in 0..count.abs() {
            account.count(entry, &mut Charge { memory: 0, standing: before }, after, config);
        }
    }

    /// What is taken under one architecture and given back under the next is counted once, whatever keeps it, and the
    /// limit is found where it is.
    #[test]
    fn amounts_follow_their_connections_from_architecture_to_architecture() {
        let config = config();
        let account = Account::<Real>::new(&config);
        let old = account.open();
        enter(&account, &old, LIMIT as i64 - 1, &config);
        account.close(&old);
        assert_eq!((account.sum(Resource::TimeWaits), account.entries()), (LIMIT - 1, 0));
        // Behind locks: the calling thread has an entry.
        enter(&account, account.here(), -(LIMIT as i64 - 3), &config);
        assert_eq!(account.sum(Resource::TimeWaits), 2);
        account.close_threads();
        let only = account.open();
        assert!(account.is_single());
        enter(&account, &only, LIMIT as i64 - 3, &config);
        account.limits_changed(&config);
        assert!(!account.scarcity().no_more_time_waits(), "{} of {LIMIT}", account.sum(Resource::TimeWaits));
        enter(&account, &only, 1, &config);
        assert!(account.scarcity().no_more_time_waits(), "{} of {LIMIT}", account.sum(Resource::TimeWaits));
        enter(&account, &only, -(LIMIT as i64), &config);
        assert_eq!(account.sum(Resource::TimeWaits), 0);
        assert!(!account.scarcity().no_more_time_waits());
    }

    /// A cell among several takes over what all had.
    #[test]
    fn entries_of_closed_cells_are_gone() {
        let config = config();
        let account = Account::<Real>::new(&config);
        for round in 0..20 {
            let cells: Vec<_> = (0..4).map(|_| account.open()).collect();
            assert_eq!(account.entries(), 4, "round {round}");
            cells.iter().for_each(|cell| enter(&account, cell, 1, &config));
            assert_eq!(account.sum(Resource::TimeWaits), 4 * (round + 1));
            cells.iter().for_each(|cell| account.close(cell));
        }
        assert_eq!((account.entries(), account.sum(Resource::TimeWaits)), (0, 80));
    }
}
