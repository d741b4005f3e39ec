//! A socket's connection, which may still be opening or have ended: sending, shutdown and status; reading is in
//! `receive.rs`. Any thread; only readers exclude each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use pktbuf::Chunk;
use stack::Stack;
use stack::call::{Call, Reply};
use stack::socket::{Readiness, TcpSocket};
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};
use tcp::{Chunks, SetOption, SocketOption, StatusReport};

use crate::options::{SIOCINQ, SIOCOUTQ, SIOCOUTQNSD};
use crate::receive::Unread;
use crate::tcp_socket::ask;
use crate::transfer::Transfer;
use crate::wait_queue::{WaitQueue, bits};
use crate::{CallProgress, Errno, now};

/// See the head of this file.
pub(crate) struct Stream<P: Platform> {
    pub(crate) socket: Arc<TcpSocket<P>>,
    /// Taken from the connection and not read yet.
    pub(crate) unread: Lock<Unread, P>,
    /// Bytes in `unread`, written with that locked.
    pub(crate) unread_bytes: P::AtomicUsize,
    /// The stream ends after `unread`.
    pub(crate) ended: P::AtomicBool,
    /// `connect` has not yet reported that it is established.
    opening: P::AtomicBool,
    /// The error with which the connection ended has been reported.
    pub(crate) error_reported: P::AtomicBool,
    pub(crate) shut_read: P::AtomicBool,
    shut_write: P::AtomicBool,
}

/// Bytes that are offered to a connection at once whatever its buffer size: more than one run of segments.
const PIECE: usize = 128 << 10;

impl<P: Platform> Stream<P> {
    /// `waiters` are notified of the connection's events.
    pub(crate) fn new(socket: Arc<TcpSocket<P>>, opening: bool, waiters: &Arc<WaitQueue<P>>) -> Self {
        socket.ready.watch(waiters.clone());
        Stream {
            socket,
            // Two threads seldom read from one connection.
            unread: Lock::new(LockKind::Reserved, LockClass::UserHandle, Unread::default()),
            unread_bytes: P::AtomicUsize::new(0),
            ended: P::AtomicBool::new(false),
            opening: P::AtomicBool::new(opening),
            error_reported: P::AtomicBool::new(false),
            shut_read: P::AtomicBool::new(false),
            shut_write: P::AtomicBool::new(false),
        }
    }

