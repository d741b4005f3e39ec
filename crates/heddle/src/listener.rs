//! The user's handle of a listening socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stack::socket::{ListenerShared, Readiness};
use sync::{Atomic, Ordering, Platform, Real};
use tcp::config::ConnectionOptions;

use crate::address::ToAddr;
use crate::builder::Stack;
use crate::error::{AcceptError, BindError, may_wait};
use crate::stream::{TTL, TcpStream, hop_limit};

/// The default number of connections that may wait to be accepted; see [`TcpListener::bind_with`] (Linux's SOMAXCONN).
pub(crate) const BACKLOG: usize = 4096;

/// Accepts TCP connections, like [`std::net::TcpListener`]. Any number of threads may use it at once. Dropping the last
/// clone stops listening; connections that were not accepted are reset.
///
/// ```
/// use heddle::{Interface, Stack, TcpListener, TcpStream, mem};
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = mem::pair(mem::MemConfig::default());
/// # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
/// # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
/// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// let echo = std::thread::spawn(move || {
///     let (mut stream, _from) = listener.accept()?;
///     std::io::copy(&mut stream.try_clone()?, &mut stream)
/// });
/// let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
/// stream.write_all(b"there and back")?;
/// stream.shutdown(Shutdown::Write)?;
/// let mut back = String::new();
/// stream.read_to_string(&mut back)?;
/// assert_eq!(back, "there and back");
/// assert_eq!(echo.join().unwrap()?, 14);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TcpListener {
    inner: Arc<ListenerInner>,
}

struct ListenerInner {
    stack: Stack,
    listener: Arc<ListenerShared<Real>>,
    nonblocking: <Real as Platform>::AtomicBool,
}

impl Drop for ListenerInner {
    fn drop(&mut self) {
        self.listener.ready.deregister();
        self.stack.raw().unlisten(&self.listener);
    }
}

impl TcpListener {
    /// Listens on `address`; port 0 takes any free port, `0.0.0.0` and `[::]` take every address (`[::]` of both
    /// families).
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(stack: &Stack, address: impl ToAddr) -> Result<TcpListener, BindError> {
        Self::bind_with(stack, address, BACKLOG, ConnectionOptions::default())
    }

