//! The user's handle of a TCP connection: opening, closing and status. Reading and writing are in `stream/data.rs`;
//! options by name are in `stream_options.rs`.

mod data;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use stack::call::{Call, Reply};
use stack::socket::channel::Channel;
use stack::socket::{Readiness, TcpSocket};
use sync::{
    Atomic, Lock, LockClass, LockKind, OnceBox, Ordering, Platform, PrefetchHint, Real, Reused, ReusedRef, SpareMemory,
};
use tcp::{SetOption, SocketOption, StatusReport};

use crate::address::ToAddr;
use crate::builder::Stack;
use crate::connect::Connect;
use crate::error::{ConnectError, given_up, may_wait, on_connection};
use crate::leftover::Leftover;
use crate::socket_stack::SocketStack;
use crate::timeout::Timeout;

/// The default time to live, or hop limit (RFC 1700).
pub(crate) const TTL: u8 = 64;

/// An active open has finished.
pub(crate) const OPENED: Readiness = Readiness::CONNECTED.union(Readiness::ERROR).union(Readiness::CLOSED);

/// A TCP connection, like [`std::net::TcpStream`]. Any number of threads may use it at once; reads and writes also work
/// through `&TcpStream`. Dropping the last clone closes gracefully.
///
/// ```
/// use heddle::{Interface, Stack, TcpListener, TcpStream, mem, status};
/// use std::io::{ErrorKind, IoSlice, Read, Write};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = mem::pair(mem::MemConfig::default());
/// # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
/// # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
/// # let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
/// let (mut peer, _) = listener.accept()?;
/// stream.set_nodelay(true)?;
/// stream.write_vectored(&[IoSlice::new(b"head"), IoSlice::new(b"body")])?;
/// let mut came = [0; 8];
/// peer.read_exact(&mut came)?;
/// assert_eq!(&came, b"headbody");
/// // Nothing more comes.
/// peer.set_read_timeout(Some(Duration::from_millis(1)))?;
/// assert_eq!(peer.read(&mut came).unwrap_err().kind(), ErrorKind::WouldBlock);
/// let report = stream.status().expect("the connection is there");
/// assert_eq!(report.state, status::State::Established);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TcpStream {
    inner: ReusedRef<StreamInner>,
}

/// Each thread keeps memory for so many streams, at most 16 KiB.
const SPARE: usize = 128;

const _: () = assert!(SPARE * SpareMemory::<StreamInner>::size_of_each() <= 16 << 10);

thread_local! {
    static SPARE_STREAMS: RefCell<SpareMemory<StreamInner>> = const { RefCell::new(SpareMemory::at_most(SPARE)) };
}

struct StreamInner {
    stack: SocketStack,
    socket: Arc<TcpSocket<Real>>,
    /// Buffers delivered by the connection and not read completely yet.
    leftover: Lock<Leftover, Real>,
    /// The stream ends after `leftover`. Written with `leftover` locked.
    ended: <Real as Platform>::AtomicBool,
    nonblocking: <Real as Platform>::AtomicBool,
    /// Where another thread owns the connection: data goes over it without waiting for that thread.
    channel: Option<Box<Channel<Real>>>,
    /// Read, write and linger time-outs; allocated when the first is set.
    timeouts: OnceBox<StreamTimeouts>,
}

/// The time-outs of one stream.
#[derive(Default)]
struct StreamTimeouts {
    read: Timeout,
    write: Timeout,
    /// Of closing; `None`: it does not wait.
    linger: Timeout,
}

impl Reused for StreamInner {
    #[inline]
    fn with_spare<R>(f: impl FnOnce(&mut SpareMemory<Self>) -> R) -> Option<R> {
        SPARE_STREAMS.try_with(|spare| f(&mut spare.borrow_mut())).ok()
    }
}

impl StreamInner {
    fn timeouts(&self) -> &StreamTimeouts {
        self.timeouts.get_or_init(Box::default)
    }

    /// One of the time-outs; `None` if it was never set.
    fn timeout(&self, which: impl Fn(&StreamTimeouts) -> &Timeout) -> Option<Duration> {
        which(self.timeouts.get()?).get()
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        // The connection outlives its handle; its later events must not be reported to a poller.
        self.socket.ready.deregister();
        // Data that was taken and not read: the peer must learn that it was lost (RFC 9293, 3.6.1).
        let unread =
            self.leftover.get_mut().has_data() || self.channel.as_ref().is_some_and(|channel| channel.has_data());
        let (stack, target) = (self.stack.raw(), self.socket.target());
        if unread {
            stack.call(&target, Call::Abort(tcp::Abort));
        } else {
            stack.close(&target);
        }
        let linger = self.timeout(|timeouts| &timeouts.linger).filter(|_| !unread);
        if linger.is_some() && !self.nonblocking.load(Ordering::Relaxed) {
            let over = Readiness::FLUSHED | Readiness::CLOSED | Readiness::ERROR;
            self.socket.ready.wait(over, linger);
        }
    }
}

