//! A stack put together: interfaces, an architecture, the drivers that poll the devices; and the calls of the control
//! plane. The public library wraps this; everything here is for any thread unless it says otherwise.

mod datagrams;
mod opening;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dev::{Device, QueuePair};
use ip::autoconf::{Autoconf, Identifiers};
use ip::{InterfaceView, RouteTable};
use path::TransmitQueue;
use sync::{Atomic, LockKind, Platform, Published, model_is_over};
use tcp::config::ConnectionOptions;
use wire::FourTuple;

use crate::addresses::{Addresses, Addressing};
use crate::after::After;
use crate::arch::Architecture;
use crate::arch::select::{self, Plan, Staffing};
use crate::call::{Call, Control, Reply};
use crate::clock::Clock;
use crate::connections::Census;
use crate::containment::Failure;
use crate::flow::{Flow, Target};
use crate::pings::EchoReply;
use crate::place::Contents;
use crate::ports::{Ports, Transport};
use crate::rx::Driver;
use crate::secrets::Secrets;
use crate::shared::{Interface, Settings, Shared};
use crate::socket::ListenerShared;
use crate::tx::Egress;

pub use datagrams::JoinRefused;
pub use opening::ConnectRefused;

/// How a stack is to be built.
pub struct StackConfig<P: Platform> {
    /// The process architecture.
    pub plan: Plan,
    /// The kind of lock it uses.
    pub lock_kind: LockKind,
    /// CPUs to spread cells and threads over; at least 1.
    pub cpus: usize,
    /// Whether an architecture with threads of its own starts them (see [`Staffing`]).
    pub own_threads: bool,
    /// TCP's parameters.
    pub tcp: tcp::Config,
    /// Where `now` comes from.
    pub clock: Clock<P>,
    /// A seed for the secrets, for runs that must repeat; `None` draws them.
    pub seed: Option<u64>,
    /// Resets that each CPU may send in a second to segments of no connection, a quarter of them to one peer; at least 16.
    /// A flood of strays must not double itself; who scans ports sees no difference; a peer that is not told waits for its own time-outs.
    pub resets_per_second: u32,
    /// Whether a panic in the stack ends one connection, or loses one piece of work, and not the thread; see
    /// [`containment`](crate::containment). For stacks with threads of their own.
    pub contain: bool,
}

impl<P: Platform> StackConfig<P> {
    /// The plan on the platform's clock, with Linux-like TCP parameters.
    pub fn new(plan: Plan) -> Self {
        StackConfig {
            plan,
            lock_kind: LockKind::default(),
            cpus: 1,
            own_threads: true,
            tcp: tcp::Config::default(),
            clock: Clock::Platform,
            seed: None,
            resets_per_second: 1000,
            contain: false,
        }
    }
}

/// One interface to build.
pub struct InterfaceConfig {
    /// Its device.
    pub device: Box<dyn Device>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Default routers on its link.
    pub gateways: Vec<IpAddr>,
    /// Whether the addresses are tested, and whether it finds some for itself.
    pub addressing: Addressing,
}

/// Why a stack cannot be built.
#[derive(Debug)]
pub enum BuildError {
    /// There is no interface.
    NoInterface,
    /// The device handed out no queues: it is in use already.
    NoQueues(String),
    /// An address cannot stand on an interface.
    Address(IpAddr, ip::interface::AddressError),
    /// A lock that must never wait was asked for where threads share it.
    NullLock(Plan),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoInterface => f.write_str("a stack needs at least one interface: add a device"),
            BuildError::NoQueues(name) => {
                write!(f, "device {name} has no queue left: it already belongs to another stack; open it again")
            }
            BuildError::Address(address, error) => write!(f, "address {address} cannot be used: {error}"),
            BuildError::NullLock(plan) => write!(
                f,
                "the null lock excludes nobody, and {plan} shares its locks between threads: choose another lock kind"
            ),
        }
    }
}

impl std::error::Error for BuildError {}

/// One stack. Clones name the same stack.
pub struct Stack<P: Platform> {
    core: Arc<Core<P>>,
}

