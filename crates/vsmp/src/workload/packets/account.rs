//! Where the packets are that a remote end has made.
//!
//! A packet counts when it has been made. From then on it waits in the driver, is dropped for a reason that is counted, waits in
//! the receive queue of its connection or socket, or behind a hole in its connection's stream, or has been taken by the application. The
//! numbers are counted at these places, and none is what the others leave, so that their sum is a check.
//!
//! TCP puts data of short segments into one buffer. Segments are therefore counted by the place of their last byte in the
//! stream ([`PacketsMade`](crate::memory_driver::PacketsMade)), and not by buffers.

use std::fmt;

use observe::{CounterSnapshot, DropReason};
use stack::call::{Call, Reply};
use sync::Platform;

use super::{FIRST_REMOTE, Relaxed, Socket, Workers};

/// The packets of an interval of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketBalance {
    /// Made by the remote end: segments with data, those that were sent again included, or datagrams.
    pub made: u64,
    /// Taken by the application, the last byte included.
    pub taken: u64,
    /// Made and not taken, at the beginning and at the end: they are in the driver, in the hands of a thread or in a queue of the
    /// stack, or were dropped.
    pub under_way: [u64; 2],
}

impl PacketBalance {
    /// From the numbers of packets that had been made and taken at the beginning and at the end.
    pub(super) fn between(before: (u64, u64), after: (u64, u64)) -> PacketBalance {
        let under_way = [before, after].map(|(made, taken)| made - taken);
        PacketBalance { made: after.0 - before.0, taken: after.1 - before.1, under_way }
    }
}

/// The packets of a whole run, at its end: all threads have finished what they had begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketAccount {
    /// Made by the remote end: segments with data, those that were sent again included, or datagrams.
    pub made: u64,
    /// Taken by the application, the last byte included.
    pub taken: u64,
    /// Bytes that the application has taken.
    pub bytes: u64,
    /// In the driver, where no thread has taken them.
    pub in_driver: u64,
    /// In the receive queues of connections and sockets.
    pub unread: u64,
    /// In the reassembly queues of connections: their bytes in packets of the usual size.
    pub behind_hole: u64,
    /// Dropped, by reason; only reasons for which something was.
    pub drops: Vec<(DropReason, u64)>,
}

impl PacketAccount {
    /// Dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, count)| count).sum()
    }

    /// All packets with a known place: as many as were made.
    pub fn accounted(&self) -> u64 {
        self.taken + self.in_driver + self.unread + self.behind_hole + self.dropped()
    }
}

impl fmt::Display for PacketAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PacketAccount { made, taken, in_driver, unread, behind_hole, .. } = self;
        write!(f, "{made} packets made: {taken} taken by the application, {unread} in receive queues, ")?;
        write!(f, "{behind_hole} in reassembly queues, {in_driver} in the driver, {} dropped", self.dropped())?;
        self.drops.iter().try_for_each(|(reason, count)| write!(f, ", {count} as {}", reason.name()))
    }
}

impl<P: Platform> Workers<P> {
    /// Packets that have been made, and packets that the application has taken, since the beginning of the run.
    pub(super) fn made_and_taken(&self) -> (u64, u64) {
        let of = |(index, arrivals): (usize, &super::Arrivals<P>)| self.made.within(port(index), arrivals.taken());
        let segments: u64 = self.arrivals.iter().enumerate().map(of).sum();
        let datagrams = self.datagrams.as_ref().map_or(0, |_| self.bytes.load(Relaxed) / self.chunk.len() as u64);
        (self.made.total(), segments + datagrams)
    }

    /// The account of the run, with these counters of the stack and its drivers. Called when the threads have ended; it takes the
    /// datagrams that are left.
    pub(super) fn account(&self, counters: &CounterSnapshot) -> PacketAccount {
        let (made, taken) = self.made_and_taken();
        let mut drops = counters.clone();
        drops += &self.made.lost();
        let sockets = self.sockets.get().map_or(&[][..], Vec::as_slice);
        let left: Vec<[u64; 2]> = sockets.iter().enumerate().map(|(index, socket)| self.left(index, socket)).collect();
        let bytes = self.bytes.load(Relaxed);
        let datagrams = self.datagrams.iter().map(|socket| {
            let left = std::iter::from_fn(|| self.stack.receive_udp(socket).ok());
            left.count() as u64
        });
        PacketAccount {
            made,
            taken,
            bytes,
            in_driver: self.made.waiting(),
            unread: left.iter().map(|[unread, _]| unread).sum::<u64>() + datagrams.sum::<u64>(),
            behind_hole: left.iter().map(|[_, held]| held).sum(),
            drops: drops.drops().filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// The segments in the receive queue of a connection, and those in its reassembly queue.
    fn left(&self, index: usize, socket: &Socket<P>) -> [u64; 2] {
        let Reply::Status(status) = self.stack.call(&socket.target(), Call::Status(tcp::Status)) else { return [0; 2] };
        let (port, taken) = (port(index), self.arrivals[index].taken());
        let until = |bytes: u64| self.made.within(port, bytes);
        let unread = until(taken + u64::from(status.receive_queue)) - until(taken);
        [unread, u64::from(status.out_of_order).div_ceil(self.chunk.len() as u64)]
    }
}

/// The remote port of a connection.
fn port(index: usize) -> u16 {
    FIRST_REMOTE + index as u16
}
