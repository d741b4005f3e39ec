//! A slab of entries with a keyed hash index over their tuples.
//!
//! The index holds slot numbers only (four bytes an entry and a control byte), and compares tuples in the slab: an
//! idle connection costs little beyond its PCB. An attacker who does not know the key cannot aim at one bucket.
//!
//! In front of the index stands a small direct-mapped cache, chosen by the hash that the device has made of the flow
//! already: the keyed hash costs more than all the rest of a look-up. Who knows the device's hash can make flows that drive
//! each other out of that cache, and then gets what everybody would without it.

use hashbrown::HashTable;
use wire::FourTuple;

use crate::flow::Key;
use crate::secrets::Secrets;

/// What can stand in a table.
pub trait Entry {
    /// The tuple under which it is found.
    fn tuple(&self) -> &FourTuple;
    /// The device's hash of its flow: where the cache in front of the index looks for it.
    fn flow_hash(&self) -> u32;
}

/// The keyed hash of a tuple that was looked for and is not in the table: what putting it in needs. Good until the table's
/// next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Absent(u32);

impl Absent {
    /// The keyed hash, for another table of the same tuples.
    #[inline]
    pub fn hash(self) -> u32 {
        self.0
    }

    /// As the index wants it: it takes the bucket from the low bits and a control byte from the top seven.
    #[inline]
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

enum Slot<T> {
    Free { next: u32 },
    Used(T),
}

/// Slots of a chunk, as a power of two: growth copies nothing, and at most this many slots stand empty.
const CHUNK_SHIFT: u32 = 4;
const CHUNK: usize = 1 << CHUNK_SHIFT;

/// A slot with what is remembered of it.
struct Place<T> {
    generation: u32,
    /// The keyed hash of its entry's tuple: what leaves the index, or moves in it, is not hashed again.
    hash: Absent,
    slot: Slot<T>,
}

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
    #[inline(always)]
    fn push(&mut self, entry: T, hash: Absent) -> u32 {
        let slot = self.len;
        if (slot as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(Place { generation: 0, hash, slot: Slot::Used(entry) });
        }
        self.len += 1;
        slot
    }

    fn footprint(&self) -> usize {
        self.chunks.capacity() * size_of::<Vec<Place<T>>>() + self.chunks.len() * CHUNK * size_of::<Place<T>>()
    }
}

/// Places of the cache for each slot; a place is four bytes.
const RECENT_PER_SLOT: usize = 4;
/// Places at most: 64 KiB.
const RECENT_MOST: usize = 1 << 14;

/// Slots by the device's hash. Two places that lie side by side share what falls to them, the later first. (McKenney and
/// Dove 1992 say when the one-behind cache of 4.3BSD pays and when it does not; with places for each connection it nearly
/// always does.)
struct Recent {
    places: Vec<[u32; 2]>,
    /// Places at most.
    most: usize,
}

impl Recent {
    /// Multiplied, because the low bits have chosen the cell already (Knuth, volume 3, section 6.4).
    #[inline]
    fn index(&self, flow_hash: u32) -> usize {
        (flow_hash.wrapping_mul(0x9e37_79b9) >> 16) as usize & self.places.len().wrapping_sub(1)
    }

    #[inline]
    fn get(&self, flow_hash: u32) -> [u32; 2] {
        self.places.get(self.index(flow_hash)).copied().unwrap_or([NONE; 2])
    }

    fn note(&mut self, flow_hash: u32, slot: u32) {
        let index = self.index(flow_hash);
        if let Some(places) = self.places.get_mut(index) {
            *places = [slot, places[0]];
        }
    }

    fn forget(&mut self, flow_hash: u32, slot: u32) {
        let index = self.index(flow_hash);
        if let Some(places) = self.places.get_mut(index) {
            places.iter_mut().filter(|place| **place == slot).for_each(|place| *place = NONE);
        }
    }

    /// Makes room for the cache of a table with `slots`. What it knew is found again by the index.
    fn fit(&mut self, slots: usize) {
        let wanted = (slots * RECENT_PER_SLOT).next_power_of_two().min(self.most) / 2;
        if self.places.len() < wanted {
            self.places = vec![[NONE; 2]; wanted];
        }
    }
}

