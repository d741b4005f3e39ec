//! The options for device, addresses and architecture, shared by every command that needs a network; and a stack built
//! from them.
//!
//! Over `mem` there is no other host, so a command that connects also creates its peer: a second stack in the same
//! process, at the other port of the in-memory device ([`Network::with_peer`]).

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use clap::{Args, ValueEnum};
use heddle::config::Profile;
use heddle::device::Framing;
use heddle::device::fault::{FaultPlan, GRAMMAR};
use heddle::device::pcap::{CaptureDevice, Recording};
use heddle::device::{Device, with_faults};
use heddle::mem::{MAX_QUEUES, MemConfig};
use heddle::tap::{Offloads, Tap, TapError, TapOptions};
use heddle::{AddressEvent, Addressing, Architecture, BuildError, Cidr, FaultScope, Interface, LockKind, Route, Stack};
use tokio::sync::Notify;

use crate::bridge::{LocalBridge, random_address};
use crate::failure::Failure;
use crate::privileges::User;
use crate::{headroom, runtime};

/// How long a command waits for a router: solicitations are sent after one, five and thirteen seconds.
const ADDRESS_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(15);

/// Largest number of queue pairs: that of a link in memory, and of a TAP interface (`MAX_TAP_QUEUES` in Linux's tun.c).
const MOST_QUEUES: u64 = MAX_QUEUES as u64;

/// Largest number of threads: no computer has as many processors. Whether this one can start them is checked before.
const MOST_THREADS: u64 = 4096;

/// Smallest MTU of a link that carries IPv4 (RFC 791, section 3.2), and of one that carries IPv6 (RFC 8200, section 5).
const LEAST_MTU_V4: usize = 68;
const LEAST_MTU_V6: usize = 1280;
/// Largest MTU of a TAP interface: 65535 bytes less its link header.
const MOST_MTU: usize = 65_521;

/// The network that the command uses.
#[derive(Args)]
#[command(next_help_heading = "Network")]
pub struct NetworkArgs {
    /// Device: `mem` (both ends in this process; does not need root), `tap:NAME` (a TAP interface of this machine; needs
    /// root, unless the interface exists and belongs to the user), `tun:NAME` (a TUN interface: IP packets without
    /// Ethernet) or `bridge:NAME` (a port of a bridge in this process, as br0 is of Linux's; see --bridge-port)
    #[arg(long, value_name = "DEVICE", default_value = "mem")]
    pub dev: DeviceName,

    /// Another port of the bridge of --dev bridge:NAME, as in tap:vm1; may be given several times. `heddle bridge` shows and
    /// changes the bridge while the command runs
    #[arg(long, value_name = "DEVICE")]
    pub bridge_port: Vec<String>,

    /// Read the ports and options of the bridge of --dev bridge:NAME from a TOML file (docs/bridge.md)
    #[arg(long, value_name = "FILE")]
    pub bridge_config: Option<PathBuf>,

    /// Address of Heddle's stack with its prefix length, such as 10.0.0.2/24 or fd00::2/64; may be given several times
    #[arg(long, value_name = "CIDR")]
    pub addr: Vec<Cidr>,

    /// Configure IPv6 addresses and the default router from router advertisements. Each address, including those of
    /// --addr, is tested for duplicates on the link before it is used (some seconds after the start). Only with tap and bridge
    #[arg(long)]
    pub slaac: bool,

    /// Secret for addresses of --slaac that do not identify the host across networks (RFC 7217): 32 hexadecimal digits.
    /// The same secret gives the same addresses [default: addresses are formed from the link address]
    #[arg(long, value_name = "HEX", requires = "slaac", value_parser = secret)]
    pub stable_secret: Option<[u8; 16]>,

    /// Default router; may be given once for IPv4 and once for IPv6
    #[arg(long, value_name = "ADDRESS")]
    pub gateway: Vec<IpAddr>,

