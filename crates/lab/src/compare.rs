//! The comparison a user runs first: every architecture and the kernel under the same loads, in the same seconds.
//!
//! For each load all contenders are opened, measured side by side by a [`Runner`], measured once more with timed locks
//! (a separate pass, because timing a lock costs several times the lock), and closed. The results of a load are stored
//! before the next begins, so that no measurement is lost.

use std::io;
use std::time::{Duration, Instant};

use heddle::device::fault::FaultPlan;
use heddle::{Architecture, LockKind};
use serde_json::{Map, Value, json};

use crate::distance::Distance;
use crate::kernel::{self, KernelBench, KernelError};
use crate::machine::{Machine, Probe, Spread};
use crate::result::{KERNEL, Key, OFFLOADED, Results, Row, Workload};
use crate::sampling::{self, Contender, Runner, Samples};
use crate::workload::{Bench, Params, SendMode};

/// Connections of the four loads: those of Willmann et al. 2006, figure 2 and table 1.
pub const CONNECTIONS: [u32; 4] = [6, 192, 3072, 16_384];

/// Architectures of a quick comparison.
const QUICK: &str = include_str!("compare/quick.txt");

/// Architectures that a full comparison adds for the numbers of groups of Willmann et al.
const GROUPS: &str = include_str!("compare/groups.txt");

/// Parameters of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// The load.
    pub workload: Workload,
    /// Architectures.
    pub architectures: Vec<Architecture>,
    /// Kinds of lock; each architecture that has locks is run with each.
    pub locks: Vec<LockKind>,
    /// Loads: numbers of connections.
    pub connections: Vec<u32>,
    /// Threads that run application and stack.
    pub threads: u32,
    /// Bytes in one call.
    pub message: usize,
    /// Bytes of a request and its response.
    pub request: usize,
    /// Whether both ends of requests are handlers; see [`Params::handlers`]. Other stacks have events then as without.
    pub handlers: bool,
    /// Connections that stay idle beside those of requests. Other stacks do not take part then.
    pub idle: u32,
    /// Socket buffers; `None`: autotuned.
    pub buffer: Option<u32>,
    /// Largest IP packet on the memory link.
    pub mtu: usize,
    /// Whether the connections are over IPv6. Other stacks do not take part then.
    pub ipv6: bool,
    /// Whether the link segments and coalesces.
    pub offload: bool,
    /// Whether a connection is used by the thread whose queue receives it; see [`Params::affinity`].
    pub affinity: bool,
    /// Whether segments that follow one another enter the architecture together; see [`heddle::Builder::runs`].
    pub runs: bool,
    /// Faults of the memory link; the kernel's loopback has none and is left out then.
    pub fault: Option<FaultPlan>,
    /// How payload is passed to the stack, and to the kernel.
    pub send: SendMode,
    /// Whether the kernel takes part.
    pub kernel: bool,
    /// Whether smoltcp takes part; its link has no faults.
    #[cfg(feature = "smoltcp")]
    pub smoltcp: bool,
    /// Length and number of the measurements.
    pub schedule: sampling::Schedule,
}

impl Options {
    /// Under three minutes on two cores.
    pub fn quick() -> Options {
        Options {
            workload: Workload::Bulk,
            architectures: listed(QUICK),
            locks: vec![LockKind::default()],
            connections: CONNECTIONS.to_vec(),
            threads: crate::machine::cores() as u32,
            message: 64 << 10,
            request: 64,
            handlers: false,
            idle: 0,
            buffer: Some(256 << 10),
            mtu: 1500,
            ipv6: false,
            offload: false,
            affinity: true,
            runs: true,
            fault: None,
            send: SendMode::Shared,
            kernel: true,
            #[cfg(feature = "smoltcp")]
            smoltcp: true,
            schedule: sampling::Schedule { warmup_slices: 1, repetitions: 5, slice_ms: 250 },
        }
    }

    /// Every architecture, every number of groups, longer and more often: about an hour on two cores.
    pub fn full() -> Options {
        let without_groups = Architecture::all().filter(|arch| !arch.properties().groups);
        let architectures = without_groups.chain(listed(GROUPS)).collect();
        Options {
            architectures,
            connections: vec![6, 24, 96, 192, 768, 3072, 16_384],
            schedule: sampling::Schedule { warmup_slices: 2, repetitions: 10, slice_ms: 2000 },
            ..Options::quick()
        }
    }

