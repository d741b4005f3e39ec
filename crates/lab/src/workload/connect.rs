//! Connection rate: each thread opens connections, accepts them, and closes both ends in order.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use heddle::{Polled, Readiness, Stack, TcpListener, TcpStream};

use super::affinity::Affinity;
use super::world::{PER_ADDRESS, World, source};
use super::{Params, drive};
use crate::worker_pool::{Sample, Work};

/// The number of addresses of clients. A port is in TIME-WAIT for 20 ms after its connection, in which a thread opens no more than
/// 20 000; with fewer ports the search for a free one would be measured.
pub(super) fn addresses(params: &Params) -> u32 {
    (2 * params.effective_threads()).max(params.connections.div_ceil(PER_ADDRESS))
}

/// One thread's share: a number of connections at a time, each opened, accepted, closed by the client, then by the
/// server. With affinity the stack chooses ports of flows that the thread receives, and the thread serves the ends that it
/// receives.
pub(super) struct Connect {
    drivers: Vec<Polled>,
    client: Stack,
    listener: TcpListener,
    target: SocketAddr,
    thread: u32,
    affinity: Option<Arc<Affinity>>,
    at_once: usize,
    /// Connections that it has opened, and those after which it goes on to the next address: it has used its share of the ports.
    opened: u32,
    per_address: u32,
    addresses: u32,
    opening: Vec<TcpStream>,
    serving: Vec<TcpStream>,
}

impl Connect {
    pub fn new(world: &mut World, params: &Params, thread: u32) -> Connect {
        let threads = params.effective_threads();
        world.count_as_open(params.connections);
        Connect {
            drivers: world.take_drivers(thread),
            client: world.client.clone(),
            listener: world.listener.clone(),
            target: world.target,
            thread,
            affinity: world.affinity.clone(),
            at_once: (params.connections / threads).max(1) as usize,
            opened: 0,
            per_address: PER_ADDRESS / threads,
            addresses: world.addresses,
            opening: Vec::new(),
            serving: Vec::new(),
        }
    }

    fn step(&mut self, sample: &mut Sample) -> io::Result<bool> {
        let mut busy = false;
        while self.opening.len() < self.at_once {
            let local = source(self.target, (self.opened / self.per_address % self.addresses) as u8);
            self.opened = self.opened.wrapping_add(1);
            self.opening.push(heddle::Connect::new().local(local).start(&self.client, self.target)?);
            busy = true;
        }
        let before = self.opening.len();
        let mut failed = None;
        self.opening.retain(|stream| {
            let ready = stream.readiness();
            if ready.intersects(Readiness::ERROR) {
                failed = stream.take_error().unwrap_or_else(Some);
            }
            // Dropping the stream sends the FIN.
            !ready.intersects(Readiness::CONNECTED | Readiness::ERROR)
        });
        if let Some(error) = failed {
            return Err(error);
        }
        busy |= self.opening.len() != before;
        while let Some(stream) = self.accept() {
            stream.set_nonblocking(true)?;
            self.serving.push(stream);
            busy = true;
        }
        let before = self.serving.len();
        self.serving.retain(|stream| {
            let mut reader = stream;
            // One load, as long as nothing has arrived.
            let waits = !stream.readiness().intersects(Readiness::READABLE | Readiness::ERROR | Readiness::CLOSED);
            // Dropping the stream sends the FIN.
            waits || matches!(reader.read(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        let closed = before - self.serving.len();
        sample.operations += closed as u64;
        Ok(busy | (closed > 0))
    }

    fn accept(&self) -> Option<TcpStream> {
        match &self.affinity {
            Some(affinity) => affinity.accept(self.thread, &self.listener, self.target),
            None => Some(self.listener.accept().ok()?.0),
        }
    }
}

impl Work for Connect {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        // Moved out for the loop, so that a step may borrow the rest.
        let mut drivers = std::mem::take(&mut self.drivers);
        let result = drive(&mut drivers, deadline, || self.step(sample));
        self.drivers = drivers;
        result
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sampling::Contender;
    use crate::workload::Bench;

    /// Hand-overs between two cores that share nothing, for each connection opened and closed.
    fn handoffs(affinity: bool) -> f64 {
        let params = Params { connections: 16, threads: 2, affinity, ..Params::new("shared-nothing".parse().unwrap()) };
        let mut bench = Bench::open_connect(&params).unwrap();
        let (mut handoffs, mut operations) = (0, 0);
        while operations < 500 {
            let slice = bench.run_slice(Duration::from_millis(20)).unwrap();
            (handoffs, operations) = (handoffs + slice.exact.handoffs, operations + slice.operations);
        }
        handoffs as f64 / operations as f64
    }

    /// How many there are without affinity depends on the other programs that use the processors: where the two threads run by turns, each
    /// closes mostly what it receives itself. `vsmp`'s test of the same name counts them in virtual time.
    #[test]
    fn at_home_a_connection_lives_and_ends_on_the_core_that_receives_it() {
        let (with, without) = (handoffs(true), handoffs(false));
        assert!(with < 0.2 && without > 0.2, "{with} with affinity, {without} without");
    }
}
