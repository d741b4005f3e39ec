//! The interface to the PCBs of datagram sockets, however a place shares them.
//!
//! [`Datagrams`](super::Datagrams), which has what happens to a datagram socket, is written over it and over nothing else of a
//! place. It is the counterpart for UDP of [`tcp::access`]. A UDP PCB has no parts that could be held one by one: its events
//! are short, and each has the whole PCB by `&mut` ([`udp::UdpEvent::run`]), so access is a closure with a
//! [`HeldSocket`].

use std::sync::Arc;

use observe::Counters;
use sync::Platform;
use wire::FourTuple;

use crate::flow::UdpName;
use crate::shared::Shared;
use crate::socket::UdpShared;
use crate::udp_table::HeldSocket;

/// Access to the PCBs of the datagram sockets that have their home in one place, and to the stack around them.
///
/// Implemented by [`Cell`](crate::place::Cell), for a user that has all of it by `&mut`, and by references to
/// [`Locked`](crate::place::Locked), in which the table of sockets has a lock, as has each PCB. Cells share no socket: each has the
/// sockets of other ports. Called by a thread that the architecture admits.
pub trait DatagramAccess {
    /// The platform of the stack.
    type Platform: Platform;

    /// The stack.
    fn shared(&self) -> &Arc<Shared<Self::Platform>>;

    /// The counters of the calling thread.
    fn counters(&self) -> &Counters;

    /// Exclusive use of the datagram socket of this name, which has its home here. `None`: it is not bound.
    fn with_socket<R>(&mut self, name: UdpName, f: impl FnOnce(HeldSocket<'_, Self::Platform>) -> R) -> Option<R>;

    /// The same for the socket that matches a datagram of this tuple best.
    fn with_socket_for<R>(
        &mut self,
        tuple: &FourTuple,
        f: impl FnOnce(HeldSocket<'_, Self::Platform>) -> R,
    ) -> Option<R>;

    /// Makes this place the home of a socket.
    fn bind_socket(&mut self, socket: Arc<UdpShared<Self::Platform>>);

    /// Removes a socket and drops its queue.
    fn unbind_socket(&mut self, name: UdpName);
}
