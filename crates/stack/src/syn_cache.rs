//! The SYN cache (RFC 4987 section 3.5): half-open connections of one cell, found by tuple, each of 112 octets; and what
//! a listener does with SYNs, with their acknowledgements, and with cookies where nothing is remembered.
//!
//! All entries whose SYN-ACK left equally often wait equally long, so one list per number of retries, in the order of
//! sending, is a timer: its head is due first. Owned by whoever owns the connection table beside it. What may never
//! happen: an entry in no list, or memory that a SYN takes when the queue is full.

use std::net::IpAddr;
use std::sync::Arc;

use observe::{Counters, DropReason, Time};
use sync::Platform;
use tcp::config::SynCookies;
use tcp::{
    ConnectionOptions, HalfOpen, Isn, ListenParams, Outbox, PathNews, Pcb, Progress, Readiness, Segment, TableChange,
    syn_cookie,
};
use wire::FourTuple;

use crate::after::After;
use crate::connections::{Report, report};
use crate::fast_open::Verdict;
use crate::flow::Flow;
use crate::recent_routes::RecentRoutes;
use crate::route_cache::RouteCache;
use crate::secrets::Secrets;
use crate::shared::Shared;
use crate::socket::{Admission, ListenerShared};
use crate::table::private::{Absent, Entry, Table};

const NONE: u32 = u32::MAX;
/// Lists: one per number of retries; those beyond share the last, in which heads may then wait for a later one.
const STAGES: usize = 8;
/// SYN-ACKs are sent again at most this often while a listener is crowded.
const RETRIES_WHEN_CROWDED: u8 = 2;

struct Waiting<P: Platform> {
    half_open: HalfOpen,
    listener: Arc<ListenerShared<P>>,
    route: RouteCache,
    hash: u32,
    next: u32,
    prev: u32,
}

impl<P: Platform> Entry for Waiting<P> {
    fn tuple(&self) -> &FourTuple {
        self.half_open.tuple()
    }

    fn flow_hash(&self) -> u32 {
        self.hash
    }
}

#[derive(Clone, Copy)]
struct Stage {
    first: u32,
    last: u32,
}

/// A connection that has just been established, not yet in the table.
pub struct Child<P: Platform> {
    /// Its flow.
    pub flow: Flow,
    /// The connection.
    pub pcb: Box<Pcb>,
    /// Its route.
    pub route: RouteCache,
    /// What it owes the listener that admitted it.
    pub admission: Admission<P>,
    /// What rose on it.
    pub ready: Readiness,
    /// When it wants to be woken.
    pub deadline: Option<Time>,
    /// What has come to light of its path.
    pub path: PathNews,
    /// What its table must learn.
    pub table: TableChange,
    /// It has text to send and found no credit.
    pub starved: bool,
    /// Its place in the connection table, where it is not yet.
    pub absent: Absent,
}

/// See the module documentation.
pub struct SynCache<P: Platform> {
    table: Table<Waiting<P>>,
    stages: [Stage; STAGES],
    /// Not later than the earliest deadline, in nanoseconds; `u64::MAX` while there is none.
    earliest: u64,
    /// The ways to those with whom connections were opened lately, by either side.
    pub routes: RecentRoutes,
}

impl<P: Platform> SynCache<P> {
    /// An empty cache hashed with the stack's key.
    pub fn new(secrets: &Secrets) -> Self {
        SynCache {
            table: Table::uncached(secrets),
            stages: [Stage { first: NONE, last: NONE }; STAGES],
            earliest: u64::MAX,
            routes: RecentRoutes::default(),
        }
    }

    /// Half-open connections.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Memory held, in bytes.
    pub fn footprint(&self) -> usize {
        self.table.footprint()
    }

    /// When [`Shared::half_open_timeouts`] next has something to do, in nanoseconds; `u64::MAX` for never. One load.
    #[inline]
    pub fn cached_deadline(&self) -> u64 {
        self.earliest
    }

    /// The half-open connection of this flow, which the connection table does not have.
    #[inline]
    pub fn find(&mut self, flow: &Flow, absent: Absent) -> Option<u32> {
        if self.table.is_empty() { None } else { self.table.search_hashed(&flow.tuple, flow.hash, absent) }
    }

