//! [`Rcu`]: a step beyond the paper: read sections as long as a batch, and no lock on the forwarding path.
//!
//! A worker decides about the frames of a batch and transmits them in one read section, so that it needs no references,
//! and each transmit queue gets all its frames at once. A new address is not inserted by the worker: it is posted on a
//! ring to the housekeeper, and each worker has a cache of posted addresses, so that a station that sends many frames
//! before it is in the table is posted once. It remembers the flows of its frames, too ([`FlowMemory`]), and looks nothing up
//! for a frame of a known flow. A worker owns a transmit queue of each port exclusively; if a port has
//! fewer queues than there are workers, they share the queues under locks.
//!
//! The cost is that a writer waits for whole batches, and also for a device whose transmission waits.

use std::sync::Arc;

use bridge::{
    BatchRelay, Decision, Exception, Flood, FlowMemory, ForwardedFrame, InputPort, LearnedSource, PortNumber,
    TagAction, Versions,
};
use dev::TxQueue;
use observe::{Counters, DropReason, Time};
use pktbuf::{Checksum, PktBuf};
use sync::Platform;
use sync::ring::spsc::Producer;

use crate::charge;
use crate::flood::{self, EgressFrame, FloodedFrame};
use crate::outgoing::Outgoing;
use crate::port::{self, BridgePort, Transmitter};
use crate::shared::{HouseMail, Inlet, MemberList};
use crate::table::BatchFdb;
use crate::worker::{WorkerSeat, same};

/// The state of one worker; see the head of the file.
pub(crate) struct Rcu<P: Platform> {
    posts: Producer<LearnedSource, P>,
    posted: Posted,
    flows: FlowMemory,
    /// By number of the port.
    outgoing: Vec<Outgoing>,
    /// Ports with frames in `outgoing`.
    busy: Vec<usize>,
    /// Transmit queues of its own, by number of the port.
    own: Vec<Option<OwnQueue<P>>>,
    mail: Vec<PktBuf>,
}

struct OwnQueue<P: Platform> {
    port: Arc<BridgePort<P>>,
    queue: Box<dyn TxQueue>,
}

/// Frames that are forwarded in one read section.
struct RcuBatch<'a, P: Platform> {
    inlet: &'a Inlet<P>,
    list: &'a MemberList<P>,
    ingress: Option<InputPort<'a>>,
    table: BatchFdb<'a, P>,
    counters: &'a Counters,
    now: Time,
    /// The housekeeper has addresses to learn.
    posts: bool,
}

/// The port by which all frames of a batch leave, so far.
struct BatchExit {
    /// Its number, or [`BatchExit::NONE`]'s.
    to: u32,
    /// Its device completes checksums.
    completes: bool,
}

impl BatchExit {
    const NONE: BatchExit = BatchExit { to: u32::MAX, completes: false };

    /// Whether a frame that goes `to` a port leaves by this one as it is.
    #[inline(always)]
    fn takes(&self, to: PortNumber, frame: &PktBuf) -> bool {
        u32::from(to.get()) == self.to && self.accepts(frame)
    }

    /// Whether a frame that goes to the port leaves by it as it is.
    #[inline(always)]
    fn accepts(&self, frame: &PktBuf) -> bool {
        self.completes || !matches!(frame.meta().checksum, Checksum::Partial { .. })
    }

    /// Whether the first frame leaves by a port as it is, by which further frames then may leave.
    fn begin<P: Platform>(&mut self, port: Option<&BridgePort<P>>, to: PortNumber, frame: &PktBuf) -> bool {
        let Some(port) = port else { return false };
        let exit = BatchExit { to: to.get().into(), completes: port.capabilities.tx_checksum };
        let takes = exit.takes(to, frame);
        if takes {
            *self = exit;
        }
        takes
    }

    fn index(&self) -> Option<usize> {
        (self.to != BatchExit::NONE.to).then_some(self.to as usize)
    }
}

/// The frame as the port of the list requires it.
#[inline(always)]
fn prepare<F: EgressFrame, P: Platform>(
    list: &MemberList<P>,
    to: ForwardedFrame,
    frame: F,
    counters: &Counters,
) -> Option<F> {
    match list.ports.get(to.port.index()).and_then(Option::as_ref) {
        Some(port) => frame.prepare(port, to.tag, counters),
        None => {
            counters.count_drop(DropReason::InterfaceDown);
            None
        }
    }
}

