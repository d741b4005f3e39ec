//! The line of a port under test: a device that generates test frames at a given rate, and counts those that are
//! transmitted to it.
//!
//! The device models an interface with a receive ring, without a thread of its own: when the bridge polls a queue, the frames
//! that a wire would have delivered by now, at the offered rate, are in the ring; frames that did not fit are lost and
//! counted. So the generator costs only the making of a frame, and no thread runs besides the bridge's.
//!
//! ```text
//!            plan, epoch                      arrived, out of order, latencies
//! bench ----------------------> QueueState <----------------------------------- counter (TxQueue of the other port)
//!                                   ^
//!                                   | taken, lost, begun, ended
//!                               generator (RxQueue)
//! ```
//!
//! A frame carries its generator's queue, its trial and its number, so that the counter finds frames that are out of order,
//! of an earlier trial, or at the wrong port. Some carry the time at which they arrived in the ring.
//!
//! *What may never happen.* A frame is counted for the wrong trial. A generator makes more frames than planned.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use dev::{Capabilities, Device, NotTransmitted, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use pktbuf::{PktBuf, SharedBuf};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sync::{CachePadded, Platform, Real};
use wire::ethernet::MacAddr;

/// Bytes of the frame check sequence, which a frame's length includes on a wire, as everywhere in RFC 2544, but not in memory.
pub const FCS: usize = 4;
/// Bytes that a frame takes on a wire besides its own: preamble, start of frame and the gap between frames.
pub const GAP: usize = 20;
/// Shortest frame, with its check sequence.
pub const SHORTEST: usize = 64;
/// Longest frame, with its check sequence: jumbo frames.
pub const LONGEST: usize = 9216;

/// An EtherType for experiments (IEEE 802).
pub(super) const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Offset of the test's own words: after the Ethernet header, aligned.
pub(super) const WORDS: usize = 16;
/// Maximum number of frames taken between two readings of the clock; also the precision of the modelled ring.
const LOOK: usize = 32;
/// Buffers that a counter collects before it returns them to the generator.
const RETURNED: usize = 64;

/// When frames are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At a constant rate, in frames a second for each port; infinite: all at once.
    At(f64),
    /// Whenever the bridge polls: the ring is never full, and no frame is lost before the bridge.
    AsTaken,
}

/// The load of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Length of a frame with its check sequence, [`SHORTEST`] to [`LONGEST`].
    pub frame_bytes: usize,
    /// Frames to each port.
    pub frames: u64,
    /// When they are due.
    pub pace: Pace,
    /// Whether every frame carries the time, instead of some two thousand of each queue.
    pub all_stamped: bool,
}

impl Offer {
    /// A load in which some frames carry the time.
    pub fn new(frame_bytes: usize, frames: u64, pace: Pace) -> Offer {
        Offer { frame_bytes, frames, pace, all_stamped: false }
    }
}

/// How frames are made and consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// Each is copied from a template, and copied out again, as by a device without shared memory.
    Copied,
    /// Buffers are reused; only the headers and the test's words are written and read.
    Passed,
}

/// The parameters of a port's line.
#[derive(Clone, Copy, Debug)]
pub struct LineConfig {
    /// Queues of each port.
    pub queues: usize,
    /// Frames that the receive ring of a queue holds.
    pub ring: usize,
    /// Stations behind each port.
    pub stations: usize,
    /// How frames are made.
    pub buffers: Buffers,
}

/// The two ports of a test: the frames that one generates shall arrive at the other.
pub const PORTS: usize = 2;

/// Plan and counts of one receive queue's generator.
#[derive(Default)]
struct QueueState {
    /// Number of the trial; written last.
    epoch: AtomicU32,
    frame_bytes: AtomicU64,
    frames: AtomicU64,
    /// Nanoseconds for each frame, as the bits of an `f64`; negative: as taken.
    interval: AtomicU64,
    /// One in this many frames carries the time.
    stamped: AtomicU64,
    taken: AtomicU64,
    lost: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
}

/// The frames of one generator that have arrived. Written by one counter at a time: that of the worker that polls the
/// generator.
#[derive(Default)]
struct Arrivals {
    arrived: AtomicU64,
    out_of_order: AtomicU64,
    /// Number of the last frame, plus 1.
    last: AtomicU64,
    /// In nanoseconds.
    latencies: Mutex<Vec<u64>>,
    /// Buffers that return to the generator.
    spare: Mutex<Vec<PktBuf>>,
}

