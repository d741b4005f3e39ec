//! A bridge between two test lines, running on its own threads, and a trial on it.
//!
//! The bridge is [`switch::Switch`], as `heddle bridge run` starts it: its workers sleep between trials and poll during
//! one. Besides bridges there is the *cable*, which only moves frames from one port to the other: its cost is that of
//! generator and counter.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bridge::{FdbConfig, PortConfig};
use dev::{Device, QueuePair};
use observe::Time;
use pktbuf::PktBuf;
use switch::{BridgeExclusion, Switch, SwitchConfig, Work};
use sync::{Platform, Real, ThreadClass};

use super::line::{Buffers, LONGEST, LineConfig, LineDevice, Offer, PORTS, Pace, TestLines, TrialCount};
use super::method::TrialBed;

/// What is between the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// A bridge.
    Bridge(BridgeExclusion),
    /// Nothing: see the head of the file.
    Cable,
    /// The kernel's own bridge, which has no ports in memory.
    Linux {
        /// Receive packet steering: a CPU other than the sender's forwards.
        steered: bool,
    },
}

impl Between {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Between::Bridge(exclusion) => exclusion.name(),
            Between::Cable => "cable",
            Between::Linux { steered: false } => "linux",
            Between::Linux { steered: true } => "linux-rps",
        }
    }
}

/// The parameters of a bench.
#[derive(Clone, Copy, Debug)]
pub struct BenchConfig {
    /// What is between the lines.
    pub between: Between,
    /// Worker threads; each polls a queue of each port.
    pub workers: usize,
    /// Work per interrupt; `None`: the default of the exclusion.
    pub work: Option<Work>,
    /// Frames that a receive ring holds.
    pub ring: usize,
    /// Stations behind each port.
    pub stations: usize,
    /// How frames are made.
    pub buffers: Buffers,
}

/// A system between two ports of a tester.
pub trait Bench: TrialBed {
    /// What is between the ports.
    fn between(&self) -> Between;

    /// Its workers.
    fn workers(&self) -> usize;

    /// A trial in the middle of which all learned addresses are removed. `None`: there is no bridge to flush. The addresses are
    /// learned again before this returns.
    ///
    /// # Errors
    /// As [`TrialBed::trial`].
    fn flushed_trial(&mut self, offer: &Offer) -> io::Result<Option<FlushedTrial>>;
}

/// See the head of the file.
pub struct BridgeBench {
    config: BenchConfig,
    lines: TestLines,
    tested: Tested,
    threads: Vec<<Real as Platform>::JoinHandle>,
}

enum Tested {
    Bridge(Switch<Real>),
    Cable(Arc<AtomicBool>),
}

/// Frames that a receive ring holds where nothing else is asked for.
pub const RING: usize = 1024;
/// Stations behind each port where nothing else is asked for.
pub const STATIONS: usize = 64;
/// Time limit for the arrival of frames after the last one was taken.
const RESIDUE: Duration = Duration::from_millis(20);
/// Time without progress after which a trial fails.
const STUCK: Duration = Duration::from_secs(10);
/// Time between two checks of a trial, in which only the workers use the processors.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// Frames that a worker of the cable moves together.
const VECTOR: usize = 32;
/// How many times addresses are sent to a bridge that learns them asynchronously.
const LESSONS: u32 = 100;

impl BridgeBench {
    /// Starts the threads, and makes the bridge learn all addresses.
    ///
    /// # Errors
    /// Descriptors or threads are scarce, or the bridge does not learn.
    pub fn start(config: BenchConfig) -> io::Result<BridgeBench> {
        let BenchConfig { workers, ring, stations, buffers, .. } = config;
        let stations = stations.max(workers);
        let (lines, mut ports) = TestLines::new(LineConfig { queues: workers, ring, stations, buffers })?;
        let (tested, threads) = match config.between {
            Between::Bridge(exclusion) => {
                let mut ports = ports.each_mut().map(|port| port as &mut dyn Device);
                let (switch, threads) = start_bridge(&config, exclusion, stations, &mut ports)?;
                (Tested::Bridge(switch), threads)
            }
            Between::Cable => start_cable(workers, ports),
            Between::Linux { .. } => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's bridge has no ports in memory"));
            }
        };
        let mut bench = BridgeBench { config, lines, tested, threads };
        bench.teach(stations)?;
        Ok(bench)
    }

    /// Sends frames of all stations until all are learned, so that no trial floods.
    fn teach(&mut self, stations: usize) -> io::Result<()> {
        for lesson in 0..LESSONS {
            self.trial(&Offer::new(64, 2 * stations as u64, Pace::AsTaken))?;
            let Tested::Bridge(switch) = &self.tested else { return Ok(()) };
            if switch.look(|bridge, _| bridge.entries().len()) == PORTS * stations {
                return Ok(());
            }
            // The bridge posts a refused address again after 100 ms.
            thread::park_timeout(Duration::from_millis(u64::from(lesson)));
        }
        Err(io::Error::other(format!("the bridge does not learn {} addresses", PORTS * stations)))
    }
}

