//! Building a stack, and the threads that drive it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dev::Device;
use stack::{
    AddressEvent, Addressing, Census, Clock, Failure, InterfaceConfig, NamedRoute, Plan, SetKnobError, StackConfig,
    StatedRoute, StoppableClock, VirtualClock,
};
use sync::{LockKind, Ordering, Platform, Real};
use tcp::Profile;
use tcp::knobs::{self, KnobError};

use crate::Cidr;
use crate::error::BuildError;

/// What drives a stack: a driver polls one queue pair of each device. See [`Builder::build_polled`].
pub type Polled = stack::Driver<Real>;

/// A stack and, unless it was built polled, the threads that drive it. Clones name the same stack; it ends when the
/// last clone and the last socket are gone.
#[derive(Clone)]
pub struct Stack {
    pub(crate) inner: Arc<Running>,
}

pub(crate) struct Running {
    pub(crate) stack: stack::Stack<Real>,
    stop: Arc<<Real as Platform>::AtomicBool>,
    threads: Vec<<Real as Platform>::JoinHandle>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.stack.shared().wake_drivers();
        let here = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // A waker that a driver runs may hold the last handle; a thread that waited for itself would never end.
            if thread.thread().id() != here {
                // A driver that panicked has said so already.
                let _ = Real::join(thread);
            }
        }
    }
}

/// How a stack is to be. Start with [`Stack::builder`].
pub struct Builder {
    config: StackConfig<Real>,
    interfaces: Vec<InterfaceConfig>,
    /// By the number of the device that they go by.
    routes: Vec<(usize, StatedRoute)>,
    device_gone: Option<DeviceGone>,
    error: Option<BuildError>,
}

/// Bytes of an ordinary frame: a packet of 1500 bytes and its link header.
const FRAME: usize = 1514;

/// Whom to tell when every device has vanished.
type DeviceGone = Arc<dyn Fn() + Send + Sync>;

impl Stack {
    /// A stack to be: add at least one device.
    pub fn builder() -> Builder {
        let mut config = StackConfig::new(Plan::default());
        config.cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Builder { config, interfaces: Vec::new(), routes: Vec::new(), device_gone: None, error: None }
    }

    /// The architecture that it runs under.
    pub fn architecture(&self) -> Plan {
        self.inner.stack.plan()
    }

    /// Its counters, and what is alive in it. Exact at rest.
    pub fn census(&self) -> Census {
        self.inner.stack.census()
    }

    /// The latest panics that were contained, oldest first: which thread, why, and what was given up for it. A sane stack
    /// has none.
    pub fn failures(&self) -> Vec<Failure> {
        self.inner.stack.failures()
    }

    /// The addresses of its interfaces.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let interfaces = &self.inner.stack.shared().interfaces;
        interfaces.iter().flat_map(|interface| interface.view.get().addresses().map(|(address, _)| address)).collect()
    }

    /// A parameter of the running stack by the name that Linux gives it, as it prints there.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn knob(&self, name: &str) -> Result<String, KnobError> {
        Ok(knobs::find(name)?.value(self.inner.stack.shared().tcp()))
    }

    /// Sets a parameter of the running stack: for connections that are opened from now on and, where a connection does not
    /// keep its own, for those that live.
    ///
    /// # Errors
    /// See [`SetKnobError`].
    pub fn set_knob(&self, name: &str, value: &str) -> Result<(), SetKnobError> {
        self.inner.stack.shared().set_knob(name, value)
    }

    /// Adds a route by way of a device, counted from 0 in the order in which they were added, or changes it; see
    /// [`Builder::route`]. Connections that are open take the new next hop and the new MTU when they next send; what else a
    /// route says counts for those that are opened from now on.
    ///
    /// # Errors
    /// [`BuildError::Route`]: the text is no route, or there is no such device.
    pub fn set_route(&self, device: usize, route: &str) -> Result<(), BuildError> {
        let route = route.parse::<StatedRoute>().map_err(BuildError::Route)?;
        let shared = self.inner.stack.shared();
        if device >= shared.interfaces.len() {
            let last = shared.interfaces.len() - 1;
            return Err(BuildError::Route(format!("there is no device {device}: give a number from 0 to {last}")));
        }
        shared.state_route(&route, device);
        Ok(())
    }

    /// Takes a route away: `10.8.0.0/16`, `default`, `::/0`, or `192.0.2.1 via 10.0.0.2` for that route and not one by another
    /// router. Connections that have no other route go on trying, and tell of it as an error that may pass
    /// ([`crate::TcpStream::soft_error`]).
    ///
    /// # Errors
    /// [`BuildError::Route`]: the text names no route, or there is none of this name.
    pub fn remove_route(&self, route: &str) -> Result<(), BuildError> {
        let named = route.parse::<NamedRoute>().map_err(BuildError::Route)?;
        match self.inner.stack.shared().remove_route(&named) {
            Some(_) => Ok(()),
            None => Err(BuildError::Route(format!("there is no route {named} that could be taken away"))),
        }
    }

    /// What has happened to addresses since the last call: number of the interface, and the event; oldest first. Waits
    /// for at most `timeout` until there is something to tell; zero does not wait.
    pub fn address_events(&self, timeout: Duration) -> Vec<(usize, AddressEvent)> {
        self.inner.stack.shared().addresses.wait_events(timeout)
    }

    /// The layer below, for measurement and tests.
    pub fn raw(&self) -> &stack::Stack<Real> {
        &self.inner.stack
    }

    /// The RSS hash of a connection as this stack sees it: which queue and which cell serve it.
    pub fn flow_hash(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.inner.stack.flow(local, remote).hash
    }
}