    /// This end's address and the peer's.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let tuple = self.socket.tuple();
        let local = SocketAddr::new(tuple.local_addr, tuple.local_port);
        (local, SocketAddr::new(tuple.remote_addr, tuple.remote_port))
    }

    pub(crate) fn status(&self, stack: &Stack<P>) -> Option<StatusReport> {
        match ask(stack, &self.socket, Call::Status(tcp::Status)) {
            Reply::Status(report) => Some(*report),
            _ => None,
        }
    }

    pub(crate) fn is_opening(&self) -> bool {
        self.opening.load(Ordering::Acquire)
    }

    /// `connect`, or another call that opened the connection, has returned.
    pub(crate) fn opened(&self) {
        self.opening.store(false, Ordering::Release);
    }

    /// Why the connection ended, if that was not reported yet.
    fn error(&self, stack: &Stack<P>) -> Option<Errno> {
        if self.error_reported.load(Ordering::Acquire) { None } else { self.status(stack)?.error.map(Errno::from) }
    }

    /// As [`Stream::error`], and marks it as reported.
    pub(crate) fn take_error(&self, stack: &Stack<P>) -> Option<Errno> {
        match ask(stack, &self.socket, Call::TakeError(tcp::TakeError)) {
            Reply::Failure(Some(error)) if !self.error_reported.swap(true, Ordering::AcqRel) => Some(error.into()),
            _ => None,
        }
    }

    pub(crate) fn set(&self, stack: &Stack<P>, option: SocketOption) -> Result<(), Errno> {
        match ask(stack, &self.socket, Call::SetOption(SetOption(option))) {
            Reply::OptionSet(result) => result.map_err(Errno::from),
            _ => Ok(()),
        }
    }

    /// Gives the connection as much of `transfer` as it may have room for; returns whether it accepted all of that.
    /// `None`: it accepts no more data.
    fn send_next(&self, stack: &Stack<P>, transfer: &mut Transfer, flags: i32) -> Option<bool> {
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
            // The mark is after the last byte of the call.
            _ if offered < transfer.left() => Call::Send(send),
            libc::MSG_EOR => Call::SendRecord(tcp::SendRecord(send)),
            _ => Call::SendUrgent(tcp::SendUrgent(send)),
        };
        match ask(stack, &self.socket, call) {
            Reply::Sent(Ok(sent)) => {
                transfer.advance(sent.accepted);
                Some(sent.accepted == offered)
            }
            _ => None,
        }
    }

    /// How many of `left` bytes to offer to the connection: at least as many as its buffer can hold.
    fn room(&self, stack: &Stack<P>, left: usize) -> usize {
        if left <= PIECE {
            return left;
        }
        let buffer = self.status(stack).map_or(0, |status| status.options.send_buffer as usize);
        left.min(buffer.saturating_add(PIECE))
    }

    /// One attempt to send the rest of `transfer`.
    pub(crate) fn send(
        &self,
        stack: &Stack<P>,
        transfer: &mut Transfer,
        flags: i32,
        nonblocking: bool,
    ) -> CallProgress<usize> {
        // Data sent with a SYN counts as not sent if the open failed.
        let opening = transfer.opens() && self.is_opening();
        let blocked = |transfer: &Transfer| match (nonblocking, transfer.done()) {
            (false, _) => Poll::Pending,
            (true, 0) => now(Err(Errno::EAGAIN)),
            (true, done) => now(Ok(done)),
        };
        // The error is reported once; after that, and after a shutdown, reads return the end of the stream.
        let failed = |transfer: &Transfer| match (transfer.done(), self.error(stack)) {
            (done, _) if done > 0 && !opening => now(Ok(done)),
            (_, Some(error)) if !self.error_reported.swap(true, Ordering::AcqRel) => now(Err(error)),
            _ => now(Err(Errno::EPIPE)),
        };
        if self.shut_write.load(Ordering::Acquire) || self.error(stack).is_some() {
            return failed(transfer);
        }
        if self.is_opening() && !self.status(stack).is_some_and(|status| status.state.is_synchronised()) {
            let over = self.status(stack).is_none_or(|status| status.state == tcp::State::Closed);
            return if over { failed(transfer) } else { blocked(transfer) };
        }
        if opening {
            self.opened();
        }
        // A writer that waits for room tries again only when the connection reports some.
        let ready = self.socket.ready.get();
        let wake = Readiness::WRITABLE | Readiness::ERROR | Readiness::CLOSED;
        if transfer.done() > 0 && !ready.intersects(wake) {
            return blocked(transfer);
        }
        loop {
            match self.send_next(stack, transfer, flags) {
                None => return failed(transfer),
                Some(_) if transfer.left() == 0 => return now(Ok(transfer.done())),
                Some(false) => return blocked(transfer),
                Some(true) => {}
            }
        }
    }

    pub(crate) fn shut_down(&self, stack: &Stack<P>, read: bool, write: bool) -> Result<(), Errno> {
        if write {
            match ask(stack, &self.socket, Call::Shutdown(tcp::Shutdown::Write)) {
                Reply::ShutDown(Ok(_)) => self.shut_write.store(true, Ordering::Release),
                _ => return Err(Errno::ENOTCONN),
            }
        }
        // Linux continues to accept arriving data, and received data can be read. Only a read that would wait returns
        // at once.
        if read {
            self.shut_read.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Aborts the connection.
    pub(crate) fn abort(&self, stack: &Stack<P>) {
        self.socket.ready.deregister();
        ask(stack, &self.socket, Call::Abort(tcp::Abort));
    }

    /// No descriptor refers to it any more.
    pub(crate) fn close(&self, stack: &Stack<P>) {
        // Data that was taken and not read: the peer must learn that it was lost (RFC 9293, 3.6.1).
        if self.unread_bytes.load(Ordering::Acquire) > 0 {
            return self.abort(stack);
        }
        self.socket.ready.deregister();
        ask(stack, &self.socket, Call::Close(tcp::Close));
    }

    /// Bytes that can be read without waiting.
    pub(crate) fn readable(&self, stack: &Stack<P>) -> usize {
        let queued = self.status(stack).map_or(0, |status| status.receive_queue as usize);
        queued + self.unread_bytes.load(Ordering::Acquire)
    }

    /// Its readiness, in bits of `epoll`. A writer without room is notified when there is some.
    pub(crate) fn events(&self, stack: &Stack<P>, wanted: u32) -> u32 {
        let Some(status) = self.status(stack) else { return bits::HUP | bits::IN | bits::OUT };
        let events = self.events_by(&status);
        // An opening connection notifies of its room when it is established.
        if wanted & bits::OUT & !events != 0 && status.state.is_synchronised() {
            // One that has ended meanwhile has notified all waiters.
            let _ = self.set(stack, SocketOption::NotifyWritable);
        }
        events
    }

    fn events_by(&self, status: &StatusReport) -> u32 {
        let ready = status.ready;
        let unread = self.unread_bytes.load(Ordering::Acquire);
        let flag = |flag: &P::AtomicBool| flag.load(Ordering::Acquire);
        let mut events = 0;
        let peer_closed = flag(&self.ended) || ready.contains(Readiness::PEER_CLOSED);
        let closed = ready.contains(Readiness::CLOSED);
        let shut_write = flag(&self.shut_write);
        if closed || (shut_write || !status.state.may_transmit() && status.state.is_synchronised()) && peer_closed {
            events |= bits::HUP;
        }
        if peer_closed || flag(&self.shut_read) || closed {
            events |= bits::IN | bits::RDHUP;
        }
        // Data in this layer counts towards the low-water mark together with the connection's.
        let held = unread > 0 && unread + status.receive_queue as usize >= status.options.receive_low_water as usize;
        if unread == 0 && ready.contains(Readiness::READABLE) || held {
            events |= bits::IN;
        }
        if ready.contains(Readiness::WRITABLE) || shut_write || closed {
            events |= bits::OUT;
        }
        if ready.contains(Readiness::URGENT) {
            events |= bits::PRI;
        }
        if status.error.is_some() && !flag(&self.error_reported) {
            events |= bits::ERR;
        }
        events
    }

    /// See [`crate::tcp_socket::TcpSocket::waiting`].
    pub(crate) fn waiting(&self, stack: &Stack<P>) -> i32 {
        let bytes = i32::try_from(self.readable(stack)).unwrap_or(i32::MAX);
        let peer_closed = || self.status(stack).is_some_and(|status| status.ready.contains(Readiness::PEER_CLOSED));
        if bytes == 0 && (self.ended.load(Ordering::Acquire) || peer_closed()) { 1 } else { bytes }
    }

    pub(crate) fn ioctl(&self, stack: &Stack<P>, request: u64) -> Result<i32, Errno> {
        let status = self.status(stack);
        let number = match request {
            SIOCINQ => self.readable(stack),
            SIOCOUTQ => status.map_or(0, |status| status.send_queue as usize),
            SIOCOUTQNSD => status.map_or(0, |status| status.send_queue.saturating_sub(status.unacknowledged) as usize),
            _ => return Err(Errno::ENOTTY),
        };
        Ok(i32::try_from(number).unwrap_or(i32::MAX))
    }
}
