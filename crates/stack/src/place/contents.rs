//! The contents of an architecture: connections, and all that belongs to them. It is built from them.
//!
//! A connection passes from one architecture to the next in its place in the slab: slot, key and address remain, and
//! nothing is copied. (Parts behind locks of their own are the exception: see [`SharedPcb`](super::pcb::SharedPcb).)
//! Entries of wheels keep their deadlines, half-open connections their order, queued messages theirs.
//!
//! What may never happen: a connection in two contents, or one that is dropped during the move.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use super::connection::{Connection, Connections, connections};
use crate::bound_sockets::BoundSockets;
use crate::flow::UdpName;
use crate::handoff::CellMessage;
use crate::handshakes;
use crate::socket::handler::HandlerState;
use crate::socket::{Admission, TcpSocket};
use crate::udp_table::{Bound, StoredUdpPcb};
use observe::{CounterSnapshot, Time};
use sync::Platform;
use sync::slab::{Detached, Key};

/// Another thread is using the architecture: its contents stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAtRest;

/// Connections and their state between two architectures; empty for the first.
pub struct Contents<P: Platform> {
    /// The slab with the connections of the stack.
    pub slab: Arc<Connections<P>>,
    /// Messages to cells that have not been run, in order.
    pub messages: Vec<CellMessage<P>>,
    /// Connections whose channels have ended: their users check again once the next architecture runs.
    pub had_channels: Vec<Arc<TcpSocket<P>>>,
    /// What the architecture knows of itself that another one of its kind can use.
    pub kept: Option<Arc<dyn Any + Send + Sync>>,
    /// Sums of the counters.
    pub counted: CounterSnapshot,
    pub(super) connections: Vec<MovingConnection<P>>,
    pub(super) half_open: Vec<handshakes::MovingHandshake<P>>,
    /// Datagram sockets with their queues; those of one port in the order in which they were bound.
    pub(super) datagrams: Vec<Bound<StoredUdpPcb, P>>,
    /// The sockets of which each cell has a replica.
    pub(super) bound_sockets: BoundSockets<P>,
    /// The time of the wheels: the earliest, if there were several.
    pub(super) wheel_time: Option<Time>,
}

/// A connection between two places.
pub(super) struct MovingConnection<P: Platform> {
    pub(super) connection: Detached<Connection<P>, P>,
    /// When its entry in the wheel fires.
    pub(super) deadline: Option<Time>,
    /// The place that it holds in the backlog of the listener that admitted it.
    pub(super) admission: Option<Admission<P>>,
    /// Its handler.
    pub(super) handler: Option<Box<HandlerState<P>>>,
}

/// The contents for one place.
pub(crate) struct Share<P: Platform> {
    pub(super) connections: Vec<MovingConnection<P>>,
    pub(super) half_open: Vec<handshakes::MovingHandshake<P>>,
    pub(super) datagrams: Vec<Bound<StoredUdpPcb, P>>,
    pub(super) bound_sockets: BoundSockets<P>,
    pub(super) wheel_time: Option<Time>,
}

impl<P: Platform> Contents<P> {
    /// Of a stack without connections.
    pub fn empty() -> Self {
        Self::of(connections())
    }

    /// Whether there is nothing to install.
    pub fn is_empty(&self) -> bool {
        self.wheel_time.is_none()
    }

    /// Empty contents of a stack with this slab.
    pub fn of(slab: Arc<Connections<P>>) -> Self {
        Contents {
            slab,
            messages: Vec::new(),
            had_channels: Vec::new(),
            kept: None,
            counted: CounterSnapshot::default(),
            connections: Vec::new(),
            half_open: Vec::new(),
            datagrams: Vec::new(),
            bound_sockets: BoundSockets::default(),
            wheel_time: None,
        }
    }

    /// The address of the PCB of every connection in the table, by key.
    pub fn places(&self) -> HashMap<Key, usize> {
        let place = |connection: &Detached<Connection<P>, P>| std::ptr::from_ref(&connection.pcb).addr();
        self.connections.iter().map(|moving| (moving.connection.key(), place(&moving.connection))).collect()
    }

    /// Records the time of a wheel.
    pub(super) fn note_wheel_time(&mut self, wheel_time: Time) {
        self.wheel_time = Some(self.wheel_time.map_or(wheel_time, |other| other.min(wheel_time)));
    }

    /// A share for each of `count` places, which `place_of` chooses by the hash of a flow, or by the home of a datagram
    /// socket.
    pub(crate) fn split(self, count: usize, place_of: impl Fn(u32) -> usize) -> Vec<Share<P>> {
        let Contents { connections, half_open, datagrams, bound_sockets, wheel_time, .. } = self;
        let share = |_| Share {
            connections: Vec::new(),
            half_open: Vec::new(),
            datagrams: Vec::new(),
            bound_sockets: bound_sockets.clone(),
            wheel_time,
        };
        let mut shares: Vec<Share<P>> = (0..count).map(share).collect();
        for moving in connections {
            shares[place_of(moving.connection.flow.hash)].connections.push(moving);
        }
        for moving in half_open {
            shares[place_of(moving.flow_hash())].half_open.push(moving);
        }
        for bound in datagrams {
            shares[place_of(UdpName::home(bound.socket.name().port))].datagrams.push(bound);
        }
        shares
    }
}
