//! Construction of a stack: opens devices as ports, puts interfaces over them, and makes drivers for the receive
//! queues.
//!
//! Usually each interface has a device of its own, and both have the same number ([`Stack::build`]);
//! [`Stack::build_over_ports`] keeps them apart. Called once, by any thread.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use dev::{Device, LateSums};
use ip::autoconf::{Autoconf, Identifiers};
use ip::{InterfaceView, RouteTable};
use sync::{Atomic, LockKind, Platform};
use tcp::config::{ChecksumPlacement, MemoryLimits};
use wire::Framing;
use wire::ethernet::MacAddr;

use super::recent_destination::RecentDestination;
use super::{Core, Stack, StackConfig};
use crate::addresses::Addressing;
use crate::alarm::Alarms;
use crate::arch::running::{ArchitectureSlot, Running};
use crate::arch::select::{self, Architecture, ThreadConfig};
use crate::deferred::DeferredEffects;
use crate::interface::{Port, Ports, StackInterface};
use crate::links::DriverLayout;
use crate::loopback;
use crate::place::Contents;
use crate::ports;
use crate::rx::{Driver, RxSource};
use crate::secrets::Secrets;
use crate::shared::{Settings, Shared, between_threads, boxed};

/// The MTU of an interface without devices.
const MTU_WITHOUT_PORT: usize = 65_535;

/// One interface to build, over a device of its own: the usual case.
pub struct InterfaceConfig {
    /// Its device.
    pub device: Box<dyn Device>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Default routers on its link.
    pub gateways: Vec<IpAddr>,
    /// Whether addresses are tested, and whether the interface configures some itself.
    pub addressing: Addressing,
}

/// One interface to build, over any number of devices that are given beside it: none, or several as a bond.
pub struct InterfaceOverPorts {
    /// Its devices, by their place in the list. The first gives the hardware address, and the one that carries least
    /// the MTU.
    pub ports: Vec<usize>,
    /// As [`InterfaceConfig::addresses`].
    pub addresses: Vec<(IpAddr, u8)>,
    /// As [`InterfaceConfig::gateways`].
    pub gateways: Vec<IpAddr>,
    /// As [`InterfaceConfig::addressing`].
    pub addressing: Addressing,
}

/// Why a stack cannot be built.
#[derive(Debug)]
pub enum StackError {
    /// The device returned no queues: it is already in use.
    NoQueues(String),
    /// An interface names a device, by its index in the list, that does not exist or that another interface has.
    Port(usize),
    /// A device, by its index in the list, has another framing than the other devices of its interface.
    Framing(usize),
    /// An address cannot be assigned to an interface.
    Address(IpAddr, ip::interface::AddressError),
    /// A lock that never waits was configured for an architecture with several threads.
    NullLock(Architecture),
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StackError::NoQueues(name) => {
                write!(f, "device {name} has no queue left: it already belongs to another stack; open it again")
            }
            StackError::Port(port) => {
                write!(
                    f,
                    "device {port} does not exist or is named twice: name each device of the list once, counted from 0"
                )
            }
            StackError::Framing(port) => write!(
                f,
                "device {port} cannot share an interface with the others: all carry Ethernet frames, or all FDDI frames, or all bare packets"
            ),
            StackError::Address(address, error) => write!(f, "address {address} cannot be used: {error}"),
            StackError::NullLock(arch) => write!(
                f,
                "the null lock does not exclude other threads, and {arch} shares its locks between threads: choose another kind of lock"
            ),
        }
    }
}

impl std::error::Error for StackError {}

/// Receive queues by the driver that polls them.
type DriverQueues<P> = Vec<Vec<RxSource<P>>>;

impl<P: Platform> Stack<P> {
    /// Builds a stack of interfaces with one device each, and one driver for each queue pair of the device with the
    /// most; see [`Driver`].
    ///
    /// # Errors
    /// See [`StackError`].
    pub fn build(
        config: StackConfig<P>,
        interfaces: Vec<InterfaceConfig>,
    ) -> Result<(Stack<P>, Vec<Driver<P>>), StackError> {
        let (mut devices, mut over) = (Vec::new(), Vec::new());
        for InterfaceConfig { device, addresses, gateways, addressing } in interfaces {
            over.push(InterfaceOverPorts { ports: vec![devices.len()], addresses, gateways, addressing });
            devices.push(device);
        }
        Self::build_over_ports(config, devices, over)
    }