/// The parts of the two ports.
struct LineState {
    config: LineConfig,
    /// Readable while a trial is on, so that no worker sleeps.
    bell: OwnedFd,
    /// By port, then queue.
    queues: Vec<CachePadded<QueueState>>,
    arrivals: Vec<CachePadded<Arrivals>>,
    /// Frames at a port that they should not leave by, or of an earlier trial.
    strayed: AtomicU64,
    /// The thread that waits for the end of the trial.
    waiting: Mutex<Option<Thread>>,
}

/// The bench's view of the lines.
pub struct TestLines {
    state: Arc<LineState>,
    epoch: u32,
}

/// Counts of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialCount {
    /// Frames that were due.
    pub offered: u64,
    /// Of these, those that the bridge took from a ring.
    pub taken: u64,
    /// Of these, those that it transmitted by the right port.
    pub arrived: u64,
    /// Frames that arrived after one with a higher number, of the same queue.
    pub out_of_order: u64,
    /// Seconds from the first frame to the last that was taken: the longest of any queue.
    pub seconds: f64,
    /// Latencies of some frames from the ring to the counter, in nanoseconds; sorted.
    pub latencies: Vec<u64>,
}

impl TrialCount {
    /// Frames that were offered and did not arrive.
    pub fn lost(&self) -> u64 {
        self.offered.saturating_sub(self.arrived)
    }

    /// Frames that arrived, a second, both directions together.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.arrived as f64 / self.seconds } else { 0.0 }
    }
}

impl TestLines {
    /// The lines of two ports, and the ports.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(config: LineConfig) -> io::Result<(TestLines, [LineDevice; PORTS])> {
        let LineConfig { queues, .. } = config;
        assert!(queues > 0 && config.ring > 0 && config.stations >= queues, "a station for each queue");
        let padded = |_| CachePadded::new(QueueState::default());
        let state = Arc::new(LineState {
            config,
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            queues: (0..PORTS * queues).map(padded).collect(),
            arrivals: (0..PORTS * queues).map(|_| CachePadded::new(Arrivals::default())).collect(),
            strayed: AtomicU64::new(0),
            waiting: Mutex::new(None),
        });
        let port = |port| LineDevice {
            port,
            capabilities: Capabilities {
                queue_pairs: queues,
                ..Capabilities::ethernet(station(port, u32::MAX as usize), LONGEST - FCS - wire::ethernet::HEADER_LEN)
            },
            state: state.clone(),
            taken: false,
        };
        Ok((TestLines { state: state.clone(), epoch: 0 }, [port(0), port(1)]))
    }

    /// Begins a trial: from the next poll of each queue on, frames are due.
    pub fn begin(&mut self, offer: &Offer) {
        assert!((SHORTEST..=LONGEST).contains(&offer.frame_bytes), "the length of an Ethernet frame");
        let queues = self.state.config.queues as u64;
        self.epoch += 1;
        self.state.strayed.store(0, Ordering::Relaxed);
        *held(&self.state.waiting) = Some(std::thread::current());
        for arrivals in &self.state.arrivals {
            [&arrivals.arrived, &arrivals.out_of_order, &arrivals.last]
                .into_iter()
                .for_each(|n| n.store(0, Ordering::Relaxed));
            held(&arrivals.latencies).clear();
        }
        for (at, queue) in self.state.queues.iter().enumerate() {
            let number = at as u64 % queues;
            let frames = offer.frames / queues + u64::from(number < offer.frames % queues);
            let interval = match offer.pace {
                Pace::At(rate) => 1e9 * queues as f64 / rate,
                Pace::AsTaken => -1.0,
            };
            queue.frame_bytes.store(offer.frame_bytes as u64, Ordering::Relaxed);
            queue.frames.store(frames, Ordering::Relaxed);
            queue.interval.store(interval.to_bits(), Ordering::Relaxed);
            let stamped = if offer.all_stamped { 1 } else { (frames / 2048).max(1) };
            queue.stamped.store(stamped, Ordering::Relaxed);
            [&queue.taken, &queue.lost, &queue.begun, &queue.ended]
                .into_iter()
                .for_each(|n| n.store(0, Ordering::Relaxed));
            queue.epoch.store(self.epoch, Ordering::Release);
        }
        // A descriptor of our own that can be written to.
        let _ = rustix::io::write(&self.state.bell, &1u64.to_ne_bytes());
    }

    /// Whether every frame of the trial has been due, and taken or lost.
    pub fn is_offered(&self) -> bool {
        self.state.queues.iter().all(|queue| queue.ended.load(Ordering::Acquire) != 0)
    }

    /// Whether every frame that was taken has arrived.
    pub fn is_complete(&self) -> bool {
        let taken: u64 = self.state.queues.iter().map(|queue| queue.taken.load(Ordering::Acquire)).sum();
        self.is_offered() && self.arrived() == taken
    }

    /// Frames of the trial that have arrived.
    pub fn arrived(&self) -> u64 {
        self.state.arrivals.iter().map(|arrivals| arrivals.arrived.load(Ordering::Acquire)).sum()
    }

    /// Ends the trial: workers may sleep.
    pub fn end(&mut self) -> TrialCount {
        let mut word = [0; 8];
        // The descriptor is readable since the trial began, unless that failed.
        let _ = rustix::io::read(&self.state.bell, &mut word);
        let mut count = TrialCount::default();
        for queue in &self.state.queues {
            let (taken, lost) = (queue.taken.load(Ordering::Acquire), queue.lost.load(Ordering::Acquire));
            (count.taken, count.offered) = (count.taken + taken, count.offered + taken + lost);
            let (begun, ended) = (queue.begun.load(Ordering::Relaxed), queue.ended.load(Ordering::Relaxed));
            count.seconds = count.seconds.max(ended.saturating_sub(begun) as f64 * 1e-9);
        }
        for arrivals in &self.state.arrivals {
            count.arrived += arrivals.arrived.load(Ordering::Acquire);
            count.out_of_order += arrivals.out_of_order.load(Ordering::Relaxed);
            count.latencies.append(&mut held(&arrivals.latencies));
        }
        count.latencies.sort_unstable();
        count
    }

    /// Frames at a port that they should not have left by, or of an earlier trial.
    pub fn strayed(&self) -> u64 {
        self.state.strayed.load(Ordering::Relaxed)
    }
}

