//! Which cell each flow is bound to, where the hash of the flow does not decide that: Solaris' `conn_sqp`, found by the
//! classifier (`ipclassifier.c`).
//!
//! A binding is found by the hash of its flow, under the lock of its bucket (`connf_lock`). It counts references, as Solaris
//! counts those of a connection: one of each event on its way to the cell or in it, and one of each entry that the tables of
//! the cell have for the flow, whether half-open, a connection, or in TIME-WAIT. The first reference binds the flow, the last
//! one that goes ends the binding. Flows with the same hash have one binding, and so one cell.
//!
//! An event takes its reference before it is sent, and gives it back once it has run; an entry is made by an event. So the
//! cell of a flow cannot change while anything of the flow is in it, or on its way to it.
//!
//! What may never happen: two cells with entries for one flow; an event that is run before an earlier one of its flow and its
//! receive thread. A lock is held for the look-up of one binding, and nothing is taken under it.

use std::mem;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use sync::{CachePadded, Lock, LockClass, LockKind, Platform, model_is_over};

/// Buckets, each with a lock. A power of two.
const BUCKETS: usize = 256;

/// A bucket for fewer bindings than this is as small as it may become.
const LEAST_CAPACITY: usize = 2;

/// The binding of the flows with one hash.
struct Binding {
    hash: u32,
    cell: u16,
    references: u32,
}

/// The bindings of some hashes, under their lock.
type Bucket<P> = CachePadded<Lock<HashTable<Binding>, P>>;

/// See the module documentation. Any thread.
pub struct FlowBindings<P: Platform> {
    buckets: Box<[Bucket<P>]>,
    /// Odd; peers do not know it, and so cannot choose flows for one bucket.
    key: u64,
}

impl<P: Platform> FlowBindings<P> {
    /// No flow is bound.
    pub fn new(kind: LockKind) -> Arc<Self> {
        let bucket = |_| CachePadded::new(Lock::new(kind, LockClass::FlowBindings, HashTable::new()));
        Arc::new(FlowBindings { buckets: (0..BUCKETS).map(bucket).collect(), key: P::random() | 1 })
    }

    /// The hash by which a bucket finds a binding.
    fn keyed(&self, hash: u32) -> u64 {
        u64::from(hash).wrapping_add(1).wrapping_mul(self.key).swap_bytes()
    }

    fn with_bucket<R>(&self, hash: u32, f: impl FnOnce(&mut HashTable<Binding>, u64) -> R) -> R {
        let keyed = self.keyed(hash);
        f(&mut self.buckets[(keyed >> 32) as usize % BUCKETS].lock(), keyed)
    }

    /// The cell to which flows with this hash are bound. `None`: nothing of them is anywhere.
    pub fn find(&self, hash: u32) -> Option<usize> {
        self.with_bucket(hash, |bucket, keyed| {
            bucket.find(keyed, |binding| binding.hash == hash).map(|binding| binding.cell.into())
        })
    }

    /// A reference for an event of a flow with this hash. A flow that is not bound is bound to `here`.
    pub fn enter(&self, hash: u32, here: usize) -> BoundEvent<'_, P> {
        sync::walk::note(file!(), "finds the cell that the flow is bound to");
        BoundEvent { cell: self.hold(hash, here), hash, bindings: self }
    }

    /// Takes over the reference of an event that was sent ([`BoundEvent::is_sent`]).
    pub fn arrived(&self, hash: u32, cell: usize) -> BoundEvent<'_, P> {
        BoundEvent { cell, hash, bindings: self }
    }

    /// One more reference; returns the cell.
    fn hold(&self, hash: u32, here: usize) -> usize {
        self.with_bucket(hash, |bucket, keyed| {
            let of = |binding: &Binding| self.keyed(binding.hash);
            match bucket.entry(keyed, |binding| binding.hash == hash, of) {
                Entry::Occupied(mut bound) => {
                    bound.get_mut().references += 1;
                    bound.get().cell.into()
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(Binding { hash, cell: here as u16, references: 1 });
                    here
                }
            }
        })
    }

    /// One reference less; the last ends the binding.
    fn release(&self, hash: u32) {
        self.with_bucket(hash, |bucket, keyed| {
            let Ok(mut bound) = bucket.find_entry(keyed, |binding| binding.hash == hash) else {
                debug_assert!(false, "each reference is given back once");
                return;
            };
            bound.get_mut().references -= 1;
            if bound.get().references == 0 {
                bound.remove();
                if bucket.capacity() > 4 * bucket.len().max(LEAST_CAPACITY) {
                    bucket.shrink_to(2 * bucket.len(), |binding| self.keyed(binding.hash));
                }
            }
        });
    }
}

