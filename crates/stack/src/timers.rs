//! A hierarchical timer wheel for connections.
//!
//! A connection has at most one entry, for the earliest of its deadlines, and the entry is *lazy*: a deadline that
//! moves later leaves it where it is, and the connection, woken early, finds nothing due (invariant G8: a stale timer
//! has no effect). So an ACK that defers the retransmission deadline costs nothing here.
//!
//! An entry names its connection by slot. The connection has a [`TimerPlace`], four bytes with the position of its entry. It
//! is checked against the entry, so a stale one does no harm.
//!
//! Owned by one cell (or, under a shared table, by one lock). Arming costs a few stores; a tick costs a bit scan of
//! one word per level. No allocation but the growth of the entries.

use observe::Time;

/// Wheel resolution: 2^20 ns, about 1.05 ms. Finer deadlines fire up to one tick late, never early.
const TICK_SHIFT: u32 = 20;
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// Five levels of 64: 2^30 ticks, thirteen days.
const LEVELS: usize = 5;
const NONE: u32 = u32::MAX;
/// Memory for this many entries is kept.
const LEAST_LINKS: usize = 64;
/// The longest delay of an entry in ticks, thirteen days; a connection with a longer delay is woken then, and arms
/// again.
const HORIZON: u64 = 1 << (LEVEL_BITS * LEVELS as u32);

/// Where a connection's entry is, if it has one.
#[derive(Clone, Copy, Debug)]
pub struct TimerPlace(u32);

impl TimerPlace {
    /// The connection has no entry.
    pub const UNARMED: TimerPlace = TimerPlace(NONE);
}

/// One entry.
#[derive(Clone, Copy)]
struct TimerLink {
    /// The connection; [`NONE`]: the entry is free.
    slot: u32,
    /// The next in its bucket, or among the free ones.
    next: u32,
    prev: u32,
    /// In ticks modulo 2^32, [`HORIZON`] from the wheel's at most.
    deadline: u32,
    bucket: u16,
}

impl TimerLink {
    /// Its deadline in ticks, for a wheel at `tick`.
    #[inline]
    fn due(&self, tick: u64) -> u64 {
        tick.wrapping_add_signed((self.deadline.wrapping_sub(tick as u32) as i32).into())
    }
}

/// Timer entries of connections, at most one each.
pub struct Wheel {
    links: Vec<TimerLink>,
    /// The first free link.
    free: u32,
    /// On the heap: a wheel is part of a cell, which is moved into its place when the stack is built.
    heads: Box<[u32; LEVELS * SLOTS]>,
    occupied: [u64; LEVELS],
    /// The last tick that was run.
    tick: u64,
    armed: usize,
    /// Not later than the earliest entry, in nanoseconds; `u64::MAX` while nothing is armed.
    earliest: u64,
}

impl Wheel {
    /// An empty wheel that starts at `now`.
    pub fn new(now: Time) -> Self {
        Wheel {
            links: Vec::new(),
            free: NONE,
            heads: Box::new([NONE; LEVELS * SLOTS]),
            occupied: [0; LEVELS],
            tick: now.as_nanos() >> TICK_SHIFT,
            armed: 0,
            earliest: u64::MAX,
        }
    }

    /// The time that the wheel has reached.
    pub fn wheel_time(&self) -> Time {
        Time::from_nanos(self.tick << TICK_SHIFT)
    }

    /// A bound for [`Wheel::next_deadline`] that costs one load: in nanoseconds, never late; `u64::MAX` while nothing
    /// is armed.
    #[inline]
    pub fn cached_deadline(&self) -> u64 {
        self.earliest
    }

    /// The number of armed slots.
    pub fn len(&self) -> usize {
        self.armed
    }

