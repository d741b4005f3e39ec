//! The cost of TCP itself per segment on the established path, in ns: the time of a loop with the event less the time
//! of the same loop without it. `--smoke` runs each once, to see that it works.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod endpoint;

use std::hint::black_box;
use std::time::Instant;

use endpoint::{IRS, ISS, established, frame, parse, stamps};
use observe::{Counters, Time};
use pktbuf::{Chunk, PktBuf};
use tcp::{Config, Outbox, Pcb, Receive, SegmentArrives, Send, TcpEvent};
use wire::tcp::TcpFlags;

const DATA: usize = 1448;

struct Bench {
    config: Config,
    counters: Counters,
}

impl Bench {
    fn established(&self) -> Pcb {
        established(&self.config, &self.counters, Time::from_secs(1)).0
    }

    /// In-order data, read in batches of 16; every second segment is acknowledged.
    fn receive(&self, n: u32, with_event: bool) -> f64 {
        let mut pcb = self.established();
        let now = Time::from_secs(1);
        let start = Instant::now();
        for i in 0..n {
            let segment = parse(frame(IRS + 1 + i.wrapping_mul(DATA as u32), ISS + 1, TcpFlags::ACK, DATA, stamps()));
            if with_event {
                let mut out = Outbox::new(&self.config, &self.counters);
                let _ = black_box(SegmentArrives(&mut Some(segment)).run(&mut pcb, &mut out, now));
                if i % 16 == 15 {
                    let _ = black_box(Receive { max: usize::MAX }.run(&mut pcb, &mut out, now));
                }
            } else {
                black_box(segment);
            }
        }
        start.elapsed().as_nanos() as f64 / f64::from(n)
    }

    /// Acknowledgements of two segments each, and the two segments of new data that they release.
    fn acknowledge(&self, n: u32, with_event: bool) -> f64 {
        let mut pcb = self.established();
        let now = Time::from_secs(1);
        let mut out = Outbox::new(&self.config, &self.counters);
        static PAGE: [u8; 64 << 10] = [7; 64 << 10];
        let mut buf = vec![0; DATA];
        let start = Instant::now();
        let mut ack = ISS + 1;
        for i in 0..n {
            let segment = parse(frame(IRS + 1, ack, TcpFlags::ACK, 0, stamps()));
            let mut out = Outbox::new(&self.config, &self.counters);
            if with_event {
                if i % 16 == 0 {
                    let chunks = [Chunk::Static(&PAGE[..DATA * 32])].into_iter().collect();
                    let _ = black_box(Send { chunks }.run(&mut pcb, &mut out, now));
                }
                let _ = black_box(SegmentArrives(&mut Some(segment)).run(&mut pcb, &mut out, now));
                ack = ack.wrapping_add(out.segments.iter().map(|segment| segment.len() as u32 - 32).sum());
            } else {
                black_box(segment);
                // The cost of making two segments in any case: two buffers, copied and summed.
                for _ in 0..2 {
                    let mut segment = PktBuf::alloc(DATA).expect("a buffer");
                    let _ = black_box(pktbuf::copy_and_sum(segment.append(DATA), &PAGE[..DATA]));
                    black_box(&mut buf);
                    out.segments.push(segment);
                }
            }
            black_box(&out.segments);
        }
        drop(out.segments.drain(..));
        start.elapsed().as_nanos() as f64 / f64::from(n)
    }
}

fn best(rounds: u32, f: impl Fn() -> f64) -> f64 {
    (0..rounds).map(|_| f()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--smoke");
    let (n, rounds) = if smoke { (64, 1) } else { (200_000, 9) };
    let bench = Bench { config: Config::default(), counters: Counters::new() };
    println!("PCB: {} bytes", size_of::<Pcb>());
    for (name, f) in [
        ("text in order", Bench::receive as fn(&Bench, u32, bool) -> f64),
        ("ACK, two segments out", Bench::acknowledge),
    ] {
        let with = best(rounds, || f(&bench, n, true));
        let without = best(rounds, || f(&bench, n, false));
        println!("{name}: {:.1} ns ({with:.1} with the event, {without:.1} without)", with - without);
    }
}