impl Builder {
    /// Adds an interface: a device with its addresses, as in `["10.0.0.1/24", "fd00::1/64"]`. A wrong address is
    /// reported when the stack is built.
    pub fn device<T: AsRef<str>>(mut self, device: impl Device + 'static, cidrs: impl IntoIterator<Item = T>) -> Self {
        let mut addresses = Vec::new();
        for cidr in cidrs {
            match cidr.as_ref().parse::<Cidr>() {
                Ok(Cidr { address, prefix_len }) => addresses.push((address, prefix_len)),
                Err(message) => self.error = self.error.or(Some(BuildError::Cidr(message))),
            }
        }
        self.interfaces.push(InterfaceConfig {
            device: Box::new(device),
            addresses,
            gateways: Vec::new(),
            addressing: Addressing::default(),
        });
        self
    }

    /// Makes `gateway` a default router on the link of the device added last.
    pub fn gateway(mut self, gateway: IpAddr) -> Self {
        if let Some(interface) = self.interfaces.last_mut() {
            interface.gateways.push(gateway);
        }
        self
    }

    /// Adds a route by way of the device added last, in the words of `ip route`: `default via 10.0.0.1 mtu 1400`, or
    /// `10.8.0.0/16 via 10.0.0.2 mtu lock 1280 advmss 1200 initcwnd 20 initrwnd 30` (see [`crate::RouteAttributes`]). A wrong
    /// one is reported when the stack is built.
    pub fn route(mut self, route: &str) -> Self {
        match (route.parse(), self.interfaces.len().checked_sub(1)) {
            (Ok(route), Some(device)) => self.routes.push((device, route)),
            (Ok(_), None) => {
                let message = format!("the route {route:?} goes by no device: add the device before it");
                self.error = self.error.or(Some(BuildError::Route(message)));
            }
            (Err(message), _) => self.error = self.error.or(Some(BuildError::Route(message))),
        }
        self
    }

    /// How the device added last comes to its addresses: tested before they are used, found by advertisements of routers,
    /// or (the default) as given.
    pub fn addressing(mut self, addressing: Addressing) -> Self {
        if let Some(interface) = self.interfaces.last_mut() {
            interface.addressing = addressing;
        }
        self
    }

    /// Chooses the process architecture by name, as in `connp-l:128`; a wrong name is reported when the stack is built.
    pub fn architecture(mut self, name: &str) -> Self {
        match name.parse() {
            Ok(plan) => self.config.plan = plan,
            Err(unknown) => self.error = self.error.or(Some(BuildError::Architecture(unknown))),
        }
        self
    }

    /// Chooses the process architecture.
    pub fn plan(mut self, plan: Plan) -> Self {
        self.config.plan = plan;
        self
    }

    /// Chooses the kind of lock; the default is a blocking one.
    pub fn lock(mut self, kind: LockKind) -> Self {
        self.config.lock_kind = kind;
        self
    }

