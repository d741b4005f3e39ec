//! The cost of TCP itself per segment on the established path, in ns: the time of a loop with the event less the time
//! of the same loop without it. `--smoke` runs each once, to see that it works.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use observe::{Counters, Time};
use pktbuf::{Chunk, PktBuf};
use tcp::{Config, OpenParams, Outbox, Pcb, Receive, Segment, SegmentArrives, Send, TcpEvent, Verify};
use wire::tcp::{Header, Options, SackBlocks, TcpFlags, Timestamps};
use wire::{FourTuple, SeqNumber};

const ISS: u32 = 1000;
const IRS: u32 = 5000;
const DATA: usize = 1448;

fn tuple() -> FourTuple {
    FourTuple {
        local_addr: IpAddr::from([10, 0, 0, 1]),
        remote_addr: IpAddr::from([10, 0, 0, 2]),
        local_port: 1000,
        remote_port: 2000,
    }
}

/// A segment of the peer, from a device that has checked the checksum.
fn arriving(seq: u32, ack: u32, flags: TcpFlags, len: usize, options: Options) -> Segment {
    let mut buf = PktBuf::alloc(len).expect("a buffer");
    buf.append(len);
    let header = Header {
        src_port: 2000,
        dst_port: 1000,
        seq: SeqNumber(seq),
        ack: SeqNumber(ack),
        flags,
        window: 60_000,
        urgent: 0,
        header_len: 0,
        options,
    };
    let n = header.emitted_len();
    header.emit(buf.push_front(n));
    buf.meta_mut().checksum = pktbuf::Checksum::Verified;
    Segment::parse(tuple().local_addr, tuple().remote_addr, buf, Verify::Now).expect("a good segment")
}

fn stamps() -> Options {
    Options { timestamps: Some(Timestamps { value: 7, echo: 1000 }), ..Options::NONE }
}

struct Bench {
    config: Config,
    counters: Counters,
}

impl Bench {
    fn established(&self) -> Pcb {
        let mut out = Outbox::new(&self.config, &self.counters);
        let params = OpenParams {
            tuple: tuple(),
            iss: SeqNumber(ISS),
            ts_offset: 0,
            flow_hash: Some(1),
            mss: 1460,
            options: Default::default(),
        };
        let mut pcb = Pcb::open_active(&params, &mut out, Time::from_secs(1));
        let options = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 7, echo: 1000 }),
            sack: SackBlocks::EMPTY,
        };
        let syn_ack = arriving(IRS, ISS + 1, TcpFlags::SYN.union(TcpFlags::ACK), 0, options);
        let _ = SegmentArrives(&mut Some(syn_ack)).run(&mut pcb, &mut out, Time::from_secs(1));
        pcb
    }

    /// In-order data, read in batches of 16; every second segment is acknowledged.
    fn receive(&self, n: u32, with_event: bool) -> f64 {
        let mut pcb = self.established();
        let now = Time::from_secs(1);
        let start = Instant::now();
        for i in 0..n {
            let segment = arriving(IRS + 1 + i.wrapping_mul(DATA as u32), ISS + 1, TcpFlags::ACK, DATA, stamps());
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
            let segment = arriving(IRS + 1, ack, TcpFlags::ACK, 0, stamps());
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
