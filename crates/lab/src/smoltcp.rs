//! smoltcp, another TCP in user space, as one contender among ours (cargo feature `smoltcp`).
//!
//! Two interfaces on a pair of rings of frames, both ends on one thread, as smoltcp has one owner; with several threads
//! each has interfaces and connections of its own, so nothing is shared. Checksums are computed and verified in
//! software, the MTU is that of the comparison, and Nagle's algorithm is off, as on our side. Three differences
//! remain: its frames are bare IP packets, its segments carry no timestamps, and set-up and close uses one pair of
//! sockets again and again: one connection at a time with one request and one response, ended by resets, without
//! TIME-WAIT.

use std::io;
use std::time::{Duration, Instant};

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant as Moment;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint};

use crate::result::Workload;
use crate::sampling::{Contender, Slice};
use crate::worker_pool::{Sample, Work, WorkerPool};

/// Frames that a ring holds, as in the link of our side.
const RING: usize = 256;

/// Largest number of connections: ports of one address from [`FIRST_PORT`] on.
const MOST: u32 = 60_000;
const FIRST_PORT: u16 = 2000;

/// Listening ports: one for each socket, since a listening socket becomes the connection.
const FIRST_LISTENER: u16 = 1000;

/// Parameters of a benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Connections of all threads, 1 to 60 000 for each thread.
    pub connections: u32,
    /// Threads, 1 or more.
    pub threads: u32,
    /// Bytes in one call of a sender.
    pub message: usize,
    /// Bytes of a request and of its response.
    pub request: usize,
    /// Largest IP packet.
    pub mtu: usize,
    /// Socket buffers in bytes in the direction of the data; `None`: 256 KiB, since smoltcp has no autotuning.
    pub buffer: Option<u32>,
}

/// smoltcp under one workload, opened, with the threads that drive it.
#[derive(Debug)]
pub struct SmoltcpBench {
    name: String,
    worker_pool: WorkerPool,
}

impl SmoltcpBench {
    /// Opens the connections of all threads.
    ///
    /// # Errors
    /// A parameter is out of range, the handshakes were not completed, or a thread could not be started.
    pub fn open(workload: Workload, params: &Params) -> io::Result<SmoltcpBench> {
        let threads = params.threads.max(1);
        let share = (params.connections / threads).max(1);
        if params.request > LARGEST_REQUEST {
            return Err(io::Error::other(format!("smoltcp: requests of {LARGEST_REQUEST} bytes at most")));
        }
        if share > MOST {
            return Err(io::Error::other(format!("smoltcp: {share} connections a thread; {MOST} is the most")));
        }
        let work = (0..threads).map(|_| {
            Ok(match workload {
                Workload::Bulk => Box::new(Bulk::open(share, params)?) as Box<dyn Work>,
                Workload::Rpc => Box::new(Rpc::open(share, params)?),
                Workload::Connect => Box::new(Connect::open(params)),
            })
        });
        let work = work.collect::<io::Result<Vec<_>>>()?;
        Ok(SmoltcpBench {
            name: format!("smoltcp, {} connections", params.connections),
            worker_pool: WorkerPool::start("smoltcp", work)?,
        })
    }

    /// Remarks for the reader of the figures.
    pub fn notes(workload: Workload) -> Vec<String> {
        let mut notes = vec!["both ends of a connection on one thread; bare IP packets; no timestamps".to_owned()];
        if workload == Workload::Connect {
            notes
                .push("one pair of sockets used again: one exchange, then RST from both ends, no TIME-WAIT".to_owned());
        }
        notes
    }
}

impl Contender for SmoltcpBench {
    fn name(&self) -> &str {
        &self.name
    }

    fn run_slice(&mut self, duration: Duration) -> io::Result<Slice> {
        self.worker_pool.run_slice(duration)
    }
}

