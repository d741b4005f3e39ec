//! The listening sockets that a cell knows: replicas of listeners.
//!
//! The shared part of a listener is behind an `Arc`; a replica is the entry that leads to it. An architecture changes
//! the replicas of all its cells before a `listen` or a `close` is complete (`RunningArchitecture::control`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use observe::Time;
use smallvec::SmallVec;
use sync::Platform;
use tcp::listen::{self, ListenMatch};
use wire::FourTuple;

use crate::call::ControlRequest;
use crate::socket::{ListenerReplica, ListenerShared};

type PortMap<P> = HashMap<u16, SmallVec<[ListenerReplica<P>; 1]>, BuildHasherDefault<Spread>>;

/// A hash of ports. Only local users choose which ports are bound, so it needs no key.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u16((*byte).into()));
    }

    /// Multiplicative hash (Knuth, volume 3, section 6.4): the map takes the bucket from the low bits and a tag from
    /// the highest.
    #[inline]
    fn write_u16(&mut self, port: u16) {
        self.0 = (self.0 ^ u64::from(port)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The receiver of a segment that belongs to no connection.
pub enum Unmatched<P: Platform> {
    /// This listener (RFC 9293, 3.10.7.2).
    Listener(ListenerReplica<P>),
    /// This listener, if the segment returns one of its cookies.
    Cookie(ListenerReplica<P>),
    /// None: it is answered as in CLOSED (3.10.7.1).
    Nobody,
}

/// Bound sockets by port. The owner provides exclusive access.
pub struct BoundSockets<P: Platform> {
    listeners: PortMap<P>,
}

/// For another cell, with replicas of its own.
impl<P: Platform> Clone for BoundSockets<P> {
    fn clone(&self) -> Self {
        let of_port = |(port, replicas): (&u16, &SmallVec<[ListenerReplica<P>; 1]>)| {
            (*port, replicas.iter().map(|replica| ListenerReplica::of(Arc::clone(replica))).collect())
        };
        BoundSockets { listeners: self.listeners.iter().map(of_port).collect() }
    }
}

impl<P: Platform> Default for BoundSockets<P> {
    fn default() -> Self {
        BoundSockets { listeners: HashMap::default() }
    }
}

impl<P: Platform> BoundSockets<P> {
    /// The listener that matches `tuple` best: an exact address before a wildcard.
    pub fn listener(&self, tuple: &FourTuple) -> Option<ListenerReplica<P>> {
        let candidates = self.listeners.get(&tuple.local_port)?.iter();
        let fitting = candidates.filter_map(|listener| Some((listener.fits(tuple.local_addr)?, listener)));
        fitting.max_by_key(|(fit, _)| *fit).map(|(_, listener)| listener.clone())
    }

    /// The receiver of `segment`, which belongs to no connection.
    pub fn unmatched(&self, segment: &tcp::Segment, now: Time) -> Unmatched<P> {
        let claim = listen::claim(segment);
        if claim == ListenMatch::Nothing {
            return Unmatched::Nobody;
        }
        match self.listener(&segment.tuple) {
            Some(listener) if claim == ListenMatch::Listener => Unmatched::Listener(listener),
            Some(listener) if listener.awaits_cookie(now) => Unmatched::Cookie(listener),
            _ => Unmatched::Nobody,
        }
    }

    /// Inserts or removes a replica. Both are idempotent.
    pub fn apply(&mut self, change: ControlRequest<P>) {
        match change {
            // One that nobody waited for may come when its listener has closed.
            ControlRequest::Listen(listener) if listener.is_closed() => {}
            ControlRequest::Listen(listener) => insert(&mut self.listeners, listener.local().port(), listener),
            ControlRequest::Unlisten(listener) => remove(&mut self.listeners, listener.local().port(), &listener),
            // A socket that is bound outlives devices and addresses.
            ControlRequest::LinkDown(_) | ControlRequest::AddressLost(_) | ControlRequest::Trim => {}
        }
    }
}

fn insert<P: Platform>(map: &mut PortMap<P>, port: u16, socket: Arc<ListenerShared<P>>) {
    let sockets = map.entry(port).or_default();
    if !sockets.iter().any(|other| Arc::ptr_eq(other, &socket)) {
        sockets.push(ListenerReplica::of(socket));
    }
}

fn remove<P: Platform>(map: &mut PortMap<P>, port: u16, socket: &Arc<ListenerShared<P>>) {
    let Some(sockets) = map.get_mut(&port) else { return };
    sockets.retain(|other| !Arc::ptr_eq(other, socket));
    if sockets.is_empty() {
        map.remove(&port);
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;
    use crate::alarm::Alarms;

    fn listener() -> Arc<ListenerShared<Real>> {
        let local = "[::]:80".parse().expect("an address");
        ListenerShared::new(local, (8, 8), Default::default(), Arc::new(Alarms::new(1)))
    }

    /// Of a segment to that listener.
    fn tuple() -> FourTuple {
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        FourTuple { local_addr: address, remote_addr: address, local_port: 80, remote_port: 2000 }
    }

    /// A cell may be notified of a listener when that has closed and was removed from it: nothing would remove the replica any more.
    #[test]
    fn a_replica_that_comes_when_its_listener_has_closed_is_not_entered() {
        let (listener, tuple) = (listener(), tuple());
        let mut sockets = BoundSockets::default();
        sockets.apply(ControlRequest::Listen(listener.clone()));
        assert!(sockets.listener(&tuple).is_some());
        sockets.apply(ControlRequest::Unlisten(listener.clone()));
        assert!(sockets.listener(&tuple).is_none());
        listener.close();
        sockets.apply(ControlRequest::Listen(listener));
        assert!(sockets.listener(&tuple).is_none());
    }

    /// The references that a cell's handshakes take are counted in the cell's memory, and not in the listener's.
    #[test]
    fn the_replicas_of_two_cells_are_counted_apart() {
        let (listener, tuple) = (listener(), tuple());
        let mut one = BoundSockets::default();
        one.apply(ControlRequest::Listen(listener.clone()));
        let other = one.clone();
        let [first, second, third] = [&one, &one, &other].map(|cell| cell.listener(&tuple).expect("it is bound"));
        let counts = [&first, &third].map(ListenerReplica::count);
        assert_eq!((counts, Arc::strong_count(&listener)), ([3, 2], 3), "one of each cell, and one of the user");
        assert!(Arc::ptr_eq(&second, &third));
    }
}
