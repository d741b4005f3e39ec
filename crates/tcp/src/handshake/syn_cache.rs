//! The SYN cache (RFC 4987 section 3.5): half-open connections by tuple, each with a value of the caller.
//!
//! All entries with the same number of retries wait equally long. So one list per number of retries, in the order of
//! sending, is a timer: its head is due first. The caller must have exclusive use.
//!
//! The acknowledgement that completes a handshake is the usual segment of an entry. It finds the entry by the device's hash of
//! its flow ([`SynCache::recall`]), without a keyed hash. Flows that an attacker makes for that hash evict each other from
//! there only, and are found by the keyed hash.
//!
//! What may never happen: an entry in no list; copying the entries when the cache grows.

use core::net::IpAddr;

use observe::Time;
use wire::FourTuple;

use super::half_open::HalfOpen;
use crate::config::Config;

/// No slot.
const NONE: u32 = u32::MAX;
/// Lists, one per number of retries. Entries with more retries share the last list, where a head may delay an entry
/// that is due earlier.
const LISTS: usize = 8;
/// Slots of a chunk, as a power of two. Chunks never move.
const CHUNK_SHIFT: u32 = 4;
const CHUNK: usize = 1 << CHUNK_SHIFT;
/// Pairs of places for the latest entries, at most: 1 KiB, for as many as complete within a round trip or two.
const RECENT_MOST: usize = 128;

struct SynCacheEntry<B> {
    half_open: HalfOpen,
    beside: B,
    hash: u32,
    /// The next entry of the same bucket.
    chain: u32,
    next: u32,
    prev: u32,
}

enum SynCacheSlot<B> {
    Free { next: u32 },
    Used(SynCacheEntry<B>),
}

#[derive(Clone, Copy)]
struct RetryList {
    first: u32,
    last: u32,
}

/// Half-open connections, with a `B` for each; see the module documentation.
pub struct SynCache<B> {
    chunks: Vec<Vec<SynCacheSlot<B>>>,
    /// Slots of all chunks that have been used.
    slots: u32,
    /// The first free slot among them.
    free: u32,
    len: usize,
    /// The first entry of each bucket; their number is a power of two, or 0.
    buckets: Vec<u32>,
    /// The latest two entries, the later first, by their flow hash. An entry may have gone.
    recent: Vec<[u32; 2]>,
    /// The slot that [`SynCache::recall`] returned last. Its entry may have gone.
    recalled: u32,
    lists: [RetryList; LISTS],
    /// Not later than the earliest deadline, in nanoseconds; `u64::MAX` while there is none.
    earliest: u64,
}

impl<B> Default for SynCache<B> {
    fn default() -> Self {
        SynCache {
            chunks: Vec::new(),
            slots: 0,
            free: NONE,
            len: 0,
            buckets: Vec::new(),
            recent: Vec::new(),
            recalled: NONE,
            lists: [RetryList { first: NONE, last: NONE }; LISTS],
            earliest: u64::MAX,
        }
    }
}

impl<B> SynCache<B> {
    /// Half-open connections.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory held, in bytes, without data behind pointers in the `B`s.
    pub fn footprint(&self) -> usize {
        let chunks = self.chunks.capacity() * size_of::<Vec<SynCacheSlot<B>>>()
            + self.chunks.len() * CHUNK * size_of::<SynCacheSlot<B>>();
        let indices = self.buckets.capacity() * size_of::<u32>() + self.recent.capacity() * size_of::<[u32; 2]>();
        chunks + indices
    }

    /// Gives back the memory of a cache that has become empty.
    pub fn trim(&mut self) {
        if self.is_empty() {
            (self.chunks, self.buckets, self.recent) = (Vec::new(), Vec::new(), Vec::new());
            (self.slots, self.free) = (0, NONE);
        }
    }

    /// When [`SynCache::due`] next returns an entry at the earliest, in nanoseconds; `u64::MAX` for never. One load.
    #[inline]
    pub fn cached_deadline(&self) -> u64 {
        self.earliest
    }

