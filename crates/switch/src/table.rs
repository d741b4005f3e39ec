//! [`ConcurrentFdb`]: a forwarding database that several threads read while one changes it.
//!
//! A hash table with chains, whose entries never move: an entry is a node of an array, found by number, so that the table
//! needs no `unsafe`. A reader follows a chain inside a read section of a [`Qsbr`] domain. A writer holds the mutex,
//! unlinks nodes, waits for one grace period, however many nodes there are, and only then makes them free for other
//! addresses; it does not hold the mutex while it waits, so a flush delays no thread that inserts. The paper allocates
//! the list of unlinked entries before it takes the mutex, and tries again if the table has grown meanwhile; here the
//! number of nodes is fixed, and so is the length of that list.
//!
//! A hit takes no lock: it replaces the entry's word (port, flags and stamp) if no other thread has changed it. (The
//! paper's plain store could move an address back to its old port. A compare-and-exchange cannot, so the numbers of
//! addresses by port stay exact.)
//!
//! *What may never happen.* A node is reused for another address while a reader may be at it: that reader would get the
//! port of another station, or continue along another chain.

use std::sync::Arc;
use std::time::Duration;

use bridge::{
    AgeLimit, Counts, EntryFlags, Fdb, FdbConfig, FdbControl, FdbEntry, FdbKey, FdbWriter, Learned, LearnedSource,
    PortNumber, nanos, place, place_fixed,
};
use observe::Time;
use sync::{Atomic, Guard, Lock, LockClass, LockKind, Ordering, Platform, Qsbr, QsbrReader};

/// A node for an entry. A link is the number of a node plus 1; 0 is the end of a chain.
struct TableNode<P: Platform> {
    key: P::AtomicU64,
    entry: P::AtomicU64,
    next: P::AtomicU32,
}

/// See the head of the file.
pub struct ConcurrentFdb<P: Platform> {
    /// Links to the first node of each chain.
    buckets: Box<[P::AtomicU32]>,
    nodes: Box<[TableNode<P>]>,
    domain: Arc<Qsbr<P>>,
    seed: u64,
    /// In nanoseconds.
    ageing: P::AtomicU64,
    /// Changes after an entry was unlinked or replaced, or the ageing time set; written with the mutex held.
    version: P::AtomicU64,
    writer: Lock<Bookkeeping, P>,
}

/// State that only the writer uses.
struct Bookkeeping {
    /// Links to nodes without an entry.
    free: Vec<u32>,
    capacity: u32,
    dynamic: u32,
    fixed: u32,
    /// Dynamic entries by port.
    of_port: Vec<u32>,
}

/// Number of chains that a writer processes before it releases the mutex for others.
const CHAINS_AT_ONCE: usize = 256;

impl<P: Platform> ConcurrentFdb<P> {
    /// An empty table for the readers of this domain.
    pub fn new(config: FdbConfig, domain: Arc<Qsbr<P>>) -> ConcurrentFdb<P> {
        let capacity = config.capacity.max(1);
        // As many fixed entries as dynamic ones.
        let count = capacity * 2;
        let node = |_| TableNode { key: P::AtomicU64::new(0), entry: P::AtomicU64::new(0), next: P::AtomicU32::new(0) };
        let free = (1..=count).rev().collect();
        let writer = Bookkeeping { free, capacity, dynamic: 0, fixed: 0, of_port: Vec::new() };
        ConcurrentFdb {
            buckets: (0..count.next_power_of_two()).map(|_| P::AtomicU32::new(0)).collect(),
            nodes: (0..count).map(node).collect(),
            domain,
            seed: config.seed,
            ageing: P::AtomicU64::new(nanos(config.ageing)),
            version: P::AtomicU64::new(0),
            writer: Lock::new(LockKind::Blocking, LockClass::Fdb, writer),
        }
    }

    /// The version for [`Versions::table`]. The caller is in a read section, and has not looked anything up in it yet: a decision
    /// by an entry that is unlinked or replaced later is of an earlier version.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Runs the rule of learning with the mutex held. Must not be called inside a read section, because a thread in one
    /// must not wait.
    pub fn learn(&self, source: LearnedSource, now: Time) -> Learned {
        place(&mut self.writing(), source, now)
    }

