//! A staged driver for tests: every part in a cell of its own, taken and released hold-set by hold-set, as a driver
//! with six locks would. Segments leave at the end of the hold-set that made them.

use std::cell::RefCell;

use pktbuf::PktBuf;
use tcp::pcb::{HeaderIn, HeaderOut, Pcb, Reassembly, ReceiveWindow, RetransmitQueue, SendWindow};
use tcp::{Outbox, PcbAccess, PcbMut};

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
