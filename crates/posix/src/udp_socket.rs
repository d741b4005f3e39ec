//! A datagram socket.

use std::net::SocketAddr;
use std::sync::Arc;

use pktbuf::PktBuf;
use stack::Stack;
use stack::socket::{Readiness, UdpShared};
use sync::Platform;
use udp::Datagram;

use crate::{Errno, Transfer, as_seen, on_wire, unspecified};

/// What the length field of UDP can say, in octets.
const MOST_PAYLOAD: usize = 65_527;

/// A UDP socket; bound when it is first used.
pub struct UdpSock<P: Platform> {
    socket: Option<Arc<UdpShared<P>>>,
    /// A datagram that was looked at (`MSG_PEEK`): the next receive returns it again.
    peeked: Option<Datagram>,
    v6: bool,
}

impl<P: Platform> UdpSock<P> {
    pub(crate) fn new(v6: bool) -> UdpSock<P> {
        UdpSock { socket: None, peeked: None, v6 }
    }

    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (self.socket.as_ref().map(|socket| socket.local()), self.socket.as_ref().and_then(|socket| socket.remote()))
    }

    pub(crate) fn bind(&mut self, stack: &Stack<P>, address: SocketAddr) -> Result<(), Errno> {
        if self.socket.is_some() {
            return Err(Errno::EINVAL);
        }
        let address = on_wire(self.v6, address)?;
        self.socket = Some(stack.bind_udp(address)?);
        Ok(())
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.v6
    }

    /// The socket, bound to any address and a free port if it was not bound before. It is of the family of `to` on the wire,
    /// or of its own.
    fn bound(&mut self, stack: &Stack<P>, to: Option<SocketAddr>) -> Result<Arc<UdpShared<P>>, Errno> {
        if self.socket.is_none() {
            let v6 = to.map_or(self.v6, |to| to.is_ipv6());
            self.socket = Some(stack.bind_udp(SocketAddr::new(unspecified(v6), 0))?);
        }
        self.socket.clone().ok_or(Errno::EADDRNOTAVAIL)
    }

    pub(crate) fn connect(&mut self, stack: &Stack<P>, to: Option<SocketAddr>) -> Result<(), Errno> {
        let to = on_wire(self.v6, to.ok_or(Errno::EAFNOSUPPORT)?)?;
        let socket = self.bound(stack, Some(to))?;
        stack.connect_udp(&socket, to).map_err(refusal)
    }

    pub(crate) fn receive(
        &mut self,
        stack: &Stack<P>,
        max: usize,
        flags: i32,
    ) -> Result<(Vec<u8>, Option<SocketAddr>), Errno> {
        let socket = self.bound(stack, None)?;
        let datagram = match self.peeked.take() {
            Some(datagram) => datagram,
            None => socket.receive(&stack.shared().counters).map_err(no_datagram)?,
        };
        let len = datagram.buf.len().min(max);
        let received = (datagram.buf[..len].to_vec(), Some(as_seen(self.v6, datagram.source)));
        if flags & libc::MSG_PEEK != 0 {
            self.peeked = Some(datagram);
        }
        Ok(received)
    }

    pub(crate) fn send(
        &mut self,
        stack: &Stack<P>,
        transfer: &mut Transfer,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        let to = to.map(|to| on_wire(self.v6, to)).transpose()?;
        let socket = self.bound(stack, to)?;
        let (data, range) = transfer.next(MOST_PAYLOAD + 1);
        if range.len() > MOST_PAYLOAD {
            return Err(Errno::EMSGSIZE);
        }
        let payload = PktBuf::from_slice(&data[range]).ok_or(Errno::EMSGSIZE)?;
        let sent = stack.send_udp(&socket, payload, to).map_err(refusal)?;
        transfer.advance(sent);
        Ok(sent)
    }

    pub(crate) fn close(self, stack: &Stack<P>) {
        if let Some(socket) = self.socket {
            stack.unbind_udp(&socket);
        }
    }

    pub(crate) fn events(&self) -> u32 {
        let Some(socket) = &self.socket else { return libc::EPOLLOUT as u32 };
        let ready = socket.ready.get();
        let mut events = libc::EPOLLOUT;
        if ready.contains(Readiness::READABLE) || self.peeked.is_some() {
            events |= libc::EPOLLIN;
        }
        if ready.contains(Readiness::ERROR) {
            events |= libc::EPOLLERR;
        }
        events as u32
    }
}

fn no_datagram(error: ::udp::ReceiveError) -> Errno {
    match error {
        ::udp::ReceiveError::WouldBlock => Errno::EAGAIN,
        ::udp::ReceiveError::Refused => Errno::ECONNREFUSED,
        ::udp::ReceiveError::Unreachable => Errno::EHOSTUNREACH,
        _ => Errno::EBADF,
    }
}

fn refusal(error: ::udp::SendError) -> Errno {
    match error {
        ::udp::SendError::NoDestination => Errno::EDESTADDRREQ,
        ::udp::SendError::BadDestination => Errno::EINVAL,
        ::udp::SendError::Refused => Errno::ECONNREFUSED,
        ::udp::SendError::Unreachable => Errno::EHOSTUNREACH,
        ::udp::SendError::NetworkDown => Errno::ENETDOWN,
        ::udp::SendError::PathTooNarrow { .. } => Errno::EMSGSIZE,
        ::udp::SendError::Closed => Errno::EBADF,
        _ => Errno::EMSGSIZE,
    }
}
