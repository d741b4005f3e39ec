//! The connections of a cell that are in TIME-WAIT and have no user: 64 bytes each, and a keyed hash with a place in an index.
//!
//! Such a connection leaves the slab, with its socket and its timer; [`tcp::TimeWait`] keeps what its PCB can still be
//! asked for. When something happens to it, it is taken out, becomes a connection of the cell again for that event, and is
//! put back. All of them wait equally long, so they lie in the order of their ends, and one entry in the cell's wheel,
//! for the first, is enough. One that would break the order stays a connection, which is rare: TIME-WAITs were made
//! shorter, or there are too many of them.
//!
//! The queue is in chunks, so that it grows and shrinks without moving. One taken out leaves a gap, to which it returns
//! unless its TIME-WAIT has begun again; gaps are closed when they are more than the rest.
//!
//! What may never happen: an entry that is not in the index, or an end that is not noticed.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hashbrown::HashTable;
use observe::Time;
use sync::slab::Key;
use tcp::TimeWait;
use wire::FourTuple;

use crate::table::index::VacantEntry;
use crate::timers::TimerPlace;

/// Entries of a chunk: about 1 KiB. There may be a thousand cells.
const CHUNK: usize = 16;
/// `TimeWait::note` of a gap; otherwise it is the number of the local address.
const GAP: u8 = u8::MAX;
/// Gaps that are always allowed.
const FEW: usize = 2 * CHUNK;
/// An index for fewer entries than this is as small as it may become.
const LEAST_CAPACITY: usize = 8;

/// One connection.
#[derive(Clone, Copy)]
struct TimeWaitEntry {
    /// See [`words`]. It has the family of the local address.
    remote: [u32; 4],
    remote_port: u16,
    local_port: u16,
    kept: TimeWait,
}

const _: () = assert!(size_of::<TimeWaitEntry>() <= 64);

/// An entry in its chunk, with the keyed hash of its tuple, so that its end needs no other.
#[derive(Clone, Copy)]
struct QueuedTimeWait {
    entry: TimeWaitEntry,
    hash: VacantEntry,
}

/// The number of an entry, which counts the entries that were ever appended.
type QueuePosition = u64;

/// An address as an entry has it, the highest bits first; of IPv4 in its mapped form. Whole words, because sixteen bytes would
/// be stored one by one.
#[inline(always)]
fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [0, 0, 0xffff, address.to_bits()],
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
        }
    }
}

/// A connection that was taken out for an event.
struct TakenOut {
    key: Key,
    position: QueuePosition,
    /// When its TIME-WAIT was to end.
    deadline: Time,
}

/// See the module documentation.
pub(super) struct TimeWaits {
    chunks: VecDeque<Vec<QueuedTimeWait>>,
    /// The position of the first entry of the first chunk.
    base: QueuePosition,
    /// The positions in use, gaps included.
    first: QueuePosition,
    end: QueuePosition,
    /// The low halves of the positions of entries, by tuple.
    index: HashTable<u32>,
    /// The stack's own addresses, each with the number of entries that have it.
    locals: Vec<(IpAddr, u32)>,
    /// The latest end of all that were put in.
    latest: Time,
    taken_out: Option<TakenOut>,
    /// The entry in the cell's wheel.
    pub(super) timer: TimerPlace,
}

