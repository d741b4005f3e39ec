//! A TCP socket: the state of Linux's `struct sock` beside the connection itself. It is idle, listens, or has a
//! connection ([`Stream`]), perhaps one that the first write opens.
//!
//! Its state changes under a lock that is held while the stack opens a connection, begins to listen or shuts down.
//! Reads and writes take that lock only briefly: a reader and a writer of one connection do not wait for each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use stack::Stack;
use stack::call::{Call, Reply};
use stack::socket::ListenerShared;
use sync::{Guard, Lock, LockClass, LockKind, Platform};
use tcp::SocketOption;

use crate::receive::Put;
use crate::reports::Reports;
use crate::settings::SocketSettings;
use crate::stream::Stream;
use crate::transfer::Transfer;
use crate::wait_queue::{WaitQueue, bits};
use crate::{CallProgress, Errno, now, on_wire, unspecified};

/// The state of a socket.
pub(crate) enum Stage<P: Platform> {
    /// Neither connected nor listening; perhaps bound.
    Idle(Option<SocketAddr>),
    /// Deferred connect: the first write sends the SYN (`TCP_FASTOPEN_CONNECT`). Its local address, and the peer.
    Deferred(Option<SocketAddr>, SocketAddr),
    /// It accepts connections.
    Listener(Arc<ListenerShared<P>>),
    /// It has a connection, which may still be opening or have ended.
    Stream(Arc<Stream<P>>),
}

/// A TCP socket. Any thread.
pub(crate) struct TcpDescription<P: Platform> {
    state: Lock<TcpSocketState<P>, P>,
    v6: bool,
}

/// A connection that `accept` takes out of a listener's queue.
pub(crate) struct Accepted<P: Platform> {
    pub(crate) socket: TcpDescription<P>,
    /// The queue of its future waiters.
    pub(crate) waiters: Arc<WaitQueue<P>>,
    pub(crate) peer: SocketAddr,
}

/// The state behind the lock of a socket.
pub(crate) struct TcpSocketState<P: Platform> {
    pub(crate) stage: Stage<P>,
    pub(crate) settings: SocketSettings,
    pub(crate) reports: Reports,
    /// Waiters for the socket's readiness.
    waiters: Arc<WaitQueue<P>>,
    v6: bool,
    /// Connections that may wait to be accepted.
    pub(crate) backlog: usize,
}

/// How many connections may wait for `accept` after `listen` with `backlog`: Linux treats it as unsigned, limited by
/// `somaxconn`.
fn queue_length(backlog: i32) -> usize {
    const SOMAXCONN: usize = 4096;
    (backlog as u32 as usize).min(SOMAXCONN)
}

impl<P: Platform> TcpDescription<P> {
    pub(crate) fn new(v6: bool, waiters: Arc<WaitQueue<P>>) -> Self {
        Self::at(Stage::Idle(None), SocketSettings::default(), v6, waiters)
    }

    fn at(stage: Stage<P>, settings: SocketSettings, v6: bool, waiters: Arc<WaitQueue<P>>) -> Self {
        let state = TcpSocketState { stage, settings, reports: Reports::default(), waiters, v6, backlog: 0 };
        TcpDescription { state: Lock::new(LockKind::Blocking, LockClass::OpenFile, state), v6 }
    }

