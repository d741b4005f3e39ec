//! The generator and the counter of test frames at two interfaces of the kernel.
//!
//! One thread, the caller of [`Tester::trial`], sends the frames that are due at both ports, takes those that have arrived,
//! and begins again. So there is one thread besides the bridge's, and its cost is the same for every bridge. Frames have the
//! form of those in memory (`rfc2544/line.rs`).
//!
//! A frame that is due while the thread is busy waits, as in the ring of a card, and is lost if more wait than the ring
//! holds. A frame that the interface does not take is lost. When a trial at a rate is over, frames that have not arrived are
//! lost, although some may be on their way: a bridge that needs longer than the trial does not forward at that rate.
//!
//! *What may never happen.* A frame is counted for the wrong trial. The counter itself loses a frame and the bridge is
//! blamed: that is an error.

use std::io;

use dev_tap::packet::{BATCH, PacketPort};
use sync::{Platform, Real};

use super::line::{ETHERTYPE, FCS, Offer, PORTS, Pace, TrialCount, WORDS, station};

/// How much longer a trial may take than its frames are due, as a share of it, and at least, in nanoseconds.
const GRACE: f64 = 0.01;
const LEAST_GRACE: u64 = 2_000_000;
/// Nanoseconds without a frame after which no more is expected, where frames are sent as the bridge takes them.
const RESIDUE: u64 = 500_000_000;
/// Nanoseconds without a frame after which the bridge is idle, before a trial.
const SETTLED: u64 = 1_000_000;
/// Nanoseconds without progress after which a trial fails.
const STUCK: u64 = 10_000_000_000;

/// See the head of the file.
pub struct Tester {
    ways: [Way; PORTS],
    epoch: u32,
    ring: u64,
    stations: u64,
}

/// A port: the frames that are sent at it, and those of the other port that arrive at it.
struct Way {
    number: usize,
    port: PacketPort,
    /// The frames of one call, one behind the other.
    frames: Vec<u8>,
    length: usize,
    plan: WayPlan,
    /// Frames that were taken or lost.
    past: u64,
    taken: u64,
    arrived: u64,
    out_of_order: u64,
    strayed: u64,
    /// Number of the last frame that arrived, plus 1.
    last: u64,
    /// When the last frame was taken or arrived.
    moved_at: u64,
    latencies: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
struct WayPlan {
    epoch: u32,
    begun: u64,
    /// No frame is sent or counted later.
    deadline: u64,
    frames: u64,
    /// Nanoseconds for each frame. `None`: as taken.
    interval: Option<f64>,
    /// One in this many frames carries the time.
    stamped: u64,
    ring: u64,
    stations: u64,
}

impl Tester {
    /// A tester at two ports, with a ring of this many frames and as many stations behind each.
    pub fn new(ports: [PacketPort; PORTS], ring: usize, stations: usize) -> Tester {
        let mut number = 0;
        let ways = ports.map(|port| {
            number += 1;
            Way::new(number - 1, port)
        });
        Tester { ways, epoch: 0, ring: ring as u64, stations: stations as u64 }
    }

    /// Runs a trial to its end.
    ///
    /// # Errors
    /// An interface is down, no frame is taken, or frames left by the wrong port or were lost by the counter.
    pub fn trial(&mut self, offer: &Offer) -> io::Result<TrialCount> {
        self.settle()?;
        self.begin(offer);
        let mut moved_at = Real::now();
        loop {
            let now = Real::now();
            let mut moved = 0;
            for way in &mut self.ways {
                moved += way.generate(now)?;
            }
            for way in &mut self.ways {
                moved += way.count(now);
            }
            if moved > 0 {
                moved_at = now;
            }
            if self.is_over(now, now.saturating_sub(moved_at)) {
                return self.end();
            }
            if now.saturating_sub(moved_at) > STUCK && self.ways[0].plan.interval.is_none() {
                return Err(io::Error::other("no frame is taken for 10 s"));
            }
        }
    }

