//! From a tuple to a slot: a keyed hash index, which holds slot numbers only.
//!
//! The index holds four bytes and a control byte for each entry; the owner of the entries compares tuples. An idle
//! connection therefore costs little beyond its PCB. An attacker that does not know the key cannot aim at one bucket.
//!
//! In front of the index is a small cache, indexed by the flow hash that the device has already computed and by the ports
//! ([`FlowMark`]): the keyed hash costs more than the rest of a look-up. The ports tell flows apart that share a hash, as the flows
//! of a few clients do under a symmetric key. An attacker that knows the device's hash can make flows that
//! evict each other from that cache; the index then finds them, as it would without the cache.

use hashbrown::HashTable;
use wire::{FlowMark, FourTuple};

use crate::secrets::Secrets;

/// The keyed hash of a tuple that was not found in the table, for its insertion. Valid until the table's next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct VacantEntry(u32);

impl VacantEntry {
    /// The keyed hash, for another table of the same tuples.
    #[inline]
    pub fn hash(self) -> u32 {
        self.0
    }

    /// The value with this hash, which was computed before.
    #[inline]
    pub(crate) fn from_hash(hash: u32) -> Self {
        VacantEntry(hash)
    }

    /// That of `tuple`.
    #[inline]
    pub(crate) fn of(secrets: &Secrets, tuple: &FourTuple) -> Self {
        VacantEntry(secrets.table_hash(tuple) as u32)
    }

    /// Extended for the index, which takes the bucket from the low bits and a control byte from the top seven.
    #[inline]
    pub(crate) fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

const NONE: u32 = u32::MAX;
/// Places of the cache for each slot; a place is four bytes. With eight, one slot in forty shares its bucket with two
/// others; with four it was one in eleven.
const RECENT_PER_SLOT: usize = 8;
/// Places at most: 512 KiB.
const RECENT_MOST: usize = 1 << 17;
/// Bits of a place that hold part of the mark; the others hold the slot.
const TAG_BITS: u32 = 8;

/// An index for fewer entries than this is as small as it may become.
const LEAST_CAPACITY: usize = 8;

/// Slots by the marks of flows. Each bucket has two entries, the later first. With a slot is stored a tag, the high bits of
/// the mark, so that a look-up touches no connection of another flow, which it would have to wait for. A slot too
/// large to leave room for the tag is not stored. (McKenney and Dove 1992 analyse when the
/// one-behind cache of 4.3BSD pays; with entries for each connection it nearly always does.)
struct Recent {
    places: Vec<[u32; 2]>,
}

impl Recent {
    /// Multiplied, because the low bits have chosen the cell already (Knuth, volume 3, section 6.4).
    #[inline]
    fn index(&self, mark: FlowMark) -> usize {
        (mark.get().wrapping_mul(0x9e37_79b9) >> 16) as usize & self.places.len().wrapping_sub(1)
    }

    /// What a place of this slot holds; [`NONE`] if the slot is too large.
    #[inline]
    fn place(mark: FlowMark, slot: u32) -> u32 {
        if slot < NONE >> TAG_BITS { slot << TAG_BITS | mark.get() >> (32 - TAG_BITS) } else { NONE }
    }

    /// The slots with the tag of this mark, the later first. An empty place may look like the slot that is never stored.
    #[inline(always)]
    fn get(&self, mark: FlowMark) -> [Option<u32>; 2] {
        let places = self.places.get(self.index(mark)).copied().unwrap_or([NONE; 2]);
        let tag = mark.get() >> (32 - TAG_BITS);
        places.map(|place| (place ^ tag).is_multiple_of(1 << TAG_BITS).then_some(place >> TAG_BITS))
    }

    /// The bucket of this mark.
    #[inline(always)]
    fn bucket(&self, mark: FlowMark) -> Option<&[u32; 2]> {
        self.places.get(self.index(mark))
    }

    fn note(&mut self, mark: FlowMark, slot: u32) {
        let index = self.index(mark);
        if let Some(places) = self.places.get_mut(index) {
            *places = [Self::place(mark, slot), places[0]];
        }
    }

    fn forget(&mut self, mark: FlowMark, slot: u32) {
        let index = self.index(mark);
        if let Some(places) = self.places.get_mut(index) {
            let gone = Self::place(mark, slot);
            places.iter_mut().filter(|place| **place == gone).for_each(|place| *place = NONE);
        }
    }