    /// Route with its attributes, in the syntax of `ip route`, such as "default via 10.0.0.1 mtu lock 1400" or
    /// "10.8.0.0/16 advmss 1200 initcwnd 20 initrwnd 30"; may be given several times
    #[arg(long, value_name = "ROUTE")]
    pub route: Vec<Route>,

    /// Process architecture (`heddle serve --list-arch` lists them)
    #[arg(long, value_name = "NAME", default_value_t)]
    pub arch: Architecture,

    /// Kind of lock: tas, ttas, ticket, mcs, spin-park, blocking, reserved, adaptive or adaptive-lending
    #[arg(long, value_name = "KIND", default_value_t)]
    pub lock: LockKind,

    /// Number of threads over which the stack distributes its work [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_THREADS))]
    pub threads: Option<u64>,

    /// Number of queue pairs of the device, each with a receive thread [default: as --threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_QUEUES))]
    pub queues: Option<u64>,

    /// Work that is offloaded to the kernel's side of a TAP interface: checksums and segmentation, checksums, or none
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Offload::All)]
    pub offload: Offload,

    /// MTU in bytes, 68 to 65521; at least 1280 with IPv6 addresses [default: the MTU of the interface; 1500 for mem]
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    pub mtu: Option<usize>,

    /// Stack whose behaviour on the wire TCP imitates: linux, freebsd or rfc
    #[arg(long, value_name = "NAME", default_value = "linux")]
    pub profile: Profile,

    /// Directory of files that set parameters of TCP, named as in /proc/sys/net/ipv4; applied after --profile
    #[arg(long, value_name = "DIR")]
    pub sysctl_dir: Option<PathBuf>,

    /// Parameter of TCP, such as tcp_sack=0, applied after --sysctl-dir; may be given several times (`heddle knobs` lists
    /// them)
    #[arg(long, value_name = "NAME=VALUE")]
    pub sysctl: Vec<String>,

    /// Faults to inject, such as "loss 1% reorder 2% out delay 5ms seed 7" (docs/faults.md)
    #[arg(long, value_name = "PLAN", long_help = fault_help())]
    pub fault: Option<FaultPlan>,

    /// Drop the rights of root and run as this user (NAME, UID or UID:GID) once the interface and the recording are
    /// open. The user must be allowed to read the served files; see SECURITY.md. Not with mem
    #[arg(long, value_name = "NAME|UID[:GID]")]
    pub user: Option<User>,

    /// Record every frame to FILE, for Wireshark or tcpdump (pcapng)
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
}

/// The long help of `--fault`.
pub fn fault_help() -> String {
    format!("Faults to inject, such as \"loss 1% reorder 2% out delay 5ms seed 7\" (docs/faults.md).\n\n{GRAMMAR}")
}

/// Values of `--dev`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// Two linked ports in memory.
    Mem,
    /// A TAP interface by name.
    Tap(String),
    /// A TUN interface by name.
    Tun(String),
    /// A port of a bridge in this process, which has this name.
    Bridge(String),
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        match text.split_once(':') {
            None if text == "mem" => Ok(DeviceName::Mem),
            Some(("tap", name)) if !name.is_empty() => Ok(DeviceName::Tap(name.to_owned())),
            Some(("tun", name)) if !name.is_empty() => Ok(DeviceName::Tun(name.to_owned())),
            Some(("bridge", name)) if !name.is_empty() => Ok(DeviceName::Bridge(name.to_owned())),
            _ => Err("a device is `mem`, `tap:NAME`, `tun:NAME` or `bridge:NAME`, as in tap:heddle0".to_owned()),
        }
    }
}

/// Values of `--offload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Offload {
    /// Checksums and segmentation.
    All,
    /// Checksums.
    Checksum,
    /// Nothing.
    None,
}