/// Entries by key and by tuple. Exclusive use is the owner's business.
pub struct Table<T> {
    slots: Slots<T>,
    free: u32,
    used: usize,
    index: HashTable<u32>,
    secrets: Secrets,
    recent: Recent,
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
            recent: Recent { places: Vec::new(), most: RECENT_MOST },
        }
    }

    /// How many entries there are, those hidden by [`Table::unindex`] included.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Memory held by the table itself, in bytes, entries included, what they point to not.
    pub fn footprint(&self) -> usize {
        self.slots.footprint() + self.index.allocation_size() + self.recent.places.len() * size_of::<[u32; 2]>()
    }

    /// The slot that serves `tuple`, whose flow has this hash; or what [`Table::insert`] wants.
    #[inline]
    pub fn find(&mut self, tuple: &FourTuple, flow_hash: u32) -> Result<u32, Absent> {
        match self.recall(tuple, flow_hash) {
            Some(slot) => Ok(slot),
            None => self.search(tuple, flow_hash),
        }
    }

    /// The same, if it was found before and not since driven out of the cache.
    #[inline]
    fn recall(&self, tuple: &FourTuple, flow_hash: u32) -> Option<u32> {
        let [latest, before] = self.recent.get(flow_hash);
        if same(&self.slots, latest, tuple) {
            Some(latest)
        } else if same(&self.slots, before, tuple) {
            Some(before)
        } else {
            None
        }
    }

    #[inline(never)]
    fn search(&mut self, tuple: &FourTuple, flow_hash: u32) -> Result<u32, Absent> {
        let hash = Absent(self.secrets.table_hash(tuple) as u32);
        match self.search_hashed(tuple, flow_hash, hash) {
            Some(slot) => Ok(slot),
            None => Err(hash),
        }
    }

    /// The slot that serves `tuple`, which another table with the same key has not: it is not hashed again.
    pub fn search_hashed(&mut self, tuple: &FourTuple, flow_hash: u32, hash: Absent) -> Option<u32> {
        let slot = self.index.find(hash.spread(), |slot| same(&self.slots, *slot, tuple)).copied()?;
        self.recent.note(flow_hash, slot);
        Some(slot)
    }

    /// The key of a slot that is in use.
    pub fn key(&self, slot: u32) -> Key {
        Key { slot, generation: self.slots.get(slot).map_or(0, |place| place.generation) }
    }

    /// The entry in `slot`, if the slot is in use.
    #[inline]
    pub fn at(&mut self, slot: u32) -> Option<&mut T> {
        match self.slots.get_mut(slot) {
            Some(Place { slot: Slot::Used(entry), .. }) => Some(entry),
            _ => None,
        }
    }

    /// The entry that `key` names, if it is still that one.
    #[inline]
    pub fn get(&mut self, key: Key) -> Option<&mut T> {
        match self.slots.get_mut(key.slot) {
            Some(Place { generation, slot: Slot::Used(entry), .. }) if *generation == key.generation => Some(entry),
            _ => None,
        }
    }

    /// Puts `entry` in and indexes it by its tuple, which [`Table::find`] has not found.
    #[inline(always)]
    pub fn insert(&mut self, entry: T, hash: Absent) -> Key {
        debug_assert!(self.is_absent(entry.tuple(), hash), "two entries of one tuple");
        let flow_hash = entry.flow_hash();
        let slot = self.take_slot(entry, hash);
        self.enter(slot, flow_hash, hash)
    }

    fn is_absent(&self, tuple: &FourTuple, hash: Absent) -> bool {
        let hashed = self.secrets.table_hash(tuple) as u32;
        hashed == hash.0 && self.index.find(hash.spread(), |slot| same(&self.slots, *slot, tuple)).is_none()
    }

    #[inline(never)]
    fn enter(&mut self, slot: u32, flow_hash: u32, hash: Absent) -> Key {
        let slots = &self.slots;
        let rehash = |other: &u32| slots.get(*other).map_or(0, |place| place.hash.spread());
        self.index.insert_unique(hash.spread(), slot, rehash);
        self.used += 1;
        if slot + 1 == self.slots.len {
            self.recent.fit(self.slots.len as usize);
        }
        self.recent.note(flow_hash, slot);
        self.key(slot)
    }

    #[inline(never)]
    fn take_slot(&mut self, entry: T, hash: Absent) -> u32 {
        let slot = self.free;
        let Some(place) = self.slots.get_mut(slot) else { return self.slots.push(entry, hash) };
        if let Slot::Free { next } = place.slot {
            self.free = next;
        }
        place.hash = hash;
        // Nothing stands there that would have to be dropped, and to look costs the entry another move.
        let free = std::mem::replace(&mut place.slot, Slot::Used(entry));
        debug_assert!(matches!(free, Slot::Free { .. }), "a slot in use is not given away");
        std::mem::forget(free);
        slot
    }

    /// Makes the entry unreachable by its tuple; its key still finds it. For a connection that is over on the wire
    /// while its user still has data to read.
    pub fn unindex(&mut self, slot: u32) {
        let Some(Place { hash, slot: Slot::Used(entry), .. }) = self.slots.get(slot) else { return };
        if let Ok(found) = self.index.find_entry(hash.spread(), |other| *other == slot) {
            found.remove();
        }
        let flow_hash = entry.flow_hash();
        self.recent.forget(flow_hash, slot);
    }

    /// Takes the entry out and frees its slot; its key is stale from now on. What it was found by comes along, for another
    /// table with the same key.
    pub fn remove(&mut self, slot: u32) -> Option<(T, Absent)> {
        self.unindex(slot);
        let place = self.slots.get_mut(slot)?;
        if matches!(place.slot, Slot::Free { .. }) {
            return None;
        }
        let old = std::mem::replace(&mut place.slot, Slot::Free { next: self.free });
        place.generation = place.generation.wrapping_add(1);
        self.free = slot;
        self.used -= 1;
        match old {
            Slot::Used(entry) => Some((entry, place.hash)),
            Slot::Free { .. } => None,
        }
    }

    /// As [`Table::remove`] for an entry that nobody wants any more: it is dropped where it stands.
    pub fn free(&mut self, slot: u32) {
        self.unindex(slot);
        let Some(place) = self.slots.get_mut(slot) else { return };
        if matches!(place.slot, Slot::Used(_)) {
            place.slot = Slot::Free { next: self.free };
            place.generation = place.generation.wrapping_add(1);
            self.free = slot;
            self.used -= 1;
        }
    }

    /// Every entry with its slot, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.slots.chunks.iter_mut().flatten().enumerate().filter_map(|(slot, place)| match &mut place.slot {
            Slot::Used(entry) => Some((slot as u32, entry)),
            Slot::Free { .. } => None,
        })
    }
}