    /// Puts an entry in; its tuple is not in yet.
    fn insert(&mut self, waiting: Waiting<P>, absent: Absent, config: &tcp::Config, now: Time) {
        let key = self.table.insert(waiting, absent);
        self.append(key.slot, config, now);
    }

    /// Takes an entry out.
    fn remove(&mut self, slot: u32) -> Option<(Waiting<P>, Absent)> {
        self.unlink(slot);
        if self.table.len() == 1 {
            self.earliest = u64::MAX;
        }
        self.table.remove(slot)
    }

    /// Gives up the handshakes with this local address.
    #[cold]
    pub fn abandon(&mut self, address: IpAddr) {
        let concerned = self.table.iter_mut().filter(|(_, waiting)| waiting.half_open.tuple().local_addr == address);
        let slots: Vec<u32> = concerned.map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some((waiting, _)) = self.remove(slot) {
                waiting.listener.abandon();
            }
        }
    }

    fn append(&mut self, slot: u32, config: &tcp::Config, now: Time) {
        let Some(waiting) = self.table.at(slot) else { return };
        let stage = &mut self.stages[usize::from(waiting.half_open.retries()).min(STAGES - 1)];
        (waiting.prev, waiting.next) = (stage.last, NONE);
        let deadline = waiting.half_open.deadline(config, now).as_nanos();
        let before = std::mem::replace(&mut stage.last, slot);
        if before == NONE {
            stage.first = slot;
        } else if let Some(before) = self.table.at(before) {
            before.next = slot;
        }
        self.earliest = self.earliest.min(deadline);
    }

    fn unlink(&mut self, slot: u32) {
        let Some(waiting) = self.table.at(slot) else { return };
        let (prev, next) = (waiting.prev, waiting.next);
        let stage = usize::from(waiting.half_open.retries()).min(STAGES - 1);
        match self.table.at(prev) {
            Some(before) => before.next = next,
            None => self.stages[stage].first = next,
        }
        match self.table.at(next) {
            Some(behind) => behind.prev = prev,
            None => self.stages[stage].last = prev,
        }
    }

    /// An entry that is due; else notes when the next will be.
    fn due(&mut self, config: &tcp::Config, now: Time) -> Option<u32> {
        let mut earliest = u64::MAX;
        for stage in 0..STAGES {
            let first = self.stages[stage].first;
            let Some(waiting) = self.table.at(first) else { continue };
            let deadline = waiting.half_open.deadline(config, now);
            if deadline <= now {
                return Some(first);
            }
            earliest = earliest.min(deadline.as_nanos());
        }
        self.earliest = earliest;
        None
    }
}

/// What a listener hands to its children with these options, which are its own with what the path says. The MSS counts when a
/// SYN is answered and not afterwards.
fn params<'o, P: Platform>(options: &'o ConnectionOptions, listener: &ListenerShared<P>, mss: u16) -> ListenParams<'o> {
    ListenParams { mss, options, defer_accept: listener.defer_accept() }
}

