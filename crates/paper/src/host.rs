//! A load on this host: all subjects of a paper by turns, in the same seconds, with the lab's benchmark, with its tests of
//! RFC 2544 where the subjects are bridges, or with the in-memory driver where threads carry packets.
//!
//! Each round begins with another subject ([`lab::sampling`] says why), and the samples of a round go into the store
//! together. So a pair of samples with one number of the round is a pair of neighbours in time.
//!
//! A hypervisor moves processors to cores that share a cache and to others, which halves and doubles the rates of several threads.
//! So a round on several of them waits a while until the processors are as far apart as before the first one, and is repeated if they are not any
//! more when it ends; if they stay elsewhere, it counts all the same. Each sample has the distance after its round.

mod bridge;
mod cpu_samples;
mod messages;
mod packets;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lab::confined::Threads;
use lab::distance::SameDistance;
use lab::kernel::{self, KernelBench};
use lab::machine::{Probe, Spread};
use lab::sampling::{Contender, Slice};
use lab::workload::{Bench, Codec, Params, SendMode};
use serde_json::json;
use vsmp::simulation::Workload;
use vsmp::workload::messages::MESSAGE;

use bridge::BridgeOfHost;
use cpu_samples::HostSamplers;
use packets::PacketsOfHost;

use crate::data::LINUX;
use crate::plan::{HostLoad, Plan};
use crate::point::{Point, Sample};
use crate::run::{Outcome, Progress};
use crate::store::{Store, StoreError};

/// The most rounds of a load that are repeated because the processors were moved.
const MOST_REPEATED: u32 = 3;

/// Socket buffers, in bytes, as in the paper.
const BUFFER: u32 = 256 << 10;

/// What connections carry, and over which link.
#[derive(Clone, Copy)]
struct Payload {
    /// Bytes of a message.
    message: usize,
    /// How it is encoded.
    presentation: Option<Codec>,
    /// The largest IP packet on the link.
    mtu: usize,
    /// The link takes super-segments.
    offload: bool,
}

impl Payload {
    /// `None`: the subject is no stack.
    fn of(point: &Point) -> Option<Payload> {
        let bulk = Payload { message: 64 << 10, presentation: None, mtu: 1500, offload: false };
        match point.workload.as_str() {
            "" => Some(bulk),
            "mtu=9000" => Some(Payload { mtu: 9000, ..bulk }),
            "offload" => Some(Payload { offload: true, ..bulk }),
            "messages" => Some(Payload { message: MESSAGE, ..bulk }),
            "messages+xdr" => Some(Payload { message: MESSAGE, presentation: Some(Codec::FieldByField), ..bulk }),
            _ => None,
        }
    }

    /// How it is passed to the stack, in words.
    fn send(self) -> &'static str {
        if self.presentation.is_some() { "write" } else { "zero-copy" }
    }
}

/// What is measured a second time, where a figure shows it.
#[derive(Default)]
struct Again<'a> {
    /// With timed locks.
    timed: bool,
    /// With samples of the CPUs.
    sampled: Option<&'a mut HostSamplers>,
}

/// A subject that is open for the time of a load.
enum OpenSubject {
    Senders(Box<Bench>, Payload),
    Kernel(Box<KernelBench>),
    Bridge(Box<BridgeOfHost>),
    Packets(Box<PacketsOfHost>),
}

impl OpenSubject {
    fn open(point: &Point) -> Result<OpenSubject, String> {
        if point.arch == LINUX {
            let bench = KernelBench::open(&kernel_params(point)).map_err(|error| error.to_string())?;
            return Ok(OpenSubject::Kernel(Box::new(bench)));
        }
        let Some(payload) = Payload::of(point) else { return OpenSubject::open_other(point) };
        let said = |error: io::Error| error.to_string();
        let before = Threads::now().map_err(said)?;
        let bench = Bench::open(&params(point, payload)?).map_err(said)?;
        before.confine_later_ones(point.cpus as usize).map_err(said)?;
        Ok(OpenSubject::Senders(Box::new(bench), payload))
    }

    /// Opens what moves no bulk data.
    fn open_other(point: &Point) -> Result<OpenSubject, String> {
        match point.workload.parse()? {
            Workload::Bridge(load) => Ok(OpenSubject::Bridge(Box::new(BridgeOfHost::start(point, load)?))),
            Workload::Packets(traffic) => Ok(OpenSubject::Packets(Box::new(PacketsOfHost::new(point, traffic)?))),
            _ => Err(format!("`{}` is not a load that runs on a host", point.workload)),
        }
    }

