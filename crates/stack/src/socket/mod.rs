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

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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
    ends: Ends<P>,
}

// With the counts of its `Arc` at most 88 bytes.
const _: () = assert!(size_of::<TcpSocket<sync::Real>>() <= 72);

/// A rarely used tuple, in 16 bytes for IPv4. Atomic, so that a socket which is used again needs no exclusive borrow, which
/// an `Arc` gives for a read-modify-write: it is written only while no other thread has the socket.
enum Ends<P: Platform> {
    V4 {
        /// The local address in the upper half, and the remote one.
        addresses: P::AtomicU64,
        /// The same of the ports.
        ports: P::AtomicU32,
    },
    V6(Box<V6Ends<P>>),
    /// Of both versions: from a user that asks for it.
    Mixed(Box<FourTuple>),
}

struct V6Ends<P: Platform> {
    local: [P::AtomicU64; 2],
    remote: [P::AtomicU64; 2],
    /// As for IPv4.
    ports: P::AtomicU32,
}

/// The upper and the lower half.
fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

/// The address with these halves.
fn joined<P: Platform>(halves: &[P::AtomicU64; 2]) -> Ipv6Addr {
    let [upper, lower] = halves.each_ref().map(|half| half.load(Ordering::Relaxed));
    Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower))
}

/// See [`Ends::V4`].
fn addresses_of(local: Ipv4Addr, remote: Ipv4Addr) -> u64 {
    u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits())
}

/// See [`Ends::V4`].
fn ports_of(tuple: &FourTuple) -> u32 {
    u32::from(tuple.local_port) << 16 | u32::from(tuple.remote_port)
}

impl<P: Platform> Ends<P> {
    fn of(tuple: &FourTuple) -> Self {
        let ports = P::AtomicU32::new(ports_of(tuple));
        match (tuple.local_addr, tuple.remote_addr) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                Ends::V4 { addresses: P::AtomicU64::new(addresses_of(local, remote)), ports }
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let [local, remote] = [local, remote].map(|address| halves(address).map(P::AtomicU64::new));
                Ends::V6(Box::new(V6Ends { local, remote, ports }))
            }
            _ => Ends::Mixed(Box::new(*tuple)),
        }
    }

    /// Makes it those of another tuple. False: it has no room for the addresses. No other thread uses it.
    #[inline]
    fn renew(&self, tuple: &FourTuple) -> bool {
        let ports = match (self, tuple.local_addr, tuple.remote_addr) {
            (Ends::V4 { addresses, ports }, IpAddr::V4(local), IpAddr::V4(remote)) => {
                addresses.store(addresses_of(local, remote), Ordering::Relaxed);
                ports
            }
            (Ends::V6(ends), IpAddr::V6(local), IpAddr::V6(remote)) => {
                for (to, address) in [(&ends.local, local), (&ends.remote, remote)] {
                    to.iter().zip(halves(address)).for_each(|(half, bits)| half.store(bits, Ordering::Relaxed));
                }
                &ends.ports
            }
            _ => return false,
        };
        ports.store(ports_of(tuple), Ordering::Relaxed);
        true
    }

    fn tuple(&self) -> FourTuple {
        let (local_addr, remote_addr, ports) = match self {
            Ends::V4 { addresses, ports } => {
                let both = addresses.load(Ordering::Relaxed);
                let [local, remote] = [(both >> 32) as u32, both as u32].map(|bits| Ipv4Addr::from_bits(bits).into());
                (local, remote, ports)
            }
            Ends::V6(ends) => (joined::<P>(&ends.local).into(), joined::<P>(&ends.remote).into(), &ends.ports),
            Ends::Mixed(tuple) => return **tuple,
        };
        let both = ports.load(Ordering::Relaxed);
        FourTuple { local_addr, remote_addr, local_port: (both >> 16) as u16, remote_port: both as u16 }
    }
}

impl<P: Platform> TcpSocket<P> {
    /// For a connection that is about to be put into its table.
    pub fn new(flow: Flow) -> Arc<Self> {
        let ready = ReadyState::with_owner_word(flow.hash);
        Arc::new(TcpSocket { ready, ends: Ends::of(&flow.tuple), key: P::AtomicU64::new(u64::MAX) })
    }

    /// Its connection has ended, and nobody else refers to it: nothing that it refers to lives longer for that. False: somebody
    /// does.
    #[inline]
    fn let_all_go(this: &mut Arc<Self>) -> bool {
        if !sync::is_unshared(this) {
            return false;
        }
        if this.ready.refers() {
            let Some(socket) = Arc::get_mut(this) else { return false };
            socket.ready = ReadyState::default();
        }
        true
    }

    /// Makes it as [`TcpSocket::new`] makes it, after [`TcpSocket::let_all_go`]. False: a tuple of this version of IP has no room in
    /// it.
    #[inline]
    fn renew(&self, flow: &Flow) -> bool {
        self.key.store(u64::MAX, Ordering::Relaxed);
        self.ready.renew(flow.hash);
        self.ends.renew(&flow.tuple)
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