    fn params(&self, arch: Architecture, lock: LockKind, connections: u32) -> Params {
        Params {
            lock,
            connections,
            threads: self.threads,
            message: self.message,
            request: self.request,
            handlers: self.handlers,
            idle: self.idle,
            mtu: self.mtu,
            ipv6: self.ipv6,
            buffer: self.buffer,
            send: self.send,
            offload: self.offload,
            affinity: self.affinity,
            runs: self.runs,
            fault: self.fault.clone(),
            ..Params::new(arch)
        }
    }

    fn kernel_params(&self, connections: u32) -> kernel::Params {
        kernel::Params {
            connections,
            threads: self.threads,
            message: self.message,
            request: self.request,
            send_buffer: self.buffer.map(|size| size as usize),
            receive_buffer: self.buffer.map(|size| size as usize),
            send: match self.send {
                SendMode::Shared => kernel::SendMode::Sendfile,
                SendMode::Write => kernel::SendMode::Write,
            },
            ends: kernel::Ends::Together,
        }
    }

    /// The architecture of a row beside the kernel's whose segmentation and coalescing are left to the device: the kernel
    /// leaves them to its loopback interface. It is the first that uses all threads.
    fn offloaded(&self) -> Option<Architecture> {
        let beside = self.kernel && self.workload == Workload::Bulk && !self.offload && self.fault.is_none();
        let several = |arch: &&Architecture| self.threads == 1 || !arch.properties().single_thread;
        let mut architectures = self.architectures.iter();
        architectures.clone().find(several).or(architectures.next()).copied().filter(|_| beside)
    }

    #[cfg(feature = "smoltcp")]
    fn smoltcp_params(&self, connections: u32) -> crate::smoltcp::Params {
        crate::smoltcp::Params {
            connections,
            threads: self.threads,
            message: self.message,
            request: self.request,
            mtu: self.mtu,
            buffer: self.buffer,
        }
    }

    /// Whether smoltcp takes part and can: its link has no faults, its workload neither IPv6 nor idle connections.
    #[cfg(feature = "smoltcp")]
    fn with_smoltcp(&self) -> bool {
        self.smoltcp && self.fault.is_none() && !self.ipv6 && self.idle == 0
    }

    /// Stacks beside the architectures: the kernel, smoltcp, and the row with offload.
    fn others(&self) -> usize {
        #[cfg(feature = "smoltcp")]
        let smoltcp = usize::from(self.with_smoltcp());
        #[cfg(not(feature = "smoltcp"))]
        let smoltcp = 0;
        usize::from(self.kernel) + usize::from(self.offloaded().is_some()) + smoltcp
    }

    /// The schedule for one load: with thousands of connections each is served rarely, so its slow start takes longer.
    fn schedule_for(&self, connections: u32) -> sampling::Schedule {
        let more = connections as usize / 4096;
        sampling::Schedule { warmup_slices: self.schedule.warmup_slices + more, ..self.schedule }
    }

    /// Every parameter, for the record.
    pub fn parameters(&self) -> Map<String, Value> {
        let value = json!({
            "workload": self.workload,
            "architectures": self.architectures.iter().map(Architecture::to_string).collect::<Vec<_>>(),
            "locks": self.locks.iter().map(LockKind::to_string).collect::<Vec<_>>(),
            "connections": self.connections,
            "threads": self.threads,
            "message_bytes": self.message,
            "request_bytes": self.request,
            "handlers": self.handlers,
            "idle_connections": self.idle,
            "buffer_bytes": self.buffer,
            "mtu": self.mtu,
            "ipv6": self.ipv6,
            "segmentation_offload": self.offload,
            "affinity": self.affinity,
            "runs": self.runs,
            "fault": self.fault.as_ref().map(FaultPlan::to_string),
            "checksums": "computed and verified in software",
            "send": match self.send { SendMode::Shared => "zero-copy", SendMode::Write => "copied" },
            "warmup_slices": format!("{}, and one more for each 4096 connections", self.schedule.warmup_slices),
            "repetitions": self.schedule.repetitions,
            "slice_ms": self.schedule.slice_ms,
            "device": "mem (two linked ports in this process, RSS by a symmetric Toeplitz hash)",
        });
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}

/// Progress of a comparison.
#[derive(Clone, Debug)]
pub struct ComparisonProgress {
    /// The present step, such as "opening" with the name of an architecture, or "measuring".
    pub doing: String,
    /// Connections of the load.
    pub connections: u32,
    /// Which load of how many, from 1.
    pub load: (usize, usize),
    /// Completed part, 0 to 1.
    pub done: f64,
    /// Estimate of the time left.
    pub left: Duration,
}

/// A comparison under way.
pub struct Comparison<'a> {
    options: &'a Options,
    probe: Option<Probe>,
    distance: Option<Distance>,
    rows: Vec<Row>,
    remarks: Vec<String>,
    started: Instant,
    progress: &'a mut dyn FnMut(ComparisonProgress),
}

