//! TCP-6: one lock for each part ("SICS style", Nahum et al. 1994), in the canonical order.

use sync::{Lock, LockKind, Platform, class};
use tcp::pcb::{HeaderIn, HeaderOut, Reassembly, ReceiveWindow, RetransmitQueue, SendWindow};
use tcp::{Outbox, Pcb, PcbAccess, PcbMut};

use super::{EmitContext, HeldBeside};
use crate::charge::EventWork;
use crate::route_cache::RouteCache;

/// A PCB behind six locks.
pub struct Six<P: Platform> {
    header_in: Lock<HeaderIn, P, class::PcbHeaderIn>,
    receive_window: Lock<ReceiveWindow, P, class::PcbReceiveWindow>,
    reassembly: Lock<Reassembly, P, class::PcbReassembly>,
    send_window: Lock<SendWindow, P, class::PcbSendWindow>,
    retransmit_queue: Lock<RetransmitQueue, P, class::PcbRetransmit>,
    /// The route is kept with the part that uses it.
    header_out: Lock<(HeaderOut, RouteCache), P, class::PcbHeaderOut>,
}

impl<P: Platform> Six<P> {
    /// Behind locks of `kind`.
    pub fn new(kind: LockKind, pcb: Pcb, route: RouteCache) -> Self {
        let (header_in, receive_window, reassembly, send_window, retransmit_queue, header_out) = pcb.into_parts();
        Six {
            header_in: Lock::ordered(kind, header_in),
            receive_window: Lock::ordered(kind, receive_window),
            reassembly: Lock::ordered(kind, reassembly),
            send_window: Lock::ordered(kind, send_window),
            retransmit_queue: Lock::ordered(kind, retransmit_queue),
            header_out: Lock::ordered(kind, (header_out, route)),
        }
    }
}

impl<P: Platform> Six<P> {
    /// Reassembles the PCB; no other thread holds one of its locks.
    pub fn into_pcb(self) -> (Pcb, RouteCache) {
        let (header_out, route) = self.header_out.into_inner();
        let pcb = Pcb::from_parts((
            self.header_in.into_inner(),
            self.receive_window.into_inner(),
            self.reassembly.into_inner(),
            self.send_window.into_inner(),
            self.retransmit_queue.into_inner(),
            header_out,
        ));
        (pcb, route)
    }
}

/// One thread's way through a [`Six`].
pub struct SixGuard<'a, 'w, P: Platform, H: HeldBeside> {
    /// The connection.
    pub pcb: &'a Six<P>,
    /// Where its segments go.
    pub way: EmitContext<'w, P>,
    /// Released once the send side has been processed.
    pub held: &'a mut H,
    /// What the event has to do, for simulators.
    pub work: EventWork,
}

impl<P: Platform, H: HeldBeside> PcbAccess for SixGuard<'_, '_, P, H> {
    fn header_in<R>(&mut self, f: impl FnOnce(&mut HeaderIn) -> R) -> R {
        let mut header_in = self.pcb.header_in.lock();
        self.work.hold::<P, _>(&*header_in);
        f(&mut header_in)
    }

    fn receive_side<R>(&mut self, f: impl FnOnce(&mut ReceiveWindow, &mut Reassembly) -> R) -> R {
        let mut window = self.pcb.receive_window.lock();
        let mut reassembly = self.pcb.reassembly.lock_after(&window);
        self.work.hold::<P, _>(&*window);
        f(&mut window, &mut reassembly)
    }

    fn send_side<R>(&mut self, f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue) -> R) -> R {
        let mut window = self.pcb.send_window.lock();
        let mut queue = self.pcb.retransmit_queue.lock_after(&window);
        self.work.hold::<P, _>(&*window);
        let result = f(&mut window, &mut queue);
        drop(queue);
        drop(window);
        self.held.release();
        result
    }

    fn transmit<R>(
        &mut self,
        out: &mut Outbox<'_>,
        f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue, &mut HeaderOut, &mut Outbox<'_>) -> R,
    ) -> R {
        let mut window = self.pcb.send_window.lock();
        let mut queue = self.pcb.retransmit_queue.lock_after(&window);
        let mut header_out = self.pcb.header_out.lock_after(&queue);
        // Not earlier: the table lock, if kept, is kept while waiting for the connection.
        self.held.release();
        self.work.hold::<P, _>(&*window);
        self.work.hold::<P, _>(&*header_out);
        let (header_out, route) = &mut *header_out;
        let result = f(&mut window, &mut queue, header_out, out);
        self.way.emit(route, out);
        result
    }

    fn whole<R>(&mut self, out: &mut Outbox<'_>, f: impl FnOnce(PcbMut<'_>, &mut Outbox<'_>) -> R) -> R {
        let mut header_in = self.pcb.header_in.lock();
        let mut receive_window = self.pcb.receive_window.lock_after(&header_in);
        let mut reassembly = self.pcb.reassembly.lock_after(&receive_window);
        let mut send_window = self.pcb.send_window.lock_after(&reassembly);
        let mut retransmit_queue = self.pcb.retransmit_queue.lock_after(&send_window);
        let mut header_out = self.pcb.header_out.lock_after(&retransmit_queue);
        self.work.hold_all::<P, _>(&*receive_window);
        self.work.hold::<P, _>(&*send_window);
        let (header_out, route) = &mut *header_out;
        let parts = PcbMut {
            header_in: &mut header_in,
            receive_window: &mut receive_window,
            reassembly: &mut reassembly,
            send_window: &mut send_window,
            retransmit_queue: &mut retransmit_queue,
            header_out,
        };
        let result = f(parts, out);
        self.way.emit(route, out);
        if out.table.replaces_wake_up() {
            self.held.cancel_wake_up();
        }
        result
    }
}
