//! Two stacks linked in memory, and the shared state of a workload's threads while they open their connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heddle::config::{BufferSizes, Config, ConnectionOptions, MemoryLimits};
use heddle::device::Device;
use heddle::device::fault::Fault;
use heddle::{Cidr, Connect, Interface, Polled, Stack, StoppableClock, TcpListener, TcpStream, mem};
use observe::{Counter, CounterSnapshot};

use super::Params;
use super::affinity::Affinity;

/// Connections that one thread opens at a time: enough to fill the link, few enough to fit the SYN queue.
const OPENING_AT_ONCE: usize = 64;

/// Short, or a connection-rate benchmark would run out of ports in its first second (Linux reuses them after one).
const TIME_WAIT: Duration = Duration::from_millis(20);

/// Connections from one address: the number of its dynamic ports, a quarter of all.
pub(super) const PER_ADDRESS: u32 = 16_384;

/// The two stacks. `client` opens and sends, `server` accepts and receives.
pub(super) struct World {
    pub clock: Arc<StoppableClock>,
    pub client: Stack,
    pub server: Stack,
    pub listener: TcpListener,
    pub target: SocketAddr,
    /// Of each thread, one driver of each stack.
    drivers: Vec<Vec<Polled>>,
    /// Those that are used, and those that stay idle.
    connections: u32,
    pub addresses: u32,
    opened: Arc<AtomicU32>,
    accepted: Arc<AtomicU32>,
    pub affinity: Option<Arc<Affinity>>,
}

impl World {
    /// With as many addresses of clients as connections need that stay open.
    pub fn new(params: &Params) -> io::Result<World> {
        World::with_addresses(params, params.all_connections().div_ceil(PER_ADDRESS))
    }

    /// With so many addresses of clients, at most 200.
    pub fn with_addresses(params: &Params, addresses: u32) -> io::Result<World> {
        let threads = params.effective_threads() as usize;
        // Handlers send without a turn of the user in between: a batch of requests has as many answers, up to one for each
        // connection. A ring with less room drops some, and their connections wait while the others go on.
        let ring = if params.handlers { params.ring.max(params.connections as usize) } else { params.ring };
        let link = mem::MemConfig {
            queues: threads,
            mtu: params.mtu,
            ring_frames: ring,
            segmentation: params.offload.then_some(65_535),
            coalescing: params.offload,
            ..mem::MemConfig::default()
        };
        let (left, right) = mem::pair(link);
        let clock = StoppableClock::new();
        let mut left: Box<dyn Device> = Box::new(left);
        if let Some(faults) = &params.fault {
            let time = clock.clone();
            left = Box::new(Fault::new(left, faults.clone(), move || time.now()));
        }
        let build = |device: Box<dyn Device>, cidrs: Vec<Cidr>| {
            let interface = Interface::new(device).addresses(cidrs).map_err(io::Error::other)?;
            let builder =
                Stack::builder().interface(interface).architecture(params.arch).lock(params.lock).cpus(threads);
            // Without affinity ports spread evenly, as in the papers. With it the stack chooses the ports, or `next_source`,
            // where the connections of each thread are counted.
            let builder = builder.tcp(tcp_config(params)).homing(params.affinity).runs(params.runs);
            builder.stoppable_clock(clock.clone()).build_polled().map_err(io::Error::other)
        };
        let addresses = addresses.clamp(1, 200);
        let ipv6 = params.ipv6;
        let prefix = if ipv6 { 64 } else { 16 };
        let cidr = |third, fourth| Cidr::new(address(ipv6, third, fourth), prefix).map_err(io::Error::other);
        let sources = (1..=addresses as u8).map(|number| cidr(0, number)).collect::<io::Result<_>>()?;
        let (client, client_drivers) = build(left, sources)?;
        let (server, server_drivers) = build(Box::new(right), vec![cidr(1, 1)?])?;
        let target = SocketAddr::new(address(ipv6, 1, 1), 5001);
        let options = ConnectionOptions { no_delay: true, ..ConnectionOptions::default() };
        let listener = TcpListener::bind_with(&server, target, 16_384, options).map_err(io::Error::other)?;
        listener.set_nonblocking(true)?;
        let drivers = client_drivers.into_iter().zip(server_drivers).map(|(client, server)| vec![client, server]);
        Ok(World {
            clock,
            client,
            server,
            listener,
            target,
            drivers: drivers.collect(),
            connections: params.all_connections(),
            addresses,
            opened: Arc::default(),
            accepted: Arc::default(),
            affinity: params.affinity.then(|| Arc::new(Affinity::new(threads as u32))),
        })
    }

