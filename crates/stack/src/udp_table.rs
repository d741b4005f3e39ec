//! The datagram sockets of a place, by port. The place provides exclusive access.
//!
//! All sockets of one port have their home in one place, whatever their addresses and peers, so the best match for a
//! datagram is found there. What may never happen: a socket in two tables.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::SocketAddr;
use std::sync::Arc;

use observe::Counters;
use smallvec::SmallVec;
use sync::{Platform, Writers};
use udp::UdpPcb;
use wire::FourTuple;

use crate::bound_sockets::Spread;
use crate::flow::UdpName;
use crate::recent_routes::RecentRoutes;
use crate::shared::Shared;
use crate::socket::UdpShared;

/// A PCB as a place stores it.
pub(crate) trait Stored {
    /// Looks at it.
    fn look<R>(&self, f: impl FnOnce(&UdpPcb) -> R) -> R;
}

impl Stored for StoredUdpPcb {
    fn look<R>(&self, f: impl FnOnce(&UdpPcb) -> R) -> R {
        f(&self.pcb)
    }
}

/// A PCB, and its cached routes.
pub(crate) struct StoredUdpPcb {
    /// The PCB.
    pub pcb: UdpPcb,
    /// Cached routes to the latest peers. Their generation is checked at each use.
    pub routes: RecentRoutes,
    /// The size of its receive queue in the stack's account, in bytes.
    charged: usize,
}

impl StoredUdpPcb {
    /// For a socket bound to `local`.
    pub(crate) fn new(local: SocketAddr) -> StoredUdpPcb {
        StoredUdpPcb { pcb: UdpPcb::new(local), routes: RecentRoutes::default(), charged: 0 }
    }

    /// The growth of its receive queue since the last call, in bytes, to be entered into the account.
    #[inline]
    pub(crate) fn growth(&mut self) -> i64 {
        let held = self.pcb.held();
        held as i64 - std::mem::replace(&mut self.charged, held) as i64
    }
}

/// One socket.
pub(crate) struct Bound<S, P: Platform> {
    /// The part held by its users.
    pub socket: Arc<UdpShared<P>>,
    /// Its PCB.
    pub pcb: S,
}

/// A socket, for a caller with exclusive use.
pub struct HeldSocket<'a, P: Platform> {
    /// Its PCB.
    pub pcb: &'a mut UdpPcb,
    /// The ways to its peers.
    pub routes: &'a mut RecentRoutes,
    /// The part held by its users.
    pub socket: &'a Arc<UdpShared<P>>,
    /// The counters of the calling thread.
    pub counters: &'a Counters,
    /// The stack.
    pub shared: &'a Shared<P>,
    /// How its readiness is written.
    pub writers: Writers,
}

/// The sockets of one port, in the order in which they were bound: nearly always one.
type OfPort<S, P> = SmallVec<[Bound<S, P>; 1]>;

/// Sockets by port.
pub(crate) struct UdpTable<S, P: Platform> {
    ports: HashMap<u16, OfPort<S, P>, BuildHasherDefault<Spread>>,
}

impl<S, P: Platform> Default for UdpTable<S, P> {
    fn default() -> Self {
        UdpTable { ports: HashMap::default() }
    }
}

impl<S: Stored, P: Platform> UdpTable<S, P> {
    /// Puts a socket in.
    pub(crate) fn insert(&mut self, socket: Arc<UdpShared<P>>, pcb: S) {
        self.ports.entry(socket.name().port).or_default().push(Bound { socket, pcb });
    }

    /// Takes out all sockets; those of one port in the order of insertion.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Bound<S, P>> + use<S, P> {
        std::mem::take(&mut self.ports).into_values().flatten()
    }

    /// Every socket.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bound<S, P>> {
        self.ports.values().flatten()
    }

    /// Takes a socket out.
    pub(crate) fn remove(&mut self, name: UdpName) -> Option<Bound<S, P>> {
        let sockets = self.ports.get_mut(&name.port)?;
        let index = sockets.iter().position(|bound| bound.socket.name() == name)?;
        let bound = sockets.remove(index);
        if sockets.is_empty() {
            self.ports.remove(&name.port);
        }
        Some(bound)
    }

    /// The socket of this name.
    pub(crate) fn find(&mut self, name: UdpName) -> Option<&mut Bound<S, P>> {
        self.ports.get_mut(&name.port)?.iter_mut().find(|bound| bound.socket.name() == name)
    }

    /// The socket that matches a datagram of this tuple best: connected before exact before wildcard.
    pub(crate) fn best(&mut self, tuple: &FourTuple) -> Option<&mut Bound<S, P>> {
        let source = SocketAddr::new(tuple.remote_addr, tuple.remote_port);
        let destination = SocketAddr::new(tuple.local_addr, tuple.local_port);
        let sockets = self.ports.get_mut(&tuple.local_port)?.iter_mut();
        let scored =
            sockets.filter_map(|bound| bound.pcb.look(|pcb| pcb.score(source, destination)).map(|s| (s, bound)));
        scored.max_by_key(|(score, _)| *score).map(|(_, bound)| bound)
    }
}