    /// Whether nothing is armed.
    pub fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Wakes the connection in `slot` no later than one tick after `deadline`; `timer` is that connection's. Returns
    /// when the new entry is due, in nanoseconds; `u64::MAX` if the wheel has to be advanced no later for another entry.
    pub fn arm(&mut self, timer: &mut TimerPlace, slot: u32, deadline: Time) -> u64 {
        // Rounded up: a wake before the deadline would find nothing due.
        let ticks = deadline.as_nanos().saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT;
        let ticks = ticks.clamp(self.tick + 1, self.tick + HORIZON);
        match self.link(*timer, slot) {
            Some(link) if link.due(self.tick) <= ticks => return u64::MAX,
            Some(_) => self.unlink(timer.0),
            None => *timer = TimerPlace(self.allocate(slot)),
        }
        self.place(timer.0, ticks);
        let due = ticks << TICK_SHIFT;
        if due >= self.earliest {
            return u64::MAX;
        }
        self.earliest = due;
        due
    }

    /// Whether the connection in `slot` has an entry.
    pub fn has(&self, timer: TimerPlace, slot: u32) -> bool {
        self.link(timer, slot).is_some()
    }

    /// Removes the entry of the connection in `slot`; called when the slot is freed.
    pub fn cancel(&mut self, timer: TimerPlace, slot: u32) {
        if self.link(timer, slot).is_some() {
            self.unlink(timer.0);
            self.release(timer.0);
        }
    }

    /// The entry of the connection in `slot`.
    #[inline]
    fn link(&self, timer: TimerPlace, slot: u32) -> Option<&TimerLink> {
        self.links.get(timer.0 as usize).filter(|link| link.slot == slot)
    }

    fn allocate(&mut self, slot: u32) -> u32 {
        let link = TimerLink { slot, next: NONE, prev: NONE, deadline: 0, bucket: 0 };
        let index = self.free;
        match self.links.get_mut(index as usize) {
            Some(free) => {
                self.free = free.next;
                *free = link;
                index
            }
            None => {
                self.links.push(link);
                self.links.len() as u32 - 1
            }
        }
    }

    /// Gives back the memory of free entries, if that is most of it. Entries in use move to the lowest positions:
    /// `moved` is called with the slot of each, and its connection's new [`TimerPlace`].
    pub fn trim(&mut self, mut moved: impl FnMut(u32, TimerPlace)) {
        let used = self.armed;
        if self.links.capacity() <= 2 * used.max(LEAST_LINKS) {
            return;
        }
        let mut low = 0;
        for high in used..self.links.len() {
            if self.links[high].slot != NONE {
                while self.links[low].slot != NONE {
                    low += 1;
                }
                self.relocate(high as u32, low as u32);
                moved(self.links[low].slot, TimerPlace(low as u32));
            }
        }
        self.links.truncate(used);
        self.links.shrink_to(used);
        self.free = NONE;
    }

    /// Moves an entry to a free position.
    fn relocate(&mut self, from: u32, to: u32) {
        let link = self.links[from as usize];
        self.links[to as usize] = link;
        match link.prev {
            NONE => self.heads[usize::from(link.bucket)] = to,
            prev => self.links[prev as usize].next = to,
        }
        if link.next != NONE {
            self.links[link.next as usize].prev = to;
        }
    }

    fn release(&mut self, index: u32) {
        let link = &mut self.links[index as usize];
        (link.slot, link.next) = (NONE, self.free);
        self.free = index;
    }

    /// The connections that are armed, by slot, each with the time at which it will be woken.
    pub fn entries(&self) -> impl Iterator<Item = (u32, Time)> {
        let armed = self.links.iter().filter(|link| link.slot != NONE);
        armed.map(|link| (link.slot, Time::from_nanos(link.due(self.tick) << TICK_SHIFT)))
    }