    /// The same for several addresses under one mutex; `each` gets the results.
    pub fn learn_all(&self, sources: &[LearnedSource], now: Time, mut each: impl FnMut(Learned)) {
        let mut writing = self.writing();
        sources.iter().for_each(|source| each(place(&mut writing, *source, now)));
    }

    /// Entries, dynamic and fixed.
    pub fn len(&self) -> usize {
        let writer = self.writer.lock();
        (writer.dynamic + writer.fixed) as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry of a key. The caller is in a read section of the table's domain, or has the mutex.
    #[inline]
    pub(crate) fn find(&self, key: FdbKey) -> Option<FdbEntry> {
        let node = self.node_of(key)?;
        Some(FdbEntry::from_bits(node.entry.load(Ordering::Relaxed)))
    }

    #[inline]
    fn node_of(&self, key: FdbKey) -> Option<&TableNode<P>> {
        // Acquire, to read what was written to a node before it was linked.
        let mut link = self.buckets[self.home(key)].load(Ordering::Acquire);
        while let Some(node) = self.node(link) {
            if node.key.load(Ordering::Relaxed) == key.bits() {
                return Some(node);
            }
            link = node.next.load(Ordering::Acquire);
        }
        None
    }

    /// Writes a newer stamp to the entry of a key, unless it has another port or other flags by now.
    #[inline]
    fn refresh(&self, key: FdbKey, entry: FdbEntry) {
        let Some(node) = self.node_of(key) else { return };
        let old = node.entry.load(Ordering::Relaxed);
        if FdbEntry::from_bits(old).agrees(entry) {
            // If another thread was faster, its stamp is as good.
            let _ = node.entry.compare_exchange(old, entry.bits(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline]
    fn node(&self, link: u32) -> Option<&TableNode<P>> {
        self.nodes.get((link as usize).wrapping_sub(1))
    }

    #[inline]
    fn home(&self, key: FdbKey) -> usize {
        let product = u128::from(key.bits() ^ self.seed) * 0xa076_1d64_78bd_642f;
        let mixed = (product >> 64) as u64 ^ product as u64;
        (mixed ^ mixed >> 32) as usize & (self.buckets.len() - 1)
    }

    fn writing(&self) -> Writing<'_, P> {
        Writing { table: self, books: self.writer.lock() }
    }

    fn ageing_time(&self) -> Duration {
        Duration::from_nanos(self.ageing.load(Ordering::Relaxed))
    }

    /// Unlinks the entries of these chains for which `gone` is true, waits for one grace period, and frees them.
    fn remove_in(&self, chains: std::ops::Range<usize>, gone: impl Fn(FdbKey, FdbEntry) -> bool) -> usize {
        let unlinked = self.unlink(chains, gone);
        if unlinked.is_empty() {
            return 0;
        }
        self.domain.synchronize();
        self.free(&unlinked);
        unlinked.len()
    }

    /// Unlinks the entries of these chains for which `gone` is true; readers may still be at them.
    pub(crate) fn unlink(&self, chains: std::ops::Range<usize>, gone: impl Fn(FdbKey, FdbEntry) -> bool) -> Vec<u32> {
        // Allocate all memory that may be needed before taking the mutex.
        let mut unlinked = Vec::with_capacity(if chains.len() == 1 { 8 } else { self.nodes.len() });
        let mut next = chains.start;
        while next < chains.end {
            let end = chains.end.min(next + CHAINS_AT_ONCE);
            let mut writing = self.writing();
            let before = unlinked.len();
            (next..end).for_each(|chain| writing.unlink(chain, &gone, &mut unlinked));
            if unlinked.len() > before {
                // Before the grace period: a section that begins after it finds the new version.
                writing.change();
            }
            next = end;
        }
        unlinked
    }

    /// Makes unlinked nodes free for other addresses: no reader is at them any more.
    pub(crate) fn free(&self, unlinked: &[u32]) {
        self.writer.lock().free.extend(unlinked);
    }

    /// All chains.
    pub(crate) fn chains(&self) -> std::ops::Range<usize> {
        0..self.buckets.len()
    }
}

/// Exclusive use of the table for changes; readers continue.
struct Writing<'a, P: Platform> {
    table: &'a ConcurrentFdb<P>,
    books: Guard<'a, Bookkeeping, P>,
}

impl<P: Platform> Writing<'_, P> {
    /// What was decided by entries that have been changed is not valid any more.
    fn change(&mut self) {
        let version = &self.table.version;
        version.store(version.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    fn unlink(&mut self, chain: usize, gone: impl Fn(FdbKey, FdbEntry) -> bool, unlinked: &mut Vec<u32>) {
        let mut link = &self.table.buckets[chain];
        loop {
            let at = link.load(Ordering::Relaxed);
            let Some(node) = self.table.node(at) else { return };
            let entry = FdbEntry::from_bits(node.entry.load(Ordering::Relaxed));
            let leaves = FdbKey::from_bits(node.key.load(Ordering::Relaxed)).is_some_and(|key| gone(key, entry));
            if leaves {
                // The node keeps its own link, so that a reader at it can continue.
                link.store(node.next.load(Ordering::Relaxed), Ordering::Release);
                self.books.count(entry, false);
                unlinked.push(at);
            } else {
                link = &node.next;
            }
        }
    }
}

impl Bookkeeping {
    /// Counts an entry that is added or removed.
    fn count(&mut self, entry: FdbEntry, comes: bool) {
        let adjust = |n: &mut u32| *n = if comes { *n + 1 } else { *n - 1 };
        if !entry.is_dynamic() {
            return adjust(&mut self.fixed);
        }
        let port = entry.port().index();
        if self.of_port.len() <= port {
            self.of_port.resize(port + 1, 0);
        }
        adjust(&mut self.dynamic);
        adjust(&mut self.of_port[port]);
    }
}

impl<P: Platform> FdbWriter for Writing<'_, P> {
    fn find(&self, key: FdbKey) -> Option<FdbEntry> {
        self.table.find(key)
    }

    fn insert(&mut self, key: FdbKey, entry: FdbEntry) -> bool {
        let used = if entry.is_dynamic() { self.books.dynamic } else { self.books.fixed };
        if used >= self.books.capacity {
            return false;
        }
        // There is no free node: those removed a moment ago still wait for their grace period.
        let Some(link) = self.books.free.pop() else { return false };
        let Some(node) = self.table.node(link) else { return false };
        let bucket = &self.table.buckets[self.table.home(key)];
        node.key.store(key.bits(), Ordering::Relaxed);
        node.entry.store(entry.bits(), Ordering::Relaxed);
        node.next.store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        bucket.store(link, Ordering::Release);
        self.books.count(entry, true);
        true
    }

    fn replace(&mut self, key: FdbKey, old: FdbEntry, new: FdbEntry) {
        if let Some(node) = self.table.node_of(key) {
            self.books.count(old, false);
            self.books.count(new, true);
            node.entry.store(new.bits(), Ordering::Relaxed);
            self.change();
        }
    }

    fn counts(&self, port: PortNumber) -> Counts {
        let Bookkeeping { dynamic, fixed, capacity, .. } = *self.books;
        let of_port = self.books.of_port.get(port.index()).copied().unwrap_or(0);
        Counts { dynamic, of_port, fixed, capacity }
    }
}

/// The table for a thread in a read section. Learning is deferred until the section has ended, because a thread in it
/// must not wait for the mutex.
pub(crate) struct SectionFdb<'a, P: Platform> {
    table: &'a ConcurrentFdb<P>,
    /// The address to learn after the section.
    pub(crate) unlearned: Option<LearnedSource>,
}

impl<'a, P: Platform> SectionFdb<'a, P> {
    /// A view for a reader that stays in its section while it is used.
    #[inline]
    pub(crate) fn new(table: &'a ConcurrentFdb<P>, reader: &'a QsbrReader<P>) -> Self {
        debug_assert!(table.domain.owns(reader), "a reader of another domain would not be waited for");
        SectionFdb { table, unlearned: None }
    }
}

impl<P: Platform> Fdb for SectionFdb<'_, P> {
    #[inline(always)]
    fn look_up(&mut self, key: FdbKey) -> Option<FdbEntry> {
        match self.unlearned {
            // A frame to its own sender, which the rules learn first.
            Some(source) if source.key == key => Some(FdbEntry::new(source.port, EntryFlags::default(), Time::MAX)),
            _ => self.table.find(key),
        }
    }

