//! An interface: addresses, and the ports that they are reached by.
//!
//! Usually one port, whose number is the interface's own. None: it has addresses that packets reach through other
//! interfaces; what is routed to it is dropped. Several: a bond, which spreads its flows over the ports that are up.
//! Read by any thread; ports are fixed when the stack is built, addresses come and go.

use ip::InterfaceView;
use sync::{Platform, Versioned};

use crate::flow::Target;
use crate::shared::Shared;

/// See the head of the file.
pub struct Interface<P: Platform> {
    /// Its addresses, and what they imply. Read by every packet, replaced when an address comes or goes.
    pub view: Versioned<InterfaceView, P>,
    /// Numbers of its ports.
    ports: Box<[usize]>,
}

impl<P: Platform> Interface<P> {
    /// With these addresses, over ports of these numbers.
    pub fn new(view: InterfaceView, ports: Vec<usize>) -> Self {
        Interface { view: Versioned::new(view), ports: ports.into() }
    }

    /// Numbers of its ports.
    #[inline]
    pub fn ports(&self) -> &[usize] {
        &self.ports
    }
}

/// A port of a stack; connections wait for room in its transmit queues.
pub type Port<P> = path::Port<P, Target>;
/// The ports of a stack.
pub type Ports<P> = path::Ports<P, Target>;

impl<P: Platform> Shared<P> {
    /// The number of the port by which flows of this hash leave an interface; `None`: it has none.
    #[inline]
    pub fn port_of(&self, interface: usize, hash: u32) -> Option<usize> {
        self.ports.choose(self.interfaces[interface].ports(), hash)
    }

    /// Whether every device of an interface has vanished. One without devices is never down.
    pub fn is_down(&self, interface: usize) -> bool {
        let mut ports = self.interfaces[interface].ports().iter();
        ports.len() > 0 && ports.all(|port| self.ports[*port].is_down())
    }

    /// The device of a port has vanished, or is back. Whether its interface has none left by that; if it has, its flows
    /// look for another.
    pub fn set_port_down(&self, port: usize, interface: Option<usize>, down: bool) -> bool {
        self.ports[port].set_down(down);
        let Some(interface) = interface else { return false };
        if self.interfaces[interface].ports().len() > 1 {
            self.invalidate_routes();
        }
        self.is_down(interface)
    }
}
