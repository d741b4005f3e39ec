//! Frames for the tests, and checks that any frame must pass.

use std::net::{IpAddr, SocketAddr};

use dev::layout::{Layout, TCP, UDP};
use dev::{Device, QueuePair};
use frames::{Datagram, Fragment, Frame, Packet, Payload, Segment, sum};
use pktbuf::PktBuf;
use wire::SeqNumber;
use wire::ethernet::MacAddr;
use wire::tcp::{Header, Options, TcpFlags, Timestamps};

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

    /// A packet of the flow, with an identification that segments increment until it wraps.
    pub fn packet<'a>(self, payload: impl Into<Payload<'a>>) -> Packet<'a> {
        let fragment = self.from.is_ipv4().then_some(Fragment { ident: 65_534, ..Fragment::default() });
        Packet { fragment, ..Packet::new(self.from.ip(), self.to.ip(), payload) }
    }

    /// The packet in a frame.
    pub fn frame(self, packet: Packet<'_>) -> PktBuf {
        buffer(&Frame::new(MAC, MAC, packet).bytes())
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
    flow.frame(flow.packet(Segment::of(header, data)))
}

/// A TCP segment with ACK and `data`.
pub fn data(flow: Flow, seq: u32, data: &[u8]) -> PktBuf {
    tcp(flow, &header(flow, seq, TcpFlags::ACK), data)
}

/// A UDP frame with complete checksums.
pub fn udp(flow: Flow, data: &[u8]) -> PktBuf {
    flow.frame(flow.packet(Datagram::new(flow.from.port(), flow.to.port(), data)))
}

/// These bytes in a packet buffer.
pub fn buffer(bytes: &[u8]) -> PktBuf {
    PktBuf::from_slice(bytes).expect("a buffer")
}

/// Panics unless the frame's length fields and checksums are right.
pub fn assert_sound(frame: &[u8]) -> Layout {
    let layout = Layout::of(frame).expect("a TCP or UDP frame");
    assert_eq!(layout.end, frame.len(), "no bytes beyond the datagram");
    let mut pseudo = sum(&((layout.end - layout.l4) as u32).to_be_bytes(), layout.protocol.into());
    let addresses = if layout.v6 {
        layout.l3 + 8..layout.l3 + 40
    } else {
        assert_eq!(sum(&frame[layout.l3..layout.l4], 0), 0xffff, "IPv4 header checksum");
        layout.l3 + 12..layout.l3 + 20
    };
    pseudo = sum(&frame[addresses], pseudo);
    assert_eq!(sum(&frame[layout.l4..layout.end], pseudo), 0xffff, "transport checksum");
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
