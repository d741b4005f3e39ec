//! Building a stack, and the threads that drive it.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stack::{
    AddressEvent, Architecture, Clock, Driver, Failure, GroupDecision, GroupNumber, ParseRouteError, QueueClaims,
    Route, RouteName, SetKnobError, StackConfig, StackStats, StoppableClock, UnknownArchitecture, VirtualClock,
};
use sync::{LockKind, Ordering, Platform, Real};
use tcp::knobs::{self, KnobError};

use crate::error::{BuildError, RouteError, SetArchitectureError};
use crate::interface::Interface;
use crate::knob_files;
use crate::polled::Polled;

/// A stack and, unless it was built polled, the threads that drive it. Clones name the same stack; it ends when the
/// last clone and the last socket are gone.
///
/// ```
/// use heddle::{Interface, Stack, mem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (device, _peer) = mem::pair(mem::MemConfig::default());
/// let stack = Stack::builder().interface(Interface::new(device).address("10.0.0.1/24")?).build()?;
/// stack.set_knob("tcp_keepalive_time", "60")?;
/// assert_eq!(stack.knob("tcp_keepalive_time")?, "60");
/// stack.set_route(0, "10.8.0.0/16 via 10.0.0.3 mtu 1400")?;
/// stack.remove_route("10.8.0.0/16")?;
/// assert!(stack.failures().is_empty(), "no panic was contained");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stack {
    pub(crate) inner: Arc<StackThreads>,
}

pub(crate) struct StackThreads {
    pub(crate) stack: stack::Stack<Real>,
    stop: Arc<<Real as Platform>::AtomicBool>,
    threads: Vec<<Real as Platform>::JoinHandle>,
}

impl Drop for StackThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.stack.shared().links().wake_drivers();
        let here = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // A waker called by a driver may hold the last handle; a thread that joined itself would never end.
            if thread.thread().id() != here {
                // A driver that panicked has reported it already.
                let _ = Real::join(thread);
            }
        }
    }
}