#[inline(always)]
fn same<T: Entry>(slots: &Slots<T>, slot: u32, tuple: &FourTuple) -> bool {
    matches!(slots.get(slot), Some(Place { slot: Slot::Used(entry), .. }) if entry.tuple() == tuple)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Entry for FourTuple {
        fn tuple(&self) -> &FourTuple {
            self
        }

        fn flow_hash(&self) -> u32 {
            flow_hash(self)
        }
    }

    /// Many flows share one.
    fn flow_hash(tuple: &FourTuple) -> u32 {
        u32::from(tuple.remote_port % 1000)
    }

    fn tuple(n: u32) -> FourTuple {
        FourTuple {
            local_addr: "10.0.0.1".parse().unwrap(),
            remote_addr: std::net::IpAddr::V4((0x0a01_0000 + (n >> 16)).into()),
            local_port: 80,
            remote_port: n as u16,
        }
    }

    fn table() -> Table<FourTuple> {
        Table::new(&Secrets::from_seed(1))
    }

    fn find(table: &mut Table<FourTuple>, n: u32) -> Option<u32> {
        table.find(&tuple(n), flow_hash(&tuple(n))).ok()
    }

    fn insert(table: &mut Table<FourTuple>, n: u32) -> Key {
        let absent = table.find(&tuple(n), flow_hash(&tuple(n))).expect_err("it is not in the table");
        table.insert(tuple(n), absent)
    }

    #[test]
    fn finds_what_was_inserted_and_only_that() {
        let mut table = table();
        let keys: Vec<Key> = (0..100_000).map(|n| insert(&mut table, n)).collect();
        assert_eq!(find(&mut table, 17), Some(keys[17].slot));
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(find(&mut table, n as u32), Some(key.slot));
            assert_eq!(table.get(*key), Some(&mut tuple(n as u32)));
        }
        assert_eq!(find(&mut table, 100_000), None);
    }

    #[test]
    fn a_freed_slot_makes_its_key_stale() {
        let mut table = table();
        let old = insert(&mut table, 1);
        assert_eq!(table.remove(old.slot).map(|(entry, _)| entry), Some(tuple(1)));
        assert_eq!(table.remove(old.slot), None);
        let new = insert(&mut table, 2);
        assert_eq!(old.slot, new.slot);
        assert_eq!(table.get(old), None);
        assert_eq!(table.get(new), Some(&mut tuple(2)));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn an_unindexed_entry_leaves_its_tuple_free() {
        let mut table = table();
        let old = insert(&mut table, 1);
        table.unindex(old.slot);
        assert_eq!(find(&mut table, 1), None);
        let new = insert(&mut table, 1);
        assert_ne!(old.slot, new.slot);
        table.remove(old.slot);
        assert_eq!(find(&mut table, 1), Some(new.slot));
    }

    #[test]
    fn what_was_found_is_recalled_until_two_other_flows_take_its_places() {
        let mut table = table();
        let [one, two, three] = [1, 1001, 2001].map(|n| insert(&mut table, n).slot);
        let recall = |table: &Table<FourTuple>, n| table.recall(&tuple(n), 1);
        assert_eq!([find(&mut table, 1), find(&mut table, 1001)], [Some(one), Some(two)]);
        assert_eq!([recall(&table, 1), recall(&table, 1001)], [Some(one), Some(two)]);
        assert_eq!(find(&mut table, 2001), Some(three));
        assert_eq!(recall(&table, 1), None, "all three have the same two places");
        assert_eq!(find(&mut table, 1), Some(one), "the index still knows it");
        assert_eq!(recall(&table, 1), Some(one));
        table.free(one);
        assert_eq!([recall(&table, 1), find(&mut table, 1)], [None, None]);
    }

    #[test]
    fn a_tuple_moves_between_tables_without_another_hash() {
        let (mut from, mut to) = (table(), table());
        let slot = insert(&mut from, 7).slot;
        let (entry, hash) = from.remove(slot).expect("it is there");
        assert_eq!(to.search_hashed(&entry, 7, hash), None);
        let key = to.insert(entry, hash);
        assert_eq!(to.search_hashed(&entry, 0, hash), Some(key.slot));
        assert_eq!(find(&mut to, 7), Some(key.slot));
    }
}
