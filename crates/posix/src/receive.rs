//! `recv` of a connection, with `MSG_PEEK`, `MSG_WAITALL` and `MSG_TRUNC`.
//!
//! The connection delivers whole packet buffers. The rest of a partially read one stays here, ahead of the connection's
//! data: a call that returns data takes from both.
//!
//! Bytes are copied once, from packet buffers to the caller's memory: each piece is passed to a [`Put`].

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

/// Receives the bytes of a call, piece by piece and in order. An attempt that must wait has passed no data.
pub(crate) type Put<'p> = &'p mut dyn FnMut(&[u8]);

/// Buffers that were taken from a connection and not read completely.
#[derive(Default)]
pub(crate) struct Unread(VecDeque<PktBuf>);

impl<P: Platform> Stream<P> {
    /// One attempt to receive at most `max` bytes; the answer is how many.
    pub(crate) fn receive(
        &self,
        stack: &Stack<P>,
        max: usize,
        flags: i32,
        nonblocking: bool,
        put: Put<'_>,
    ) -> CallProgress<usize> {
        let manner = Manner { max, all: flags & libc::MSG_WAITALL != 0 && !nonblocking, nonblocking };
        let unread = self.unread.lock();
        if flags & libc::MSG_PEEK != 0 {
            self.peek(stack, unread, manner, put)
        } else {
            self.read(stack, unread, manner, put)
        }
    }

    /// Takes bytes.
    fn read(
        &self,
        stack: &Stack<P>,
        mut unread: Guard<'_, Unread, P>,
        manner: Manner,
        put: Put<'_>,
    ) -> CallProgress<usize> {
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
        let count = unread.take(manner.max, put);
        self.unread_bytes.store(unread.len(), Ordering::Release);
        // Linux frees exactly the bytes read.
        if before > 0 {
            ask(stack, &self.socket, Call::ReportUnread(tcp::ReportUnread { bytes: unread.len() }));
        }
        now(Ok(count))
    }

    /// Copies bytes without consuming them, in this layer or in the connection.
    fn peek(
        &self,
        stack: &Stack<P>,
        unread: Guard<'_, Unread, P>,
        manner: Manner,
        put: Put<'_>,
    ) -> CallProgress<usize> {
        let held = unread.len().min(manner.max);
        let ended = self.ended.load(Ordering::Relaxed);
        if held == manner.max || ended || self.is_enough(stack, held, manner) {
            unread.copy(held, put);
            return now(Ok(held));
        }
        let peek = tcp::Peek { max: manner.max - held, follows_data: held > 0 };
        let more = match ask(stack, &self.socket, Call::Peek(peek)) {
            Reply::Peeked(Ok(peeked)) => {
                let count = held + peeked.data.len();
                let short = count < manner.max && !peeked.end && !self.shut_read.load(Ordering::Acquire);
                if manner.all && short {
                    return Poll::Pending;
                }
                peeked.data
            }
            Reply::Peeked(Err(error)) => match self.refused(error, manner) {
                Some(answer) => return answer,
                None => Vec::new(),
            },
            _ => Vec::new(),
        };
        unread.copy(held, put);
        put(&more);
        now(Ok(held + more.len()))
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
    fn refused(&self, error: Error, manner: Manner) -> Option<CallProgress<usize>> {
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

    /// Takes up to `max` bytes; returns how many.
    fn take(&mut self, max: usize, put: Put<'_>) -> usize {
        let mut taken = 0;
        while taken < max
            && let Some(front) = self.0.front_mut()
        {
            let count = front.len().min(max - taken);
            put(&front[..count]);
            taken += count;
            if count == front.len() {
                self.0.pop_front();
            } else {
                front.pull_front(count);
            }
        }
        taken
    }

    /// Copies the first `len` bytes.
    fn copy(&self, len: usize, put: Put<'_>) {
        let mut left = len;
        for buffer in &self.0 {
            let count = buffer.len().min(left);
            put(&buffer[..count]);
            left -= count;
        }
    }
}