type Started = (Tested, Vec<<Real as Platform>::JoinHandle>);

/// Starts a bridge of Heddle between devices.
pub(super) fn start_bridge(
    config: &BenchConfig,
    exclusion: BridgeExclusion,
    stations: usize,
    ports: &mut [&mut dyn Device; PORTS],
) -> io::Result<(Switch<Real>, Vec<<Real as Platform>::JoinHandle>)> {
    let most = u32::try_from(stations).unwrap_or(u32::MAX / 8);
    // Room for twice the addresses, and an ageing time that no address reaches while its bridge waits for its turn.
    let fdb = FdbConfig {
        capacity: (4 * most).max(FdbConfig::default().capacity),
        ageing: Duration::from_secs(1_000_000),
        ..FdbConfig::default()
    };
    let usual = SwitchConfig::new(exclusion);
    let work = config.work.unwrap_or(usual.work);
    let switch = Switch::<Real>::new(SwitchConfig { fdb, work, workers: config.workers, ..usual })?;
    for port in ports {
        let mtu = LONGEST;
        let port_config = PortConfig { mtu, max_addresses: Some(most), ..PortConfig::default() };
        let name = port.name().to_owned();
        switch.add_port(&name, *port, port_config, Time::from_nanos(Real::now())).map_err(io::Error::other)?;
    }
    let threads = switch.start();
    Ok((switch, threads))
}

/// Ends the threads of a bridge.
pub(super) fn join_bridge(bridge: Option<&Switch<Real>>, mut threads: Vec<<Real as Platform>::JoinHandle>) {
    if let Some(bridge) = bridge {
        bridge.stop();
    }
    // If a worker panicked, its trial did not end and has been reported.
    threads.drain(..).for_each(|thread| drop(Real::join(thread)));
}

fn start_cable(workers: usize, ports: [LineDevice; PORTS]) -> Started {
    let ended = Arc::new(AtomicBool::new(false));
    let [a, b] = ports.map(|mut port| port.take_queues());
    let worker = |(number, pair): (usize, (QueuePair, QueuePair))| {
        let ended = ended.clone();
        Real::spawn("cable", Some(number), ThreadClass::Receive, move || move_frames(pair, &ended))
    };
    let threads = a.into_iter().zip(b).take(workers).enumerate().map(worker).collect();
    (Tested::Cable(ended), threads)
}

/// Runs until the end of the bench.
fn move_frames((mut a, mut b): (QueuePair, QueuePair), ended: &AtomicBool) {
    let (mut batch, mut out): (Vec<PktBuf>, VecDeque<PktBuf>) = (Vec::new(), VecDeque::new());
    while !ended.load(Ordering::Acquire) {
        let mut taken = 0;
        for way in [0, 1] {
            let (from, to) = if way == 0 { (&mut a.rx, &mut b.tx) } else { (&mut b.rx, &mut a.tx) };
            taken += from.receive(&mut batch, VECTOR);
            out.extend(batch.drain(..));
            to.transmit_batch(&mut out);
        }
        if taken == 0 {
            // Returns at once during a trial. Bounded, so that the end is noticed.
            a.rx.wait(Some(Duration::from_millis(100)));
        }
    }
}

/// The effect of a flush of the forwarding database on a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct FlushedTrial {
    /// The trial.
    pub count: TrialCount,
    /// Addresses that were removed.
    pub addresses: usize,
    /// How long the call took.
    pub took: Duration,
}

impl TrialBed for BridgeBench {
    fn trial(&mut self, offer: &Offer) -> io::Result<TrialCount> {
        self.trial_with(offer, &mut |_| {})
    }
}

impl Bench for BridgeBench {
    fn between(&self) -> Between {
        self.config.between
    }

    fn workers(&self) -> usize {
        self.config.workers
    }

    fn flushed_trial(&mut self, offer: &Offer) -> io::Result<Option<FlushedTrial>> {
        for _ in 0..LESSONS {
            if let Some(flushed) = self.flush_once(offer)? {
                return Ok(Some(flushed));
            }
            if matches!(self.tested, Tested::Cable(_)) {
                return Ok(None);
            }
        }
        Err(io::Error::other("trials end before the counters are read: make them longer"))
    }
}

impl BridgeBench {
    fn flush_once(&mut self, offer: &Offer) -> io::Result<Option<FlushedTrial>> {
        let mut flushed = None;
        let count = self.trial_with(offer, &mut |tested| {
            if let Tested::Bridge(switch) = tested
                && flushed.is_none()
            {
                let begun = Instant::now();
                let addresses = switch.configure(|bridge| bridge.flush(&|_, _| true));
                flushed = Some((addresses, begun.elapsed()));
            }
        })?;
        self.teach(self.config.stations.max(self.config.workers))?;
        Ok(flushed.map(|(addresses, took)| FlushedTrial { count, addresses, took }))
    }

