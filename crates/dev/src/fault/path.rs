//! One direction of one queue with its faults: frames go in when they are sent, and come out when they arrive.
//!
//! A path is plain data driven by the caller's clock. Its choices depend on the plan, the path's number and the
//! sequence of frames alone, so the same frames at the same times come out the same way every time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use observe::{Counters, DropReason, Time};
use pktbuf::{Checksum, PktBuf};
use sync::{Atomic, Platform};

use super::plan::FaultPlan;
use super::random::Pcg;
use crate::layout::{self, ETHERNET_HEADER};

/// A frame held back for others to overtake goes on after this time even if there are none; otherwise the last frames
/// of a conversation would be lost rather than late.
const OVERTAKE_WITHIN: Duration = Duration::from_millis(20);

/// When the shared link is free again, in nanoseconds: what makes `rate` hold for all queues of a direction together.
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

/// A frame on its way, ordered by arrival and then by admission.
struct OnItsWay {
    due: u64,
    order: u64,
    frame: PktBuf,
}

impl PartialEq for OnItsWay {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.order) == (other.due, other.order)
    }
}

impl Eq for OnItsWay {}

impl PartialOrd for OnItsWay {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OnItsWay {
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

/// One stream of random numbers per kind of fault.
struct Streams {
    loss: Pcg,
    burst: Pcg,
    duplicate: Pcg,
    reorder: Pcg,
    delay: Pcg,
    corrupt: Pcg,
    truncate: Pcg,
}

/// A path and the frames on it.
pub struct Path<P: Platform> {
    plan: Arc<FaultPlan>,
    pace: Arc<Pace<P>>,
    streams: Streams,
    in_burst: bool,
    /// Frames due at once, in order: the short way for plans without delays.
    ready: VecDeque<PktBuf>,
    on_its_way: BinaryHeap<Reverse<OnItsWay>>,
    held_back: VecDeque<HeldBack>,
    last_due: u64,
    order: u64,
    full: DropReason,
    counters: Arc<Counters>,
}

impl<P: Platform> Path<P> {
    /// Path number `number` of a device (queue and direction make the number); `full` is the reason for drops at the
    /// plan's limit.
    pub fn new(
        plan: Arc<FaultPlan>,
        number: u64,
        pace: Arc<Pace<P>>,
        full: DropReason,
        counters: Arc<Counters>,
    ) -> Path<P> {
        let stream = |kind: u64| Pcg::new(plan.seed, number << 8 | kind);
        let streams = Streams {
            loss: stream(1),
            burst: stream(2),
            duplicate: stream(3),
            reorder: stream(4),
            delay: stream(5),
            corrupt: stream(6),
            truncate: stream(7),
        };
        Path {
            plan,
            pace,
            streams,
            in_burst: false,
            ready: VecDeque::new(),
            on_its_way: BinaryHeap::new(),
            held_back: VecDeque::new(),
            last_due: 0,
            order: 0,
            full,
            counters,
        }
    }

    /// Puts a frame on the path.
    pub fn admit(&mut self, mut frame: PktBuf, now: Time) {
        let now = now.as_nanos();
        if self.is_lost(&frame, now) {
            self.counters.drop_many(DropReason::FaultInjected, 1);
            return;
        }
        if self.streams.corrupt.chance(self.plan.corrupt) {
            corrupt(&mut frame, &mut self.streams.corrupt, self.plan.bits);
        }
        if self.streams.truncate.chance(self.plan.truncate) {
            distrust(&mut frame);
            let len = 1 + self.streams.truncate.below(frame.len().saturating_sub(1) as u32);
            frame.truncate(len as usize);
        }
        if self.streams.duplicate.chance(self.plan.duplicate) {
            match frame.duplicate() {
                Some(twin) => self.dispatch(twin, now),
                None => self.counters.drop_many(DropReason::NoBuffer, 1),
            }
        }
        self.dispatch(frame, now);
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
        if self.on_its_way.peek().is_some_and(|Reverse(next)| next.due <= now) {
            return self.on_its_way.pop().map(|Reverse(next)| next.frame);
        }
        None
    }

