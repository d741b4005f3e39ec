//! Asynchronous events arrive: a segment, a datagram, an ICMP error, room in a device.
//!
//! A segment is looked up among the connections, then among the half-open ones, then among the listeners; if none
//! matches it is answered as in CLOSED. The directory is held from the look-up that finds no connection until the new
//! one is inserted.

use observe::{DropReason, Time};
use tcp::{Pcb, TableChange};

use super::datagrams::Datagrams;
use super::events::{Events, ResetOnPanic};
use super::handlers::HandledConnections;
use super::place::{DirectoryOf, Effects, NewConnection, Place, Site, UnawaitedEvent};
use crate::bound_sockets::Unmatched;
use crate::call::{ArrivingSegment, Ingress};
use crate::deferred::DeferredEffects;
use crate::flow::Flow;
use crate::handshakes::{Child, HandshakeSegment, cookie_arrives};
use crate::icmp::{IcmpReport, report};
use crate::socket::Admitted;

/// Arrivals; see the module documentation.
pub trait Arrivals: Place {
    /// Runs an event from a device or a timer. All architectures with cells share this one copy, so that `cargo xtask
    /// exclusive` counts only what each adds, and the processor's caches hold it once.
    ///
    /// The event is passed by reference, so that it is not moved on the way here.
    #[inline(never)]
    fn ingress(&mut self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        match ingress {
            Ingress::Segment(arrival) => self.segment(arrival, now, deferred),
            other => self.slow_path(std::mem::take(other), now, deferred),
        }
    }

    /// Every arrival other than a segment.
    #[inline(never)]
    fn slow_path(&mut self, ingress: Ingress, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        match ingress {
            Ingress::Segment(_) | Ingress::Run(_) => debug_assert!(false, "segments do not come this way"),
            Ingress::Datagram(datagram) => self.datagram(datagram, deferred),
            Ingress::IcmpError { error, hash } => self.icmp_error(&error, hash, now, deferred),
            Ingress::Posted(target) => {
                if let Some((id, held)) = self.find_key(target.key) {
                    drop(held);
                    self.call_handler(&id, now, deferred);
                }
            }
            Ingress::TransmitReady(target) => {
                if let Some((id, held)) = self.find_key(target.key)
                    && self.admit(&id, UnawaitedEvent::TransmitReady, now)
                {
                    self.run_contained(&id, held, tcp::TransmitReady, now, deferred);
                }
            }
        }
    }

    /// A segment arrives.
    #[inline(always)]
    fn segment(&mut self, arrival: &mut ArrivingSegment, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        let Some(segment) = &arrival.segment else { return };
        match self.find(&segment.tuple, arrival.hash) {
            Ok((id, held)) => {
                if !self.admit(&id, UnawaitedEvent::Segment(&mut arrival.segment), now) {
                    return;
                }
                let guard = ResetOnPanic { place: self, id: &id, now, deferred };
                let recycled = guard.place.arrives(guard.id, held, &mut arrival.segment, now, guard.deferred);
                std::mem::forget(guard);
                if let Some(segment) = recycled {
                    self.recycled(ArrivingSegment { segment: Some(*segment), ..*arrival }, now, deferred);
                }
            }
            Err(missing) => self.unmatched(arrival, missing, now, deferred),
        }
    }

    /// A SYN for which a connection in TIME-WAIT was closed.
    #[cold]
    fn recycled(&mut self, mut arrival: ArrivingSegment, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        let Some(segment) = &arrival.segment else { return };
        // Releases the lock that the look-up keeps: the next look-up takes it again.
        match self.find(&segment.tuple, arrival.hash).map(drop) {
            Err(missing) => self.unmatched(&mut arrival, missing, now, deferred),
            Ok(()) => self.appeared(&mut arrival, now, deferred),
        }
    }

    /// A segment arrives that matches no connection in the table: it may belong to a half-open connection or a
    /// listener.
    #[cold]
    fn unmatched(
        &mut self,
        arrival: &mut ArrivingSegment,
        missing: Self::Missing,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) {
        let Some(segment) = &arrival.segment else { return };
        let flow = Flow { tuple: segment.tuple, hash: arrival.hash };
        // Beside the outcome: moved out of it, it would be copied twice.
        let mut adopted = None;
        let (outcome, due) = self.with_directory(|directory, site| {
            let outcome = unmatched(directory, site, (&flow, missing), (arrival, &mut adopted), now, deferred);
            (outcome, directory.half_open.cached_deadline())
        });
        if let Some(Adopted { id, effects, admitted }) = adopted {
            self.settle(&id, effects, now, deferred);
            if let Some(admitted) = admitted {
                self.admitted(&id, admitted, now, deferred);
            }
        }
        match outcome {
            UnmatchedOutcome::Done => {}
            UnmatchedOutcome::Nobody => {
                let (shared, counters) = (self.shared(), self.counters());
                counters.count_drop(DropReason::TcpNoListener);
                if let Some(segment) = &arrival.segment {
                    shared.egress().reset(shared.control(), &flow, segment, counters, deferred);
                }
            }
            UnmatchedOutcome::Appeared => self.appeared(arrival, now, deferred),
        }
        self.call_for(due, deferred);
    }

