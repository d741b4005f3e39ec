//! Frames for the tests, and what must be true of any frame.

use std::net::{IpAddr, SocketAddr};

use dev::layout::{Layout, TCP, UDP};
use dev::{Device, QueuePair};
use pktbuf::PktBuf;
use wire::ethernet::{EtherType, MacAddr};
use wire::tcp::{Header, Options, TcpFlags, Timestamps};
use wire::{SeqNumber, checksum, ethernet, ipv4, ipv6, protocol};

/// The MAC address of no station in particular.
pub const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// A connection as its sender sees it.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

impl Flow {
    pub fn v4(port: u16) -> Flow {
        Flow { from: SocketAddr::from(([10, 0, 0, 1], port)), to: SocketAddr::from(([10, 0, 0, 2], 80)) }
    }

    pub fn v6(port: u16) -> Flow {
        let address = |last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]);
        Flow { from: SocketAddr::new(address(1), port), to: SocketAddr::new(address(2), 80) }
    }
}

/// A TCP header of the flow with timestamps.
pub fn header(flow: Flow, seq: u32, flags: TcpFlags) -> Header {
    Header {
        src_port: flow.from.port(),
        dst_port: flow.to.port(),
        seq: SeqNumber(seq),
        ack: SeqNumber(77),
        flags,
        window: 1000,
        urgent: 0,
        header_len: 0,
        options: Options { timestamps: Some(Timestamps { value: 5, echo: 6 }), ..Options::NONE },
    }
}

/// A TCP frame with complete checksums.
pub fn tcp(flow: Flow, header: &Header, data: &[u8]) -> PktBuf {
    let mut segment = vec![0; header.emitted_len()];
    header.emit(&mut segment);
    segment.extend_from_slice(data);
    transport(flow, protocol::TCP, 16, segment)
}

/// A TCP segment with ACK and `data`.
pub fn data(flow: Flow, seq: u32, data: &[u8]) -> PktBuf {
    tcp(flow, &header(flow, seq, TcpFlags::ACK), data)
}

/// A UDP frame with complete checksums.
pub fn udp(flow: Flow, data: &[u8]) -> PktBuf {
    let mut datagram = Vec::new();
    datagram.extend_from_slice(&flow.from.port().to_be_bytes());
    datagram.extend_from_slice(&flow.to.port().to_be_bytes());
    datagram.extend_from_slice(&(data.len() as u16 + 8).to_be_bytes());
    datagram.extend_from_slice(&[0, 0]);
    datagram.extend_from_slice(data);
    transport(flow, protocol::UDP, 6, datagram)
}

fn transport(flow: Flow, protocol: u8, field: usize, mut segment: Vec<u8>) -> PktBuf {
    let sum = checksum::pseudo_header(flow.from.ip(), flow.to.ip(), protocol, segment.len() as u32);
    let checksum = sum.add(checksum::sum(&segment)).finish();
    segment[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    let mut bytes = vec![0; 14];
    let ethertype = if flow.from.is_ipv4() { EtherType::Ipv4 } else { EtherType::Ipv6 };
    let link = ethernet::Header { dst: MAC, src: MAC, ethertype };
    link.emit((&mut bytes[..]).try_into().expect("14 bytes"));
    match (flow.from.ip(), flow.to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut out = [0; 20];
            let total_len = 20 + segment.len() as u16;
            ipv4::Header {
                src,
                dst,
                protocol,
                ttl: 64,
                tos: 0,
                ident: 65_534,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                header_len: 20,
                total_len,
            }
            .emit(&mut out);
            bytes.extend_from_slice(&out);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut out = [0; 40];
            ipv6::Header {
                src,
                dst,
                next_header: protocol,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
                payload_len: segment.len() as u16,
            }
            .emit(&mut out);
            bytes.extend_from_slice(&out);
        }
        _ => panic!("one family per flow"),
    }
    bytes.extend_from_slice(&segment);
    PktBuf::from_slice(&bytes).expect("a buffer")
}

/// The textbook sum of 16-bit words, one at a time: what every checksum here is held against.
fn naive_sum(bytes: &[u8], mut sum: u32) -> u32 {
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Panics unless the frame's length fields and checksums are right.
pub fn assert_sound(frame: &[u8]) -> Layout {
    let layout = Layout::of(frame).expect("a TCP or UDP frame");
    assert_eq!(layout.end, frame.len(), "no bytes beyond the datagram");
    let mut pseudo = naive_sum(&((layout.end - layout.l4) as u32).to_be_bytes(), u32::from(layout.protocol));
    let addresses = if layout.v6 {
        layout.l3 + 8..layout.l3 + 40
    } else {
        assert_eq!(naive_sum(&frame[layout.l3..layout.l4], 0), 0xffff, "IPv4 header checksum");
        layout.l3 + 12..layout.l3 + 20
    };
    pseudo = naive_sum(&frame[addresses], pseudo);
    assert_eq!(naive_sum(&frame[layout.l4..layout.end], pseudo), 0xffff, "transport checksum");
    if layout.protocol == UDP {
        let len = u16::from_be_bytes([frame[layout.l4 + 4], frame[layout.l4 + 5]]);
        assert_eq!(usize::from(len), layout.end - layout.l4, "UDP length");
    }
    layout
}

/// Sequence number, flags and data of a TCP frame.
pub fn parts(frame: &[u8]) -> (u32, u8, &[u8]) {
    let layout = Layout::of(frame).expect("a TCP frame");
    assert_eq!(layout.protocol, TCP);
    let seq = u32::from_be_bytes(frame[layout.l4 + 4..layout.l4 + 8].try_into().expect("4 bytes"));
    (seq, frame[layout.l4 + 13], &frame[layout.data..layout.end])
}

/// The only queue pair of a device.
pub fn only_queue(device: &mut dyn Device) -> QueuePair {
    let mut queues = device.take_queues();
    assert_eq!(queues.len(), 1);
    queues.remove(0)
}

/// Everything that a queue pair has received.
pub fn drain(pair: &mut QueuePair) -> Vec<PktBuf> {
    let mut batch = Vec::new();
    while pair.rx.receive(&mut batch, 64) > 0 {}
    batch
}