/// Frames on their way in one direction, in slots that are used in turn.
#[derive(Debug)]
struct Ring {
    mtu: usize,
    frames: Vec<u8>,
    lengths: [usize; RING],
    first: usize,
    count: usize,
}

impl Ring {
    fn new(mtu: usize) -> Ring {
        Ring { mtu, frames: vec![0; RING * mtu], lengths: [0; RING], first: 0, count: 0 }
    }

    fn slot(&mut self, index: usize, length: usize) -> &mut [u8] {
        let start = index % RING * self.mtu;
        &mut self.frames[start..start + length]
    }
}

/// One end's view of the two rings, as smoltcp's device.
struct Port<'a> {
    receive: &'a mut Ring,
    transmit: &'a mut Ring,
}

struct Receive<'a>(&'a mut Ring);
struct Transmit<'a>(&'a mut Ring);

impl Device for Port<'_> {
    type RxToken<'a>
        = Receive<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Transmit<'a>
    where
        Self: 'a;

    fn receive(&mut self, _now: Moment) -> Option<(Receive<'_>, Transmit<'_>)> {
        let possible = self.receive.count > 0 && self.transmit.count < RING;
        possible.then_some((Receive(self.receive), Transmit(self.transmit)))
    }

    fn transmit(&mut self, _now: Moment) -> Option<Transmit<'_>> {
        (self.transmit.count < RING).then_some(Transmit(self.transmit))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.receive.mtu;
        capabilities
    }
}

impl RxToken for Receive<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let Receive(ring) = self;
        let (index, length) = (ring.first, ring.lengths[ring.first]);
        let result = f(ring.slot(index, length));
        ring.first = (ring.first + 1) % RING;
        ring.count -= 1;
        result
    }
}

impl TxToken for Transmit<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let Transmit(ring) = self;
        let index = (ring.first + ring.count) % RING;
        ring.lengths[index] = length;
        let result = f(ring.slot(index, length));
        ring.count += 1;
        result
    }
}

/// An interface with its sockets.
struct End {
    interface: Interface,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
}

impl End {
    fn add(&mut self, receive: usize, send: usize) -> SocketHandle {
        let mut socket = Socket::new(SocketBuffer::new(vec![0; receive]), SocketBuffer::new(vec![0; send]));
        socket.set_nagle_enabled(false);
        let handle = self.sockets.add(socket);
        self.handles.push(handle);
        handle
    }

    fn socket(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }
}

/// Two ends and the rings between them.
struct Pair {
    client: End,
    server: End,
    to_client: Ring,
    to_server: Ring,
}

const CLIENT: IpAddress = IpAddress::v4(10, 9, 0, 1);
const SERVER: IpAddress = IpAddress::v4(10, 9, 0, 2);

impl Pair {
    fn new(mtu: usize) -> Pair {
        let (mut to_client, mut to_server) = (Ring::new(mtu), Ring::new(mtu));
        let end = |address, receive: &mut Ring, transmit: &mut Ring| {
            let config = Config::new(HardwareAddress::Ip);
            let mut interface = Interface::new(config, &mut Port { receive, transmit }, Moment::now());
            interface.update_ip_addrs(|addresses| {
                addresses.push(IpCidr::new(address, 24)).expect("a new interface has room for an address");
            });
            End { interface, sockets: SocketSet::new(Vec::new()), handles: Vec::new() }
        };
        let client = end(CLIENT, &mut to_client, &mut to_server);
        let server = end(SERVER, &mut to_server, &mut to_client);
        Pair { client, server, to_client, to_server }
    }

    fn poll_client(&mut self) {
        let mut port = Port { receive: &mut self.to_client, transmit: &mut self.to_server };
        self.client.interface.poll(Moment::now(), &mut port, &mut self.client.sockets);
    }

    fn poll_server(&mut self) {
        let mut port = Port { receive: &mut self.to_server, transmit: &mut self.to_client };
        self.server.interface.poll(Moment::now(), &mut port, &mut self.server.sockets);
    }