    /// Resizes the cache for an index with `entries`. Its contents are lost; the index finds them again.
    fn fit(&mut self, entries: usize) {
        let wanted = (entries * RECENT_PER_SLOT).next_power_of_two().min(RECENT_MOST) / 2;
        if self.places.len() < wanted {
            self.places = vec![[NONE; 2]; wanted];
        }
    }
}

/// Slots by tuple. It does not store the entries: the caller compares tuples and returns keyed hashes. The owner
/// provides exclusive access.
#[repr(C)]
pub struct Index {
    /// First, because most look-ups touch nothing else.
    recent: Recent,
    slots: HashTable<u32>,
    secrets: Secrets,
}

impl Index {
    /// Its first bytes, which each look-up touches.
    pub const OF_EACH_EVENT: usize = size_of::<Recent>();

    /// An empty index hashed with the stack's key.
    pub fn new(secrets: &Secrets) -> Self {
        Index { slots: HashTable::new(), secrets: secrets.clone(), recent: Recent { places: Vec::new() } }
    }

    /// The number of slots in it.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Memory held, in bytes.
    pub fn footprint(&self) -> usize {
        self.slots.allocation_size() + self.recent.places.len() * size_of::<[u32; 2]>()
    }

    /// The slots in it, in no order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().copied()
    }

    /// The slot that serves `tuple`, which has this mark; or the value for [`Index::insert`]. `has` returns
    /// whether a slot's entry has that tuple.
    #[inline(always)]
    pub fn find(
        &mut self,
        tuple: &FourTuple,
        mark: FlowMark,
        mut has: impl FnMut(u32) -> bool,
    ) -> Result<u32, VacantEntry> {
        match self.recall(mark, &mut has) {
            Some(slot) => Ok(slot),
            None => self.search(tuple, mark, has),
        }
    }

    /// The same, from the cache.
    #[inline(always)]
    pub fn recall(&self, mark: FlowMark, mut has: impl FnMut(u32) -> bool) -> Option<u32> {
        let [latest, before] = self.recent.get(mark);
        latest.filter(|slot| has(*slot)).or_else(|| before.filter(|slot| has(*slot)))
    }

    /// Asks the processor for the place where the cache has a slot of this mark.
    #[inline(always)]
    pub fn prefetch(&self, mark: FlowMark) {
        if let Some(bucket) = self.bucket(mark) {
            sync::prefetch(bucket);
        }
    }

    /// That place. `None`: there is none yet.
    #[inline(always)]
    pub fn bucket(&self, mark: FlowMark) -> Option<&[u32; 2]> {
        self.recent.bucket(mark)
    }

    /// The slots that the cache has for this mark. Two flows may have the same mark.
    #[inline(always)]
    pub fn candidates(&self, mark: FlowMark) -> impl Iterator<Item = u32> {
        self.recent.get(mark).into_iter().flatten()
    }

    /// The same, without the cache.
    #[inline(never)]
    pub fn search(
        &mut self,
        tuple: &FourTuple,
        mark: FlowMark,
        mut has: impl FnMut(u32) -> bool,
    ) -> Result<u32, VacantEntry> {
        let hash = VacantEntry::of(&self.secrets, tuple);
        let slot = self.slots.find(hash.spread(), |slot| has(*slot)).copied().ok_or(hash)?;
        self.recent.note(mark, slot);
        Ok(slot)
    }

    /// Inserts a slot after [`Index::find`] has not found its tuple. `hash_of` returns the keyed hash of another slot's
    /// entry.
    #[inline(never)]
    pub fn insert(&mut self, slot: u32, mark: FlowMark, hash: VacantEntry, hash_of: impl Fn(u32) -> VacantEntry) {
        self.slots.insert_unique(hash.spread(), slot, |other| hash_of(*other).spread());
        let before = self.slots.len() - 1;
        if before == 0 || before.is_power_of_two() {
            self.recent.fit(before + 1);
        }
        self.recent.note(mark, slot);
    }

    /// Gives back memory if less than a quarter of it is in use. `hash_of` returns the keyed hash of a slot's entry.
    pub fn trim(&mut self, hash_of: impl Fn(u32) -> Option<VacantEntry>) {
        let len = self.slots.len();
        if self.slots.capacity() > 4 * len.max(LEAST_CAPACITY) {
            // Every slot has an entry; one without would only be put where it is not found.
            self.slots.shrink_to(2 * len, |slot| hash_of(*slot).map_or(0, VacantEntry::spread));
            self.recent = Recent { places: Vec::new() };
            if len != 0 {
                self.recent.fit(len.next_power_of_two());
            }
        }
    }