impl<P: Platform> Shared<P> {
    /// A SYN for a listener: it is remembered, answered with a cookie, or dropped; or its connection opens at once.
    pub fn syn_arrives(
        &self,
        cache: &mut SynCache<P>,
        listener: Arc<ListenerShared<P>>,
        (flow, absent): (Flow, Absent),
        arrival: &mut Option<Segment>,
        now: Time,
        (counters, after): (&Counters, &mut After<P>),
    ) -> Option<Child<P>> {
        let syn = arrival.as_ref()?;
        let cookies = self.tcp().syn_cookies;
        let full = match (listener.admit(), cookies) {
            (Ok(()), SynCookies::Always) => {
                listener.abandon();
                true
            }
            (Ok(()), _) => false,
            (Err(DropReason::SynQueueFull), SynCookies::WhenFull | SynCookies::Always) => true,
            (Err(reason), _) => {
                counters.drop(reason);
                return None;
            }
        };
        let peer = flow.tuple.remote_addr;
        let generation = self.generation();
        let mut route = cache.routes.recall(peer, generation);
        let mut out = self.outbox(&flow, &route, counters);
        let mss = match route.leaves_by(generation) {
            Some(interface) => self.mss_by(Some(interface), peer, now),
            None => self.route_mss(peer, now),
        };
        let options = self.on_path(listener.options(), peer);
        let params = params(&options, &listener, mss);
        if full {
            let mac = |irs, epoch, class| self.secrets.syn_cookie(&flow.tuple, irs, epoch, class);
            let isn = Isn { iss: wire::SeqNumber(0), ..self.isn_of(&flow, now) };
            if syn_cookie::answer(&params, syn, isn, &mac, &mut out, now).is_ok() {
                listener.note_cookie(now);
            }
            self.emit(&flow, &mut route, &mut out, after);
            return None;
        }
        // A full queue never comes here: cookies of Fast Open open no door that SYN cookies have shut.
        let cookie = match self.judge_fast_open(&listener, syn, now) {
            Verdict::Open(cookie) => {
                let syn = arrival.take()?;
                let pcb = tcp::fast_open::accept(&params, syn, self.isn_of(&flow, now), cookie, &mut out, now);
                self.emit(&flow, &mut route, &mut out, after);
                let admission = Admission::Early(listener);
                return match pcb {
                    Ok(pcb) => Some(Child::new((flow, absent), pcb, route, admission, &out)),
                    Err(_) => {
                        admission.abandon();
                        None
                    }
                };
            }
            Verdict::Cookie(cookie) => Some(cookie),
            Verdict::Plain => None,
        };
        let half_open = tcp::listen::syn_arrives(&params, syn, self.isn_of(&flow, now), cookie, &mut out, now);
        self.emit(&flow, &mut route, &mut out, after);
        cache.routes.note(flow.tuple.remote_addr, &route);
        let Ok(half_open) = half_open else {
            listener.abandon();
            return None;
        };
        let waiting = Waiting { half_open, listener, route, hash: flow.hash, next: NONE, prev: NONE };
        cache.insert(waiting, absent, self.tcp(), now);
        None
    }

    /// A segment of a half-open connection: the child, if the handshake is complete.
    pub fn half_open_arrives(
        &self,
        cache: &mut SynCache<P>,
        slot: u32,
        arrival: &mut Option<Segment>,
        now: Time,
        (counters, after): (&Counters, &mut After<P>),
    ) -> Option<Child<P>> {
        let waiting = cache.table.at(slot)?;
        let flow = Flow { tuple: *waiting.half_open.tuple(), hash: waiting.hash };
        let options = self.on_path(waiting.listener.options(), flow.tuple.remote_addr);
        let params = params(&options, &waiting.listener, u16::MAX);
        let mut out = self.outbox(&flow, &waiting.route, counters);
        let progress = waiting.half_open.segment_arrives(&params, arrival, &mut out, now);
        self.emit_waiting(&flow, &mut waiting.route, &mut out, after);
        match progress {
            Progress::Waiting => None,
            Progress::Ended => {
                cache.remove(slot)?.0.listener.abandon();
                None
            }
            Progress::Established(pcb) => {
                let (Waiting { route, listener, .. }, absent) = cache.remove(slot)?;
                Some(Child::new((flow, absent), pcb, route, Admission::Handshake(listener), &out))
            }
        }
    }

    /// An ICMP error about a segment of a half-open connection, which it may end.
    pub fn half_open_error(&self, cache: &mut SynCache<P>, slot: u32, error: &ip::IcmpError, counters: &Counters) {
        let Report::Error(error) = report(error, |_, _| None) else { return };
        let Some(waiting) = cache.table.at(slot) else { return };
        if !waiting.half_open.is_quoted(&error) {
            counters.drop(DropReason::IcmpOutOfWindow);
        } else if waiting.half_open.is_ended_by(&error)
            && let Some((waiting, _)) = cache.remove(slot)
        {
            waiting.listener.abandon();
        }
    }

