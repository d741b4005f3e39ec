//! Handshakes of passive opens in one place: the SYN cache with the stack's data for each half-open connection, and the
//! processing of a SYN, an acknowledgement and a time-out through listener, routes and devices.
//!
//! [`tcp::handshake`] decides which SYNs are answered, kept and given up. This file has the storage, the places in the
//! listeners' backlogs, and the transmission. It belongs to the owner of the connection table.
//!
//! What may never happen: a place in a backlog that is neither passed on with a connection nor returned.

use std::net::IpAddr;

use observe::{Counters, DropReason, Time};
use sync::Platform;
use tcp::fast_open::CookieKeys;
use tcp::handshake::{self, SynCache, SynOutcome, SynResponse};
use tcp::{
    ConnectionOptions, HalfOpen, Isn, ListenParams, Outbox, PathUpdate, Pcb, Progress, Readiness, Segment, TableChange,
    syn_cookie,
};
use wire::FourTuple;

use crate::deferred::DeferredEffects;
use crate::flow::Flow;
use crate::icmp::{IcmpReport, report};
use crate::recent_prototype::RecentPrototype;
use crate::recent_routes::RecentRoutes;
use crate::route_cache::RouteCache;
use crate::shared::Shared;
use crate::socket::{Admission, ListenerReplica, ListenerShared};
use crate::table::flow_bindings::CellBindings;
use crate::table::index::VacantEntry;

/// The stack's data for a half-open connection.
struct Kept<P: Platform> {
    listener: ListenerReplica<P>,
    route: RouteCache,
    absent: VacantEntry,
}

/// A segment of a flow that has no connection, and the parts needed to process it.
pub(crate) struct HandshakeSegment<'a, P: Platform> {
    /// The stack.
    pub shared: &'a Shared<P>,
    /// The flow.
    pub flow: &'a Flow,
    /// Its vacant entry in the connection table.
    pub absent: VacantEntry,
    /// The segment; `None` once it has been taken.
    pub segment: &'a mut Option<Segment>,
    /// Receives the PCB of a [`Child`].
    pub child: &'a mut Option<Pcb>,
    /// The time of its batch.
    pub now: Time,
    /// The counters of its place.
    pub counters: &'a Counters,
    /// Effects to be performed once the place is released.
    pub deferred: &'a mut DeferredEffects<P>,
}

/// A connection that has just been established, not yet in the table. Its PCB is in `HandshakeSegment::child`.
pub(crate) struct Child<P: Platform> {
    /// Its flow.
    pub flow: Flow,
    /// Its route.
    pub route: RouteCache,
    /// The place that it holds in the backlog of the listener that admitted it.
    pub admission: Admission<P>,
    /// Its readiness edge.
    pub ready: Readiness,
    /// Its earliest deadline.
    pub deadline: Option<Time>,
    /// The information of its first event about its path.
    pub path: PathUpdate,
    /// The change for its table.
    pub table: TableChange,
    /// It has payload to send, and its device has no room.
    pub tx_blocked: bool,
    /// Its vacant entry in the connection table.
    pub absent: VacantEntry,
}

/// Half-open connections of one place; see the module documentation.
pub struct Handshakes<P: Platform> {
    cache: SynCache<Kept<P>>,
    /// The references of half-open connections to the bindings of their flows.
    pub bindings: CellBindings<P>,
    /// The routes to the peers of recent connections, opened by either side.
    pub routes: RecentRoutes,
    prototype: RecentPrototype<P>,
}

impl<P: Platform> Default for Handshakes<P> {
    fn default() -> Self {
        Handshakes {
            cache: SynCache::default(),
            bindings: CellBindings::default(),
            routes: RecentRoutes::default(),
            prototype: RecentPrototype::default(),
        }
    }
}

/// A half-open connection between two places.
pub(crate) struct MovingHandshake<P: Platform> {
    half_open: HalfOpen,
    kept: Kept<P>,
    hash: u32,
}

impl<P: Platform> MovingHandshake<P> {
    /// The hash of its flow.
    pub(crate) fn flow_hash(&self) -> u32 {
        self.half_open.flow_hash()
    }
}

impl<P: Platform> Handshakes<P> {
    /// Takes out every half-open connection, to move it to other places.
    pub(crate) fn take(&mut self) -> Vec<MovingHandshake<P>> {
        let entries = std::mem::take(&mut self.cache).into_entries();
        let moving = |(half_open, kept, hash): (HalfOpen, _, _)| {
            self.bindings.release(half_open.flow_hash());
            MovingHandshake { half_open, kept, hash }
        };
        entries.map(moving).collect()
    }