    /// Measures a point of it, and once more as `again` says.
    fn sample(&mut self, point: Point, again: Again<'_>) -> io::Result<Sample> {
        let (probe, began) = (Probe::start(), Instant::now());
        let now = |point| Sample::now(point, began.elapsed().as_secs_f64(), probe.finish());
        match self {
            OpenSubject::Senders(bench, payload) => {
                let slice = bench.run_slice(Duration::from_millis(point.measured_ms()))?;
                let timed = if again.timed { Some(messages::timed_pass(bench, &point)?) } else { None };
                let length = Duration::from_millis(point.measured_ms());
                let sampled = again.sampled.map(|samplers| samplers.pass(&mut **bench, length)).transpose()?;
                let mut sample = now(point);
                fill(&mut sample, &slice, *payload);
                if let Some(sampled) = sampled {
                    cpu_samples::fill(&mut sample, &sampled);
                }
                if sample.point.has_messages() {
                    messages::fill(&mut sample, &slice, timed.as_ref());
                }
                Ok(sample)
            }
            OpenSubject::Kernel(bench) => {
                let slice = bench.run_slice(Duration::from_millis(point.measured_ms()))?;
                let mut sample = now(point);
                fill_rates(&mut sample, &slice);
                fill_kernel(&mut sample, bench.notes());
                Ok(sample)
            }
            OpenSubject::Bridge(bridge) => {
                let found = bridge.measure()?;
                let mut sample = now(point);
                bridge.fill(&mut sample, &found);
                Ok(sample)
            }
            OpenSubject::Packets(packets) => {
                let found = packets.measure(again.timed).map_err(io::Error::other)?;
                let mut sample = now(point);
                packets.fill(&mut sample, &found).map_err(io::Error::other)?;
                Ok(sample)
            }
        }
    }
}

