//! One function per step of the established path, not inlined and called a fixed number of times, so that a profiler
//! that counts instructions shows the cost of each:
//!
//! ```text
//! valgrind --tool=callgrind target/release/deps/steps-* ; callgrind_annotate --inclusive=yes callgrind.out.*
//! ```
//!
//! Divide by the number of calls that it prints.

mod endpoint;

use std::hint::black_box;

use endpoint::{IRS, ISS, established, frame, parse, stamps};
use observe::{Counters, Time};
use pktbuf::{Chunk, PktBuf};
use tcp::{Config, Outbox, Pcb, Receive, Segment, SegmentArrives, Send, TcpEvent};
use wire::tcp::TcpFlags;

const CALLS: u32 = 1000;
/// Data of a request or an answer.
const SMALL: usize = 64;

// Each of the next three begins with a different number, or the compiler would merge them.

#[inline(never)]
fn data_in_ack_delayed(pcb: &mut Pcb, segment: Segment, out: &mut Outbox<'_>, now: Time) {
    black_box(1);
    let _ = black_box(SegmentArrives(&mut Some(segment)).run(pcb, out, now));
}

#[inline(never)]
fn data_in_ack_out(pcb: &mut Pcb, segment: Segment, out: &mut Outbox<'_>, now: Time) {
    black_box(2);
    let _ = black_box(SegmentArrives(&mut Some(segment)).run(pcb, out, now));
}

#[inline(never)]
fn ack_in(pcb: &mut Pcb, segment: Segment, out: &mut Outbox<'_>, now: Time) {
    black_box(3);
    let _ = black_box(SegmentArrives(&mut Some(segment)).run(pcb, out, now));
}

#[inline(never)]
fn receive(pcb: &mut Pcb, out: &mut Outbox<'_>, now: Time) {
    let _ = black_box(Receive { max: usize::MAX }.run(pcb, out, now));
}

#[inline(never)]
fn send_and_segment_out(pcb: &mut Pcb, chunks: tcp::Chunks, out: &mut Outbox<'_>, now: Time) {
    let _ = black_box(Send { chunks }.run(pcb, out, now));
}

/// A bulk receiver: every second full segment is acknowledged.
fn receiver(config: &Config, counters: &Counters) {
    let now = Time::from_secs(1);
    let (mut pcb, mut out) = established(config, counters, now);
    for i in 0..2 * CALLS {
        let segment = parse(frame(IRS + 1 + i * 1448, ISS + 1, TcpFlags::ACK, 1448, stamps()));
        if i % 2 == 0 {
            data_in_ack_delayed(&mut pcb, segment, &mut out, now);
        } else {
            data_in_ack_out(&mut pcb, segment, &mut out, now);
            receive(&mut pcb, &mut out, now);
        }
        out.segments.clear();
    }
}

/// A client of small requests: each is sent at once, acknowledged, and answered.
fn requester(config: &Config, counters: &Counters) {
    static DATA: [u8; SMALL] = [7; SMALL];
    let now = Time::from_secs(1);
    let (mut pcb, mut out) = established(config, counters, now);
    for i in 1..=CALLS {
        let chunks = [Chunk::Pooled(PktBuf::from_slice(&DATA).expect("a buffer"))].into_iter().collect();
        send_and_segment_out(&mut pcb, chunks, &mut out, now);
        out.segments.clear();
        let segment = parse(frame(IRS + 1, ISS + 1 + i * SMALL as u32, TcpFlags::ACK, 0, stamps()));
        ack_in(&mut pcb, segment, &mut out, now);
        out.segments.clear();
    }
}

fn main() {
    let config = Config { quick_acks: 0, ..Config::default() };
    let counters = Counters::new();
    receiver(&config, &counters);
    requester(&config, &counters);
    println!("{CALLS} calls of each step");
}