impl TimeWaits {
    /// None.
    pub(super) fn new() -> Self {
        TimeWaits {
            chunks: VecDeque::new(),
            base: 0,
            first: 0,
            end: 0,
            index: HashTable::new(),
            locals: Vec::new(),
            latest: Time::ZERO,
            taken_out: None,
            timer: TimerPlace::UNARMED,
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Memory held, in bytes.
    pub(super) fn footprint(&self) -> usize {
        let chunks = self.chunks.len() * (CHUNK * size_of::<QueuedTimeWait>())
            + self.chunks.capacity() * size_of::<Vec<QueuedTimeWait>>();
        chunks + self.index.allocation_size() + self.locals.capacity() * size_of::<(IpAddr, u32)>()
    }

    /// A time near to the ends of all entries.
    pub(super) fn near(&self) -> Time {
        self.latest
    }

    /// When the first TIME-WAIT ends, that of a gap included.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.has_no_first()).then(|| self.at(self.first).kept.deadline(self.latest))
    }

    /// Whether nothing waits, not even a gap: what is put in next ends first.
    #[inline]
    pub(super) fn has_no_first(&self) -> bool {
        self.first == self.end
    }

    /// Puts in a connection, with its tuple and the tuple's keyed hash; `key`: its key, if one is [`TimeWaits::out`]. False:
    /// it must stay what it is.
    pub(super) fn put(
        &mut self,
        key: Option<Key>,
        (tuple, hash): (&FourTuple, VacantEntry),
        mut kept: TimeWait,
        now: Time,
    ) -> bool {
        let deadline = kept.deadline(now);
        let Some(note) = self.local(tuple.local_addr) else { return false };
        kept.note = note;
        let (remote, FourTuple { remote_port, local_port, .. }) = (words(tuple.remote_addr), *tuple);
        let entry = TimeWaitEntry { remote, remote_port, local_port, kept };
        let gap = self.taken_out.take_if(|taken| Some(taken.key) == key).filter(|taken| taken.deadline == deadline);
        let position = match gap {
            Some(taken) if (self.first..self.end).contains(&taken.position) => {
                *self.queued_mut(taken.position) = QueuedTimeWait { entry, hash };
                taken.position
            }
            _ if !self.has_no_first() && deadline < self.latest => return false,
            _ => self.append(QueuedTimeWait { entry, hash }, deadline),
        };
        self.locals[usize::from(note)].1 += 1;
        self.enter(position, hash);
        true
    }

    /// Takes out the entry of this tuple. The connection that it becomes must be reported to [`TimeWaits::revived`].
    pub(super) fn take(&mut self, tuple: &FourTuple, hash: VacantEntry) -> Option<(QueuePosition, TimeWait)> {
        let remote = words(tuple.remote_addr);
        let TimeWaits { chunks, locals, index, base, .. } = self;
        let is_it = |low: &u32| {
            let at = position(*base, *low) - *base;
            let entry = &chunks[at as usize / CHUNK][at as usize % CHUNK].entry;
            entry.remote_port == tuple.remote_port
                && entry.local_port == tuple.local_port
                && entry.remote == remote
                && locals.get(usize::from(entry.kept.note)).is_some_and(|local| local.0 == tuple.local_addr)
        };
        let found = index.find_entry(hash.spread(), is_it).ok()?.remove().0;
        let position = position(self.base, found);
        Some((position, self.leave_gap(position)))
    }

    /// What was taken out at `position` is the connection with `key` now.
    pub(super) fn revived(&mut self, key: Key, position: QueuePosition, deadline: Time) {
        self.taken_out = Some(TakenOut { key, position, deadline });
    }

    /// The connection that was taken out last, unless it was put back.
    pub(super) fn out(&self) -> Option<Key> {
        self.taken_out.as_ref().map(|taken| taken.key)
    }

    /// Takes out the first entry, if its TIME-WAIT has ended; returns it, with its tuple if that is `wanted`.
    #[inline(always)]
    pub(super) fn expire(&mut self, now: Time, wanted: bool) -> Option<(Option<FourTuple>, TimeWait)> {
        while !self.has_no_first() {
            let (at, QueuedTimeWait { entry, hash }) = (self.first, self.queued(self.first));
            let (kept, hash) = (entry.kept, *hash);
            if kept.deadline(self.latest) > now {
                break;
            }
            if kept.note != GAP {
                let (low, tuple) = (at as u32, wanted.then(|| self.tuple(at)));
                if let Ok(found) = self.index.find_entry(hash.spread(), |other| *other == low) {
                    found.remove();
                }
                self.locals[usize::from(kept.note)].1 -= 1;
                self.pass();
                return Some((tuple, kept));
            }
            self.pass();
        }
        None
    }

    /// The tuples of all entries, in the order of their ends.
    pub(super) fn tuples(&self) -> Vec<FourTuple> {
        (self.first..self.end).filter(|at| self.at(*at).kept.note != GAP).map(|at| self.tuple(at)).collect()
    }

    /// Gives back the memory that a peak has left behind.
    pub(super) fn trim(&mut self) {
        let len = self.len();
        if self.index.capacity() > 4 * len.max(LEAST_CAPACITY) {
            let mut index = std::mem::take(&mut self.index);
            index.shrink_to(2 * len, |low| self.hash(position(self.base, *low)).spread());
            self.index = index;
        }
        if len == 0 {
            self.locals = Vec::new();
        }
        self.chunks.shrink_to(2 * self.chunks.len());
    }

    /// The number of a local address. There are few in a stack; a number that no entry has is given again.
    fn local(&mut self, address: IpAddr) -> Option<u8> {
        let known = self.locals.iter().position(|(other, _)| *other == address);
        let number = known.or_else(|| self.locals.iter().position(|(_, entries)| *entries == 0));
        let number = number.unwrap_or(self.locals.len());
        let note = u8::try_from(number).ok().filter(|note| *note != GAP)?;
        match self.locals.get_mut(number) {
            Some(local) => local.0 = address,
            None => self.locals.push((address, 0)),
        }
        Some(note)
    }

    /// Appends an entry, whose TIME-WAIT ends last; returns its position.
    fn append(&mut self, queued: QueuedTimeWait, deadline: Time) -> QueuePosition {
        if (self.end - self.first) as usize > 2 * self.len() + FEW {
            self.close_gaps();
        }
        if (self.end - self.base) as usize == self.chunks.len() * CHUNK {
            self.chunks.push_back(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.push(queued);
        }
        self.latest = deadline;
        self.end += 1;
        self.end - 1
    }

    fn enter(&mut self, at: QueuePosition, hash: VacantEntry) {
        let TimeWaits { chunks, base, index, .. } = self;
        index.insert_unique(hash.spread(), at as u32, |low| {
            let at = (position(*base, *low) - *base) as usize;
            chunks[at / CHUNK][at % CHUNK].hash.spread()
        });
    }

    /// The entry at `position` has gone out of the index.
    fn leave_gap(&mut self, position: QueuePosition) -> TimeWait {
        let kept = self.at(position).kept;
        self.locals[usize::from(kept.note)].1 -= 1;
        self.at_mut(position).kept.note = GAP;
        kept
    }

    /// The first entry has gone.
    fn pass(&mut self) {
        self.first += 1;
        if self.first - self.base == CHUNK as u64 {
            self.chunks.pop_front();
            self.base = self.first;
        } else if self.first == self.end {
            self.chunks.clear();
            self.base = self.end;
        }
    }

    /// Moves the entries together. What was taken out has no place to return to then.
    #[cold]
    fn close_gaps(&mut self) {
        let mut to = self.first;
        for from in self.first..self.end {
            let queued = *self.queued(from);
            if queued.entry.kept.note != GAP {
                *self.queued_mut(to) = queued;
                to += 1;
            }
        }
        self.end = to;
        let rest = (to - self.base) as usize;
        self.chunks.truncate(rest.div_ceil(CHUNK));
        if let Some(last) = self.chunks.back_mut() {
            last.truncate(rest - (rest - 1) / CHUNK * CHUNK);
        }
        self.taken_out.iter_mut().for_each(|taken| taken.position = QueuePosition::MAX);
        self.index.clear();
        (self.first..self.end).for_each(|at| self.enter(at, self.hash(at)));
    }

    fn queued(&self, position: QueuePosition) -> &QueuedTimeWait {
        let at = (position - self.base) as usize;
        &self.chunks[at / CHUNK][at % CHUNK]
    }

    fn queued_mut(&mut self, position: QueuePosition) -> &mut QueuedTimeWait {
        let at = (position - self.base) as usize;
        &mut self.chunks[at / CHUNK][at % CHUNK]
    }

    fn at(&self, position: QueuePosition) -> &TimeWaitEntry {
        &self.queued(position).entry
    }

    fn at_mut(&mut self, position: QueuePosition) -> &mut TimeWaitEntry {
        &mut self.queued_mut(position).entry
    }

    fn tuple(&self, position: QueuePosition) -> FourTuple {
        tuple_of(self.at(position), &self.locals)
    }

    fn hash(&self, position: QueuePosition) -> VacantEntry {
        self.queued(position).hash
    }
}

/// The position with these low bits, which is not before `base`.
#[inline]
fn position(base: QueuePosition, low: u32) -> QueuePosition {
    base + QueuePosition::from(low.wrapping_sub(base as u32))
}

fn tuple_of(entry: &TimeWaitEntry, locals: &[(IpAddr, u32)]) -> FourTuple {
    let local_addr = locals[usize::from(entry.kept.note)].0;
    let remote_addr = match local_addr {
        IpAddr::V6(_) => {
            let bits = entry.remote.into_iter().fold(0, |bits, word| bits << 32 | u128::from(word));
            Ipv6Addr::from_bits(bits).into()
        }
        IpAddr::V4(_) => Ipv4Addr::from_bits(entry.remote[3]).into(),
    };
    FourTuple { local_addr, remote_addr, local_port: entry.local_port, remote_port: entry.remote_port }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, hash_map};
    use std::time::Duration;

    use observe::Counters;
    use pktbuf::PktBuf;
    use tcp::{Close, Config, OpenParams, Outbox, Pcb, SegmentArrives, TcpEvent as _, Verify};
    use testbed::dice::Dice;
    use testbed::frames::Segment;
    use wire::SeqNumber;
    use wire::tcp::TcpFlags;

    use super::*;
    use crate::secrets::Secrets;

    /// A PCB in TIME-WAIT, whose peer repeats its FIN.
    struct Closed {
        pcb: Pcb,
        config: Config,
        counters: Counters,
    }

    impl Closed {
        fn new() -> Closed {
            let (config, counters) = (Config::default(), Counters::new());
            let tuple = FourTuple::new("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:2000".parse().unwrap());
            let (ts_offset, flow_hash, options) = (0, None, Default::default());
            let params = OpenParams { tuple, iss: SeqNumber(0), ts_offset, flow_hash, mss: 1460, options };
            let pcb = Pcb::open_active(&params, &mut Outbox::new(&config, &counters), Time::ZERO);
            let mut it = Closed { pcb, config, counters };
            it.arrives(TcpFlags::SYN, (0, 1), Time::ZERO);
            Close.run(&mut it.pcb, &mut Outbox::new(&it.config, &it.counters), Time::ZERO);
            it.arrives(TcpFlags::FIN, (1, 2), Time::ZERO);
            it
        }

        fn arrives(&mut self, flags: TcpFlags, (seq, ack): (u32, u32), now: Time) {
            let (local, remote) = ([10, 0, 0, 1], [10, 0, 0, 2]);
            let bytes = Segment::ack((2000, 1000), seq, ack).and(flags).bytes(remote, local);
            let buf = PktBuf::from_slice(&bytes).expect("a buffer");
            let segment = tcp::Segment::parse(local.into(), remote.into(), buf, Verify::Now).expect("a good segment");
            let out = &mut Outbox::new(&self.config, &self.counters);
            let _ = SegmentArrives(&mut Some(segment)).run(&mut self.pcb, out, now);
        }

        /// It waits from `now` on.
        fn kept(&mut self, now: Time) -> TimeWait {
            self.arrives(TcpFlags::FIN, (1, 2), now);
            TimeWait::of(&self.pcb, None, &self.config, now).expect("it is in TIME-WAIT")
        }
    }

    fn secrets() -> Secrets {
        Secrets::from_seed(3)
    }

    fn hash(tuple: &FourTuple) -> VacantEntry {
        VacantEntry::of(&secrets(), tuple)
    }

    fn tuple(n: usize) -> FourTuple {
        let port = 1000 + (n / 4) as u16;
        match n % 4 {
            0 => FourTuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into()),
            1 => FourTuple::new(([10, 0, 0, 9], 80).into(), ([10, 0, 0, 2], port).into()),
            2 => FourTuple::new("[fd00::1]:80".parse().unwrap(), ([0xfd00, 0, 0, 0, 0, 0, 0, 2], port).into()),
            _ => FourTuple::new("[fd00::1]:80".parse().unwrap(), ([0x0a00, 2, 0, 0, 0, 0, 0, 0], port).into()),
        }
    }