    /// The same for devices and interfaces over them. Frames from a device without an interface are dropped.
    ///
    /// # Errors
    /// See [`StackError`].
    pub fn build_over_ports(
        mut config: StackConfig<P>,
        devices: Vec<Box<dyn Device>>,
        interfaces: Vec<InterfaceOverPorts>,
    ) -> Result<(Stack<P>, Vec<Driver<P>>), StackError> {
        let single_thread = config.arch.properties().single_thread;
        if config.lock_kind == LockKind::Null && !single_thread && !P::null_lock_excludes() {
            return Err(StackError::NullLock(config.arch));
        }
        let devices = if config.tcp.checksum_placement == ChecksumPlacement::After {
            config.tcp.tx_checksum_offload = true;
            devices.into_iter().map(LateSums::<P>::around).collect()
        } else {
            devices
        };
        let key = devices.first().and_then(|device| device.capabilities().rss_key);
        let key = key.unwrap_or(wire::rss::SYMMETRIC_KEY);
        let rss = wire::rss::Toeplitz::new(&key);
        let secrets = config.seed.map_or_else(Secrets::draw::<P>, Secrets::from_seed);
        let (mut ports, sources) =
            open_ports::<P>(devices, &interfaces, config.drivers, between_threads::<P>(config.lock_kind))?;
        let alarms = Arc::new(Alarms::new(sources.len()));
        let receivers = add_loopback(&mut ports, sources.len(), between_threads::<P>(config.lock_kind), key, &alarms);
        let ports = Ports::new(ports);
        config.tcp.memory = config.tcp.memory.or_else(|| P::memory().map(MemoryLimits::of_machine));
        let (receive_batch, runs) = (config.receive_batch, config.runs);
        let shared = share(&config, (secrets, rss.clone(), alarms), ports, interfaces)?;
        let thread_config = ThreadConfig { cpus: config.cpus.max(1), own_threads: config.own_threads };
        let active = select::build(config.arch, &shared, thread_config, boxed(Contents::empty));
        let running = Arc::new(ArchitectureSlot::new(Running::new(active, config.arch, thread_config, 0)));
        let (ports, recent) = (boxed(ports::PortNumbers::default), boxed(RecentDestination::default));
        let datagrams = P::AtomicU32::new(0);
        let core = Core { shared, running, ports, recent, datagrams, rss, homing: config.homing };
        let stack = Stack { core: Arc::new(core) };
        let (shared, mut deferred) = (&stack.core.shared, DeferredEffects::default());
        // No thread owns the tables yet.
        shared.addresses().start_addresses(shared.egress(), &shared.counters, &mut deferred);
        deferred.flush(shared.links());
        let receivers = receivers.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let drivers = sources
            .into_iter()
            .zip(receivers)
            .enumerate()
            .map(|(index, queues)| {
                let Core { shared, running, rss, .. } = &*stack.core;
                let mut driver = Driver::new(shared, running, rss, index, queues);
                driver.limit_batches(receive_batch);
                driver.collect_runs(runs);
                driver
            })
            .collect();
        Ok((stack, drivers))
    }
}

/// What all threads of a stack share, with its interfaces over these ports. Not inlined: the values that it puts together are
/// large, and the architecture is built on the same stack of a thread afterwards (`heddle/tests/small_stack.rs`).
#[inline(never)]
fn share<P: Platform>(
    config: &StackConfig<P>,
    (secrets, rss, alarms): (Secrets, wire::rss::Toeplitz, Arc<Alarms<P>>),
    ports: Ports<P>,
    interfaces: Vec<InterfaceOverPorts>,
) -> Result<Arc<Shared<P>>, StackError> {
    let (mut routes, mut built, mut machines) = (RouteTable::new(), Vec::new(), Vec::new());
    for (index, interface) in interfaces.into_iter().enumerate() {
        let seed = secrets.timing_seed(index);
        let (interface, addresses) = build_interface::<P>(interface, &ports, (index, seed), &mut routes)?;
        machines.push(addresses);
        built.push(interface);
    }
    let view = loopback::view(built.len());
    let autoconf = Box::new(Autoconf::fixed(view.clone(), secrets.timing_seed(built.len())));
    machines.push((Addressing::default(), autoconf));
    built.push(StackInterface::new(view, vec![ports.iter().len() - 1]));
    let settings = boxed(|| Settings {
        clock: config.clock.clone(),
        secrets,
        lock_kind: config.lock_kind,
        counting: config.counting,
        tcp: config.tcp.clone(),
        rss,
        workers: config.cpus.max(1),
        drivers: config.drivers,
        alarms,
        resets_per_second: config.resets_per_second,
        contain: config.contain,
    });
    Ok(Shared::new(settings, (built, ports), routes, machines))
}