/// A running stack, with its device and a notification of its removal.
pub struct Network {
    /// The stack.
    pub stack: Stack,
    /// Its device's name.
    pub device: String,
    /// The bridge that it is a port of.
    bridge: Mutex<Option<LocalBridge>>,
    /// Notified when the device was removed.
    pub gone: Arc<Notify>,
    recording: Option<(PathBuf, Arc<Recording>)>,
}

impl NetworkArgs {
    fn threads(&self) -> usize {
        let here = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(here, |threads| threads as usize)
    }

    fn queues(&self) -> usize {
        self.queues.map_or(self.threads(), |queues| queues as usize).min(MOST_QUEUES as usize)
    }

    /// Checks that the threads of a command can be started, with their memory: those of its stacks (two over mem) and
    /// of its runtime.
    ///
    /// # Errors
    /// The system does not provide them.
    pub fn check_headroom(&self) -> Result<(), Failure> {
        let stacks = if self.dev == DeviceName::Mem { 2 } else { 1 };
        let bridge = if matches!(self.dev, DeviceName::Bridge(_)) { LocalBridge::USUAL_THREADS } else { 0 };
        headroom::check(stacks * (self.queues() + self.threads()) + bridge + runtime::threads())
    }

    /// A stack on the device of `--dev`, which is not `mem`.
    ///
    /// # Errors
    /// The device or the recording cannot be opened, or the addresses are missing or wrong.
    pub fn open(&self) -> Result<Network, Failure> {
        let name = match &self.dev {
            DeviceName::Bridge(name) => return self.on_bridge(name),
            DeviceName::Tap(name) | DeviceName::Tun(name) => name,
            DeviceName::Mem => return Err(Failure::usage("--dev mem has a peer in this process: use --dev tap:NAME")),
        };
        self.check_no_bridge()?;
        self.on_tap(name)
    }

    fn check_no_bridge(&self) -> Result<(), Failure> {
        if self.bridge_port.is_empty() && self.bridge_config.is_none() {
            return Ok(());
        }
        Err(Failure::usage(
            "--bridge-port and --bridge-config belong to a bridge: use --dev bridge:NAME, or leave them out",
        ))
    }

    /// A stack that is a port of a bridge in this process.
    fn on_bridge(&self, name: &str) -> Result<Network, Failure> {
        if self.addr.is_empty() && !self.slaac {
            return Err(Failure::Usage(format!(
                "a stack on the bridge {name} needs an address: add --addr 10.0.0.2/24"
            )));
        }
        let (ours, theirs) = heddle::mem::pair(MemConfig {
            queues: self.queues().min(heddle::mem::MAX_QUEUES),
            mtu: self.mtu.unwrap_or(1500),
            checksum_offload: true,
            mac_a: random_address(),
            mac_b: random_address(),
            ..MemConfig::default()
        });
        let (ports, config) = (&self.bridge_port, self.bridge_config.as_deref());
        let mut bridge = LocalBridge::with_a_stack(name, Box::new(theirs), ports, config)?;
        // Its threads begin after --user is applied.
        let mut network = self.build(Box::new(ours), &self.addr)?;
        bridge.start()?;
        eprintln!("{bridge}");
        network.device = name.to_owned();
        network.bridge = Mutex::new(Some(bridge));
        if self.slaac {
            self.await_address(name, &network.stack)?;
        }
        Ok(network)
    }