    fn key(n: usize) -> Key {
        Key { slot: n as u32, generation: 1 }
    }

    fn second(n: u64) -> Time {
        Time::from_secs(n)
    }

    /// Against the naive model: what was put in is found, comes out once, and ends in time, whatever else happens.
    #[test]
    fn agrees_with_a_map() {
        let (mut closed, mut waits, mut dice) = (Closed::new(), TimeWaits::new(), Dice(5));
        let mut model: HashMap<usize, Time> = HashMap::new();
        let (mut now, mut most, mut ended) = (second(100), 0, 0);
        for _ in 0..60_000 {
            now += Duration::from_millis(dice.below(60) as u64);
            let n = dice.below(4000);
            match dice.below(10) {
                0..6 => {
                    if let hash_map::Entry::Vacant(absent) = model.entry(n) {
                        let kept = closed.kept(now);
                        assert!(waits.put(Some(key(n)), (&tuple(n), hash(&tuple(n))), kept, now));
                        absent.insert(kept.deadline(now));
                    }
                }
                6..9 => {
                    let taken = waits.take(&tuple(n), hash(&tuple(n)));
                    assert_eq!(taken.is_some(), model.contains_key(&n));
                    let Some((position, kept)) = taken else { continue };
                    let deadline = model.remove(&n).expect("it is there");
                    assert_eq!(kept.deadline(now), deadline);
                    waits.revived(key(n), position, deadline);
                    assert_eq!(waits.out(), Some(key(n)));
                    // It ends, or goes back, or waits again.
                    let again = match dice.below(3) {
                        0 => continue,
                        1 => kept,
                        _ => closed.kept(now),
                    };
                    assert!(
                        waits.put(Some(key(n)), (&tuple(n), hash(&tuple(n))), again, now),
                        "there is a place for it"
                    );
                    assert_eq!(waits.out(), None);
                    model.insert(n, again.deadline(now));
                }
                _ => {
                    while let Some((ended_tuple, kept)) = waits.expire(now, true) {
                        assert!(kept.deadline(now) <= now);
                        let is_it = |(n, deadline): (&usize, &Time)| {
                            Some(tuple(*n)) == ended_tuple && *deadline == kept.deadline(now)
                        };
                        assert!(model.iter().any(is_it), "it is the one that ends");
                        ended += 1;
                    }
                    model.retain(|_, deadline| *deadline > now);
                    waits.trim();
                }
            }
            assert_eq!(waits.len(), model.len());
            most = most.max(waits.footprint());
        }
        assert_eq!(waits.tuples().len(), model.len());
        assert!(waits.tuples().into_iter().all(|known| model.keys().any(|n| tuple(*n) == known)));
        assert!(ended > 1000, "{ended}");
        // The model has 2000 at most, and there are twice as many gaps at most.
        assert!(most < 3 * 4000 * 64, "{most}");
        while waits.expire(now + Duration::from_secs(61), true).is_some() {}
        waits.trim();
        assert_eq!((waits.len(), waits.chunks.len(), waits.deadline()), (0, 0, None));
    }

