//! Set-up and close: each thread opens connections, closes each as soon as it is open, and closes the ends that it has
//! accepted once the peer's FIN has arrived. No payload is sent.

use std::net::{IpAddr, SocketAddr};

use stack::call::Call;
use stack::socket::Readiness;
use sync::{Platform, Step};

use super::{ApplicationThread, Socket};

/// Addresses of the clients: the ports of one would not last, because TIME-WAIT keeps them.
pub const ADDRESSES: u8 = 16;

/// Address `number` of the clients, of 0 to [`ADDRESSES`] - 1; `first` is number 0.
pub fn source(first: IpAddr, number: u8) -> IpAddr {
    match first {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) + u32::from(number)).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) + u128::from(number)).into()),
    }
}

/// The ends of a thread.
pub struct Ends<P: Platform> {
    /// Connections that a thread opens at a time.
    at_once: usize,
    /// The next address to connect from.
    source: u8,
    opening: Vec<Socket<P>>,
    /// Accepted, until the peer has closed.
    serving: Vec<Socket<P>>,
}

impl<P: Platform> Ends<P> {
    /// None yet.
    pub fn new(at_once: usize) -> Self {
        Ends { at_once: at_once.max(1), source: 0, opening: Vec::new(), serving: Vec::new() }
    }
}

impl<P: Platform> ApplicationThread<P> {
    /// One turn. False: there was nothing to do.
    pub(super) fn open_and_close(&mut self) -> bool {
        let mut ends = std::mem::replace(&mut self.connections, Ends::new(0));
        let busy = self.open(&mut ends) | self.close_opened(&mut ends) | self.close_accepted(&mut ends);
        self.connections = ends;
        busy
    }

    fn open(&mut self, ends: &mut Ends<P>) -> bool {
        let missing = ends.at_once.saturating_sub(ends.opening.len());
        for _ in 0..missing {
            let local = self.uneven_end().unwrap_or_else(|| {
                ends.source = (ends.source + 1) % ADDRESSES;
                SocketAddr::new(source(self.local.ip(), ends.source), 0)
            });
            ends.opening.push(self.connect(Some(local)));
        }
        missing > 0
    }

    /// The client closes first, so TIME-WAIT is at its end.
    fn close_opened(&mut self, ends: &mut Ends<P>) -> bool {
        let before = ends.opening.len();
        let opened = |socket: &mut Socket<P>| socket.ready.get().intersects(Readiness::CONNECTED);
        for socket in ends.opening.extract_if(.., opened) {
            P::work(Step::Application, 1);
            self.close(0, &socket);
            self.transferred.opened += 1;
        }
        before != ends.opening.len()
    }

    fn close_accepted(&mut self, ends: &mut Ends<P>) -> bool {
        let before = self.transferred.closed;
        let mut busy = false;
        while let Some(socket) = self.listener.accept() {
            self.watch(&socket);
            ends.serving.push(socket);
            busy = true;
        }
        let over = Readiness::READABLE | Readiness::ERROR | Readiness::CLOSED;
        let closed_by_peer = |socket: &mut Socket<P>| socket.ready.get().intersects(over);
        for socket in ends.serving.extract_if(.., closed_by_peer) {
            P::work(Step::Application, 1);
            self.stacks[1].call(&socket.target(), Call::Receive(tcp::Receive { max: 1 }));
            self.close(1, &socket);
            self.transferred.closed += 1;
        }
        busy | (before != self.transferred.closed)
    }

    fn close(&self, side: usize, socket: &Socket<P>) {
        if self.drivers.is_none() {
            socket.ready.deregister();
        }
        self.stacks[side].call(&socket.target(), Call::Close(tcp::Close));
    }
}
