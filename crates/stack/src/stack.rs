//! A stack put together: interfaces, an architecture, the drivers that poll the devices; and the calls of the control
//! plane. The public library wraps this; everything here is for any thread unless it says otherwise.

mod datagrams;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dev::Device;
use ip::autoconf::{Autoconf, Identifiers};
use ip::{InterfaceView, RouteTable};
use observe::Time;
use pktbuf::{Chunk, PktBuf};
use sync::{Atomic, LockKind, Platform, Published, model_is_over};
use tcp::config::ConnectionOptions;
use tcp::fast_open::Start;
use wire::FourTuple;

use crate::addresses::{Addresses, Addressing};
use crate::after::After;
use crate::arch::select::{self, Plan, Staffing};
use crate::arch::{Architecture, Census};
use crate::call::{Call, Control, OpenRefused, OpenRequest, Reply};
use crate::clock::Clock;
use crate::containment::Failure;
use crate::flow::{Flow, Target};
use crate::pings::EchoReply;
use crate::ports::{Ports, Transport};
use crate::rx::Driver;
use crate::secrets::Secrets;
use crate::shared::{Interface, Settings, Shared};
use crate::socket::{ListenerShared, TcpSocket};
use crate::tx::{Egress, TxPort};

pub use datagrams::JoinRefused;

/// The most text that an open takes: what a pooled buffer holds, and an empty send buffer takes, however small it is.
const FIRST_TEXT: usize = 60 << 10;