    /// The drivers of one thread; each thread takes its own once.
    pub fn take_drivers(&mut self, thread: u32) -> Vec<Polled> {
        std::mem::take(&mut self.drivers[thread as usize])
    }

    /// The share of the connections that one thread opens, and accepts.
    pub fn opener(&self, thread: u32, threads: u32) -> Opener {
        let share = share(self.connections, thread, threads);
        Opener {
            client: self.client.clone(),
            listener: self.listener.clone(),
            target: self.target,
            to_open: share,
            to_accept: share,
            thread,
            source: thread,
            addresses: self.addresses,
            pending: Vec::new(),
            opened: self.opened.clone(),
            accepted: self.accepted.clone(),
            affinity: self.affinity.clone(),
            ports: vec![0; self.addresses as usize],
        }
    }

    /// For workloads that open connections continuously: nothing to wait for.
    pub fn count_as_open(&self, connections: u32) {
        self.opened.store(connections, Ordering::Relaxed);
        self.accepted.store(connections, Ordering::Relaxed);
    }

    pub fn opened(&self) -> u32 {
        self.opened.load(Ordering::Relaxed).min(self.accepted.load(Ordering::Relaxed))
    }

    /// The numbers of connections that are open at the client, and at the server: handlers count theirs themselves.
    pub fn open_counts(&self) -> (Arc<AtomicU32>, Arc<AtomicU32>) {
        (self.opened.clone(), self.accepted.clone())
    }

    pub fn is_open(&self) -> bool {
        self.opened() >= self.connections
    }

    pub fn counter(&self, counter: Counter) -> u64 {
        let both: CounterSnapshot = self.client.stats().counters + self.server.stats().counters;
        both.get(counter)
    }

    pub fn bytes_per_connection(&self) -> Option<u64> {
        let (client, server) = (self.client.stats(), self.server.stats());
        let connections = client.connections.min(server.connections) as u64;
        (connections > 0).then(|| (client.bytes + server.bytes) as u64 / connections)
    }
}

/// Of `connections` those of one thread of so many.
pub(super) fn share(connections: u32, thread: u32, threads: u32) -> u32 {
    connections / threads + u32::from(thread < connections % threads)
}

/// An address of the link: 10.9.`third`.`fourth`/16 or fd09::`third`:`fourth`/64.
fn address(ipv6: bool, third: u8, fourth: u8) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, third.into(), fourth.into()).into()
    } else {
        Ipv4Addr::new(10, 9, third, fourth).into()
    }
}

/// Address `number` of the clients, in the family of `target`, with any port.
pub(super) fn source(target: SocketAddr, number: u8) -> SocketAddr {
    SocketAddr::new(address(target.is_ipv6(), 0, 1 + number), 0)
}

fn tcp_config(params: &Params) -> Config {
    // No limit: otherwise the limit would be measured instead of the architecture.
    let memory = Some(MemoryLimits::UNLIMITED);
    let mut config = Config { time_wait: TIME_WAIT, memory, ..Config::default() };
    if let Some(size) = params.buffer {
        config.send_buffer = BufferSizes { min: size, initial: size, max: size };
        config.receive_buffer = BufferSizes { min: size, initial: size, max: size };
    }
    config
}

/// One thread's part in opening the connections, a step at a time between its polls.
pub(super) struct Opener {
    client: Stack,
    listener: TcpListener,
    target: SocketAddr,
    to_open: u32,
    to_accept: u32,
    thread: u32,
    source: u32,
    addresses: u32,
    pending: Vec<TcpStream>,
    opened: Arc<AtomicU32>,
    accepted: Arc<AtomicU32>,
    affinity: Option<Arc<Affinity>>,
    /// With affinity: for each address, the first port that is not yet used.
    ports: Vec<u16>,
}

/// An end of a connection that has just been established.
pub(super) enum End {
    Client(TcpStream),
    Server(TcpStream),
}

