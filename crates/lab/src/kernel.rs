//! The Linux kernel's own TCP on loopback, as one contender among ours.
//!
//! The shape is that of the parallel TCP benchmark of Willmann et al. 2006 (section 4): a fixed number of connections
//! spread evenly over event-driven threads, one thread pinned to each processor, both ends in this process. A
//! [`KernelBench`] is opened once, works in slices and rests in between, so that it can be measured in the same seconds
//! as the stack it is compared with. What may never happen: a thread that spins between slices, or a requested
//! connection that is silently not opened.
//!
//! Loopback is not a network card: its MTU is 65536 bytes unless it was changed, nothing is checksummed, and segments
//! are passed by reference. [`KernelBench::notes`] reports this with the figures.

mod bulk;
mod connect;

mod rpc;
mod sockets;

use std::fmt;
use std::io;
use std::time::Duration;

use crate::sampling::{Contender, Slice};
use crate::worker_pool::{Work, WorkerPool};
use sockets::Opener;

/// How payload is passed to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendMode {
    /// `sendfile` from memory-backed pages: no copy on the sending side, as in Willmann et al.
    #[default]
    Sendfile,
    /// `write` from one buffer: one copy on the sending side.
    Write,
}

/// Which threads run the two ends of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// One thread runs both: a segment stays in one processor's cache. The kernel's best case.
    #[default]
    Together,
    /// The next thread runs the receiving end.
    Apart,
}

/// Parameters of a benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Connections, 1 or more. A connection-rate benchmark opens one at a time on each thread instead.
    pub connections: u32,
    /// Threads, 1 or more; thread `t` is pinned to the `t`-th processor this process may use, modulo their number.
    pub threads: u32,
    /// Bytes passed to the kernel in one call, and the size of a receiver's buffer; 1 or more.
    pub message: usize,
    /// Bytes of a request and of its response, 1 to 4096. Only request/response uses it.
    pub request: usize,
    /// Send buffer in bytes; `None` leaves it to autotuning. The kernel may grant less.
    pub send_buffer: Option<usize>,
    /// Receive buffer in bytes; `None` leaves it to autotuning.
    pub receive_buffer: Option<usize>,
    /// How payload is passed to the kernel.
    pub send: SendMode,
    /// Which threads run the two ends.
    pub ends: Ends,
}

impl Default for Params {
    /// Six connections, one thread for each processor, 64 KiB messages, autotuned buffers, 64-byte requests.
    fn default() -> Params {
        Params {
            connections: 6,
            threads: crate::machine::cores() as u32,
            message: 65_536,
            request: 64,
            send_buffer: None,
            receive_buffer: None,
            send: SendMode::default(),
            ends: Ends::default(),
        }
    }
}

/// Why the kernel could not be benchmarked.
#[derive(Debug)]
pub enum KernelError {
    /// A parameter is invalid.
    Parameter(&'static str),
    /// Too few file descriptors.
    FileLimit {
        /// Descriptors needed.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// A connection could not be opened.
    Connections {
        /// Connections opened before.
        opened: u32,
        /// Connections requested.
        wanted: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// A thread, an epoll set or the shared payload could not be made.
    Setup(io::Error),
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::Parameter(what) => write!(f, "the kernel benchmark needs {what}"),
            KernelError::FileLimit { needed, limit } => write!(
                f,
                "{needed} file descriptors are needed and the hard limit is {limit}: raise it (`ulimit -Hn {needed}` as \
                 root, or LimitNOFILE= in a systemd unit), or use fewer connections"
            ),
            KernelError::Connections { opened, wanted, source } => write!(
                f,
                "the kernel gave {opened} of {wanted} loopback connections, then failed: {source}; use fewer, or widen \
                 net.ipv4.ip_local_port_range and net.ipv4.tcp_mem"
            ),
            KernelError::Setup(source) => write!(f, "the kernel benchmark could not be set up: {source}"),
        }
    }
}

impl std::error::Error for KernelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            KernelError::Connections { source, .. } | KernelError::Setup(source) => Some(source),
            KernelError::Parameter(_) | KernelError::FileLimit { .. } => None,
        }
    }
}

/// Loopback connections, opened, with the threads that drive them.
#[derive(Debug)]
pub struct KernelBench {
    name: String,
    worker_pool: WorkerPool,
    notes: Vec<String>,
}

impl KernelBench {
    /// Bulk data: every sender writes message after message, every receiver reads.
    ///
    /// # Errors
    /// [`KernelError`]: not enough descriptors, ports or memory. Nothing stays open.
    pub fn open(params: &Params) -> Result<KernelBench, KernelError> {
        check(params)?;
        let (pairs, notes) = open_pairs(params)?;
        let work = bulk::work(params, pairs).map_err(KernelError::Setup)?;
        KernelBench::start(format!("linux, {} connections", params.connections), work, notes)
    }

