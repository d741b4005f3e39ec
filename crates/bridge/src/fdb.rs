//! The interface of the rules to the forwarding database: keys, entries, access to a table, and the rule of learning
//! (IEEE 802.1D-2004 section 7.8).
//!
//! An entry is one word, so that a table that several threads read can hold it in one atomic: a reader sees the port,
//! the flags and the age that belong together, and recording a hit is one store without a lock. Two races are benign,
//! as in NetBSD: if two ports learn one address at the same time, one of them wins; of two time stamps, one remains.
//!
//! A change of the number of addresses of a port (a new address, an address that moves) goes through [`FdbWriter`], which
//! requires exclusive use of the table: `&mut`, or a mutex. [`Fdb::learn`] obtains that and runs the rule, [`place`].

use core::time::Duration;

use observe::Time;
use wire::ethernet::MacAddr;

use crate::{PortNumber, Vid};

/// The key of an entry: a station's address, and its VLAN if the bridge distinguishes VLANs. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FdbKey(u64);

impl FdbKey {
    /// The address in this VLAN; `None` on a bridge that ignores tags.
    #[inline]
    pub const fn new(address: MacAddr, vlan: Option<Vid>) -> FdbKey {
        FdbKey::of_station(bits_of(address), vlan)
    }

    /// The same for the [bits](bits_of) of an address.
    #[inline]
    pub(crate) const fn of_station(bits: u64, vlan: Option<Vid>) -> FdbKey {
        let vid = match vlan {
            Some(vid) => vid.get() as u64,
            None => 0,
        };
        FdbKey(1 << 63 | vid << 48 | bits)
    }

    /// The address.
    pub const fn address(self) -> MacAddr {
        let [_, _, a, b, c, d, e, f] = self.0.to_be_bytes();
        MacAddr([a, b, c, d, e, f])
    }

    /// The VLAN.
    pub const fn vlan(self) -> Option<Vid> {
        Vid::new((self.0 >> 48 & 0xfff) as u16)
    }

    /// The key as a word, for tables.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The key of this word: of [`FdbKey::bits`]. `None` for 0, which tables may use for "no entry".
    #[inline]
    pub const fn from_bits(bits: u64) -> Option<FdbKey> {
        if bits == 0 { None } else { Some(FdbKey(bits)) }
    }
}