/// The reference of an event to the binding of its flow, which is given back when this is dropped.
#[must_use = "the binding may end with it"]
pub struct BoundEvent<'a, P: Platform> {
    bindings: &'a FlowBindings<P>,
    hash: u32,
    cell: usize,
}

impl<P: Platform> BoundEvent<'_, P> {
    /// The cell in which the event has to run.
    pub fn cell(&self) -> usize {
        self.cell
    }

    /// The event has been sent to its cell, and its reference with it.
    pub fn is_sent(self) {
        mem::forget(self);
    }
}

impl<P: Platform> Drop for BoundEvent<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.bindings.release(self.hash);
        }
    }
}

/// The references of one cell's table. The default has none: the cell of a flow is that of its hash.
pub struct CellBindings<P: Platform>(Option<(Arc<FlowBindings<P>>, usize)>);

impl<P: Platform> Default for CellBindings<P> {
    fn default() -> Self {
        CellBindings(None)
    }
}

impl<P: Platform> CellBindings<P> {
    /// Of the cell with this index.
    pub fn of(bindings: &Arc<FlowBindings<P>>, cell: usize) -> Self {
        CellBindings(Some((bindings.clone(), cell)))
    }

    /// The table has an entry for a flow with this hash.
    #[inline(always)]
    pub fn hold(&self, hash: u32) {
        if let Some((bindings, cell)) = &self.0 {
            let bound = bindings.hold(hash, *cell);
            debug_assert_eq!(bound, *cell, "an entry is made by an event of its flow");
        }
    }

    /// The table has that entry no longer.
    #[inline(always)]
    pub fn release(&self, hash: u32) {
        if let Some((bindings, _)) = &self.0 {
            bindings.release(hash);
        }
    }

    /// Whether there are any; otherwise the hash of an entry that goes need not be computed.
    pub fn are_kept(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    fn bindings() -> Arc<FlowBindings<Real>> {
        FlowBindings::new(LockKind::Blocking)
    }

    #[test]
    fn a_flow_stays_bound_while_anything_refers_to_it() {
        let bindings = bindings();
        let (two, five) = (CellBindings::of(&bindings, 2), CellBindings::of(&bindings, 5));
        let first = bindings.enter(7, 2);
        two.hold(7);
        assert_eq!(bindings.enter(7, 5).cell(), 2);
        drop(first);
        assert_eq!(bindings.enter(7, 5).cell(), 2, "the table has an entry");
        let sent = bindings.enter(7, 5);
        two.release(7);
        sent.is_sent();
        assert_eq!(bindings.find(7), Some(2), "an event is on its way");
        drop(bindings.arrived(7, 2));
        assert_eq!(bindings.find(7), None);
        let again = bindings.enter(7, 5);
        five.hold(7);
        drop(again);
        assert_eq!(bindings.find(7), Some(5));
    }

    /// Hashes that differ in a few bits, or in the high ones only, are different flows.
    #[test]
    fn flows_are_told_apart() {
        let bindings = bindings();
        let hashes = || (0..2000).map(|n: u32| n << 20 | n >> 3).chain(0..2000);
        let held: Vec<_> = hashes().map(|hash| (hash, bindings.enter(hash, hash as usize % 13))).collect();
        assert!(held.iter().all(|(hash, event)| event.cell() == *hash as usize % 13));
        assert!(hashes().all(|hash| bindings.find(hash) == Some(hash as usize % 13)));
        drop(held);
        assert!(hashes().all(|hash| bindings.find(hash).is_none()));
    }

    #[test]
    fn memory_of_a_peak_is_given_back() {
        let bindings = bindings();
        let capacity = || bindings.buckets.iter().map(|bucket| bucket.lock().capacity()).sum::<usize>();
        let held: Vec<_> = (0..50_000).map(|hash| bindings.enter(hash, 1)).collect();
        assert!(capacity() >= 50_000);
        drop(held);
        assert!(capacity() <= 4 * LEAST_CAPACITY * BUCKETS, "{}", capacity());
    }

    #[test]
    fn a_cell_of_its_hash_keeps_no_references() {
        let none = CellBindings::<Real>::default();
        none.hold(1);
        none.release(1);
        none.release(2);
        assert!(!none.are_kept());
    }
}