    /// CPUs to spread cells and protocol threads over; the default is what the machine has.
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.config.cpus = cpus.max(1);
        self
    }

    /// Whether an architecture with threads of its own starts them (the default), or leaves their work to whoever
    /// polls: the same code on one thread, in an order that can be repeated.
    pub fn own_threads(mut self, own_threads: bool) -> Self {
        self.config.own_threads = own_threads;
        self
    }

    /// TCP's parameters; the default is a profile like Linux's.
    pub fn tcp(mut self, config: tcp::Config) -> Self {
        self.config.tcp = config;
        self
    }

    /// TCP's parameters all at once: what the stack looks like from the wire. Undoes every [`Builder::knob`] before it.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.config.tcp = profile.config();
        self
    }

    /// Sets a parameter by the name that Linux gives it, as in `.knob("tcp_sack", "0")`; see [`knobs::KNOBS`]. A wrong name
    /// or value is reported when the stack is built.
    pub fn knob(mut self, name: &str, value: &str) -> Self {
        if let Err(wrong) = knobs::set(&mut self.config.tcp, name, value) {
            self.error = self.error.or(Some(BuildError::Knob(wrong)));
        }
        self
    }

    /// As [`Builder::knob`], from one text: `tcp_sack=0`.
    pub fn assign(mut self, assignment: &str) -> Self {
        if let Err(wrong) = knobs::assign(&mut self.config.tcp, assignment) {
            self.error = self.error.or(Some(BuildError::Knob(wrong)));
        }
        self
    }

    /// Sets every knob that has a file of its name in `directory`, as `/proc/sys/net/ipv4` is one. Files of other names
    /// are passed over. What is wrong is reported when the stack is built.
    pub fn knobs_from(mut self, directory: &Path) -> Self {
        if let Err(wrong) = crate::knob_files::read(directory, &mut self.config.tcp) {
            self.error = self.error.or(Some(BuildError::KnobFile(wrong)));
        }
        self
    }

    /// Resets that each CPU may send in a second to segments of no connection, at least 16; 1,000 if this is not called. A
    /// quarter of them may go to one peer.
    pub fn resets_per_second(mut self, resets: u32) -> Self {
        self.config.resets_per_second = resets;
        self
    }

    /// Draws nothing at random: two stacks of the same seed that see the same frames send the same frames. For tests.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Some(seed);
        self
    }

    /// A clock moved by hand. For tests: with [`Builder::build_polled`].
    pub fn clock(mut self, clock: Arc<VirtualClock<Real>>) -> Self {
        self.config.clock = Clock::Virtual(clock);
        self
    }

    /// A clock with a stop, for measurements in slices.
    pub fn stoppable_clock(mut self, clock: Arc<StoppableClock<Real>>) -> Self {
        self.config.clock = Clock::Stoppable(clock);
        self
    }

    /// Calls `told` when the devices have vanished (the interface was deleted, say) or have been given up after too many
    /// panics ([`Stack::failures`] tells), once per receive thread and on that thread. It must not block. Not called by a stack that is built polled: ask [`Polled::gone`].
    pub fn on_device_gone(mut self, told: impl Fn() + Send + Sync + 'static) -> Self {
        self.device_gone = Some(Arc::new(told));
        self
    }

    /// Builds the stack and starts one thread for each queue pair of its devices. A panic in the stack then ends one
    /// connection, or costs a few frames, and not the process; see [`Stack::failures`].
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(mut self) -> Result<Stack, BuildError> {
        let gone = self.device_gone.clone();
        self.config.contain = true;
        let (stack, drivers) = self.parts()?;
        // A stack without buffers would hear nobody, and nobody would hear of it.
        if pktbuf::PktBuf::alloc(FRAME).is_none() {
            return Err(BuildError::NoBuffer);
        }
        let stop = Arc::new(<Real as Platform>::AtomicBool::new(false));
        // Where a thread is refused, those that run already end with this.
        let mut running = Running { stack, stop, threads: Vec::new() };
        for driver in drivers {
            let thread = spawn_driver(driver, running.stop.clone(), gone.clone()).map_err(BuildError::Thread)?;
            running.threads.push(thread);
        }
        Ok(Stack { inner: Arc::new(running) })
    }

    /// Builds the stack and starts no thread for its devices: the caller polls. Under `up` the thread that polls first
    /// owns the stack.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build_polled(self) -> Result<(Stack, Vec<Polled>), BuildError> {
        let (stack, drivers) = self.parts()?;
        let stop = Arc::new(<Real as Platform>::AtomicBool::new(false));
        Ok((Stack { inner: Arc::new(Running { stack, stop, threads: Vec::new() }) }, drivers))
    }

    fn parts(self) -> Result<(stack::Stack<Real>, Vec<Polled>), BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let built = stack::Stack::build(self.config, self.interfaces).map_err(BuildError::Stack)?;
        for (device, route) in &self.routes {
            built.0.shared().state_route(route, *device);
        }
        Ok(built)
    }
}

/// A receive thread.
fn spawn_driver(
    mut driver: Polled,
    stop: Arc<<Real as Platform>::AtomicBool>,
    told: Option<DeviceGone>,
) -> io::Result<<Real as Platform>::JoinHandle> {
    let index = driver.index();
    Real::try_spawn(&format!("heddle-rx{index}"), None, move || {
        driver.serve(&stop, || told.iter().for_each(|told| told()))
    })
}
