//! One thread, many sockets.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use stack::socket::{PollEvent, PollSet};
use sync::Real;

use crate::listener::TcpListener;
use crate::stream::TcpStream;
use crate::udp::UdpSocket;

/// One report of a [`Poller`]: the token of a socket and what is ready. Edge-triggered: use the socket until it would
/// block.
/// See [`Poller`] for an example.
pub type Event = PollEvent;

/// Watches sockets for one thread. Its descriptor polls readable while there are events, so that it can be part of
/// another event loop: call [`Poller::arm`] before sleeping on it.
///
/// ```
/// use heddle::{Interface, Poller, Readiness, Source, Stack, TcpListener, TcpStream, mem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = mem::pair(mem::MemConfig::default());
/// # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
/// # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
/// const LISTENER: usize = 0;
/// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// listener.set_nonblocking(true)?;
/// let poller = Poller::new()?;
/// listener.register(&poller, LISTENER);
/// let stream = TcpStream::connect(&client, "10.0.0.1:7")?;
/// let mut events = Vec::new();
/// poller.wait(&mut events, 64, None);
/// for event in &events {
///     if event.token == LISTENER && event.ready.contains(Readiness::ACCEPTABLE) {
///         let (_peer, from) = listener.accept()?;
///         assert_eq!(from, stream.local_addr()?);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Poller {
    handle: Arc<Handle>,
}

/// The state shared by the clones of one poller.
struct Handle {
    set: Arc<PollSet<Real>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Registered sockets keep the set alive; its queue must not keep them alive.
        self.set.close();
    }
}

/// A socket that can be watched. See [`Poller`] for an example.
pub trait Source {
    /// Makes `poller` report this socket under `token`; replaces an earlier registration. Present readiness is reported
    /// at once.
    fn register(&self, poller: &Poller, token: usize);

    /// Ends the registration of this socket.
    fn deregister(&self);
}

impl Poller {
    /// A poller that watches nothing yet.
    ///
    /// # Errors
    /// No file descriptor is left: raise the limit (`ulimit -n`) or close some.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller { handle: Arc::new(Handle { set: PollSet::new(true)? }) })
    }

    /// Takes events into `events` (cleared first), at most `max`, waiting up to `timeout` for the first (`None`: for
    /// ever).
    pub fn wait(&self, events: &mut Vec<Event>, max: usize, timeout: Option<Duration>) -> usize {
        self.handle.set.wait(events, max, timeout)
    }

    /// As [`Poller::wait`], without waiting.
    pub fn try_wait(&self, events: &mut Vec<Event>, max: usize) -> usize {
        self.handle.set.try_wait(events, max)
    }

    /// Announces that the caller is about to sleep on the descriptor. False: there are events already, do not sleep.
    pub fn arm(&self) -> bool {
        self.handle.set.arm()
    }

    /// Ends a [`Poller::wait`] of another thread without an event.
    pub fn wake(&self) {
        self.handle.set.wake();
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}

impl AsRawFd for Poller {
    /// The descriptor to sleep on; see [`Poller::arm`].
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.set.doorbell().expect("every poller is made with a descriptor").as_fd()
    }
}

impl Source for TcpStream {
    fn register(&self, poller: &Poller, token: usize) {
        self.socket().ready.register_handle(self.socket(), &poller.handle.set, token, self.place());
    }

    fn deregister(&self) {
        self.socket().ready.deregister();
    }
}

impl Source for TcpListener {
    fn register(&self, poller: &Poller, token: usize) {
        self.shared().ready.register(self.shared(), &poller.handle.set, token);
    }

    fn deregister(&self) {
        self.shared().ready.deregister();
    }
}

impl Source for UdpSocket {
    fn register(&self, poller: &Poller, token: usize) {
        self.shared().ready.register(self.shared(), &poller.handle.set, token);
    }

    fn deregister(&self) {
        self.shared().ready.deregister();
    }
}
