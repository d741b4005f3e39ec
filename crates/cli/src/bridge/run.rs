//! `heddle bridge run`, the process that forwards; and the bridge that a stack of this process is on (`--dev bridge:NAME`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge::{FdbConfig, StpConfig, StpVersion};
use clap::{Args as ClapArgs, Command, FromArgMatches};
use heddle::device::Device;
use switch::{BridgeExclusion, Configure, InterruptKind, Switch, SwitchConfig, Work};
use sync::{Platform, Real};
use wire::ethernet::MacAddr;

use super::config::{self, AddressPlan, BridgeFile};
use super::request::{self, Capture, Request, Running};
use super::{DEFAULT_NAME, KIND};
use crate::control::{self, ControlMode, ControlSocket};
use crate::failure::Failure;
use crate::runtime::{self, Stop};

/// Run a bridge until Ctrl-C.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples, as root:
  heddle bridge run --port tap:vm1 --port tap:vm2
  heddle bridge run --port tap:a --port tap:b --exclusion rcu --workers 4 --queues 4 --stp rstp
  heddle bridge run --config br0.toml --pcap br0.pcapng")]
pub struct Args {
    /// A device, as in tap:vm1; may be given several times. More can be added while the bridge runs
    #[arg(long = "port", value_name = "DEVICE")]
    ports: Vec<String>,
    /// Read the bridge, its ports, VLANs and addresses from a TOML file (docs/bridge.md); --port adds to its ports
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "name", "exclusion", "workers", "queues", "work", "interrupts", "max_addresses", "ageing", "vlan_filtering", "stp", "mode",
    ])]
    config: Option<PathBuf>,
    /// Record every frame of every port to FILE, for Wireshark or tcpdump (pcapng)
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// How threads share the bridge: generic (one thread does everything), mpsafe (as NetBSD's bridge since 2015) or rcu (no
    /// lock on the forwarding path)
    #[arg(long, value_name = "NAME", default_value = "mpsafe")]
    exclusion: BridgeExclusion,
    /// Worker threads, for mpsafe and rcu
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Frames that one interrupt takes from a queue: a number, or `drain` for all frames in the ring [default: drain
    /// for generic, 1 for mpsafe, a vector for rcu]
    #[arg(long, value_name = "N", value_parser = work)]
    work: Option<Work>,
    /// How queues signal: msix (a vector for each queue), msi (vectors with one CPU) or intx (one line); see `heddle intrctl`
    #[arg(long, value_name = "KIND", default_value = "msix")]
    interrupts: InterruptKind,
    /// Queues to open of each device
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    queues: u16,
    /// Maximum number of addresses that the bridge learns
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    max_addresses: u32,
    /// Seconds after its last frame until a learned address is removed, 10 to 1000000
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    ageing: u64,
    /// Distinguish VLANs
    #[arg(long)]
    vlan_filtering: bool,
    /// Take part in spanning tree: rstp (which falls back to STP) or stp
    #[arg(long, value_name = "PROTOCOL", value_parser = ["rstp", "stp"])]
    stp: Option<String>,
    /// Name of the bridge, with which the other commands address it
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME)]
    name: String,
    /// Path of the control socket
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    #[command(flatten)]
    mode: ControlMode,
}

/// Work per interrupt, as on a command line.
///
/// # Errors
/// A sentence for the user.
pub fn work(text: &str) -> Result<Work, String> {
    match text.parse() {
        Ok(frames) if frames > 0 => Ok(Work::Frames(frames)),
        _ if text == "drain" => Ok(Work::Drain),
        _ => Err(format!("use a number of frames from 1, or drain, not `{text}`")),
    }
}

impl Args {
    /// Adds the values of the file for options that the command line does not have.
    fn completed(mut self) -> Result<(Args, BridgeFile), Failure> {
        let Some(path) = &self.config else { return Ok((self, BridgeFile::default())) };
        let file = config::read(path)?;
        self.name = file.name.clone().unwrap_or(self.name);
        self.exclusion = file.exclusion.unwrap_or(self.exclusion);
        self.workers = file.workers.unwrap_or(self.workers);
        self.queues = file.queues.unwrap_or(self.queues);
        self.work = file.work.or(self.work);
        self.interrupts = file.interrupts.unwrap_or(self.interrupts);
        self.max_addresses = file.max_addresses.unwrap_or(self.max_addresses);
        self.ageing = file.ageing.unwrap_or(self.ageing);
        self.vlan_filtering |= file.vlan_filtering;
        self.stp = file.stp.clone().or(self.stp);
        self.mode.mode = file.mode.unwrap_or(self.mode.mode);
        self.control = self.control.or_else(|| file.control.clone());
        self.pcap = self.pcap.or_else(|| file.pcap.clone());
        Ok((self, file))
    }
}

/// Runs `heddle bridge run`.
///
/// # Errors
/// The file of `--config` is wrong, or a device or the control socket cannot be opened.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut bridge = LocalBridge::open(args, None)?;
    let runtime = runtime::new()?;
    let mut stop = runtime.block_on(async { Stop::listen() })?;
    bridge.start()?;
    println!("{bridge}");
    runtime.block_on(stop.wait());
    let dropped = bridge.end()?;
    println!("bridge {} ended; {dropped} frames dropped", bridge.name);
    Ok(())
}

