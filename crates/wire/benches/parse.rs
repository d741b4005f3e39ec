//! The cost of reading and writing headers, compared with smoltcp's `Repr` on the same bytes.
//!
//! Prints nanoseconds per operation, the best of several rounds, and how many times longer smoltcp takes. It asserts
//! nothing about time, only that both read the same. `--smoke` runs every measurement once, to show that it still runs;
//! so does `cargo test --benches`, which passes no `--bench`.

use std::hint::black_box;
use std::time::Instant;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as rival;
use wire::tcp::{Options, TcpFlags, Timestamps};
use wire::{FourTuple, SeqNumber, checksum, ethernet, ipv4, rss, tcp};

/// How much to run.
#[derive(Clone, Copy)]
struct Effort {
    rounds: u32,
    operations: u32,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let effort = if has("--smoke") || !has("--bench") {
        Effort { rounds: 1, operations: 10 }
    } else {
        Effort { rounds: 300, operations: 10_000 }
    };
    let padded = frame(Options { timestamps: Some(TIMESTAMPS), ..Options::NONE });
    let syn = frame(Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(TIMESTAMPS),
        ..Options::NONE
    });
    println!("{:<44}{:>10}{:>10}{:>8}", "", "wire ns", "smoltcp", "ratio");
    for (name, frame) in [("data segment (NOP NOP TS)", &padded), ("SYN (four options)", &syn)] {
        assert_eq!(read(frame), read_by_smoltcp(frame), "both read the same");
        compare(
            &format!("read {name}"),
            time(effort, || read(black_box(frame))),
            time(effort, || read_by_smoltcp(black_box(frame))),
        );
    }
    let header = tcp_header(Options { timestamps: Some(TIMESTAMPS), ..Options::NONE });
    let mut out = [0u8; 60];
    report("write TCP header (NOP NOP TS)", time(effort, || black_box(&header).emit(black_box(&mut out))));
    for len in [20, 32, 64, 256, 1448, 9000, 65_000] {
        let bytes = vec![0x5a; len];
        compare(
            &format!("sum {len} bytes"),
            time(effort, || checksum::sum(black_box(&bytes)).finish()),
            time(effort, || rival::checksum::data(black_box(&bytes))),
        );
    }
    for (name, key) in [("general key", rss::MICROSOFT_KEY), ("symmetric key", rss::SYMMETRIC_KEY)] {
        let toeplitz = rss::Toeplitz::new(&key);
        report(&format!("Toeplitz hash, IPv4, {name}"), time(effort, || toeplitz.hash_tcp(black_box(&TUPLE))));
    }
}

const TIMESTAMPS: Timestamps = Timestamps { value: 1, echo: 2 };
const TUPLE: FourTuple = FourTuple {
    local_addr: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    remote_addr: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    local_port: 80,
    remote_port: 4711,
};

fn tcp_header(options: Options) -> tcp::Header {
    tcp::Header {
        src_port: 4711,
        dst_port: 80,
        seq: SeqNumber(1),
        ack: SeqNumber(2),
        flags: TcpFlags::ACK,
        window: 512,
        urgent: 0,
        header_len: 20,
        options,
    }
}

/// An Ethernet frame with a TCP segment without data.
fn frame(options: Options) -> Vec<u8> {
    frames::Segment::of(&tcp_header(options), b"").frame()
}

/// A digest of the fields that a receive path reads: each reader computes it from its own value, so that no time is
/// spent on passing the value through an opaque function.
fn digest(src: u32, dst: u32, seq: u32, ack: u32, window: u16, timestamps: (u32, u32)) -> u32 {
    src ^ dst ^ seq ^ ack ^ u32::from(window) ^ timestamps.0 ^ timestamps.1
}

/// Ethernet, IPv4 with its header checksum, TCP with its options.
#[inline(never)]
fn read(frame: &[u8]) -> Option<u32> {
    let (_, at) = ethernet::parse(frame).ok()?;
    let packet = frame.get(at..)?;
    let network = ipv4::parse(packet).ok()?;
    let segment = packet.get(usize::from(network.header_len)..usize::from(network.total_len))?;
    let header = tcp::parse(segment).ok()?;
    let timestamps = header.options.timestamps.unwrap_or_default();
    Some(digest(
        network.src.to_bits(),
        network.dst.to_bits(),
        header.seq.0,
        header.ack.0,
        header.window,
        (timestamps.value, timestamps.echo),
    ))
}

/// The same by smoltcp, the TCP checksum left out as above.
#[inline(never)]
fn read_by_smoltcp(frame: &[u8]) -> Option<u32> {
    let mut caps = ChecksumCapabilities::ignored();
    caps.ipv4 = smoltcp::phy::Checksum::Both;
    let frame = rival::EthernetFrame::new_checked(frame).ok()?;
    rival::EthernetRepr::parse(&frame).ok()?;
    let packet = rival::Ipv4Packet::new_checked(frame.payload()).ok()?;
    let network = rival::Ipv4Repr::parse(&packet, &caps).ok()?;
    let segment = rival::TcpPacket::new_checked(packet.payload()).ok()?;
    let (src, dst) = (network.src_addr.into(), network.dst_addr.into());
    let header = rival::TcpRepr::parse(&segment, &src, &dst, &caps).ok()?;
    Some(digest(
        network.src_addr.to_bits(),
        network.dst_addr.to_bits(),
        header.seq_number.0 as u32,
        header.ack_number.map_or(0, |ack| ack.0 as u32),
        header.window_len,
        header.timestamp.map_or((0, 0), |ts| (ts.tsval, ts.tsecr)),
    ))
}

/// Nanoseconds per operation in the best round: other load on the machine only adds time.
fn time<T>(effort: Effort, mut operation: impl FnMut() -> T) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..effort.rounds {
        let start = Instant::now();
        for _ in 0..effort.operations {
            black_box(operation());
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(effort.operations));
    }
    best
}

fn compare(name: &str, ours: f64, theirs: f64) {
    println!("{name:<44}{ours:>10.1}{theirs:>10.1}{:>8.1}", theirs / ours);
}

fn report(name: &str, ours: f64) {
    println!("{name:<44}{ours:>10.1}");
}