    /// Takes the frames that are still on their way, which belong to no trial any more.
    fn settle(&mut self) -> io::Result<()> {
        let begun = Real::now();
        let mut moved_at = begun;
        loop {
            let now = Real::now();
            if self.ways.iter_mut().map(Way::discard).sum::<usize>() > 0 {
                moved_at = now;
            }
            if now.saturating_sub(moved_at) > SETTLED {
                break;
            }
            if now.saturating_sub(begun) > STUCK {
                return Err(io::Error::other("frames arrive for 10 s after their trial"));
            }
        }
        // From here on losses are of the next trial.
        self.ways.iter_mut().try_for_each(|way| way.port.overflow().map(drop))
    }

    fn begin(&mut self, offer: &Offer) {
        self.epoch += 1;
        let begun = Real::now();
        let interval = match offer.pace {
            Pace::At(rate) => Some(1e9 / rate),
            Pace::AsTaken => None,
        };
        let deadline = interval.map_or(u64::MAX, |interval| {
            let planned = offer.frames as f64 * interval;
            begun + planned as u64 + LEAST_GRACE.max((planned * GRACE) as u64)
        });
        let plan = WayPlan {
            epoch: self.epoch,
            begun,
            deadline,
            frames: offer.frames,
            interval,
            stamped: if offer.all_stamped { 1 } else { (offer.frames / 2048).max(1) },
            ring: self.ring,
            stations: self.stations,
        };
        self.ways.iter_mut().for_each(|way| way.begin(plan, offer.frame_bytes - FCS));
    }

    /// `quiet`: nanoseconds since the last frame.
    fn is_over(&self, now: u64, quiet: u64) -> bool {
        let sum = |of: fn(&Way) -> u64| self.ways.iter().map(of).sum::<u64>();
        if self.ways.iter().any(|way| way.past < way.plan.frames) {
            return false;
        }
        sum(|way| way.arrived) >= sum(|way| way.taken) || now > self.ways[0].plan.deadline || quiet > RESIDUE
    }

    fn end(&mut self) -> io::Result<TrialCount> {
        let mut count = TrialCount::default();
        let mut strayed = 0;
        for way in &mut self.ways {
            let overflow = way.port.overflow()?;
            if overflow > 0 {
                return Err(io::Error::other(format!("the counter lost {overflow} frames")));
            }
            count.offered += way.plan.frames;
            count.taken += way.taken;
            count.arrived += way.arrived;
            count.out_of_order += way.out_of_order;
            count.seconds = count.seconds.max(way.moved_at.saturating_sub(way.plan.begun) as f64 * 1e-9);
            count.latencies.append(&mut way.latencies);
            strayed += way.strayed;
        }
        count.latencies.sort_unstable();
        match strayed {
            0 => Ok(count),
            strayed => Err(io::Error::other(format!("{strayed} frames left by the wrong port, or changed"))),
        }
    }
}

impl Way {
    fn new(number: usize, port: PacketPort) -> Way {
        Way {
            number,
            port,
            frames: Vec::new(),
            length: 0,
            plan: WayPlan::default(),
            past: 0,
            taken: 0,
            arrived: 0,
            out_of_order: 0,
            strayed: 0,
            last: 0,
            moved_at: 0,
            latencies: Vec::new(),
        }
    }

    fn begin(&mut self, plan: WayPlan, length: usize) {
        if self.length != length {
            let mut frame: Vec<u8> = (0..length).map(|n| n as u8).collect();
            frame[12..14].copy_from_slice(&ETHERTYPE);
            (self.frames, self.length) = (frame.repeat(BATCH), length);
        }
        (self.plan, self.moved_at) = (plan, plan.begun);
        for count in [
            &mut self.past,
            &mut self.taken,
            &mut self.arrived,
            &mut self.out_of_order,
            &mut self.strayed,
            &mut self.last,
        ] {
            *count = 0;
        }
        self.latencies.clear();
    }