/// Opens all devices and divides their queues among drivers; without any device there is a driver for timers and
/// callers.
fn open_ports<P: Platform>(
    devices: Vec<Box<dyn Device>>,
    interfaces: &[InterfaceOverPorts],
    layout: DriverLayout,
    lock_kind: LockKind,
) -> Result<(Vec<Port<P>>, DriverQueues<P>), StackError> {
    let mut interface_of = vec![None; devices.len()];
    for (index, interface) in interfaces.iter().enumerate() {
        for port in &interface.ports {
            match interface_of.get_mut(*port) {
                Some(owner @ None) => *owner = Some(index),
                _ => return Err(StackError::Port(*port)),
            }
        }
    }
    let (mut ports, mut sources, mut queues): (Vec<Port<P>>, DriverQueues<P>, usize) =
        (Vec::new(), vec![Vec::new()], 0);
    for (port, (mut device, interface)) in devices.into_iter().zip(interface_of).enumerate() {
        let (opened, receivers) = Port::open(&mut *device, lock_kind, queues)
            .ok_or_else(|| StackError::NoQueues(device.name().to_owned()))?;
        let framing = opened.capabilities().framing;
        for (index, queue) in receivers.into_iter().enumerate() {
            let driver = layout.driver(port, index, queues + index);
            while sources.len() <= driver {
                sources.push(Vec::new());
            }
            sources[driver].push(RxSource { port, interface, framing, inspected: None, queue });
        }
        queues += opened.queues().len();
        ports.push(opened);
    }
    Ok((ports, sources))
}

/// Adds the loopback port, after all others. Its receiving halves go to the drivers of their index.
fn add_loopback<P: Platform>(
    ports: &mut Vec<Port<P>>,
    drivers: usize,
    lock_kind: LockKind,
    rss_key: [u8; 40],
    alarms: &Arc<Alarms<P>>,
) -> Vec<loopback::LoopbackReceiver<P>> {
    let queues = ports.iter().map(|port| port.queues().len()).sum();
    let (port, receivers) = loopback::open(drivers, lock_kind, rss_key, queues, alarms);
    ports.push(port);
    receivers
}

/// The link properties of an interface over these ports: framing, hardware address and MTU.
fn link_of<P: Platform>(ports: &Ports<P>, numbers: &[usize]) -> Result<(Framing, MacAddr, usize), StackError> {
    let capabilities = || numbers.iter().map(|port| ports[*port].capabilities());
    let mac = capabilities().next().map_or(MacAddr::UNSPECIFIED, |first| first.mac);
    let framing = capabilities().next().map_or(Framing::Ethernet, |first| first.framing);
    if let Some(other) = numbers.iter().find(|port| ports[**port].capabilities().framing != framing) {
        return Err(StackError::Framing(*other));
    }
    Ok((framing, mac, capabilities().map(|capabilities| capabilities.mtu).min().unwrap_or(MTU_WITHOUT_PORT)))
}

/// An interface, and the owner of its addresses.
type BuiltInterface<P> = (StackInterface<P>, (Addressing, Box<Autoconf>));

fn build_interface<P: Platform>(
    config: InterfaceOverPorts,
    ports: &Ports<P>,
    (index, seed): (usize, u64),
    routes: &mut RouteTable,
) -> Result<BuiltInterface<P>, StackError> {
    let InterfaceOverPorts { ports: numbers, addresses, gateways, addressing } = config;
    let (framing, mac, mtu) = link_of(ports, &numbers)?;
    let mut view = match framing {
        Framing::Ethernet => InterfaceView::new(index as u16, mac, mtu),
        Framing::Fddi => InterfaceView::new(index as u16, mac, mtu).over_fddi(),
        Framing::Packet => InterfaceView::without_link(index as u16, mtu),
    };
    for (address, prefix) in &addresses {
        view.add_address(*address, *prefix).map_err(|error| StackError::Address(*address, error))?;
    }
    // Without a link no other host can have the same address, and no router can be heard.
    let autoconf = if addressing.is_checked() && framing.has_addresses() {
        let settings = ip::autoconf::AutoconfConfig {
            addresses,
            from_routers: addressing.from_routers,
            identifiers: addressing.stable_key.map_or(Identifiers::Eui64, |key| Identifiers::Stable { key }),
            keep_contested: addressing.keep_contested,
            own_default_route: gateways.iter().any(IpAddr::is_ipv6),
            seed,
        };
        Box::new(Autoconf::new(settings, view))
    } else {
        Box::new(Autoconf::fixed(view, seed))
    };
    // Addresses that are still being tested for duplicates are not assigned yet.
    let view = autoconf.view().clone();
    routes.insert_connected(&view);
    for gateway in gateways {
        routes.insert_default(gateway, index as u16);
    }
    Ok((StackInterface::new(view, numbers), (addressing, autoconf)))
}