    /// For one read or change.
    pub(crate) fn lock(&self) -> Guard<'_, TcpSocketState<P>, P> {
        self.state.lock()
    }

    /// The connection, if there is one.
    pub(crate) fn stream(&self) -> Option<Arc<Stream<P>>> {
        match &self.lock().stage {
            Stage::Stream(stream) => Some(stream.clone()),
            _ => None,
        }
    }

    /// Whether an attempt to connect is in progress.
    pub(crate) fn is_opening(&self) -> bool {
        self.stream().is_some_and(|stream| stream.is_opening())
    }

    /// The connection, and how long closing it waits for its peer, if it does (`SO_LINGER`).
    pub(crate) fn lingers(&self) -> Option<(Arc<stack::socket::TcpSocket<P>>, Duration)> {
        let state = self.lock();
        let time = state.settings.linger().filter(|time| !time.is_zero())?;
        match &state.stage {
            Stage::Stream(stream) => Some((stream.socket.clone(), time)),
            _ => None,
        }
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.v6
    }

    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        match &self.lock().stage {
            Stage::Idle(bound) => (*bound, None),
            Stage::Deferred(bound, peer) => (*bound, Some(*peer)),
            Stage::Listener(listener) => (Some(listener.local()), None),
            Stage::Stream(stream) => {
                let (local, remote) = stream.addresses();
                (Some(local), Some(remote))
            }
        }
    }

    /// Its readiness, in bits of `epoll`.
    pub(crate) fn events(&self, stack: &Stack<P>, wanted: u32) -> u32 {
        let (stream, reported) = {
            let mut state = self.lock();
            state.report(stack);
            match &state.stage {
                Stage::Idle(_) => return bits::OUT | bits::HUP,
                Stage::Deferred(..) => return bits::OUT,
                Stage::Listener(listener) => return if listener.occupancy().1 > 0 { bits::IN } else { 0 },
                Stage::Stream(stream) => (stream.clone(), !state.reports.is_empty()),
            }
        };
        stream.events(stack, wanted) | if reported { bits::ERR } else { 0 }
    }

    /// Requests a notification of every arrival of data, for an edge-triggered watcher.
    pub(crate) fn tell_every_arrival(&self, stack: &Stack<P>) {
        let mut state = self.lock();
        state.settings.every_arrival = true;
        if let Stage::Stream(stream) = &state.stage {
            // A connection that has ended has no arrivals.
            let _ = stream.set(stack, SocketOption::EveryArrival(true));
        }
    }

    pub(crate) fn bind(&self, stack: &Stack<P>, address: SocketAddr) -> Result<(), Errno> {
        let address = on_wire(self.v6, address)?;
        let mut state = self.lock();
        let free = state.settings.free_bind;
        let Stage::Idle(bound @ None) = &mut state.stage else { return Err(Errno::EINVAL) };
        if !address.ip().is_unspecified() && !stack.shared().links().is_local(address.ip()) && !free {
            return Err(Errno::EADDRNOTAVAIL);
        }
        *bound = Some(address);
        Ok(())
    }

    pub(crate) fn listen(&self, stack: &Stack<P>, backlog: i32) -> Result<(), Errno> {
        let mut state = self.lock();
        match &state.stage {
            Stage::Idle(bound) => {
                let address = bound.unwrap_or(SocketAddr::new(unspecified(self.v6), 0));
                state.backlog = queue_length(backlog);
                state.listen_at(stack, address)
            }
            Stage::Listener(listener) => {
                listener.set_backlog(queue_length(backlog));
                state.backlog = queue_length(backlog);
                Ok(())
            }
            Stage::Stream(_) | Stage::Deferred(..) => Err(Errno::EINVAL),
        }
    }

    /// The connection that has waited longest; `None`: there is none.
    pub(crate) fn accept(&self, stack: &Stack<P>) -> Result<Option<Accepted<P>>, Errno> {
        let (child, settings) = {
            let state = self.lock();
            let Stage::Listener(listener) = &state.stage else { return Err(Errno::EINVAL) };
            let Some(child) = listener.accept() else { return Ok(None) };
            (child, state.settings.clone())
        };
        let waiters = WaitQueue::new();
        let stream = Stream::new(child, false, &waiters);
        for option in settings.live_only() {
            stream.set(stack, option)?;
        }
        let peer = stream.addresses().1;
        let socket = TcpDescription::at(Stage::Stream(Arc::new(stream)), settings, self.v6, waiters.clone());
        Ok(Some(Accepted { socket, waiters, peer }))
    }

    /// `connect(2)`, one attempt. "The socket is nonblocking and the connection cannot be completed immediately":
    /// `EINPROGRESS`; "the socket is nonblocking and a previous connection attempt has not yet been completed":
    /// `EALREADY`; "the socket is already connected": `EISCONN`.
    pub(crate) fn connect(&self, stack: &Stack<P>, to: Option<SocketAddr>, nonblocking: bool) -> CallProgress<()> {
        let mut state = self.lock();
        let Some(to) = to else {
            state.disconnect(stack);
            return now(Ok(()));
        };
        let wait = |error| if nonblocking { now(Err(error)) } else { Poll::Pending };
        match &state.stage {
            Stage::Listener(_) | Stage::Deferred(..) => now(Err(Errno::EISCONN)),
            Stage::Idle(_) => {
                match on_wire(self.v6, to).and_then(|to| state.open(stack, to)) {
                    // The first write opens.
                    Ok(()) if matches!(state.stage, Stage::Deferred(..)) => now(Ok(())),
                    Ok(()) => wait(Errno::EINPROGRESS),
                    Err(error) => now(Err(error)),
                }
            }
            Stage::Stream(stream) if stream.is_opening() => match stream.status(stack) {
                Some(status) if status.state.is_synchronised() => {
                    stream.opened();
                    now(Ok(()))
                }
                Some(status) if status.state != tcp::State::Closed => wait(Errno::EALREADY),
                // Read after the state: an attempt that fails in between has set its error by then.
                _ => now(Err(stream.take_error(stack).unwrap_or(Errno::ECONNABORTED))),
            },
            Stage::Stream(_) => now(Err(Errno::EISCONN)),
        }
    }

    pub(crate) fn receive(
        &self,
        stack: &Stack<P>,
        max: usize,
        flags: i32,
        nonblocking: bool,
        put: Put<'_>,
    ) -> CallProgress<usize> {
        let stream = match &self.lock().stage {
            Stage::Stream(stream) => stream.clone(),
            Stage::Deferred(..) if nonblocking => return now(Err(Errno::EAGAIN)),
            Stage::Deferred(..) => return Poll::Pending,
            Stage::Idle(_) | Stage::Listener(_) => return now(Err(Errno::ENOTCONN)),
        };
        stream.receive(stack, max, flags, nonblocking, put)
    }

    pub(crate) fn send(
        &self,
        stack: &Stack<P>,
        transfer: &mut Transfer,
        flags: i32,
        nonblocking: bool,
        to: Option<SocketAddr>,
    ) -> CallProgress<usize> {
        let asked = flags & libc::MSG_FASTOPEN != 0;
        let opened = self.lock().open_by_send(stack, transfer, (asked, nonblocking), to);
        let answer = match (opened, self.stream()) {
            (Some(answer), _) => answer,
            (None, Some(stream)) => stream.send(stack, transfer, flags, nonblocking),
            (None, None) => now(Err(Errno::EPIPE)),
        };
        if let Poll::Ready(Ok(taken)) = answer {
            let mut state = self.lock();
            let zero_copy =
                flags & libc::MSG_ZEROCOPY != 0 && state.settings.is_on(libc::SOL_SOCKET, libc::SO_ZEROCOPY);
            state.reports.sent(taken, zero_copy);
            // The peer may have acknowledged it before the notification was requested.
            if state.report(stack) {
                let waiters = state.waiters.clone();
                drop(state);
                waiters.wake(bits::ERR);
            }
        }
        answer
    }

    pub(crate) fn shutdown(&self, stack: &Stack<P>, how: i32) -> Result<(), Errno> {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        let mut state = self.lock();
        let waiters = state.waiters.clone();
        match &state.stage {
            Stage::Listener(listener) => {
                let local = listener.local();
                listener.ready.deregister();
                stack.unlisten(listener);
                state.stage = Stage::Idle(Some(local));
            }
            Stage::Stream(stream) => stream.shut_down(stack, read, write)?,
            Stage::Idle(_) | Stage::Deferred(..) => return Err(Errno::ENOTCONN),
        }
        drop(state);
        // A thread that blocks in `accept` or `read` stops waiting.
        waiters.wake(bits::ALL);
        Ok(())
    }

    /// No descriptor refers to the socket any more.
    pub(crate) fn close(&self, stack: &Stack<P>) {
        match std::mem::replace(&mut self.lock().stage, Stage::Idle(None)) {
            Stage::Idle(_) | Stage::Deferred(..) => {}
            Stage::Listener(listener) => {
                listener.ready.deregister();
                stack.unlisten(&listener);
            }
            Stage::Stream(stream) => stream.close(stack),
        }
    }

    /// `SIOCINQ`, `SIOCOUTQ`, `SIOCOUTQNSD`.
    pub(crate) fn ioctl(&self, stack: &Stack<P>, request: u64) -> Result<i32, Errno> {
        self.stream().ok_or(Errno::EINVAL)?.ioctl(stack, request)
    }

    /// The value of `TCP_CM_INQ` beside received data, if `TCP_INQ` was set: bytes that remain, or 1 for only the end
    /// of the stream.
    pub(crate) fn waiting(&self, stack: &Stack<P>) -> Option<i32> {
        let asked = self.lock().settings.is_on(libc::IPPROTO_TCP, crate::options::TCP_INQ);
        let stream = self.stream().filter(|_| asked)?;
        Some(stream.waiting(stack))
    }
}

