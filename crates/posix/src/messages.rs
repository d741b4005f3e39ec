//! Calls that receive and send: `read`, `recv`, `recvmsg`, `write`, `send`, `sendmsg` and similar.
//!
//! Each has two forms. `try_receive` and `try_send` make one attempt and return [`Poll::Pending`] where a blocking
//! descriptor would wait. `recv`, `send` and the rest wait, on the platform's parker.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::task::Poll;

use sync::Platform;

use crate::blocking::block;
use crate::description::{Description, OpenObject};
use crate::receive::Put;
use crate::transfer::{MOST, Transfer};
use crate::wait_queue::bits;
use crate::{CallProgress, Errno, Sockets, now};

/// The most buffers in one call (`UIO_MAXIOV`).
const MOST_BUFFERS: usize = 1024;

/// The result of a receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The bytes.
    pub data: Vec<u8>,
    /// The return value: the number of bytes; with `MSG_TRUNC` the full length.
    pub count: usize,
    /// The sender of a datagram.
    pub peer: Option<SocketAddr>,
    /// `msg_flags`.
    pub flags: i32,
    /// The control message `TCP_CM_INQ`, if `TCP_INQ` was set: bytes that remain after these.
    pub waiting: Option<i32>,
}

impl ReceivedMessage {
    /// Of a stream, with the bytes elsewhere.
    fn of(count: usize) -> ReceivedMessage {
        ReceivedMessage { count, ..ReceivedMessage::default() }
    }
}

/// The most bytes for which a message that is returned gets its memory at once.
const USUAL: usize = 1 << 16;

/// Buffers that are filled one after the other.
struct Filling<'b, 'm> {
    buffers: &'b mut [IoSliceMut<'m>],
    /// The bytes in the first of them.
    filled: usize,
}

impl Filling<'_, '_> {
    /// Appends bytes, for which there is room.
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty()
            && let Some(buffer) = self.buffers.first_mut()
        {
            let free = &mut buffer[self.filled..];
            let count = free.len().min(bytes.len());
            free[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.filled += count;
            if self.filled == buffer.len() {
                self.buffers = &mut std::mem::take(&mut self.buffers)[1..];
                self.filled = 0;
            }
        }
    }
}

impl<P: Platform> Sockets<P> {
    /// One attempt of `recvfrom(2)`, `recvmsg(2)`, `recv(2)` or `read(2)`: at most `max` bytes. The last one if the
    /// time of the call has `expired`.
    pub fn try_receive(&self, fd: i32, max: usize, flags: i32, expired: bool) -> CallProgress<ReceivedMessage> {
        let file = match self.file(fd) {
            Ok(file) => file,
            Err(error) => return now(Err(error)),
        };
        let mut data = Vec::with_capacity(max.min(USUAL));
        let answer = self.receive_of(&file, max, (flags, expired), &mut |bytes| data.extend_from_slice(bytes));
        answer.map(|received| received.map(|received| ReceivedMessage { data, ..received }))
    }

    /// One attempt; the bytes go to `put`.
    fn receive_of(
        &self,
        file: &Description<P>,
        max: usize,
        (flags, expired): (i32, bool),
        put: Put<'_>,
    ) -> CallProgress<ReceivedMessage> {
        let nonblocking = expired || file.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        match &file.object {
            OpenObject::Tcp(socket) => {
                // "This flag causes the received bytes of data to be discarded, rather than passed back" (tcp(7)).
                let discards = flags & libc::MSG_TRUNC != 0 && flags & libc::MSG_PEEK == 0;
                let put = if discards { &mut |_: &[u8]| {} } else { put };
                socket.receive(&self.stack, max, flags, nonblocking, put).map(|count| {
                    Ok(ReceivedMessage { waiting: socket.waiting(&self.stack), ..ReceivedMessage::of(count?) })
                })
            }
            OpenObject::Udp(socket) => match socket.receive(&self.stack, max, flags, put) {
                Err(Errno::EAGAIN) if !nonblocking => Poll::Pending,
                received => now(received),
            },
            OpenObject::Pipe(end) => end.read(max, nonblocking, put).map(|read| read.map(ReceivedMessage::of)),
            OpenObject::Zeros(zeros) => now(Ok(ReceivedMessage::of(zeros.read(max, put)))),
            OpenObject::Epoll(_) => now(Err(Errno::EINVAL)),
        }
    }