/// A time in nanoseconds, as far as it fits.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// An address as a number of 48 bits, its first byte at the top.
#[inline]
pub(crate) const fn bits_of(address: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = address.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The properties of an entry that do not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntryFlags {
    /// It does not age, because the administrator added it.
    pub fixed: bool,
    /// It keeps its port even if frames from the address arrive by another.
    pub sticky: bool,
}

/// An entry: the port behind which an address is, and the arrival time of the last frame from it. In one word: flags in
/// bits 0 and 1, the port in bits 2 to 17, the time in the others, in units of 2^24 ns (17 ms).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FdbEntry(u64);

const FIXED: u64 = 1;
const STICKY: u64 = 2;
const PORT: u32 = 2;
const STAMP: u32 = 18;
/// Nanoseconds of a stamp's unit, as a power of two. The remaining bits of 64 fit above [`STAMP`].
const UNIT: u32 = 24;
const _: () = assert!(64 - UNIT <= 64 - STAMP);

/// The time as in entries.
#[inline]
pub(crate) const fn stamp(now: Time) -> u64 {
    now.as_nanos() >> UNIT
}

impl FdbEntry {
    /// An entry for an address from which `port` received a frame at `now`.
    #[inline]
    pub const fn new(port: PortNumber, flags: EntryFlags, now: Time) -> FdbEntry {
        let flags = if flags.fixed { FIXED } else { 0 } | if flags.sticky { STICKY } else { 0 };
        FdbEntry(flags | (port.get() as u64) << PORT | stamp(now) << STAMP)
    }

    /// The port.
    #[inline]
    pub const fn port(self) -> PortNumber {
        PortNumber::from_bits((self.0 >> PORT) as u16)
    }

    /// Its flags.
    pub const fn flags(self) -> EntryFlags {
        EntryFlags { fixed: self.0 & FIXED != 0, sticky: self.0 & STICKY != 0 }
    }

    /// Whether it ages.
    #[inline]
    pub const fn is_dynamic(self) -> bool {
        self.0 & FIXED == 0
    }

    /// The time since the last frame from the address, up to 17 ms more or less.
    pub const fn age(self, now: Time) -> Duration {
        Duration::from_nanos(stamp(now).saturating_sub(self.0 >> STAMP) << UNIT)
    }

    /// Whether it has aged out: no frame for `ageing`, and it is not fixed.
    #[inline]
    pub fn is_expired(self, now: Time, ageing: Duration) -> bool {
        self.is_dynamic() && self.age(now) >= ageing
    }

    /// The same with the time in nanoseconds.
    #[inline]
    pub(crate) const fn is_older(self, now: Time, nanos: u64) -> bool {
        self.is_dynamic() && stamp(now).saturating_sub(self.0 >> STAMP) << UNIT >= nanos
    }

    /// Whether the two have the same port and flags, and differ in their age at most.
    #[inline]
    pub const fn agrees(self, other: FdbEntry) -> bool {
        (self.0 ^ other.0) & ((1 << STAMP) - 1) == 0
    }

    /// Whether a frame from its address changes nothing, by the port and at the time of `heard`, a dynamic entry that such a frame
    /// would leave behind.
    #[inline]
    pub(crate) const fn is_current(self, heard: FdbEntry) -> bool {
        let differs = self.0 ^ heard.0;
        differs == 0 || !self.is_dynamic() && differs & ((1 << STAMP) - 1) & !(FIXED | STICKY) == 0
    }

    /// The same entry after a frame at `now`.
    #[inline]
    const fn heard(self, now: Time) -> FdbEntry {
        FdbEntry(self.0 & ((1 << STAMP) - 1) | stamp(now) << STAMP)
    }

    /// The entry as a word.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The entry of this word: of [`FdbEntry::bits`].
    #[inline]
    pub const fn from_bits(bits: u64) -> FdbEntry {
        FdbEntry(bits)
    }
}

impl core::fmt::Debug for FdbEntry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let last = Time::from_nanos((self.0 >> STAMP) << UNIT);
        write!(f, "Entry(port {}, {:?}, heard at {last})", self.port(), self.flags())
    }
}

/// The ageing time at one moment: which entries have aged out by then. Computed once for many frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeLimit {
    /// Dynamic entries with smaller words have aged out.
    word: u64,
}

impl AgeLimit {
    /// At `now`, with an ageing time of `nanos` nanoseconds.
    #[inline]
    pub const fn new(now: Time, nanos: u64) -> AgeLimit {
        // Of an entry that is heard of later than now the age is 0.
        let oldest = match nanos.div_ceil(1 << UNIT) {
            0 => u64::MAX >> STAMP,
            units => (stamp(now) + 1).saturating_sub(units),
        };
        AgeLimit { word: oldest << STAMP }
    }

    /// Whether the entry has aged out.
    #[inline]
    pub const fn is_past(self, entry: FdbEntry) -> bool {
        entry.0 < self.word && entry.is_dynamic()
    }
}

/// The source address of a received frame.
#[derive(Clone, Copy, Debug)]
pub struct LearnedSource {
    /// The address.
    pub key: FdbKey,
    /// The port that the frame arrived by.
    pub port: PortNumber,
    /// Most dynamic entries that the port may have; `None`: its share of the table, see [`Counts::admit`].
    pub limit: Option<u32>,
}

/// The result of [`Fdb::learn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Nothing: another thread has learned the same meanwhile, or the entry keeps its port.
    Known,
    /// A new entry.
    Inserted,
    /// The address was behind another port.
    Moved,
    /// No entry was made: the table, or the port's share of it, is full.
    Refused,
}

