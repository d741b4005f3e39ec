//! The two ends of a pair of devices, and the frames that cross it.
//!
//! A frame is a TCP segment with data that begins with [`MAGIC`] and a number; its sequence number leaves a gap after
//! the previous frame, so that no device coalesces two.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use pktbuf::{Checksum, PktBuf};
use wire::{FourTuple, Framing, SeqNumber, checksum, tcp};

use super::{ContractRule, Violation};
use crate::layout::Layout;
use crate::peer::Frames;
use crate::{Capabilities, Device, QueuePair};

/// The beginning of the data of test frames.
const MAGIC: &[u8; 8] = b"confrm\xa5\x5a";
/// Data up to the end of the number of a frame.
const LEAST_DATA: usize = 12;
/// The distance between the sequence numbers of two frames: more than any frame carries.
const STEP: u32 = 100_003;
/// How long to sleep between two polls of several queues, where sleeping on one may miss frames on another.
const LOOK: Duration = Duration::from_millis(1);

/// The findings of a rule so far, and its time limit.
pub(super) struct Findings {
    rule: ContractRule,
    pub(super) patience: Duration,
    pub(super) violations: Vec<Violation>,
}

impl Findings {
    pub(super) fn new(rule: ContractRule, patience: Duration) -> Findings {
        Findings { rule, patience, violations: Vec::new() }
    }

    /// Records that the device at `end` breaks the rule.
    pub(super) fn note(&mut self, end: &str, what: impl std::fmt::Display) {
        self.violations.push(Violation { rule: self.rule, what: format!("{end}: {what}") });
    }

    /// Records that unless `holds`; returns `holds`.
    pub(super) fn expect(&mut self, end: &str, holds: bool, what: impl std::fmt::Display) -> bool {
        if !holds {
            self.note(end, what);
        }
        holds
    }
}

/// A device with its queues, as used by a stack.
pub(super) struct End {
    pub(super) device: Box<dyn Device>,
    pub(super) capabilities: Capabilities,
    pub(super) name: String,
    pub(super) queues: Vec<QueuePair>,
    /// Queues that a second call returned.
    pub(super) handed_out_again: usize,
}

/// A flow of frames: family and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TestFlow {
    pub(super) v6: bool,
    pub(super) port: u16,
}

/// A test frame that has arrived.
pub(super) struct Arrived {
    pub(super) queue: usize,
    pub(super) number: u32,
    pub(super) frame: PktBuf,
}

impl End {
    pub(super) fn new(mut device: Box<dyn Device>) -> End {
        let queues = device.take_queues();
        let handed_out_again = device.take_queues().len();
        let capabilities = device.capabilities().clone();
        End { name: device.name().to_owned(), capabilities, queues, handed_out_again, device }
    }

    /// Length of the headers of a frame of `flow` before the IP header.
    pub(super) fn link_header(&self) -> usize {
        self.capabilities.framing.header_len()
    }

    /// The flows that packets of the MTU can belong to, one of each family.
    pub(super) fn flows(&self, port: u16) -> impl Iterator<Item = TestFlow> + use<> {
        let v6_fits = self.capabilities.mtu >= 1280;
        [false, true].into_iter().filter(move |v6| v6_fits || !v6).map(move |v6| TestFlow { v6, port })
    }

    /// All frames dropped by this device, if it counts.
    pub(super) fn dropped(&self) -> Option<u64> {
        self.device.counters().map(|counters| counters.snapshot().dropped_total())
    }

    /// Sends one frame by a queue; false, and a finding, if the queue, which is empty, does not accept it.
    pub(super) fn send(&mut self, queue: usize, frame: PktBuf, found: &mut Findings) -> bool {
        let taken = self.queues[queue].tx.transmit(frame).is_ok();
        self.queues[queue].tx.flush();
        found.expect(&self.name, taken, format_args!("queue {queue} has no room for the only frame on its way"))
    }

    /// Takes test frames until `wanted` have arrived, and then all that are left; returns all of them.
    pub(super) fn collect(&mut self, wanted: usize, patience: Duration) -> Vec<Arrived> {
        let end = Instant::now() + patience;
        let mut arrived = Vec::new();
        loop {
            let came = self.take(&mut arrived);
            if came == 0 && (arrived.len() >= wanted || Instant::now() >= end) {
                return arrived;
            }
            if came == 0 {
                let limit = if self.queues.len() == 1 { end.saturating_duration_since(Instant::now()) } else { LOOK };
                for pair in &mut self.queues {
                    pair.rx.wait(Some(limit));
                }
            }
        }
    }

