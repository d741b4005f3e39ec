//! [`Mpsafe`]: the paper's MP-safe bridge (Nakahara 2015, section 3.2.2).
//!
//! Each frame has a read section, in which the worker reads the member list and the table, and takes references to the
//! output ports of the frame. The section ends before anything that may wait: learning a new address, which takes the
//! table's mutex, and transmission, which takes the lock of a transmit queue. So a writer never waits for a worker that
//! itself waits.

use std::sync::Arc;

use bridge::{Decision, ForwardedFrame, TagAction, count_learned};
use observe::{DropReason, Time};
use pktbuf::PktBuf;
use sync::Platform;

use crate::port::{BridgePort, Transmitter};
use crate::shared::{HouseMail, Inlet, MemberList};
use crate::table::SectionFdb;
use crate::worker::{WorkerSeat, same};

/// The state of one worker; see the head of the file.
pub(crate) struct Mpsafe<P: Platform> {
    /// The ports that it has used, by number, so that taking a reference writes to no shared memory.
    ports: Vec<Option<Arc<BridgePort<P>>>>,
    /// The output ports of the current frame, each referenced.
    egress: Vec<(usize, TagAction)>,
}

impl<P: Platform> Mpsafe<P> {
    pub(crate) fn new() -> Self {
        Mpsafe { ports: Vec::new(), egress: Vec::new() }
    }

    /// Forwards frames that were received together. If the queue is stopped meanwhile, the rest is dropped.
    pub(crate) fn forward(
        &mut self,
        seat: &mut WorkerSeat<P>,
        inlet: &mut Inlet<P>,
        frames: &mut Vec<PktBuf>,
        now: Time,
    ) {
        for frame in frames.drain(..) {
            if inlet.port.is_stopping(inlet.index) {
                seat.counters().count_drop(DropReason::InterfaceDown);
                continue;
            }
            self.forward_one(seat, inlet, frame, now);
        }
    }

    fn forward_one(&mut self, seat: &mut WorkerSeat<P>, inlet: &mut Inlet<P>, frame: PktBuf, now: Time) {
        let (shared, worker) = (&seat.shared, seat.number);
        let counters = &shared.seats[worker].counters;
        let section = seat.reader.enter();
        let list = shared.list.read(&section);
        let mut table = SectionFdb::new(&shared.table, &section);
        let decision = inlet.decide(list, &mut table, &frame, counters, now);
        match decision {
            Decision::Forward(to) => self.reference(list, worker, to),
            Decision::Flood(flood) => {
                flood.egress(&list.members, counters).for_each(|to| self.reference(list, worker, to));
            }
            Decision::Bpdu | Decision::Drop(_) => {}
        }
        let unlearned = table.unlearned;
        // The port that has received it too: after its removal no frame of it is forwarded, and no address is learned.
        inlet.port.acquire(worker);
        drop(section);
        if let Some(source) = unlearned {
            count_learned(shared.table.learn(source, now), counters);
        }
        match decision {
            Decision::Forward(_) | Decision::Flood(_) => self.transmit(seat, inlet.lane, frame),
            Decision::Bpdu => shared.send_mail(HouseMail::Bpdu(inlet.port.number, frame), counters),
            Decision::Drop(reason) => counters.count_drop(reason),
        }
        inlet.port.release(worker);
    }

    /// Takes a reference to a port of the list, in the read section.
    #[inline]
    fn reference(&mut self, list: &MemberList<P>, worker: usize, to: ForwardedFrame) {
        let at = to.port.index();
        let Some(listed) = list.ports.get(at).and_then(Option::as_ref) else { return };
        if !self.ports.get(at).is_some_and(|known| same(known.as_ref(), listed)) {
            self.meet(at, listed);
        }
        listed.acquire(worker);
        self.egress.push((at, to.tag));
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

    /// Transmits by the referenced ports, outside the section: one copy for each port; the last gets the frame itself.
    fn transmit(&mut self, seat: &WorkerSeat<P>, lane: usize, frame: PktBuf) {
        let (worker, counters) = (seat.number, seat.counters());
        let mut frame = Some(frame);
        let last = self.egress.len().saturating_sub(1);
        for (n, (at, tag)) in self.egress.drain(..).enumerate() {
            let Some(port) = &self.ports[at] else { continue };
            let copy = if n == last { frame.take() } else { frame.as_ref().and_then(PktBuf::duplicate) };
            match copy {
                Some(copy) => {
                    if let Some(ready) = port.prepare(copy, tag, counters) {
                        port.transmit(Transmitter { worker, lane }, ready, true, counters);
                    }
                }
                None => counters.count_drop(DropReason::NoBuffer),
            }
            port.release(worker);
        }
    }
}