    /// Removes a slot.
    pub fn remove(&mut self, slot: u32, mark: FlowMark, hash: VacantEntry) {
        if let Ok(found) = self.slots.find_entry(hash.spread(), |other| *other == slot) {
            found.remove();
        }
        self.recent.forget(mark, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries in a vector, as targets of the slots of an index.
    struct Tuples {
        index: Index,
        entries: Vec<Option<(FourTuple, VacantEntry)>>,
    }

    /// Of another hash than the device's, and without ports: many flows share one.
    fn mark(tuple: &FourTuple) -> FlowMark {
        raw(u32::from(tuple.remote_port % 1000))
    }

    /// This number as a mark.
    fn raw(mark: u32) -> FlowMark {
        FlowMark::new(mark, (0, 0))
    }

    fn tuple(n: u32) -> FourTuple {
        FourTuple {
            local_addr: "10.0.0.1".parse().unwrap(),
            remote_addr: std::net::IpAddr::V4((0x0a01_0000 + (n >> 16)).into()),
            local_port: 80,
            remote_port: n as u16,
        }
    }

    fn has(entries: &[Option<(FourTuple, VacantEntry)>], slot: u32, n: u32) -> bool {
        entries.get(slot as usize).is_some_and(|entry| entry.is_some_and(|(other, _)| other == tuple(n)))
    }

    impl Tuples {
        fn new() -> Self {
            Tuples { index: Index::new(&Secrets::from_seed(1)), entries: Vec::new() }
        }

        fn find(&mut self, n: u32) -> Result<u32, VacantEntry> {
            self.index.find(&tuple(n), mark(&tuple(n)), |slot| has(&self.entries, slot, n))
        }

        fn recall(&self, n: u32) -> Option<u32> {
            self.index.recall(mark(&tuple(n)), |slot| has(&self.entries, slot, n))
        }

        fn insert(&mut self, n: u32) -> u32 {
            let absent = self.find(n).expect_err("it is not in the table");
            let slot = self.entries.len() as u32;
            self.entries.push(Some((tuple(n), absent)));
            let hash_of = |slot: u32| self.entries[slot as usize].expect("it is there").1;
            self.index.insert(slot, mark(&tuple(n)), absent, hash_of);
            slot
        }

        fn remove(&mut self, slot: u32) -> VacantEntry {
            let (tuple, hash) = self.entries[slot as usize].take().expect("it is there");
            self.index.remove(slot, mark(&tuple), hash);
            hash
        }
    }

    #[test]
    fn finds_what_was_inserted_and_only_that() {
        let mut tuples = Tuples::new();
        let slots: Vec<u32> = (0..100_000).map(|n| tuples.insert(n)).collect();
        for (n, slot) in slots.iter().enumerate() {
            assert_eq!(tuples.find(n as u32), Ok(*slot));
        }
        assert!(tuples.find(100_000).is_err());
        assert_eq!(tuples.index.len(), 100_000);
        assert_eq!(tuples.index.iter().map(u64::from).sum::<u64>(), 99_999 * 50_000);
    }

    #[test]
    fn what_was_taken_out_leaves_its_tuple_free() {
        let mut tuples = Tuples::new();
        let old = tuples.insert(1);
        let _ = tuples.remove(old);
        assert!(tuples.find(1).is_err());
        let new = tuples.insert(1);
        assert_ne!(old, new);
        assert_eq!(tuples.find(1), Ok(new));
    }

    #[test]
    fn what_was_found_is_recalled_until_two_other_flows_take_its_places() {
        let mut tuples = Tuples::new();
        let [one, two, three] = [1, 1001, 2001].map(|n| tuples.insert(n));
        assert_eq!([tuples.find(1), tuples.find(1001)], [Ok(one), Ok(two)]);
        assert_eq!([tuples.recall(1), tuples.recall(1001)], [Some(one), Some(two)]);
        assert_eq!(tuples.find(2001), Ok(three));
        assert_eq!(tuples.recall(1), None, "all three have the same two places");
        assert_eq!(tuples.find(1), Ok(one), "the index still knows it");
        assert_eq!(tuples.recall(1), Some(one));
        let _ = tuples.remove(one);
        assert_eq!(tuples.recall(1), None);
        assert!(tuples.find(1).is_err());
    }

    /// Seven clients with ten connections each have sixteen hashes of a device with a symmetric key.
    #[test]
    fn flows_that_share_the_hash_of_a_device_are_recalled() {
        let rss = wire::rss::Toeplitz::default();
        let tuple = |n: u32| FourTuple {
            local_addr: [10, 9, 1, 1].into(),
            remote_addr: [10, 9, 0, 1 + (n / 10) as u8].into(),
            local_port: 5001,
            remote_port: 1024 + (n % 10) as u16,
        };
        for beside in [0, 20_000] {
            let mut tuples = Tuples::new();
            let all: Vec<_> = (0..70).map(|n| (tuple(n), FlowMark::of(rss.hash_tcp(&tuple(n)), &tuple(n)))).collect();
            for (slot, (tuple, mark)) in all.iter().enumerate() {
                let absent = tuples.index.find(tuple, *mark, |_| false).expect_err("it is not in the table");
                tuples.entries.push(Some((*tuple, absent)));
                tuples.index.insert(slot as u32, *mark, absent, |slot| tuples.entries[slot as usize].unwrap().1);
            }
            (0..beside).for_each(|n| _ = tuples.insert(10_000 + n));
            let Tuples { index, entries } = &mut tuples;
            let has = |slot: u32, tuple: &FourTuple| entries[slot as usize].is_some_and(|entry| entry.0 == *tuple);
            for (slot, (tuple, mark)) in all.iter().enumerate() {
                assert_eq!(index.find(tuple, *mark, |slot| has(slot, tuple)), Ok(slot as u32));
            }
            for (slot, (tuple, mark)) in all.iter().enumerate() {
                assert_eq!(index.recall(*mark, |slot| has(slot, tuple)), Some(slot as u32), "{tuple}");
            }
        }
    }

    /// The cache of an index for eight entries.
    fn recent() -> Recent {
        let mut recent = Recent { places: Vec::new() };
        recent.fit(8);
        recent
    }

    #[test]
    fn a_look_up_is_given_no_slot_of_a_flow_with_another_tag() {
        let mut recent = recent();
        let hash = 0x1234_5678_u32;
        // Another tag, and the same place.
        let others = (1..=u32::from(u8::MAX)).map(|tag| hash ^ tag << 24);
        let (hash, mut others) = (raw(hash), others.into_iter().map(raw));
        let other = others.find(|other| recent.index(*other) == recent.index(hash)).expect("one of them");
        recent.note(hash, 7);
        recent.note(other, 8);
        assert_eq!(recent.get(hash), [None, Some(7)]);
        assert_eq!(recent.get(other), [Some(8), None]);
        recent.forget(other, 7);
        assert_eq!(recent.get(hash), [None, Some(7)], "that was another flow's");
    }

    #[test]
    fn a_slot_that_leaves_no_room_for_the_tag_is_not_stored() {
        let mut recent = recent();
        let (hash, largest) = (raw(0xff00_0001), (1 << 24) - 2);
        recent.note(hash, largest);
        assert_eq!(recent.get(hash)[0], Some(largest));
        let other = raw(0x1200_0001);
        recent.note(other, largest + 1);
        assert_eq!(recent.get(other)[0], None, "an empty place may look like this slot");
        for slot in [1 << 24, u32::MAX - 1] {
            recent.note(hash, slot);
            assert!(!recent.get(hash).contains(&Some(slot)) && !recent.get(hash).contains(&Some(slot % (1 << 24))));
        }
    }

    /// Places of the cache, each for one slot.
    fn places(index: &Index) -> usize {
        2 * index.recent.places.len()
    }

    #[test]
    fn the_bucket_and_the_control_byte_both_come_from_the_keyed_hash() {
        assert_eq!(VacantEntry(0x8123_4567).spread(), 0x8123_4567_8123_4567);
        let mut tuples = Tuples::new();
        let absent = tuples.find(1).expect_err("it is not in the table");
        assert_eq!(absent.hash(), Secrets::from_seed(1).table_hash(&tuple(1)) as u32);
    }

    #[test]
    fn flows_of_other_hashes_have_other_places() {
        let mut tuples = Tuples::new();
        let slots: Vec<u32> = (0..5).map(|n| tuples.insert(n)).collect();
        // The cache grew meanwhile, and what it has lost is found again.
        assert!((0..5).all(|n| tuples.find(n) == Ok(slots[n as usize])));
        assert!((0..5).all(|n| tuples.recall(n) == Some(slots[n as usize])));
    }

    #[test]
    fn a_flow_that_ends_takes_its_own_place_out_of_the_cache_and_no_other() {
        let mut tuples = Tuples::new();
        let [one, two] = [1, 1001].map(|n| tuples.insert(n));
        assert_eq!([tuples.find(1), tuples.find(1001)], [Ok(one), Ok(two)]);
        let _ = tuples.remove(one);
        let known = tuples.index.recent.get(mark(&tuple(1)));
        assert_eq!((known.contains(&Some(one)), known.contains(&Some(two))), (false, true));
        assert_eq!(tuples.recall(1001), Some(two));
    }

    #[test]
    fn the_cache_has_eight_places_for_each_slot_up_to_512_kib() {
        let mut tuples = Tuples::new();
        assert!(tuples.index.is_empty());
        let grown: Vec<usize> = (0..5)
            .map(|n| {
                let slot = tuples.insert(n);
                assert_eq!(tuples.recall(n), Some(slot), "what was put in last is known");
                places(&tuples.index)
            })
            .collect();
        assert_eq!(grown, [8, 16, 32, 32, 64]);
        assert!(!tuples.index.is_empty());
        (5..32768).for_each(|n| _ = tuples.insert(n));
        assert_eq!(places(&tuples.index), RECENT_MOST);
        assert!(tuples.recall(32767).is_some());
        let _ = tuples.insert(32768);
        assert!(tuples.recall(32767).is_some(), "the largest cache does not lose what it has when the index grows");
        (32769..100_000).for_each(|n| _ = tuples.insert(n));
        // A slot and a control byte for each of 2^17 buckets, and the cache.
        let least = (1 << 17) * 5 + 4 * RECENT_MOST;
        assert!((least..least + 1024).contains(&tuples.index.footprint()), "{} bytes", tuples.index.footprint());
    }

    #[test]
    fn an_index_shrinks_when_less_than_a_quarter_of_it_is_in_use() {
        let mut tuples = Tuples::new();
        let slots: Vec<u32> = (0..29).map(|n| tuples.insert(n)).collect();
        let capacity = tuples.index.slots.capacity();
        let mut shrunk = |left: usize, from: usize| {
            slots[left..from].iter().for_each(|slot| _ = tuples.remove(*slot));
            let Tuples { index, entries } = &mut tuples;
            index.trim(|slot| entries[slot as usize].map(|(_, hash)| hash));
            assert!(index.slots.capacity() >= 2 * left, "as many again have room");
            assert_ne!(places(index), 0, "the cache is for those that are left");
            index.slots.capacity()
        };
        assert_eq!(shrunk(capacity / 4, 29), capacity, "a quarter is in use");
        assert!(shrunk(capacity / 4 - 1, capacity / 4) < capacity);
    }

    #[test]
    fn an_index_that_has_shrunk_finds_what_is_left() {
        let mut tuples = Tuples::new();
        let slots: Vec<u32> = (0..20_000).map(|n| tuples.insert(n)).collect();
        let full = tuples.index.footprint();
        for slot in &slots[300..] {
            let _ = tuples.remove(*slot);
        }
        let Tuples { index, entries } = &mut tuples;
        index.trim(|slot| entries[slot as usize].map(|(_, hash)| hash));
        assert!(index.footprint() < full / 10, "{} of {full} bytes", index.footprint());
        assert!(index.slots.capacity() >= 2 * 300, "as many again have room");
        assert!((0..300).all(|n| tuples.find(n) == Ok(slots[n as usize])));
        assert!((300..20_000).all(|n| tuples.find(n).is_err()));
        let again = tuples.insert(300);
        assert_eq!(tuples.find(300), Ok(again));
    }

    #[test]
    fn a_tuple_moves_between_indices_without_another_hash() {
        let (mut from, mut to) = (Tuples::new(), Tuples::new());
        let slot = from.insert(7);
        let hash = from.remove(slot);
        to.entries.push(Some((tuple(7), hash)));
        to.index.insert(0, raw(7), hash, |_| hash);
        assert_eq!(to.find(7), Ok(0));
    }
}