/// Locks data that is always consistent, even after a panic.
fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of a station behind a port: locally administered.
pub fn station(port: usize, number: usize) -> MacAddr {
    let [a, b, c, d] = (number as u32).to_be_bytes();
    MacAddr([2, port as u8, a, b, c, d])
}

/// A port.
pub struct LineDevice {
    port: usize,
    capabilities: Capabilities,
    state: Arc<LineState>,
    taken: bool,
}

impl Device for LineDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &'static str {
        ["line-a", "line-b"][self.port % PORTS]
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        if std::mem::replace(&mut self.taken, true) {
            return Vec::new();
        }
        let pair = |queue| QueuePair {
            rx: Box::new(Generator::new(self.state.clone(), self.port, queue)),
            tx: Box::new(Counter::new(self.state.clone(), self.port)),
        };
        (0..self.state.config.queues).map(pair).collect()
    }
}

/// A receive queue.
struct Generator {
    state: Arc<LineState>,
    port: usize,
    queue: usize,
    epoch: u32,
    plan: Plan,
    /// Frames that were taken or lost.
    past: u64,
    lost: u64,
    /// Frames known to be in the ring.
    ready: u64,
    /// Frames taken since the clock was read.
    since: usize,
    begun: u64,
    template: Vec<u8>,
    spare: Vec<PktBuf>,
}

#[derive(Clone, Copy)]
struct Plan {
    frames: u64,
    interval: f64,
    stamped: u64,
}

impl Generator {
    fn new(state: Arc<LineState>, port: usize, queue: usize) -> Generator {
        let plan = Plan { frames: 0, interval: 0.0, stamped: 1 };
        Generator {
            state,
            port,
            queue,
            epoch: 0,
            plan,
            past: 0,
            lost: 0,
            ready: 0,
            since: 0,
            begun: 0,
            template: Vec::new(),
            spare: Vec::new(),
        }
    }

    fn at(&self) -> usize {
        self.port * self.state.config.queues + self.queue
    }

    #[cold]
    fn begin(&mut self, epoch: u32) {
        let state = &self.state.queues[self.at()];
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let interval = f64::from_bits(load(&state.interval));
        self.plan = Plan { frames: load(&state.frames), interval, stamped: load(&state.stamped) };
        let bytes = load(&state.frame_bytes) as usize - FCS;
        (self.past, self.lost, self.ready, self.since, self.epoch) = (0, 0, 0, LOOK, epoch);
        self.template = (0..bytes).map(|n| n as u8).collect();
        self.template[12..14].copy_from_slice(&ETHERTYPE);
        self.spare.retain(|frame| frame.len() == bytes);
        self.begun = Real::now();
        self.state.queues[self.at()].begun.store(self.begun, Ordering::Relaxed);
        if self.plan.frames == 0 {
            self.finish();
        }
    }