/// The port is not in the member list any more. Returns the bytes of the frames.
#[cold]
fn refuse_all<P: Platform>(batch: &RcuBatch<'_, P>, frames: &mut Vec<PktBuf>) -> usize {
    let bytes = port::bytes_of(frames);
    frames.drain(..).for_each(|frame| batch.counters.count_drop(batch.inlet.refuse(&frame)));
    bytes
}

impl<'a, P: Platform> RcuBatch<'a, P> {
    #[inline]
    fn port(&self, number: PortNumber) -> Option<&'a BridgePort<P>> {
        self.list.ports.get(number.index())?.as_deref()
    }
}

/// Recently posted addresses, each at the index of its hash.
struct Posted {
    places: Box<[Option<(LearnedSource, Time)>]>,
}

/// Places of the cache.
const PLACES: usize = 256;
/// Time after which an address that is still not in the table is posted again, because it was refused or flushed.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(100);

impl Posted {
    /// Whether this address should be posted now.
    fn is_new(&mut self, source: LearnedSource, now: Time) -> bool {
        let hash = source.key.bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let place = &mut self.places[hash as usize % PLACES];
        let known = |(old, at): &(LearnedSource, Time)| {
            old.key == source.key && old.port == source.port && now.since(*at) < AGAIN
        };
        let is_new = !place.as_ref().is_some_and(known);
        if is_new {
            *place = Some((source, now));
        }
        is_new
    }
}

impl<P: Platform> Rcu<P> {
    pub(crate) fn new(posts: Producer<LearnedSource, P>) -> Self {
        let posted = Posted { places: vec![None; PLACES].into() };
        Rcu {
            posts,
            posted,
            flows: FlowMemory::default(),
            outgoing: Vec::new(),
            busy: Vec::new(),
            own: Vec::new(),
            mail: Vec::new(),
        }
    }

    /// Takes exclusive ownership of a transmit queue.
    pub(crate) fn own(&mut self, port: Arc<BridgePort<P>>, queue: Box<dyn TxQueue>) {
        let at = port.number.index();
        if self.own.len() <= at {
            self.own.resize_with(at + 1, || None);
        }
        self.own[at] = Some(OwnQueue { port, queue });
    }

    /// Closes its transmit queues of ports that are removed.
    pub(crate) fn give_up_stopped(&mut self) {
        for own in &mut self.own {
            if own.as_ref().is_some_and(|own| own.port.is_stopping(0)) {
                *own = None;
            }
        }
    }

    /// Gives up its exclusive transmit queues, because a receive queue of its lane moves to another worker, which
    /// transmits by them, too.
    pub(crate) fn share(&mut self, worker: usize) {
        for own in self.own.drain(..).flatten() {
            own.port.take_back(worker, own.queue);
        }
    }

    /// Transmits a frame of the control plane.
    pub(crate) fn transmit_now(&mut self, seat: &mut WorkerSeat<P>, port: &Arc<BridgePort<P>>, frame: PktBuf) {
        let _ = self.outgoing(port.number.index()).push(frame);
        let (worker, counters) = (seat.number, &seat.shared.seats[seat.number].counters);
        self.transmit_to(port, Transmitter { worker, lane: worker }, counters);
    }

    /// Forwards frames that were received together, in one read section.
    pub(crate) fn forward(
        &mut self,
        seat: &mut WorkerSeat<P>,
        inlet: &mut Inlet<P>,
        frames: &mut Vec<PktBuf>,
        now: Time,
    ) {
        let (shared, worker) = (&seat.shared, seat.number);
        let counters = &shared.seats[worker].counters;
        let section = seat.reader.enter();
        // The version first, then the table.
        let (list, version) = (shared.list.read(&section), shared.table.version());
        let versions = Versions { table: version, members: list.version };
        let recalls = self.flows.begin(inlet.port.number, now, versions);
        let (table, ingress) = (BatchFdb::new(&shared.table, &section, now), inlet.ingress(list));
        let mut batch = RcuBatch { inlet, list, ingress, table, counters, now, posts: false };
        let count = frames.len();
        let bytes = match recalls {
            true => self.forward_all::<true>(&mut batch, frames),
            false => self.forward_all::<false>(&mut batch, frames),
        };
        inlet.port.count_received(worker, count, bytes);
        self.flows.end(count);
        let posts = batch.posts;
        while let Some(at) = self.busy.pop() {
            if let Some(port) = list.ports.get(at).and_then(Option::as_ref) {
                self.transmit_to(port, Transmitter { worker, lane: inlet.lane }, counters);
            }
        }
        drop(section);
        if posts {
            shared.wake_housekeeper();
        }
        for frame in self.mail.drain(..) {
            shared.send_mail(HouseMail::Bpdu(inlet.port.number, frame), counters);
        }
    }