    /// `recvmsg(2)`: at most `max` bytes, with their ancillary data. Waits for them unless the descriptor,
    /// `MSG_DONTWAIT` or `SO_RCVTIMEO` prevents it.
    ///
    /// # Errors
    /// `EAGAIN`, `EBADF`, `ENOTCONN`, `ECONNREFUSED`, `ECONNRESET`, `ETIMEDOUT` and other errors that ended the
    /// connection.
    pub fn recvmsg(&self, fd: i32, max: usize, flags: i32) -> Result<ReceivedMessage, Errno> {
        let mut data = Vec::with_capacity(max.min(USUAL));
        let received = self.receive(fd, max, flags, &mut |bytes| data.extend_from_slice(bytes))?;
        Ok(ReceivedMessage { data, ..received })
    }

    /// Receives at most `max` bytes, and waits for them.
    fn receive(&self, fd: i32, max: usize, flags: i32, put: Put<'_>) -> Result<ReceivedMessage, Errno> {
        let file = self.file(fd)?;
        let wanted = bits::IN | bits::RDHUP;
        block(&file, wanted, file.timeout(true), |expired| self.receive_of(&file, max, (flags, expired), put))
    }

    /// `recv(2)`: the value of the call. See [`Sockets::recvmsg`].
    ///
    /// # Errors
    /// As [`Sockets::recvmsg`].
    pub fn recv(&self, fd: i32, buffer: &mut [u8], flags: i32) -> Result<usize, Errno> {
        Ok(self.recvmsg_vectored(fd, &mut [IoSliceMut::new(buffer)], flags)?.count)
    }

    /// `read(2)`. See [`Sockets::recvmsg`].
    ///
    /// # Errors
    /// As [`Sockets::recvmsg`].
    pub fn read(&self, fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
        if buffer.is_empty() { self.moves_nothing(fd, false) } else { self.recv(fd, buffer, 0) }
    }

    /// `recvmsg(2)` into several buffers, filled one after the other: the bytes are there, and the returned `data` is
    /// empty.
    ///
    /// # Errors
    /// `EMSGSIZE` for more than 1024 buffers; else as [`Sockets::recvmsg`].
    pub fn recvmsg_vectored(
        &self,
        fd: i32,
        buffers: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<ReceivedMessage, Errno> {
        if buffers.len() > MOST_BUFFERS {
            return Err(Errno::EMSGSIZE);
        }
        let max = buffers.iter().fold(0, |sum: usize, buffer| sum.saturating_add(buffer.len())).min(MOST);
        let mut filling = Filling { buffers, filled: 0 };
        self.receive(fd, max, flags, &mut |bytes| filling.put(bytes))
    }

    /// `readv(2)`: as [`Sockets::read`] into several buffers, filled one after the other.
    ///
    /// # Errors
    /// `EINVAL` for more than 1024 buffers; else as [`Sockets::recvmsg`].
    pub fn readv(&self, fd: i32, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        if buffers.len() > MOST_BUFFERS {
            return Err(Errno::EINVAL);
        }
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return self.moves_nothing(fd, false);
        }
        Ok(self.recvmsg_vectored(fd, buffers, 0)?.count)
    }

    /// A `read` or `writev` of zero bytes returns at once: it takes and sends no datagram, not even an empty one.
    fn moves_nothing(&self, fd: i32, writes: bool) -> Result<usize, Errno> {
        match &self.file(fd)?.object {
            OpenObject::Epoll(_) => Err(Errno::EINVAL),
            OpenObject::Pipe(end) if end.writes() != writes => Err(Errno::EBADF),
            OpenObject::Zeros(_) if writes => Err(Errno::EBADF),
            _ => Ok(0),
        }
    }