impl<P: Platform> Clone for Stack<P> {
    fn clone(&self) -> Self {
        Stack { core: self.core.clone() }
    }
}

struct Core<P: Platform> {
    shared: Arc<Shared<P>>,
    arch: Arc<dyn Architecture<P>>,
    plan: Plan,
    ports: Ports<P>,
    rss: wire::rss::Toeplitz,
}

impl<P: Platform> Drop for Core<P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.arch.shutdown();
        }
    }
}

impl<P: Platform> Stack<P> {
    /// Builds a stack, and one driver for each queue pair of the device that has most; see [`Driver`].
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(
        mut config: StackConfig<P>,
        interfaces: Vec<InterfaceConfig>,
    ) -> Result<(Stack<P>, Vec<Driver<P>>), BuildError> {
        if config.lock_kind == LockKind::Null && !config.plan.properties().single_thread {
            return Err(BuildError::NullLock(config.plan));
        }
        let key = interfaces.first().ok_or(BuildError::NoInterface)?.device.capabilities().rss_key;
        let rss = wire::rss::Toeplitz::new(&key.unwrap_or(wire::rss::SYMMETRIC_KEY));
        let mut routes = RouteTable::new();
        let secrets = config.seed.map_or_else(Secrets::draw::<P>, Secrets::from_seed);
        let (mut built, mut machines) = (Vec::new(), Vec::new());
        let mut receivers: Vec<Vec<_>> = Vec::new();
        let mut first_queue = 0;
        // With one thread for everything the queue is that thread's, but for rare calls of others.
        let tx_lock = if config.plan.properties().single_thread { LockKind::Reserved } else { LockKind::Blocking };
        for (index, interface) in interfaces.into_iter().enumerate() {
            let seed = secrets.timing_seed(index);
            let Built { interface, queues, addresses } =
                build_interface::<P>(interface, (index, first_queue, seed), &mut routes, tx_lock)?;
            machines.push(addresses);
            first_queue += queues.len();
            for (driver, queue) in queues.into_iter().enumerate() {
                if receivers.len() <= driver {
                    receivers.push(Vec::new());
                }
                receivers[driver].push((index, queue));
            }
            built.push(interface);
        }
        // Limits are this stack's alone, though its configuration may have served another.
        config.tcp.gauges = Default::default();
        let (workers, drivers) = (config.cpus.max(1), receivers.len());
        let (clock, lock_kind, tcp) = (config.clock, config.lock_kind, config.tcp);
        let (resets_per_second, contain) = (config.resets_per_second, config.contain);
        let settings =
            Settings { clock, secrets, lock_kind, tcp, rss: rss.clone(), workers, drivers, resets_per_second, contain };
        let shared = Shared::new(settings, built, routes, Addresses::new(machines));
        let staffing = Staffing { cpus: config.cpus.max(1), own_threads: config.own_threads };
        let arch = select::build(config.plan, &shared, staffing, Contents::empty());
        let core = Core { shared, arch, plan: config.plan, ports: Ports::default(), rss };
        let stack = Stack { core: Arc::new(core) };
        let mut after = After::default();
        stack.core.shared.start_addresses(&mut after);
        after.perform(&stack.core.shared);
        let drivers = receivers
            .into_iter()
            .enumerate()
            .map(|(index, queues)| {
                let Core { shared, arch, plan, rss, .. } = &*stack.core;
                Driver::new(shared, arch, (rss, plan.properties()), index, queues)
            })
            .collect();
        Ok((stack, drivers))
    }

    /// The architecture it runs under.
    pub fn plan(&self) -> Plan {
        self.core.plan
    }

    /// Configuration, interfaces, counters.
    pub fn shared(&self) -> &Arc<Shared<P>> {
        &self.core.shared
    }

    /// What is alive in it, and its counters: cells and common work together. Exact at rest.
    pub fn census(&self) -> Census {
        let mut census = self.core.arch.census();
        census.counters = census.counters.clone() + self.core.shared.counters.snapshot();
        census.time_wait = self.core.shared.tcp().gauges.get(observe::Gauge::TimeWaits) as usize;
        census
    }