/// Measures the loads of a plan that are missing.
///
/// # Errors
/// The store cannot be written. Earlier samples are kept.
pub fn measure(
    plan: &Plan,
    store: &mut Store,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, StoreError> {
    let loads = plan.missing(store).host;
    let mut outcome = Outcome::default();
    let mut distance = None;
    for (index, load) in loads.iter().enumerate() {
        let mut tell = |doing: String, store: &Store| {
            let rest = Plan { host: loads[index..].to_vec(), rounds: plan.rounds, ..Plan::default() };
            progress(&Progress { doing, done: index, of: loads.len(), left: rest.estimate(store, 1) });
        };
        if stop.load(Relaxed) {
            outcome.stopped = true;
            break;
        }
        let several = load.points.iter().any(|point| point.cpus > 1);
        if several && distance.is_none() {
            distance = SameDistance::as_now();
        }
        let distance = distance.as_mut().filter(|_| several);
        outcome = outcome.and(one_load(load, plan.rounds, (store, distance), stop, &mut tell)?);
    }
    Ok(outcome)
}

fn one_load(
    load: &HostLoad,
    rounds: u64,
    (store, mut distance): (&mut Store, Option<&mut SameDistance>),
    stop: &AtomicBool,
    tell: &mut dyn FnMut(String, &Store),
) -> Result<Outcome, StoreError> {
    let mut outcome = Outcome::default();
    let mut contenders: Vec<(Point, OpenSubject)> = Vec::new();
    for point in &load.points {
        tell(format!("opening {}, {}", point.arch, load.name), store);
        match OpenSubject::open(point) {
            Ok(subject) => contenders.push((point.clone(), subject)),
            Err(reason) => outcome.failed.push((name(point), reason)),
        }
    }
    let mut samplers = load.points.iter().any(|point| load.is_sampled(point)).then(HostSamplers::open);
    let warming = load.warm_ups();
    let mut number = load.last(store);
    let mut done = load.rounds(store);
    let mut repeated = 0;
    for turn in 0.. {
        if done >= rounds || contenders.is_empty() {
            break;
        }
        if stop.load(Relaxed) {
            outcome.stopped = true;
            break;
        }
        let warm = turn < warming;
        let what = if warm { "warming up".to_owned() } else { format!("round {} of {rounds}", done + 1) };
        tell(format!("{}, {what}", load.name), store);
        // The store is in the order of measurement; the first subject changes from round to round.
        contenders.rotate_left(usize::from(turn > 0));
        let of_load = (!warm).then_some((load, samplers.as_mut()));
        let began = distance.as_deref_mut().is_none_or(SameDistance::wait);
        let mut round = one_round(&mut contenders, number + 1, of_load, &mut outcome);
        let trip = distance.as_deref_mut().and_then(SameDistance::now_ns);
        let moved = distance.as_deref().zip(trip).is_some_and(|(distance, trip)| !distance.is_like(trip));
        if !warm && began && moved && repeated < MOST_REPEATED {
            repeated += 1;
            continue;
        }
        if !warm && !round.is_empty() {
            round.iter_mut().for_each(|sample| sample.host.round_trip_ns = Spread::of(trip.iter()));
            (number, done) = (number + 1, done + 1);
            outcome.measured += round.len();
            store.append(round)?;
        }
    }
    Ok(outcome)
}

/// A sample of each, without what is measured a second time if `of_load` is `None`. One that fails is left out from now on.
fn one_round(
    contenders: &mut Vec<(Point, OpenSubject)>,
    number: u64,
    mut of_load: Option<(&HostLoad, Option<&mut HostSamplers>)>,
    outcome: &mut Outcome,
) -> Vec<Sample> {
    let mut round = Vec::new();
    contenders.retain_mut(|(point, subject)| {
        let again = of_load.as_mut().map(|(load, samplers)| Again {
            timed: load.is_timed(point),
            sampled: samplers.as_deref_mut().filter(|_| load.is_sampled(point)),
        });
        match subject.sample(Point { seed: number, ..point.clone() }, again.unwrap_or_default()) {
            Ok(sample) => {
                round.push(sample);
                true
            }
            Err(error) => {
                outcome.failed.push((name(point), error.to_string()));
                false
            }
        }
    });
    round
}

/// A subject in a message.
fn name(point: &Point) -> String {
    let cpus = if point.workload.is_empty() { String::new() } else { format!(" on {} CPUs", point.cpus) };
    format!("{}{cpus}, {}, on this host", point.arch, point.load())
}

/// Both ends of a connection are on one thread, as with a stack under test.
fn kernel_params(point: &Point) -> kernel::Params {
    let buffer = Some(BUFFER as usize);
    let (connections, threads) = (point.connections, point.cpus);
    kernel::Params { connections, threads, send_buffer: buffer, receive_buffer: buffer, ..kernel::Params::default() }
}

fn params(point: &Point, payload: Payload) -> Result<Params, String> {
    let Payload { message, presentation, mtu, offload } = payload;
    let arch = point.arch.parse().map_err(|error| format!("{error}"))?;
    let lock = point.lock.parse().map_err(|error| format!("{error}"))?;
    let (connections, threads, send) = (point.connections, point.cpus, SendMode::Shared);
    // Spread evenly, as in the papers: another thread receives most connections. And an event for each segment.
    let (affinity, runs) = (false, false);
    let buffer = Some(BUFFER);
    let link = Params { mtu, offload, ..Params::new(arch) };
    Ok(Params { lock, connections, threads, message, presentation, send, affinity, runs, buffer, ..link })
}

/// What every contender shows.
fn fill_rates(sample: &mut Sample, slice: &Slice) {
    let mut value = |name: &str, number: f64| _ = sample.values.insert(name.to_owned(), number);
    value("throughput_mbps", 1e3 * slice.gbps());
    value("cpu_s_per_gb", slice.cpu_s_per_gb());
    value("switches_per_gb", slice.switches_per_gb());
}

fn fill_kernel(sample: &mut Sample, notes: &[String]) {
    let parameters = json!({
        "workload": "bulk", "send": "sendfile", "buffer_bytes": BUFFER, "message_bytes": 64 << 10, "ipv6": false,
        "device": "the kernel's loopback interface", "notes": notes,
    });
    if let serde_json::Value::Object(parameters) = parameters {
        sample.parameters = parameters;
    }
}

fn fill(sample: &mut Sample, slice: &Slice, payload: Payload) {
    fill_rates(sample, slice);
    let mut value = |name: &str, number: f64| _ = sample.values.insert(name.to_owned(), number);
    slice.fairness.into_iter().for_each(|fairness| value("fairness", fairness));
    value("handoffs_per_kb", slice.exact.handoffs as f64 / (slice.bytes as f64 / 1024.0).max(1.0));
    for lock in slice.exact.locks.iter().filter(|lock| lock.acquired > 0) {
        value(&format!("failures_percent.{}", lock.class), 100.0 * lock.first_try_failed as f64 / lock.acquired as f64);
    }
    let parameters = json!({
        "workload": "bulk", "send": payload.send(), "buffer_bytes": BUFFER, "mtu": payload.mtu,
        "message_bytes": payload.message, "presentation": payload.presentation.map(|_| "XDR, field by field"),
        "segmentation_offload": payload.offload, "ipv6": false, "checksums": "computed and verified in software",
        "device": "mem (two linked ports in this process)",
    });
    if let serde_json::Value::Object(parameters) = parameters {
        sample.parameters = parameters;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Findings;
    use crate::plan::Effort;
    use crate::{Paper, data::Selected, point::Place};

    /// The loads of a figure on this host, in two rounds.
    fn loads(paper: &str, figure: &str) -> Vec<HostLoad> {
        let papers = Paper::all();
        let paper = papers.iter().find(|known| known.id == paper).unwrap();
        let selected = [Selected { paper, figures: vec![paper.figure(figure).unwrap()] }];
        let (effort, host) = (Effort { full: false, seeds: 2 }, Probe::start().finish());
        Plan::new(&selected, &[Place::Host], effort, &host).unwrap().host
    }

    fn run(load: &HostLoad, rounds: u64, store: &mut Store, stop: bool) -> Outcome {
        let plan = Plan { host: vec![load.clone()], rounds, ..Plan::default() };
        measure(&plan, store, &AtomicBool::new(stop), &mut |_| {}).unwrap()
    }

    /// One small load for real: two rounds, then none, then one more.
    #[test]
    fn a_load_of_this_host_is_measured_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut load = loads("willmann", "fig2").remove(0);
        load.points.truncate(2);
        load.points.iter_mut().for_each(|point| point.slice_ms = 5);
        let mut store = Store::open(directory.path()).unwrap();
        let first = run(&load, 2, &mut store, false);
        assert_eq!((first.measured, first.failed.len(), first.stopped), (4, 0, false), "{first:?}");
        assert_eq!(run(&load, 2, &mut store, false).measured, 0);
        assert_eq!(run(&load, 3, &mut store, false).measured, 2);
        let stopped = run(&load, 9, &mut store, true);
        assert!(stopped.stopped && stopped.measured == 0);
        // A slice of five milliseconds may be over before a busy host has moved anything.
        assert!(store.samples().iter().all(|sample| sample.values["throughput_mbps"].is_finite()));
        assert_eq!(load.rounds(&store), 3);
    }

    /// Bridges for real, with one frame size: every figure of the paper finds its value in the samples, and the handler that
    /// takes one frame is told from the one that takes all.
    #[test]
    fn bridges_of_this_host_are_measured_as_the_tables_need_them() {
        let directory = tempfile::tempdir().unwrap();
        let load = loads("netbsd", "tab3").remove(0);
        let mut store = Store::open(directory.path()).unwrap();
        let outcome = run(&load, 1, &mut store, false);
        assert_eq!((outcome.measured, outcome.failed.len()), (load.points.len(), 0), "{outcome:?}");
        let workloads: Vec<&str> = store.samples().iter().map(|sample| sample.point.workload.as_str()).collect();
        for wanted in ["bridge+generic+bytes=74", "bridge+generic+work=1+bytes=74", "bridge+mpsafe+bytes=74"] {
            assert!(workloads.contains(&wanted), "{workloads:?}");
        }
        for sample in store.samples() {
            let [frames, megabits] = ["frames_kfps", "throughput_mbps"].map(|name| sample.values[name]);
            assert!(frames > 0.0 && (megabits - frames * 0.592).abs() < 1e-6 * megabits, "{sample:?}");
        }
        let papers = Paper::all();
        let paper = papers.iter().find(|paper| paper.id == "netbsd").unwrap();
        let host = Probe::start().finish();
        let findings = Findings::of(paper, store.samples(), &host);
        for figure in &findings.figures {
            let measured: Vec<&str> =
                figure.rows.iter().filter(|row| row.host.is_some()).map(|row| row.subject).collect();
            let able = |name: &&String| paper.subject(name).unwrap().lacks_on_host(host.cores).is_none();
            assert_eq!(measured, figure.figure.subjects.iter().filter(able).collect::<Vec<_>>(), "{}", figure.id);
        }
    }

    /// Packets for real, on one CPU: every figure over processors that runs here has a value of each subject, and where one
    /// thread carries all packets they keep their order.
    #[test]
    fn packets_of_this_host_are_measured_as_the_figures_need_them() {
        let directory = tempfile::tempdir().unwrap();
        let mut load = loads("nahum", "locking").remove(0);
        // Long enough for a thread of a busy host to carry something.
        load.points.iter_mut().for_each(|point| point.slice_ms = 50);
        let mut store = Store::open(directory.path()).unwrap();
        let outcome = run(&load, 1, &mut store, false);
        assert_eq!((outcome.measured, outcome.failed.len()), (load.points.len(), 0), "{outcome:?}");
        for sample in store.samples() {
            assert!(sample.values["throughput_mbps"].is_finite());
            assert_eq!(sample.values.contains_key("waiting_percent"), load.is_timed(&sample.point), "{sample:?}");
            let disorder = ["out_of_order_percent", "inversions_percent"].map(|name| sample.values[name]);
            assert_eq!((sample.point.cpus, disorder), (1, [0.0; 2]), "{sample:?}");
        }
        let papers = Paper::all();
        let paper = papers.iter().find(|paper| paper.id == "nahum").unwrap();
        let findings = Findings::of(paper, store.samples(), &Probe::start().finish());
        let figures: Vec<_> =
            findings.figures.iter().filter(|figure| figure.figure.loads(false).contains(&1)).collect();
        let runs: Vec<_> =
            figures.iter().filter(|figure| figure.figure.reason_not_to_run(Place::Host).is_none()).collect();
        assert_eq!((figures.len(), runs.len()), (13, 11));
        for figure in runs {
            let alone = figure.rows.iter().filter(|row| row.connections == 1 && row.host.is_some());
            assert_eq!(alone.count(), figure.figure.subjects.len(), "{}", figure.id);
        }
    }

    /// The kernel beside the stacks: on one CPU, on all of them, and for nine times as long.
    #[test]
    fn the_kernel_of_this_host_is_a_subject() {
        let directory = tempfile::tempdir().unwrap();
        let mut load = loads("willmann", "fig3").remove(0);
        load.points.retain(|point| point.arch == LINUX);
        load.points.iter_mut().for_each(|point| point.slice_ms = 5);
        let mut store = Store::open(directory.path()).unwrap();
        let outcome = run(&load, 1, &mut store, false);
        assert_eq!((outcome.measured, outcome.failed.len()), (3, 0), "{outcome:?}");
        // The first subject changes from round to round.
        let mut lengths: Vec<u64> = store.samples().iter().map(|sample| sample.point.measured_ms()).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [5, 5, 45]);
        assert!(store.samples().iter().all(|sample| sample.values["throughput_mbps"].is_finite()));
    }

    /// Messages through a presentation layer: what they deliver is counted by connection.
    #[test]
    fn messages_of_this_host_have_their_fairness() {
        let directory = tempfile::tempdir().unwrap();
        let mut load = loads("yates", "fairness").remove(0);
        load.points.truncate(1);
        load.points.iter_mut().for_each(|point| (point.slice_ms, point.connections) = (300, 4));
        let mut store = Store::open(directory.path()).unwrap();
        let outcome = run(&load, 1, &mut store, false);
        assert_eq!((outcome.measured, outcome.failed.len()), (1, 0), "{outcome:?}");
        let sample = &store.samples()[0];
        assert_eq!(sample.parameters["presentation"], "XDR, field by field");
        // One of four connections alone would have a quarter.
        assert!((0.25..=1.0).contains(&sample.values["fairness"]), "{sample:?}");
    }

    /// Samples stored before affinity became the default of the lab belong to the same points.
    #[test]
    fn connections_are_spread_evenly_as_in_the_papers() {
        let point = &loads("willmann", "fig2")[0].points[0];
        assert!(
            !params(point, Payload::of(point).unwrap()).unwrap().affinity
                && Params::new(point.arch.parse().unwrap()).affinity
        );
    }

    #[test]
    fn a_workload_that_no_host_runs_is_refused_by_name() {
        let point = &loads("netbsd", "tab3")[0].points[0];
        let point = Point { workload: "senders".to_owned(), ..point.clone() };
        let refused = OpenSubject::open(&point).err().unwrap();
        assert_eq!(refused, "`senders` is not a load that runs on a host");
    }
}
