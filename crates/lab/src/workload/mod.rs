//! Heddle under the same load as the kernel: two stacks on a pair of memory ports, both ends in this process.
//!
//! The shape is the parallel TCP benchmark of Willmann et al. 2006 (section 4): event-driven threads, one pinned to
//! each processor, the same number of connections on each. Each thread polls its queue pair of both stacks and runs the
//! applications of its connections. A connection is used by the thread whose queue receives it ([`Params::affinity`]). In
//! the paper connections are spread evenly instead, and RSS decides which queue receives one: usually *not* that of the
//! thread that uses it, and the architecture has to handle that. A [`Bench`] works in slices and is idle in between; its
//! clock stops while it is idle, so timers do not fire in the pauses.

mod affinity;
mod bulk;
mod connect;
mod floor;
mod handlers;
mod locks;
mod rpc;
mod traffic;
mod world;

use std::io;
use std::time::{Duration, Instant};

use heddle::decisions::DecisionOutcome;
use heddle::device::fault::FaultPlan;
use heddle::{Architecture, LockKind, Polled, Stack};

use crate::cpu::Usage;
use crate::sampling::{Contender, Exact, LockCount, Slice, Wakes};
use crate::worker_pool::{Work, WorkerPool};
use world::World;

pub use floor::{Floor, Floors};
pub use locks::free_lock_ns;
pub use traffic::presented_length;
pub use xdr::Codec;

/// How payload is passed to the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendMode {
    /// Shared bytes, copied once, into the segments: as `sendfile`.
    #[default]
    Shared,
    /// `write`: copied into the send queue first.
    Write,
}

/// Parameters of a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// The process architecture.
    pub arch: Architecture,
    /// Kind of its locks.
    pub lock: LockKind,
    /// Connections, 1 or more.
    pub connections: u32,
    /// Further connections that are opened and then not used, beside those of requests. Other workloads have none.
    pub idle: u32,
    /// Whether both ends of requests are handlers, which run where the data arrives, instead of threads that wait for events.
    pub handlers: bool,
    /// Threads, 1 or more; an architecture of one thread always runs on one.
    pub threads: u32,
    /// Bytes in one call, and the size of a receiver's buffer.
    pub message: usize,
    /// How bulk data is encoded and decoded; `None` sends bytes as they are. A message then has [`presented_length`]
    /// bytes and is sent by `write`.
    pub presentation: Option<Codec>,
    /// Bytes of a request and of its response.
    pub request: usize,
    /// Largest IP packet on the link.
    pub mtu: usize,
    /// Whether the connections are over IPv6; otherwise over IPv4.
    pub ipv6: bool,
    /// Socket buffers in bytes; `None` leaves them to autotuning.
    pub buffer: Option<u32>,
    /// How payload is passed to the stack.
    pub send: SendMode,
    /// Whether the link takes super-segments, as network cards do (segmentation and receive coalescing).
    pub offload: bool,
    /// Frames that each ring of the link holds.
    pub ring: usize,
    /// Whether a connection is used by the thread whose queue receives it; otherwise connections are spread evenly, and
    /// another thread receives most of them, as in the papers. Where connections are opened all the time, those that a
    /// thread opens are received by it, and a thread accepts first those that it has received.
    pub affinity: bool,
    /// Whether segments that follow one another enter the architecture together; see [`heddle::Builder::runs`].
    pub runs: bool,
    /// Faults of the link, as seen by the clients; `None`: none.
    pub fault: Option<FaultPlan>,
}

impl Params {
    /// Six connections under `arch`, one thread for each processor, with affinity, 64 KiB messages, MTU 1500, 256 KiB
    /// buffers (the paper's), no offload.
    pub fn new(arch: Architecture) -> Params {
        Params {
            arch,
            lock: LockKind::default(),
            connections: 6,
            idle: 0,
            handlers: false,
            threads: crate::machine::cores() as u32,
            message: 64 << 10,
            presentation: None,
            request: 64,
            mtu: 1500,
            ipv6: false,
            buffer: Some(256 << 10),
            send: SendMode::Shared,
            offload: false,
            ring: 256,
            affinity: true,
            runs: true,
            fault: None,
        }
    }

    /// Connections that are open at the same time.
    fn all_connections(&self) -> u32 {
        self.connections.saturating_add(self.idle)
    }

    /// Threads that will run.
    pub fn effective_threads(&self) -> u32 {
        if self.arch.properties().single_thread { 1 } else { self.threads.max(1) }
    }
}

/// A workload under one architecture, opened, with the threads that drive it.
pub struct Bench {
    name: String,
    worker_pool: WorkerPool,
    world: World,
    bytes_per_connection: Option<u64>,
}

/// Time limit for opening all connections.
const OPENING: Duration = Duration::from_secs(60);
const OPENING_SLICE: Duration = Duration::from_millis(20);

impl Bench {
    /// Bulk data from every sender to its receiver.
    ///
    /// # Errors
    /// The stacks cannot be built, or the connections cannot be opened.
    pub fn open(params: &Params) -> io::Result<Bench> {
        Bench::start(params, "bulk", World::new(params)?, |world, thread| {
            Box::new(bulk::Bulk::new(world, params, thread))
        })
    }

    /// One request of `params.request` bytes outstanding on each connection, all the time.
    ///
    /// # Errors
    /// As [`Bench::open`].
    pub fn open_rpc(params: &Params) -> io::Result<Bench> {
        let world = World::new(params)?;
        if params.handlers {
            let service = handlers::serve(&world, params)?;
            return Bench::start(params, "rpc with handlers", world, |world, thread| {
                Box::new(handlers::HandlerRpc::new(world, params, thread, service.clone()))
            });
        }
        Bench::start(params, "rpc", world, |world, thread| Box::new(rpc::Rpc::new(world, params, thread)))
    }

