//! The interface that TCP requires from the owner of a connection: *hold-sets*, never locks.
//!
//! A PCB is six parts (after the SICS split that Nahum et al. measured): [`HeaderIn`], [`ReceiveWindow`],
//! [`Reassembly`], [`SendWindow`], [`RetransmitQueue`], [`HeaderOut`]. Protocol code names the parts that it needs for
//! a step, and gets exclusive use of just these for the length of a closure. How the use is made exclusive is not TCP's
//! concern: `&mut` (one owner), one lock for the whole event, two locks, or six. The parts are always requested in one
//! canonical order, `HeaderIn < ReceiveWindow < Reassembly < SendWindow < RetransmitQueue < HeaderOut`, and hold-sets
//! do not nest: the accessors take `&mut self`, so a nested hold-set is a borrow error.
//!
//! Between two hold-sets of one event another event of the same connection may run (on the staged drivers). So every
//! step validates what it holds, and values that cross from one step to the next are snapshots, merged monotonically.
//! Connection set-up, FIN, RST and every state but ESTABLISHED use [`PcbAccess::whole`].

use crate::outbox::Outbox;
pub use crate::pcb::PcbMut;
use crate::pcb::{HeaderIn, HeaderOut, Pcb, Reassembly, ReceiveWindow, RetransmitQueue, SendWindow};

/// Exclusive use of a connection's parts, one hold-set at a time.
///
/// Implemented by [`Pcb`] and [`PcbMut`] (everything is already exclusive: the *whole* driver) and, in the `stack` crate,
/// by types that take two or six locks as the hold-sets are requested (the *staged* drivers).
pub trait PcbAccess {
    /// The part that decides whether the fast established path applies, and how headers are classified on input.
    fn header_in<R>(&mut self, f: impl FnOnce(&mut HeaderIn) -> R) -> R;

    /// The receive side: window and in-order queue, with the out-of-order queue.
    fn receive_side<R>(&mut self, f: impl FnOnce(&mut ReceiveWindow, &mut Reassembly) -> R) -> R;

    /// The send side: window, congestion and timing state, with the data not yet acknowledged.
    fn send_side<R>(&mut self, f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue) -> R) -> R;

    /// The send side and the header template: the only hold-set in which segments are made.
    ///
    /// The segments that `f` puts into `out.segments` are passed to the device in this order, before any later
    /// `transmit` of the same connection begins (invariant G7). An implementation that drops its guards at the end of
    /// this call emits `out.segments` first; the whole driver leaves them in `out` for its caller, which still holds
    /// the guard.
    fn transmit<R>(
        &mut self,
        out: &mut Outbox<'_>,
        f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue, &mut HeaderOut, &mut Outbox<'_>) -> R,
    ) -> R;

    /// The connection, if all of it is held for the whole event. `None` where hold-sets are taken one by one.
    #[inline(always)]
    fn all(&mut self) -> Option<&mut Pcb> {
        None
    }

    /// All six parts at once, for the rare transitions: set-up, FIN, RST, close, abort, time-outs. Segments that `f`
    /// puts into `out` obey the rule of [`PcbAccess::transmit`].
    fn whole<R>(&mut self, out: &mut Outbox<'_>, f: impl FnOnce(PcbMut<'_>, &mut Outbox<'_>) -> R) -> R;
}

/// One pointer to all parts, whose offsets are known at compile time.
impl PcbAccess for Pcb {
    #[inline(always)]
    fn header_in<R>(&mut self, f: impl FnOnce(&mut HeaderIn) -> R) -> R {
        f(&mut self.header_in)
    }

    #[inline(always)]
    fn receive_side<R>(&mut self, f: impl FnOnce(&mut ReceiveWindow, &mut Reassembly) -> R) -> R {
        f(&mut self.receive_window, &mut self.reassembly)
    }

    #[inline(always)]
    fn send_side<R>(&mut self, f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue) -> R) -> R {
        f(&mut self.send_window, &mut self.retransmit_queue)
    }

    #[inline(always)]
    fn transmit<R>(
        &mut self,
        out: &mut Outbox<'_>,
        f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue, &mut HeaderOut, &mut Outbox<'_>) -> R,
    ) -> R {
        f(&mut self.send_window, &mut self.retransmit_queue, &mut self.header_out, out)
    }

    #[inline(always)]
    fn all(&mut self) -> Option<&mut Pcb> {
        Some(self)
    }

    #[inline(always)]
    fn whole<R>(&mut self, out: &mut Outbox<'_>, f: impl FnOnce(PcbMut<'_>, &mut Outbox<'_>) -> R) -> R {
        f(self.parts(), out)
    }
}

impl PcbAccess for PcbMut<'_> {
    #[inline(always)]
    fn header_in<R>(&mut self, f: impl FnOnce(&mut HeaderIn) -> R) -> R {
        f(self.header_in)
    }

    #[inline(always)]
    fn receive_side<R>(&mut self, f: impl FnOnce(&mut ReceiveWindow, &mut Reassembly) -> R) -> R {
        f(self.receive_window, self.reassembly)
    }

    #[inline(always)]
    fn send_side<R>(&mut self, f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue) -> R) -> R {
        f(self.send_window, self.retransmit_queue)
    }

    #[inline(always)]
    fn transmit<R>(
        &mut self,
        out: &mut Outbox<'_>,
        f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue, &mut HeaderOut, &mut Outbox<'_>) -> R,
    ) -> R {
        f(self.send_window, self.retransmit_queue, self.header_out, out)
    }

    #[inline(always)]
    fn whole<R>(&mut self, out: &mut Outbox<'_>, f: impl FnOnce(PcbMut<'_>, &mut Outbox<'_>) -> R) -> R {
        f(self.reborrow(), out)
    }
}
