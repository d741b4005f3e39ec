//! The floor: the rate of one core without any protocol.
//!
//! A frame's worth of bytes is copied and summed, copied out again, and a table of connections is looked up: the
//! minimal work of any TCP for a segment. A stack's distance to it is the cost of its protocol.

use std::collections::HashMap;
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use crate::cpu::Usage;
use crate::sampling::{Contender, Slice};
use crate::worker_pool::{Sample, Work, WorkerPool};

/// Copy, checksum and demultiplex, without a protocol, on one thread. [`Floors`] has several, which share nothing.
pub struct Floor {
    segment: usize,
    source: Vec<u8>,
    frame: Vec<u8>,
    sink: Vec<u8>,
    table: HashMap<u64, u64>,
    next: u64,
}

impl Floor {
    /// For segments of `segment` bytes over `connections` connections.
    pub fn new(segment: usize, connections: u32) -> Floor {
        Floor {
            segment,
            source: (0..64 << 10).map(|n| n as u8).collect(),
            frame: vec![0; segment],
            sink: vec![0; 64 << 10],
            table: (0..u64::from(connections)).map(|n| (n, 0)).collect(),
            next: 0,
        }
    }

    /// Carries one segment.
    pub(crate) fn segment(&mut self) {
        let connections = self.table.len() as u64;
        let at = (self.next as usize * self.segment) % (self.source.len() - self.segment);
        let sent = pktbuf::copy_and_sum(&mut self.frame, &self.source[at..at + self.segment]);
        let received = pktbuf::sum(&self.frame);
        if let Some(count) = self.table.get_mut(&(self.next % connections)) {
            *count += self.segment as u64;
        }
        self.sink[at..at + self.segment].copy_from_slice(&self.frame);
        let _ = black_box((sent, received));
        self.next += 1;
    }
}

impl Contender for Floor {
    fn name(&self) -> &str {
        "floor: copy, checksum, look-up, copy"
    }

    fn run_slice(&mut self, duration: Duration) -> io::Result<Slice> {
        let before = Usage::of_thread()?;
        let start = Instant::now();
        let first = self.next;
        while start.elapsed() < duration {
            for _ in 0..256 {
                self.segment();
            }
        }
        let wall = start.elapsed();
        let used = Usage::of_thread()? - before;
        let operations = self.next - first;
        let bytes = operations * self.segment as u64;
        Ok(Slice { bytes, operations, wall, cpu: used.cpu, switches: used.switches, ..Slice::default() })
    }
}

impl Work for Floor {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        let first = self.next;
        while Instant::now() < deadline {
            for _ in 0..256 {
                self.segment();
            }
        }
        sample.operations += self.next - first;
        sample.bytes += (self.next - first) * self.segment as u64;
        Ok(())
    }
}

/// A [`Floor`] on each of several threads: the maximum that these processors can do together.
pub struct Floors {
    worker_pool: WorkerPool,
}

impl Floors {
    /// For segments of `segment` bytes over `connections` connections, spread over `threads` threads.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(segment: usize, connections: u32, threads: u32) -> io::Result<Floors> {
        let floor = |_| Box::new(Floor::new(segment, (connections / threads).max(1))) as Box<dyn Work>;
        Ok(Floors { worker_pool: WorkerPool::start("floor", (0..threads).map(floor).collect())? })
    }
}

impl Contender for Floors {
    fn name(&self) -> &str {
        "floors: copy, checksum, look-up, copy on each thread"
    }

    fn run_slice(&mut self, duration: Duration) -> io::Result<Slice> {
        self.worker_pool.run_slice(duration)
    }
}