    #[test]
    fn one_that_would_end_before_others_stays_out() {
        let (mut closed, mut waits) = (Closed::new(), TimeWaits::new());
        let (early, late) = (closed.kept(second(100)), closed.kept(second(200)));
        let mut put = |n, kept| waits.put(Some(key(n)), (&tuple(n), hash(&tuple(n))), kept, second(200));
        assert_eq!((put(1, late), put(2, early), put(3, late)), (true, false, true));
        assert_eq!(waits.len(), 2);
    }

    /// One that was taken out and ends before it comes back has no place: the queue has passed its gap.
    #[test]
    fn one_whose_gap_has_gone_is_not_put_there() {
        let (mut closed, mut waits) = (Closed::new(), TimeWaits::new());
        let (early, late) = (closed.kept(second(100)), closed.kept(second(130)));
        let end = early.deadline(second(100));
        assert!(waits.put(None, (&tuple(1), hash(&tuple(1))), early, second(100)));
        assert!(waits.put(None, (&tuple(2), hash(&tuple(2))), late, second(130)));
        let (position, kept) = waits.take(&tuple(1), hash(&tuple(1))).expect("it is there");
        waits.revived(key(1), position, end);
        assert!(waits.expire(end, true).is_none(), "the other ends later");
        assert!(!waits.put(Some(key(1)), (&tuple(1), hash(&tuple(1))), kept, end));
        assert_eq!(waits.tuples(), [tuple(2)]);
    }