    /// A stack on a TAP or TUN interface.
    fn on_tap(&self, name: &str) -> Result<Network, Failure> {
        if self.addr.is_empty() && !self.slaac {
            return Err(Failure::Usage(format!(
                "a stack on {name} needs an address: add --addr 10.0.0.2/24 (and give the kernel's end another one, \
                 with `ip addr add 10.0.0.1/24 dev {name}`)"
            )));
        }
        let framing = if matches!(self.dev, DeviceName::Tun(_)) { Framing::Packet } else { Framing::Ethernet };
        if self.slaac && framing == Framing::Packet {
            return Err(Failure::Usage(format!(
                "{name} carries IP packets without Ethernet, so no router can advertise addresses: leave --slaac out and give --addr"
            )));
        }
        let offloads = match self.offload {
            Offload::All => Offloads::All,
            Offload::Checksum => Offloads::Checksum,
            Offload::None => Offloads::None,
        };
        // Before the interface is changed: with a small MTU the kernel removes its own IPv6 addresses from it.
        self.check_mtu("--mtu", self.mtu, &self.addr)?;
        let options = TapOptions { queues: self.queues(), offloads, mtu: self.mtu, framing, ..TapOptions::default() };
        let tap = Tap::open(name, options).map_err(|error| match error {
            TapError::BadName { .. } | TapError::BadQueueCount { .. } => Failure::usage(error),
            _ => Failure::failed(error),
        })?;
        let network = self.build(Box::new(tap), &self.addr)?;
        if self.slaac {
            self.await_address(name, &network.stack)?;
        }
        Ok(network)
    }

    /// Refuses an MTU below the least of IPv6. `source` names it in the message, before the number.
    fn check_mtu(&self, source: &str, mtu: Option<usize>, addresses: &[Cidr]) -> Result<(), Failure> {
        let Some(mtu) = mtu.filter(|mtu| *mtu < LEAST_MTU_V6) else { return Ok(()) };
        let mut six = addresses.iter().filter(|cidr| cidr.address().is_ipv6());
        let what = match six.next() {
            Some(cidr) => format!("the IPv6 address {cidr}"),
            None if self.slaac => "--slaac".to_owned(),
            None => return Ok(()),
        };
        Err(Failure::Usage(format!(
            "{source} {mtu} is too small for {what}: IPv6 needs {LEAST_MTU_V6} (RFC 8200, section 5); raise it with --mtu, or \
             leave out the IPv6 addresses"
        )))
    }

    /// Waits until an address is in use that is not link-local or was given by `--addr`, and prints it.
    fn await_address(&self, name: &str, stack: &Stack) -> Result<(), Failure> {
        let asked = |address: &IpAddr| self.addr.iter().any(|cidr| cidr.address() == *address);
        let wide = |address: &IpAddr| !matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
        let end = std::time::Instant::now() + ADDRESS_TIMEOUT;
        while let Some(left) = end.checked_duration_since(std::time::Instant::now()) {
            for (_, event) in stack.address_events(left) {
                match event {
                    AddressEvent::Assigned(address) => {
                        eprintln!("{name}: {address} is in use");
                        if wide(&address) || asked(&address) {
                            return Ok(());
                        }
                    }
                    AddressEvent::Duplicate { address, by } => {
                        let by = by.map_or_else(String::new, |mac| format!(", at {mac}"));
                        eprintln!("{name}: another host has {address}{by}; the address is not used");
                    }
                    _ => {}
                }
            }
        }
        Err(Failure::Failed(format!(
            "no router on {name} advertised a prefix within {} seconds: start one on that link (for example radvd), or give --addr",
            ADDRESS_TIMEOUT.as_secs()
        )))
    }