    /// An acknowledgement that belongs to no connection, for a listener that has sent cookies: the child, if it brings
    /// one back. Otherwise it is answered as in CLOSED.
    pub fn cookie_arrives(
        &self,
        listener: Arc<ListenerShared<P>>,
        (flow, absent): (Flow, Absent),
        arrival: &mut Option<Segment>,
        now: Time,
        (counters, after): (&Counters, &mut After<P>),
    ) -> Option<Child<P>> {
        let segment = arrival.as_ref()?;
        // Nothing is remembered that could wait for text.
        let peer = flow.tuple.remote_addr;
        let options = self.on_path(listener.options(), peer);
        let params = ListenParams { defer_accept: 0, ..params(&options, &listener, self.route_mss(peer, now)) };
        let mac = |irs, epoch, class| self.secrets.syn_cookie(&flow.tuple, irs, epoch, class);
        let accepted = syn_cookie::accept(&params, segment, self.isn_of(&flow, now), &mac, self.tcp(), now);
        let Some(mut half_open) = accepted else {
            counters.drop(DropReason::SynCookieInvalid);
            self.reset(&flow, segment, counters, after);
            return None;
        };
        if let Err(reason) = listener.admit_cookie() {
            counters.drop(reason);
            return None;
        }
        let mut route = RouteCache::as_of(self.generation());
        let mut out = self.outbox(&flow, &route, counters);
        let progress = half_open.segment_arrives(&params, arrival, &mut out, now);
        self.emit(&flow, &mut route, &mut out, after);
        let Progress::Established(pcb) = progress else {
            listener.abandon();
            return None;
        };
        counters.increment(observe::Counter::SynCookiesIn);
        Some(Child::new((flow, absent), pcb, route, Admission::Handshake(listener), &out))
    }

    /// Sends SYN-ACKs again that are due, and gives up handshakes that nobody completes.
    pub fn half_open_timeouts(&self, cache: &mut SynCache<P>, now: Time, counters: &Counters, after: &mut After<P>) {
        while cache.cached_deadline() <= now.as_nanos()
            && let Some(slot) = cache.due(self.tcp(), now)
        {
            cache.unlink(slot);
            let Some(waiting) = cache.table.at(slot) else { return };
            let flow = Flow { tuple: *waiting.half_open.tuple(), hash: waiting.hash };
            let options = self.on_path(waiting.listener.options(), flow.tuple.remote_addr);
            let params = params(&options, &waiting.listener, u16::MAX);
            let limit = self.tcp().syn_ack_retries;
            let limit = if waiting.listener.is_crowded() { limit.min(RETRIES_WHEN_CROWDED) } else { limit };
            let mut out = self.outbox(&flow, &waiting.route, counters);
            let kept = waiting.half_open.timed_out(&params, limit, &mut out, now);
            self.emit_waiting(&flow, &mut waiting.route, &mut out, after);
            if kept {
                cache.append(slot, self.tcp(), now);
            } else if let Some((waiting, _)) = cache.table.remove(slot) {
                waiting.listener.abandon();
            }
        }
    }

    /// [`Shared::emit`] for a half-open connection. That routes have changed since its SYN came concerns the child, if there
    /// will be one: it finds out when it first sends.
    fn emit_waiting(&self, flow: &Flow, route: &mut RouteCache, out: &mut Outbox<'_>, after: &mut After<P>) {
        let mut latest = *route;
        self.emit(flow, &mut latest, out, after);
        if out.path == PathNews::None {
            *route = latest;
        }
    }

    fn isn_of(&self, flow: &Flow, now: Time) -> Isn {
        let (iss, ts_offset) = self.secrets.beginning(&flow.tuple, now);
        Isn { iss, ts_offset, flow_hash: Some(flow.hash) }
    }
}

impl<P: Platform> Child<P> {
    fn new(
        (flow, absent): (Flow, Absent),
        pcb: Box<Pcb>,
        route: RouteCache,
        admission: Admission<P>,
        out: &Outbox<'_>,
    ) -> Self {
        let Outbox { ready, deadline, path, table, starved, .. } = *out;
        Child { flow, pcb, route, admission, ready, deadline, path, table, starved, absent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the index, what a flood takes per SYN.
    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Waiting<sync::Real>>() <= 120, "{} octets", size_of::<Waiting<sync::Real>>());
    }
}