    /// A trial, in which `meanwhile` is called again and again once frames arrive.
    fn trial_with(&mut self, offer: &Offer, meanwhile: &mut dyn FnMut(&Tested)) -> io::Result<TrialCount> {
        self.lines.begin(offer);
        let mut progress = (Instant::now(), 0);
        let mut offered_at: Option<Instant> = None;
        loop {
            // The thread is woken when all frames have been taken; then it polls for frames in flight.
            thread::park_timeout(LOOK_EVERY);
            if self.lines.is_complete() {
                break;
            }
            let arrived = self.lines.arrived();
            if arrived != progress.1 {
                progress = (Instant::now(), arrived);
                meanwhile(&self.tested);
            }
            if self.lines.is_offered() {
                // Dropped frames do not arrive; the others must arrive within this time.
                let since = offered_at.get_or_insert_with(Instant::now).elapsed();
                if since > RESIDUE && progress.0.elapsed() > RESIDUE {
                    break;
                }
            } else if progress.0.elapsed() > STUCK && !is_slow(offer) {
                self.lines.end();
                return Err(io::Error::other(format!("{} forwards nothing for {STUCK:?}", self.between().name())));
            }
        }
        let count = self.lines.end();
        match self.lines.strayed() {
            0 => Ok(count),
            strayed => Err(io::Error::other(format!("{strayed} frames left by the wrong port"))),
        }
    }
}

/// Whether the rate is so low that a long time without a frame is normal.
fn is_slow(offer: &Offer) -> bool {
    matches!(offer.pace, Pace::At(rate) if rate < 10.0)
}

impl Drop for BridgeBench {
    fn drop(&mut self) {
        let bridge = match &self.tested {
            Tested::Bridge(switch) => Some(switch),
            Tested::Cable(ended) => {
                ended.store(true, Ordering::Release);
                None
            }
        };
        join_bridge(bridge, std::mem::take(&mut self.threads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every exclusion, with one worker and two: every frame arrives, in order, by the right port.
    #[test]
    fn every_frame_arrives() {
        let bridges = BridgeExclusion::ALL.map(Between::Bridge);
        for between in bridges.into_iter().chain([Between::Cable]) {
            for (workers, buffers) in [(1, Buffers::Copied), (2, Buffers::Passed)] {
                let config = BenchConfig { between, workers, work: None, ring: 256, stations: 40, buffers };
                let mut bench = BridgeBench::start(config).expect("it starts");
                for frame_bytes in [64, 1518] {
                    // `generic` drains the ring into a bounded queue: this many frames fit at once.
                    let offer = Offer::new(frame_bytes, 100, Pace::At(f64::INFINITY));
                    let count = bench.trial(&offer).expect("it ends");
                    let name = between.name();
                    assert_eq!((count.offered, count.arrived), (200, 200), "{name}, {workers} workers");
                    assert_eq!(count.out_of_order, 0, "{name}");
                    assert!(!count.latencies.is_empty());
                }
            }
        }
    }

    /// A flush under traffic loses no frame.
    #[test]
    fn a_flush_forgets_all_and_they_are_learned_again() {
        for exclusion in BridgeExclusion::ALL {
            let between = Between::Bridge(exclusion);
            let (work, buffers) = (Some(Work::Frames(1)), Buffers::Copied);
            let config = BenchConfig { between, workers: 1, work, ring: 4096, stations: 500, buffers };
            let mut bench = BridgeBench::start(config).expect("it starts");
            // 50 ms at a rate that every machine keeps up with.
            let offer = Offer { all_stamped: true, ..Offer::new(64, 1000, Pace::At(20_000.0)) };
            let flushed = bench.flushed_trial(&offer).expect("it ends").expect("there is a bridge");
            let name = exclusion.name();
            assert_eq!((flushed.addresses, flushed.count.lost()), (1000, 0), "{name}");
            assert_eq!(flushed.count.latencies.len(), 2000, "{name}: every frame has its time");
        }
    }

    /// Section 6.2 of the paper: the handler that drains the ring overruns the queue behind it, one that takes a frame at a time
    /// does not.
    #[test]
    fn a_burst_overruns_the_queue_of_the_handler_that_drains() {
        let burst = Offer::new(64, 1000, Pace::At(f64::INFINITY));
        let lost = |work| {
            let between = Between::Bridge(BridgeExclusion::Generic);
            let config = BenchConfig { between, workers: 1, work, ring: 1024, stations: 1, buffers: Buffers::Copied };
            BridgeBench::start(config).and_then(|mut bench| bench.trial(&burst)).expect("it ends").lost()
        };
        assert!(lost(None) > 0);
        assert_eq!(lost(Some(Work::Frames(1))), 0);
    }
}