/// The configuration of a stack. Start with [`Stack::builder`]. The order of the calls matters only for interfaces,
/// which are numbered in that order, and knobs, which are set in that order.
///
/// ```
/// use heddle::{Architecture, Interface, LockKind, Stack, config::Profile, mem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // The same program under every process architecture.
/// for architecture in Architecture::all() {
///     let (device, _peer) = mem::pair(mem::MemConfig { queues: 2, ..mem::MemConfig::default() });
///     let stack = Stack::builder()
///         .interface(Interface::new(device).address("10.0.0.1/24")?)
///         .architecture(architecture)
///         .lock(LockKind::Mcs)
///         .tcp(Profile::FreeBsd)
///         .knob("tcp_sack", "0")
///         .build()?;
///     assert_eq!(stack.architecture(), architecture);
/// }
/// // An invalid value is reported when the stack is built.
/// assert!(Stack::builder().architecture("none-such").build().is_err());
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` or `build_polled` is called"]
pub struct Builder {
    config: StackConfig<Real>,
    architecture: Result<Architecture, UnknownArchitecture>,
    /// Applied after `config.tcp`.
    knobs: Vec<Knobs>,
    interfaces: Vec<Interface>,
    device_gone: Option<DeviceGone>,
}

/// The source of knobs.
enum Knobs {
    One(String, String),
    Assignment(String),
    Directory(PathBuf),
}

impl Knobs {
    fn set(&self, config: &mut tcp::Config) -> Result<(), BuildError> {
        match self {
            Knobs::One(name, value) => knobs::set(config, name, value).map_err(BuildError::Knob),
            Knobs::Assignment(data) => knobs::assign(config, data).map_err(BuildError::Knob),
            Knobs::Directory(path) => knob_files::read(path, config).map(drop).map_err(BuildError::KnobFile),
        }
    }
}

/// Bytes of an ordinary frame: a packet of 1500 bytes and its link header.
const FRAME: usize = 1514;

/// Called when every device has vanished.
type DeviceGone = Arc<dyn Fn() + Send + Sync>;

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("architecture", &self.architecture())
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}

impl Stack {
    /// A builder: add interfaces. Without one the stack reaches only itself.
    pub fn builder() -> Builder {
        let arch = Architecture::default();
        let mut config = StackConfig::new(arch);
        config.cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Builder { config, architecture: Ok(arch), knobs: Vec::new(), interfaces: Vec::new(), device_gone: None }
    }

    /// The current architecture.
    pub fn architecture(&self) -> Architecture {
        self.inner.stack.architecture()
    }

    /// Switches the running stack to another architecture: an [`Architecture`], or its name. Returns the longest time
    /// that a call may have waited.
    ///
    /// Only this pause is visible: no byte is lost or repeated, no connection is reset, no call fails, and listeners,
    /// datagrams, timers, handlers and pollers continue. Waits for the receive threads; a stack that is polled
    /// ([`Builder::build_polled`]) is switched by the thread that polls, or while that thread polls. Any thread.
    ///
    /// ```
    /// use heddle::{Interface, Stack, TcpListener, TcpStream, mem};
    /// use std::io::{Read, Write};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = mem::pair(mem::MemConfig::default());
    /// # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
    /// let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).architecture("giant").build()?;
    /// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
    /// let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
    /// let (mut peer, _) = listener.accept()?;
    /// stream.write_all(b"sent before, ")?;
    /// let pause = server.set_architecture("connp-t")?;
    /// println!("calls waited for {pause:?} at most");
    /// stream.write_all(b"and after")?;
    /// let mut all = [0; 22];
    /// peer.read_exact(&mut all)?;
    /// assert_eq!(&all, b"sent before, and after");
    /// assert_eq!(server.architecture().family(), "connp-t");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The name is unknown; or see [`SwitchRefused`](crate::error::SwitchRefused): another thread is switching, the
    /// calling thread runs a handler or a notification of readiness, the thread that owns a polled stack does not poll,
    /// the null lock was chosen, or the stack was switched a thousand times. The stack is unchanged then.
    pub fn set_architecture<A>(&self, architecture: A) -> Result<Duration, SetArchitectureError>
    where
        A: TryInto<Architecture>,
        UnknownArchitecture: From<A::Error>,
    {
        let architecture = architecture
            .try_into()
            .map_err(|unknown| SetArchitectureError::Unknown(UnknownArchitecture::from(unknown)))?;
        Ok(self.inner.stack.set_architecture(architecture)?)
    }

    /// Its counters, and its live connections. Exact at rest. Any thread.
    ///
    /// ```
    /// use heddle::{Counter, DropReason, Interface, Stack, TcpListener, TcpStream, mem};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = mem::pair(mem::MemConfig::default());
    /// # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
    /// # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
    /// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
    /// let stream = TcpStream::connect(&client, "10.0.0.1:7")?;
    /// let stats = client.stats();
    /// assert_eq!((stats.connections, stats.counters.get(Counter::ConnectionsOpened)), (1, 1));
    /// assert_eq!(stats.counters.dropped(DropReason::NoRoute), 0);
    /// // All that was dropped, by reason, and what each reason means.
    /// for (reason, count) in stats.counters.drops().filter(|(_, count)| *count > 0) {
    ///     println!("{count} {}: {}", reason.name(), reason.describe());
    /// }
    /// # drop((listener, stream));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> StackStats {
        self.inner.stack.stats()
    }

    /// What the architecture has decided by itself since the stack has it, and why, oldest first; only the latest are kept. Only
    /// `adaptive` decides something. Any thread. See [`decisions`](crate::decisions).
    pub fn decisions(&self) -> Vec<GroupDecision> {
        self.inner.stack.decisions()
    }

    /// The claims of transmit queues that `adaptive` has made, one entry for each receive thread that has had one: since when it sends
    /// without a lock, and how many claims have ended, and by what. Any thread. See [`decisions`](crate::decisions).
    pub fn queue_claims(&self) -> Vec<QueueClaims> {
        self.inner.stack.queue_claims()
    }

    /// The changes of the number of groups that `adaptive` has made or tried to make, and why, oldest first; only the latest are kept. Any
    /// thread. See [`decisions`](crate::decisions).
    pub fn group_numbers(&self) -> Vec<GroupNumber> {
        self.inner.stack.group_numbers()
    }

    /// The latest panics that were contained, oldest first: the thread, the cause, and what was given up. A correct
    /// stack has none.
    pub fn failures(&self) -> Vec<Failure> {
        self.inner.stack.failures()
    }

    /// The addresses of its interfaces. Loopback addresses, which every stack has, are not included.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let interfaces = self.inner.stack.shared().links().attached();
        interfaces.iter().flat_map(|interface| interface.view.get().addresses().map(|(address, _)| address)).collect()
    }

    /// A parameter of the running stack by its Linux name, in the format of Linux.
    ///
    /// # Errors
    /// No knob has this name.
    pub fn knob(&self, name: &str) -> Result<String, KnobError> {
        Ok(knobs::find(name)?.value(self.inner.stack.shared().control().tcp()))
    }

    /// Sets a parameter of the running stack: for connections opened from now on and, unless a connection has its own
    /// value, for open ones.
    ///
    /// # Errors
    /// See [`SetKnobError`].
    pub fn set_knob(&self, name: &str, value: &str) -> Result<(), SetKnobError> {
        self.inner.stack.shared().control().set_knob(name, value)
    }

    /// Adds or changes a route through an interface, counted from 0 in the order of the builder: a [`Route`], or a
    /// string as in [`Interface::route`]. Open connections use the new next hop and the new MTU when they next send;
    /// other attributes of a route apply to connections opened from now on.
    ///
    /// # Errors
    /// The string is not a route, or there is no such interface.
    pub fn set_route<R>(&self, interface: usize, route: R) -> Result<(), RouteError>
    where
        R: TryInto<Route, Error: Into<ParseRouteError>>,
    {
        let route = route.try_into().map_err(Into::into)?;
        let interfaces = self.inner.stack.shared().links().attached().len();
        if interface >= interfaces {
            return Err(RouteError::NoInterface { interface, interfaces });
        }
        self.inner.stack.state_route(&route, interface);
        Ok(())
    }

    /// Removes a route: a [`RouteName`], or a string such as `10.8.0.0/16`, `default`, `::/0`, or `192.0.2.1 via
    /// 10.0.0.2` for that route and not one by another router. Connections without another route keep trying, and
    /// report a soft error ([`crate::TcpStream::soft_error`]).
    ///
    /// # Errors
    /// The string does not name a route, or there is none of this name.
    pub fn remove_route<N>(&self, name: N) -> Result<(), RouteError>
    where
        N: TryInto<RouteName, Error: Into<ParseRouteError>>,
    {
        let name = name.try_into().map_err(Into::into)?;
        self.inner.stack.remove_route(&name).map(drop).ok_or(RouteError::NotFound(name))
    }

    /// The address events since the last call: number of the interface, and the event; oldest first. Waits for at most
    /// `timeout` until there is one; zero does not wait.
    pub fn address_events(&self, timeout: Duration) -> Vec<(usize, AddressEvent)> {
        self.inner.stack.shared().addresses().wait_events(timeout)
    }

    pub(crate) fn raw(&self) -> &stack::Stack<Real> {
        &self.inner.stack
    }

    /// The layer below, of the crate `heddle-stack`: not part of the API and without any stability guarantee. The tests
    /// of this crate use it to inspect internal state, such as secrets, groups and memory pressure.
    #[doc(hidden)]
    pub fn inner_stack(&self) -> &stack::Stack<Real> {
        &self.inner.stack
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("architecture", &self.architecture)
            .field("interfaces", &self.interfaces)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Adds an interface.
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interfaces.push(interface);
        self
    }

    /// Chooses the process architecture: a [`Architecture`], or its name, as in `connp-l:128`. A wrong name is reported
    /// when the stack is built.
    pub fn architecture<A>(mut self, architecture: A) -> Self
    where
        A: TryInto<Architecture>,
        UnknownArchitecture: From<A::Error>,
    {
        self.architecture = architecture.try_into().map_err(UnknownArchitecture::from);
        self
    }

    /// Chooses the kind of lock; the default is a blocking one.
    pub fn lock(mut self, kind: LockKind) -> Self {
        self.config.lock_kind = kind;
        self
    }

    /// CPUs to spread cells and protocol threads over; the default is all of the machine's.
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.config.cpus = cpus.max(1);
        self
    }

    /// Whether an architecture with threads of its own starts them (the default), or leaves their work to the thread
    /// that polls: the same code on one thread, in a reproducible order.
    pub fn own_threads(mut self, own_threads: bool) -> Self {
        self.config.own_threads = own_threads;
        self
    }

    /// TCP's parameters: a [`Config`](tcp::Config), or a [`Profile`](tcp::Profile) that determines the stack's
    /// behaviour on the wire. The default is Linux's profile.
    pub fn tcp(mut self, config: impl Into<tcp::Config>) -> Self {
        self.config.tcp = config.into();
        self
    }

    /// Sets a parameter of TCP after [`Builder::tcp`], by its Linux name, as in `.knob("tcp_sack", "0")`; see
    /// [`knobs::KNOBS`]. A wrong name or value is reported when the stack is built.
    pub fn knob(mut self, name: &str, value: &str) -> Self {
        self.knobs.push(Knobs::One(name.to_owned(), value.to_owned()));
        self
    }

    /// As [`Builder::knob`], from one assignment: `tcp_sack=0`.
    pub fn assign(mut self, assignment: &str) -> Self {
        self.knobs.push(Knobs::Assignment(assignment.to_owned()));
        self
    }

    /// Sets every knob that has a file of its name in `directory`, such as `/proc/sys/net/ipv4`, when the stack is
    /// built. Other files are ignored. Errors are reported then.
    pub fn knobs_from(mut self, directory: &Path) -> Self {
        self.knobs.push(Knobs::Directory(directory.to_owned()));
        self
    }

    /// Resets that each CPU may send in a second to segments of no connection, at least 16; 1,000 if this is not
    /// called. A quarter of them may go to one peer.
    pub fn resets_per_second(mut self, resets: u32) -> Self {
        self.config.resets_per_second = resets;
        self
    }

    /// Whether a connection opened from any port takes one whose flow is received by a queue that the calling thread
    /// polls (the default), so that this thread does all work of the connection; or the next free one, so that the
    /// connections of each thread are spread over all queues. It makes a difference to threads that poll some queues of
    /// [`Builder::build_polled`] and not all.
    pub fn homing(mut self, homing: bool) -> Self {
        self.config.homing = homing;
        self
    }

    /// Whether segments of one connection that arrive directly after one another are processed together (the default), if
    /// the architecture can do that: one entry into it, one lock and one event for all of them; or one of each for every
    /// segment, as in the systems of the papers. The segments have the same effects.
    pub fn runs(mut self, runs: bool) -> Self {
        self.config.runs = runs;
        self
    }

    /// Makes the stack deterministic: two stacks with the same seed that receive the same frames send the same frames.
    /// For tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Some(seed);
        self
    }

    /// A clock moved by hand. For tests: with [`Builder::build_polled`].
    pub fn clock(mut self, clock: Arc<VirtualClock<Real>>) -> Self {
        self.config.clock = Clock::Virtual(clock);
        self
    }

    /// A clock that can be stopped, for measurements in phases.
    pub fn stoppable_clock(mut self, clock: Arc<StoppableClock<Real>>) -> Self {
        self.config.clock = Clock::Stoppable(clock);
        self
    }

    /// Calls `on_gone` when the devices have vanished (for example because the interface was deleted) or have been
    /// given up after too many panics (see [`Stack::failures`]), once per receive thread and on that thread. It must
    /// not block. A polled stack has no such thread and refuses this: use [`Polled::gone`].
    pub fn on_device_gone(mut self, on_gone: impl Fn() + Send + Sync + 'static) -> Self {
        self.device_gone = Some(Arc::new(on_gone));
        self
    }

    /// Builds the stack and starts one thread for each queue pair of its devices. A panic in the stack then ends one
    /// connection, or loses a few frames, but does not end the process; see [`Stack::failures`].
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(mut self) -> Result<Stack, BuildError> {
        let gone = self.device_gone.clone();
        self.config.contain = true;
        let (stack, drivers) = self.parts()?;
        // A stack without buffers could neither receive nor send, and would not report it.
        if pktbuf::PktBuf::alloc(FRAME).is_none() {
            return Err(BuildError::NoBuffer);
        }
        let stop = Arc::new(<Real as Platform>::AtomicBool::new(false));
        // If a thread cannot be started, dropping this ends those that already run.
        let mut running = StackThreads { stack, stop, threads: Vec::new() };
        for driver in drivers {
            let thread = spawn_driver(driver, running.stop.clone(), gone.clone()).map_err(BuildError::Thread)?;
            running.threads.push(thread);
        }
        Ok(Stack { inner: Arc::new(running) })
    }

    /// Builds the stack and starts no thread for its devices: the caller polls. Under `up` the first thread to poll
    /// owns the stack.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build_polled(self) -> Result<(Stack, Vec<Polled>), BuildError> {
        if self.device_gone.is_some() {
            return Err(BuildError::DeviceGonePolled);
        }
        let (stack, drivers) = self.parts()?;
        let stop = Arc::new(<Real as Platform>::AtomicBool::new(false));
        let polled = drivers.into_iter().map(Polled::new).collect();
        Ok((Stack { inner: Arc::new(StackThreads { stack, stop, threads: Vec::new() }) }, polled))
    }

    fn parts(self) -> Result<(stack::Stack<Real>, Vec<Driver<Real>>), BuildError> {
        let mut config = self.config;
        config.arch = self.architecture.map_err(BuildError::Architecture)?;
        self.knobs.iter().try_for_each(|knobs| knobs.set(&mut config.tcp))?;
        let (interfaces, routes): (Vec<_>, Vec<_>) =
            self.interfaces.into_iter().map(|interface| (interface.config, interface.routes)).unzip();
        let built = stack::Stack::build(config, interfaces).map_err(BuildError::below)?;
        for (interface, routes) in routes.iter().enumerate() {
            routes.iter().for_each(|route| built.0.state_route(route, interface));
        }
        Ok(built)
    }
}

/// A receive thread.
fn spawn_driver(
    mut driver: Driver<Real>,
    stop: Arc<<Real as Platform>::AtomicBool>,
    on_gone: Option<DeviceGone>,
) -> io::Result<<Real as Platform>::JoinHandle> {
    let index = driver.index();
    Real::try_spawn(&format!("heddle-rx{index}"), None, move || {
        driver.serve(&stop, || on_gone.iter().for_each(|on_gone| on_gone()))
    })
}
