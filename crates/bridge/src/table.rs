//! [`FdbTable`]: the forwarding database of one thread, or of one lock.
//!
//! Open addressing with linear probing in a table that is at most half full. Memory is allocated when the table is made, and
//! not for look-ups, learning or removal. A removed entry leaves no mark, because the entries after it move up. The hash
//! is keyed, so that an attacker cannot choose addresses that collide.

use core::time::Duration;

use observe::Time;

use crate::PortNumber;
use crate::fdb::{self, Counts, Fdb, FdbControl, FdbEntry, FdbKey, FdbWriter, Learned, LearnedSource};

/// Size and ageing of a forwarding database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbConfig {
    /// Most dynamic entries, at least 1. When the table is full, frames to addresses that are not in it are flooded, not
    /// dropped. There may be as many fixed entries besides.
    pub capacity: u32,
    /// Time without frames after which an address is removed, 10 s to 1,000,000 s (IEEE 802.1D-2004 table 7-5; not
    /// checked).
    pub ageing: Duration,
    /// The key of the hash: random, and secret.
    pub seed: u64,
}

impl Default for FdbConfig {
    /// 8192 addresses, and the standard's 300 s.
    fn default() -> FdbConfig {
        FdbConfig { capacity: 8192, ageing: Duration::from_secs(300), seed: 0x9e37_79b9_7f4a_7c15 }
    }
}

#[derive(Clone, Copy)]
struct FdbSlot {
    /// 0: empty.
    key: u64,
    entry: u64,
}

const EMPTY: FdbSlot = FdbSlot { key: 0, entry: 0 };

/// See the head of the file.
pub struct FdbTable {
    slots: Box<[FdbSlot]>,
    config: FdbConfig,
    /// That of the configuration.
    ageing_nanos: u64,
    dynamic: u32,
    fixed: u32,
    /// Dynamic entries by port.
    of_port: Vec<u32>,
}

impl FdbTable {
    /// An empty table.
    pub fn new(config: FdbConfig) -> FdbTable {
        let config = FdbConfig { capacity: config.capacity.max(1), ..config };
        // Dynamic and fixed entries together at most half of the slots.
        let slots = (config.capacity as usize * 4).next_power_of_two();
        let (slots, ageing_nanos) = (vec![EMPTY; slots].into(), fdb::nanos(config.ageing));
        FdbTable { slots, config, ageing_nanos, dynamic: 0, fixed: 0, of_port: Vec::new() }
    }

    /// Size and ageing.
    pub fn config(&self) -> &FdbConfig {
        &self.config
    }

    /// Entries, dynamic and fixed.
    pub fn len(&self) -> usize {
        (self.dynamic + self.fixed) as usize
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries, aged ones too, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (FdbKey, FdbEntry)> {
        self.slots.iter().filter_map(|slot| Some((FdbKey::from_bits(slot.key)?, FdbEntry::from_bits(slot.entry))))
    }

    /// The slot at which the search for a key begins: the middle of the product of the key, mixed with the secret seed, and a
    /// constant.
    #[inline]
    fn home(&self, key: u64) -> usize {
        let product = u128::from(key ^ self.config.seed) * 0xa076_1d64_78bd_642f;
        let mixed = (product >> 64) as u64 ^ product as u64;
        (mixed ^ mixed >> 32) as usize & (self.slots.len() - 1)
    }

    /// The slot of a key, or the empty one in which it would be put.
    #[inline]
    fn position(&self, key: FdbKey) -> usize {
        let mut at = self.home(key.bits());
        while self.slots[at].key != key.bits() && self.slots[at].key != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// Empties a slot, and moves up the entries whose search passes through it.
    fn remove_at(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        self.count(FdbEntry::from_bits(self.slots[hole].entry), false);
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.key == 0 {
                break;
            }
            let from_home = at.wrapping_sub(self.home(slot.key)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = EMPTY;
    }

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

impl FdbControl for FdbTable {
    fn set_fixed(&mut self, key: FdbKey, port: PortNumber, sticky: bool, now: Time) -> bool {
        fdb::place_fixed(self, key, port, sticky, now)
    }

    fn remove_where(&mut self, gone: impl Fn(FdbKey, FdbEntry) -> bool) -> usize {
        let (mut at, mut removed) = (0, 0);
        while at < self.slots.len() {
            let FdbSlot { key, entry } = self.slots[at];
            match FdbKey::from_bits(key) {
                // The entry that moves up is examined next; entries that wrap around from the end were examined already
                // and stay.
                Some(key) if gone(key, FdbEntry::from_bits(entry)) => {
                    self.remove_at(at);
                    removed += 1;
                }
                _ => at += 1,
            }
        }
        removed
    }

    fn remove(&mut self, key: FdbKey) -> bool {
        let at = self.position(key);
        let found = self.slots[at].key != 0;
        if found {
            self.remove_at(at);
        }
        found
    }

    fn entries(&self) -> Vec<(FdbKey, FdbEntry)> {
        self.iter().collect()
    }

    fn ageing_time(&self) -> Duration {
        self.config.ageing
    }

    fn set_ageing(&mut self, ageing: Duration) {
        self.config.ageing = ageing;
        self.ageing_nanos = fdb::nanos(ageing);
    }

    fn flush_port(&mut self, port: PortNumber) -> usize {
        if self.counts(port).of_port == 0 {
            return 0;
        }
        self.flush(|_, entry| entry.port() == port)
    }
}

impl Fdb for FdbTable {
    #[inline]
    fn look_up(&mut self, key: FdbKey) -> Option<FdbEntry> {
        self.find(key)
    }

    #[inline]
    fn refresh(&mut self, key: FdbKey, entry: FdbEntry) {
        let at = self.position(key);
        if self.slots[at].key != 0 {
            self.slots[at].entry = entry.bits();
        }
    }

    fn learn(&mut self, source: LearnedSource, now: Time) -> Learned {
        fdb::place(self, source, now)
    }

    #[inline]
    fn ageing_nanos(&self) -> u64 {
        self.ageing_nanos
    }
}

impl FdbWriter for FdbTable {
    #[inline]
    fn find(&self, key: FdbKey) -> Option<FdbEntry> {
        let slot = &self.slots[self.position(key)];
        if slot.key == 0 { None } else { Some(FdbEntry::from_bits(slot.entry)) }
    }

    fn insert(&mut self, key: FdbKey, entry: FdbEntry) -> bool {
        let room = if entry.is_dynamic() { self.dynamic } else { self.fixed } < self.config.capacity;
        if room {
            let at = self.position(key);
            self.slots[at] = FdbSlot { key: key.bits(), entry: entry.bits() };
            self.count(entry, true);
        }
        room
    }

    fn replace(&mut self, key: FdbKey, old: FdbEntry, new: FdbEntry) {
        let at = self.position(key);
        if self.slots[at].key != 0 {
            self.count(old, false);
            self.count(new, true);
            self.slots[at].entry = new.bits();
        }
    }

    fn counts(&self, port: PortNumber) -> Counts {
        let of_port = self.of_port.get(port.index()).copied().unwrap_or(0);
        Counts { dynamic: self.dynamic, of_port, fixed: self.fixed, capacity: self.config.capacity }
    }
}