impl TcpStream {
    pub(crate) fn new(stack: &Stack, socket: Arc<TcpSocket<Real>>) -> Self {
        let channel = stack.raw().open_channel(&socket);
        let stack = SocketStack::of(stack);
        let inner = ReusedRef::new_with(|| StreamInner {
            stack,
            socket,
            // Two threads seldom read from one stream.
            leftover: Lock::new(LockKind::Reserved, LockClass::UserHandle, Leftover::default()),
            ended: Atomic::new(false),
            nonblocking: Atomic::new(false),
            channel,
            timeouts: OnceBox::new(),
        });
        TcpStream { inner }
    }

    /// Opens a connection and waits until it is established or has failed. See [`Connect`] for options.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(stack: &Stack, address: impl ToAddr) -> Result<TcpStream, ConnectError> {
        Connect::new().open(stack, address)
    }

    /// As [`TcpStream::connect`], for at most `timeout`.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect_timeout(stack: &Stack, address: impl ToAddr, timeout: Duration) -> Result<TcpStream, ConnectError> {
        Connect::new().open_timeout(stack, address, timeout)
    }

    /// Waits until it is established or has failed; the stream is blocking from then on.
    pub(crate) fn opened(self, timeout: Option<Duration>) -> Result<TcpStream, ConnectError> {
        self.block(true);
        let ready = self.inner.socket.ready.wait(OPENED, timeout);
        match self.outcome() {
            Some(error) => Err(error),
            None if ready.intersects(OPENED) => Ok(self),
            None => Err(ConnectError::TimedOut(self.remote())),
        }
    }

    /// Why an active open failed, if it did.
    pub(crate) fn outcome(&self) -> Option<ConnectError> {
        let failed = self.readiness().intersects(Readiness::ERROR | Readiness::CLOSED);
        failed.then(|| ConnectError::Failed(self.remote(), self.failure().unwrap_or(tcp::Error::TimedOut)))
    }

    pub(crate) fn call(&self, call: Call<Real>) -> Reply {
        self.inner.stack.raw().call(&self.inner.socket.target(), call)
    }

    pub(crate) fn driver(&self) -> Option<usize> {
        self.inner.stack.raw().driver_of(&self.inner.socket.flow())
    }

    /// Where its handles' common part is.
    pub(crate) fn place(&self) -> PrefetchHint {
        PrefetchHint::of(&*self.inner)
    }

    pub(crate) fn socket(&self) -> &Arc<TcpSocket<Real>> {
        &self.inner.socket
    }

    /// The other end's address.
    ///
    /// # Errors
    /// None; as in [`std::net::TcpStream`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.remote())
    }

    /// This end's address.
    ///
    /// # Errors
    /// None; as in [`std::net::TcpStream`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let tuple = self.inner.socket.tuple();
        Ok(SocketAddr::new(tuple.local_addr, tuple.local_port))
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        let tuple = self.inner.socket.tuple();
        SocketAddr::new(tuple.remote_addr, tuple.remote_port)
    }

    /// Another handle of the same connection, as from [`Clone`].
    ///
    /// # Errors
    /// None; as in [`std::net::TcpStream`].
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        Ok(self.clone())
    }

    /// The current readiness; a hint that costs one load.
    pub fn readiness(&self) -> Readiness {
        self.inner.socket.ready.get()
    }

    /// Waits until one of `wanted` is ready, or `timeout` has passed; returns what is ready.
    pub fn wait(&self, wanted: Readiness, timeout: Option<Duration>) -> Readiness {
        self.inner.socket.ready.wait(wanted, timeout)
    }

    /// Whether reads and writes return [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// None; as in [`std::net::TcpStream`].
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.block(!nonblocking);
        Ok(())
    }

    /// Whether calls wait.
    pub(crate) fn block(&self, blocking: bool) {
        self.inner.nonblocking.store(!blocking, Ordering::Relaxed);
    }

    /// How long a read waits before it fails with [`io::ErrorKind::WouldBlock`]; `None`: for ever.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.timeouts().read.set(timeout)
    }

    /// How long a write waits before it fails with [`io::ErrorKind::WouldBlock`]; `None`: for ever.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.timeouts().write.set(timeout)
    }

    /// The value of [`TcpStream::set_read_timeout`].
    ///
    /// # Errors
    /// None; as in [`std::net::TcpStream`].
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.timeout(|timeouts| &timeouts.read))
    }

    /// The value of [`TcpStream::set_write_timeout`].
    ///
    /// # Errors
    /// None; as in [`std::net::TcpStream`].
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.timeout(|timeouts| &timeouts.write))
    }

    /// Sends with this time to live or hop limit from now on, 1 to 255.
    ///
    /// # Errors
    /// The value is out of range, or the connection is gone.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.set_hop_limit(Some(hop_limit(ttl)?))
    }

    /// The value of [`TcpStream::set_ttl`], or the default.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.hop_limit()?.unwrap_or(TTL).into())
    }

    /// Sends small segments at once (true) or gathers them while data is unacknowledged (Nagle; false, the default).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set_option(SocketOption::NoDelay(nodelay))
    }

    /// Sets any option of a live connection.
    ///
    /// # Errors
    /// The value is out of range, or the connection is gone.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        match self.call(Call::SetOption(SetOption(option))) {
            Reply::OptionSet(result) => result.map_err(|error| self.error(error))?,
            _ => return Err(self.gone()),
        }
        if let SocketOption::Linger(time) = option {
            self.inner.timeouts().linger.set_or_none(time);
        }
        Ok(())
    }

    /// Probes an idle peer; `None` stops.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_keepalive(&self, timing: Option<tcp::config::KeepAlive>) -> io::Result<()> {
        self.set_option(SocketOption::KeepAlive(timing))
    }

    /// Sets how closing treats unacknowledged data: `Some(0)` resets the connection; with a longer time, dropping the
    /// last clone of a blocking stream waits up to that time for the peer to acknowledge everything (`SO_LINGER`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.set_option(SocketOption::Linger(linger))
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// The connection is not established.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.shut_down(tcp::Shutdown::Write)?;
        }
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.shut_down(tcp::Shutdown::Read)?;
        }
        Ok(())
    }

    fn shut_down(&self, how: tcp::Shutdown) -> io::Result<()> {
        if let Some(channel) = &self.inner.channel {
            match how {
                tcp::Shutdown::Read => channel.end_receiving(),
                tcp::Shutdown::Write => channel.end_sending(),
            }
        }
        match self.call(Call::Shutdown(how)) {
            Reply::ShutDown(result) => result.map_err(|error| self.error(error))?,
            _ => return Err(self.gone()),
        }
        // A thread that waits in this direction must be woken: it has ended.
        let ended = match how {
            tcp::Shutdown::Read => Readiness::READABLE,
            tcp::Shutdown::Write => Readiness::WRITABLE,
        };
        self.inner.socket.ready.raise(ended);
        Ok(())
    }

    /// A snapshot of the connection: state, queues, windows, round-trip time. `None` once it is gone.
    pub fn status(&self) -> Option<StatusReport> {
        match self.call(Call::Status(tcp::Status)) {
            Reply::Status(report) => Some(*report),
            _ => None,
        }
    }

    /// Takes the error that ended the connection, if it was not reported yet (`SO_ERROR`).
    ///
    /// # Errors
    /// None; as in [`std::net::TcpStream`].
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(match self.call(Call::TakeError(tcp::TakeError)) {
            Reply::Failure(Some(error)) => {
                self.inner.socket.ready.clear(Readiness::ERROR);
                Some(self.error(error))
            }
            Reply::Gone if self.inner.socket.is_aborted() => Some(self.gone()),
            _ => None,
        })
    }

    fn failure(&self) -> Option<tcp::Error> {
        if self.inner.socket.is_aborted() {
            return Some(tcp::Error::Aborted);
        }
        self.status().and_then(|status| status.error)
    }

    pub(crate) fn error(&self, error: tcp::Error) -> io::Error {
        on_connection(self.remote(), error)
    }

    /// Bytes that were delivered and not read.
    pub(crate) fn kept(&self) -> usize {
        let mut leftover = self.inner.leftover.lock();
        self.take_in(&mut leftover);
        leftover.bytes()
    }

    /// Bytes before the urgent one, if that was delivered or announced.
    pub(crate) fn mark(&self) -> Option<usize> {
        let mut leftover = self.inner.leftover.lock();
        self.take_in(&mut leftover);
        leftover.mark()
    }

    fn gone(&self) -> io::Error {
        if let Err(refused) = may_wait() {
            return refused;
        }
        if self.inner.socket.is_aborted() {
            let failures = &self.inner.stack.raw().shared().failures;
            return given_up(self.remote(), failures.of(&self.inner.socket.tuple()));
        }
        self.error(tcp::Error::NotConnected)
    }
}

/// Validates a time to live, or hop limit, from the user.
pub(crate) fn hop_limit(ttl: u32) -> io::Result<u8> {
    u8::try_from(ttl).ok().filter(|limit| *limit > 0).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{ttl} is not a time to live: give 1 to 255"))
    })
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpStream")
            .field("local", &self.inner.socket.tuple().local_addr)
            .field("peer", &self.remote())
            .finish()
    }
}