    /// Inserts half-open connections from other places. The connection table may have the tuple of one.
    pub(crate) fn restore(&mut self, mut moving: Vec<MovingHandshake<P>>, config: &tcp::Config, now: Time) {
        moving.sort_by_key(|moving| moving.half_open.deadline(config, now));
        for MovingHandshake { half_open, kept, hash } in moving {
            self.bindings.hold(half_open.flow_hash());
            self.cache.insert(half_open, kept, hash, config, now);
        }
        self.cache.conceal_all();
    }

    /// Gives back the memory that a peak has left behind.
    pub fn trim(&mut self) {
        self.cache.trim();
        self.prototype = RecentPrototype::default();
    }

    /// Half-open connections.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Memory held, in bytes.
    pub fn footprint(&self) -> usize {
        self.cache.footprint()
    }

    /// When `Handshakes::timeouts` next has something to do, in nanoseconds; `u64::MAX` for never. One load.
    #[inline]
    pub fn cached_deadline(&self) -> u64 {
        self.cache.cached_deadline()
    }

    /// The half-open connection of this flow, which the connection table does not have.
    #[inline]
    pub fn find(&self, flow: &Flow, absent: VacantEntry) -> Option<u32> {
        self.cache.find(&flow.tuple, absent.hash())
    }

    /// The value that a look-up in the connection table would return for this tuple, which the table does not have, if the
    /// half-open connection of the tuple can be told by the hash of its flow. `None`: perhaps there is one all the same.
    #[inline]
    pub fn recall(&mut self, tuple: &FourTuple, flow_hash: u32) -> Option<VacantEntry> {
        self.cache.recall(tuple, flow_hash).map(VacantEntry::from_hash)
    }

    /// A connection with this flow enters the table, other than by a handshake of these: [`Handshakes::recall`] must not
    /// name its tuple.
    #[inline]
    pub fn conceal(&mut self, flow: &Flow) {
        if !self.is_empty() {
            self.cache.conceal(flow.hash);
        }
    }

    /// Gives up the handshakes with this local address.
    #[cold]
    pub fn abandon(&mut self, address: IpAddr) {
        let Handshakes { cache, bindings, .. } = self;
        cache.abandon(address, |flow_hash, kept| {
            bindings.release(flow_hash);
            kept.listener.abandon();
        });
    }
}

/// The parameters of a listener's children. `options` are the listener's, completed with those of the path. The MSS
/// matters only when a SYN is answered.
fn params<'o, P: Platform>(options: &'o ConnectionOptions, listener: &ListenerShared<P>, mss: u16) -> ListenParams<'o> {
    ListenParams { mss, options, defer_accept: listener.defer_accept() }
}

impl<P: Platform> Handshakes<P> {
    /// Processes a SYN for a listener: it is stored, answered with a cookie, or dropped; or its connection opens at
    /// once.
    pub(crate) fn syn_arrives(
        &mut self,
        listener: ListenerReplica<P>,
        arrival: HandshakeSegment<'_, P>,
    ) -> Option<Child<P>> {
        let HandshakeSegment { shared, flow, absent, segment, child, now, counters, deferred } = arrival;
        let answer = match admit(shared, &listener, segment.as_ref()?, now) {
            Ok(answer) => answer,
            Err(reason) => {
                counters.count_drop(reason);
                return None;
            }
        };
        let peer = flow.tuple.remote_addr;
        let mut route = self.routes.recall(peer, shared.routes().generation());
        let recalled = route.generation;
        let mut out = shared.egress().outbox(shared.control(), flow, &route, counters);
        let other = other_options(shared, &listener, peer);
        let options = other.as_deref().unwrap_or(listener.options());
        let params = params(options, &listener, mss_on(shared, &route, peer, now));
        let secrets = (isn_of(shared, flow, now), shared.secrets.handshake());
        let opened = handshake::syn_arrives(answer, &params, segment, secrets, (child, &mut out), now);
        shared.egress().emit(flow, &mut route, &mut out, deferred);
        match opened {
            Ok(SynOutcome::HalfOpen(half_open)) => {
                if route.generation != recalled {
                    self.routes.note(peer, &route);
                }
                // It owns nothing then, and dropping it would be a call that does nothing.
                if out.segments.is_empty() && !out.segments.spilled() && out.spare.is_none() {
                    std::mem::forget(out);
                }
                let kept = Kept { listener, route, absent };
                self.bindings.hold(flow.hash);
                self.cache.insert(half_open, kept, absent.hash(), shared.control().tcp(), now);
                None
            }
            Ok(SynOutcome::Early) => Some(Child::new((*flow, absent), route, Admission::Early(listener), &out)),
            Ok(SynOutcome::CookieSent) => {
                listener.note_cookie(now);
                None
            }
            Err(_) => {
                Admission::of(answer, listener).into_iter().for_each(Admission::abandon);
                None
            }
        }
    }

