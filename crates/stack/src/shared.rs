//! State that all cells and threads of one stack share, by owner.
//!
//! | owner | contents |
//! |---|---|
//! | `Control` | TCP's parameters, and the connections' use of their limits |
//! | `Links` | interfaces, ports, the receive threads that serve them, the clock |
//! | `Routes` | routes, and path MTUs |
//! | `Neighbours` | the tables of neighbours |
//! | `Egress` | the transmit path; it has links, routes and neighbours |
//! | `Internet` | input for IP itself: addresses, fragments |
//!
//! Nothing here belongs to a connection, and there is no logic here: code that needs one owner is given that one.
//! Tables that change (routes, neighbours, fragments) are behind locks of their own class, which a segment of a
//! connection with a valid route cache does not take. Any thread, unless one has claimed the tables
//! (`Shared::claim`): from then on it uses them without locks, and a use by another thread panics. Code above the
//! architectures therefore asks [`RunningArchitecture::use_tables`](crate::arch::RunningArchitecture::use_tables) first.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ip::RouteTable;
use ip::autoconf::Autoconf;
use observe::PerThreadCounters;
use sync::{LockKind, Platform, RefCounting};
use wire::rss::Toeplitz;

use crate::addresses::{Addresses, Addressing, InterfaceContext};
use crate::alarm::Alarms;
use crate::batch_checks::BatchChecks;
use crate::clock::{BatchClock, Clock};
use crate::containment::Failures;
use crate::control::Control;
use crate::deferred::DeferredEffects;
use crate::fast_open::SharedDestinations;
use crate::gate::Gate;
use crate::interface::{Ports, StackInterface};
use crate::internet::Internet;
use crate::links::{DriverLayout, Links};
use crate::pings::Pings;
use crate::routes::Routes;
use crate::secrets::Secrets;
use crate::tx::{Egress, EgressLimits};

/// Makes a large value in the heap. While it is made, its place on the thread's stack is in this frame alone, and not in
/// those of the functions that put large values together: a stack can be built by a thread whose own stack has 32 KiB
/// (`heddle/tests/small_stack.rs`).
#[inline(never)]
pub(crate) fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::new(make())
}

const UNSPECIFIED: wire::FourTuple = wire::FourTuple {
    local_addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    remote_addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    local_port: 0,
    remote_port: 0,
};

/// See the head of the file.
pub struct Shared<P: Platform> {
    /// Keys.
    pub secrets: Secrets,
    /// Kind of the locks that the architecture uses.
    pub(crate) lock_kind: LockKind,
    counting: Option<RefCounting>,
    control: Control<P>,
    egress: Egress<P>,
    /// In a box of its own: packets for IP itself are rare, and it is large.
    internet: Box<Internet<P>>,
    /// Echo requests of this stack.
    pub(crate) pings: Pings<P>,
    /// The Fast Open cache of servers.
    pub destinations: SharedDestinations<P>,
    /// Panics that were contained.
    pub failures: Failures<P>,
    /// Where users of the architecture wait while it is switched.
    gate: Arc<Gate<P>>,
    /// Counters of work that belongs to no cell.
    pub(crate) counters: PerThreadCounters<P>,
}

/// The kind of the locks that threads of every architecture share. Where the null lock does not exclude, it is for cells
/// of one thread.
pub(crate) fn between_threads<P: Platform>(kind: LockKind) -> LockKind {
    if kind == LockKind::Null && !P::null_lock_excludes() { LockKind::Blocking } else { kind }
}

/// The parameters of [`Shared::new`] besides the interfaces.
pub(crate) struct Settings<P: Platform> {
    /// Where `now` comes from.
    pub clock: Clock<P>,
    /// See [`Shared::secrets`].
    pub secrets: Secrets,
    /// See [`Shared::lock_kind`].
    pub lock_kind: LockKind,
    /// See [`crate::StackConfig::counting`].
    pub counting: Option<RefCounting>,
    /// TCP's parameters.
    pub tcp: tcp::Config,
    /// The hash by which devices and cells are chosen.
    pub rss: Toeplitz,
    /// Workers for limits that apply to each worker; at least 1.
    pub workers: usize,
    /// Which receive thread serves which queue of a device.
    pub drivers: DriverLayout,
    /// The sleep of the receive threads.
    pub alarms: Arc<Alarms<P>>,
    /// See [`crate::StackConfig::resets_per_second`].
    pub resets_per_second: u32,
    /// See [`crate::StackConfig::contain`].
    pub contain: bool,
}