    /// When the next frame arrives; in the past when one is ready now.
    pub fn next_due(&self) -> Option<Time> {
        if !self.ready.is_empty() {
            return Some(Time::ZERO);
        }
        let held = self.held_back.front().map(|held| held.until);
        let due = self.on_its_way.peek().map(|Reverse(next)| next.due);
        held.into_iter().chain(due).min().map(Time::from_nanos)
    }

    /// Frames that have arrived and are still to be taken.
    pub fn arrived(&self) -> usize {
        self.ready.len()
    }

    /// Frames on the path.
    pub fn len(&self) -> usize {
        self.ready.len() + self.on_its_way.len() + self.held_back.len()
    }

    fn is_lost(&mut self, frame: &PktBuf, now: u64) -> bool {
        let down = self.plan.flap.is_some_and(|(up, down)| {
            let (up, down) = (up.as_nanos() as u64, down.as_nanos() as u64);
            now % (up + down) >= up
        });
        let too_long = self.plan.mtu.is_some_and(|mtu| frame.len() > mtu + ETHERNET_HEADER);
        // Every frame is drawn for, whatever else befalls it, so that one fault does not shift another.
        let lost = self.streams.loss.chance(self.plan.loss);
        let lost_in_burst = self.is_lost_in_burst();
        down || too_long || lost || lost_in_burst
    }

    fn is_lost_in_burst(&mut self) -> bool {
        let Some(burst) = self.plan.burst else { return false };
        let rng = &mut self.streams.burst;
        let turns = rng.chance(if self.in_burst { burst.leave } else { burst.enter });
        self.in_burst ^= turns;
        self.in_burst && rng.chance(burst.loss)
    }

    /// Gives a frame its time of arrival, or its place behind frames yet to come.
    fn dispatch(&mut self, frame: PktBuf, now: u64) {
        if self.on_its_way.len() + self.held_back.len() >= self.plan.limit {
            self.counters.drop_many(self.full, 1);
            return;
        }
        if self.streams.reorder.chance(self.plan.reorder) {
            let until = now.saturating_add(OVERTAKE_WITHIN.as_nanos() as u64);
            self.held_back.push_back(HeldBack { still_to_pass: self.plan.distance, until, frame });
            return;
        }
        self.send_on(frame, now);
        self.count_overtaking(now);
    }

    /// One frame has passed: those held back for it alone go on right behind it.
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
        let sent = match self.plan.rate {
            Some(rate) => self.pace.book(now, frame.len() as u64 * 8_000_000_000 / rate),
            None => now,
        };
        let jitter = self.streams.delay.up_to(self.plan.jitter.as_nanos() as u64);
        let in_order = sent.saturating_add(self.plan.delay.as_nanos() as u64).saturating_add(jitter).max(self.last_due);
        self.last_due = in_order;
        let due = in_order + self.streams.delay.up_to(self.plan.reorder_within.as_nanos() as u64);
        if due <= now && self.on_its_way.is_empty() {
            self.ready.push_back(frame);
            return;
        }
        self.order += 1;
        self.on_its_way.push(Reverse(OnItsWay { due, order: self.order, frame }));
    }
}

/// Makes the frame's checksum what it would be on a wire, and the receiver check it.
fn distrust(frame: &mut PktBuf) {
    layout::complete_checksum(frame);
    let meta = frame.meta_mut();
    meta.checksum = Checksum::None;
    meta.flow_hash = None;
}

/// Flips bits anywhere in the frame.
fn corrupt(frame: &mut PktBuf, rng: &mut Pcg, bits: u32) {
    distrust(frame);
    let mut flipped: Vec<u32> = Vec::with_capacity(bits as usize);
    let all = frame.len() as u32 * 8;
    while flipped.len() < bits.min(all) as usize {
        let bit = rng.below(all);
        // Flipping a bit twice would leave the frame as it was.
        if !flipped.contains(&bit) {
            frame[bit as usize / 8] ^= 1 << (bit % 8);
            flipped.push(bit);
        }
    }
}