    /// There are 255 local addresses at most, and a number is free when no entry has it.
    #[test]
    fn local_addresses_have_numbers() {
        let (mut closed, mut waits) = (Closed::new(), TimeWaits::new());
        let kept = closed.kept(second(100));
        let of = |n: u16| FourTuple { local_addr: [10, 1, (n >> 8) as u8, n as u8].into(), ..tuple(0) };
        let mut put = |n: u16| waits.put(Some(key(n.into())), (&of(n), hash(&of(n))), kept, second(100));
        assert!((0..255).all(&mut put));
        assert!(!put(300));
        assert!(waits.take(&of(300), hash(&of(300))).is_none());
        assert!(waits.take(&of(7), hash(&of(7))).is_some());
        assert!(waits.put(Some(key(300)), (&of(300), hash(&of(300))), kept, second(100)));
        assert!(waits.take(&of(7), hash(&of(7))).is_none(), "its number is another address's now");
        assert!(waits.take(&of(300), hash(&of(300))).is_some());
    }

    #[test]
    fn an_entry_of_either_family_has_64_bytes() {
        assert_eq!(size_of::<TimeWaitEntry>(), 64);
        let (mut closed, mut waits) = (Closed::new(), TimeWaits::new());
        let kept = closed.kept(second(100));
        (0..4000).for_each(|n| assert!(waits.put(Some(key(n)), (&tuple(n), hash(&tuple(n))), kept, second(100))));
        assert!(waits.footprint() <= 4000 * (64 + 16), "{} bytes each", waits.footprint() / 4000);
        assert!((0..4000).all(|n| waits.take(&tuple(n), hash(&tuple(n))).is_some()));
    }