    /// A segment of a half-open connection: the child, if the handshake is complete.
    pub(crate) fn segment_arrives(&mut self, slot: u32, arrival: HandshakeSegment<'_, P>) -> Option<Child<P>> {
        let HandshakeSegment { shared, segment, child, now, counters, deferred, .. } = arrival;
        let (half_open, Kept { listener, route, .. }) = self.cache.get_mut(slot)?;
        let flow = Flow { tuple: *half_open.tuple(), hash: half_open.flow_hash() };
        let other = other_options(shared, listener, flow.tuple.remote_addr);
        let params = params(other.as_deref().unwrap_or(listener.options()), listener, u16::MAX);
        let prototype = match other {
            None => self.prototype.of(listener, half_open, &params, (shared.control().tcp(), now)),
            Some(_) => None,
        };
        let mut out = shared.egress().outbox(shared.control(), &flow, route, counters);
        let progress = half_open.segment_arrives((&params, prototype), segment, (child, &mut out), now);
        emit_waiting(shared, &flow, route, &mut out, deferred);
        match progress {
            Progress::Waiting => None,
            Progress::Ended => {
                self.bindings.release(flow.hash);
                self.cache.remove(slot)?.listener.abandon();
                None
            }
            Progress::Established => {
                self.bindings.release(flow.hash);
                let Kept { listener, route, absent } = self.cache.remove(slot)?;
                Some(Child::new((flow, absent), route, Admission::Handshake(listener), &out))
            }
        }
    }

    /// An ICMP error about a segment of a half-open connection, which it may end.
    pub(crate) fn icmp_error(&mut self, slot: u32, error: &ip::ReceivedIcmpError, counters: &Counters) {
        let IcmpReport::Error(error) = report(error, |_, _| None) else { return };
        let Some((half_open, _)) = self.cache.get_mut(slot) else { return };
        if !half_open.is_quoted(&error) {
            counters.count_drop(DropReason::IcmpOutOfWindow);
        } else if half_open.is_ended_by(&error) {
            self.bindings.release(half_open.flow_hash());
            self.cache.remove(slot).into_iter().for_each(|kept| kept.listener.abandon());
        }
    }

    /// Retransmits the SYN-ACKs that are due, and gives up handshakes that were not completed in time.
    pub(crate) fn timeouts(
        &mut self,
        shared: &Shared<P>,
        now: Time,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let config = shared.control().tcp();
        let Handshakes { cache, bindings, .. } = self;
        while let Some(slot) = cache.due(config, now) {
            let given_up = cache.time_out(slot, config, now, |half_open, kept| {
                let flow = Flow { tuple: *half_open.tuple(), hash: half_open.flow_hash() };
                let other = other_options(shared, &kept.listener, flow.tuple.remote_addr);
                let options = other.as_deref().unwrap_or(kept.listener.options());
                let params = params(options, &kept.listener, u16::MAX);
                let limit = kept.listener.backlog().syn_ack_retries(config);
                let mut out = shared.egress().outbox(shared.control(), &flow, &kept.route, counters);
                let stays = half_open.timed_out(&params, limit, &mut out, now);
                emit_waiting(shared, &flow, &mut kept.route, &mut out, deferred);
                if !stays {
                    bindings.release(flow.hash);
                }
                stays
            });
            if let Some(kept) = given_up {
                kept.listener.abandon();
            }
        }
    }
}

/// The options that connections of `listener` with `peer` start with, if they are not its own: completed with those of the
/// path, or with another hop limit.
#[inline]
fn other_options<P: Platform>(
    shared: &Shared<P>,
    listener: &ListenerShared<P>,
    peer: IpAddr,
) -> Option<Box<ConnectionOptions>> {
    let differ = shared.routes().describes_paths() || listener.hop_limit() != listener.options().hop_limit;
    if differ { Some(options_on_path(shared, listener, peer)) } else { None }
}

#[cold]
#[inline(never)]
fn options_on_path<P: Platform>(
    shared: &Shared<P>,
    listener: &ListenerShared<P>,
    peer: IpAddr,
) -> Box<ConnectionOptions> {
    let options = shared.routes().on_path(shared.links(), listener.options(), peer).into_owned();
    Box::new(ConnectionOptions { hop_limit: listener.hop_limit(), ..options })
}