    /// Sends the frames that are due, at most a batch. Returns how many the interface took.
    fn generate(&mut self, now: u64) -> io::Result<usize> {
        let count = self.ready(now).min(BATCH as u64) as usize;
        if count == 0 {
            return Ok(0);
        }
        (0..count).for_each(|at| self.write(at, now));
        let sent = self.port.send(&self.frames[..count * self.length], self.length)?;
        self.taken += sent as u64;
        self.past += sent as u64;
        if sent > 0 {
            self.moved_at = now;
        }
        if sent < count && self.plan.interval.is_some() {
            // The interface had no room: the wire does not wait.
            self.past += 1;
        }
        Ok(sent)
    }

    /// The number of frames that are due and not lost.
    fn ready(&mut self, now: u64) -> u64 {
        let left = self.plan.frames - self.past;
        let Some(interval) = self.plan.interval else { return left };
        if now > self.plan.deadline {
            self.past = self.plan.frames;
            return 0;
        }
        let due = (now.saturating_sub(self.plan.begun) as f64 / interval) as u64;
        // The first frame is due at once.
        let due = due.saturating_add(1).min(self.plan.frames);
        let waiting = due.saturating_sub(self.past);
        let overflow = waiting.saturating_sub(self.plan.ring);
        self.past += overflow;
        waiting - overflow
    }

    /// Writes the next frame but `at` to its place in the batch.
    fn write(&mut self, at: usize, now: u64) {
        let plan = &self.plan;
        let number = self.past + at as u64;
        let stamp = match plan.interval {
            _ if !number.is_multiple_of(plan.stamped) => 0,
            Some(interval) => plan.begun + (number as f64 * interval) as u64,
            None => now,
        };
        let frame = &mut self.frames[at * self.length..][..self.length];
        let of_station = (number % plan.stations) as usize;
        frame[..6].copy_from_slice(&station(1 - self.number, of_station).0);
        frame[6..12].copy_from_slice(&station(self.number, of_station).0);
        let words = &mut frame[WORDS..WORDS + 24];
        words[..4].copy_from_slice(&plan.epoch.to_le_bytes());
        words[4..8].copy_from_slice(&(self.number as u32).to_le_bytes());
        words[8..16].copy_from_slice(&number.to_le_bytes());
        words[16..24].copy_from_slice(&stamp.to_le_bytes());
    }

    /// Takes the frames that have arrived, at most a batch of them, and counts those of the trial.
    fn count(&mut self, now: u64) -> usize {
        let (own, plan, length) = (self.number, self.plan, self.length);
        let mut time = None;
        for taken in 0..BATCH {
            let Some(arrival) = self.port.receive(Arrival::of) else { return taken };
            let arrival = match arrival {
                Some(arrival) if arrival.way as usize == 1 - own && arrival.length == length => arrival,
                // A frame of an earlier trial was lost in that one, and may have another length.
                Some(arrival) if arrival.epoch != plan.epoch => continue,
                _ => {
                    self.strayed += 1;
                    continue;
                }
            };
            if arrival.epoch != plan.epoch || now > plan.deadline {
                continue;
            }
            self.arrived += 1;
            self.moved_at = now;
            self.out_of_order += u64::from(arrival.number < self.last);
            self.last = self.last.max(arrival.number + 1);
            if arrival.stamp != 0 {
                let time = *time.get_or_insert_with(Real::now);
                self.latencies.push(time.saturating_sub(arrival.stamp));
            }
        }
        BATCH
    }

    fn discard(&mut self) -> usize {
        (0..BATCH).take_while(|_| self.port.receive(|_, _| ()).is_some()).count()
    }
}

/// The words of a test frame.
struct Arrival {
    epoch: u32,
    way: u32,
    number: u64,
    stamp: u64,
    length: usize,
}

impl Arrival {
    fn of(bytes: &[u8], length: usize) -> Option<Arrival> {
        let words = bytes.get(WORDS..WORDS + 24)?;
        Some(Arrival {
            epoch: u32::from_le_bytes(words[..4].try_into().ok()?),
            way: u32::from_le_bytes(words[4..8].try_into().ok()?),
            number: u64::from_le_bytes(words[8..16].try_into().ok()?),
            stamp: u64::from_le_bytes(words[16..24].try_into().ok()?),
            length,
        })
    }
}