    #[inline]
    fn refresh(&mut self, key: FdbKey, entry: FdbEntry) {
        self.table.refresh(key, entry);
    }

    fn learn(&mut self, source: LearnedSource, _now: Time) -> Learned {
        self.unlearned = Some(source);
        Learned::Known
    }

    #[inline]
    fn ageing_nanos(&self) -> u64 {
        self.table.ageing.load(Ordering::Relaxed)
    }
}

/// The same for a thread that stays in its section for the frames of a batch.
pub(crate) struct BatchFdb<'a, P: Platform> {
    section: SectionFdb<'a, P>,
    limit: AgeLimit,
}

impl<'a, P: Platform> BatchFdb<'a, P> {
    /// As [`SectionFdb::new`], for frames that are processed at `now`.
    #[inline]
    pub(crate) fn new(table: &'a ConcurrentFdb<P>, reader: &'a QsbrReader<P>, now: Time) -> Self {
        let section = SectionFdb::new(table, reader);
        let limit = AgeLimit::new(now, section.ageing_nanos());
        BatchFdb { section, limit }
    }

    /// Whether the last frame has left an address to learn.
    #[inline(always)]
    pub(crate) fn has_unlearned(&self) -> bool {
        self.section.unlearned.is_some()
    }

    /// The address to learn after the section, taken out.
    #[inline(always)]
    pub(crate) fn take_unlearned(&mut self) -> Option<LearnedSource> {
        self.section.unlearned.take()
    }
}

