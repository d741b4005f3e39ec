//! The packets with data that a remote end has made, by the place of their data in the stream.
//!
//! TCP may put the data of several short segments into one buffer, and an application that counts buffers cannot tell how
//! many segments it has taken. The remote end's segments follow one another, so the end of each is enough: a segment has been taken
//! when all bytes up to its end have.

use std::collections::HashMap;
use std::sync::Arc;

use dev::Framing;
use observe::{CounterSnapshot, Counters};
use sync::Platform;
use wire::tcp::{self, TcpFlags};
use wire::{ipv4, ipv6};

use super::Shared;

/// The segments of one remote port.
#[derive(Default)]
struct MadeStream {
    /// The sequence number of the first byte of data.
    first: u32,
    /// Behind the last byte of each segment, in bytes of the stream; increasing.
    ends: Vec<u64>,
}

impl MadeStream {
    /// A segment with data that ends before this sequence number. False: it has been made before.
    fn note(&mut self, end: u32) -> bool {
        let last = self.ends.last().copied().unwrap_or(0);
        let further = end.wrapping_sub(self.first.wrapping_add(last as u32)) as i32;
        let is_new = further > 0;
        if is_new {
            self.ends.push(last + u64::from(further.unsigned_abs()));
        }
        is_new
    }
}

/// The packets that a remote end has made.
#[derive(Default)]
pub(super) struct MadePackets {
    streams: HashMap<u16, MadeStream>,
    segments: u64,
    datagrams: u64,
}

impl MadePackets {
    /// A datagram was made.
    pub(super) fn note_datagram(&mut self) {
        self.datagrams += 1;
    }

    /// A frame was made. Only segments that begin a stream or have data are of interest.
    pub(super) fn note(&mut self, framing: Framing, frame: &[u8]) {
        let Some((header, len)) = segment(framing, frame) else { return };
        let stream = self.streams.entry(header.src_port).or_default();
        if header.flags.contains(TcpFlags::SYN) {
            stream.first = header.seq.0.wrapping_add(1);
        } else if len > 0 {
            stream.note(header.seq.0.wrapping_add(len));
            self.segments += 1;
        }
    }
}

/// The header of a segment, and the number of bytes of its data; `None` if the frame is another.
fn segment(framing: Framing, frame: &[u8]) -> Option<(tcp::Header, u32)> {
    let packet = frame.get(framing.header_len()..)?;
    let (network, protocol) = match packet.first()? >> 4 {
        4 => (ipv4::HEADER_LEN, *packet.get(9)?),
        6 => (ipv6::HEADER_LEN, *packet.get(6)?),
        _ => return None,
    };
    let segment = packet.get(network..).filter(|_| protocol == wire::protocol::TCP)?;
    let header = tcp::parse(segment).ok()?;
    let data = segment.len() - usize::from(header.header_len);
    Some((header, data as u32))
}

/// What the remote end of a [`MemoryDriver`](super::MemoryDriver) has made. Any thread of the machine may ask, which costs nothing.
pub struct PacketsMade<P: Platform>(pub(super) Arc<Shared<P>>);

impl<P: Platform> PacketsMade<P> {
    /// Segments with data, those that were sent again included, and datagrams.
    pub fn total(&self) -> u64 {
        self.0.monitor.totals().segments_out + self.0.remote().made.datagrams
    }

    /// Those that no thread has taken.
    pub fn waiting(&self) -> u64 {
        let remote = self.0.remote();
        let has_data = |frame: &[u8]| segment(remote.framing, frame).is_some_and(|(_, len)| len > 0);
        let ready = remote.ready.iter().filter(|frame| has_data(frame)).count() as u64;
        ready + self.0.monitor.totals().segments_out - remote.made.segments
    }

    /// The sequence number of the first byte of data from this remote port; `None` before its SYN.
    pub fn first(&self, port: u16) -> Option<u32> {
        self.0.remote().made.streams.get(&port).map(|stream| stream.first)
    }

    /// The number of segments, each counted once, that lie in the first `bytes` bytes from this remote port as a whole.
    pub fn within(&self, port: u16, bytes: u64) -> u64 {
        let remote = self.0.remote();
        remote.made.streams.get(&port).map_or(0, |stream| stream.ends.partition_point(|end| *end <= bytes) as u64)
    }

    /// What the driver has dropped of it.
    pub fn lost(&self) -> CounterSnapshot {
        Counters::snapshot(&self.0.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::MadeStream;

    #[test]
    fn a_segment_counts_once_and_sequence_numbers_wrap() {
        let mut stream = MadeStream { first: u32::MAX - 9, ends: Vec::new() };
        let ends = [u32::MAX, 3, 3, 2, 13];
        assert_eq!(ends.map(|end| stream.note(end)), [true, true, false, false, true]);
        assert_eq!(stream.ends, [9, 13, 23]);
    }
}