/// The access to a table that forwarding needs. A table that several threads use implements it for a handle, one for each
/// thread.
pub trait Fdb {
    /// The entry of a key, aged or not. Takes no lock, and does not wait.
    fn look_up(&mut self, key: FdbKey) -> Option<FdbEntry>;

    /// The same for the address that a frame comes from: many frames in a row may come from one, and go to another.
    #[inline]
    fn look_up_source(&mut self, key: FdbKey) -> Option<FdbEntry> {
        self.look_up(key)
    }

    /// Writes `entry` over the entry of `key`, which has the same port and flags: one store. Does nothing if the entry has
    /// been removed.
    fn refresh(&mut self, key: FdbKey, entry: FdbEntry);

    /// Runs [`place`] with exclusive use of the table.
    fn learn(&mut self, source: LearnedSource, now: Time) -> Learned;

    /// The time without frames from its address after which an entry ages out, in nanoseconds.
    fn ageing_nanos(&self) -> u64;

    /// Whether an entry has aged out. A table that is used for many frames at the same `now` can compute the limit once.
    #[inline]
    fn has_aged(&self, entry: FdbEntry, now: Time) -> bool {
        entry.is_older(now, self.ageing_nanos())
    }
}

/// The access to a table that the control plane needs: its operations are not atomic with respect to frames, and may
/// wait. A table that several threads use implements it for a handle.
pub trait FdbControl {
    /// Enters what the administrator states, in place of what is there. `false`: there are as many fixed entries as
    /// there may be.
    fn set_fixed(&mut self, key: FdbKey, port: PortNumber, sticky: bool, now: Time) -> bool;

    /// Removes the entries of any kind for which `gone` is true, and returns their number.
    fn remove_where(&mut self, gone: impl Fn(FdbKey, FdbEntry) -> bool) -> usize;

    /// Removes the entry of a key, of any kind. Returns whether there was one.
    fn remove(&mut self, key: FdbKey) -> bool;

    /// All entries, including aged ones, in no order. If other threads change the table meanwhile, each entry that is
    /// in it all the time is included.
    fn entries(&self) -> Vec<(FdbKey, FdbEntry)>;

    /// The time without frames from its address after which an entry ages out.
    fn ageing_time(&self) -> Duration;

    /// Sets the ageing time, for existing entries, too.
    fn set_ageing(&mut self, ageing: Duration);

    /// Removes the dynamic entries for which `gone` is true, and returns their number.
    fn flush(&mut self, gone: impl Fn(FdbKey, FdbEntry) -> bool) -> usize {
        self.remove_where(|key, entry| entry.is_dynamic() && gone(key, entry))
    }

    /// Removes the dynamic entries of a port.
    fn flush_port(&mut self, port: PortNumber) -> usize {
        self.flush(|_, entry| entry.port() == port)
    }

    /// Removes the dynamic entries of a VLAN.
    fn flush_vlan(&mut self, vid: Vid) -> usize {
        self.flush(|key, _| key.vlan() == Some(vid))
    }

    /// Removes all entries of a port, including fixed ones, because the port has been removed.
    fn forget_port(&mut self, port: PortNumber) -> usize {
        self.remove_where(|_, entry| entry.port() == port)
    }

    /// Removes the aged entries and returns their number. Aged entries are not used anyway; this frees their places.
    fn age(&mut self, now: Time) -> usize {
        let ageing = self.ageing_time();
        self.remove_where(|_, entry| entry.is_expired(now, ageing))
    }
}

/// The access to a table that the rules need while one thread has exclusive use of it.
pub trait FdbWriter {
    /// The entry of a key, aged or not.
    fn find(&self, key: FdbKey) -> Option<FdbEntry>;

    /// Adds the entry of a key that has none. `false`: there is no memory for it.
    fn insert(&mut self, key: FdbKey, entry: FdbEntry) -> bool;

    /// Writes `new` over the entry `old` of a key.
    fn replace(&mut self, key: FdbKey, old: FdbEntry, new: FdbEntry);

    /// The number of entries in the table.
    fn counts(&self, port: PortNumber) -> Counts;
}