/// A bridge in this process.
pub struct LocalBridge {
    name: String,
    running: Arc<Running>,
    socket: ControlSocket,
    path: PathBuf,
    threads: Vec<<Real as Platform>::JoinHandle>,
}

impl LocalBridge {
    /// Threads of a bridge with the default number of workers: these, one that may sleep, and one that answers requests.
    pub const USUAL_THREADS: usize = 4;

    /// Opens the devices and the control socket, and starts no thread. `own` is a port with the bridge's name.
    ///
    /// # Errors
    /// The file of `--config` is wrong, or a device or the control socket cannot be opened.
    fn open(args: Args, own: Option<Box<dyn Device>>) -> Result<LocalBridge, Failure> {
        let asked = args.name.clone();
        let (args, file) = args.completed()?;
        if own.is_some() && args.name != asked {
            return Err(Failure::Usage(format!(
                "the file names the bridge {0}: use --dev bridge:{0}, or remove its name",
                args.name
            )));
        }
        let path = args.control.clone().map_or_else(|| control::usual_place(&KIND, &args.name), Ok)?;
        let ageing = request::ageing(args.ageing).map_err(Failure::Usage)?;
        let socket = control::listen(&KIND, &path, args.mode.mode)?;
        let config = SwitchConfig {
            fdb: FdbConfig { capacity: args.max_addresses, ageing, seed: Real::random() },
            work: args.work.unwrap_or(args.exclusion.usual_work()),
            workers: args.workers.into(),
            interrupts: args.interrupts,
            ..SwitchConfig::new(args.exclusion)
        };
        let switch = Switch::new(config).map_err(Failure::failed)?;
        let capture = args.pcap.as_deref().map(Capture::to).transpose().map_err(Failure::Failed)?;
        let running = Arc::new(Running { switch, queues: args.queues.into(), capture });
        if let Some(own) = own {
            running.attach(&args.name, own).map_err(Failure::Failed)?;
        }
        for plan in &file.ports {
            running.add_planned(plan).map_err(Failure::Failed)?;
        }
        for device in &args.ports {
            running.add(device).map_err(Failure::Failed)?;
        }
        for AddressPlan { address, port, vlan, sticky } in file.addresses {
            let request = Request::FdbAdd { address, device: port, vlan, sticky };
            running.answer(request).map_err(Failure::Failed)?;
        }
        running.switch.configure(|bridge| begin(bridge, &args))?;
        Ok(LocalBridge { name: args.name, running, socket, path, threads: Vec::new() })
    }

    /// The bridge of a stack at `--dev bridge:NAME`, whose port is the device `own`, with these other ports and those of
    /// the file, if any. All else that `heddle bridge run` has options for is in the file, or has its default.
    ///
    /// # Errors
    /// The file is wrong or names another bridge, or a device or the control socket cannot be opened.
    pub fn with_a_stack(
        name: &str,
        own: Box<dyn Device>,
        ports: &[String],
        config: Option<&Path>,
    ) -> Result<LocalBridge, Failure> {
        let defaults = Args::augment_args(Command::new("bridge")).get_matches_from(["bridge"]);
        let mut args = Args::from_arg_matches(&defaults).map_err(Failure::usage)?;
        (args.name, args.ports, args.config) = (name.to_owned(), ports.to_vec(), config.map(Path::to_owned));
        LocalBridge::open(args, Some(own))
    }

    /// Begins to forward, and to answer at the control socket.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.threads = self.running.switch.start();
        let answering = self.running.clone();
        self.socket.answer_by(move |request| answering.answer(request))
    }

    /// Ends forwarding. Returns the number of frames that were dropped.
    ///
    /// # Errors
    /// A thread has panicked, or the recording is incomplete.
    pub fn end(&mut self) -> Result<u64, Failure> {
        self.running.switch.stop();
        for thread in self.threads.drain(..) {
            if Real::join(thread).is_err() {
                return Err(Failure::Failed("a thread of the bridge has panicked; please report it".to_owned()));
            }
        }
        if let Some(capture) = &self.running.capture {
            capture.flush().map_err(Failure::Failed)?;
        }
        Ok(self.running.switch.counters().dropped_total())
    }
}

impl fmt::Display for LocalBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = &self.running.switch;
        let ports = switch.look(|_, ports| ports.iter().flatten().count());
        let exclusion = switch.exclusion().name();
        write!(f, "bridge {} with {ports} ports, {exclusion}; control socket {}", self.name, self.path.display())
    }
}

fn begin(bridge: &mut dyn Configure, args: &Args) -> Result<(), Failure> {
    bridge.set_filtering(args.vlan_filtering);
    let Some(protocol) = &args.stp else { return Ok(()) };
    let version = if protocol == "stp" { StpVersion::Stp } else { StpVersion::Rstp };
    let tree = StpConfig { version, ..StpConfig::default() };
    bridge.start_tree(tree, random_address(), request::now()).map_err(Failure::failed)
}

/// A new link address: locally administered, random.
pub fn random_address() -> MacAddr {
    let [a, b, c, d, e, ..] = Real::random().to_be_bytes();
    MacAddr([2, a, b, c, d, e])
}