    /// Connections with these numbers, all of which wait from now on.
    fn with(numbers: std::ops::Range<usize>) -> TimeWaits {
        with_from(0, numbers)
    }

    /// The same, after as many others as `start`.
    fn with_from(start: QueuePosition, numbers: std::ops::Range<usize>) -> TimeWaits {
        let (mut closed, mut waits) = (Closed::new(), TimeWaits::new());
        (waits.base, waits.first, waits.end) = (start, start, start);
        let kept = closed.kept(second(100));
        for n in numbers {
            assert!(waits.put(Some(key(n)), (&tuple(n), hash(&tuple(n))), kept, second(100)));
        }
        waits
    }

    fn take(waits: &mut TimeWaits, numbers: std::ops::Range<usize>) {
        for n in numbers {
            assert!(waits.take(&tuple(n), hash(&tuple(n))).is_some());
        }
    }

    /// Half of the positions and a few more may be gaps: the next that is appended finds more, and closes them.
    #[test]
    fn gaps_are_closed_when_they_are_more_than_the_rest() {
        for (gaps, positions) in [(66, 101), (67, 34), (68, 33)] {
            let mut waits = with_from(1600, 0..100);
            take(&mut waits, 0..gaps);
            let kept = Closed::new().kept(second(100));
            assert!(waits.put(None, (&tuple(100), hash(&tuple(100))), kept, second(100)));
            assert_eq!((waits.end - waits.first, waits.len()), (positions, 101 - gaps), "{gaps} gaps");
            take(&mut waits, gaps..101);
            assert!(waits.is_empty());
        }
    }

