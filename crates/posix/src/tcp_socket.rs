//! A TCP socket: what Linux's `struct sock` remembers beside the connection itself.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use pktbuf::{Chunk, PktBuf};
use stack::Stack;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, Readiness, TcpSocket};
use sync::Platform;
use tcp::{Chunks, SetOption, SocketOption, StatusReport};

use crate::options::Settings;
use crate::reports::Reports;
use crate::transfer::Transfer;
use crate::{Answer, Errno, now, on_wire, unspecified};

/// A TCP socket.
pub struct TcpSock<P: Platform> {
    pub(crate) stage: Stage<P>,
    pub(crate) settings: Settings,
    pub(crate) reports: Reports,
    v6: bool,
    backlog: usize,
}

pub(crate) enum Stage<P: Platform> {
    /// Neither connected nor listening; perhaps bound.
    Idle(Option<SocketAddr>),
    /// Connected in name: the first write sends the SYN (`TCP_FASTOPEN_CONNECT`). Where it is bound, and the peer.
    Deferred(Option<SocketAddr>, SocketAddr),
    Listener(Arc<ListenerShared<P>>),
    Stream(Stream<P>),
}

/// A connection, perhaps still being opened, perhaps over.
pub(crate) struct Stream<P: Platform> {
    pub(crate) socket: Arc<TcpSocket<P>>,
    /// Taken from the connection and not read yet.
    pub(crate) residue: VecDeque<PktBuf>,
    pub(crate) end: bool,
    /// `connect` has not said yet that it is established.
    pub(crate) opening: bool,
    /// The error with which the connection ended has been reported.
    pub(crate) told: bool,
    pub(crate) shut_read: bool,
    shut_write: bool,
}

/// How many connections may wait for `accept` after `listen` with `backlog`: Linux takes it without its sign, and no more
/// than `somaxconn`.
fn queue_length(backlog: i32) -> usize {
    const SOMAXCONN: usize = 4096;
    (backlog as u32 as usize).min(SOMAXCONN)
}

/// Octets that are offered to a connection at once whatever its buffer is: more than one run of text.
const PIECE: usize = 128 << 10;

impl<P: Platform> Stream<P> {
    pub(crate) fn new(socket: Arc<TcpSocket<P>>, opening: bool) -> Self {
        Stream {
            socket,
            residue: VecDeque::new(),
            end: false,
            opening,
            told: false,
            shut_read: false,
            shut_write: false,
        }
    }

    pub(crate) fn status(&self, stack: &Stack<P>) -> Option<StatusReport> {
        match stack.call(&self.socket.target(), Call::Status(tcp::Status)) {
            Reply::Status(report) => Some(*report),
            _ => None,
        }
    }

    /// Why the connection ended, if nobody was told.
    pub(crate) fn error(&self, stack: &Stack<P>) -> Option<Errno> {
        if self.told { None } else { self.status(stack)?.error.map(Errno::from) }
    }

    /// As [`Stream::error`], and now it is told.
    pub(crate) fn take_error(&mut self, stack: &Stack<P>) -> Option<Errno> {
        match stack.call(&self.socket.target(), Call::TakeError(tcp::TakeError)) {
            Reply::Failure(Some(error)) if !std::mem::replace(&mut self.told, true) => Some(error.into()),
            _ => None,
        }
    }

    pub(crate) fn set(&self, stack: &Stack<P>, option: SocketOption) -> Result<(), Errno> {
        match stack.call(&self.socket.target(), Call::SetOption(SetOption(option))) {
            Reply::OptionSet(result) => result.map_err(Errno::from),
            _ => Ok(()),
        }
    }

    /// Gives the connection as much of `transfer` as it may have room for; whether it took all of that.
    fn send_next(&self, stack: &Stack<P>, transfer: &mut Transfer, flags: i32) -> Result<bool, Errno> {
        let (data, range) = transfer.next(self.room(stack, transfer.left()));
        let offered = range.len();
        let mut chunks = Chunks::new();
        if offered > 0 {
            chunks.push(Chunk::part(data, range));
        }
        let send = tcp::Send { chunks };
        let call = match flags & (libc::MSG_OOB | libc::MSG_EOR) {
            0 if flags & libc::MSG_MORE != 0 => Call::SendMore(tcp::SendMore(send)),
            0 => Call::Send(send),
            // The mark is behind the last octet of the call.
            _ if offered < transfer.left() => Call::Send(send),
            libc::MSG_EOR => Call::SendRecord(tcp::SendRecord(send)),
            _ => Call::SendUrgent(tcp::SendUrgent(send)),
        };
        match stack.call(&self.socket.target(), call) {
            Reply::Sent(Ok(sent)) => {
                transfer.advance(sent.accepted);
                Ok(sent.accepted == offered)
            }
            // After the peer's reset was reported, and after a close: nobody reads any more.
            _ => Err(Errno::EPIPE),
        }
    }

