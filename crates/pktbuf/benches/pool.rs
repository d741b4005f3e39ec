//! The cost of a packet buffer, compared with the global allocator: `cargo bench -p heddle-pktbuf`.
//!
//! Each line is the smallest of several repetitions, the least disturbed by other load. `--smoke` runs everything once
//! with small counts, to see that it runs.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use pktbuf::PktBuf;

const FRAME: usize = 1514;
const BATCH: usize = 256;

struct Bench {
    repetitions: usize,
    rounds: usize,
}

impl Bench {
    /// Prints the smallest time per operation of `run`, which does `per_round` operations each time it is called.
    fn measure(&self, what: &str, per_round: usize, mut run: impl FnMut()) {
        let mut best = f64::INFINITY;
        for _ in 0..self.repetitions {
            let start = Instant::now();
            (0..self.rounds).for_each(|_| run());
            best = best.min(start.elapsed().as_nanos() as f64 / (self.rounds * per_round) as f64);
        }
        println!("{what:<58} {best:9.2} ns");
    }
}

fn pktbuf() -> PktBuf {
    PktBuf::alloc(FRAME).expect("the pool has no limit here")
}

fn vec() -> Vec<u8> {
    Vec::with_capacity(2048)
}

fn one_thread<T>(bench: &Bench, name: &str, make: fn() -> T) {
    bench.measure(&format!("{name}: allocate and release"), BATCH, || {
        for _ in 0..BATCH {
            drop(black_box(make()));
        }
    });
    let mut held = Vec::with_capacity(BATCH);
    bench.measure(&format!("{name}: allocate {}, then release them", BATCH), BATCH, || {
        held.extend((0..BATCH).map(|_| make()));
        black_box(&mut held).clear();
    });
}

/// Batches go to another thread that releases them; the empty batch comes back. The time includes the hand-over of a
/// batch through two channels, which is also measured separately.
fn two_threads<T: Send + 'static>(bench: &Bench, name: &str, make: fn() -> T) {
    let (there, out) = mpsc::sync_channel::<Vec<T>>(8);
    let (back, home) = mpsc::sync_channel::<Vec<T>>(16);
    for _ in 0..8 {
        back.send(Vec::with_capacity(BATCH)).expect("the receiver is alive");
    }
    let sink = thread::spawn(move || {
        for mut batch in out {
            batch.clear();
            if back.send(batch).is_err() {
                break;
            }
        }
    });
    bench.measure(&format!("{name}: allocate here, release on another thread"), BATCH, || {
        let mut batch = home.recv().expect("the sink is alive");
        batch.extend((0..BATCH).map(|_| make()));
        there.send(batch).expect("the sink is alive");
    });
    drop(there);
    sink.join().expect("the sink does not panic");
}

fn checksums(bench: &Bench) {
    for len in [20, 64, 1460, 9000, 65_000] {
        let src = vec![0x5A; len];
        let mut dst = vec![0; len];
        bench.measure(&format!("checksum of {len} bytes"), 1, || {
            let _ = black_box(pktbuf::sum(black_box(&src)));
        });
        bench.measure(&format!("copy and checksum of {len} bytes"), 1, || {
            let _ = black_box(pktbuf::copy_and_sum(black_box(&mut dst), black_box(&src)));
        });
    }
}

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--smoke");
    let bench = if smoke { Bench { repetitions: 1, rounds: 20 } } else { Bench { repetitions: 15, rounds: 20_000 } };
    one_thread(&bench, "PktBuf", pktbuf);
    one_thread(&bench, "Vec of 2 KiB", vec);
    two_threads(&bench, "Nothing", || ());
    two_threads(&bench, "PktBuf", pktbuf);
    two_threads(&bench, "Vec of 2 KiB", vec);
    checksums(&bench);
    assert_eq!(pktbuf::live(), 0, "the benchmark leaks packet buffers");
}