impl<P: Platform> TcpSocketState<P> {
    /// The queue of waiters for the socket's readiness.
    pub(crate) fn waiters(&self) -> &Arc<WaitQueue<P>> {
        &self.waiters
    }

    /// As [`on_wire`].
    pub(crate) fn on_wire(&self, address: SocketAddr) -> Result<SocketAddr, Errno> {
        on_wire(self.v6, address)
    }

    fn listen_at(&mut self, stack: &Stack<P>, address: SocketAddr) -> Result<(), Errno> {
        let listener = stack.listen(address, self.backlog, self.settings.connection(stack.shared().control().tcp()))?;
        listener.set_defer_accept(self.settings.defer_accept(stack.shared().control().tcp()));
        listener.ready.watch(self.waiters.clone());
        self.stage = Stage::Listener(listener);
        self.tell_listener();
        Ok(())
    }

    /// Options set on a listener apply to later children: it listens again.
    pub(crate) fn listen_again(&mut self, stack: &Stack<P>) -> Result<(), Errno> {
        let Stage::Listener(listener) = &self.stage else { return Ok(()) };
        if listener.occupancy() != (0, 0) {
            return Ok(());
        }
        let local = listener.local();
        listener.ready.deregister();
        stack.unlisten(listener);
        self.stage = Stage::Idle(Some(local));
        self.listen_at(stack, local)
    }