/// Text that an active open begins with.
#[derive(Clone, Copy)]
enum FirstText<'t> {
    /// None, and no Fast Open.
    None,
    /// All of it is queued; what the SYN cannot carry follows it.
    Queued(&'t [u8]),
    /// Only what the SYN carries is taken; whether the user then waits to send more.
    OnSyn(&'t [u8], bool),
}

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
        if config.lock_kind == LockKind::Null && config.plan != Plan::Up {
            return Err(BuildError::NullLock(config.plan));
        }
        let key = interfaces.first().ok_or(BuildError::NoInterface)?.device.capabilities().rss_key;
        let rss = wire::rss::Toeplitz::new(&key.unwrap_or(wire::rss::SYMMETRIC_KEY));
        let mut routes = RouteTable::new();
        let secrets = config.seed.map_or_else(Secrets::draw::<P>, Secrets::from_seed);
        let (mut built, mut machines) = (Vec::new(), Vec::new());
        let mut receivers: Vec<Vec<_>> = Vec::new();
        let mut first_port = 0;
        // With one thread for everything the queue is that thread's, but for rare calls of others.
        let tx_lock = if config.plan == Plan::Up { LockKind::Reserved } else { LockKind::Blocking };
        for (index, interface) in interfaces.into_iter().enumerate() {
            let seed = secrets.timing_seed(index);
            let Built { interface, queues, addresses } =
                build_interface::<P>(interface, (index, first_port, seed), &mut routes, tx_lock)?;
            machines.push(addresses);
            first_port += queues.len();
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
        let arch = select::build(config.plan, &shared, staffing);
        let core = Core { shared, arch, plan: config.plan, ports: Ports::default(), rss };
        let stack = Stack { core: Arc::new(core) };
        let mut after = After::default();
        stack.core.shared.start_addresses(&mut after);
        after.perform(&stack.core.shared);
        let drivers = receivers
            .into_iter()
            .enumerate()
            .map(|(index, queues)| Driver::new(&stack.core.shared, &stack.core.arch, &stack.core.rss, index, queues))
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

    /// Opens a connection to `remote` from `local` (or from an address and port that are chosen) and returns without
    /// waiting for the handshake.
    ///
    /// # Errors
    /// See [`ConnectRefused`].
    pub fn connect(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &ConnectionOptions,
    ) -> Result<Arc<TcpSocket<P>>, ConnectRefused> {
        self.connect_with(local, remote, options, &[])
    }

    /// As [`Stack::connect`], with text to send, no more than [`Stack::first_text`] takes: it leaves with the SYN if what is
    /// known of the destination allows it (RFC 7413), else after the handshake.
    ///
    /// # Errors
    /// See [`ConnectRefused`].
    pub fn connect_with(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &ConnectionOptions,
        text: &[u8],
    ) -> Result<Arc<TcpSocket<P>>, ConnectRefused> {
        let text = if text.is_empty() { FirstText::None } else { FirstText::Queued(text) };
        self.connect_by(local, remote, options, text).map(|(socket, _)| socket)
    }

    /// As [`Stack::connect_with`], but of `text` only what leaves with the SYN is taken; how many octets that is. Without a
    /// cookie it is none, and the SYN asks for one, though there be no text (Linux's `MSG_FASTOPEN`). `more`: the user sends more
    /// as soon as the connection is open.
    ///
    /// # Errors
    /// See [`ConnectRefused`].
    pub fn connect_fast(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &ConnectionOptions,
        text: &[u8],
        more: bool,
    ) -> Result<(Arc<TcpSocket<P>>, usize), ConnectRefused> {
        self.connect_by(local, remote, options, FirstText::OnSyn(text, more))
    }

    /// Whether a SYN to `remote` may carry text now: the cookie of its peer is known, or none is needed.
    pub fn opens_fast(&self, remote: IpAddr) -> bool {
        let shared = &self.core.shared;
        shared.destinations.offer(remote, u16::MAX, shared.tcp().fast_open, shared.clock.now()).max_text > 0
    }

    fn connect_by(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &ConnectionOptions,
        text: FirstText<'_>,
    ) -> Result<(Arc<TcpSocket<P>>, usize), ConnectRefused> {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
        //# A TCP implementation MUST reject as an error a local OPEN call for an invalid remote IP address (e.g., a
        //# broadcast or multicast address) (MUST-46).
        if !self.core.shared.may_be_host(remote.ip()) {
            return Err(ConnectRefused::NotAHost);
        }
        let way = self.core.shared.route(remote.ip()).map(|(interface, _)| &self.core.shared.interfaces[interface]);
        let source = match local.map(|local| local.ip()) {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
            //# The optional "local IP address" parameter MUST be supported to allow the specification of the local IP
            //# address (MUST-43).
            Some(ip) if !ip.is_unspecified() => ip,
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
            //# If an application on a multihomed host does not specify the local IP address when actively opening a TCP
            //# connection, then the TCP implementation MUST ask the IP layer to select a local IP address before
            //# sending the (first) SYN (MUST-44).
            _ => way.and_then(|way| way.view.get().source_for(remote.ip())).ok_or(ConnectRefused::NoRoute)?,
        };
        if self.core.shared.is_local(remote.ip()) {
            return Err(ConnectRefused::OwnAddress);
        }
        if way.is_some_and(Interface::is_down) {
            return Err(ConnectRefused::NetworkDown);
        }
        let (socket, taken) = self.open_somewhere((local, source), remote, options, text)?;
        // The device may have vanished between the look and the entry in the table, and the round of those that go by it
        // have come in between.
        if way.is_some_and(Interface::is_down) {
            self.call(&socket.target(), Call::Abort(tcp::Abort));
            return Err(ConnectRefused::NetworkDown);
        }
        Ok((socket, taken))
    }

    /// Opens from the local port that is asked for, or from one that is free.
    fn open_somewhere(
        &self,
        (local, source): (Option<SocketAddr>, IpAddr),
        remote: SocketAddr,
        options: &ConnectionOptions,
        text: FirstText<'_>,
    ) -> Result<(Arc<TcpSocket<P>>, usize), ConnectRefused> {
        let now = self.core.shared.clock.now();
        if let Some(port) = local.map(|local| local.port()).filter(|port| *port != 0) {
            let flow = self.flow(SocketAddr::new(source, port), remote);
            return self.open(flow, options, text, now).map_err(|refused| match refused {
                OpenRefused::TupleInUse => ConnectRefused::AddressInUse,
                OpenRefused::NoBuffer => ConnectRefused::NoBuffer,
                OpenRefused::Fault => ConnectRefused::Fault,
            });
        }
        let candidates = self.core.ports.candidates(&self.core.shared.secrets, source, remote);
        for (passed, port) in candidates.enumerate() {
            let flow = self.flow(SocketAddr::new(source, port), remote);
            if !self.core.arch.accepts_port(flow.hash) {
                continue;
            }
            match self.open(flow, options, text, now) {
                Ok(opened) => {
                    self.core.ports.passed_over(passed as u32);
                    return Ok(opened);
                }
                Err(OpenRefused::TupleInUse) => {}
                Err(OpenRefused::NoBuffer) => return Err(ConnectRefused::NoBuffer),
                Err(OpenRefused::Fault) => return Err(ConnectRefused::Fault),
            }
        }
        Err(ConnectRefused::NoPort)
    }

    fn open(
        &self,
        flow: Flow,
        options: &ConnectionOptions,
        text: FirstText<'_>,
        now: Time,
    ) -> Result<(Arc<TcpSocket<P>>, usize), OpenRefused> {
        let socket = TcpSocket::new(flow);
        // Read before the routes are: what changes in between is then found at the first emission.
        let generation = self.core.shared.generation();
        let params = self.core.shared.open_params(&flow, options.clone(), now);
        let fast_open = self.start_with(&params, text, now)?;
        let taken = fast_open.as_ref().map_or(0, |start| start.text.iter().map(Chunk::len).sum());
        let request = Box::new(OpenRequest { params, generation, socket: socket.clone(), fast_open });
        match self.call(&socket.target(), Call::Open(request)) {
            Reply::Opened(opened) => opened.map(|_| (socket, taken)),
            _ => Err(OpenRefused::NoBuffer),
        }
    }

    fn start_with(
        &self,
        params: &tcp::OpenParams,
        text: FirstText<'_>,
        now: Time,
    ) -> Result<Option<Box<Start>>, OpenRefused> {
        let shared = &self.core.shared;
        let mss = params.options.max_segment.unwrap_or(u16::MAX).min(params.mss);
        let offer = || shared.destinations.offer(params.tuple.remote_addr, mss, shared.tcp().fast_open, now);
        let (text, offer, more) = match text {
            FirstText::None => return Ok(None),
            FirstText::Queued(text) => (text, offer(), false),
            FirstText::OnSyn(text, more) => {
                let offer = offer();
                let fits = text.len().min(offer.max_text.into()).min(self.first_text(&params.options));
                (&text[..fits], offer, more && fits < text.len())
            }
        };
        if text.is_empty() {
            return Ok(Some(Box::new(Start { offer, text: tcp::Chunks::new(), more })));
        }
        let buffer = PktBuf::from_slice(text).ok_or(OpenRefused::NoBuffer)?;
        Ok(Some(Box::new(Start { offer, text: tcp::Chunks::from_iter([Chunk::Pooled(buffer)]), more })))
    }

    /// Index of the driver whose queue the device gives the segments of `target` to; `None` if no route leads to its peer any
    /// more. Where several machines share a device by other rules than the hash of the flow, they decide.
    pub fn driver_of(&self, target: &Target) -> Option<usize> {
        let (interface, _) = self.core.shared.route(target.flow.tuple.remote_addr)?;
        let queues = self.core.shared.interfaces.get(interface)?.egress.ports.len();
        Some(target.flow.index(queues.max(1)))
    }

    /// Octets that [`Stack::connect_with`] takes at most under `options`.
    pub fn first_text(&self, options: &ConnectionOptions) -> usize {
        let buffer = options.send_buffer.unwrap_or(self.core.shared.tcp().send_buffer.initial);
        FIRST_TEXT.min(buffer.max(1) as usize)
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

/// Why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectRefused {
    /// No route, or no address of the right family on the interface it leads to.
    NoRoute,
    /// The remote address is a broadcast, group or unspecified one.
    NotAHost,
    /// The remote address is one of this stack's own.
    OwnAddress,
    /// The local address and port already have a connection to that remote.
    AddressInUse,
    /// Every local port has a connection to that remote.
    NoPort,
    /// No packet buffer is left.
    NoBuffer,
    /// The device that leads there has vanished.
    NetworkDown,
    /// The stack panicked over it; [`Stack::failures`] says why.
    Fault,
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
    (index, first_port, seed): (usize, usize, u64),
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
    let (queues, ports): (Receivers, Vec<TxPort<P>>) =
        pairs.into_iter().map(|pair| (pair.rx, TxPort::new(pair.tx, tx_lock))).unzip();
    let egress = Egress { capabilities, ports, first_port };
    let interface = Interface { view: Published::new(view), egress, down: P::AtomicBool::new(false) };
    Ok(Built { interface, queues, addresses: (addressing, autoconf) })
}