    /// The slot of the half-open connection with this tuple. `hash`: of the tuple, with a secret key, or peers could
    /// fill one bucket.
    #[inline]
    pub fn find(&self, tuple: &FourTuple, hash: u32) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let is_it = |entry: &SynCacheEntry<B>| entry.hash == hash && entry.half_open.tuple() == tuple;
        if self.entry(self.recalled).is_some_and(is_it) { Some(self.recalled) } else { self.search(tuple, hash) }
    }

    fn search(&self, tuple: &FourTuple, hash: u32) -> Option<u32> {
        let mut slot = self.buckets[self.bucket(hash)];
        while let Some(entry) = self.entry(slot) {
            if entry.hash == hash && entry.half_open.tuple() == tuple {
                return Some(slot);
            }
            slot = entry.chain;
        }
        None
    }

    /// The hash that the half-open connection with this tuple was inserted with, if that can be told by the hash of its flow
    /// ([`HalfOpen::flow_hash`]). `None`: perhaps there is one all the same.
    #[inline]
    pub fn recall(&mut self, tuple: &FourTuple, flow_hash: u32) -> Option<u32> {
        let places = *self.recent.get(self.pair(flow_hash))?;
        let of = |slot: u32| self.entry(slot).filter(|entry| entry.half_open.tuple() == tuple).map(|entry| entry.hash);
        let (slot, hash) = places.into_iter().find_map(|slot| Some((slot, of(slot)?)))?;
        self.recalled = slot;
        Some(hash)
    }

    /// [`SynCache::recall`] finds none that is in the cache now with this flow hash: its tuple may have a connection as well.
    #[cold]
    pub fn conceal(&mut self, flow_hash: u32) {
        let pair = self.pair(flow_hash);
        self.recent.get_mut(pair).into_iter().for_each(|places| *places = [NONE; 2]);
    }

    /// The same for all.
    #[cold]
    pub fn conceal_all(&mut self) {
        self.recent.fill([NONE; 2]);
    }

    /// The half-open connection in `slot`, and its value.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<(&mut HalfOpen, &mut B)> {
        self.entry_mut(slot).map(|entry| (&mut entry.half_open, &mut entry.beside))
    }

    /// Inserts a half-open connection that [`SynCache::find`] has not found by this `hash`, and whose SYN-ACK is sent
    /// at `now`.
    pub fn insert(&mut self, half_open: HalfOpen, beside: B, hash: u32, config: &Config, now: Time) {
        if self.len == self.buckets.len() {
            self.grow();
        }
        let (bucket, pair) = (self.bucket(hash), self.pair(half_open.flow_hash()));
        let entry = SynCacheEntry { half_open, beside, hash, chain: self.buckets[bucket], next: NONE, prev: NONE };
        let slot = self.take_slot(entry);
        self.buckets[bucket] = slot;
        self.recent[pair] = [slot, self.recent[pair][0]];
        self.len += 1;
        self.append(slot, config, now);
    }

    /// Removes an entry; returns its value.
    pub fn remove(&mut self, slot: u32) -> Option<B> {
        self.unlink(slot);
        self.discard(slot)
    }

    /// Every half-open connection with its value and hash, in the order of their deadlines, for [`SynCache::insert`]
    /// into other caches.
    pub fn into_entries(self) -> impl Iterator<Item = (HalfOpen, B, u32)> {
        self.chunks.into_iter().flatten().filter_map(|slot| match slot {
            SynCacheSlot::Used(SynCacheEntry { half_open, beside, hash, .. }) => Some((half_open, beside, hash)),
            SynCacheSlot::Free { .. } => None,
        })
    }

    /// Removes all entries with this local address, and passes their flow hashes and values to `abandoned`.
    #[cold]
    pub fn abandon(&mut self, address: IpAddr, mut abandoned: impl FnMut(u32, B)) {
        let concerned =
            |slot: &u32| self.entry(*slot).is_some_and(|entry| entry.half_open.tuple().local_addr == address);
        let slots: Vec<u32> = (0..self.slots).filter(concerned).collect();
        for slot in slots {
            let flow_hash = self.entry(slot).map(|entry| entry.half_open.flow_hash());
            flow_hash.zip(self.remove(slot)).into_iter().for_each(|(hash, beside)| abandoned(hash, beside));
        }
    }

    /// An entry whose SYN-ACK is to be sent again, or which is to be given up ([`SynCache::time_out`]).
    pub fn due(&mut self, config: &Config, now: Time) -> Option<u32> {
        if self.earliest > now.as_nanos() {
            return None;
        }
        let mut earliest = u64::MAX;
        for list in self.lists {
            let Some(entry) = self.entry(list.first) else { continue };
            let deadline = entry.half_open.deadline(config, now);
            if deadline <= now {
                return Some(list.first);
            }
            earliest = earliest.min(deadline.as_nanos());
        }
        self.earliest = earliest;
        None
    }

    /// Runs the time-out of an entry that is [`SynCache::due`]: `run` calls [`HalfOpen::timed_out`] and returns whether
    /// it is kept. Returns the entry's value if it is not.
    pub fn time_out(
        &mut self,
        slot: u32,
        config: &Config,
        now: Time,
        run: impl FnOnce(&mut HalfOpen, &mut B) -> bool,
    ) -> Option<B> {
        self.unlink(slot);
        let (half_open, beside) = self.get_mut(slot)?;
        if run(half_open, beside) {
            self.append(slot, config, now);
            return None;
        }
        self.discard(slot)
    }

    fn bucket(&self, hash: u32) -> usize {
        hash as usize & self.buckets.len().wrapping_sub(1)
    }

    /// Multiplied, because the low bits have chosen the cell already (Knuth, volume 3, section 6.4).
    #[inline]
    fn pair(&self, flow_hash: u32) -> usize {
        (flow_hash.wrapping_mul(0x9e37_79b9) >> 16) as usize & self.recent.len().wrapping_sub(1)
    }

    fn grow(&mut self) {
        let buckets = (self.buckets.len() * 2).max(CHUNK);
        self.buckets.clear();
        self.buckets.resize(buckets, NONE);
        self.recent.clear();
        self.recent.resize(buckets.min(RECENT_MOST), [NONE; 2]);
        for slot in 0..self.slots {
            let Some(hash) = self.entry(slot).map(|entry| entry.hash) else { continue };
            let bucket = self.bucket(hash);
            let before = std::mem::replace(&mut self.buckets[bucket], slot);
            if let Some(entry) = self.entry_mut(slot) {
                entry.chain = before;
            }
        }
    }

    #[inline]
    fn entry(&self, slot: u32) -> Option<&SynCacheEntry<B>> {
        match self.chunks.get((slot >> CHUNK_SHIFT) as usize)?.get(slot as usize % CHUNK)? {
            SynCacheSlot::Used(entry) => Some(entry),
            SynCacheSlot::Free { .. } => None,
        }
    }

    #[inline]
    fn slot_mut(&mut self, slot: u32) -> Option<&mut SynCacheSlot<B>> {
        self.chunks.get_mut((slot >> CHUNK_SHIFT) as usize)?.get_mut(slot as usize % CHUNK)
    }

    #[inline]
    fn entry_mut(&mut self, slot: u32) -> Option<&mut SynCacheEntry<B>> {
        match self.slot_mut(slot)? {
            SynCacheSlot::Used(entry) => Some(entry),
            SynCacheSlot::Free { .. } => None,
        }
    }

    fn take_slot(&mut self, entry: SynCacheEntry<B>) -> u32 {
        let free = self.free;
        if let Some(slot) = self.slot_mut(free)
            && let SynCacheSlot::Free { next } = *slot
        {
            *slot = SynCacheSlot::Used(entry);
            self.free = next;
            return free;
        }
        let slot = self.slots;
        if (slot as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(SynCacheSlot::Used(entry));
        }
        self.slots += 1;
        slot
    }

    /// Takes an entry out of its bucket and its slot; it is in no list any more.
    fn discard(&mut self, slot: u32) -> Option<B> {
        let (hash, behind) = self.entry(slot).map(|entry| (entry.hash, entry.chain))?;
        let bucket = self.bucket(hash);
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = behind;
        } else {
            let mut before = self.buckets[bucket];
            while let Some(entry) = self.entry_mut(before) {
                if entry.chain == slot {
                    entry.chain = behind;
                    break;
                }
                before = entry.chain;
            }
        }
        let free = SynCacheSlot::Free { next: self.free };
        let SynCacheSlot::Used(entry) = std::mem::replace(self.slot_mut(slot)?, free) else { return None };
        self.free = slot;
        self.len -= 1;
        if self.len == 0 {
            self.earliest = u64::MAX;
        }
        Some(entry.beside)
    }

    fn append(&mut self, slot: u32, config: &Config, now: Time) {
        let Some(entry) = self.entry(slot) else { return };
        let list = list_of(&entry.half_open);
        let deadline = entry.half_open.deadline(config, now).as_nanos();
        let before = std::mem::replace(&mut self.lists[list].last, slot);
        if let Some(entry) = self.entry_mut(slot) {
            (entry.prev, entry.next) = (before, NONE);
        }
        match self.entry_mut(before) {
            Some(before) => before.next = slot,
            None => self.lists[list].first = slot,
        }
        self.earliest = self.earliest.min(deadline);
    }

    fn unlink(&mut self, slot: u32) {
        let Some(entry) = self.entry(slot) else { return };
        let (prev, next, list) = (entry.prev, entry.next, list_of(&entry.half_open));
        match self.entry_mut(prev) {
            Some(before) => before.next = next,
            None => self.lists[list].first = next,
        }
        match self.entry_mut(next) {
            Some(behind) => behind.prev = prev,
            None => self.lists[list].last = prev,
        }
    }
}

fn list_of(half_open: &HalfOpen) -> usize {
    usize::from(half_open.retries()).min(LISTS - 1)
}

#[cfg(test)]
mod tests;
