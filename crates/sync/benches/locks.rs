//! The cost of a pair of operations: uncontended lock and unlock, per kind and against the standard library's mutex;
//! push and pop; the exclusive cells. Prints the best of several rounds in nanoseconds, because disturbances only add.
//!
//! `--smoke` runs each once, briefly, to check that it still runs.

use std::hint::black_box;
use std::time::Instant;

use sync::ring::{Mpsc, spsc};
use sync::{Lock, LockClass, LockKind, Parker, Platform, Real, ThreadOwned};

struct Bench {
    rounds: u32,
    pairs: u32,
    base_ns: f64,
}

impl Bench {
    /// Best time of one `pair`, in nanoseconds.
    fn time(&self, mut pair: impl FnMut()) -> f64 {
        let round = |_| {
            let start = Instant::now();
            (0..self.pairs).for_each(|_| pair());
            start.elapsed().as_nanos() as f64 / f64::from(self.pairs)
        };
        (0..self.rounds).map(round).fold(f64::INFINITY, f64::min)
    }

    fn report(&self, name: &str, pair: impl FnMut()) {
        let ns = self.time(pair);
        println!("{name:<24} {ns:>8.2} ns {:>8.2} x std Mutex", ns / self.base_ns);
    }
}

fn locks(bench: &Bench) {
    for &kind in LockKind::ALL {
        let lock: Lock<u64> = Lock::new(kind, LockClass::Pool, 0);
        bench.report(&format!("lock {kind}"), || *black_box(&lock).lock() += 1);
    }
}

fn cells(bench: &Bench) {
    let owned: ThreadOwned<u64> = ThreadOwned::new(0);
    bench.report("owner cell", || {
        let _ = black_box(&owned).with(|value| *value += 1);
    });
    bench.report("thread index", || {
        black_box(Real::thread_index());
    });
}

fn rings(bench: &Bench) {
    let (mut producer, mut consumer) = spsc::channel::<u64, Real>(64);
    bench.report("spsc push + pop", || {
        let _ = producer.push(black_box(1));
        black_box(consumer.pop());
    });
    let mpsc: Mpsc<u64> = Mpsc::new(64);
    bench.report("mpsc push + pop, shared", || {
        let _ = mpsc.push(black_box(1));
        black_box(mpsc.pop());
    });
    let (sender, mut receiver) = Mpsc::<u64, Real>::channel(64);
    bench.report("mpsc push + pop, owned", || {
        let _ = sender.push(black_box(1));
        black_box(receiver.pop());
    });
}

fn wakes(bench: &Bench) {
    let parker: Parker = Parker::new();
    bench.report("unpark an awake thread", || {
        black_box(&parker).unpark();
    });
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let mut bench = if smoke {
        Bench { rounds: 1, pairs: 100, base_ns: 1.0 }
    } else {
        Bench { rounds: 50, pairs: 100_000, base_ns: 1.0 }
    };
    let mutex = std::sync::Mutex::new(0u64);
    bench.base_ns = bench.time(|| *black_box(&mutex).lock().unwrap_or_else(|e| e.into_inner()) += 1);
    println!("{:<24} {:>8.2} ns", "std Mutex", bench.base_ns);
    locks(&bench);
    cells(&bench);
    rings(&bench);
    wakes(&bench);
}
