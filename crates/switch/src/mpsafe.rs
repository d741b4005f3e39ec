//! [`Mpsafe`]: the paper's MP-safe bridge (Nakahara 2015, section 3.2.2).
//!
//! Each frame has a read section, in which the worker reads the member list and the table, and takes references to the
//! output ports of the frame. The section ends before anything that may wait: learning a new address, which takes the
//! table's mutex, and transmission, which takes the lock of a transmit queue. So a writer never waits for a worker that
//! itself waits.

use std::sync::Arc;

use bridge::{Decision, Exception, ForwardedFrame, InputPort, PortNumber, TagAction, count_learned};
use observe::{Counters, DropReason, Time};
use pktbuf::PktBuf;
use sync::Platform;

use crate::flood::flood;
use crate::port::{BridgePort, Transmitter};
use crate::shared::{HouseMail, Inlet, MemberList};
use crate::table::SectionFdb;
use crate::worker::{WorkerSeat, same};

/// The state of one worker; see the head of the file.
pub(crate) struct Mpsafe<P: Platform> {
    /// The ports that it has used, by number, so that taking a reference writes to no shared memory.
    ports: Vec<Option<Arc<BridgePort<P>>>>,
    /// The output ports of the current frame, each referenced, unless it is one that takes it as it is.
    egress: Vec<(usize, TagAction)>,
}

impl<P: Platform> Mpsafe<P> {
    pub(crate) fn new() -> Self {
        Mpsafe { ports: Vec::new(), egress: Vec::new() }
    }

    /// Forwards frames that were received together. If the queue is stopped meanwhile, the rest is dropped.
    #[inline]
    pub(crate) fn forward(
        &mut self,
        seat: &mut WorkerSeat<P>,
        inlet: &mut Inlet<P>,
        frames: &mut Vec<PktBuf>,
        now: Time,
    ) {
        // Usually there is one.
        if frames.len() == 1
            && let Some(frame) = frames.pop()
        {
            return self.forward_one(seat, inlet, frame, now);
        }
        let mut stopped = false;
        for frame in frames.drain(..) {
            if stopped {
                seat.counters().count_drop(DropReason::InterfaceDown);
                continue;
            }
            self.forward_one(seat, inlet, frame, now);
            stopped = inlet.is_stopping();
        }
    }

    fn forward_one(&mut self, seat: &mut WorkerSeat<P>, inlet: &mut Inlet<P>, frame: PktBuf, now: Time) {
        let (shared, worker) = (&seat.shared, seat.number);
        let counters = &shared.seats[worker].counters;
        let section = seat.reader.enter();
        let list = shared.list.read(&section);
        let mut table = SectionFdb::new(&shared.table, &section);
        let relayed = match inlet.ingress(list) {
            Some(ingress) => match ingress.receive(&mut table, &frame, counters, now) {
                Ok(port) => Ok(self.reference(list, worker, port)),
                Err(exception) => Err(self.decide(inlet, (list, ingress), exception, &frame, (worker, counters), now)),
            },
            None => Err(Decision::Drop(inlet.refuse(&frame))),
        };
        let unlearned = table.unlearned;
        // The port that has received it too: after its removal no frame of it is forwarded, and no address is learned.
        inlet.port.acquire(worker);
        drop(section);
        if let Some(source) = unlearned {
            count_learned(shared.table.learn(source, now), counters);
        }
        match relayed {
            Ok(Some(at)) => {
                if let Some(port) = &self.ports[at] {
                    port.send(Transmitter { worker, lane: inlet.lane }, frame, TagAction::Keep, counters);
                    port.release(worker);
                }
            }
            Ok(None) => counters.count_drop(DropReason::InterfaceDown),
            Err(decision) => self.follow(seat, inlet, decision, frame),
        }
        inlet.port.release(worker);
    }

    /// Decides about a frame that does not leave by one port as it is, and takes references to the ports by which it leaves.
    #[inline(never)]
    fn decide(
        &mut self,
        inlet: &Inlet<P>,
        (list, ingress): (&MemberList<P>, InputPort<'_>),
        exception: Exception,
        frame: &PktBuf,
        (worker, counters): (usize, &Counters),
        now: Time,
    ) -> Decision {
        let decision = inlet.decide(ingress, exception, frame, now);
        let mut leave_by = |to: ForwardedFrame| {
            if let Some(at) = self.reference(list, worker, to.port) {
                self.egress.push((at, to.tag));
            }
        };
        match decision {
            Decision::Forward(to) => leave_by(to),
            Decision::Flood(flood) => flood.egress(&list.members, counters).for_each(leave_by),
            Decision::Bpdu | Decision::Drop(_) => {}
        }
        decision
    }

    #[inline(never)]
    fn follow(&mut self, seat: &WorkerSeat<P>, inlet: &Inlet<P>, decision: Decision, frame: PktBuf) {
        match decision {
            Decision::Forward(_) | Decision::Flood(_) => self.transmit(seat, inlet.lane, frame),
            Decision::Bpdu => seat.shared.send_mail(HouseMail::Bpdu(inlet.port.number, frame), seat.counters()),
            Decision::Drop(reason) => seat.counters().count_drop(reason),
        }
    }

    /// Takes a reference to a port of the list, in the read section, and returns its place in `ports`.
    #[inline]
    fn reference(&mut self, list: &MemberList<P>, worker: usize, port: PortNumber) -> Option<usize> {
        let at = port.index();
        let listed = list.ports.get(at).and_then(Option::as_ref)?;
        if !self.ports.get(at).is_some_and(|known| same(known.as_ref(), listed)) {
            self.meet(at, listed);
        }
        listed.acquire(worker);
        Some(at)
    }

    #[cold]
    fn meet(&mut self, at: usize, port: &Arc<BridgePort<P>>) {
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, || None);
        }
        self.ports[at] = Some(port.clone());
    }

    /// All ports to which it may hold a reference.
    pub(crate) fn known_ports(&self) -> impl Iterator<Item = &Arc<BridgePort<P>>> {
        self.ports.iter().flatten()
    }

    /// Transmits by the referenced ports, outside the section.
    fn transmit(&mut self, seat: &WorkerSeat<P>, lane: usize, frame: PktBuf) {
        let (worker, counters) = (seat.number, seat.counters());
        let Mpsafe { ports, egress } = self;
        flood(frame, egress.drain(..), |(at, tag), frame| {
            if let Some(port) = &ports[at] {
                port.send(Transmitter { worker, lane }, frame, tag, counters);
                port.release(worker);
            }
        });
    }
}
