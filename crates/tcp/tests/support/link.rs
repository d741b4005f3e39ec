//! Two endpoints and a link between them: delay, rate-limited queue, loss, duplication and reordering from a seed.

use std::collections::BTreeMap;
use std::time::Duration;

use observe::Time;
use pktbuf::PktBuf;

use super::endpoint::{Endpoint, Setup};

/// A small generator (xorshift64*), so that a seed means the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// True in `per_mille` of 1000 cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        (self.next() >> 33) % 1000 < u64::from(per_mille)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { (self.next() >> 16) % n }
    }
}

/// Faults of the link, in both directions.
#[derive(Clone, Debug)]
pub struct Faults {
    pub delay: Duration,
    /// Extra delay up to this, drawn per segment; it reorders.
    pub jitter: Duration,
    pub loss: u32,
    pub duplicate: u32,
    /// Copies with a field of the header changed, under a correct checksum, that arrive besides.
    pub forged: u32,
    /// Bytes per second; 0 for no limit.
    pub rate: u64,
    pub seed: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            delay: Duration::from_millis(5),
            jitter: Duration::ZERO,
            loss: 0,
            duplicate: 0,
            forged: 0,
            rate: 0,
            seed: 1,
        }
    }
}

pub struct World {
    pub ends: [Endpoint; 2],
    pub now: Time,
    pub faults: Faults,
    random: Random,
    flying: BTreeMap<(Time, u64), (usize, PktBuf)>,
    serial: u64,
    /// When the link is free again, per direction.
    free: [Time; 2],
    /// Segments that end `i` sent, before the link touched them.
    pub sent: [u64; 2],
    /// All segments sent by both ends, in order, if kept.
    pub trace: Option<Vec<(Time, usize, Vec<u8>)>>,
}

/// The setup of the other end.
pub fn mirrored(setup: &Setup) -> Setup {
    let mut other = setup.clone();
    other.tuple = setup.tuple.reversed();
    other.iss = setup.iss.wrapping_add(0x5000_0000);
    other
}

/// Changes one field of the header, or the first bytes of its options, and patches the checksum. `None` if the segment
/// does not have the field.
fn forge(mut segment: PktBuf, random: &mut Random) -> Option<PktBuf> {
    // Sequence and acknowledgement number, flags, window, urgent pointer, options with timestamps.
    let at = [4, 6, 6, 8, 10, 10, 12, 14, 14, 18, 20, 22, 24, 26, 28, 30][random.below(16) as usize];
    let old = u16::from_be_bytes([*segment.get(at)?, *segment.get(at + 1)?]);
    let some = random.next() as u16;
    let new = match random.below(4) {
        _ if at == 12 => old ^ some & 0x11f,
        0 => some,
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        _ => old.wrapping_add(some % 3000).wrapping_sub(1500),
    };
    let checksum = u16::from_be_bytes([segment[16], segment[17]]);
    segment[at..at + 2].copy_from_slice(&new.to_be_bytes());
    segment[16..18].copy_from_slice(&wire::checksum::update_u16(checksum, old, new).to_be_bytes());
    Some(segment)
}

impl World {
    pub fn new(a: Setup, b: Setup, faults: Faults) -> World {
        World {
            ends: [Endpoint::new(a), Endpoint::new(b)],
            now: Time::from_secs(1),
            random: Random::new(faults.seed),
            faults,
            flying: BTreeMap::new(),
            serial: 0,
            free: [Time::ZERO; 2],
            sent: [0; 2],
            trace: None,
        }
    }

    /// Two ends of the same kind; the second listens, the first opens.
    pub fn pair(setup: Setup, faults: Faults) -> World {
        let other = mirrored(&setup);
        let mut world = World::new(setup, other, faults);
        world.ends[1].listening = true;
        world.ends[0].open(world.now);
        world
    }

    /// Puts the segments sent by the ends onto the link.
    pub fn collect(&mut self) {
        for end in 0..2 {
            for segment in core::mem::take(&mut self.ends[end].sent) {
                self.sent[end] += 1;
                if let Some(trace) = &mut self.trace {
                    trace.push((self.now, end, segment.to_vec()));
                }
                self.carry(end, segment);
            }
        }
    }

    fn carry(&mut self, from: usize, segment: PktBuf) {
        if self.random.chance(self.faults.loss) {
            return;
        }
        if self.faults.forged > 0
            && self.random.chance(self.faults.forged)
            && let Some(forged) = segment.duplicate().and_then(|copy| forge(copy, &mut self.random))
        {
            self.launch(from, forged);
        }
        if self.random.chance(self.faults.duplicate) {
            let copy = segment.duplicate().expect("a buffer");
            self.launch(from, copy);
        }
        self.launch(from, segment);
    }

    fn launch(&mut self, from: usize, segment: PktBuf) {
        let mut start = self.now;
        if let Some(nanos) = (segment.len() as u64 * 1_000_000_000).checked_div(self.faults.rate) {
            let time = Duration::from_nanos(nanos);
            start = self.free[from].max(self.now) + time;
            self.free[from] = start;
        }
        let jitter = Duration::from_nanos(self.random.below(self.faults.jitter.as_nanos() as u64));
        self.serial += 1;
        self.flying.insert((start + self.faults.delay + jitter, self.serial), (1 - from, segment));
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Time> {
        let arrival = self.flying.keys().next().map(|key| key.0);
        [arrival, self.ends[0].wake, self.ends[1].wake].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Runs the next thing to happen, and then `after` for the users. False when nothing is left, or `end` is reached.
    pub fn step(&mut self, end: Time, mut after: impl FnMut(&mut [Endpoint; 2], Time)) -> bool {
        self.collect();
        let Some(at) = self.next().filter(|&at| at <= end) else {
            self.now = end;
            return false;
        };
        self.now = at;
        let mut bursts = [Vec::new(), Vec::new()];
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= at) {
            let (to, segment) = entry.remove();
            if self.ends[to].setup.interleave.is_some() {
                bursts[to].push(segment);
            } else {
                self.ends[to].arrives(segment, at);
                after(&mut self.ends, at);
                self.collect();
            }
        }
        for (end, burst) in bursts.into_iter().enumerate() {
            if !burst.is_empty() {
                self.ends[end].burst(burst, at);
                after(&mut self.ends, at);
                self.collect();
            }
        }
        for end in 0..2 {
            self.ends[end].tick(at);
        }
        after(&mut self.ends, at);
        self.collect();
        true
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end, |_, _| {}) {}
    }

    /// Run until `done`, with the users doing `act` after each step. Panics after `limit` of virtual time.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut act: impl FnMut(&mut [Endpoint; 2], Time),
        done: impl Fn(&[Endpoint; 2]) -> bool,
    ) {
        let end = self.now + limit;
        act(&mut self.ends, self.now);
        while !done(&self.ends) {
            assert!(self.step(end, &mut act), "not done after {limit:?}");
        }
    }
}
