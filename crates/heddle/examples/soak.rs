//! The long form of the fault matrix: cells drawn from a seed, every pair of architectures in turn, until the time is
//! up. `cargo xtask soak` runs it.
//!
//! A cell is determined by its seed: `--replay SEED` runs it again, byte by byte the same, and prints it.

#[path = "../tests/matrix/cell.rs"]
mod cell;
#[path = "../tests/matrix/flow.rs"]
mod flow;
#[path = "../tests/matrix/probability.rs"]
mod probability;
#[path = "../tests/matrix/run.rs"]
mod run;
#[path = "../tests/world/mod.rs"]
mod world;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use heddle::Counter;
use heddle::device::fault::Pcg;
use sha2::{Digest, Sha256};

use cell::Cell;

/// Interval of progress reports.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Move random data through faulty links under every pair of architectures, in virtual time.
#[derive(Parser)]
struct Args {
    /// Duration of the run
    #[arg(long, default_value_t = 1, value_name = "N")]
    minutes: u64,
    /// Seed of the cells
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Run the one cell of this seed, twice, and compare the traffic
    #[arg(long, value_name = "SEED", value_parser = seed)]
    replay: Option<u64>,
    /// With --replay: record the frames of the server's device
    #[arg(long, value_name = "FILE", requires = "replay")]
    pcap: Option<PathBuf>,
}

fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is no seed: write it as 0x1f03 or 7939"))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.replay {
        Some(seed) => replay(seed, args.pcap),
        None => soak(args.seed, Duration::from_secs(60 * args.minutes)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("soak: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The progress so far.
#[derive(Default)]
struct Tally {
    cells: u64,
    bytes: u64,
    segments: u64,
    sent_again: u64,
    virtual_time: Duration,
    failed: Vec<u64>,
}

fn soak(seed: u64, time: Duration) -> Result<(), String> {
    let start = Instant::now();
    let (mut rng, mut tally, mut told) = (Pcg::new(seed, 0), Tally::default(), start);
    while start.elapsed() < time {
        let high = (u64::from(rng.next_u32()) << 32) | u64::from(rng.next_u32());
        // The pairs of architectures in turn, so that every 256 cells include all of them.
        let cell = Cell::draw((high << 8) | (tally.cells % 256));
        match run::run(&cell, None) {
            Ok(outcome) => {
                tally.bytes += 2 * (cell.queues * cell.bytes) as u64;
                tally.segments += outcome.counters.get(Counter::SegmentsOut);
                tally.sent_again += outcome.counters.get(Counter::Retransmits);
                tally.virtual_time += outcome.took;
            }
            Err(wrong) => {
                println!("FAILED {:#x}: {cell}: {wrong}", cell.seed);
                println!("  again: cargo xtask soak --replay {:#x}", cell.seed);
                tally.failed.push(cell.seed);
            }
        }
        tally.cells += 1;
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            tell(&tally, start.elapsed());
        }
    }
    tell(&tally, start.elapsed());
    if tally.failed.is_empty() { Ok(()) } else { Err(format!("{} cells failed", tally.failed.len())) }
}

fn tell(tally: &Tally, elapsed: Duration) {
    let Tally { cells, bytes, segments, sent_again, virtual_time, failed } = tally;
    println!(
        "{:5} s: {cells} cells ({} rounds of 256 pairs), {bytes} bytes, {segments} segments, {sent_again} sent again, \
         {} virtual minutes, {} failed",
        elapsed.as_secs(),
        cells / 256,
        virtual_time.as_secs() / 60,
        failed.len()
    );
}

/// A hash of all recorded frames with their times.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Sha256>>);

impl Write for Trace {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn traced(cell: &Cell) -> (Result<run::Outcome, String>, String) {
    let trace = Trace::default();
    let outcome = run::run(cell, Some(Box::new(trace.clone())));
    let hash = trace.0.lock().unwrap_or_else(PoisonError::into_inner).clone().finalize();
    (outcome, hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn replay(seed: u64, pcap: Option<PathBuf>) -> Result<(), String> {
    let cell = Cell::draw(seed);
    println!("{cell}");
    let ((outcome, first), (_, second)) = (traced(&cell), traced(&cell));
    println!("trace {first}");
    if first != second {
        return Err(format!("the second run is another: {second}"));
    }
    if let Some(path) = pcap {
        let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let recorded = run::run(&cell, Some(Box::new(file)));
        println!("recorded to {}", path.display());
        recorded?;
    }
    let outcome = outcome?;
    println!("took {:?} of virtual time, longest pause {:?}", outcome.took, outcome.longest_pause);
    println!("{:?}", outcome.counters);
    Ok(())
}
