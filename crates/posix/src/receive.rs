//! `recv` of a TCP socket, with `MSG_PEEK` and `MSG_WAITALL`.
//!
//! The connection hands out whole packet buffers. What a read leaves of the last one stays in [`Stream::residue`], in front
//! of what the connection still has: a call that returns text takes from both.

use std::collections::VecDeque;
use std::task::Poll;

use pktbuf::PktBuf;
use stack::Stack;
use stack::call::{Call, Reply};
use sync::Platform;
use tcp::Error;

use crate::tcp_socket::{Stage, Stream, TcpSock};
use crate::{Answer, Errno, now};

/// How one call receives.
#[derive(Clone, Copy)]
struct Manner {
    /// Octets wanted.
    max: usize,
    /// The call waits until `max` octets are there.
    all: bool,
    nonblocking: bool,
}

impl<P: Platform> TcpSock<P> {
    pub(crate) fn receive(&mut self, stack: &Stack<P>, max: usize, flags: i32, nonblocking: bool) -> Answer<Vec<u8>> {
        if matches!(self.stage, Stage::Deferred(..)) {
            return if nonblocking { now(Err(Errno::EAGAIN)) } else { Poll::Pending };
        }
        let Stage::Stream(stream) = &mut self.stage else { return now(Err(Errno::ENOTCONN)) };
        let manner = Manner { max, all: flags & libc::MSG_WAITALL != 0 && !nonblocking, nonblocking };
        if flags & libc::MSG_PEEK != 0 { stream.peek(stack, manner) } else { stream.read(stack, manner) }
    }
}

impl<P: Platform> Stream<P> {
    /// Takes octets.
    fn read(&mut self, stack: &Stack<P>, manner: Manner) -> Answer<Vec<u8>> {
        loop {
            let held = self.unread();
            if held >= manner.max || self.end || self.is_enough(stack, held, manner) {
                break;
            }
            match stack.call(&self.socket.target(), Call::Receive(tcp::Receive { max: manner.max - held })) {
                Reply::Received(Ok(received)) => {
                    self.residue.extend(received.data);
                    self.end |= received.end;
                }
                Reply::Received(Err(error)) => match self.refused(error, manner) {
                    Some(answer) => return answer,
                    None => break,
                },
                _ => break,
            }
        }
        let before = self.unread();
        let text = take(&mut self.residue, manner.max);
        // Linux frees what is read, to the octet.
        if before > 0 {
            stack.call(&self.socket.target(), Call::Keep(tcp::Keep { octets: self.unread() }));
        }
        now(Ok(text))
    }

    /// Copies octets and leaves them where they are, in this layer or in the connection.
    fn peek(&mut self, stack: &Stack<P>, manner: Manner) -> Answer<Vec<u8>> {
        let mut text = copy(&self.residue, manner.max);
        if text.len() == manner.max || self.end || self.is_enough(stack, text.len(), manner) {
            return now(Ok(text));
        }
        let peek = tcp::Peek { max: manner.max - text.len() };
        match stack.call(&self.socket.target(), Call::Peek(peek)) {
            Reply::Peeked(Ok(peeked)) => {
                text.extend(peeked.data);
                let short = text.len() < manner.max && !peeked.end && !self.shut_read;
                if manner.all && short { Poll::Pending } else { now(Ok(text)) }
            }
            Reply::Peeked(Err(error)) => self.refused(error, manner).unwrap_or(now(Ok(text))),
            _ => now(Ok(text)),
        }
    }

    /// Whether a call that has `held` octets returns with them, though it wants more and the connection has none. It does not
    /// ask the connection then: an error is for the call that would return nothing.
    fn is_enough(&self, stack: &Stack<P>, held: usize, manner: Manner) -> bool {
        if held == 0 {
            return false;
        }
        let Some(status) = self.status(stack) else { return true };
        let waits = manner.all && !self.shut_read && status.state != tcp::State::Closed;
        status.receive_queue == 0 && !waits
    }

    /// What the connection's refusal is to the caller; `None`: the end of the stream.
    fn refused(&mut self, error: Error, manner: Manner) -> Option<Answer<Vec<u8>>> {
        match error {
            Error::WouldBlock if self.shut_read => None,
            Error::WouldBlock if manner.nonblocking => Some(now(Err(Errno::EAGAIN))),
            Error::WouldBlock => Some(Poll::Pending),
            Error::NotConnected => None,
            // The connection ended with an error, which is told once; then the stream is at its end.
            _ if std::mem::replace(&mut self.told, true) => None,
            error => Some(now(Err(error.into()))),
        }
    }
}

/// Takes up to `max` octets.
fn take(buffers: &mut VecDeque<PktBuf>, max: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(max.min(1 << 16));
    while out.len() < max
        && let Some(front) = buffers.front_mut()
    {
        let count = front.len().min(max - out.len());
        out.extend_from_slice(&front[..count]);
        if count == front.len() {
            buffers.pop_front();
        } else {
            front.pull_front(count);
        }
    }
    out
}

/// Copies up to `max` octets.
fn copy(buffers: &VecDeque<PktBuf>, max: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(max.min(1 << 16));
    for buffer in buffers {
        let count = buffer.len().min(max - out.len());
        out.extend_from_slice(&buffer[..count]);
    }
    out
}
