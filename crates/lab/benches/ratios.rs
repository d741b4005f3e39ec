//! Heddle beside other stacks and beside the floor, as ratios: `cargo bench -p heddle-lab --bench ratios`, with
//! `--features smoltcp` for the rows that smoltcp is the measure of.
//!
//! The contenders of a row run alternately in slices of the same seconds; a ratio is taken within each of five rounds,
//! and printed as the median of the rounds with the least and the greatest. Nothing is asserted about time. An argument
//! selects the sections whose title contains it; `--smoke` runs each once, briefly. `--even-spread` spreads connections
//! over the threads as the papers do, whichever thread receives them.

use std::io;

use heddle::Architecture;
use lab::kernel::{self, KernelBench, most_connections};
use lab::result::Workload;
use lab::sampling::{Contender, Runner, Samples, Schedule, Slice};
use lab::stats::median;
use lab::workload::{Bench, Floors, Params};

/// The data of a full segment.
const SEGMENT: usize = 1448;

/// One alternation: contenders, and the ratios to print of them.
struct Section {
    title: &'static str,
    workload: Workload,
    connections: u32,
    contenders: Vec<Box<dyn Contender>>,
    ratios: Vec<Ratio>,
}

/// A row: the contenders above and below the line, by their numbers; with four, the ratio of two ratios.
struct Ratio {
    of: &'static str,
    above: usize,
    below: usize,
    relative_to: Option<(usize, usize)>,
}

impl Section {
    fn new(title: &'static str, workload: Workload, connections: u32) -> Section {
        Section { title, workload, connections, contenders: Vec::new(), ratios: Vec::new() }
    }

    /// Adds one of our architectures and returns its number.
    fn heddle(&mut self, arch: &str, threads: u32, offload: bool) -> io::Result<usize> {
        let params = Params { threads, offload, ..self.params(arch)? };
        self.open(&params)
    }

    /// The parameters of one of our architectures, on every processor.
    fn params(&self, arch: &str) -> io::Result<Params> {
        let arch: Architecture = arch.parse().map_err(io::Error::other)?;
        Ok(Params { connections: self.connections, affinity: !given("--even-spread"), ..Params::new(arch) })
    }

    fn open(&mut self, params: &Params) -> io::Result<usize> {
        let bench = match self.workload {
            Workload::Bulk => Bench::open(params)?,
            Workload::Rpc => Bench::open_rpc(params)?,
            Workload::Connect => Bench::open_connect(params)?,
        };
        Ok(self.add(bench))
    }

    fn add(&mut self, contender: impl Contender + 'static) -> usize {
        self.contenders.push(Box::new(contender));
        self.contenders.len() - 1
    }

    fn floor(&mut self, segment: usize, threads: u32) -> io::Result<usize> {
        let floors = Floors::start(segment, self.connections, threads)?;
        Ok(self.add(floors))
    }

    fn linux(&mut self, threads: u32) -> io::Result<usize> {
        let connections = most_connections(self.connections, threads);
        let params = kernel::Params { connections, threads, ..kernel::Params::default() };
        let bench = KernelBench::open(&params).map_err(io::Error::other)?;
        Ok(self.add(bench))
    }

    #[cfg(feature = "smoltcp")]
    fn smoltcp(&mut self) -> io::Result<Option<usize>> {
        use lab::smoltcp::{Params, SmoltcpBench};
        let params = Params {
            connections: self.connections,
            threads: 1,
            message: 64 << 10,
            request: 64,
            mtu: 1500,
            buffer: Some(256 << 10),
        };
        let bench = SmoltcpBench::open(self.workload, &params)?;
        Ok(Some(self.add(bench)))
    }