/// Has `tcp` decide a listener's answer to a SYN, and takes the places in its backlog that the answer needs.
fn admit<P: Platform>(
    shared: &Shared<P>,
    listener: &ListenerShared<P>,
    syn: &Segment,
    now: Time,
) -> Result<SynResponse, DropReason> {
    let config = shared.control().tcp();
    let limit = listener.fast_open_limit(config.fast_open);
    let keys = (limit > 0).then(|| {
        let set = listener.fast_open_keys().unwrap_or(config.fast_open_keys);
        CookieKeys::new(set, &shared.secrets.handshake().fast_open)
    });
    let answer = handshake::admit(syn, &listener.take_place(), keys.as_ref(), (config, shared.control().scarcity()));
    if !answer.is_ok_and(|answer| answer.is_remembered()) {
        listener.abandon();
    }
    match answer? {
        SynResponse::Early { .. } if !listener.admit_fast_open(limit, now) => Ok(answer?.without_fast_open()),
        answer => Ok(answer),
    }
}

/// The MSS of the path of a cached route.
fn mss_on<P: Platform>(shared: &Shared<P>, route: &RouteCache, peer: IpAddr, now: Time) -> u16 {
    match route.leaves_by(shared.routes().generation()) {
        Some(port) => shared.routes().mss_by(shared.links(), shared.links().interface_of(port), peer, now),
        None => shared.routes().mss(shared.links(), peer, now),
    }
}

/// An acknowledgement that belongs to no connection, for a listener that has sent cookies: the child, if it returns a
/// valid cookie. Otherwise it is answered as in CLOSED.
pub(crate) fn cookie_arrives<P: Platform>(
    listener: ListenerReplica<P>,
    arrival: HandshakeSegment<'_, P>,
) -> Option<Child<P>> {
    let HandshakeSegment { shared, flow, absent, segment: arrived, child, now, counters, deferred } = arrival;
    let segment = arrived.as_ref()?;
    let peer = flow.tuple.remote_addr;
    let other = other_options(shared, &listener, peer);
    let options = other.as_deref().unwrap_or(listener.options());
    let params = params(options, &listener, shared.routes().mss(shared.links(), peer, now));
    let (isn, secrets) = (isn_of(shared, flow, now), shared.secrets.handshake());
    let Some(half_open) = syn_cookie::accept(&params, segment, isn, secrets, shared.control().tcp(), now) else {
        counters.count_drop(DropReason::SynCookieInvalid);
        shared.egress().reset(shared.control(), flow, segment, counters, deferred);
        return None;
    };
    let admission = Admission::Handshake(listener.clone());
    if let Err(reason) = listener.take_place().admit_cookie() {
        counters.count_drop(reason);
        admission.abandon();
        return None;
    }
    let mut route = RouteCache::at_generation(shared.routes().generation());
    let mut out = shared.egress().outbox(shared.control(), flow, &route, counters);
    let complete = syn_cookie::complete(half_open, &params, arrived, (child, &mut out), now);
    shared.egress().emit(flow, &mut route, &mut out, deferred);
    if !complete {
        admission.abandon();
        return None;
    }
    Some(Child::new((*flow, absent), route, admission, &out))
}

/// [`Egress::emit`](crate::tx::Egress::emit) for a half-open connection. If routes have changed since its SYN arrived,
/// the child, if there will be one, finds out when it first sends.
fn emit_waiting<P: Platform>(
    shared: &Shared<P>,
    flow: &Flow,
    route: &mut RouteCache,
    out: &mut Outbox<'_>,
    deferred: &mut DeferredEffects<P>,
) {
    if out.segments.is_empty() {
        return;
    }
    let mut latest = *route;
    shared.egress().emit(flow, &mut latest, out, deferred);
    if out.path == PathUpdate::None {
        *route = latest;
    }
}

fn isn_of<P: Platform>(shared: &Shared<P>, flow: &Flow, now: Time) -> Isn {
    let (iss, ts_offset) = shared.secrets.isn().beginning(&flow.tuple, now);
    Isn { iss, ts_offset, flow_hash: Some(flow.hash) }
}

impl<P: Platform> Child<P> {
    fn new((flow, absent): (Flow, VacantEntry), route: RouteCache, admission: Admission<P>, out: &Outbox<'_>) -> Self {
        let Outbox { path, table, tx_blocked, ref local, .. } = *out;
        let tcp::LocalEffects { ready, deadline, .. } = *local;
        Child { flow, route, admission, ready, deadline, path, table, tx_blocked, absent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Together with a half-open connection and its links: the 128 bytes that each SYN of a flood takes.
    #[test]
    fn what_is_kept_of_a_syn_is_small() {
        assert!(size_of::<Kept<sync::Real>>() <= 40, "{} bytes", size_of::<Kept<sync::Real>>());
    }
}