    /// Begins to open a connection to `to`.
    fn open(&mut self, stack: &Stack<P>, to: SocketAddr) -> Result<(), Errno> {
        let Stage::Idle(bound) = self.stage else { return Err(Errno::EISCONN) };
        if self.settings.is_on(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) {
            return self.connect_later(stack, bound, to);
        }
        let socket = stack.connect(bound, to, &self.settings.connection(stack.shared().control().tcp()))?;
        self.adopt(stack, Stream::new(socket, true, &self.waiters))
    }

    /// The socket has a connection from now on.
    pub(crate) fn adopt(&mut self, stack: &Stack<P>, stream: Stream<P>) -> Result<(), Errno> {
        for option in self.settings.live_only() {
            stream.set(stack, option)?;
        }
        self.stage = Stage::Stream(Arc::new(stream));
        Ok(())
    }

    fn disconnect(&mut self, stack: &Stack<P>) {
        match &self.stage {
            Stage::Stream(stream) => stream.abort(stack),
            Stage::Listener(listener) => {
                listener.ready.deregister();
                stack.unlisten(listener);
            }
            Stage::Idle(_) | Stage::Deferred(..) => {}
        }
        self.stage = Stage::Idle(None);
    }
}

/// Makes a call on a connection.
pub(crate) fn ask<P: Platform>(stack: &Stack<P>, socket: &stack::socket::TcpSocket<P>, call: Call<P>) -> Reply {
    stack.call(&socket.target(), call)
}