    #[cfg(not(feature = "smoltcp"))]
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "the same call with and without the feature")]
    fn smoltcp(&mut self) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn ratio(&mut self, of: &'static str, above: usize, below: usize) {
        self.ratios.push(Ratio { of, above, below, relative_to: None });
    }

    fn run(mut self, schedule: Schedule) {
        let figure = if self.workload == Workload::Bulk { Slice::gbps } else { Slice::operations_per_second };
        let mut contenders: Vec<&mut dyn Contender> =
            self.contenders.iter_mut().map(|contender| contender.as_mut() as &mut dyn Contender).collect();
        let samples = Runner::new(schedule).run(&mut contenders, || None, |_| {});
        println!("\n{}", self.title);
        if self.ratios.is_empty() {
            println!("  nothing to compare with: --features smoltcp");
        }
        for failed in &samples {
            failed.failed.iter().for_each(|reason| println!("  {} ended: {reason}", failed.name));
        }
        let rounds = |above: usize, below: usize| -> Vec<f64> {
            let figures = |samples: &Samples| samples.series(figure);
            figures(&samples[above]).iter().zip(figures(&samples[below])).map(|(above, below)| above / below).collect()
        };
        for Ratio { of, above, below, relative_to } in &self.ratios {
            let mut ratios = rounds(*above, *below);
            if let Some((above, below)) = relative_to {
                ratios.iter_mut().zip(rounds(*above, *below)).for_each(|(ratio, other)| *ratio /= other);
            }
            print_row(of, &ratios);
        }
    }
}

fn print_row(of: &str, ratios: &[f64]) {
    let (least, greatest) = ratios.iter().fold((f64::INFINITY, 0.0_f64), |(l, g), r| (l.min(*r), g.max(*r)));
    match median(ratios) {
        Some(median) => println!("  {of:56} {median:7.3}  ({least:.3} to {greatest:.3}, {} rounds)", ratios.len()),
        None => println!("  {of:56} not measured"),
    }
}

/// One thread beside smoltcp.
fn beside_smoltcp(title: &'static str, workload: Workload, connections: u32) -> io::Result<Section> {
    let mut section = Section::new(title, workload, connections);
    let ours = section.heddle("up", 1, false)?;
    let theirs = section.smoltcp()?;
    if let Some(theirs) = theirs {
        section.ratio("up / smoltcp", ours, theirs);
    }
    if workload == Workload::Rpc {
        let params = section.params("up")?;
        let handlers = section.open(&Params { threads: 1, handlers: true, ..params })?;
        section.ratio("up, handlers / up", handlers, ours);
        if let Some(theirs) = theirs {
            section.ratio("up, handlers / smoltcp", handlers, theirs);
        }
    }
    if workload == Workload::Bulk {
        let floor = section.floor(SEGMENT, 1)?;
        section.ratio("up / floor", ours, floor);
    }
    Ok(section)
}

/// Connections that are used, beside connections that are not.
fn beside_idle(title: &'static str, workload: Workload, connections: u32) -> io::Result<Section> {
    let mut section = Section::new(title, workload, connections);
    let alone = section.heddle("up", 1, false)?;
    for (idle, of) in [(1, "beside 1 idle / alone"), (1000, "beside 1000 / alone"), (100_000, "beside 100 000 / alone")]
    {
        let idle = if given("--smoke") { 1 } else { idle };
        let params = section.params("up")?;
        let beside = section.open(&Params { threads: 1, idle, ..params })?;
        section.ratio(of, beside, alone);
    }
    Ok(section)
}

/// Bulk data on two processors, beside Linux on loopback: with our own segments, and with those of the device.
fn beside_linux(title: &'static str, connections: u32) -> io::Result<Section> {
    let mut section = Section::new(title, Workload::Bulk, connections);
    let ours = section.heddle("connp-l:128", 2, false)?;
    let offloaded = section.heddle("connp-l:128", 2, true)?;
    let linux = section.linux(2)?;
    let floor = section.floor(SEGMENT, 2)?;
    section.ratio("connp-l:128 / Linux on loopback", ours, linux);
    section.ratio("connp-l:128, offloaded / Linux on loopback", offloaded, linux);
    section.ratio("connp-l:128 / floor on two threads", ours, floor);
    Ok(section)
}