    /// The time at which [`Wheel::expire`] next has something to do, or `None` when nothing is armed. May be early by
    /// the span of a higher level's slot (the entries are then placed again), never late.
    pub fn next_deadline(&self) -> Option<Time> {
        if self.armed == 0 {
            return None;
        }
        let mut best = u64::MAX;
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = LEVEL_BITS * level as u32;
            let here = (self.tick >> shift) & (SLOTS as u64 - 1);
            let ahead = self.occupied[level].rotate_right((here as u32 + 1) & 63).trailing_zeros() as u64 + 1;
            best = best.min(((self.tick >> shift) + ahead) << shift);
        }
        Some(Time::from_nanos(best << TICK_SHIFT))
    }

    /// Advances the wheel to `now` and appends the slots that are due to `due`, unarmed, ordered by tick. The
    /// [`TimerPlace`]s of their connections are stale then.
    pub fn expire(&mut self, now: Time, due: &mut Vec<u32>) {
        self.turn(now, due);
        self.earliest = self.next_deadline().map_or(u64::MAX, Time::as_nanos);
    }

    fn turn(&mut self, now: Time, due: &mut Vec<u32>) {
        let target = now.as_nanos() >> TICK_SHIFT;
        while self.tick < target {
            let Some(next) = self.next_deadline() else {
                self.tick = target;
                return;
            };
            let next = next.as_nanos() >> TICK_SHIFT;
            if next > target {
                self.tick = target;
                return;
            }
            self.tick = next;
            self.cascade();
            self.drain(self.tick as usize & (SLOTS - 1), |slot| due.push(slot));
        }
    }

    /// Places again the entries of every higher level's slot that the wheel has just entered.
    fn cascade(&mut self) {
        for level in (1..LEVELS).rev() {
            let shift = LEVEL_BITS * level as u32;
            if self.tick & ((1 << shift) - 1) != 0 {
                continue;
            }
            let bucket = level * SLOTS + ((self.tick >> shift) as usize & (SLOTS - 1));
            let mut index = self.heads[bucket];
            self.heads[bucket] = NONE;
            self.occupied[level] &= !(1 << (bucket % SLOTS));
            while index != NONE {
                let link = self.links[index as usize];
                self.armed -= 1;
                self.place(index, link.due(self.tick));
                index = link.next;
            }
        }
    }

    fn drain(&mut self, bucket: usize, mut due: impl FnMut(u32)) {
        let mut index = self.heads[bucket];
        self.heads[bucket] = NONE;
        self.occupied[0] &= !(1 << bucket);
        while index != NONE {
            let link = self.links[index as usize];
            self.armed -= 1;
            self.release(index);
            due(link.slot);
            index = link.next;
        }
    }

    fn place(&mut self, index: u32, deadline: u64) {
        let ahead = deadline.saturating_sub(self.tick);
        // The lowest level whose slots reach so far: level `n` has the next 2^(LEVEL_BITS * (n + 1)) ticks.
        let level = ((ahead | 1).ilog2() / LEVEL_BITS).min(LEVELS as u32 - 1) as usize;
        let shift = LEVEL_BITS * level as u32;
        // Beyond the horizon: the farthest slot, from where it is placed again.
        let position = (deadline >> shift).min((self.tick >> shift) + SLOTS as u64 - 1);
        let bucket = level * SLOTS + (position as usize & (SLOTS - 1));
        let head = self.heads[bucket];
        let link = &mut self.links[index as usize];
        *link = TimerLink { next: head, prev: NONE, deadline: deadline as u32, bucket: bucket as u16, ..*link };
        if head != NONE {
            self.links[head as usize].prev = index;
        }
        self.heads[bucket] = index;
        self.occupied[level] |= 1 << (bucket % SLOTS);
        self.armed += 1;
    }

    /// Takes an entry out of its bucket; it is neither placed nor free.
    fn unlink(&mut self, index: u32) {
        let link = self.links[index as usize];
        let bucket = usize::from(link.bucket);
        if link.prev == NONE {
            self.heads[bucket] = link.next;
        } else {
            self.links[link.prev as usize].next = link.next;
        }
        if link.next != NONE {
            self.links[link.next as usize].prev = link.prev;
        }
        if self.heads[bucket] == NONE {
            self.occupied[bucket / SLOTS] &= !(1 << (bucket % SLOTS));
        }
        self.armed -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// A wheel, with the timers of its connections.
    struct Armed {
        wheel: Wheel,
        timers: Vec<TimerPlace>,
    }

    impl Armed {
        fn new(now: Time) -> Self {
            Armed { wheel: Wheel::new(now), timers: vec![TimerPlace::UNARMED; 1000] }
        }

        fn arm(&mut self, slot: u32, deadline: Time) {
            self.wheel.arm(&mut self.timers[slot as usize], slot, deadline);
        }

        fn cancel(&mut self, slot: u32) {
            self.wheel.cancel(self.timers[slot as usize], slot);
        }

        fn trim(&mut self) {
            let Armed { wheel, timers } = self;
            wheel.trim(|slot, timer| timers[slot as usize] = timer);
        }
    }

    impl std::ops::Deref for Armed {
        type Target = Wheel;
        fn deref(&self) -> &Wheel {
            &self.wheel
        }
    }

    impl std::ops::DerefMut for Armed {
        fn deref_mut(&mut self) -> &mut Wheel {
            &mut self.wheel
        }
    }

    #[test]
    fn fires_in_time_and_once() {
        let mut wheel = Armed::new(at(0));
        let mut due = Vec::new();
        wheel.arm(3, at(200));
        wheel.expire(at(199), &mut due);
        assert!(due.is_empty());
        wheel.expire(at(203), &mut due);
        assert_eq!(due, [3]);
        wheel.expire(at(100_000), &mut due);
        assert_eq!(due, [3]);
    }

    #[test]
    fn an_earlier_entry_wins_and_a_later_one_is_lazy() {
        let mut wheel = Armed::new(at(0));
        let mut due = Vec::new();
        wheel.arm(1, at(500));
        wheel.arm(1, at(40));
        wheel.arm(1, at(900));
        assert_eq!(wheel.len(), 1);
        wheel.expire(at(50), &mut due);
        assert_eq!(due, [1]);
        assert!(wheel.is_empty());
    }

    /// A connection that reuses another's slot and entry is not mistaken for it.
    #[test]
    fn a_stale_timer_reaches_no_other_entry() {
        let mut wheel = Armed::new(at(0));
        wheel.arm(1, at(10));
        let stale = wheel.timers[1];
        wheel.cancel(1);
        wheel.arm(2, at(10));
        assert_eq!(wheel.timers[2].0, stale.0, "the entry is used again");
        wheel.wheel.cancel(stale, 1);
        assert_eq!(wheel.len(), 1);
        let mut timer = stale;
        wheel.wheel.arm(&mut timer, 1, at(10));
        assert_eq!(wheel.len(), 2);
    }

    /// Many connections that are opened at one time have one deadline: a sleeping thread is notified of the first only.
    #[test]
    fn only_an_entry_that_is_due_before_all_others_is_announced() {
        let mut wheel = Wheel::new(at(0));
        let mut timers = [TimerPlace::UNARMED; 4];
        let mut arm = |slot: usize, ms| wheel.arm(&mut timers[slot], slot as u32, at(ms));
        assert_ne!(arm(0, 100), u64::MAX);
        assert_eq!(arm(1, 100), u64::MAX);
        assert_eq!(arm(2, 200), u64::MAX);
        assert!((at(40).as_nanos()..at(42).as_nanos()).contains(&arm(3, 40)));
        assert!((at(20).as_nanos()..at(22).as_nanos()).contains(&arm(2, 20)), "the entry moves");
        assert_eq!(wheel.cached_deadline(), wheel.next_deadline().map_or(u64::MAX, Time::as_nanos));
    }

    #[test]
    fn a_peak_leaves_no_memory_and_no_timer_behind() {
        let mut wheel = Armed::new(at(0));
        (0..1000).for_each(|slot| wheel.arm(slot, at(100 + u64::from(slot))));
        (0..1000).filter(|slot| ![5, 200, 998, 999].contains(slot)).for_each(|slot| wheel.cancel(slot));
        wheel.trim();
        assert!(wheel.links.capacity() <= LEAST_LINKS, "{}: entries have moved down", wheel.links.capacity());
        wheel.cancel(998);
        assert_eq!(wheel.len(), 3, "the new place of an entry that has moved is known");
        // A stale timer names an entry that is gone, or one of another connection.
        wheel.cancel(900);
        wheel.arm(900, at(50));
        wheel.arm(7, at(60));
        let mut due = Vec::new();
        wheel.expire(at(70), &mut due);
        assert_eq!(std::mem::take(&mut due), [900, 7]);
        wheel.expire(at(2000), &mut due);
        assert_eq!(due, [5, 200, 999]);
    }

    const DAY: u64 = 86_400_000;

    /// The 32 bits of a deadline wrap after 52 days, and no entry waits longer than thirteen.
    #[test]
    fn who_wants_to_wait_for_weeks_is_woken_to_ask_again() {
        let mut wheel = Armed::new(at(45 * DAY));
        let mut due = Vec::new();
        wheel.arm(1, at(75 * DAY));
        wheel.arm(2, at(53 * DAY));
        wheel.expire(at(53 * DAY - 3), &mut due);
        assert!(due.is_empty());
        wheel.expire(at(53 * DAY + 3), &mut due);
        assert_eq!(std::mem::take(&mut due), [2]);
        wheel.expire(at(58 * DAY), &mut due);
        assert!(due.is_empty(), "not before the horizon");
        wheel.expire(at(59 * DAY), &mut due);
        assert_eq!(std::mem::take(&mut due), [1]);
        wheel.arm(1, at(75 * DAY));
        assert_eq!(wheel.len(), 1);
    }

    /// Against the naive model: a thousand timers, random steps, every timer fires in the step that contains its
    /// deadline rounded up to a tick.
    #[test]
    fn agrees_with_a_sorted_list() {
        let mut wheel = Armed::new(at(5));
        let mut seed = 12345u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let mut model: Vec<Option<u64>> = vec![None; 1000];
        let mut now = 5_000_000u64;
        for _ in 0..4000 {
            let slot = random(1000) as usize;
            let span = [1_000_000, 60_000_000, 5_000_000_000, 400_000_000_000, 90_000_000_000_000][random(5) as usize];
            let deadline = now + random(span);
            let ticks = ((deadline + (1 << TICK_SHIFT) - 1) >> TICK_SHIFT).max((now >> TICK_SHIFT) + 1);
            if random(10) == 0 {
                wheel.cancel(slot as u32);
                model[slot] = None;
            } else {
                wheel.arm(slot as u32, Time::from_nanos(deadline));
                model[slot] = Some(model[slot].map_or(ticks, |old| old.min(ticks)));
            }
            now += random(span / 4 + 1);
            let mut due = Vec::new();
            wheel.expire(Time::from_nanos(now), &mut due);
            due.sort_unstable();
            let expected: Vec<u32> =
                (0..1000u32).filter(|s| model[*s as usize].is_some_and(|t| t <= now >> TICK_SHIFT)).collect();
            assert_eq!(due, expected);
            for slot in expected {
                model[slot as usize] = None;
            }
            assert_eq!(wheel.len(), model.iter().flatten().count());
            let mut entries: Vec<_> = wheel.entries().collect();
            entries.sort_unstable();
            let armed = model.iter().enumerate().filter_map(|(slot, tick)| Some((slot as u32, (*tick)?)));
            assert!(entries.into_iter().eq(armed.map(|(slot, tick)| (slot, Time::from_nanos(tick << TICK_SHIFT)))));
            let earliest = model.iter().flatten().min();
            assert_eq!(wheel.next_deadline().is_some(), earliest.is_some());
            assert!(earliest.is_none_or(|earliest| wheel.cached_deadline() <= *earliest << TICK_SHIFT));
            if let (Some(next), Some(earliest)) = (wheel.next_deadline(), earliest) {
                assert!(next.as_nanos() >> TICK_SHIFT <= *earliest);
            }
        }
    }
}