    /// Takes available frames; returns how many there were, test frames and others.
    fn take(&mut self, arrived: &mut Vec<Arrived>) -> usize {
        let mut came = 0;
        let framing = self.capabilities.framing;
        for (queue, pair) in self.queues.iter_mut().enumerate() {
            let mut batch = Vec::new();
            pair.rx.receive(&mut batch, 64);
            came += batch.len();
            let ours = batch.into_iter().filter_map(|frame| Some((number(framing, &frame)?, frame)));
            arrived.extend(ours.map(|(number, frame)| Arrived { queue, number, frame }));
        }
        came
    }
}

/// The frame `number` of a flow from one end to the other, of a length that every device carries. Allocated in the
/// sender's region.
///
/// # Panics
/// If there is no memory.
pub(super) fn frame(from: &End, to: &Capabilities, flow: TestFlow, number: u32) -> PktBuf {
    sized(from, to, flow, number, from.capabilities.mtu.min(100))
}

/// As [`frame`], `packet` bytes long from its IP header; longer if the headers and the number need it.
pub(super) fn sized(from: &End, to: &Capabilities, flow: TestFlow, number: u32, packet: usize) -> PktBuf {
    segment(from, to, flow, number, packet, 0)
}

/// As [`frame`], a super-segment of segments of `segment_size` bytes of data if that is not 0.
pub(super) fn segment(
    from: &End,
    to: &Capabilities,
    flow: TestFlow,
    number: u32,
    packet: usize,
    segment_size: u16,
) -> PktBuf {
    let headers = if flow.v6 { 60 } else { 40 };
    let mut data = vec![0; packet.saturating_sub(headers).max(LEAST_DATA)];
    (0u32..).zip(&mut data).for_each(|(at, byte)| *byte = ((at + number % 251) % 251) as u8);
    data[..8].copy_from_slice(MAGIC);
    data[8..12].copy_from_slice(&number.to_be_bytes());
    let header = tcp::Header {
        src_port: flow.port,
        dst_port: 9,
        seq: SeqNumber(number.wrapping_mul(STEP)),
        ack: SeqNumber(1),
        flags: tcp::TcpFlags::ACK,
        window: 1000,
        urgent: 0,
        header_len: 0,
        options: tcp::Options::NONE,
    };
    let frames =
        Frames { framing: from.capabilities.framing, mac: from.capabilities.mac, stack_mac: to.mac, verified: false };
    let frame = frames.tcp(&tuple(flow), &header, &data, segment_size).expect("memory for a frame");
    let near = PktBuf::alloc_near(from.capabilities.region, frame.len());
    match near.filter(|near| near.region().is_some()) {
        Some(mut near) => {
            near.append(frame.len()).copy_from_slice(&frame);
            *near.meta_mut() = *frame.meta();
            near
        }
        None => frame,
    }
}

/// Leaves the checksum of a frame to the device.
pub(super) fn leave_checksum(framing: Framing, frame: &mut PktBuf) {
    let Some(layout) = Layout::framed(framing, frame) else { return };
    let (src, dst) = layout.addresses(frame);
    let sum = checksum::pseudo_header(src, dst, layout.protocol, (layout.end - layout.l4) as u32).fold();
    let field = layout.checksum_field();
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    frame.meta_mut().checksum = Checksum::Partial { start: layout.l4 as u16, offset: (field - layout.l4) as u16 };
}

/// The number of a frame, if it is a test frame.
pub(super) fn number(framing: Framing, frame: &[u8]) -> Option<u32> {
    let layout = Layout::framed(framing, frame)?;
    let data = frame[layout.data..layout.end].strip_prefix(MAGIC)?;
    data.first_chunk().map(|number| u32::from_be_bytes(*number))
}

/// From the sender's side. Addresses for documentation (RFC 5737, RFC 3849): no host answers.
fn tuple(flow: TestFlow) -> FourTuple {
    let address = |last: u8| match flow.v6 {
        false => IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)),
        true => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into())),
    };
    FourTuple { local_addr: address(1), remote_addr: address(2), local_port: flow.port, remote_port: 9 }
}