    /// The latest panics that were contained, oldest first.
    pub fn failures(&self) -> Vec<Failure> {
        self.core.shared.failures.list()
    }

    /// Whether nothing that was posted is still waiting to be run.
    pub fn is_quiescent(&self) -> bool {
        self.core.arch.is_quiescent()
    }

    /// Sets the MTU of an interface's link, in octets, within what the device carries. Open connections take it when they
    /// next send, new ones announce it.
    pub fn set_link_mtu(&self, interface: usize, mtu: usize) {
        let (shared, mut after) = (self.shared(), After::default());
        shared.set_link_mtu(interface, mtu, &mut after);
        after.perform(shared);
    }

    /// The flow of a connection between two addresses as this stack sees it.
    pub fn flow(&self, local: SocketAddr, remote: SocketAddr) -> Flow {
        let tuple = FourTuple {
            local_addr: local.ip(),
            local_port: local.port(),
            remote_addr: remote.ip(),
            remote_port: remote.port(),
        };
        Flow { tuple, hash: self.core.rss.hash_tcp(&tuple) }
    }

    /// Runs a call on a connection.
    #[inline]
    pub fn call(&self, target: &Target, mut call: Call<P>) -> Reply {
        let mut reply = Reply::Gone;
        self.core.arch.call(target, &mut call, &mut reply);
        reply
    }

    /// The same without a move of call or answer: the call is taken from where it stands, and what is left there means
    /// nothing. What `reply` holds before is dropped.
    #[inline]
    pub fn call_in_place(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        self.core.arch.call(target, call, reply);
    }

    /// Index of the driver whose queue the device gives the segments of `flow` to; `None` if no route leads to its peer any
    /// more. Where several machines share a device by other rules than the hash of the flow, they decide.
    pub fn driver_of(&self, flow: &Flow) -> Option<usize> {
        let (interface, _) = self.core.shared.route(flow.tuple.remote_addr)?;
        let queues = self.core.shared.interfaces.get(interface)?.egress.queues.len();
        Some(flow.index(queues.max(1)))
    }

    /// Listens on `address` (port 0: any). Complete when every cell has its replica.
    ///
    /// # Errors
    /// See [`BindRefused`].
    pub fn listen(
        &self,
        address: SocketAddr,
        backlog: usize,
        options: ConnectionOptions,
    ) -> Result<Arc<ListenerShared<P>>, BindRefused> {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
        //# Every passive OPEN call either creates a new connection record in LISTEN state, or it returns an error; it
        //# MUST NOT affect any previously created connection record (MUST-41).
        let local = self.bind(Transport::Tcp, address)?;
        let listener = ListenerShared::new(local, backlog, self.core.shared.tcp().syn_backlog as usize, options);
        self.core.arch.control(Control::Listen(listener.clone()));
        Ok(listener)
    }

    /// Stops listening. Complete when no cell can reach the listener; connections that nobody accepted are reset.
    pub fn unlisten(&self, listener: &Arc<ListenerShared<P>>) {
        self.core.arch.control(Control::Unlisten(listener.clone()));
        for child in listener.close() {
            self.call(&child.target(), Call::Abort(tcp::Abort));
        }
        self.core.ports.release(Transport::Tcp, listener.local());
    }