    /// Begins connection `number`.
    fn connect(&mut self, handle: SocketHandle, number: u32) -> io::Result<()> {
        let to = IpEndpoint::new(SERVER, FIRST_LISTENER + (number % MOST) as u16);
        let from = IpEndpoint::new(CLIENT, FIRST_PORT + (number % MOST) as u16);
        let context = self.client.interface.context();
        self.client.sockets.get_mut::<Socket<'_>>(handle).connect(context, to, from).map_err(io::Error::other)
    }

    fn listen(&mut self, handle: SocketHandle, number: u32) -> io::Result<()> {
        let port = FIRST_LISTENER + (number % MOST) as u16;
        self.server.socket(handle).listen(port).map_err(io::Error::other)
    }

    /// `count` connections, established; buffers of a client and of a server: receive and send.
    fn open(count: u32, mtu: usize, client: (usize, usize), server: (usize, usize)) -> io::Result<Pair> {
        let mut pair = Pair::new(mtu);
        for number in 0..count {
            let handle = pair.server.add(server.0, server.1);
            pair.listen(handle, number)?;
            let handle = pair.client.add(client.0, client.1);
            pair.connect(handle, number)?;
            if number % 64 == 63 {
                pair.poll_client();
                pair.poll_server();
            }
        }
        let limit = Instant::now() + Duration::from_secs(60);
        while !pair.is_open() {
            if Instant::now() > limit {
                return Err(io::Error::other("smoltcp's handshakes were not completed in a minute"));
            }
            pair.poll_client();
            pair.poll_server();
        }
        Ok(pair)
    }

    fn is_open(&mut self) -> bool {
        let open = |end: &mut End| {
            let sockets = &mut end.sockets;
            end.handles.iter().all(|handle| sockets.get_mut::<Socket<'_>>(*handle).state() == State::Established)
        };
        open(&mut self.client) && open(&mut self.server)
    }
}

/// Polls between two clock readings.
const POLLS: usize = 8;

/// Takes steps until `deadline`.
fn drive(deadline: Instant, mut step: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    while Instant::now() < deadline {
        for _ in 0..POLLS {
            step()?;
        }
    }
    Ok(())
}

/// Longest request, as for the other contenders.
const LARGEST_REQUEST: usize = 4096;

/// Bytes of the buffers in the direction without data.
const SMALL: usize = 2048;

struct Bulk {
    pair: Pair,
    message: Vec<u8>,
}

impl Bulk {
    fn open(count: u32, params: &Params) -> io::Result<Bulk> {
        let buffer = params.buffer.unwrap_or(256 << 10) as usize;
        let pair = Pair::open(count, params.mtu, (SMALL, buffer), (buffer, SMALL))?;
        Ok(Bulk { pair, message: vec![b'b'; params.message.max(1)] })
    }

    fn step(&mut self, sample: &mut Sample) -> io::Result<()> {
        let Bulk { pair, message } = self;
        for handle in &pair.client.handles {
            let socket = pair.client.sockets.get_mut::<Socket<'_>>(*handle);
            if socket.can_send() {
                socket.send_slice(message).map_err(io::Error::other)?;
            }
        }
        pair.poll_client();
        pair.poll_server();
        for handle in &pair.server.handles {
            let socket = pair.server.sockets.get_mut::<Socket<'_>>(*handle);
            while socket.can_recv() {
                sample.bytes += socket.recv(|data| (data.len(), data.len())).map_err(io::Error::other)? as u64;
            }
        }
        pair.poll_server();
        pair.poll_client();
        Ok(())
    }
}

impl Work for Bulk {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        drive(deadline, || self.step(sample))
    }
}

struct Rpc {
    pair: Pair,
    request: Vec<u8>,
    started: bool,
}

impl Rpc {
    fn open(count: u32, params: &Params) -> io::Result<Rpc> {
        let request = vec![b'r'; params.request.max(1)];
        let buffer = SMALL.max(2 * request.len());
        let pair = Pair::open(count, params.mtu, (buffer, buffer), (buffer, buffer))?;
        Ok(Rpc { pair, request, started: false })
    }

