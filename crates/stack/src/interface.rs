//! An interface: addresses, and the ports that they are reached by.
//!
//! Usually it has one port, with the interface's own number. Without a port its addresses are reached through other
//! interfaces, and packets routed to it are dropped. With several ports it is a bond, which spreads its flows over the
//! ports that are up. Read by any thread; ports are fixed when the stack is built, addresses come and go.

use ip::InterfaceView;
use sync::{Platform, Versioned};

use crate::flow::Target;

/// See the head of the file.
pub struct StackInterface<P: Platform> {
    /// Its addresses, with the values derived from them. Read for every packet, replaced when an address is added or
    /// removed.
    pub view: Versioned<InterfaceView, P>,
    /// Numbers of its ports.
    ports: Box<[usize]>,
}

impl<P: Platform> StackInterface<P> {
    /// With these addresses, over ports of these numbers.
    pub fn new(view: InterfaceView, ports: Vec<usize>) -> Self {
        StackInterface { view: Versioned::new(view), ports: ports.into() }
    }

    /// Numbers of its ports.
    #[inline]
    pub fn ports(&self) -> &[usize] {
        &self.ports
    }
}

/// A port of a stack; connections wait for room in its transmit queues.
pub(crate) type Port<P> = path::Port<P, Target>;
/// The ports of a stack.
pub(crate) type Ports<P> = path::Ports<P, Target>;