    /// Reads the clock and computes how many frames the ring holds by now, and how many did not fit.
    fn look(&mut self) {
        self.since = 0;
        let left = self.plan.frames - self.past;
        if self.plan.interval < 0.0 {
            self.ready = left;
            return;
        }
        let passed = Real::now().saturating_sub(self.begun) as f64;
        // The first frame is due at once; at an infinite rate all frames are.
        let due = if self.plan.interval > 0.0 { (passed / self.plan.interval) as u64 } else { u64::MAX };
        let due = due.saturating_add(1).min(self.plan.frames);
        let waiting = due.saturating_sub(self.past);
        let overflow = waiting.saturating_sub(self.state.config.ring as u64);
        self.past += overflow;
        self.lost += overflow;
        self.ready = waiting - overflow;
    }

    /// The next frame. `None`: there is no buffer for it.
    fn frame(&mut self) -> Option<PktBuf> {
        let number = self.past;
        let config = &self.state.config;
        let mut frame = match config.buffers {
            Buffers::Copied => PktBuf::from_slice(&self.template)?,
            Buffers::Passed => match self.next_spare() {
                Some(spare) => spare,
                None => PktBuf::from_slice(&self.template)?,
            },
        };
        // Stations of this queue only, as if their flows were hashed to it; each sends to its counterpart behind the
        // other port.
        let each = (self.state.config.stations - self.queue).div_ceil(self.state.config.queues) as u64;
        let station_number = (number % each) as usize * self.state.config.queues + self.queue;
        frame[..6].copy_from_slice(&station(1 - self.port, station_number).0);
        frame[6..12].copy_from_slice(&station(self.port, station_number).0);
        let stamp = if number.is_multiple_of(self.plan.stamped) { self.due_at(number) } else { 0 };
        let words = &mut frame[WORDS..WORDS + 24];
        words[..4].copy_from_slice(&self.epoch.to_le_bytes());
        words[4..8].copy_from_slice(&(self.at() as u32).to_le_bytes());
        words[8..16].copy_from_slice(&number.to_le_bytes());
        words[16..24].copy_from_slice(&stamp.to_le_bytes());
        Some(frame)
    }

    fn next_spare(&mut self) -> Option<PktBuf> {
        if self.spare.is_empty() {
            let at = self.at();
            std::mem::swap(&mut self.spare, &mut held(&self.state.arrivals[at].spare));
            let bytes = self.template.len();
            self.spare.retain(|frame| frame.len() == bytes);
        }
        self.spare.pop()
    }

    /// The time at which a frame arrived in the ring or, at an infinite rate, at which it was taken.
    fn due_at(&self, number: u64) -> u64 {
        if self.plan.interval < 0.0 { Real::now() } else { self.begun + (number as f64 * self.plan.interval) as u64 }
    }

    fn publish(&self) {
        let state = &self.state.queues[self.at()];
        state.lost.store(self.lost, Ordering::Relaxed);
        state.taken.store(self.past - self.lost, Ordering::Release);
    }

    #[cold]
    fn finish(&self) {
        self.publish();
        self.state.queues[self.at()].ended.store(Real::now().max(1), Ordering::Release);
        if let Some(thread) = &*held(&self.state.waiting) {
            thread.unpark();
        }
    }
}

impl RxQueue for Generator {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let epoch = self.state.queues[self.at()].epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.begin(epoch);
        }
        if self.past == self.plan.frames {
            return 0;
        }
        if self.since >= LOOK || self.ready < max as u64 {
            self.look();
        }
        let count = max.min(self.ready as usize);
        let before = batch.len();
        for _ in 0..count {
            match self.frame() {
                Some(frame) => batch.push(frame),
                None => self.lost += 1,
            }
            self.past += 1;
        }
        self.ready -= count as u64;
        self.since += count.max(1);
        if self.past == self.plan.frames {
            self.finish();
        }
        batch.len() - before
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut descriptors = [PollFd::new(&self.state.bell, PollFlags::IN)];
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(1) => WaitOutcome::Ready,
            _ => WaitOutcome::TimedOut,
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(LineWaker(self.state.clone()))
    }

    fn pollable(&self) -> Option<RawFd> {
        Some(self.state.bell.as_raw_fd())
    }
}

