//! A network with a device that panics on a test's command, and a peer at its other end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use heddle::mem::MemConfig;
use heddle::{Interface, Stack, UdpSocket};
use testbed::panicking::{self, PanicSwitch, PanickingDevice};

use crate::network::{Network, NetworkArgs};

/// Makes the device panic.
pub struct Breaker {
    plant: Arc<PanicSwitch>,
    peer: Stack,
}

/// A network at the addresses of `--addr`, one of which must be on 10.0.0.0/24; the peer is 10.0.0.9.
pub fn network(args: &NetworkArgs) -> (Network, Breaker) {
    panicking::mute();
    let (left, right) = heddle::mem::pair(MemConfig::default());
    let (left, plant) = PanickingDevice::new(left);
    let network = args.build(Box::new(left), &args.addr).expect("a stack");
    let peer = Stack::builder()
        .interface(Interface::new(right).address("10.0.0.9/24").expect("an address"))
        .build()
        .expect("its peer");
    (network, Breaker { plant, peer })
}

impl Breaker {
    /// Makes the device panic at every use, and causes a use.
    pub fn panic_now(&self) {
        self.plant.always.store(u32::MAX, Ordering::SeqCst);
        let socket = UdpSocket::bind(&self.peer, "10.0.0.9:0").expect("a port");
        let nobody: SocketAddr = "10.0.0.200:9".parse().expect("an address");
        // An ARP request: a broadcast.
        socket.send_to(b"anybody there?", nobody).expect("sent");
    }
}