    /// An index of which a quarter is used is left alone. Room for as many again is kept.
    #[test]
    fn memory_of_a_peak_is_given_back_and_room_for_as_many_again_is_kept() {
        for (rest, capacity) in [(112, 448), (111, 224), (50, 112)] {
            let mut waits = with(0..rest);
            let mut index = std::mem::take(&mut waits.index);
            index.reserve(400 - rest, |low| waits.hash(position(waits.base, *low)).spread());
            waits.index = index;
            assert_eq!(waits.index.capacity(), 448);
            waits.trim();
            assert_eq!(waits.index.capacity(), capacity, "{rest} are left");
            take(&mut waits, 0..rest);
        }
        let mut waits = with(0..4000);
        waits.chunks.truncate(7);
        waits.end = 7 * CHUNK as u64;
        waits.trim();
        assert!((14..=16).contains(&waits.chunks.capacity()), "{}", waits.chunks.capacity());
    }

    /// What a peak has left behind counts as memory until it is given back; so do addresses.
    #[test]
    fn all_memory_counts() {
        let mut waits = with(0..4000);
        let (chunks, places) = (4000 / CHUNK, waits.chunks.capacity());
        let beside = places * size_of::<Vec<QueuedTimeWait>>() + waits.index.allocation_size();
        assert!(places >= chunks && waits.index.allocation_size() > 4000 * size_of::<u32>());
        assert!((0..1000).contains(&(waits.footprint() - chunks * 1088 - beside)), "{}", waits.footprint());
        while waits.expire(second(200), false).is_some() {}
        assert!((1..1000).contains(&(waits.footprint() - beside)), "{}: addresses remain", waits.footprint());
        waits.trim();
        assert!(waits.footprint() < beside / 100, "{}", waits.footprint());

        let few = with(0..255).footprint();
        let mut closed = Closed::new();
        let (kept, mut waits) = (closed.kept(second(100)), TimeWaits::new());
        for n in 0..255 {
            let tuple = FourTuple { local_addr: [10, 1, 0, n].into(), ..tuple(0) };
            assert!(waits.put(None, (&tuple, hash(&tuple)), kept, second(100)));
        }
        assert!(waits.footprint() - few >= 240 * size_of::<IpAddr>(), "{} and {few}", waits.footprint());
    }

    /// Numbers of entries are counted on beyond 32 bits, of which the index has the low half.
    #[test]
    fn positions_outgrow_32_bits() {
        let (mut closed, mut waits) = (Closed::new(), TimeWaits::new());
        let start = u64::from(u32::MAX) - 20;
        (waits.base, waits.first, waits.end) = (start, start, start);
        let mut now = second(100);
        for n in 0..100 {
            now += Duration::from_secs(1);
            let kept = closed.kept(now);
            assert!(waits.put(None, (&tuple(n), hash(&tuple(n))), kept, now));
            if n % 3 == 0 {
                let again = n - n % 10;
                take(&mut waits, again..again + 1);
                let kept = closed.kept(now);
                assert!(waits.put(None, (&tuple(again), hash(&tuple(again))), kept, now));
            }
            while waits.expire(now + Duration::from_secs(40), false).is_some() {}
        }
        assert!(waits.first > 1 << 32);
        assert_eq!(waits.tuples().len(), waits.len());
    }
}