    /// How many of `left` octets to offer to the connection: no fewer than its buffer can take.
    fn room(&self, stack: &Stack<P>, left: usize) -> usize {
        if left <= PIECE {
            return left;
        }
        let buffer = self.status(stack).map_or(0, |status| status.options.send_buffer as usize);
        left.min(buffer.saturating_add(PIECE))
    }

    /// Octets that can be read without waiting.
    pub(crate) fn readable(&self, stack: &Stack<P>) -> usize {
        let queued = self.status(stack).map_or(0, |status| status.receive_queue as usize);
        queued + self.unread()
    }

    /// Octets taken from the connection and not read.
    pub(crate) fn unread(&self) -> usize {
        self.residue.iter().map(|buffer| buffer.len()).sum()
    }

    /// Poll bits, Linux's.
    pub(crate) fn events(&self, stack: &Stack<P>) -> u32 {
        let Some(status) = self.status(stack) else { return (libc::EPOLLHUP | libc::EPOLLIN | libc::EPOLLOUT) as u32 };
        let ready = status.ready;
        let mut events = 0;
        let peer_closed = self.end || ready.contains(Readiness::PEER_CLOSED);
        let closed = ready.contains(Readiness::CLOSED);
        if closed || (self.shut_write || !status.state.may_transmit() && status.state.is_synchronised()) && peer_closed
        {
            events |= libc::EPOLLHUP;
        }
        if peer_closed || self.shut_read || closed {
            events |= libc::EPOLLIN | libc::EPOLLRDHUP;
        }
        // What this layer holds counts towards the low-water mark with what the connection has.
        let held = !self.residue.is_empty() && self.readable(stack) >= status.options.receive_low_water as usize;
        if self.residue.is_empty() && ready.contains(Readiness::READABLE) || held {
            events |= libc::EPOLLIN;
        }
        if ready.contains(Readiness::WRITABLE) || self.shut_write || closed {
            events |= libc::EPOLLOUT;
        }
        if ready.contains(Readiness::URGENT) {
            events |= libc::EPOLLPRI;
        }
        if status.error.is_some() && !self.told {
            events |= libc::EPOLLERR;
        }
        events as u32
    }
}

impl<P: Platform> TcpSock<P> {
    pub(crate) fn new(v6: bool) -> TcpSock<P> {
        TcpSock::at(Stage::Idle(None), Settings::default(), v6)
    }