/// A contender with the key of its row.
struct Entry {
    key: Key,
    contender: Box<dyn Contender>,
    bytes_per_connection: Option<u64>,
    notes: Vec<String>,
}

/// Runs the comparison that `options` describe. Calls `progress` with its state.
pub fn run(options: &Options, progress: &mut dyn FnMut(ComparisonProgress)) -> Results {
    let mut comparison = Comparison {
        options,
        probe: Some(Probe::start()),
        // Optional: it only adds information.
        distance: Distance::start().ok().flatten(),
        rows: Vec::new(),
        remarks: Vec::new(),
        started: Instant::now(),
        progress,
    };
    for load in 0..options.connections.len() {
        comparison.load(load);
    }
    comparison.finish()
}

impl Comparison<'_> {
    fn load(&mut self, load: usize) {
        let connections = self.options.connections[load];
        let mut entries = self.open_all(load);
        let mut samples = self.measure(load, &mut entries);
        let timed = self.timed_pass(load, &mut entries);
        let kernel = entries.iter().position(|entry| entry.key.is_kernel()).map(|index| samples.remove(index));
        entries.sort_by_key(|entry| entry.key.is_kernel());
        for (index, entry) in entries.into_iter().enumerate() {
            let own = if entry.key.is_kernel() { kernel.as_ref() } else { samples.get(index) };
            let Some(own) = own else { continue };
            let Some(mut row) = Row::new(entry.key, own, kernel.as_ref()) else {
                let reason = own.failed.clone().unwrap_or_else(|| "no slice was completed".to_owned());
                self.remarks.push(format!("{} at {connections} connections: {reason}", own.name));
                continue;
            };
            row.bytes_per_connection = entry.bytes_per_connection;
            row.notes.extend(entry.notes);
            row.notes.extend(entry.contender.decided());
            if let Some(Some(slice)) = timed.get(index).filter(|_| !row.key.is_other_stack()) {
                row.add_timed_pass(slice);
            }
            self.rows.push(row);
        }
    }

    fn tell(&mut self, doing: String, load: usize, within: f64) {
        let loads = self.options.connections.len();
        let done = ((load as f64 + within) / loads as f64).clamp(0.0, 1.0);
        let spent = self.started.elapsed();
        let planned = self.options.schedule.total(self.contenders()) * loads as u32;
        let left = if done < 0.02 { planned } else { spent.mul_f64((1.0 - done) / done) };
        (self.progress)(ComparisonProgress {
            doing,
            connections: self.options.connections[load],
            load: (load + 1, loads),
            done,
            left,
        });
    }

    fn contenders(&self) -> usize {
        self.variants().len() + self.options.others()
    }

    /// Architectures times lock kinds, except for those without a choice of lock.
    fn variants(&self) -> Vec<(Architecture, Option<LockKind>)> {
        let mut variants = Vec::new();
        for arch in &self.options.architectures {
            if arch.properties().has_locks {
                variants.extend(self.options.locks.iter().map(|lock| (*arch, Some(*lock))));
            } else {
                variants.push((*arch, None));
            }
        }
        variants
    }

    fn open_all(&mut self, load: usize) -> Vec<Entry> {
        let connections = self.options.connections[load];
        let mut entries = Vec::new();
        let variants = self.variants();
        for (index, (arch, lock)) in variants.iter().enumerate() {
            self.tell(format!("opening {arch}"), load, 0.3 * index as f64 / variants.len() as f64);
            let params = self.options.params(*arch, lock.unwrap_or_default(), connections);
            self.open_own(&params, *lock, &mut entries);
        }
        if let Some(arch) = self.options.offloaded() {
            let lock = self.options.locks.first().copied().filter(|_| arch.properties().has_locks);
            let params = Params { offload: true, ..self.options.params(arch, lock.unwrap_or_default(), connections) };
            let before = entries.len();
            self.open_own(&params, lock, &mut entries);
            for entry in &mut entries[before..] {
                entry.key.arch.push_str(OFFLOADED);
                entry.notes.push("segmentation and coalescing left to the device, as Linux on loopback".into());
            }
        }
        #[cfg(feature = "smoltcp")]
        if self.options.with_smoltcp() {
            self.tell("opening smoltcp's connections".into(), load, 0.3);
            match self.open_smoltcp(connections) {
                Ok(entry) => entries.push(entry),
                Err(error) => self.remarks.push(format!("{error} (at {connections} connections)")),
            }
        }
        if self.options.kernel {
            self.tell("opening the kernel's connections".into(), load, 0.3);
            match self.open_kernel(connections) {
                Ok(kernel) => entries.push(kernel),
                Err(error) => self.remarks.push(format!("linux at {connections} connections: {error}")),
            }
        }
        entries
    }

    fn open_own(&mut self, params: &Params, lock: Option<LockKind>, entries: &mut Vec<Entry>) {
        let opened = match self.options.workload {
            Workload::Bulk => Bench::open(params),
            Workload::Rpc => Bench::open_rpc(params),
            Workload::Connect => Bench::open_connect(params),
        };
        match opened {
            Ok(bench) => entries.push(entry(bench, self.options.workload, params, lock)),
            Err(error) => {
                self.remarks.push(format!("{} at {} connections: {error}", params.arch, params.connections));
            }
        }
    }

    #[cfg(feature = "smoltcp")]
    fn open_smoltcp(&self, connections: u32) -> io::Result<Entry> {
        use crate::result::SMOLTCP;
        use crate::smoltcp::SmoltcpBench;
        let workload = self.options.workload;
        let bench = SmoltcpBench::open(workload, &self.options.smoltcp_params(connections))?;
        let threads = self.options.threads;
        let key = Key { workload, arch: SMOLTCP.to_owned(), lock: None, groups: None, connections, threads };
        Ok(Entry { key, contender: Box::new(bench), bytes_per_connection: None, notes: SmoltcpBench::notes(workload) })
    }

    fn open_kernel(&self, connections: u32) -> Result<Entry, KernelError> {
        let threads = self.options.threads;
        let possible = kernel::most_connections(connections, threads);
        let params = self.options.kernel_params(possible);
        let bench = match self.options.workload {
            Workload::Bulk => KernelBench::open(&params)?,
            Workload::Rpc => KernelBench::open_rpc(&params)?,
            Workload::Connect => KernelBench::open_connect(&params)?,
        };
        let mut notes = bench.notes().to_vec();
        if possible < connections {
            notes.push(format!(
                "the limit on open files (ulimit -Hn) lets this process have {possible} of {connections} connections"
            ));
        }
        let workload = self.options.workload;
        let key = Key { workload, arch: KERNEL.to_owned(), lock: None, groups: None, connections, threads };
        Ok(Entry { key, contender: Box::new(bench), bytes_per_connection: None, notes })
    }

    fn measure(&mut self, load: usize, entries: &mut [Entry]) -> Vec<Samples> {
        let runner = Runner::new(self.options.schedule_for(self.options.connections[load]));
        let mut contenders: Vec<&mut dyn Contender> =
            entries.iter_mut().map(|entry| entry.contender.as_mut() as &mut dyn Contender).collect();
        let mut distance = self.distance.take();
        let round_trip = || distance.as_mut().and_then(Distance::round_trip_ns);
        let samples = runner.run(&mut contenders, round_trip, |progress| {
            let part = progress.done as f64 / progress.total.max(1) as f64;
            let what = if progress.warming_up { "warming up" } else { "measuring" };
            self.tell(format!("{what} {}", progress.contender), load, 0.3 + 0.6 * part);
        });
        self.distance = distance;
        samples
    }

    /// One slice of each contender with timed locks.
    fn timed_pass(&mut self, load: usize, entries: &mut [Entry]) -> Vec<Option<sampling::Slice>> {
        self.tell("timing locks".into(), load, 0.9);
        sync::profile::set_timed(true);
        let slice = |entry: &mut Entry| {
            let worth = !entry.key.is_other_stack();
            worth.then(|| entry.contender.run_slice(self.options.schedule.slice()).ok()).flatten()
        };
        let slices = entries.iter_mut().map(slice).collect();
        sync::profile::set_timed(false);
        slices
    }

    fn finish(mut self) -> Results {
        let mut machine: Machine = match self.probe.take() {
            Some(probe) => probe.finish(),
            None => Probe::start().finish(),
        };
        machine.round_trip_ns = Spread::of(self.rows.iter().flat_map(|row| &row.round_trip_ns).flatten());
        let mut parameters = self.options.parameters();
        if !self.remarks.is_empty() {
            parameters.insert("not_measured".into(), json!(self.remarks));
        }
        Results::new(machine, parameters, self.rows)
    }
}

