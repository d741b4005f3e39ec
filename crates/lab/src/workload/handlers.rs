//! Request/response with a handler at each end: no thread waits for events, and each end runs where its data arrives.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use heddle::config::ConnectionOptions;
use heddle::device::PktBuf;
use heddle::error::TcpError;
use heddle::handler::{Conn, Handler, Service};
use heddle::{Connect, Polled};

use super::world::{Opener, World, share};
use super::{Params, drive};
use crate::worker_pool::{Sample, Work};

/// The server's port beside the one of the other workloads.
const PORT: u16 = 5002;

/// The server: the service of one port, and what its connections share. Its handlers live as long as the service.
#[derive(Clone)]
pub(super) struct Server {
    service: Arc<Service>,
    failure: Arc<Failure>,
}

/// Starts the server's handlers.
///
/// # Errors
/// The port cannot be listened on.
pub(super) fn serve(world: &World, params: &Params) -> io::Result<Server> {
    let failure = Arc::new(Failure::default());
    let (length, (_, accepted), failing) = (params.request.max(1), world.open_counts(), failure.clone());
    let target = SocketAddr::new(world.target.ip(), PORT);
    let options = ConnectionOptions { no_delay: true, ..ConnectionOptions::default() };
    let service = world.server.serve_with(target, options, move |_peer| {
        let side = Side::Server { accepted: accepted.clone() };
        End { message: vec![b'r'; length], received: 0, side, failure: failing.clone() }
    });
    Ok(Server { service: Arc::new(service.map_err(io::Error::other)?), failure })
}

/// Why the first connection failed; the threads of the benchmark look at it.
#[derive(Default)]
struct Failure {
    any: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl Failure {
    fn report(&self, reason: String) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.any.store(true, Ordering::Release);
    }

    fn check(&self) -> io::Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Err(io::Error::other(reason.unwrap_or_default()))
    }
}

/// What the handlers of one thread's clients share. Each connection counts its responses in a place of its own, so that it needs
/// no atomic addition: callbacks of one handler never overlap.
struct Clients {
    /// Connections that are established, to limit those that are being opened.
    established: AtomicU32,
    responses: Box<[AtomicU64]>,
}

/// The handler of one end.
struct End {
    message: Vec<u8>,
    /// Bytes of the next message that have arrived.
    received: usize,
    side: Side,
    failure: Arc<Failure>,
}

enum Side {
    /// Connection `number` of its thread. It is idle if it has no place to count in.
    Client {
        opened: Arc<AtomicU32>,
        clients: Arc<Clients>,
        number: usize,
    },
    Server {
        accepted: Arc<AtomicU32>,
    },
}

impl End {
    fn send(&self, conn: &mut Conn<'_>) {
        if conn.send(&self.message) != Ok(self.message.len()) {
            self.failure.report("one message at a time must fit the send buffer: make the request smaller".to_owned());
            conn.abort();
        }
    }
}

impl Handler for End {
    fn on_open(&mut self, conn: &mut Conn<'_>) {
        match &self.side {
            Side::Server { accepted } => {
                accepted.fetch_add(1, Ordering::Relaxed);
            }
            Side::Client { opened, clients, number } => {
                opened.fetch_add(1, Ordering::Relaxed);
                clients.established.fetch_add(1, Ordering::Relaxed);
                if *number < clients.responses.len() {
                    self.send(conn);
                }
            }
        }
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, data: PktBuf) {
        self.received += data.len();
        while self.received >= self.message.len() {
            self.received -= self.message.len();
            if let Side::Client { clients, number, .. } = &self.side {
                let count = &clients.responses[*number];
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            self.send(conn);
        }
    }

    fn on_closed(&mut self, _conn: &mut Conn<'_>, outcome: Result<(), TcpError>) {
        let reason = outcome.err().map_or_else(|| "a peer closed".to_owned(), |error| error.to_string());
        self.failure.report(reason);
    }
}

/// One thread's share: it opens its connections, and polls.
pub(super) struct HandlerRpc {
    drivers: Vec<Polled>,
    opener: Opener,
    started: u32,
    opened: Arc<AtomicU32>,
    clients: Arc<Clients>,
    server: Server,
    request: usize,
    /// Responses of each connection up to the end of the last slice.
    counted: Vec<u64>,
}

impl HandlerRpc {
    pub fn new(world: &mut World, params: &Params, thread: u32, server: Server) -> HandlerRpc {
        let threads = params.effective_threads();
        let used = share(params.connections, thread, threads);
        let responses = (0..used).map(|_| AtomicU64::new(0)).collect();
        HandlerRpc {
            drivers: world.take_drivers(thread),
            opener: world.opener(thread, threads).towards(server.service.local_addr()),
            started: 0,
            opened: world.open_counts().0,
            clients: Arc::new(Clients { established: AtomicU32::new(0), responses }),
            server,
            request: params.request.max(1),
            counted: vec![0; used as usize],
        }
    }

    fn open(&mut self) -> io::Result<()> {
        let pending = self.started - self.clients.established.load(Ordering::Relaxed);
        let HandlerRpc { opener, started, opened, clients, server, request, .. } = self;
        opener.start(pending as usize, |client, local, target| {
            let side = Side::Client { opened: opened.clone(), clients: clients.clone(), number: *started as usize };
            let end = End { message: vec![b'r'; *request], received: 0, side, failure: server.failure.clone() };
            let options = ConnectionOptions { no_delay: true, ..ConnectionOptions::default() };
            let connect = Connect::new().local(local).options(options);
            connect.start_with_handler(client, target, end).map_err(io::Error::other)?;
            *started += 1;
            Ok(())
        })
    }
}

impl Work for HandlerRpc {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        // Moved out for the loop, so that a step may borrow the rest.
        let mut drivers = std::mem::take(&mut self.drivers);
        let result = drive(&mut drivers, deadline, || {
            self.server.failure.check()?;
            self.open()?;
            Ok(false)
        });
        self.drivers = drivers;
        for (count, counted) in self.clients.responses.iter().zip(&mut self.counted) {
            let responses = count.load(Ordering::Relaxed);
            let operations = responses - std::mem::replace(counted, responses);
            let bytes = 2 * operations * self.request as u64;
            (sample.operations, sample.bytes) = (sample.operations + operations, sample.bytes + bytes);
            sample.by_connection.push(bytes);
        }
        result
    }
}
