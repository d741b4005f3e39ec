//! A datagram socket as its users hold it: its name, its address, its readiness. Its home place keeps the PCB with the
//! queue ([`Datagrams`](crate::connections::Datagrams)), which is reached by calls
//! (`UdpCall`).

use std::net::SocketAddr;
use std::sync::Arc;

use sync::Platform;

use super::readiness::{Pollable, Readiness, ReadyState};
use crate::flow::UdpName;

/// The state shared by all handles of one datagram socket. Any thread.
pub struct UdpShared<P: Platform> {
    /// Readiness and its waiters.
    pub ready: ReadyState<P>,
    name: UdpName,
    local: SocketAddr,
}

impl<P: Platform> UdpShared<P> {
    /// A socket bound to `local`; `number` distinguishes it from others of its port.
    pub fn new(local: SocketAddr, number: u32) -> Arc<Self> {
        let name = UdpName { port: local.port(), number };
        let socket = Arc::new(UdpShared { ready: ReadyState::default(), name, local });
        socket.ready.restore(Readiness::WRITABLE);
        socket
    }

    /// How calls name it.
    pub fn name(&self) -> UdpName {
        self.name
    }

    /// The address it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

impl<P: Platform> Pollable<P> for UdpShared<P> {
    fn ready_state(&self) -> &ReadyState<P> {
        &self.ready
    }
}