/// The architectures of one of the lists beside this file.
fn listed(text: &str) -> Vec<Architecture> {
    Architecture::read_list(text).expect("a test reads the lists")
}

fn entry(bench: Bench, workload: Workload, params: &Params, lock: Option<LockKind>) -> Entry {
    let arch = params.arch;
    let groups = arch.parameter().filter(|_| arch.properties().groups).map(u32::from);
    let arch = if groups.is_some() { arch.family().to_owned() } else { arch.to_string() };
    let key = Key {
        workload,
        arch,
        lock: lock.map(|lock| lock.to_string()),
        groups,
        connections: params.connections,
        threads: params.effective_threads(),
    };
    let mut notes = Vec::new();
    if lock.is_some_and(|lock| lock.is_fifo()) && params.threads as usize > crate::machine::cores() {
        notes.push("a FIFO lock with more threads than processors: a preempted waiter stops all behind it".into());
    }
    Entry { key, bytes_per_connection: bench.bytes_per_connection(), contender: Box::new(bench), notes }
}

/// Writes the JSON document to `path`; if that fails, to standard output, so that no measurement is lost.
///
/// # Errors
/// The file could not be written; the document has been printed.
pub fn save_json(path: &std::path::Path, results: &Results) -> io::Result<()> {
    crate::report::write_json(path, results).map_err(|error| {
        println!("{}", results.to_json());
        io::Error::other(error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_name_is_an_architecture() {
        assert_eq!(Options::quick().architectures.len(), 16);
        assert_eq!(Architecture::read_list(GROUPS).map(|architectures| architectures.len()), Ok(9));
        assert!(listed(GROUPS).iter().all(|arch| arch.properties().groups));
    }

    #[test]
    fn the_row_beside_the_kernels_uses_all_threads_and_needs_the_kernel() {
        let architectures = listed("up\ngiant\nmsgp:1\n");
        let bulk = Options { architectures, threads: 2, ..Options::quick() };
        let named = |options: &Options| options.offloaded().map(|arch| arch.to_string());
        assert_eq!(named(&bulk).as_deref(), Some("giant"));
        assert_eq!(named(&Options { threads: 1, ..bulk.clone() }).as_deref(), Some("up"));
        assert_eq!(named(&Options { architectures: listed("up"), ..bulk.clone() }).as_deref(), Some("up"));
        assert_eq!(named(&Options { kernel: false, ..bulk.clone() }), None);
        assert_eq!(named(&Options { offload: true, ..bulk.clone() }), None);
        assert_eq!(named(&Options { workload: Workload::Rpc, ..bulk }), None);
    }

    #[test]
    fn a_full_comparison_has_every_architecture_once() {
        let architectures = Options::full().architectures;
        for arch in Architecture::all() {
            assert_eq!(architectures.iter().filter(|other| **other == arch).count(), 1, "{arch}");
        }
    }
}