/// The gain of the second processor, relative to its gain for work that shares nothing.
fn second_core(title: &'static str, workload: Workload, connections: u32) -> io::Result<Section> {
    let mut section = Section::new(title, workload, connections);
    let (two, one) = (section.heddle("connp-l:128", 2, false)?, section.heddle("connp-l:128", 1, false)?);
    let segment = if workload == Workload::Bulk { SEGMENT } else { 64 };
    let (floors, floor) = (section.floor(segment, 2)?, section.floor(segment, 1)?);
    section.ratio("connp-l:128, two threads / one", two, one);
    section.ratio("floor, two threads / one", floors, floor);
    let relative_to = Some((floors, floor));
    section.ratios.push(Ratio { of: "the first / the second", above: two, below: one, relative_to });
    Ok(section)
}

/// Protocol threads that own connections, beside locks on groups of them.
fn owners(title: &'static str, workload: Workload, connections: u32) -> io::Result<Section> {
    let mut section = Section::new(title, workload, connections);
    let (owners, groups) = (section.heddle("connp-t", 2, false)?, section.heddle("connp-l:128", 2, false)?);
    section.ratio("connp-t / connp-l:128, two threads", owners, groups);
    Ok(section)
}

type Open = fn(&'static str, Workload, u32) -> io::Result<Section>;

const SECTIONS: [(&str, Workload, u32, Open); 13] = [
    ("RPC of 64 bytes, one connection, one thread", Workload::Rpc, 1, beside_smoltcp),
    ("RPC of 64 bytes, 64 connections, one thread", Workload::Rpc, 64, beside_smoltcp),
    ("RPC of 64 bytes, 16384 connections, one thread", Workload::Rpc, 16_384, beside_smoltcp),
    ("RPC of 64 bytes, 64 connections beside idle ones, one thread", Workload::Rpc, 64, beside_idle),
    ("set-up and close, 64 at once (smoltcp: one), one thread", Workload::Connect, 64, beside_smoltcp),
    ("bulk, 6 connections, one thread", Workload::Bulk, 6, beside_smoltcp),
    ("bulk, 6 connections, two threads", Workload::Bulk, 6, |title, _, connections| beside_linux(title, connections)),
    ("bulk, 16384 connections, two threads", Workload::Bulk, 16_384, |title, _, connections| {
        beside_linux(title, connections)
    }),
    ("second processor: bulk, 6 connections", Workload::Bulk, 6, second_core),
    ("second processor: RPC, 64 connections", Workload::Rpc, 64, second_core),
    ("second processor: set-up and close, 64 at once", Workload::Connect, 64, second_core),
    ("owners: bulk, 6 connections", Workload::Bulk, 6, owners),
    ("owners: RPC, 64 connections", Workload::Rpc, 64, owners),
];

/// Whether the command line has this option.
fn given(option: &str) -> bool {
    std::env::args().any(|arg| arg == option)
}

fn main() {
    let smoke = given("--smoke");
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (title, workload, connections, open) in SECTIONS {
        if !wanted.is_empty() && !wanted.iter().any(|part| title.contains(part.as_str())) {
            continue;
        }
        let connections = if smoke { connections.min(8) } else { connections };
        // With thousands of connections each is served rarely, so its start takes longer.
        let warmup_slices = 1 + connections as usize / 4096;
        let schedule = if smoke {
            Schedule { warmup_slices: 0, repetitions: 1, slice_ms: 5 }
        } else {
            Schedule { warmup_slices, repetitions: 5, slice_ms: 300 }
        };
        match open(title, workload, connections) {
            Ok(section) => section.run(schedule),
            Err(error) => println!("\n{title}\n  not measured: {error}"),
        }
    }
}
