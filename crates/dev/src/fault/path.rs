//! One direction of one queue with its faults: frames go in when they are sent, and come out when they arrive.
//!
//! A path is plain data driven by the caller's clock. Its choices depend only on the plan, the path's number and the
//! sequence of frames, so the same frames at the same times have the same results every time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use observe::{Counter, Counters, DropReason, Time};
use pktbuf::PktBuf;
use sync::{Atomic, Platform};
use wire::Framing;

use super::damage;
use super::plan::{Burst, FaultRule, Faults, Timing};
use super::random::Pcg;

/// A frame held back for others to overtake is released after this time even if there are none; otherwise the last
/// frames of a connection would be lost rather than delayed.
const OVERTAKE_WITHIN: Duration = Duration::from_millis(20);

/// When the shared link is free again, in nanoseconds: applies `rate` to all queues of a direction together.
pub struct Pace<P: Platform>(P::AtomicU64);

impl<P: Platform> Pace<P> {
    /// A link that is free.
    pub fn new() -> Pace<P> {
        Pace(P::AtomicU64::new(0))
    }

    /// Books the link for `ns` nanoseconds from `now` or from when it is free; returns the end of the booking.
    fn book(&self, now: u64, ns: u64) -> u64 {
        let mut free = self.0.load(Ordering::Relaxed);
        loop {
            let end = free.max(now).saturating_add(ns);
            match self.0.compare_exchange(free, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return end,
                Err(current) => free = current,
            }
        }
    }
}

/// A frame in transit, ordered by arrival and then by admission.
struct InTransit {
    due: u64,
    order: u64,
    frame: PktBuf,
}

impl PartialEq for InTransit {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.order) == (other.due, other.order)
    }
}

impl Eq for InTransit {}

impl PartialOrd for InTransit {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InTransit {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

/// A frame that waits for others to overtake it.
struct HeldBack {
    still_to_pass: u32,
    until: u64,
    frame: PktBuf,
}

/// The streams of random numbers for the timing after the chain.
struct Streams {
    reorder: Pcg,
    delay: Pcg,
}

/// A rule with its own random numbers and state.
struct FaultLink {
    rule: FaultRule,
    rng: Pcg,
    /// In the bad state of the burst model.
    in_burst: bool,
}

impl FaultLink {
    /// Rules of the chain, each with a stream that depends on its kind and on how many of its kind come before it: a
    /// rule that is added to a plan does not change which frames the others hit.
    fn chain(rules: &[FaultRule], stream: impl Fn(u64) -> Pcg) -> Vec<FaultLink> {
        let earlier = |index: usize| {
            let same = |other: &&FaultRule| std::mem::discriminant(*other) == std::mem::discriminant(&rules[index]);
            rules[..index].iter().filter(same).count() as u64
        };
        let link = |(index, rule): (usize, &FaultRule)| FaultLink {
            rule: *rule,
            rng: stream(earlier(index) << 4 | kind(rule)),
            in_burst: false,
        };
        rules.iter().enumerate().map(link).collect()
    }