/// How full a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Dynamic entries.
    pub dynamic: u32,
    /// Dynamic entries of one port.
    pub of_port: u32,
    /// Fixed entries.
    pub fixed: u32,
    /// Most dynamic entries, and most fixed ones.
    pub capacity: u32,
}

impl Counts {
    /// Whether the port may have one more dynamic entry. A port with a limit may have entries up to that limit. A port
    /// without one may have fewer entries than are free: the dynamic threshold of Choudhury and Hahne (1998) for memory
    /// that the ports of a switch share. One port alone gets half of the table at most; the other half remains for the
    /// other ports, among which the same rule divides it.
    #[inline]
    pub const fn admit(self, limit: Option<u32>) -> bool {
        let free = self.capacity.saturating_sub(self.dynamic);
        match limit {
            Some(limit) => free > 0 && self.of_port < limit,
            None => self.of_port < free,
        }
    }
}

/// The learning process: the source address of a frame that a port in the state Learning or Forwarding received is
/// behind that port. Called for each such frame. A known address costs loads only, and a store when its stamp has changed.
#[inline(always)]
pub fn learn(table: &mut impl Fdb, key: FdbKey, port: PortNumber, limit: &Option<u32>, now: Time) -> Learned {
    let found = table.look_up_source(key);
    learn_found(table, (key, found), port, limit, now)
}

/// The same for a source that was looked up.
#[inline]
pub(crate) fn learn_found(
    table: &mut impl Fdb,
    (key, found): (FdbKey, Option<FdbEntry>),
    port: PortNumber,
    limit: &Option<u32>,
    now: Time,
) -> Learned {
    match found {
        Some(entry) if entry.port() == port => {
            // The stamp changes some sixty times a second: not each frame writes to a line that others read.
            let heard = entry.heard(now);
            if heard != entry && entry.is_dynamic() {
                table.refresh(key, heard);
            }
            Learned::Known
        }
        Some(entry) if entry.flags().sticky => Learned::Known,
        _ => table.learn(LearnedSource { key, port, limit: *limit }, now),
    }
}

/// Learns a source address that has no entry, or an entry with another port; the caller has exclusive use of the table.
pub fn place(table: &mut impl FdbWriter, source: LearnedSource, now: Time) -> Learned {
    let LearnedSource { key, port, limit } = source;
    let found = table.find(key);
    if found.is_some_and(|old| old.port() == port || old.flags().sticky) {
        return Learned::Known;
    }
    // A fixed entry that is not sticky moves, and stays fixed: it counts for no port.
    let fixed = found.is_some_and(|old| !old.is_dynamic());
    if !fixed && !table.counts(port).admit_move(found.is_some(), limit) {
        return Learned::Refused;
    }
    match found {
        Some(old) => {
            table.replace(key, old, FdbEntry::new(port, old.flags(), now));
            Learned::Moved
        }
        None if table.insert(key, FdbEntry::new(port, EntryFlags::default(), now)) => Learned::Inserted,
        None => Learned::Refused,
    }
}

/// Enters what the administrator states, in place of what is there; the caller has exclusive use of the table. `false`:
/// there are as many fixed entries as there may be.
pub fn place_fixed(table: &mut impl FdbWriter, key: FdbKey, port: PortNumber, sticky: bool, now: Time) -> bool {
    let entry = FdbEntry::new(port, EntryFlags { fixed: true, sticky }, now);
    let Counts { fixed, capacity, .. } = table.counts(port);
    match table.find(key) {
        Some(old) if !old.is_dynamic() || fixed < capacity => {
            table.replace(key, old, entry);
            true
        }
        None if fixed < capacity => table.insert(key, entry),
        _ => false,
    }
}

impl Counts {
    /// As [`Counts::admit`], for an address that moves to the port: it has an entry in the table already.
    const fn admit_move(self, moves: bool, limit: Option<u32>) -> bool {
        let dynamic = if moves { self.dynamic.saturating_sub(1) } else { self.dynamic };
        Counts { dynamic, ..self }.admit(limit)
    }
}
