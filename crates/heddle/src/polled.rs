//! A stack that its user polls.

use std::time::Duration;

use observe::{CounterSnapshot, Time};
use stack::Driver;
use sync::Real;

use crate::device::WaitOutcome;

/// Drives a stack that was built without threads: each polls one queue pair of every device. See
/// [`Builder::build_polled`](crate::Builder::build_polled). One thread at a time uses it, and it may move to another.
///
/// Two stacks on one thread, in virtual time: all work is done by polling, and every run is the same.
///
/// ```
/// use heddle::device::Time;
/// use heddle::{Connect, Interface, Polled, Readiness, Stack, TcpListener, VirtualClock, mem};
/// use std::error::Error;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// fn build(device: mem::MemDevice, cidr: &str, clock: &Arc<VirtualClock>) -> Result<(Stack, Vec<Polled>), Box<dyn Error>> {
///     let interface = Interface::new(device).address(cidr)?;
///     Ok(Stack::builder().interface(interface).architecture("up").clock(clock.clone()).seed(1).build_polled()?)
/// }
///
/// # fn main() -> Result<(), Box<dyn Error>> {
/// let clock = VirtualClock::new(Time::ZERO);
/// let (a, b) = mem::pair(mem::MemConfig::default());
/// let (server, mut of_server) = build(a, "10.0.0.1/24", &clock)?;
/// let (client, mut of_client) = build(b, "10.0.0.2/24", &clock)?;
/// // The thread that polls first owns a stack under `up`.
/// of_server[0].poll();
/// of_client[0].poll();
/// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// let stream = Connect::new().start(&client, "10.0.0.1:7")?;
/// while !stream.readiness().contains(Readiness::CONNECTED) {
///     if of_server[0].poll() + of_client[0].poll() == 0 {
///         clock.advance(Duration::from_millis(1));
///     }
/// }
/// assert!(clock.now() < Time::from_secs(1), "the handshake took no time of its own");
/// # drop(listener);
/// # Ok(())
/// # }
/// ```
pub struct Polled {
    driver: Driver<Real>,
}

impl Polled {
    pub(crate) fn new(driver: Driver<Real>) -> Polled {
        Polled { driver }
    }

    /// Does pending work: takes a batch from each device, expires timers, sends frames that waited for room. Returns
    /// how many frames were taken; 0: it may sleep.
    pub fn poll(&mut self) -> usize {
        self.driver.poll()
    }

    /// Sleeps until a frame arrives, a timer is due, a call needs this thread, or `limit` has passed (`None`: no
    /// limit).
    pub fn wait(&mut self, limit: Option<Duration>) -> WaitOutcome {
        self.driver.wait(limit)
    }

    /// When it must be polled even if no frame arrives and no call is made; [`Time::MAX`]: never. For a caller that
    /// sleeps in its own way, or moves a [`VirtualClock`](crate::VirtualClock).
    pub fn next_deadline(&self) -> Time {
        self.driver.next_deadline()
    }

    /// The calling thread stops polling for a while: other threads may use its cells meanwhile.
    pub fn rest(&mut self) {
        self.driver.rest();
    }

    /// Which queue pair of the devices it polls, counted from 0.
    pub fn index(&self) -> usize {
        self.driver.index()
    }

    /// Its counters: frames dropped before they reached a connection. [`Stack::stats`](crate::Stack::stats) has the
    /// rest.
    pub fn counters(&self) -> CounterSnapshot {
        self.driver.counters().snapshot()
    }

    /// Whether every device has vanished.
    pub fn gone(&self) -> bool {
        self.driver.gone()
    }

    /// The driver of the crate `heddle-stack`, not part of the API: the test world drives stacks of both crates.
    #[doc(hidden)]
    pub fn into_driver(self) -> Driver<Real> {
        self.driver
    }
}

impl std::fmt::Debug for Polled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Polled").field("index", &self.index()).finish_non_exhaustive()
    }
}