    /// Decides about all frames, and moves each to where it waits; returns the sum of their lengths. As long as all leave by one
    /// port as they are, none is moved; often that is the whole batch, which then moves as one. `RECALLS`: flows are remembered.
    #[inline(never)]
    fn forward_all<const RECALLS: bool>(&mut self, batch: &mut RcuBatch<'_, P>, frames: &mut Vec<PktBuf>) -> usize {
        let Some(ingress) = batch.ingress else { return refuse_all(batch, frames) };
        let relay = ingress.at(batch.now);
        let (mut exit, mut together, mut bytes) =
            if RECALLS { self.recall_run(batch, frames) } else { (BatchExit::NONE, 0, 0) };
        let mut other = None;
        for frame in frames.iter().skip(together) {
            let relayed = self.relay::<RECALLS>(batch, &relay, frame);
            bytes += frame.len();
            if let Ok(to) = relayed
                && (exit.takes(to, frame) || together == 0 && exit.begin(batch.port(to), to, frame))
            {
                together += 1;
                continue;
            }
            other = Some(relayed);
            break;
        }
        if let Some(relayed) = other {
            let bytes = port::bytes_of(frames);
            self.forward_apart::<RECALLS>((batch, relay), frames.drain(..), (exit, together), relayed);
            return bytes;
        }
        if let Some(at) = exit.index() {
            self.enqueue_all(at, frames, bytes);
        }
        bytes
    }

    /// How many frames, from the first on, are of remembered flows and leave by one port as they are: that port, their number, and
    /// the sum of their lengths.
    #[inline(never)]
    fn recall_run(&self, batch: &RcuBatch<'_, P>, frames: &[PktBuf]) -> (BatchExit, usize, usize) {
        let mut exit = BatchExit::NONE;
        if let Some(first) = frames.first()
            && let Some(to) = self.flows.recall(first)
            && exit.begin(batch.port(to), to, first)
        {
            let (count, bytes) = self.flows.run(frames, to, |frame| {
                let takes = exit.accepts(frame);
                if takes {
                    charge::recalled::<P>(&self.flows, frame);
                }
                takes
            });
            return (exit, count, bytes);
        }
        (exit, 0, 0)
    }

    /// The first frames, which are decided about, leave by one port, and `relayed` is about the frame after them.
    #[inline(never)]
    fn forward_apart<const RECALLS: bool>(
        &mut self,
        (batch, relay): (&mut RcuBatch<'_, P>, BatchRelay<'_>),
        mut frames: impl Iterator<Item = PktBuf>,
        (exit, together): (BatchExit, usize),
        relayed: Result<PortNumber, Exception>,
    ) {
        if let Some(at) = exit.index() {
            frames.by_ref().take(together).for_each(|frame| self.leave_at(at, frame));
        }
        if let Some(frame) = frames.next() {
            self.follow(batch, relay.input(), relayed, frame);
        }
        for frame in frames {
            let relayed = self.relay::<RECALLS>(batch, &relay, &frame);
            self.follow(batch, relay.input(), relayed, frame);
        }
    }

    /// Decides about a frame, by its flow if that is remembered.
    #[inline(always)]
    fn relay<const RECALLS: bool>(
        &mut self,
        batch: &mut RcuBatch<'_, P>,
        relay: &BatchRelay<'_>,
        frame: &PktBuf,
    ) -> Result<PortNumber, Exception> {
        if RECALLS {
            charge::recalled::<P>(&self.flows, frame);
            return match self.flows.recall(frame) {
                Some(port) => Ok(port),
                None => self.relay_new(batch, relay, frame),
            };
        }
        let relayed = relay.receive(&mut batch.table, frame, batch.counters);
        if batch.table.has_unlearned() {
            self.post(batch);
        }
        relayed
    }

