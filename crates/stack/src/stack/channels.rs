//! SEND and RECEIVE over a channel: see [`crate::socket::channel`].

use std::sync::Arc;

use pktbuf::Chunk;
use sync::Platform;
use tcp::{Chunks, SendPromised, SetOption, SocketOption};

use super::Stack;
use crate::call::Call;
use crate::handoff::{CellMessage, ReplySender};
use crate::socket::TcpSocket;
use crate::socket::channel::{Channel, channel};

impl<P: Platform> Stack<P> {
    /// A channel for the user of this connection, if the architecture has any and the calling thread does not own the
    /// connection. One for a connection.
    pub fn open_channel(&self, socket: &Arc<TcpSocket<P>>) -> Option<Box<Channel<P>>> {
        let active = self.active();
        if !active.has_channels() {
            return None;
        }
        let (user, owner) = channel(socket);
        let target = socket.target();
        active.tell(&target, CellMessage::Attach(target, Box::new(owner))).ok()?;
        Some(Box::new(user))
    }

    /// As [`Stack::send`], over the connection's channel: does not wait for the owner as far as room has been granted.
    pub fn send_over(
        &self,
        channel: &Channel<P>,
        socket: &TcpSocket<P>,
        send: &mut tcp::Send,
    ) -> Option<Result<usize, tcp::Error>> {
        let target = socket.target();
        let length: usize = send.chunks.iter().map(Chunk::len).sum();
        if length == 0 || !channel.may_post(socket) {
            return self.send(&target, send);
        }
        // Until the data has been sent the channel does not end.
        let active = self.active();
        if !channel.may_post(socket) {
            return self.send(&target, send);
        }
        let room = channel.reserve(length);
        let rest = if room < length { split_off(&mut send.chunks, room) } else { Chunks::new() };
        let posted = length - rest.iter().map(Chunk::len).sum::<usize>();
        channel.release(room - posted);
        if posted > 0 {
            let promised = Call::SendPromised(SendPromised(std::mem::take(&mut send.chunks)));
            if let Err(refused) = active.tell(&target, CellMessage::Call(target, promised, ReplySender::nobody())) {
                channel.release(posted);
                if let CellMessage::Call(_, Call::SendPromised(SendPromised(chunks)), _) = refused {
                    send.chunks = chunks;
                }
                send.chunks.extend(rest);
                return self.send(&target, send);
            }
        }
        if rest.is_empty() {
            return Some(Ok(posted));
        }
        send.chunks = rest;
        // What was not posted is refused by the next send.
        if posted > 0 {
            return Some(Ok(posted));
        }
        let ask = || {
            let ask = Call::SetOption(SetOption(SocketOption::NotifyWritable));
            active.tell(&target, CellMessage::Call(target, ask, ReplySender::nobody())).is_ok()
        };
        if channel.await_room(socket, ask) { Some(Ok(0)) } else { self.send(&target, send) }
    }

    /// As [`Stack::receive`], over the connection's channel: without a message where there is data.
    pub fn receive_over(
        &self,
        channel: &Channel<P>,
        socket: &TcpSocket<P>,
        event: tcp::Receive,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        // The channel does not end between two checks of it.
        let _active = self.active();
        loop {
            if self.take_over(channel, socket, event.max, received) {
                return Some(Ok(()));
            }
            if !channel.delivers(socket) {
                break;
            }
            if channel.is_exhausted(socket) {
                return Some(Err(tcp::Error::WouldBlock));
            }
        }
        let answer = self.receive(&socket.target(), event, received);
        // The owner delivers before it answers.
        match answer {
            None | Some(Err(tcp::Error::WouldBlock)) if self.take_over(channel, socket, event.max, received) => {
                Some(Ok(()))
            }
            answer => answer,
        }
    }

    /// Takes about `max` bytes of data that has been delivered already; false: there is none.
    pub fn take_over(
        &self,
        channel: &Channel<P>,
        socket: &TcpSocket<P>,
        max: usize,
        received: &mut tcp::Received,
    ) -> bool {
        let Some(taken) = channel.take(max, received) else { return false };
        if taken.more {
            let target = socket.target();
            if self.active().tell(&target, CellMessage::Continue(target)).is_err() {
                channel.report_again();
            }
        }
        true
    }
}

/// Cuts `chunks` after `length` bytes, or before where a chunk cannot be cut, and returns the rest.
#[cold]
fn split_off(chunks: &mut Chunks, length: usize) -> Chunks {
    let (mut left, mut rest) = (length, Chunks::new());
    for mut chunk in std::mem::take(chunks) {
        if chunk.len() <= left {
            left -= chunk.len();
            chunks.push(chunk);
            continue;
        }
        if left > 0
            && let Some(head) = chunk.split(left)
        {
            chunks.push(head);
        }
        left = 0;
        rest.push(chunk);
    }
    rest
}