    /// Request/response: each connection has one request outstanding, all the time.
    ///
    /// # Errors
    /// As [`KernelBench::open`].
    pub fn open_rpc(params: &Params) -> Result<KernelBench, KernelError> {
        check(params)?;
        let (pairs, notes) = open_pairs(params)?;
        let work = rpc::work(params, pairs).map_err(KernelError::Setup)?;
        KernelBench::start(format!("linux, rpc, {} connections", params.connections), work, notes)
    }

    /// Connection rate: each thread connects, accepts, and closes both ends in order, one connection after another.
    ///
    /// # Errors
    /// As [`KernelBench::open`].
    pub fn open_connect(params: &Params) -> Result<KernelBench, KernelError> {
        check(params)?;
        sockets::allow_descriptors(64 + 32 * u64::from(params.threads))?;
        let work = connect::work(params.threads).map_err(KernelError::Setup)?;
        let note = format!(
            "loopback MTU {}; one connection at a time on each thread, closed by the client with FIN",
            sockets::loopback_mtu()
        );
        KernelBench::start("linux, connection rate".into(), work, vec![note])
    }

    fn start(name: String, work: Vec<Box<dyn Work>>, notes: Vec<String>) -> Result<KernelBench, KernelError> {
        let worker_pool = WorkerPool::start("linux", work).map_err(KernelError::Setup)?;
        Ok(KernelBench { name, worker_pool, notes })
    }

    /// Works for `duration` (and the few milliseconds of a batch of events) and returns the delivered amount.
    ///
    /// # Errors
    /// The first error of a thread.
    pub fn run_slice(&mut self, duration: Duration) -> io::Result<Slice> {
        self.worker_pool.run_slice(duration)
    }

    /// Remarks for the reader of the figures: MTU, buffers granted by the kernel, how data was sent.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Ends the threads and closes every connection, at once and without TIME-WAIT. Dropping does the same.
    pub fn close(self) {}
}

impl Contender for KernelBench {
    fn name(&self) -> &str {
        &self.name
    }

    fn run_slice(&mut self, duration: Duration) -> io::Result<Slice> {
        self.worker_pool.run_slice(duration)
    }
}

fn check(params: &Params) -> Result<(), KernelError> {
    let wrong = match params {
        Params { connections: 0, .. } => "at least one connection",
        Params { threads: 0, .. } => "at least one thread",
        Params { message: 0, .. } => "a message of at least one byte",
        Params { request, .. } if !(1..=4096).contains(request) => "requests of 1 to 4096 bytes",
        _ => return Ok(()),
    };
    Err(KernelError::Parameter(wrong))
}

/// The most connections, up to `wanted`, for which this process may have descriptors. Ports and memory may still allow
/// fewer.
pub fn most_connections(wanted: u32, threads: u32) -> u32 {
    match sockets::allow_descriptors(descriptors(wanted, threads)) {
        Err(KernelError::FileLimit { needed, limit }) => {
            wanted.saturating_sub(needed.saturating_sub(limit).div_ceil(2).try_into().unwrap_or(u32::MAX))
        }
        _ => wanted,
    }
}

/// Two for each connection; listeners, epoll sets and the payload come on top.
fn descriptors(connections: u32, threads: u32) -> u64 {
    2 * u64::from(connections) + 64 + 2 * u64::from(threads)
}

/// Opens all connections and records the parameters as the kernel applied them.
fn open_pairs(params: &Params) -> Result<(Vec<sockets::Pair>, Vec<String>), KernelError> {
    sockets::allow_descriptors(descriptors(params.connections, params.threads))?;
    let failed = |opened, source| KernelError::Connections { opened, wanted: params.connections, source };
    let mut opener = Opener::new(params.send_buffer, params.receive_buffer).map_err(|e| failed(0, e))?;
    let mut pairs = Vec::with_capacity(params.connections as usize);
    for opened in 0..params.connections {
        pairs.push(opener.open().map_err(|e| failed(opened, e))?);
    }
    let notes = vec![notes(params, &pairs[0]).map_err(KernelError::Setup)?];
    Ok((pairs, notes))
}

fn notes(params: &Params, first: &sockets::Pair) -> io::Result<String> {
    let (send, receive) = first.buffers()?;
    let granted = |asked: Option<usize>, is: usize| match asked {
        Some(asked) if asked > is => format!("{is} bytes ({asked} requested)"),
        Some(_) => format!("{is} bytes"),
        None => "autotuned".into(),
    };
    let sending = match params.send {
        SendMode::Sendfile => "sendfile without a copy",
        SendMode::Write => "write with one copy",
    };
    Ok(format!(
        "loopback MTU {}, no checksums; {sending}; send buffer {}, receive buffer {}",
        sockets::loopback_mtu(),
        granted(params.send_buffer, send),
        granted(params.receive_buffer, receive)
    ))
}