    /// A stack on the in-memory device, and its peer: a second stack at the other port, whose address is `peer`.
    ///
    /// # Errors
    /// `peer` is not on the network of `--addr`, or the recording cannot be opened.
    pub fn with_peer(&self, peer: IpAddr) -> Result<(Network, Stack), Failure> {
        let own = if self.addr.is_empty() { vec![neighbour_of(peer)] } else { self.addr.clone() };
        let Some(beside) = own.iter().find(|cidr| cidr.contains(peer)) else {
            return Err(Failure::Usage(format!(
                "with --dev mem there is one network, and {peer} is not on it: give an --addr on the network of {peer}, or none"
            )));
        };
        if beside.address() == peer {
            return Err(Failure::Usage(format!("{peer} is the address of this stack: give another --addr, or none")));
        }
        self.check_mtu("--mtu", self.mtu, &own)?;
        if self.user.is_some() {
            return Err(Failure::usage("--dev mem does not need root: leave --user out, or use --dev tap:NAME"));
        }
        self.check_no_bridge()?;
        let config = MemConfig {
            queues: self.queues().min(heddle::mem::MAX_QUEUES),
            mtu: self.mtu.unwrap_or(1500),
            ..MemConfig::default()
        };
        let (ours, theirs) = heddle::mem::pair(config);
        let network = self.build(Box::new(ours), &own)?;
        let address = Cidr::new(peer, beside.prefix_len()).map_err(Failure::usage)?;
        let stack = self.builder().interface(self.interface(theirs, &[address])?).build().map_err(Failure::usage)?;
        Ok((network, stack))
    }

    /// A stack on any device.
    ///
    /// # Errors
    /// The recording cannot be opened, or the addresses are wrong.
    pub fn build(&self, device: Box<dyn Device>, addresses: &[Cidr]) -> Result<Network, Failure> {
        let name = device.name().to_owned();
        self.check_mtu(&format!("the MTU of {name},"), Some(device.capabilities().mtu), addresses)?;
        let mut device = device;
        if let Some(faults) = &self.fault {
            device = Box::new(with_faults(device, faults.clone()));
        }
        let mut recording = None;
        if let Some(path) = &self.pcap {
            let recorder = CaptureDevice::new(device, create(path)?);
            recording = Some((path.clone(), recorder.recording()));
            device = Box::new(recorder);
        }
        let gone = Arc::new(Notify::new());
        let told = gone.clone();
        let mut interface = self.interface(device, addresses)?;
        for gateway in &self.gateway {
            interface = interface.gateway(*gateway);
        }
        for route in &self.route {
            interface = interface.route(*route).map_err(Failure::usage)?;
        }
        let builder = self.builder().interface(interface).on_device_gone(move || told.notify_one());
        if let Some(user) = self.user {
            user.become_it()?;
        }
        let stack = builder.build().map_err(|error| match error {
            BuildError::Thread(_) | BuildError::NoBuffer => Failure::failed(error),
            _ => Failure::usage(error),
        })?;
        Ok(Network { stack, device: name, bridge: Mutex::new(None), gone, recording })
    }

    fn interface(&self, device: impl Device + 'static, addresses: &[Cidr]) -> Result<Interface, Failure> {
        let from_routers = self.slaac && matches!(self.dev, DeviceName::Tap(_) | DeviceName::Bridge(_));
        let addressing = Addressing { from_routers, stable_key: self.stable_secret, ..Addressing::default() };
        let interface = Interface::new(device).addressing(addressing);
        interface.addresses(addresses.iter().copied()).map_err(Failure::usage)
    }

    fn builder(&self) -> heddle::Builder {
        let mut builder =
            Stack::builder().architecture(self.arch).lock(self.lock).cpus(self.threads()).tcp(self.profile);
        if let Some(directory) = &self.sysctl_dir {
            builder = builder.knobs_from(directory);
        }
        for assignment in &self.sysctl {
            builder = builder.assign(assignment);
        }
        builder
    }
}

impl Network {
    /// The failure when the device of a service was removed.
    pub fn vanished(&self) -> Failure {
        let given_up = |failure: &heddle::Failure| matches!(failure.scope, FaultScope::Device(_) | FaultScope::Thread);
        if let Some(failure) = self.stack.failures().into_iter().rfind(given_up) {
            return Failure::Failed(format!("{}: {failure}", self.device));
        }
        Failure::Failed(format!("the interface {} was removed: create it again and restart the service", self.device))
    }

