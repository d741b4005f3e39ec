//! `recv` of a connection, with `MSG_PEEK`, `MSG_WAITALL` and `MSG_TRUNC`.
//!
//! The connection delivers whole packet buffers. The rest of a partially read one stays here, ahead of the connection's
//! data: a call that returns data takes from both.

use std::collections::VecDeque;
use std::task::Poll;

use pktbuf::PktBuf;
use stack::Stack;
use stack::call::{Call, Reply};
use sync::{Atomic, Guard, Ordering, Platform};
use tcp::Error;

use crate::stream::Stream;
use crate::tcp_socket::ask;
use crate::{CallProgress, Errno, now};

/// The parameters of one receive.
#[derive(Clone, Copy)]
struct Manner {
    /// Bytes wanted.
    max: usize,
    /// The call waits for all `max` bytes.
    all: bool,
    nonblocking: bool,
}

/// Buffers that were taken from a connection and not read completely.
#[derive(Default)]
pub(crate) struct Unread(VecDeque<PktBuf>);

impl<P: Platform> Stream<P> {
    /// One attempt to receive at most `max` bytes.
    pub(crate) fn receive(&self, stack: &Stack<P>, max: usize, flags: i32, nonblocking: bool) -> CallProgress<Vec<u8>> {
        let manner = Manner { max, all: flags & libc::MSG_WAITALL != 0 && !nonblocking, nonblocking };
        let unread = self.unread.lock();
        if flags & libc::MSG_PEEK != 0 { self.peek(stack, unread, manner) } else { self.read(stack, unread, manner) }
    }

    /// Takes bytes.
    fn read(&self, stack: &Stack<P>, mut unread: Guard<'_, Unread, P>, manner: Manner) -> CallProgress<Vec<u8>> {
        loop {
            let held = unread.len();
            if held >= manner.max || self.ended.load(Ordering::Relaxed) || self.is_enough(stack, held, manner) {
                break;
            }
            match ask(stack, &self.socket, Call::Receive(tcp::Receive { max: manner.max - held })) {
                Reply::Received(Ok(received)) => {
                    unread.0.extend(received.data);
                    self.unread_bytes.store(unread.len(), Ordering::Release);
                    if received.end {
                        self.ended.store(true, Ordering::Release);
                    }
                }
                Reply::Received(Err(error)) => match self.refused(error, manner) {
                    Some(answer) => return answer,
                    None => break,
                },
                _ => break,
            }
        }
        let before = unread.len();
        let data = unread.take(manner.max);
        self.unread_bytes.store(unread.len(), Ordering::Release);
        // Linux frees exactly the bytes read.
        if before > 0 {
            ask(stack, &self.socket, Call::ReportUnread(tcp::ReportUnread { bytes: unread.len() }));
        }
        now(Ok(data))
    }

    /// Copies bytes without consuming them, in this layer or in the connection.
    fn peek(&self, stack: &Stack<P>, unread: Guard<'_, Unread, P>, manner: Manner) -> CallProgress<Vec<u8>> {
        let mut data = unread.copy(manner.max);
        let ended = self.ended.load(Ordering::Relaxed);
        if data.len() == manner.max || ended || self.is_enough(stack, data.len(), manner) {
            return now(Ok(data));
        }
        let peek = tcp::Peek { max: manner.max - data.len(), follows_data: !data.is_empty() };
        match ask(stack, &self.socket, Call::Peek(peek)) {
            Reply::Peeked(Ok(peeked)) => {
                data.extend(peeked.data);
                let short = data.len() < manner.max && !peeked.end && !self.shut_read.load(Ordering::Acquire);
                if manner.all && short { Poll::Pending } else { now(Ok(data)) }
            }
            Reply::Peeked(Err(error)) => self.refused(error, manner).unwrap_or(now(Ok(data))),
            _ => now(Ok(data)),
        }
    }

    /// Whether a call that has `held` bytes returns with them although it wants more and the connection has none. It
    /// then leaves an error of the connection for the call that would return nothing.
    fn is_enough(&self, stack: &Stack<P>, held: usize, manner: Manner) -> bool {
        if held == 0 {
            return false;
        }
        let Some(status) = self.status(stack) else { return true };
        let waits = manner.all && !self.shut_read.load(Ordering::Acquire) && status.state != tcp::State::Closed;
        status.receive_queue == 0 && !waits
    }

    /// Converts the connection's error for the caller; `None`: the end of the stream.
    fn refused(&self, error: Error, manner: Manner) -> Option<CallProgress<Vec<u8>>> {
        match error {
            Error::WouldBlock if self.shut_read.load(Ordering::Acquire) => None,
            Error::WouldBlock if manner.nonblocking => Some(now(Err(Errno::EAGAIN))),
            Error::WouldBlock => Some(Poll::Pending),
            Error::NotConnected => None,
            // The connection ended with an error, which is reported once; then the stream has ended.
            _ if self.error_reported.swap(true, Ordering::AcqRel) => None,
            error => Some(now(Err(error.into()))),
        }
    }
}

impl Unread {
    /// Bytes.
    fn len(&self) -> usize {
        self.0.iter().map(|buffer| buffer.len()).sum()
    }

    /// Takes up to `max` bytes.
    fn take(&mut self, max: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(max.min(1 << 16));
        while out.len() < max
            && let Some(front) = self.0.front_mut()
        {
            let count = front.len().min(max - out.len());
            out.extend_from_slice(&front[..count]);
            if count == front.len() {
                self.0.pop_front();
            } else {
                front.pull_front(count);
            }
        }
        out
    }

    /// Copies up to `max` bytes.
    fn copy(&self, max: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(max.min(1 << 16));
        for buffer in &self.0 {
            let count = buffer.len().min(max - out.len());
            out.extend_from_slice(&buffer[..count]);
        }
        out
    }
}