    /// Sends an echo request with `len` bytes of data and waits for the reply for at most `timeout`; the reply, and how
    /// long it took. Another thread must drive the stack.
    ///
    /// # Errors
    /// No route, or no packet buffer.
    pub fn ping(
        &self,
        destination: IpAddr,
        seq: u16,
        len: usize,
        timeout: Duration,
    ) -> Result<Option<(EchoReply, Duration)>, ConnectRefused> {
        let shared = &self.core.shared;
        let (interface, _) = shared.route(destination).ok_or(ConnectRefused::NoRoute)?;
        if shared.interfaces[interface].is_down() {
            return Err(ConnectRefused::NetworkDown);
        }
        let view = shared.interfaces[interface].view.get();
        let source = view.source_for(destination).ok_or(ConnectRefused::NoRoute)?;
        let ident = shared.pings.identifier();
        let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let request = ip::icmp::echo_request(source, destination, ident, seq, &data, view.mtu_for(destination));
        let request = request.ok_or(ConnectRefused::NoBuffer)?;
        shared.pings.expect(ident, seq);
        let protocol = if destination.is_ipv4() { wire::protocol::ICMP } else { wire::protocol::ICMPV6 };
        let sent = shared.clock.now();
        let mut after = After::default();
        shared.send_fragmented(request, source, destination, protocol, &shared.counters, &mut after);
        after.perform(shared);
        Ok(shared.pings.wait(ident, seq, timeout).map(|reply| (reply, reply.at - sent)))
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
    //# A TCP implementation that supports multiple concurrent connections MUST provide an OPEN call that will
    //# functionally allow an application to LISTEN on a port while a connection block with the same local port is in
    //# SYN-SENT or SYN-RECEIVED state (MUST-42).
    fn bind(&self, transport: Transport, address: SocketAddr) -> Result<SocketAddr, BindRefused> {
        if !address.ip().is_unspecified() && !self.core.shared.is_local(address.ip()) {
            return Err(BindRefused::NotLocal);
        }
        if self.core.shared.is_down_at(address.ip()) {
            return Err(BindRefused::NetworkDown);
        }
        self.core.ports.bind(transport, &self.core.shared.secrets, address).map_err(|_| BindRefused::InUse)
    }
}

/// Why an address could not be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindRefused {
    /// Another socket has it, or no port is left.
    InUse,
    /// It is not an address of this stack.
    NotLocal,
    /// Every device that could bring anything to it has vanished.
    NetworkDown,
}

type Receivers = Vec<Box<dyn dev::RxQueue>>;

struct Built<P: Platform> {
    interface: Interface<P>,
    queues: Receivers,
    addresses: (Addressing, Autoconf),
}

fn build_interface<P: Platform>(
    config: InterfaceConfig,
    (index, first_queue, seed): (usize, usize, u64),
    routes: &mut RouteTable,
    tx_lock: LockKind,
) -> Result<Built<P>, BuildError> {
    let InterfaceConfig { mut device, addresses, gateways, addressing } = config;
    let capabilities = device.capabilities().clone();
    let mut view = InterfaceView::new(index as u16, capabilities.mac, capabilities.mtu);
    for (address, prefix) in &addresses {
        view.add_address(*address, *prefix).map_err(|error| BuildError::Address(*address, error))?;
    }
    let autoconf = if addressing.is_checked() {
        let settings = ip::autoconf::Settings {
            addresses,
            from_routers: addressing.from_routers,
            identifiers: addressing.stable_key.map_or(Identifiers::Eui64, |key| Identifiers::Stable { key }),
            keep_contested: addressing.keep_contested,
            own_default_route: gateways.iter().any(IpAddr::is_ipv6),
            seed,
        };
        Autoconf::new(settings, view)
    } else {
        Autoconf::fixed(view, seed)
    };
    // Under test no address is there yet.
    let view = autoconf.view().clone();
    routes.insert_connected(&view);
    for gateway in gateways {
        routes.insert_default(gateway, index as u16);
    }
    let pairs = device.take_queues();
    if pairs.is_empty() {
        return Err(BuildError::NoQueues(device.name().to_owned()));
    }
    let number =
        |(index, pair): (usize, QueuePair)| (pair.rx, TransmitQueue::new(pair.tx, tx_lock, first_queue + index));
    let (receivers, queues) = pairs.into_iter().enumerate().map(number).unzip();
    let egress = Egress { capabilities, queues, first_queue };
    let interface = Interface { view: Published::new(view), egress, down: P::AtomicBool::new(false) };
    Ok(Built { interface, queues: receivers, addresses: (addressing, autoconf) })
}
