//! The costs of cache lines: one that another CPU has changed, one that it has as well, one from behind the private
//! caches, and the lines that follow another one. Then atomics, and bytes that are copied and summed.
//!
//! The second CPU brings lines into a state (it writes them, or reads them), and the first CPU accesses them. Reads
//! follow a chain through the lines, so that each waits for the one before; the chain has no order that a prefetcher
//! finds.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use sync::{Platform, Real};

use super::cost::Cost;

/// Lines of a chain, 256 bytes apart: neighbours are not fetched with them.
const CHAIN: usize = 256;
/// Lines read one after the other, and such blocks. Half a megabyte in all.
const BLOCK: usize = 24;
const BLOCKS: usize = 64;
/// Times that the lines change hands.
const ROUNDS: usize = 300;

/// Costs of memory, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// A line that another CPU has changed.
    pub transfer: Cost,
    /// A write to a line that another CPU has, too.
    pub upgrade: Cost,
    /// A line from behind the private caches.
    pub memory: Cost,
    /// A line that another CPU has changed and that follows such a line.
    pub following: Cost,
    /// An atomic read-modify-write of a line that the CPU has.
    pub read_modify_write: Cost,
    /// A turn of a spin loop.
    pub relax: Cost,
    /// 64 bytes of payload, copied and summed, or summed.
    pub payload_line: Cost,
}

/// A line of a chain: the number of the next one.
#[repr(align(256))]
struct Link(AtomicUsize);

/// A chain of this many lines in a pseudo-random order that visits each once.
fn chain(lines: usize) -> Vec<Link> {
    let mut order: Vec<usize> = (0..lines).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    // Sattolo's shuffle: one cycle.
    for last in (1..lines).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % last);
    }
    order.into_iter().map(|next| Link(AtomicUsize::new(next))).collect()
}

fn follow(chain: &[Link], steps: usize) {
    let mut at = 0;
    (0..steps).for_each(|_| at = chain[at].0.load(Ordering::Relaxed));
    black_box(at);
}

fn write_all(chain: &[Link]) {
    // The value stays: what counts is that the line is written.
    chain.iter().for_each(|link| link.0.store(link.0.load(Ordering::Relaxed), Ordering::Relaxed));
}

fn nanos(of: impl FnOnce()) -> f64 {
    let started = Instant::now();
    of();
    started.elapsed().as_nanos() as f64
}

/// Has the second CPU prepare, and then the first measure, [`ROUNDS`] times. Each CPU waits for the other by spinning.
fn in_turns(cpus: [usize; 2], prepare: impl Fn() + Sync, measure: impl Fn() -> f64 + Sync) -> Cost {
    let (turn, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let wait = |mine: u64| {
        let mut spins = 0;
        while turn.load(Ordering::Acquire) % 2 != mine && !over.load(Ordering::Relaxed) {
            Real::relax(spins);
            spins += 1;
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = Real::pin(cpus[1]);
            while !over.load(Ordering::Relaxed) {
                wait(0);
                prepare();
                turn.fetch_add(1, Ordering::AcqRel);
            }
        });
        let first = scope.spawn(|| {
            let _ = Real::pin(cpus[0]);
            let measured = (0..ROUNDS).map(|_| {
                wait(1);
                let measured = measure();
                turn.fetch_add(1, Ordering::AcqRel);
                measured
            });
            let cost = Cost::of(measured.collect());
            over.store(true, Ordering::Relaxed);
            cost
        });
        first.join().expect("it only reads and writes memory")
    })
}

impl Lines {
    /// Measures on two CPUs; the private caches of one have this many bytes.
    pub fn measure(cpus: [usize; 2], private_cache: usize) -> Lines {
        let links = chain(CHAIN);
        let per_line = |first: f64, again: f64| (first - again).max(0.0) / CHAIN as f64;
        let transfer = in_turns(
            cpus,
            || write_all(&links),
            || per_line(nanos(|| follow(&links, CHAIN)), nanos(|| follow(&links, CHAIN))),
        );
        // A read-modify-write with no effect would become a load.
        let write = || links.iter().for_each(|link| _ = link.0.swap(link.0.load(Ordering::Relaxed), Ordering::AcqRel));
        // The first CPU has the lines modified, the second reads them.
        let upgrade = in_turns(cpus, || follow(&links, CHAIN), || per_line(nanos(write), nanos(write)));
        let [memory, read_modify_write, relax, payload_line] = alone(cpus[0], private_cache);
        Lines { transfer, upgrade, memory, following: following(cpus), read_modify_write, relax, payload_line }
    }
}

/// Blocks of lines in a row, each in pages of its own.
fn following(cpus: [usize; 2]) -> Cost {
    let words_of_a_line = 8;
    let stride = 8192 / size_of::<u64>();
    let words: Vec<AtomicU64> = (0..BLOCKS * stride).map(|_| AtomicU64::new(1)).collect();
    let block = |number: usize, lines: usize| &words[number * stride..][..lines * words_of_a_line];
    // Multiplied, so that blocks are not visited in the order of their addresses.
    let visit = |lines: usize| {
        let sum = |number: usize| block(number * 37 % BLOCKS, lines).iter().map(|word| word.load(Ordering::Relaxed));
        black_box((0..BLOCKS).flat_map(sum).sum::<u64>());
    };
    let write = || words.iter().for_each(|word| word.store(1, Ordering::Relaxed));
    let per_block = |lines: usize| {
        in_turns(cpus, write, || (nanos(|| visit(lines)) - nanos(|| visit(lines))).max(0.0) / BLOCKS as f64)
    };
    let (one, all) = (per_block(1), per_block(BLOCK));
    all.less(one.nanos).over((BLOCK - 1) as f64)
}

/// Memory, atomics, a turn of a spin loop, and payload, on one CPU.
fn alone(cpu: usize, private_cache: usize) -> [Cost; 4] {
    let measure = move || {
        let _ = Real::pin(cpu);
        // Four times what the private caches hold, a line in each 256 bytes.
        let far = chain(private_cache / 64);
        let steps = 20_000;
        let mut memory = Cost::measure(30, steps, || follow(&far, steps as usize));
        let near = chain(64);
        memory = memory.less(Cost::measure(30, steps, || follow(&near, steps as usize)).nanos);
        let word = AtomicU64::new(0);
        let rmw = Cost::measure(100, 1000, || {
            (0..1000).for_each(|_| _ = black_box(&word).fetch_add(1, Ordering::AcqRel));
        });
        let relax = Cost::measure(100, 1000, || (0..1000).for_each(|_| spin_loop()));
        let (source, mut target) = (vec![7_u8; 1448], vec![0_u8; 1448]);
        let lines = 2 * 1448_u32.div_ceil(64);
        let payload = Cost::measure(200, 64 * lines, || {
            for _ in 0..64 {
                let _ = black_box(pktbuf::copy_and_sum(&mut target, black_box(&source)));
                let _ = black_box(pktbuf::sum(black_box(&target)));
            }
        });
        [memory, rmw, relax, payload]
    };
    thread::spawn(measure).join().expect("it only reads and writes memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_visits_each_line_once() {
        let links = chain(100);
        let mut seen = [false; 100];
        let mut at = 0;
        for _ in 0..100 {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = links[at].0.load(Ordering::Relaxed);
        }
        assert_eq!(at, 0);
    }
}