impl<P: Platform> Shared<P> {
    /// A new shared part with empty tables. The last interface is the loopback interface. `addresses`: how each obtains
    /// its addresses.
    pub(crate) fn new(
        settings: Box<Settings<P>>,
        (interfaces, ports): (Vec<StackInterface<P>>, Ports<P>),
        routes: RouteTable,
        addresses: Vec<(Addressing, Box<Autoconf>)>,
    ) -> Arc<Self> {
        let Settings { clock, secrets, tcp, rss, workers, drivers, alarms, resets_per_second, contain, .. } = *settings;
        let (lock_kind, counting) = (settings.lock_kind, settings.counting);
        let limits = EgressLimits { workers, resets_per_second, seed: secrets.table_hash(&UNSPECIFIED) };
        let checks = Arc::new(BatchChecks::default());
        let control = boxed(|| Control::new(tcp));
        let internet = boxed(|| Internet::new(addresses, checks.clone()));
        let waiting = control.account().waiting().clone();
        let egress = boxed(|| {
            let links = Links::new(clock, (interfaces, ports), (drivers, alarms), checks.clone());
            Egress::new(links, routes, rss, limits, checks.clone(), waiting)
        });
        Self::assemble((secrets, lock_kind, counting, Failures::new(contain, checks)), control, egress, internet)
    }

    /// Puts the large owners together. In a frame of its own, below which nothing is built: see [`boxed`].
    #[inline(never)]
    #[expect(clippy::boxed_local, reason = "the values are built in place, and moved here alone")]
    fn assemble(
        (secrets, lock_kind, counting, failures): (Secrets, LockKind, Option<RefCounting>, Failures<P>),
        control: Box<Control<P>>,
        egress: Box<Egress<P>>,
        internet: Box<Internet<P>>,
    ) -> Arc<Self> {
        Arc::new(Shared {
            secrets,
            lock_kind,
            counting,
            control: *control,
            egress: *egress,
            internet,
            pings: Pings::default(),
            destinations: SharedDestinations::default(),
            failures,
            gate: Arc::default(),
            counters: PerThreadCounters::new(),
        })
    }

    /// The kind of the locks of cells and connections.
    pub fn lock_kind(&self) -> LockKind {
        self.lock_kind
    }

    /// See [`crate::StackConfig::counting`].
    pub(crate) fn counting(&self) -> Option<RefCounting> {
        self.counting
    }

    /// The kind of locks that threads share under every architecture.
    pub(crate) fn lock_kind_between_threads(&self) -> LockKind {
        between_threads::<P>(self.lock_kind)
    }

    /// Where users of the architecture wait while it is switched.
    #[inline(always)]
    pub(crate) fn gate(&self) -> &Arc<Gate<P>> {
        &self.gate
    }

    /// TCP's parameters, and the connections' use of their limits.
    #[inline(always)]
    pub fn control(&self) -> &Control<P> {
        &self.control
    }

    /// Interfaces, ports, and the receive threads that serve them.
    #[inline(always)]
    pub fn links(&self) -> &Links<P> {
        self.egress.links()
    }

    /// Routes, and path MTUs.
    #[inline(always)]
    pub fn routes(&self) -> &Routes<P> {
        self.egress.routes()
    }

    /// The transmit path.
    #[inline(always)]
    pub fn egress(&self) -> &Egress<P> {
        &self.egress
    }

    /// Input for IP itself.
    #[inline(always)]
    pub fn internet(&self) -> &Internet<P> {
        &self.internet
    }

    /// Addresses of interfaces, and their groups.
    pub fn addresses(&self) -> &Addresses<P> {
        self.internet.addresses()
    }

    /// The parts needed to process an event at an interface, for a thread that is not a driver.
    pub fn context<'a>(&'a self, interface: usize, deferred: &'a mut DeferredEffects<P>) -> InterfaceContext<'a, P> {
        InterfaceContext {
            egress: &self.egress,
            interface,
            now: self.clock().now(),
            counters: &self.counters,
            deferred,
        }
    }

    /// The calling thread is the only one that transmits and uses the tables of IP, and does so without locks from now
    /// on; every other thread sends it messages. It must exclude them by itself: a table is not waited for.
    pub(crate) fn claim(&self) {
        self.egress.claim();
        self.internet.claim();
        self.destinations.claim();
    }

    /// Ends the calling thread's claims, if it has any.
    pub(crate) fn release_claims(&self) {
        self.egress.release_claims();
        self.internet.release_claims();
        self.destinations.release_claim();
    }

    /// Where `now` comes from.
    #[inline(always)]
    pub fn clock(&self) -> BatchClock<'_, P> {
        self.links().clock()
    }
}
