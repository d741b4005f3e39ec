//! The user's side of sockets: the state shared by a connection and its user.
//!
//! Nothing here belongs to a cell. A [`TcpSocket`] has readiness and the connection's name; a [`ListenerShared`] has
//! the accept queues and the two bounds; a [`UdpShared`] has the readiness of a datagram socket. Every cell that could
//! receive a matching frame holds a reference.

mod accept_queue;
pub mod channel;
pub mod handler;
pub mod listener;
pub mod poll;
pub mod readiness;
pub(crate) mod spare;
pub mod udp;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use sync::{Atomic, Ordering, Platform};
use wire::FourTuple;

pub use handler::{Acceptor, HandlersRun};
pub use listener::{Admission, Admitted, ListenerReplica, ListenerShared};
pub use poll::{PollEvent, PollSet};
pub use readiness::{Pollable, Readiness, ReadyState};
pub use udp::UdpShared;

use crate::flow::{Flow, Key, Target};

/// Stands for a key: a slot that no table has.
const ABORTED: u64 = u64::MAX - 1;
/// The generation in the key of a connection whose user has closed it. No slot is used so often.
const LET_GO: u64 = (u32::MAX as u64) << 32;

/// The user's side of one TCP connection. Shared by the connection and its handles; any thread.
///
/// The fields that a segment and a call read come first: a socket lies across two cache lines, and few operations touch
/// both.
#[repr(C)]
pub struct TcpSocket<P: Platform> {
    key: P::AtomicU64,
    /// Readiness and its waiters, with the flow's hash.
    pub ready: ReadyState<P>,
    ends: Ends,
}

// With the counts of its `Arc` at most 88 bytes.
const _: () = assert!(size_of::<TcpSocket<sync::Real>>() <= 72);

/// A rarely used tuple, in 16 bytes for IPv4.
enum Ends {
    V4 { local: (Ipv4Addr, u16), remote: (Ipv4Addr, u16) },
    Other(Box<FourTuple>),
}

impl Ends {
    fn of(tuple: &FourTuple) -> Self {
        match (tuple.local_addr, tuple.remote_addr) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                Ends::V4 { local: (local, tuple.local_port), remote: (remote, tuple.remote_port) }
            }
            _ => Ends::Other(Box::new(*tuple)),
        }
    }

    /// Those of another tuple, in the same memory.
    #[inline]
    fn renew(&mut self, tuple: &FourTuple) {
        match self {
            Ends::Other(ends) if tuple.local_addr.is_ipv6() => **ends = *tuple,
            _ => *self = Ends::of(tuple),
        }
    }

    fn tuple(&self) -> FourTuple {
        match *self {
            Ends::V4 { local: (local_addr, local_port), remote: (remote_addr, remote_port) } => {
                FourTuple { local_addr: local_addr.into(), remote_addr: remote_addr.into(), local_port, remote_port }
            }
            Ends::Other(ref tuple) => **tuple,
        }
    }
}

impl<P: Platform> TcpSocket<P> {
    /// For a connection that is about to be put into its table.
    pub fn new(flow: Flow) -> Arc<Self> {
        let ready = ReadyState::with_owner_word(flow.hash);
        Arc::new(TcpSocket { ready, ends: Ends::of(&flow.tuple), key: P::AtomicU64::new(u64::MAX) })
    }

    /// Its connection has ended, and nobody else refers to it: nothing that it refers to lives longer for that.
    #[inline]
    fn let_all_go(&mut self) {
        self.ready = ReadyState::default();
    }

    /// As [`TcpSocket::new`] makes it, after [`TcpSocket::let_all_go`].
    #[inline]
    fn renew(&mut self, flow: &Flow) {
        let TcpSocket { key, ready, ends } = self;
        *key = P::AtomicU64::new(u64::MAX);
        *ready = ReadyState::with_owner_word(flow.hash);
        ends.renew(&flow.tuple);
    }

    /// The connection's name for [`crate::arch::RunningArchitecture::call`].
    #[inline]
    pub fn target(&self) -> Target {
        Target { hash: self.ready.owner_word(), key: Key::from_bits(self.key.load(Ordering::Acquire)) }
    }

    /// Both ends of the connection.
    pub fn tuple(&self) -> FourTuple {
        self.ends.tuple()
    }

    /// Its flow.
    pub fn flow(&self) -> Flow {
        Flow { tuple: self.tuple(), hash: self.ready.owner_word() }
    }

    /// Called by the cell that gives the connection up after a panic: its name finds nothing from then on.
    pub(crate) fn abort(&self) {
        self.key.store(ABORTED, Ordering::Release);
    }

    /// Called by the thread that uses the connection, once it is in TIME-WAIT and its user has closed it: its name finds nothing
    /// from then on, whatever remains of it. Its slot stays known.
    pub(crate) fn let_go(&self) {
        self.key.store(self.key.load(Ordering::Relaxed) | LET_GO, Ordering::Release);
    }

    /// The connection's slot in its table, unless it was given up.
    pub(crate) fn slot(&self) -> Option<u32> {
        let key = self.key.load(Ordering::Acquire);
        (key != ABORTED).then(|| Key::from_bits(key).slot)
    }

    /// Whether the connection was given up after a panic; see [`crate::Stack::failures`].
    pub fn is_aborted(&self) -> bool {
        self.key.load(Ordering::Acquire) == ABORTED
    }

    /// Called once, by the cell that inserted the connection.
    pub fn placed(&self, key: Key) {
        self.key.store(key.to_bits(), Ordering::Release);
    }
}

impl<P: Platform> Pollable<P> for TcpSocket<P> {
    fn ready_state(&self) -> &ReadyState<P> {
        &self.ready
    }
}