    /// One attempt of `sendto(2)`, `sendmsg(2)`, `send(2)` or `write(2)`. `transfer` keeps the progress made before the
    /// call had to wait. It is the last attempt if the time of the call has `expired`.
    pub fn try_send(
        &self,
        fd: i32,
        transfer: &mut Transfer,
        flags: i32,
        to: Option<SocketAddr>,
        expired: bool,
    ) -> CallProgress<usize> {
        match self.file(fd) {
            Ok(file) => self.send_to(&file, transfer, (flags, expired), to),
            Err(error) => now(Err(error)),
        }
    }

    fn send_to(
        &self,
        file: &Description<P>,
        transfer: &mut Transfer,
        (flags, expired): (i32, bool),
        to: Option<SocketAddr>,
    ) -> CallProgress<usize> {
        let nonblocking = expired || file.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        match &file.object {
            OpenObject::Tcp(socket) => socket.send(&self.stack, transfer, flags, nonblocking, to),
            OpenObject::Udp(socket) => now(socket.send(&self.stack, transfer, to)),
            OpenObject::Pipe(end) => end.write(transfer, nonblocking),
            OpenObject::Zeros(_) => now(Err(Errno::EBADF)),
            OpenObject::Epoll(_) => now(Err(Errno::EINVAL)),
        }
    }

    /// `sendmsg(2)`: sends the rest of `transfer`, to `to` if the socket has no peer. Waits until all is accepted
    /// unless the descriptor, `MSG_DONTWAIT` or `SO_SNDTIMEO` prevents it. No signal is sent with `EPIPE`.
    ///
    /// # Errors
    /// `EAGAIN`, `EBADF`, `EPIPE`, `EMSGSIZE`, `EDESTADDRREQ` and errors that ended the connection.
    pub fn sendmsg(
        &self,
        fd: i32,
        transfer: &mut Transfer,
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        let file = self.file(fd)?;
        block(&file, bits::OUT, file.timeout(false), |expired| self.send_to(&file, transfer, (flags, expired), to))
    }

    /// `send(2)`. See [`Sockets::sendmsg`].
    ///
    /// # Errors
    /// As [`Sockets::sendmsg`].
    pub fn send(&self, fd: i32, data: &[u8], flags: i32) -> Result<usize, Errno> {
        self.sendmsg(fd, &mut Transfer::new(data), flags, None)
    }

    /// `sendto(2)`. See [`Sockets::sendmsg`].
    ///
    /// # Errors
    /// As [`Sockets::sendmsg`].
    pub fn sendto(&self, fd: i32, data: &[u8], flags: i32, to: SocketAddr) -> Result<usize, Errno> {
        self.sendmsg(fd, &mut Transfer::new(data), flags, Some(to))
    }

    /// `write(2)`. See [`Sockets::sendmsg`].
    ///
    /// # Errors
    /// As [`Sockets::sendmsg`].
    pub fn write(&self, fd: i32, data: &[u8]) -> Result<usize, Errno> {
        self.send(fd, data, 0)
    }

    /// `sendmsg(2)` of several buffers, one after the other: one datagram, or consecutive bytes of a stream.
    ///
    /// # Errors
    /// `EMSGSIZE` for more than 1024 buffers; else as [`Sockets::sendmsg`].
    pub fn sendmsg_vectored(
        &self,
        fd: i32,
        buffers: &[IoSlice<'_>],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        if buffers.len() > MOST_BUFFERS {
            return Err(Errno::EMSGSIZE);
        }
        self.sendmsg(fd, &mut Transfer::gathered(buffers), flags, to)
    }

    /// `writev(2)`: as [`Sockets::write`] of several buffers, one after the other. With zero bytes it sends nothing,
    /// not even an empty datagram.
    ///
    /// # Errors
    /// `EINVAL` for more than 1024 buffers; else as [`Sockets::sendmsg`].
    pub fn writev(&self, fd: i32, buffers: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if buffers.len() > MOST_BUFFERS {
            return Err(Errno::EINVAL);
        }
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return self.moves_nothing(fd, true);
        }
        self.sendmsg_vectored(fd, buffers, 0, None)
    }
}