    /// Connections opened, accepted and closed in order, `params.connections` at a time.
    ///
    /// # Errors
    /// As [`Bench::open`].
    pub fn open_connect(params: &Params) -> io::Result<Bench> {
        let world = World::with_addresses(params, connect::addresses(params))?;
        Bench::start(params, "connect", world, |world, thread| Box::new(connect::Connect::new(world, params, thread)))
    }

    fn start(
        params: &Params,
        what: &str,
        mut world: World,
        work: impl Fn(&mut World, u32) -> Box<dyn Work>,
    ) -> io::Result<Bench> {
        let work = (0..params.effective_threads()).map(|thread| work(&mut world, thread)).collect();
        let mut name = format!("{}, {what}, {} connections", params.arch, params.connections);
        if params.idle > 0 {
            name += &format!(" beside {} idle ones", params.idle);
        }
        let mut worker_pool = WorkerPool::start("heddle", work)?;
        let mut spent = Duration::ZERO;
        world.clock.go_on();
        while !world.is_open() {
            spent += worker_pool.run_slice(OPENING_SLICE)?.wall;
            if spent > OPENING {
                return Err(io::Error::other(format!(
                    "{name}: only {} connections opened in a minute",
                    world.opened()
                )));
            }
        }
        world.clock.stop();
        let bytes_per_connection = world.bytes_per_connection();
        Ok(Bench { name, worker_pool, world, bytes_per_connection })
    }

    /// Counters of both stacks together, since they were built.
    pub fn counters(&self) -> observe::CounterSnapshot {
        self.world.client.stats().counters + self.world.server.stats().counters
    }

    /// Memory of an open connection with both ends, in bytes: tables, PCBs and sockets, without queued data.
    pub fn bytes_per_connection(&self) -> Option<u64> {
        self.bytes_per_connection
    }
}

impl Contender for Bench {
    fn name(&self) -> &str {
        &self.name
    }

    fn run_slice(&mut self, duration: Duration) -> io::Result<Slice> {
        let before = Reading::take(&self.world)?;
        self.world.clock.go_on();
        let mut slice = self.worker_pool.run_slice(duration)?;
        self.world.clock.stop();
        let after = Reading::take(&self.world)?;
        let used = after.usage - before.usage;
        // Protocol threads work outside the pool: the whole process is counted, and no other thread works now.
        (slice.cpu, slice.switches) = (used.cpu, used.switches);
        slice.exact = after.exact.since(&before.exact);
        Ok(slice)
    }

    fn decided(&self) -> Vec<String> {
        let World { client, server, .. } = &self.world;
        [("client", client), ("server", server)].iter().flat_map(|(end, stack)| self.explain(end, stack)).collect()
    }
}

/// Of the decisions of a stack, the latest that a report shows.
const DECISIONS_SHOWN: usize = 3;

impl Bench {
    /// The sum of a stack's decisions, the latest of them, and the changes of the number of its groups.
    fn explain(&self, end: &str, stack: &Stack) -> Vec<String> {
        let decisions = stack.decisions();
        let undone =
            decisions.iter().filter(|decision| matches!(decision.outcome, DecisionOutcome::Reverted(_))).count();
        let shown = &decisions[decisions.len().saturating_sub(DECISIONS_SHOWN)..];
        let sum = decisions.last().map(|last| {
            format!("{}: its {end} decided {} times, {undone} of the latest undone", self.name, last.number + 1)
        });
        let latest = shown.iter().map(|decision| format!("{}, {end}: {decision}", self.name));
        let numbers = stack.group_numbers().into_iter().map(|change| format!("{}, {end}: {change}", self.name));
        sum.into_iter().chain(latest).chain(numbers).collect()
    }
}

/// Polls between two clock readings.
const POLLS: usize = 32;

/// A thread's loop: polls its drivers and takes steps of the workload until `deadline`, then releases what the drivers
/// own. `step` returns whether there was anything to do.
fn drive(drivers: &mut [Polled], deadline: Instant, mut step: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    while Instant::now() < deadline {
        for _ in 0..POLLS {
            let mut busy = false;
            for driver in drivers.iter_mut() {
                busy |= driver.poll() > 0;
            }
            busy |= step()?;
            if !busy {
                // Other threads may need the processor, above all protocol threads.
                std::thread::yield_now();
            }
        }
    }
    drivers.iter_mut().for_each(Polled::rest);
    Ok(())
}

struct Reading {
    usage: Usage,
    exact: Exact,
}

impl Reading {
    fn take(world: &World) -> io::Result<Reading> {
        let (locks, timed) = (sync::profile::snapshot(), sync::profile::is_timed::<sync::Real>());
        let lock = |class: &sync::profile::ClassProfile| LockCount {
            class: class.class.name().to_owned(),
            acquired: class.acquired,
            first_try_failed: class.first_try_failed,
            wait_ns: timed.then_some(class.wait_ns),
            hold_ns: timed.then_some(class.hold_ns),
        };
        let handoff = sync::profile::handoffs();
        let exact = Exact {
            locks: locks.iter().map(lock).collect(),
            handoffs: handoff.handoffs,
            wakes: Wakes { sent: handoff.wakes_sent, suppressed: handoff.wakes_suppressed },
            out_of_order: world.counter(observe::Counter::OutOfOrderAtEntry),
            retransmits: world.counter(observe::Counter::Retransmits),
        };
        Ok(Reading { usage: Usage::of_process()?, exact })
    }
}
