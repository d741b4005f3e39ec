//! Nanoseconds per frame through a linked pair in memory, beside a plain copy of the same bytes.
//!
//! Each frame is filled (the sender's one copy), transmitted, received and dropped, in batches of 32, on one thread.
//! The copy loop moves the same bytes from buffer to buffer. `--smoke` runs a few rounds to see that it works.

use std::hint::black_box;
use std::time::Instant;

use dev::Device;
use dev::mem::{MemConfig, pair};
use frames::Datagram;
use pktbuf::PktBuf;
use sync::Real;

const BATCH: usize = 32;

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--smoke" || arg == "--test");
    let rounds = if smoke { 10 } else { 50_000 };
    println!("{:>6} {:>7} {:>12} {:>12} {:>7}", "bytes", "queues", "mem ns", "memcpy ns", "ratio");
    for len in [64, 1500] {
        for queues in [1, 4] {
            let through = best_of_five(|| mem(len, queues, rounds));
            let copy = best_of_five(|| memcpy(len, rounds));
            println!("{len:>6} {queues:>7} {through:>12.1} {copy:>12.1} {:>7.1}", through / copy);
        }
    }
}

fn best_of_five(mut run: impl FnMut() -> f64) -> f64 {
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// A minimal frame: IPv4 and UDP headers that the hash can read.
fn template(len: usize) -> Vec<u8> {
    Datagram::new(7, 80, &vec![0; len - 14 - 20 - 8]).frame()
}

fn mem(len: usize, queues: usize, rounds: usize) -> f64 {
    let (mut a, mut b) = pair::<Real>(MemConfig { queues, ..MemConfig::default() });
    let (mut near, mut far) = (a.take_queues(), b.take_queues());
    let bytes = template(len);
    let mut batch = Vec::with_capacity(BATCH);
    let start = Instant::now();
    for _ in 0..rounds {
        for _ in 0..BATCH {
            let Some(mut frame) = PktBuf::alloc(len) else { panic!("no buffer") };
            frame.append(len).copy_from_slice(&bytes);
            assert!(near[0].tx.transmit(frame).is_ok(), "the ring holds a batch");
        }
        near[0].tx.flush();
        let mut received = 0;
        for queue in &mut far {
            received += queue.rx.receive(&mut batch, BATCH);
        }
        assert_eq!(received, BATCH);
        batch.clear();
    }
    start.elapsed().as_nanos() as f64 / (rounds * BATCH) as f64
}

fn memcpy(len: usize, rounds: usize) -> f64 {
    let bytes = template(len);
    let mut buffers = vec![vec![0u8; len]; BATCH];
    let start = Instant::now();
    for _ in 0..rounds {
        for buffer in &mut buffers {
            buffer.copy_from_slice(black_box(&bytes));
            black_box(buffer);
        }
    }
    start.elapsed().as_nanos() as f64 / (rounds * BATCH) as f64
}