impl<P: Platform> Fdb for BatchFdb<'_, P> {
    #[inline(always)]
    fn look_up(&mut self, key: FdbKey) -> Option<FdbEntry> {
        self.section.look_up(key)
    }

    #[inline]
    fn refresh(&mut self, key: FdbKey, entry: FdbEntry) {
        self.section.refresh(key, entry);
    }

    #[inline]
    fn learn(&mut self, source: LearnedSource, now: Time) -> Learned {
        self.section.learn(source, now)
    }

    #[inline]
    fn ageing_nanos(&self) -> u64 {
        self.section.ageing_nanos()
    }

    #[inline(always)]
    fn has_aged(&self, entry: FdbEntry, _now: Time) -> bool {
        self.limit.is_past(entry)
    }
}

/// The table for the control plane. A removal waits for a grace period.
pub(crate) struct TableControl<P: Platform>(pub(crate) Arc<ConcurrentFdb<P>>);

impl<P: Platform> FdbControl for TableControl<P> {
    fn set_fixed(&mut self, key: FdbKey, port: PortNumber, sticky: bool, now: Time) -> bool {
        place_fixed(&mut self.0.writing(), key, port, sticky, now)
    }

    fn remove_where(&mut self, gone: impl Fn(FdbKey, FdbEntry) -> bool) -> usize {
        self.0.remove_in(self.0.chains(), gone)
    }

    fn remove(&mut self, key: FdbKey) -> bool {
        let chain = self.0.home(key);
        self.0.remove_in(chain..chain + 1, |found, _| found == key) > 0
    }

    fn entries(&self) -> Vec<(FdbKey, FdbEntry)> {
        let mut entries = Vec::new();
        for bucket in &self.0.buckets {
            // No node of a chain is freed while the mutex is held.
            let _writing = self.0.writer.lock();
            let mut link = bucket.load(Ordering::Relaxed);
            while let Some(node) = self.0.node(link) {
                let entry = FdbEntry::from_bits(node.entry.load(Ordering::Relaxed));
                entries.extend(FdbKey::from_bits(node.key.load(Ordering::Relaxed)).map(|key| (key, entry)));
                link = node.next.load(Ordering::Relaxed);
            }
        }
        entries
    }

    fn ageing_time(&self) -> Duration {
        self.0.ageing_time()
    }

    fn set_ageing(&mut self, ageing: Duration) {
        let mut writing = self.0.writing();
        self.0.ageing.store(nanos(ageing), Ordering::Relaxed);
        writing.change();
    }

    fn flush_port(&mut self, port: PortNumber) -> usize {
        if self.0.writing().counts(port).of_port == 0 {
            return 0;
        }
        self.flush(|_, entry| entry.port() == port)
    }
}
