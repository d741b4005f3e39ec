//! One end of an established connection, and the segments of its peer, for the benchmarks of TCP alone.

use std::net::IpAddr;

use observe::{Counters, Time};
use pktbuf::PktBuf;
use tcp::{Config, OpenParams, Outbox, Pcb, Segment, SegmentArrives, TcpEvent, Verify};
use wire::tcp::{Header, Options, SackBlocks, TcpFlags, Timestamps};
use wire::{FourTuple, SeqNumber};

/// Our initial sequence number, and the peer's.
pub const ISS: u32 = 1000;
pub const IRS: u32 = 5000;

fn tuple() -> FourTuple {
    FourTuple {
        local_addr: IpAddr::from([10, 0, 0, 1]),
        remote_addr: IpAddr::from([10, 0, 0, 2]),
        local_port: 1000,
        remote_port: 2000,
    }
}

/// A segment of the peer in its buffer, from a device that has checked the checksum.
pub fn frame(seq: u32, ack: u32, flags: TcpFlags, len: usize, options: Options) -> PktBuf {
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
    buf
}

/// The same as a segment. Not inlined, so that a profiler shows its cost.
#[inline(never)]
pub fn parse(frame: PktBuf) -> Segment {
    Segment::parse(tuple().local_addr, tuple().remote_addr, frame, Verify::Now).expect("a good segment")
}

/// The options of the peer's segments.
pub fn stamps() -> Options {
    Options { timestamps: Some(Timestamps { value: 7, echo: 1000 }), ..Options::NONE }
}

/// Opened at `now`. The outbox is empty.
pub fn established<'c>(config: &'c Config, counters: &'c Counters, now: Time) -> (Pcb, Outbox<'c>) {
    let mut out = Outbox::new(config, counters);
    let params = OpenParams {
        tuple: tuple(),
        iss: SeqNumber(ISS),
        ts_offset: 0,
        flow_hash: Some(1),
        mss: 1460,
        options: Default::default(),
    };
    let mut pcb = Pcb::open_active(&params, &mut out, now);
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 7, echo: 1000 }),
        sack: SackBlocks::EMPTY,
    };
    let syn_ack = parse(frame(IRS, ISS + 1, TcpFlags::SYN.union(TcpFlags::ACK), 0, options));
    let _ = SegmentArrives(&mut Some(syn_ack)).run(&mut pcb, &mut out, now);
    out.segments.clear();
    (pcb, out)
}
