//! A slab of entries with a keyed hash index over their tuples.
//!
//! The index holds slot numbers only (four bytes an entry and a control byte), and compares tuples in the slab: an
//! idle connection costs little beyond its PCB. An attacker who does not know the key cannot aim at one bucket.

use hashbrown::HashTable;
use wire::FourTuple;

use crate::flow::Key;
use crate::secrets::Secrets;

/// What can stand in a table.
pub trait Entry {
    /// The tuple under which it is found.
    fn tuple(&self) -> &FourTuple;
}

enum Slot<T> {
    Free { next: u32 },
    Used(T),
}

/// Slots of a chunk, as a power of two: growth copies nothing, and at most this many slots stand empty.
const CHUNK_SHIFT: u32 = 4;
const CHUNK: usize = 1 << CHUNK_SHIFT;

/// A generation and what stands there.
type Place<T> = (u32, Slot<T>);

/// Slots by number, in chunks that never move.
struct Slots<T> {
    chunks: Vec<Vec<Place<T>>>,
    len: u32,
}

impl<T> Slots<T> {
    #[inline]
    fn get(&self, slot: u32) -> Option<&Place<T>> {
        self.chunks.get((slot >> CHUNK_SHIFT) as usize)?.get(slot as usize % CHUNK)
    }

    #[inline]
    fn get_mut(&mut self, slot: u32) -> Option<&mut Place<T>> {
        self.chunks.get_mut((slot >> CHUNK_SHIFT) as usize)?.get_mut(slot as usize % CHUNK)
    }

    /// Appends a slot; its number.
    fn push(&mut self, entry: T) -> u32 {
        let slot = self.len;
        if (slot as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push((0, Slot::Used(entry)));
        }
        self.len += 1;
        slot
    }

    fn footprint(&self) -> usize {
        self.chunks.capacity() * size_of::<Vec<Place<T>>>() + self.chunks.len() * CHUNK * size_of::<Place<T>>()
    }
}

/// Entries by key and by tuple. Exclusive use is the owner's business.
pub struct Table<T> {
    slots: Slots<T>,
    free: u32,
    used: usize,
    index: HashTable<u32>,
    secrets: Secrets,
    /// The slot found last: segments of one connection come in runs, and a comparison is cheaper than a keyed hash.
    /// (The one-behind cache of 4.3BSD; McKenney and Dove 1992 say when it pays and when it does not.)
    latest: u32,
}

const NONE: u32 = u32::MAX;

impl<T: Entry> Table<T> {
    /// An empty table hashed with the stack's key.
    pub fn new(secrets: &Secrets) -> Self {
        Table {
            slots: Slots { chunks: Vec::new(), len: 0 },
            free: NONE,
            used: 0,
            index: HashTable::new(),
            secrets: secrets.clone(),
            latest: NONE,
        }
    }

    /// How many entries there are, those hidden by [`Table::unindex`] included.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Memory held by the table itself, in bytes, entries included, what they point to not.
    pub fn footprint(&self) -> usize {
        self.slots.footprint() + self.index.allocation_size()
    }

    /// The slot that serves `tuple`.
    #[inline]
    pub fn find(&mut self, tuple: &FourTuple) -> Option<u32> {
        if same(&self.slots, self.latest, tuple) {
            return Some(self.latest);
        }
        let hash = self.secrets.table_hash(tuple);
        let slot = self.index.find(hash, |slot| same(&self.slots, *slot, tuple)).copied()?;
        self.latest = slot;
        Some(slot)
    }

    /// The key of a slot that is in use.
    pub fn key(&self, slot: u32) -> Key {
        Key { slot, generation: self.slots.get(slot).map_or(0, |place| place.0) }
    }

    /// The entry in `slot`, if the slot is in use.
    #[inline]
    pub fn at(&mut self, slot: u32) -> Option<&mut T> {
        match self.slots.get_mut(slot) {
            Some((_, Slot::Used(entry))) => Some(entry),
            _ => None,
        }
    }

    /// The entry that `key` names, if it is still that one.
    #[inline]
    pub fn get(&mut self, key: Key) -> Option<&mut T> {
        match self.slots.get_mut(key.slot) {
            Some((generation, Slot::Used(entry))) if *generation == key.generation => Some(entry),
            _ => None,
        }
    }