    fn at(stage: Stage<P>, settings: Settings, v6: bool) -> TcpSock<P> {
        TcpSock { stage, settings, reports: Reports::default(), v6, backlog: 0 }
    }

    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        match &self.stage {
            Stage::Idle(bound) => (*bound, None),
            Stage::Deferred(bound, peer) => (*bound, Some(*peer)),
            Stage::Listener(listener) => (Some(listener.local()), None),
            Stage::Stream(stream) => {
                let tuple = stream.socket.tuple();
                let local = SocketAddr::new(tuple.local_addr, tuple.local_port);
                (Some(local), Some(SocketAddr::new(tuple.remote_addr, tuple.remote_port)))
            }
        }
    }

    /// As [`on_wire`].
    pub(crate) fn spoken(&self, address: SocketAddr) -> Result<SocketAddr, Errno> {
        on_wire(self.v6, address)
    }

    /// How many connections may wait to be accepted.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.v6
    }

    pub(crate) fn bind(&mut self, stack: &Stack<P>, address: SocketAddr) -> Result<(), Errno> {
        let address = self.spoken(address)?;
        let Stage::Idle(bound @ None) = &mut self.stage else { return Err(Errno::EINVAL) };
        if !address.ip().is_unspecified() && !stack.shared().is_local(address.ip()) && !self.settings.free_bind {
            return Err(Errno::EADDRNOTAVAIL);
        }
        *bound = Some(address);
        Ok(())
    }

    pub(crate) fn listen(&mut self, stack: &Stack<P>, backlog: i32) -> Result<(), Errno> {
        match &self.stage {
            Stage::Idle(bound) => {
                let address = bound.unwrap_or(SocketAddr::new(unspecified(self.v6), 0));
                self.backlog = queue_length(backlog);
                let listener = stack.listen(address, self.backlog, self.settings.connection(stack.shared().tcp()))?;
                listener.set_defer_accept(self.settings.defer_accept(stack.shared().tcp()));
                self.stage = Stage::Listener(listener);
                self.tell_listener();
                Ok(())
            }
            Stage::Listener(listener) => {
                self.backlog = queue_length(backlog);
                listener.set_backlog(self.backlog);
                Ok(())
            }
            Stage::Stream(_) | Stage::Deferred(..) => Err(Errno::EINVAL),
        }
    }

    /// `None`: nobody waits to be accepted.
    pub(crate) fn accept(&mut self, stack: &Stack<P>) -> Result<Option<(TcpSock<P>, SocketAddr)>, Errno> {
        let Stage::Listener(listener) = &self.stage else { return Err(Errno::EINVAL) };
        let Some(socket) = listener.accept() else { return Ok(None) };
        let stream = Stream::new(socket, false);
        for option in self.settings.live_only() {
            stream.set(stack, option)?;
        }
        let child = TcpSock::at(Stage::Stream(stream), self.settings.inherited(), self.v6);
        let peer = child.addresses().1.unwrap_or(listener.local());
        Ok(Some((child, peer)))
    }

    pub(crate) fn connect(&mut self, stack: &Stack<P>, to: Option<SocketAddr>, nonblocking: bool) -> Answer<()> {
        let Some(to) = to else { return now(self.disconnect(stack)) };
        let wait = |error| if nonblocking { now(Err(error)) } else { Poll::Pending };
        let to = self.spoken(to);
        match &mut self.stage {
            Stage::Listener(_) | Stage::Deferred(..) => now(Err(Errno::EISCONN)),
            Stage::Idle(bound) => {
                let to = match to {
                    Ok(to) => to,
                    Err(error) => return now(Err(error)),
                };
                if self.settings.is_on(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) {
                    let bound = *bound;
                    return match self.connect_later(stack, bound, to) {
                        Ok(()) if matches!(self.stage, Stage::Stream(_)) => wait(Errno::EINPROGRESS),
                        done => now(done),
                    };
                }
                let opened = match stack.connect(*bound, to, &self.settings.connection(stack.shared().tcp())) {
                    Ok(socket) => Stream::new(socket, true),
                    Err(refused) => return now(Err(refused.into())),
                };
                for option in self.settings.live_only() {
                    if let Err(error) = opened.set(stack, option) {
                        return now(Err(error));
                    }
                }
                self.stage = Stage::Stream(opened);
                wait(Errno::EINPROGRESS)
            }
            Stage::Stream(stream) if stream.opening => {
                if let Some(error) = stream.take_error(stack) {
                    return now(Err(error));
                }
                match stream.status(stack) {
                    Some(status) if status.state.is_synchronised() => {
                        stream.opening = false;
                        now(Ok(()))
                    }
                    Some(status) if status.state != tcp::State::Closed => wait(Errno::EALREADY),
                    _ => now(Err(Errno::ECONNABORTED)),
                }
            }
            Stage::Stream(_) => now(Err(Errno::EISCONN)),
        }
    }

    /// Options that are set on a listener are for children that come from now on: it listens anew.
    pub(crate) fn listen_again(&mut self, stack: &Stack<P>) -> Result<(), Errno> {
        let Stage::Listener(listener) = &self.stage else { return Ok(()) };
        if listener.occupancy() != (0, 0) {
            return Ok(());
        }
        let local = listener.local();
        stack.unlisten(listener);
        self.stage = Stage::Idle(Some(local));
        let listener = stack.listen(local, self.backlog, self.settings.connection(stack.shared().tcp()))?;
        listener.set_defer_accept(self.settings.defer_accept(stack.shared().tcp()));
        self.stage = Stage::Listener(listener);
        self.tell_listener();
        Ok(())
    }

    fn disconnect(&mut self, stack: &Stack<P>) -> Result<(), Errno> {
        if let Stage::Stream(stream) = &self.stage {
            stack.call(&stream.socket.target(), Call::Abort(tcp::Abort));
        }
        if let Stage::Listener(listener) = &self.stage {
            stack.unlisten(listener);
        }
        self.stage = Stage::Idle(None);
        Ok(())
    }

    pub(crate) fn send(
        &mut self,
        stack: &Stack<P>,
        transfer: &mut Transfer,
        flags: i32,
        nonblocking: bool,
        to: Option<SocketAddr>,
    ) -> Answer<usize> {
        let answer = self.send_text(stack, transfer, flags, nonblocking, to);
        if let Poll::Ready(Ok(taken)) = answer {
            let zero_copy = flags & libc::MSG_ZEROCOPY != 0;
            self.reports.sent(taken, zero_copy && self.settings.is_on(libc::SOL_SOCKET, libc::SO_ZEROCOPY));
        }
        answer
    }

    fn send_text(
        &mut self,
        stack: &Stack<P>,
        transfer: &mut Transfer,
        flags: i32,
        nonblocking: bool,
        to: Option<SocketAddr>,
    ) -> Answer<usize> {
        if let Some(answer) = self.open_by_send(stack, transfer, (flags & libc::MSG_FASTOPEN != 0, nonblocking), to) {
            return answer;
        }
        let Stage::Stream(stream) = &mut self.stage else { return now(Err(Errno::EPIPE)) };
        // What left with a SYN that came to nothing counts as not sent.
        let opening = transfer.opens() && stream.opening;
        let blocked = |transfer: &Transfer| match (nonblocking, transfer.done()) {
            (false, _) => Poll::Pending,
            (true, 0) => now(Err(Errno::EAGAIN)),
            (true, done) => now(Ok(done)),
        };
        let failed = |transfer: &Transfer, error| match transfer.done() {
            done if done > 0 && !opening => now(Ok(done)),
            _ => now(Err(error)),
        };
        if let Some(error) = stream.error(stack) {
            stream.told |= transfer.done() == 0 || opening;
            return failed(transfer, error);
        }
        if stream.shut_write {
            return failed(transfer, Errno::EPIPE);
        }
        if stream.opening && !stream.status(stack).is_some_and(|status| status.state.is_synchronised()) {
            let over = stream.status(stack).is_none_or(|status| status.state == tcp::State::Closed);
            return if over { failed(transfer, Errno::EPIPE) } else { blocked(transfer) };
        }
        stream.opening &= !opening;
        // Who waits for room asks again only when the connection says that there is some.
        let ready = stream.socket.ready.get();
        let wake = Readiness::WRITABLE | Readiness::ERROR | Readiness::CLOSED;
        if transfer.done() > 0 && !ready.intersects(wake) {
            return blocked(transfer);
        }
        loop {
            let taken = match stream.send_next(stack, transfer, flags) {
                Ok(taken) => taken,
                Err(error) => return failed(transfer, error),
            };
            if transfer.left() == 0 {
                return now(Ok(transfer.done()));
            }
            if !taken {
                return blocked(transfer);
            }
        }
    }

    pub(crate) fn shutdown(&mut self, stack: &Stack<P>, how: i32) -> Result<(), Errno> {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        if let Stage::Listener(listener) = &self.stage {
            let local = listener.local();
            stack.unlisten(listener);
            self.stage = Stage::Idle(Some(local));
            return Ok(());
        }
        let Stage::Stream(stream) = &mut self.stage else { return Err(Errno::ENOTCONN) };
        let call = |how| match stack.call(&stream.socket.target(), Call::Shutdown(how)) {
            Reply::ShutDown(result) => result.map_err(|_| Errno::ENOTCONN),
            _ => Err(Errno::ENOTCONN),
        };
        if write {
            call(tcp::Shutdown::Write)?;
            stream.shut_write = true;
        }
        // Linux goes on taking text that comes, and what was received can be read. Only a read that would wait ends at once.
        stream.shut_read |= read;
        Ok(())
    }

    pub(crate) fn close(self, stack: &Stack<P>) {
        match self.stage {
            Stage::Idle(_) | Stage::Deferred(..) => {}
            Stage::Listener(listener) => stack.unlisten(&listener),
            Stage::Stream(stream) => {
                // Text that was taken and not read: the peer must learn that it was lost (RFC 9293, 3.6.1).
                let unread = !stream.residue.is_empty();
                let call = if unread { Call::Abort(tcp::Abort) } else { Call::Close(tcp::Close) };
                stack.call(&stream.socket.target(), call);
            }
        }
    }

    /// What `TCP_CM_INQ` tells beside received text, if `TCP_INQ` asks for it: octets that wait, or 1 for the end of the
    /// stream alone.
    pub(crate) fn waiting(&self, stack: &Stack<P>) -> Option<i32> {
        let Stage::Stream(stream) = &self.stage else { return None };
        if !self.settings.is_on(libc::IPPROTO_TCP, crate::options::TCP_INQ) {
            return None;
        }
        let octets = i32::try_from(stream.readable(stack)).unwrap_or(i32::MAX);
        let ended = || stream.status(stack).is_some_and(|status| status.ready.contains(Readiness::PEER_CLOSED));
        Some(if octets == 0 && (stream.end || ended()) { 1 } else { octets })
    }

    pub(crate) fn ioctl(&mut self, stack: &Stack<P>, request: u64) -> Result<i32, Errno> {
        let Stage::Stream(stream) = &self.stage else { return Err(Errno::EINVAL) };
        let status = stream.status(stack);
        let number = match request {
            crate::options::SIOCINQ => stream.readable(stack),
            crate::options::SIOCOUTQ => status.map_or(0, |status| status.send_queue as usize),
            crate::options::SIOCOUTQNSD => {
                status.map_or(0, |status| status.send_queue.saturating_sub(status.unacknowledged) as usize)
            }
            _ => return Err(Errno::ENOTTY),
        };
        Ok(i32::try_from(number).unwrap_or(i32::MAX))
    }
}