/// Ends a wait, as the beginning of a trial does.
struct LineWaker(Arc<LineState>);

impl Wake for LineWaker {
    fn wake(&self) {
        // A counter that is full is readable already.
        let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes());
    }
}

/// A transmit queue.
struct Counter {
    state: Arc<LineState>,
    port: usize,
    copy: Vec<u8>,
    /// Buffers to be returned, all of one generator.
    returned: (usize, Vec<PktBuf>),
}

impl Counter {
    fn new(state: Arc<LineState>, port: usize) -> Counter {
        Counter { state, port, copy: vec![0; LONGEST], returned: (0, Vec::with_capacity(RETURNED)) }
    }

    /// Counts a frame and returns the queue of the generator that made it. `None`: it has strayed.
    fn count(&mut self, frame: &[u8]) -> Option<usize> {
        let word = |at: usize| -> [u8; 4] { frame[at..at + 4].try_into().unwrap_or_default() };
        let long = |at: usize| -> [u8; 8] { frame[at..at + 8].try_into().unwrap_or_default() };
        if frame.len() < WORDS + 24 {
            self.state.strayed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (epoch, at) = (u32::from_le_bytes(word(WORDS)), u32::from_le_bytes(word(WORDS + 4)) as usize);
        let (number, stamp) = (u64::from_le_bytes(long(WORDS + 8)), u64::from_le_bytes(long(WORDS + 16)));
        let queues = self.state.config.queues;
        let current = self.state.queues.get(at).is_some_and(|queue| queue.epoch.load(Ordering::Relaxed) == epoch);
        if !current || at / queues == self.port {
            self.state.strayed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if self.state.config.buffers == Buffers::Copied {
            let bytes = frame.len();
            self.copy[..bytes].copy_from_slice(frame);
            std::hint::black_box(&mut self.copy);
        }
        let arrivals = &self.state.arrivals[at];
        let last = arrivals.last.load(Ordering::Relaxed);
        if number < last {
            arrivals.out_of_order.store(arrivals.out_of_order.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        arrivals.last.store(last.max(number + 1), Ordering::Relaxed);
        if stamp != 0 {
            held(&arrivals.latencies).push(Real::now().saturating_sub(stamp));
        }
        arrivals.arrived.store(arrivals.arrived.load(Ordering::Relaxed) + 1, Ordering::Release);
        Some(at)
    }

    /// Buffers go back to their generator.
    fn passes_buffers(&self) -> bool {
        self.state.config.buffers == Buffers::Passed
    }

    fn give_back(&mut self, at: usize, frame: PktBuf) {
        if self.returned.0 != at || self.returned.1.len() == RETURNED {
            held(&self.state.arrivals[self.returned.0].spare).append(&mut self.returned.1);
            self.returned.0 = at;
        }
        self.returned.1.push(frame);
    }
}

impl TxQueue for Counter {
    fn credit(&self) -> usize {
        usize::MAX
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        if let Some(at) = self.count(&frame)
            && self.passes_buffers()
        {
            self.give_back(at, frame);
        }
        Ok(())
    }

    /// The last holder returns the buffer.
    fn transmit_shared(&mut self, frame: SharedBuf) -> Result<(), NotTransmitted> {
        if let Some(at) = self.count(&frame)
            && self.passes_buffers()
            && let Ok(frame) = frame.try_into_unique()
        {
            self.give_back(at, frame);
        }
        Ok(())
    }

    fn flush(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(buffers: Buffers) -> (TestLines, Vec<QueuePair>, Vec<QueuePair>) {
        let config = LineConfig { queues: 2, ring: 16, stations: 5, buffers };
        let (lines, [mut a, mut b]) = TestLines::new(config).expect("a descriptor");
        let (a, b) = (a.take_queues(), b.take_queues());
        (lines, a, b)
    }

    /// Takes all frames from the queues of one port, and passes each to `each`.
    fn take(pairs: &mut [QueuePair], mut each: impl FnMut(usize, PktBuf)) -> usize {
        let mut batch = Vec::new();
        let mut count = 0;
        for (at, pair) in pairs.iter_mut().enumerate() {
            count += pair.rx.receive(&mut batch, 8);
            batch.drain(..).for_each(|frame| each(at, frame));
        }
        count
    }

    const PLAN: Offer = Offer { frame_bytes: 64, frames: 101, pace: Pace::AsTaken, all_stamped: false };

    #[test]
    fn what_one_port_generates_is_counted_at_the_other() {
        for buffers in [Buffers::Copied, Buffers::Passed] {
            let (mut lines, mut a, mut b) = lines(buffers);
            for _ in 0..3 {
                lines.begin(&PLAN);
                assert!(!lines.is_offered());
                while take(&mut a, |at, frame| assert!(b[at].tx.transmit(frame).is_ok())) > 0 {}
                while take(&mut b, |at, frame| assert!(a[at].tx.transmit(frame).is_ok())) > 0 {}
                assert!(lines.is_complete());
                let count = lines.end();
                assert_eq!((count.offered, count.arrived, count.out_of_order, lines.strayed()), (202, 202, 0, 0));
                assert_eq!((count.lost(), count.latencies.len()), (0, 202), "few frames all carry their time");
            }
        }
    }

    #[test]
    fn a_frame_that_others_hold_is_counted_without_a_copy() {
        for buffers in [Buffers::Copied, Buffers::Passed] {
            let (mut lines, mut a, mut b) = lines(buffers);
            lines.begin(&PLAN);
            let held: Vec<SharedBuf> = (0..2).fold(Vec::new(), |mut held, at| {
                let mut batch = Vec::new();
                a[at].rx.receive(&mut batch, 8);
                held.extend(batch.into_iter().map(PktBuf::share));
                held
            });
            pktbuf::refuse(0, u64::MAX);
            held.iter().for_each(|frame| assert!(b[0].tx.transmit_shared(frame.clone()).is_ok()));
            let refused = u64::MAX - pktbuf::refusals_left();
            pktbuf::refuse(0, 0);
            assert_eq!((held.len(), lines.arrived(), lines.strayed(), refused), (16, 16, 0, 0), "{buffers:?}");
        }
    }

    #[test]
    fn what_the_ring_has_no_room_for_is_lost() {
        let (mut lines, mut a, mut b) = lines(Buffers::Copied);
        lines.begin(&Offer { pace: Pace::At(f64::INFINITY), ..PLAN });
        while take(&mut a, |at, frame| assert!(b[at].tx.transmit(frame).is_ok())) > 0 {}
        while take(&mut b, |at, frame| assert!(a[at].tx.transmit(frame).is_ok())) > 0 {}
        let count = lines.end();
        assert_eq!((count.offered, count.arrived, count.lost()), (202, 4 * 16, 202 - 4 * 16));
    }

    #[test]
    fn frames_out_of_order_and_astray_are_found() {
        let (mut lines, mut a, mut b) = lines(Buffers::Copied);
        lines.begin(&PLAN);
        let mut frames = Vec::new();
        take(&mut a, |at, frame| {
            if at == 0 {
                frames.push(frame)
            }
        });
        let late = frames.remove(0);
        frames.into_iter().chain([late]).for_each(|frame| assert!(b[0].tx.transmit(frame).is_ok()));
        let mut back = None;
        take(&mut a, |_, frame| back = Some(frame));
        assert!(a[0].tx.transmit(back.expect("frames are left")).is_ok());
        assert!(b[0].tx.transmit(PktBuf::from_slice(&[0; 60]).expect("a buffer")).is_ok());
        assert_eq!(lines.strayed(), 2);
        let mut old = None;
        take(&mut b, |_, frame| old = Some(frame));
        assert_eq!(lines.end().out_of_order, 1);
        lines.begin(&PLAN);
        assert!(a[0].tx.transmit(old.expect("frames are left")).is_ok());
        assert_eq!((lines.strayed(), lines.arrived()), (1, 0), "a frame of the trial before");
    }

    #[test]
    fn stations_are_of_their_queue_and_port() {
        let (mut lines, mut a, _) = lines(Buffers::Copied);
        lines.begin(&PLAN);
        let mut of_queue = [const { std::collections::BTreeSet::new() }; 2];
        take(&mut a, |at, frame| {
            assert_eq!((frame.len(), frame[7], frame[1]), (60, 0, 1));
            of_queue[at].insert(frame[11]);
        });
        assert_eq!(of_queue.map(|set| set.into_iter().collect::<Vec<_>>()), [vec![0, 2, 4], vec![1, 3]]);
    }
}