    /// Puts `entry` in and indexes it by its tuple.
    ///
    /// # Errors
    /// Gives the entry back when its tuple is taken.
    pub fn insert(&mut self, entry: T) -> Result<Key, T> {
        if self.find(entry.tuple()).is_some() {
            return Err(entry);
        }
        let hash = self.secrets.table_hash(entry.tuple());
        let slot = self.take_slot(entry);
        let (slots, secrets) = (&self.slots, &self.secrets);
        self.index.insert_unique(hash, slot, |other| match slots.get(*other) {
            Some((_, Slot::Used(entry))) => secrets.table_hash(entry.tuple()),
            _ => 0,
        });
        self.used += 1;
        Ok(self.key(slot))
    }

    fn take_slot(&mut self, entry: T) -> u32 {
        let slot = self.free;
        let Some(place) = self.slots.get_mut(slot) else { return self.slots.push(entry) };
        if let Slot::Free { next } = place.1 {
            self.free = next;
        }
        place.1 = Slot::Used(entry);
        slot
    }

    /// Makes the entry unreachable by its tuple; its key still finds it. For a connection that is over on the wire
    /// while its user still has data to read.
    pub fn unindex(&mut self, slot: u32) {
        let Some((_, Slot::Used(entry))) = self.slots.get(slot) else { return };
        let hash = self.secrets.table_hash(entry.tuple());
        if let Ok(found) = self.index.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        if self.latest == slot {
            self.latest = NONE;
        }
    }

    /// Takes the entry out and frees its slot; its key is stale from now on.
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        self.unindex(slot);
        let place = self.slots.get_mut(slot)?;
        if matches!(place.1, Slot::Free { .. }) {
            return None;
        }
        let old = std::mem::replace(&mut place.1, Slot::Free { next: self.free });
        place.0 = place.0.wrapping_add(1);
        self.free = slot;
        self.used -= 1;
        match old {
            Slot::Used(entry) => Some(entry),
            Slot::Free { .. } => None,
        }
    }

    /// Every entry with its slot, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.slots.chunks.iter_mut().flatten().enumerate().filter_map(|(slot, (_, place))| match place {
            Slot::Used(entry) => Some((slot as u32, entry)),
            Slot::Free { .. } => None,
        })
    }
}

#[inline]
fn same<T: Entry>(slots: &Slots<T>, slot: u32, tuple: &FourTuple) -> bool {
    matches!(slots.get(slot), Some((_, Slot::Used(entry))) if entry.tuple() == tuple)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Entry for FourTuple {
        fn tuple(&self) -> &FourTuple {
            self
        }
    }

    fn tuple(n: u32) -> FourTuple {
        FourTuple {
            local_addr: "10.0.0.1".parse().unwrap(),
            remote_addr: std::net::IpAddr::V4((0x0a01_0000 + (n >> 16)).into()),
            local_port: 80,
            remote_port: n as u16,
        }
    }

    #[test]
    fn finds_what_was_inserted_and_only_that() {
        let mut table = Table::new(&Secrets::from_seed(1));
        let keys: Vec<Key> = (0..100_000).map(|n| table.insert(tuple(n)).unwrap()).collect();
        assert!(table.insert(tuple(17)).is_err());
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(table.find(&tuple(n as u32)), Some(key.slot));
            assert_eq!(table.get(*key), Some(&mut tuple(n as u32)));
        }
        assert_eq!(table.find(&tuple(100_000)), None);
    }

    #[test]
    fn a_freed_slot_makes_its_key_stale() {
        let mut table = Table::new(&Secrets::from_seed(1));
        let old = table.insert(tuple(1)).unwrap();
        assert_eq!(table.remove(old.slot), Some(tuple(1)));
        assert_eq!(table.remove(old.slot), None);
        let new = table.insert(tuple(2)).unwrap();
        assert_eq!(old.slot, new.slot);
        assert_eq!(table.get(old), None);
        assert_eq!(table.get(new), Some(&mut tuple(2)));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn an_unindexed_entry_leaves_its_tuple_free() {
        let mut table = Table::new(&Secrets::from_seed(1));
        let old = table.insert(tuple(1)).unwrap();
        table.unindex(old.slot);
        assert_eq!(table.find(&tuple(1)), None);
        let new = table.insert(tuple(1)).unwrap();
        assert_ne!(old.slot, new.slot);
        table.remove(old.slot);
        assert_eq!(table.find(&tuple(1)), Some(new.slot));
    }
}