    /// As [`TcpListener::bind`], with a bound for the connections that wait to be accepted, and options that accepted
    /// connections inherit.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind_with(
        stack: &Stack,
        address: impl ToAddr,
        backlog: usize,
        options: ConnectionOptions,
    ) -> Result<TcpListener, BindError> {
        let address = address.to_addr()?;
        let listener =
            stack.raw().listen(address, backlog, options).map_err(|refused| BindError::new(address, refused))?;
        Ok(TcpListener::over(stack, listener))
    }

    pub(crate) fn over(stack: &Stack, listener: Arc<ListenerShared<Real>>) -> TcpListener {
        let inner = ListenerInner { stack: stack.clone(), listener, nonblocking: Atomic::new(false) };
        TcpListener { inner: Arc::new(inner) }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// None; as in [`std::net::TcpListener`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.inner.listener.local())
    }

    /// Another handle of the same listener, as from [`Clone`].
    ///
    /// # Errors
    /// None; as in [`std::net::TcpListener`].
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        Ok(self.clone())
    }

    /// Answers SYNs, and opens connections, with this IPv4 time to live or IPv6 hop limit from now on, 1 to 255.
    /// Connections that are open keep theirs.
    ///
    /// # Errors
    /// The value is out of range.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.listener.set_hop_limit(Some(hop_limit(ttl)?));
        Ok(())
    }

    /// The value of [`TcpListener::set_ttl`], or the default, 64.
    ///
    /// # Errors
    /// None; as in [`std::net::TcpListener`].
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.inner.listener.hop_limit().unwrap_or(TTL).into())
    }

    /// Errors of a listener: there are none.
    ///
    /// # Errors
    /// None; as in [`std::net::TcpListener`].
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }

    /// Whether [`TcpListener::accept`] returns [`io::ErrorKind::WouldBlock`] when no connection waits, instead of
    /// waiting.
    ///
    /// # Errors
    /// None; as in [`std::net::TcpListener`].
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.block(!nonblocking);
        Ok(())
    }

    /// Whether [`TcpListener::accept`] waits.
    pub(crate) fn block(&self, blocking: bool) {
        self.inner.nonblocking.store(!blocking, Ordering::Relaxed);
    }

    /// Opens connections with the data of their SYNs (RFC 7413), at most `limit` at a time with incomplete handshakes;
    /// 0: none (`TCP_FASTOPEN`). The knob `tcp_fastopen` must have bit 2 set, too. An application that sets it must
    /// tolerate that a request arrives twice.
    pub fn set_fast_open(&self, limit: usize) {
        self.inner.listener.set_fast_open(limit);
    }

    /// Sets how many connections may wait to be accepted, as a second `listen(2)` does; those that wait stay.
    pub fn set_backlog(&self, backlog: usize) {
        self.inner.listener.set_backlog(backlog);
    }

    /// Accepts connections when their first data has arrived, or when the peer has sent none for about `time`; zero:
    /// when they are established (`TCP_DEFER_ACCEPT`). `time` is rounded up to time-outs of the SYN-ACK: 1 s, 3 s, 7 s
    /// and so on. A handshake that a SYN cookie completes is not deferred.
    pub fn set_defer_accept(&self, time: Duration) {
        let time_outs = tcp::config::time_outs_in(time, self.inner.stack.raw().shared().control().tcp());
        self.inner.listener.set_defer_accept(time_outs);
    }

    /// Connections opened before their handshakes are complete, including those reset recently (RFC 7413 section 5.1).
    pub fn early(&self) -> usize {
        self.inner.listener.early()
    }

    /// Takes the connection that has waited longest, or waits for one. Where several threads receive, each has a queue of
    /// the connections that it has received, and takes from its own first; the order is then kept only within a queue. A thread
    /// that drives the stack itself leaves what others have received to them, as long as these accept, too, and keep up.
    ///
    /// # Errors
    /// [`AcceptError::WouldBlock`]: none waits for this thread and the listener does not block.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            if let Some(accepted) = self.try_accept() {
                return Ok(accepted);
            }
            may_wait()?;
            if self.inner.nonblocking.load(Ordering::Relaxed) {
                return Err(AcceptError::WouldBlock(self.inner.listener.local()).into());
            }
            self.inner.listener.ready.wait(Readiness::ACCEPTABLE, None);
        }
    }

    /// As [`TcpListener::accept`], for at most `timeout`.
    ///
    /// # Errors
    /// [`AcceptError::WouldBlock`]: none arrived in time, or other threads took them.
    pub fn accept_timeout(&self, timeout: Duration) -> io::Result<(TcpStream, SocketAddr)> {
        let start = Real::now();
        loop {
            if let Some(accepted) = self.try_accept() {
                return Ok(accepted);
            }
            may_wait()?;
            let spent = Duration::from_nanos(Real::now().saturating_sub(start));
            let left = timeout.saturating_sub(spent);
            if left.is_zero() {
                return Err(AcceptError::WouldBlock(self.inner.listener.local()).into());
            }
            // Another thread may have been faster.
            self.inner.listener.ready.wait(Readiness::ACCEPTABLE, Some(left));
        }
    }

    /// `None`: no connection waits.
    #[inline(always)]
    pub(crate) fn try_accept(&self) -> Option<(TcpStream, SocketAddr)> {
        let socket = self.inner.listener.accept()?;
        let stream = TcpStream::new(&self.inner.stack, socket);
        let peer = stream.remote();
        Some((stream, peer))
    }

    /// An iterator over connections as they arrive; never ends.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Handshakes in progress, and connections waiting to be accepted.
    pub fn occupancy(&self) -> (usize, usize) {
        self.inner.listener.occupancy()
    }

    pub(crate) fn shared(&self) -> &Arc<ListenerShared<Real>> {
        &self.inner.listener
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("local", &self.inner.listener.local()).finish()
    }
}

/// Connections as they come: see [`TcpListener::incoming`], and [`TcpListener`] for an example.
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}