    fn step(&mut self, sample: &mut Sample) -> io::Result<()> {
        let Rpc { pair, request, started } = self;
        if !*started {
            *started = true;
            for index in 0..pair.client.handles.len() {
                let handle = pair.client.handles[index];
                pair.client.socket(handle).send_slice(request).map_err(io::Error::other)?;
            }
        }
        pair.poll_client();
        pair.poll_server();
        answer(&mut pair.server, request)?;
        pair.poll_server();
        pair.poll_client();
        let answered = answer(&mut pair.client, request)?;
        sample.operations += answered;
        sample.bytes += 2 * answered * request.len() as u64;
        Ok(())
    }
}

/// Takes each complete message and sends one of the same length. Returns how many there were.
fn answer(end: &mut End, message: &[u8]) -> io::Result<u64> {
    let (mut answered, mut buffer) = (0, [0; LARGEST_REQUEST]);
    for handle in &end.handles {
        let socket = end.sockets.get_mut::<Socket<'_>>(*handle);
        if socket.recv_queue() >= message.len() {
            socket.recv_slice(&mut buffer[..message.len()]).map_err(io::Error::other)?;
            socket.send_slice(message).map_err(io::Error::other)?;
            answered += 1;
        }
    }
    Ok(answered)
}

impl Work for Rpc {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        drive(deadline, || self.step(sample))
    }
}

/// One connection after the other through one pair of sockets.
struct Connect {
    pair: Pair,
    request: Vec<u8>,
    client: SocketHandle,
    server: SocketHandle,
    number: u32,
}

impl Connect {
    fn open(params: &Params) -> Connect {
        let mut pair = Pair::new(params.mtu);
        let request = vec![b'c'; params.request.max(1)];
        let buffer = SMALL.max(2 * request.len());
        let (client, server) = (pair.client.add(buffer, buffer), pair.server.add(buffer, buffer));
        Connect { pair, request, client, server, number: 0 }
    }

    fn step(&mut self, sample: &mut Sample) -> io::Result<()> {
        self.number = (self.number + 1) % MOST;
        let pair = &mut self.pair;
        pair.listen(self.server, self.number)?;
        pair.connect(self.client, self.number)?;
        let mut asked = false;
        loop {
            pair.poll_client();
            pair.poll_server();
            let client = pair.client.socket(self.client);
            if client.may_send() && !asked {
                asked = true;
                client.send_slice(&self.request).map_err(io::Error::other)?;
            }
            if client.recv_queue() >= self.request.len() {
                break;
            }
            answer(&mut pair.server, &self.request)?;
        }
        pair.client.socket(self.client).abort();
        pair.poll_client();
        pair.poll_server();
        pair.server.socket(self.server).abort();
        pair.poll_server();
        pair.poll_client();
        sample.operations += 1;
        Ok(())
    }
}

impl Work for Connect {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        drive(deadline, || self.step(sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_makes_progress_on_each_of_two_threads() {
        for workload in [Workload::Bulk, Workload::Rpc, Workload::Connect] {
            let params = Params { connections: 6, threads: 2, message: 65_536, request: 64, mtu: 1500, buffer: None };
            let mut bench = SmoltcpBench::open(workload, &params).expect("open");
            // A slice may end before its threads ran at all.
            let slices = (0..1000).map(|_| bench.run_slice(Duration::from_millis(2)).expect("a slice"));
            assert!(slices.map(|slice| slice.bytes + slice.operations).any(|done| done > 0), "{workload:?}");
        }
    }

    #[test]
    fn more_connections_than_ports_are_refused() {
        let params = Params { connections: 60_001, threads: 1, message: 1, request: 1, mtu: 1500, buffer: None };
        assert!(SmoltcpBench::open(Workload::Rpc, &params).is_err());
    }
}