    fn is_lost_in_burst(&mut self, burst: &Burst) -> bool {
        let turns = self.rng.chance(if self.in_burst { burst.leave } else { burst.enter });
        self.in_burst ^= turns;
        self.in_burst && self.rng.chance(burst.loss)
    }
}

/// The number of a rule's kind among the streams of a path; below 16.
fn kind(rule: &FaultRule) -> u64 {
    match rule {
        FaultRule::Loss(_) => 1,
        FaultRule::Burst(_) => 2,
        FaultRule::Duplicate(_) => 3,
        FaultRule::Corrupt { .. } => 6,
        FaultRule::Truncate(_) => 7,
        FaultRule::Scramble { .. } => 8,
        FaultRule::Forge(_) => 9,
        FaultRule::Pad(_) => 10,
        FaultRule::Mark(_) => 11,
        FaultRule::Mtu(_) | FaultRule::Flap(_) => 0,
    }
}

/// The result of a rule for a frame.
enum Fate {
    GoesOn,
    Lost,
    Doubled,
}

/// The context of a path besides its plan.
pub struct PathContext<P: Platform> {
    /// Where its frames wait for the shared link.
    pub pace: Arc<Pace<P>>,
    /// When the device was made: cycles start then.
    pub made: Time,
    /// The framing of the device's frames.
    pub framing: Framing,
    /// The longest frame that the device takes, with its link header.
    pub longest: usize,
    /// The reason of drops at the plan's limit.
    pub full: DropReason,
    /// Where faults are counted.
    pub counters: Arc<Counters>,
}

/// A path and the frames on it.
pub struct Path<P: Platform> {
    chain: Vec<FaultLink>,
    timing: Timing,
    around: PathContext<P>,
    streams: Streams,
    /// Frames due at once, in order: the fast path for plans without delays.
    ready: VecDeque<PktBuf>,
    in_transit: BinaryHeap<Reverse<InTransit>>,
    held_back: VecDeque<HeldBack>,
    last_due: u64,
    order: u64,
}

impl<P: Platform> Path<P> {
    /// Path number `number` of a device (queue and direction make the number).
    pub fn new(faults: &Faults, seed: u64, number: u64, around: PathContext<P>) -> Path<P> {
        let stream = |kind: u64| Pcg::new(seed, number << 16 | kind);
        Path {
            chain: FaultLink::chain(&faults.rules, stream),
            timing: faults.timing.clone(),
            around,
            streams: Streams { reorder: stream(4), delay: stream(5) },
            ready: VecDeque::new(),
            in_transit: BinaryHeap::new(),
            held_back: VecDeque::new(),
            last_due: 0,
            order: 0,
        }
    }

    /// Puts a frame on the path.
    pub fn admit(&mut self, frame: PktBuf, now: Time) {
        self.pass(0, frame, now);
    }

    /// Passes a frame along the chain from link `from` on.
    fn pass(&mut self, from: usize, mut frame: PktBuf, now: Time) {
        for index in from..self.chain.len() {
            match self.meet(index, &mut frame, now) {
                Fate::GoesOn => {}
                Fate::Lost => return self.around.counters.count_drop(DropReason::FaultInjected),
                Fate::Doubled => match frame.duplicate() {
                    Some(twin) => self.pass(index + 1, twin, now),
                    None => self.around.counters.count_drop(DropReason::NoBuffer),
                },
            }
        }
        self.dispatch(frame, now.as_nanos());
    }

    fn meet(&mut self, index: usize, frame: &mut PktBuf, now: Time) -> Fate {
        let framing = self.around.framing;
        let link = &mut self.chain[index];
        let lost = |lost| if lost { Fate::Lost } else { Fate::GoesOn };
        let (counter, counted) = match link.rule {
            FaultRule::Loss(chance) => return lost(link.rng.chance(chance)),
            FaultRule::Burst(burst) => return lost(link.is_lost_in_burst(&burst)),
            FaultRule::Mtu(mtu) => return lost(frame.len() > mtu + framing.header_len()),
            FaultRule::Flap(cycle) => return lost(cycle.bad_for(now - self.around.made).is_some()),
            FaultRule::Duplicate(chance) => {
                let doubled = link.rng.chance(chance);
                self.around.counters.add(Counter::FaultsDuplicated, doubled.into());
                return if doubled { Fate::Doubled } else { Fate::GoesOn };
            }
            FaultRule::Corrupt { chance, bits } => (
                Counter::FaultsCorrupted,
                link.rng.chance(chance) && damage::corrupt(framing, frame, &mut link.rng, bits),
            ),
            FaultRule::Scramble { chance, bytes } => (
                Counter::FaultsCorrupted,
                link.rng.chance(chance) && damage::scramble(framing, frame, &mut link.rng, bytes),
            ),
            FaultRule::Forge(chance) => {
                (Counter::FaultsForged, link.rng.chance(chance) && damage::swap_words(framing, frame, &mut link.rng))
            }
            FaultRule::Truncate(chance) => {
                let cut = link.rng.chance(chance);
                if cut {
                    damage::truncate(framing, frame, &mut link.rng);
                }
                (Counter::FaultsTruncated, cut)
            }
            FaultRule::Pad(chance) => {
                let longest = self.around.longest;
                (Counter::FaultsPadded, link.rng.chance(chance) && damage::pad(framing, frame, &mut link.rng, longest))
            }
            FaultRule::Mark(chance) => (Counter::FaultsMarked, link.rng.chance(chance) && damage::mark(framing, frame)),
        };
        self.around.counters.add(counter, counted.into());
        Fate::GoesOn
    }