    #[inline(never)]
    fn relay_new(
        &mut self,
        batch: &mut RcuBatch<'_, P>,
        relay: &BatchRelay<'_>,
        frame: &PktBuf,
    ) -> Result<PortNumber, Exception> {
        let relayed = relay.receive_new(&mut self.flows, &mut batch.table, frame, batch.counters);
        if batch.table.has_unlearned() {
            self.post(batch);
        }
        relayed
    }

    /// Posts the address that the last frame has left to learn.
    #[inline(never)]
    fn post(&mut self, batch: &mut RcuBatch<'_, P>) {
        if let Some(source) = batch.table.take_unlearned() {
            // If the ring is full, a later frame of the station posts the address.
            batch.posts |= self.posted.is_new(source, batch.now) && self.posts.push(source).is_ok();
        }
    }

    #[inline]
    fn follow(
        &mut self,
        batch: &RcuBatch<'_, P>,
        ingress: InputPort<'_>,
        relayed: Result<PortNumber, Exception>,
        frame: PktBuf,
    ) {
        match relayed {
            Ok(port) => {
                let to = ForwardedFrame { port, tag: TagAction::Keep };
                self.leave_by(batch.list, to, frame, batch.counters);
            }
            Err(exception) => self.follow_rarer(batch, ingress, exception, frame),
        }
    }

    #[inline(never)]
    fn follow_rarer(&mut self, batch: &RcuBatch<'_, P>, ingress: InputPort<'_>, exception: Exception, frame: PktBuf) {
        match batch.inlet.decide(ingress, exception, &frame, batch.now) {
            Decision::Forward(to) => self.leave_by(batch.list, to, frame, batch.counters),
            Decision::Flood(flood) => self.flood(batch.list, flood, frame, batch.counters),
            Decision::Bpdu => self.mail.push(frame),
            Decision::Drop(reason) => batch.counters.count_drop(reason),
        }
    }

    #[inline(never)]
    fn flood(&mut self, list: &MemberList<P>, flood: Flood, frame: PktBuf, counters: &Counters) {
        flood::flood(frame, flood.egress(&list.members, counters), |to, frame| {
            if let Some(frame) = prepare(list, to, frame, counters) {
                self.leave_flooded(to.port.index(), frame);
            }
        });
    }

    /// The frame is sent at the end of the batch.
    #[inline(always)]
    fn leave_by(&mut self, list: &MemberList<P>, to: ForwardedFrame, frame: PktBuf, counters: &Counters) {
        if let Some(frame) = prepare(list, to, frame, counters) {
            self.leave_at(to.port.index(), frame);
        }
    }

    #[inline(always)]
    fn leave_at(&mut self, at: usize, frame: PktBuf) {
        if self.outgoing(at).push(frame) {
            self.busy.push(at);
        }
    }

    fn leave_flooded(&mut self, at: usize, frame: FloodedFrame) {
        if self.outgoing(at).push_flooded(frame) {
            self.busy.push(at);
        }
    }

    /// All of `frames`, with this sum of lengths, are sent by that port at the end of the batch, where none waits yet.
    #[inline]
    fn enqueue_all(&mut self, at: usize, frames: &mut Vec<PktBuf>, bytes: usize) {
        self.outgoing(at).append(frames, bytes);
        self.busy.push(at);
    }

    #[inline(always)]
    fn outgoing(&mut self, at: usize) -> &mut Outgoing {
        if self.outgoing.len() <= at {
            self.make_room(at);
        }
        &mut self.outgoing[at]
    }

    #[cold]
    fn make_room(&mut self, at: usize) {
        self.outgoing.resize_with(at + 1, Outgoing::default);
    }

    /// Transmits the frames that wait for a port; those for which the device has no room are dropped and counted.
    fn transmit_to(&mut self, port: &Arc<BridgePort<P>>, by: Transmitter, counters: &Counters) {
        let at = port.number.index();
        let outgoing = &mut self.outgoing[at];
        let own = self.own.get_mut(at).and_then(Option::as_mut).filter(|own| same(Some(port), &own.port));
        // Its own queues are those of its own lane.
        let Some(own) = own.filter(|_| by.lane == by.worker) else { return port.transmit_all(by, outgoing, counters) };
        if port.is_stopping(by.lane) {
            counters.count_drops(DropReason::InterfaceDown, outgoing.len() as u64);
            return outgoing.clear();
        }
        port.offer(&mut *own.queue, by, outgoing, counters);
        own.queue.flush();
    }
}