impl Opener {
    /// The same for another port of the server.
    pub fn towards(self, target: SocketAddr) -> Opener {
        Opener { target, ..self }
    }

    /// Whether this thread has all its ends.
    pub fn done(&self) -> bool {
        self.to_open == 0 && self.to_accept == 0 && self.pending.is_empty()
    }

    /// Has `start` begin to open what may be opened beside `pending` connections that are not yet established. It is given
    /// the stack and both addresses.
    pub fn start(
        &mut self,
        mut pending: usize,
        mut start: impl FnMut(&Stack, SocketAddr, SocketAddr) -> io::Result<()>,
    ) -> io::Result<()> {
        // One until the link addresses are known: the SYNs of more would overflow the neighbour's queue.
        let at_once = if self.opened.load(Ordering::Relaxed) < self.addresses { 1 } else { OPENING_AT_ONCE };
        while self.to_open > 0 && pending < at_once {
            let local = self.next_source()?;
            start(&self.client, local, self.target)?;
            self.to_open -= 1;
            pending += 1;
        }
        Ok(())
    }

    /// Opens and accepts what is possible now.
    pub fn step(&mut self, mut give: impl FnMut(End)) -> io::Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        self.start(pending.len(), |client, local, target| {
            pending.push(Connect::new().local(local).start(client, target)?);
            Ok(())
        })?;
        self.pending = pending;
        let mut index = 0;
        while index < self.pending.len() {
            let ready = self.pending[index].readiness();
            if ready.intersects(heddle::Readiness::ERROR | heddle::Readiness::CLOSED) {
                return Err(self.pending[index]
                    .take_error()?
                    .unwrap_or_else(|| io::Error::other("a connection failed")));
            }
            if ready.intersects(heddle::Readiness::CONNECTED) {
                let stream = self.pending.swap_remove(index);
                // The sender sends whole messages; Nagle's rule would only delay the last one.
                stream.set_nodelay(true)?;
                give(End::Client(stream));
                self.opened.fetch_add(1, Ordering::Relaxed);
            } else {
                index += 1;
            }
        }
        while self.to_accept > 0 {
            let Some(stream) = self.accept() else { break };
            stream.set_nonblocking(true)?;
            give(End::Server(stream));
            self.to_accept -= 1;
            self.accepted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Source of the next connection: addresses in turn; any port, or one that maps to this thread.
    fn next_source(&mut self) -> io::Result<SocketAddr> {
        let address = self.source % self.addresses;
        self.source += 1;
        let mut local = source(self.target, address as u8);
        if let Some(affinity) = &self.affinity {
            let from = &mut self.ports[address as usize];
            let port = affinity.port(self.thread, local, self.target, *from);
            local.set_port(port.ok_or_else(|| io::Error::other("no port is left that leads to this thread"))?);
            *from = local.port().saturating_add(1);
        }
        Ok(local)
    }

    /// An accepted end for this thread; one for another is passed on.
    fn accept(&self) -> Option<TcpStream> {
        match &self.affinity {
            Some(affinity) => affinity.accept(self.thread, &self.listener, self.target),
            None => Some(self.listener.accept().ok()?.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_affinity_both_ends_come_to_the_thread_that_receives_them() {
        let params = Params { connections: 7, threads: 2, ..Params::new("connp-l:8".parse().unwrap()) };
        let mut world = World::new(&params).unwrap();
        world.clock.go_on();
        let mut drivers: Vec<Polled> = (0..2).flat_map(|thread| world.take_drivers(thread)).collect();
        let mut openers = [world.opener(0, 2), world.opener(1, 2)];
        let mut ends = [Vec::new(), Vec::new()];
        while !openers.iter().all(Opener::done) {
            for driver in &mut drivers {
                driver.poll();
            }
            for (opener, ends) in openers.iter_mut().zip(&mut ends) {
                opener.step(|end| ends.push(end)).unwrap();
            }
        }
        for (thread, ends) in ends.iter().enumerate() {
            let clients = ends.iter().filter(|end| matches!(end, End::Client(_))).count();
            assert_eq!((clients, ends.len() - clients), [(4, 4), (3, 3)][thread]);
            for End::Client(stream) | End::Server(stream) in ends {
                assert_eq!(stream.incoming_driver(), Some(thread));
            }
        }
    }
}