    /// Takes the next frame that has arrived by `now`.
    pub fn release(&mut self, now: Time) -> Option<PktBuf> {
        let now = now.as_nanos();
        if let Some(frame) = self.ready.pop_front() {
            return Some(frame);
        }
        if self.held_back.front().is_some_and(|held| held.until <= now) {
            return self.held_back.pop_front().map(|held| held.frame);
        }
        if self.in_transit.peek().is_some_and(|Reverse(next)| next.due <= now) {
            return self.in_transit.pop().map(|Reverse(next)| next.frame);
        }
        None
    }

    /// When the next frame arrives; in the past when one is ready now.
    pub fn next_due(&self) -> Option<Time> {
        if !self.ready.is_empty() {
            return Some(Time::ZERO);
        }
        let held = self.held_back.front().map(|held| held.until);
        let due = self.in_transit.peek().map(|Reverse(next)| next.due);
        held.into_iter().chain(due).min().map(Time::from_nanos)
    }

    /// Counts a frame that is refused.
    pub fn refuse(&self, reason: DropReason) {
        self.around.counters.count_drop(reason);
    }

    /// Drops everything that is on the path, and counts `more` frames with it.
    pub fn discard(&mut self, reason: DropReason, more: u64) {
        let lost = self.len() as u64 + more;
        self.ready.clear();
        self.in_transit.clear();
        self.held_back.clear();
        self.around.counters.count_drops(reason, lost);
    }

    /// Frames that have arrived and are still to be taken.
    pub fn arrived(&self) -> usize {
        self.ready.len()
    }

    /// Frames on the path.
    pub fn len(&self) -> usize {
        self.ready.len() + self.in_transit.len() + self.held_back.len()
    }

    /// Assigns a frame its time of arrival, or holds it back behind later frames.
    fn dispatch(&mut self, frame: PktBuf, now: u64) {
        if self.in_transit.len() + self.held_back.len() >= self.timing.limit {
            self.around.counters.count_drop(self.around.full);
            return;
        }
        if self.streams.reorder.chance(self.timing.reorder) {
            let until = now.saturating_add(OVERTAKE_WITHIN.as_nanos() as u64);
            self.held_back.push_back(HeldBack { still_to_pass: self.timing.distance, until, frame });
            return;
        }
        self.send_on(frame, now);
        self.count_overtaking(now);
    }

    /// One frame has passed: releases frames that were held back only for it.
    fn count_overtaking(&mut self, now: u64) {
        for held in &mut self.held_back {
            held.still_to_pass -= 1;
        }
        // Held frames reach zero in the order in which they were held: all wait for the same distance.
        while self.held_back.front().is_some_and(|held| held.still_to_pass == 0) {
            if let Some(held) = self.held_back.pop_front() {
                self.send_on(held.frame, now);
            }
        }
    }

    fn send_on(&mut self, frame: PktBuf, now: u64) {
        let sent = match self.timing.rate {
            Some(rate) => self.around.pace.book(now, frame.len() as u64 * 8_000_000_000 / rate),
            None => now,
        };
        let jitter = self.streams.delay.up_to(self.timing.jitter.as_nanos() as u64);
        let in_order =
            sent.saturating_add(self.timing.delay.as_nanos() as u64).saturating_add(jitter).max(self.last_due);
        self.last_due = in_order;
        let due = in_order + self.streams.delay.up_to(self.timing.reorder_within.as_nanos() as u64);
        if due <= now && self.in_transit.is_empty() {
            self.ready.push_back(frame);
            return;
        }
        self.order += 1;
        self.in_transit.push(Reverse(InTransit { due, order: self.order, frame }));
    }
}
