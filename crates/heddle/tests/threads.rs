//! The fault matrix with real threads: both stacks with all their threads, two queue pairs, several connections with
//! reader and writer threads, on a link that loses, reorders, duplicates, damages and goes down. Under every
//! architecture, with every kind of lock in turn.
//!
//! A seed determines which frames a fault hits, but their times depend on the machine, so a seed does not reproduce a
//! run as in the matrix. `HEDDLE_THREADS=600` keeps drawing for that many seconds under each architecture.

mod pair;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use every_arch::every_arch;
use heddle::config::Config;
use heddle::device::Device;
use heddle::device::fault::{Fault, Pcg, PlatformClock};
use heddle::{ALL_ARCHITECTURES, Architecture, Interface, Stack, TcpListener, TcpStream, mem};
use observe::{Counter, CounterSnapshot, Counters, DropReason};
use sha2::{Digest, Sha256};
use sync::LockKind;
use testbed::limit::HANG;

const QUEUES: usize = 2;
/// The stack chooses their ports, so whether they share one queue is random, too.
const CONNECTIONS: usize = 4;
/// Data each way of a connection.
const BYTES: usize = 100_000;
/// The fault plans, used in turn.
const FAULTS: [&str; 4] = [
    "loss 2% reorder 3% distance 4 dup 3% corrupt 1% truncate 1%",
    "flap 40ms 10ms loss 1%",
    "full 5ms 1ms stall 5ms 1ms loss 1%",
    "reorder 2ms burst 1% 40% lostwake 1% spuriouswake 5%",
];
/// The default number of cells for each architecture.
const CELLS: usize = 2;

struct Cell {
    /// Architectures of the server and of the client.
    architectures: [Architecture; 2],
    lock: LockKind,
    faults: &'static str,
    seed: u64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { architectures: [a, b], lock, faults, seed } = self;
        write!(f, "{b} to {a}, {lock} locks, \"{faults}\", seed {seed:#x}")
    }
}

impl Cell {
    /// The `number`-th of the architecture; all pairs of faults and locks occur.
    fn draw(arch: Architecture, number: usize) -> Cell {
        let index = ALL_ARCHITECTURES.iter().position(|name| *name == arch.to_string()).expect("a listed plan");
        let other =
            ALL_ARCHITECTURES[(index + 1 + 5 * number) % ALL_ARCHITECTURES.len()].parse().expect("a listed plan");
        // The null lock is for one thread.
        let locks = &LockKind::ALL[1..];
        let turn = index + number;
        let faults = FAULTS[(turn + index / FAULTS.len()) % FAULTS.len()];
        Cell {
            architectures: [arch, other],
            lock: locks[turn % locks.len()],
            faults,
            seed: (index << 32 | number) as u64,
        }
    }
}

/// A direction of a connection: the client's port, and whether it leads to the server.
type Way = (u16, bool);

/// The hashes of sent and received data.
#[derive(Default)]
struct Ledger {
    sent: Mutex<BTreeMap<Way, String>>,
    received: Mutex<BTreeMap<Way, String>>,
}

fn note(ledger: &Mutex<BTreeMap<Way, String>>, way: Way, bytes: usize, hash: Sha256) {
    let line = format!("{bytes} bytes, {:x?}", hash.finalize());
    ledger.lock().unwrap_or_else(PoisonError::into_inner).insert(way, line);
}

impl Ledger {
    /// Sends the data of one direction, in pieces of random length, and ends it.
    fn send(&self, way: Way, seed: u64, mut stream: &TcpStream) -> Result<(), String> {
        let mut rng = Pcg::new(seed, u64::from(way.0) << 1 | u64::from(way.1));
        let (mut left, mut hash) = (BYTES, Sha256::new());
        while left > 0 {
            let length = (1 + rng.below(20_000) as usize).min(left);
            let piece: Vec<u8> = (0..length).map(|_| rng.next_u32() as u8).collect();
            hash.update(&piece);
            let written = stream.write_all(&piece);
            written
                .map_err(|error| format!("{way:?}: write with {left} bytes left: {error}; {:?}", stream.status()))?;
            left -= length;
        }
        note(&self.sent, way, BYTES, hash);
        stream.shutdown(Shutdown::Write).map_err(|error| format!("{way:?}: shutdown: {error}"))
    }

    /// Reads the data of one direction to its end, in pieces of random length.
    fn receive(&self, way: Way, seed: u64, mut stream: &TcpStream) -> Result<(), String> {
        let mut rng = Pcg::new(!seed, u64::from(way.0) << 1 | u64::from(way.1));
        let (mut arrived, mut hash, mut buffer) = (0, Sha256::new(), vec![0; 16_384]);
        loop {
            let length = 1 + rng.below(buffer.len() as u32) as usize;
            let read = stream.read(&mut buffer[..length]);
            match read
                .map_err(|error| format!("{way:?}: read after {arrived} bytes: {error}; {:?}", stream.status()))?
            {
                0 => break,
                count => {
                    arrived += count;
                    hash.update(&buffer[..count]);
                }
            }
        }
        note(&self.received, way, arrived, hash);
        Ok(())
    }

    /// Both directions of one end at once, each on a thread.
    fn carry(&self, (port, from_client): (u16, bool), seed: u64, stream: &TcpStream) -> Result<(), String> {
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        thread::scope(|scope| {
            let sender = scope.spawn(|| self.send((port, from_client), seed, stream));
            let received = self.receive((port, !from_client), seed, stream);
            sender.join().unwrap_or_else(|_| Err("a writer panicked".to_owned())).and(received)
        })
    }
}

