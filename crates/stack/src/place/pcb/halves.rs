//! TCP-2: one lock for the receive side, one for the send side.

use sync::{Lock, LockKind, Platform, class};
use tcp::pcb::{HeaderIn, HeaderOut, Reassembly, ReceiveWindow, RetransmitQueue, SendWindow};
use tcp::{Outbox, Pcb, PcbAccess, PcbMut};

use super::{EmitContext, HeldBeside};
use crate::charge::EventWork;
use crate::route_cache::RouteCache;

/// A PCB behind two locks.
pub struct Halves<P: Platform> {
    receive: Lock<ReceiveHalf, P, class::PcbReceiveWindow>,
    send: Lock<SendHalf, P, class::PcbSendWindow>,
}

struct ReceiveHalf {
    header_in: HeaderIn,
    window: ReceiveWindow,
    reassembly: Reassembly,
}

struct SendHalf {
    window: SendWindow,
    queue: RetransmitQueue,
    header_out: HeaderOut,
    route: RouteCache,
}

impl<P: Platform> Halves<P> {
    /// Behind locks of `kind`.
    pub fn new(kind: LockKind, pcb: Pcb, route: RouteCache) -> Self {
        let (header_in, window, reassembly, send_window, queue, header_out) = pcb.into_parts();
        let receive = ReceiveHalf { header_in, window, reassembly };
        let send = SendHalf { window: send_window, queue, header_out, route };
        Halves { receive: Lock::ordered(kind, receive), send: Lock::ordered(kind, send) }
    }
}

impl<P: Platform> Halves<P> {
    /// Reassembles the PCB; no other thread holds one of its locks.
    pub fn into_pcb(self) -> (Pcb, RouteCache) {
        let ReceiveHalf { header_in, window, reassembly } = self.receive.into_inner();
        let SendHalf { window: send_window, queue, header_out, route } = self.send.into_inner();
        (Pcb::from_parts((header_in, window, reassembly, send_window, queue, header_out)), route)
    }
}

/// One thread's way through a [`Halves`].
pub struct HalvesGuard<'a, 'w, P: Platform, H: HeldBeside> {
    /// The connection.
    pub pcb: &'a Halves<P>,
    /// Where its segments go.
    pub way: EmitContext<'w, P>,
    /// Released once the send side has been processed.
    pub held: &'a mut H,
    /// What the event has to do, for simulators.
    pub work: EventWork,
}

impl<P: Platform, H: HeldBeside> PcbAccess for HalvesGuard<'_, '_, P, H> {
    fn header_in<R>(&mut self, f: impl FnOnce(&mut HeaderIn) -> R) -> R {
        let mut half = self.pcb.receive.lock();
        self.work.hold::<P, _>(&half.header_in);
        f(&mut half.header_in)
    }

    fn receive_side<R>(&mut self, f: impl FnOnce(&mut ReceiveWindow, &mut Reassembly) -> R) -> R {
        let mut half = self.pcb.receive.lock();
        let half = &mut *half;
        self.work.hold::<P, _>(half);
        f(&mut half.window, &mut half.reassembly)
    }

    fn send_side<R>(&mut self, f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue) -> R) -> R {
        let mut guard = self.pcb.send.lock();
        let half = &mut *guard;
        self.work.hold::<P, _>(half);
        let result = f(&mut half.window, &mut half.queue);
        drop(guard);
        self.held.release();
        result
    }

    fn transmit<R>(
        &mut self,
        out: &mut Outbox<'_>,
        f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue, &mut HeaderOut, &mut Outbox<'_>) -> R,
    ) -> R {
        let mut guard = self.pcb.send.lock();
        // Not earlier: the table lock, if kept, is kept while waiting for the connection.
        self.held.release();
        let half = &mut *guard;
        self.work.hold::<P, _>(half);
        let result = f(&mut half.window, &mut half.queue, &mut half.header_out, out);
        self.way.emit(&mut half.route, out);
        result
    }

    fn whole<R>(&mut self, out: &mut Outbox<'_>, f: impl FnOnce(PcbMut<'_>, &mut Outbox<'_>) -> R) -> R {
        let mut receive = self.pcb.receive.lock();
        let mut send = self.pcb.send.lock_after(&receive);
        let (receive, send) = (&mut *receive, &mut *send);
        self.work.hold_all::<P, _>(receive);
        self.work.hold::<P, _>(send);
        let parts = PcbMut {
            header_in: &mut receive.header_in,
            receive_window: &mut receive.window,
            reassembly: &mut receive.reassembly,
            send_window: &mut send.window,
            retransmit_queue: &mut send.queue,
            header_out: &mut send.header_out,
        };
        let result = f(parts, out);
        self.way.emit(&mut send.route, out);
        if out.table.replaces_wake_up() {
            self.held.cancel_wake_up();
        }
        result
    }
}