    /// Ends the bridge and the recording, if there are any.
    ///
    /// # Errors
    /// A recording is incomplete, for example because the disk was full, or a thread of the bridge has panicked.
    pub fn finish(&self) -> Result<(), Failure> {
        // The value under this lock is always consistent.
        let bridge = self.bridge.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut bridge) = bridge {
            bridge.end()?;
        }
        let Some((path, recording)) = &self.recording else { return Ok(()) };
        recording.flush();
        match recording.take_error() {
            None => Ok(()),
            Some(error) => Err(Failure::Failed(format!(
                "the recording {} is incomplete, with {} frames: {error}; free space on the disk, or record to another file",
                path.display(),
                recording.frames()
            ))),
        }
    }
}

/// Reads an MTU.
fn mtu(text: &str) -> Result<usize, String> {
    let mtu = text.parse().ok().filter(|mtu| (LEAST_MTU_V4..=MOST_MTU).contains(mtu));
    mtu.ok_or_else(|| {
        format!(
            "give {LEAST_MTU_V4} to {MOST_MTU} bytes: every host must take IPv4 packets of {LEAST_MTU_V4} (RFC 791)"
        )
    })
}

/// Reads a secret of 32 hexadecimal digits.
fn secret(text: &str) -> Result<[u8; 16], String> {
    let number = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten();
    number
        .map(u128::to_be_bytes)
        .ok_or_else(|| "a secret is 32 hexadecimal digits, as `openssl rand -hex 16` prints".to_owned())
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| {
        Failure::Failed(format!(
            "cannot write {}: {error}; choose a file in a directory that you may write to",
            path.display()
        ))
    })
}

/// An address next to `peer`, with the prefix length that a small network usually has.
fn neighbour_of(peer: IpAddr) -> Cidr {
    let (address, prefix_len) = match peer {
        IpAddr::V4(v4) => (IpAddr::V4((u32::from(v4) ^ 3).into()), 24),
        IpAddr::V6(v6) => (IpAddr::V6((u128::from(v6) ^ 3).into()), 64),
    };
    Cidr::new(address, prefix_len).expect("the prefix is shorter than the address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named() {
        assert_eq!("mem".parse(), Ok(DeviceName::Mem));
        assert_eq!("tap:heddle0".parse(), Ok(DeviceName::Tap("heddle0".to_owned())));
        assert_eq!("tun:heddle1".parse(), Ok(DeviceName::Tun("heddle1".to_owned())));
        assert_eq!("bridge:br0".parse(), Ok(DeviceName::Bridge("br0".to_owned())));
        for wrong in ["", "tap", "tap:", "tun", "tun:", "bridge", "bridge:", "mem:1", "eth0"] {
            assert!(wrong.parse::<DeviceName>().is_err_and(|message| message.contains("tap:NAME")), "{wrong}");
        }
    }

    #[test]
    fn there_may_be_more_queues_than_bits_in_a_word_and_more_threads_than_queues() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            network: NetworkArgs,
        }
        let line = ["heddle", "--queues", "65", "--threads", "257"];
        let parsed =
            <Line as clap::Parser>::try_parse_from(line).map(|line| (line.network.queues(), line.network.threads()));
        assert_eq!(parsed.expect("it is in range"), (65, 257));
        let default = <Line as clap::Parser>::try_parse_from(["heddle", "--threads", "257"]).expect("it is in range");
        assert_eq!(default.network.queues(), 256, "no device has more");
    }

    #[test]
    fn our_own_address_is_beside_the_peers() {
        for peer in ["10.0.0.1", "10.0.0.254", "fd00::1"] {
            let peer: IpAddr = peer.parse().unwrap();
            let own = neighbour_of(peer);
            assert!(own.address() != peer && own.contains(peer), "{own}");
        }
        // Neither the network's own address nor the broadcast address.
        assert_eq!(neighbour_of("10.0.0.1".parse().unwrap()).to_string(), "10.0.0.2/24");
        assert_eq!(neighbour_of("10.0.0.254".parse().unwrap()).to_string(), "10.0.0.253/24");
    }
}