/// Both ends of all connections.
fn transfer(cell: &Cell, ledger: &Ledger, [server, client]: [&Stack; 2]) -> Result<(), String> {
    let address: SocketAddr = "10.0.0.1:80".parse().expect("an address");
    let listener = TcpListener::bind(server, address).map_err(|error| error.to_string())?;
    let open = || -> Result<(), String> {
        let stream = TcpStream::connect_timeout(client, address, HANG).map_err(|error| error.to_string())?;
        ledger.carry((stream.local_addr().unwrap().port(), true), cell.seed, &stream)
    };
    let accept = || -> Result<(), String> {
        let (stream, peer) = listener.accept_timeout(HANG).map_err(|error| error.to_string())?;
        ledger.carry((peer.port(), false), cell.seed, &stream)
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(open)).collect();
        let servers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(accept)).collect();
        let ends = clients.into_iter().chain(servers);
        let ended = ends.map(|end| end.join().unwrap_or_else(|_| Err("an end panicked".to_owned())));
        let wrong: Vec<String> = ended.filter_map(Result::err).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    })
}

/// Short time-outs: a loss costs milliseconds.
fn config() -> Config {
    let mut config =
        Config { syn_retries: 30, syn_ack_retries: 30, time_wait: Duration::from_millis(50), ..Config::default() };
    config.rto.initial_rto = Duration::from_millis(50);
    config.rto.min_rto = Duration::from_millis(10);
    config.rto.max_rto = Duration::from_secs(1);
    config.retries = 100;
    config.orphan_retries = 100;
    config
}

/// Waits until the stack has no connections or timers left.
fn come_to_rest(stack: &Stack, name: &str) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let stats = stack.stats();
        if (stats.connections, stats.timers) == (0, 0) && stack.inner_stack().is_quiescent() {
            break;
        }
        if start.elapsed() > HANG {
            let (connections, timers) = (stats.connections, stats.timers);
            return Err(format!("{name}: {connections} connections and {timers} timers are left after {HANG:?}"));
        }
        thread::yield_now();
    }
    match stack.failures().first() {
        Some(failure) => Err(format!("{name}: {failure}")),
        None => Ok(()),
    }
}

/// Faults must have occurred, or the run proves nothing.
fn check_faults(injected: &CounterSnapshot) -> Result<(), String> {
    let hit = injected.dropped(DropReason::FaultInjected) + injected.get(Counter::FaultsCorrupted);
    if hit == 0 { Err(format!("the link did nothing: {injected:?}")) } else { Ok(()) }
}

fn run(cell: &Cell) -> Result<(), String> {
    let (left, right) = mem::pair(mem::MemConfig { queues: QUEUES, ..mem::MemConfig::default() });
    let mut faults: heddle::device::fault::FaultPlan = cell.faults.parse().expect("a fault plan");
    faults.seed = cell.seed;
    let left = Fault::new(Box::new(left), faults, PlatformClock::default());
    let injected: Arc<Counters> = left.counters().expect("a fault device counts");
    let build = |device: Box<dyn Device>, cidr: &str, arch: Architecture| {
        let builder = Stack::builder()
            .interface(Interface::new(device).address(cidr).expect("an address"))
            .architecture(arch)
            .cpus(2)
            .lock(cell.lock);
        builder.tcp(config()).build().expect("the stack builds")
    };
    let server = build(Box::new(left), "10.0.0.1/24", cell.architectures[0]);
    let client = build(Box::new(right), "10.0.0.2/24", cell.architectures[1]);
    let ledger = Ledger::default();
    let told = |stack: &Stack| format!("{:?}", stack.stats());
    transfer(cell, &ledger, [&server, &client])
        .map_err(|wrong| format!("{wrong}\nserver: {}\nclient: {}", told(&server), told(&client)))?;
    let [sent, received] = [ledger.sent, ledger.received].map(|map| map.into_inner().expect("nobody panicked"));
    if sent.len() != 2 * CONNECTIONS || sent != received {
        return Err(format!("what arrived is not what was sent: {sent:#?}, {received:#?}"));
    }
    come_to_rest(&server, "server")?;
    come_to_rest(&client, "client")?;
    check_faults(&injected.snapshot())
}

/// Running tests, and the cells since the pool was last at rest: buffers are per process.
static AT_WORK: Mutex<(usize, Vec<String>)> = Mutex::new((0, Vec::new()));

/// Runs a cell; the last running one checks that no buffer is left.
fn balanced(cell: &Cell) -> Result<(), String> {
    let lock = || AT_WORK.lock().unwrap_or_else(PoisonError::into_inner);
    let mut at_work = lock();
    at_work.0 += 1;
    at_work.1.push(cell.to_string());
    drop(at_work);
    let outcome = run(cell);
    let mut at_work = lock();
    at_work.0 -= 1;
    if at_work.0 > 0 {
        return outcome;
    }
    let cells = std::mem::take(&mut at_work.1);
    match pktbuf::live() {
        0 => outcome,
        left => outcome.and(Err(format!("{left} packet buffers are left by one of {cells:#?}"))),
    }
}

#[every_arch]
fn data_survives_with_threads(arch: Architecture) {
    let wanted = std::env::var("HEDDLE_THREADS").ok();
    let seconds: Option<u64> = wanted.map(|text| text.parse().expect("HEDDLE_THREADS is a number of seconds"));
    let (start, time) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(0)));
    for number in 0.. {
        if number >= CELLS && start.elapsed() >= time {
            break;
        }
        let outcome = testbed::limit::within(move || {
            let cell = Cell::draw(arch, number);
            balanced(&cell).map_err(|wrong| format!("{cell}: {wrong}"))
        });
        outcome.unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}