    /// An ICMP error arrives: it is for the connection, the half-open connection or the datagram socket that sent the
    /// packet it quotes.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
    //# TCP implementations MUST act on an ICMP error message passed up from the IP layer, directing it to the
    //# connection that created the error (MUST-54).
    #[cold]
    fn icmp_error(
        &mut self,
        error: &ip::ReceivedIcmpError,
        hash: u32,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) {
        if error.protocol == wire::protocol::UDP {
            return self.datagram_error(error, deferred);
        }
        let flow = Flow { tuple: error.tuple, hash };
        let missing = match self.find(&flow.tuple, hash) {
            Ok((id, held)) => return self.connection_error(&id, held, error, now, deferred),
            Err(missing) => missing,
        };
        self.with_directory(|directory, site| {
            let Some(absent) = Self::absent(directory, missing, &flow) else { return };
            if let Some(slot) = directory.half_open.find(&flow, absent) {
                directory.half_open.icmp_error(slot, error, site.counters);
            }
        });
    }

    /// An ICMP error about a segment of this connection.
    #[cold]
    fn connection_error(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        error: &ip::ReceivedIcmpError,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) {
        match report(error, |error, mtu| self.shared().routes().estimate(self.shared().links(), error, mtu, now)) {
            IcmpReport::Error(event) => {
                self.run_contained(id, held, event, now, deferred);
            }
            IcmpReport::TooBig(event, path) => {
                if self.run_contained(id, held, event, now, deferred) == Some(true) {
                    self.shared().routes().learn_path_mtu(self.shared().links(), error.tuple.remote_addr, path, now);
                }
            }
            IcmpReport::Nothing => {}
        }
    }
}

impl<L: Events> Arrivals for L {}

/// A connection that entered the table by its handshake.
struct Adopted<L: Place> {
    id: L::Id,
    effects: Effects,
    admitted: Option<Admitted<L::Platform>>,
}

/// The outcome for a segment that belonged to no connection.
enum UnmatchedOutcome {
    /// It was taken, or dropped.
    Done,
    /// No socket takes it.
    Nobody,
    /// Its connection is in the table now: another thread has completed the handshake.
    Appeared,
}

/// [`Arrivals::unmatched`], with the directory held. `adopted`: a connection that it completed the handshake of, or that it opened at
/// once.
#[inline]
fn unmatched<L: Place>(
    directory: &mut DirectoryOf<L>,
    site: &Site<'_, L>,
    (flow, missing): (&Flow, L::Missing),
    (arrival, adopted): (&mut ArrivingSegment, &mut Option<Adopted<L>>),
    now: Time,
    deferred: &mut DeferredEffects<L::Platform>,
) -> UnmatchedOutcome {
    let Some(absent) = L::absent(directory, missing, flow) else { return UnmatchedOutcome::Appeared };
    let (shared, counters) = (site.shared, site.counters);
    let segment = &mut arrival.segment;
    let mut pcb = None;
    let arrival =
        HandshakeSegment { shared, flow, absent, segment, child: &mut pcb, now, counters, deferred: &mut *deferred };
    let half_open = &mut directory.half_open;
    let child = if let Some(slot) = half_open.find(flow, absent) {
        half_open.segment_arrives(slot, arrival)
    } else {
        let Some(segment) = arrival.segment.as_ref() else { return UnmatchedOutcome::Done };
        match directory.bound_sockets.unmatched(segment, now) {
            Unmatched::Listener(listener) => half_open.syn_arrives(listener, arrival),
            Unmatched::Cookie(listener) => cookie_arrives(listener, arrival),
            Unmatched::Nobody => return UnmatchedOutcome::Nobody,
        }
    };
    if let Some(child) = child {
        adopt(directory, site, (child, &mut pcb), adopted, deferred);
    }
    UnmatchedOutcome::Done
}

/// A handshake is complete, or its connection opens early: it enters the table and the accept queue.
#[inline]
fn adopt<L: Place>(
    directory: &mut DirectoryOf<L>,
    site: &Site<'_, L>,
    (child, pcb): (Child<L::Platform>, &mut Option<Pcb>),
    adopted: &mut Option<Adopted<L>>,
    deferred: &mut DeferredEffects<L::Platform>,
) {
    let Child { flow, route, admission, ready, deadline, path, table, tx_blocked, absent } = child;
    let socket = L::new_socket(directory, &flow);
    socket.ready.begin(ready, site.writers);
    let new = NewConnection { flow, pcb, route, socket: socket.clone() };
    let Some((id, key)) = L::insert(directory, site, new, absent) else { return };
    socket.placed(key);
    if tx_blocked {
        site.shared.egress().wait_for_room(&flow, &route, socket.target(), deferred);
    }
    // Nearly every child is complete here; its place returns to the listener before the directory is released.
    let (admitted, table, rest) = match table {
        TableChange::Established => match admission.enter(socket) {
            Admitted::New(listener, rest) => (Some(Admitted::New(listener, None)), TableChange::None, rest),
            other => (Some(other), TableChange::None, None),
        },
        table => (None, table, Some(admission)),
    };
    if let Some(rest) = rest {
        directory.early.insert(key.slot, rest);
    }
    *adopted = Some(Adopted { id, effects: Effects { deadline, path, table }, admitted });
}
