//! A staged driver for tests: every part in a cell of its own, taken and released hold-set by hold-set, as a driver
//! with six locks would. Segments are emitted at the end of the hold-set that made them.

use std::cell::RefCell;

use observe::{Counters, Time};
use pktbuf::PktBuf;
use tcp::pcb::{HeaderIn, HeaderOut, Pcb, Reassembly, ReceiveWindow, RetransmitQueue, SendWindow};
use tcp::{Config, Outbox, PcbAccess, PcbMut, Readiness, Segment, SegmentArrives, TableChange, TcpEvent};

use super::link::Random;

pub struct StagedPcb {
    header_in: RefCell<HeaderIn>,
    receive_window: RefCell<ReceiveWindow>,
    reassembly: RefCell<Reassembly>,
    send_window: RefCell<SendWindow>,
    retransmit_queue: RefCell<RetransmitQueue>,
    header_out: RefCell<HeaderOut>,
    /// Segments in the order in which hold-sets ended.
    pub emitted: Vec<PktBuf>,
    /// Hold-sets taken.
    pub hold_sets: u64,
}

impl StagedPcb {
    pub fn new(pcb: Pcb) -> Self {
        let (header_in, receive_window, reassembly, send_window, retransmit_queue, header_out) = pcb.into_parts();
        StagedPcb {
            header_in: header_in.into(),
            receive_window: receive_window.into(),
            reassembly: reassembly.into(),
            send_window: send_window.into(),
            retransmit_queue: retransmit_queue.into(),
            header_out: header_out.into(),
            emitted: Vec::new(),
            hold_sets: 0,
        }
    }
}

impl PcbAccess for StagedPcb {
    fn header_in<R>(&mut self, f: impl FnOnce(&mut HeaderIn) -> R) -> R {
        self.hold_sets += 1;
        f(&mut self.header_in.borrow_mut())
    }

    fn receive_side<R>(&mut self, f: impl FnOnce(&mut ReceiveWindow, &mut Reassembly) -> R) -> R {
        self.hold_sets += 1;
        f(&mut self.receive_window.borrow_mut(), &mut self.reassembly.borrow_mut())
    }

    fn send_side<R>(&mut self, f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue) -> R) -> R {
        self.hold_sets += 1;
        f(&mut self.send_window.borrow_mut(), &mut self.retransmit_queue.borrow_mut())
    }

    fn transmit<R>(
        &mut self,
        out: &mut Outbox<'_>,
        f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue, &mut HeaderOut, &mut Outbox<'_>) -> R,
    ) -> R {
        self.hold_sets += 1;
        let reply = f(
            &mut self.send_window.borrow_mut(),
            &mut self.retransmit_queue.borrow_mut(),
            &mut self.header_out.borrow_mut(),
            out,
        );
        self.emitted.extend(out.segments.drain(..));
        reply
    }

    fn whole<R>(&mut self, out: &mut Outbox<'_>, f: impl FnOnce(PcbMut<'_>, &mut Outbox<'_>) -> R) -> R {
        self.hold_sets += 1;
        let parts = PcbMut {
            header_in: &mut self.header_in.borrow_mut(),
            receive_window: &mut self.receive_window.borrow_mut(),
            reassembly: &mut self.reassembly.borrow_mut(),
            send_window: &mut self.send_window.borrow_mut(),
            retransmit_queue: &mut self.retransmit_queue.borrow_mut(),
            header_out: &mut self.header_out.borrow_mut(),
        };
        let reply = f(parts, out);
        self.emitted.extend(out.segments.drain(..));
        reply
    }
}

/// The staged driver as several threads would run it: before any hold-set of one event, other segments that have
/// arrived may be processed, wholly or up to a hold-set of their own.
pub struct InterleavedPcb {
    pub staged: StagedPcb,
    /// Segments that have arrived and are not yet processed by a thread.
    pub pending: Vec<Segment>,
    /// Effects of events that ran inside others.
    pub effects: Effects,
    /// Times that an event began inside another.
    pub nested: u64,
    pub now: Time,
    config: Config,
    random: Random,
    depth: u32,
}

/// The effects in the outbox of an inner event.
#[derive(Default)]
pub struct Effects {
    pub ready: Readiness,
    pub deadline: Option<Time>,
    pub table: Vec<TableChange>,
}

impl InterleavedPcb {
    pub fn new(pcb: Pcb, config: Config, seed: u64) -> Self {
        InterleavedPcb {
            staged: StagedPcb::new(pcb),
            pending: Vec::new(),
            effects: Effects::default(),
            nested: 0,
            now: Time::ZERO,
            config,
            random: Random::new(seed),
            depth: 0,
        }
    }

    /// Lets another thread process a segment here, at random.
    fn interfere(&mut self) {
        while self.depth < 3 && !self.pending.is_empty() && self.random.chance(400) {
            let at = self.random.below(self.pending.len() as u64) as usize;
            let segment = self.pending.remove(at);
            self.nested += 1;
            self.take_up(segment);
        }
    }

    pub fn take_up(&mut self, segment: Segment) {
        let (config, counters) = (self.config.clone(), Counters::new());
        let mut out = Outbox::new(&config, &counters);
        let now = self.now;
        self.depth += 1;
        let _ = SegmentArrives(&mut Some(segment)).run(self, &mut out, now);
        self.depth -= 1;
        self.effects.ready |= out.ready;
        self.effects.deadline = [self.effects.deadline, out.deadline].into_iter().flatten().min();
        self.effects.table.push(out.table);
    }
}

impl PcbAccess for InterleavedPcb {
    fn header_in<R>(&mut self, f: impl FnOnce(&mut HeaderIn) -> R) -> R {
        self.interfere();
        self.staged.header_in(f)
    }

    fn receive_side<R>(&mut self, f: impl FnOnce(&mut ReceiveWindow, &mut Reassembly) -> R) -> R {
        self.interfere();
        self.staged.receive_side(f)
    }

    fn send_side<R>(&mut self, f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue) -> R) -> R {
        self.interfere();
        self.staged.send_side(f)
    }

    fn transmit<R>(
        &mut self,
        out: &mut Outbox<'_>,
        f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue, &mut HeaderOut, &mut Outbox<'_>) -> R,
    ) -> R {
        self.interfere();
        self.staged.transmit(out, f)
    }

    fn whole<R>(&mut self, out: &mut Outbox<'_>, f: impl FnOnce(PcbMut<'_>, &mut Outbox<'_>) -> R) -> R {
        self.interfere();
        self.staged.whole(out, f)
    }
}
