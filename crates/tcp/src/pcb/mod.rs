//! The six parts of a connection (its PCB, the RFC's TCB), one file each, and the PCB that has them all.
//!
//! The cut follows the one that Nahum et al. measured (OSDI 1994): header in, receive window, reassembly, send window,
//! retransmit queue, header out. Each part holds exactly what one step of processing needs exclusively; see
//! [`crate::access`] for which event may hold which.

mod ack_delay;
mod delivery_rate;
mod exchange;
mod fifo;
mod header_in;
mod header_out;
mod hold;
mod loss;
mod mtu_search;
mod rare;
pub mod reassembly;
mod receive_window;
mod retransmit_queue;
mod send_log;
mod send_room;
mod send_window;
mod settings;
pub(crate) mod shaping;
mod sizing;
mod time_wait;
mod totals;

pub use delivery_rate::Rate;
pub use header_in::HeaderIn;
pub use header_out::HeaderOut;
pub use reassembly::Reassembly;
pub use receive_window::ReceiveWindow;
pub use retransmit_queue::RetransmitQueue;
pub use send_window::SendWindow;
pub use time_wait::{RESOLUTION, TimeWait};

pub(crate) use exchange::AdvertisedTimeouts;
pub(crate) use header_in::{SegmentPath, milliseconds};
pub(crate) use header_out::{describe, pseudo};
pub(crate) use hold::{Hold, Push};
pub(crate) use loss::{Delivery, Detected, Flight, FrtoState, Loss, Sizes};
pub(crate) use mtu_search::MtuSearch;
pub(crate) use rare::Rare;
pub(crate) use receive_window::{Ack, COALESCE, ReadMode, RecvSnapshot, first_window};
pub(crate) use send_window::{
    Awaited, RECOVERY_PROBES, RECOVERY_SLACK, RecoveryMode, TIMER_SLACK, TIMESTAMPS_LEN, TimerPurpose,
};
pub(crate) use settings::UserSettings;
pub(crate) use shaping::{SenderLimit, Shaping};
pub(crate) use sizing::Sizing;
pub(crate) use totals::Totals;

use core::time::Duration;

use observe::{Counter, Time};
use pktbuf::PacketPlace;

use crate::error::Error;
use crate::outbox::{Outbox, Readiness, TableChange};
use crate::state::{Cause, State};

/// After this long a queue with heap memory is checked, and freed if it is empty.
pub(crate) const IDLE_CHECK: Duration = Duration::from_secs(1);

/// One connection.
///
/// *Layout.* An idle connection that gets a segment, or a call, costs one cache miss for each line that is touched, so
/// each part has its fields in the order of their use, and the parts are ordered so that parts unused by one kind of
/// event lie together. The end of the receive window, header-in, the reassembly queue and the beginning of the send
/// window are two lines that neither a read nor a write touches. The end of header-out begins a line that a segment
/// without an answer does not touch.
#[derive(Debug)]
#[repr(C)]
pub struct Pcb {
    /// See [`RetransmitQueue`].
    pub retransmit_queue: RetransmitQueue,
    /// See [`ReceiveWindow`].
    pub receive_window: ReceiveWindow,
    /// See [`HeaderIn`].
    pub header_in: HeaderIn,
    /// See [`Reassembly`].
    pub reassembly: Reassembly,
    /// See [`SendWindow`].
    pub send_window: SendWindow,
    /// See [`HeaderOut`].
    pub header_out: HeaderOut,
}

/// All parts of one connection, exclusively held.
pub struct PcbMut<'a> {
    /// See [`HeaderIn`].
    pub header_in: &'a mut HeaderIn,
    /// See [`ReceiveWindow`].
    pub receive_window: &'a mut ReceiveWindow,
    /// See [`Reassembly`].
    pub reassembly: &'a mut Reassembly,
    /// See [`SendWindow`].
    pub send_window: &'a mut SendWindow,
    /// See [`RetransmitQueue`].
    pub retransmit_queue: &'a mut RetransmitQueue,
    /// See [`HeaderOut`].
    pub header_out: &'a mut HeaderOut,
}

impl PcbMut<'_> {
    /// The same parts for a shorter time.
    #[inline]
    pub fn reborrow(&mut self) -> PcbMut<'_> {
        PcbMut {
            header_in: self.header_in,
            receive_window: self.receive_window,
            reassembly: self.reassembly,
            send_window: self.send_window,
            retransmit_queue: self.retransmit_queue,
            header_out: self.header_out,
        }
    }
}

/// The parts of a connection by value, in the canonical order, for a staged driver to put under its locks.
pub type Parts = (HeaderIn, ReceiveWindow, Reassembly, SendWindow, RetransmitQueue, HeaderOut);

impl Pcb {
    /// Bytes of a cache line that the storage of PCBs has before each: with them the layout above holds.
    pub const BEFORE: usize = 24;

    /// Asks the processor for the memory that an acknowledgement of all data touches besides the PCB.
    #[inline(always)]
    pub fn prefetch_unacknowledged(&self) {
        self.retransmit_queue.prefetch();
    }

    /// Where the oldest data is that the user has not read.
    #[inline(always)]
    pub fn unread_place(&self) -> PacketPlace {
        self.receive_window.queue.front().map_or(PacketPlace::NONE, PacketPlace::of)
    }

    /// All parts for the whole driver.
    #[inline]
    pub fn parts(&mut self) -> PcbMut<'_> {
        PcbMut {
            header_in: &mut self.header_in,
            receive_window: &mut self.receive_window,
            reassembly: &mut self.reassembly,
            send_window: &mut self.send_window,
            retransmit_queue: &mut self.retransmit_queue,
            header_out: &mut self.header_out,
        }
    }

    /// Whether it has nothing on the heap.
    pub(crate) fn is_plain(&self) -> bool {
        let Pcb { retransmit_queue, receive_window, header_in, reassembly, send_window, header_out } = self;
        self.memory() == 0
            && retransmit_queue.len == 0
            && receive_window.queue.len() == 0
            && receive_window.sizing.is_none()
            && header_in.settings.is_none()
            && reassembly.is_empty()
            && send_window.shaping.is_none()
            && send_window.loss.is_none()
            && !send_window.congestion.has_curve()
            && header_out.ecn.is_none()
            && header_out.sack.is_none()
    }

    /// Bytes of memory that its buffers hold, sent and received: the sum of what its events have reported in
    /// [`LocalEffects::memory`](crate::LocalEffects::memory). Walks its queues.
    pub fn memory(&self) -> i64 {
        i64::from(self.receive_window.memory() + self.reassembly.memory()) + self.retransmit_queue.memory()
    }

    /// Take the connection apart.
    pub fn into_parts(self) -> Parts {
        (self.header_in, self.receive_window, self.reassembly, self.send_window, self.retransmit_queue, self.header_out)
    }

    /// Put a connection together again.
    pub fn from_parts(parts: Parts) -> Pcb {
        let (header_in, receive_window, reassembly, send_window, retransmit_queue, header_out) = parts;
        Pcb { header_in, receive_window, reassembly, send_window, retransmit_queue, header_out }
    }
}

impl PcbMut<'_> {
    /// Follow the transition table, in all three copies of the state.
    #[inline(never)]
    pub(crate) fn enter(&mut self, cause: Cause, out: &mut Outbox<'_>, now: Time) {
        self.leave(self.header_in.state, cause, out, now);
    }

    /// [`PcbMut::enter`] where it is known that the state is `from`: the table is consulted when this is compiled. The only
    /// place that assigns a state.
    #[inline(always)]
    pub(crate) fn leave(&mut self, from: State, cause: Cause, out: &mut Outbox<'_>, now: Time) {
        debug_assert_eq!(self.header_in.state, from);
        let Some(state) = from.after(cause) else {
            debug_assert!(false, "no transition from {from} by {cause:?}");
            return;
        };
        self.header_in.state = state;
        self.receive_window.state = state;
        self.send_window.state = state;
        self.receive_window.rare.note_state(state);
        self.send_window.rare.note_state(state);
        self.header_in.recount_in(state, out);
        match state {
            State::Established => out.count(Counter::ConnectionsEstablished, 1),
            State::TimeWait => self.enter_time_wait(out, now),
            State::Closed => self.enter_closed(out),
            _ => {}
        }
    }

    /// Our SYN is acknowledged. The deadline is requested again, and replaces the one for the SYN's timer: otherwise many
    /// connections that are opened together would be woken together a second later, and find nothing due.
    pub(crate) fn opened(&mut self, out: &mut Outbox<'_>) {
        (self.receive_window.armed, self.send_window.armed) = (Time::MAX, Time::MAX);
        self.header_in.arm(out);
        self.receive_window.arm(out);
        self.send_window.arm(out);
        out.table = match out.table {
            TableChange::None => TableChange::Opened { learnt: false },
            TableChange::DestinationLearnt => TableChange::Opened { learnt: true },
            ended => ended,
        };
    }

    /// TIME-WAIT keeps the header parts and nothing else: unread data stays, all other memory is freed.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
    //# When a connection is closed actively, it MUST linger in the TIME-WAIT state for a time 2xMSL (Maximum Segment
    //# Lifetime) (MUST-13).
    #[inline(never)]
    fn enter_time_wait(&mut self, out: &mut Outbox<'_>, now: Time) {
        out.count(Counter::TimeWaitEntered, 1);
        let crowded = out.scarcity.no_more_time_waits();
        out.count(Counter::TimeWaitsCut, crowded.into());
        let stay = if crowded { Duration::ZERO } else { out.config.time_wait };
        self.header_in.state_deadline = now + stay;
        self.header_in.settings = None;
        self.header_in.arm(out);
        self.drop_send_side(out);
        self.reassembly.give_up(out);
        self.receive_window.sizing = None;
        self.wait(out);
    }

    // As above: without a frame for these two a change of state costs a quarter less.
    #[inline(never)]
    fn enter_closed(&mut self, out: &mut Outbox<'_>) {
        self.header_in.state_deadline = Time::MAX;
        self.header_in.settings = None;
        self.receive_window.ack_deadline = Time::MAX;
        self.drop_send_side(out);
        self.reassembly.give_up(out);
        out.ready |= Readiness::CLOSED | Readiness::READABLE | Readiness::WRITABLE;
    }

    fn drop_send_side(&mut self, out: &mut Outbox<'_>) {
        out.memory -= self.retransmit_queue.clear();
        self.send_window.stop_timer();
        self.send_window.una = self.send_window.nxt;
        self.send_window.set_mode(RecoveryMode::Open);
        self.send_window.loss = None;
    }

    /// A closed connection without a user leaves the table now; otherwise its user's close removes it.
    pub(crate) fn release(&mut self, out: &mut Outbox<'_>) {
        if self.header_in.state == State::Closed && !self.header_in.is_held() {
            out.table = match out.table {
                TableChange::Unfinished { reset, .. } => TableChange::Unfinished { reset, remove: true },
                _ => TableChange::Remove,
            };
        }
        self.wait(out);
    }

    /// A connection in TIME-WAIT without a user needs little memory, and no wake-up before the end.
    pub(crate) fn wait(&mut self, out: &mut Outbox<'_>) {
        let waits = self.header_in.state == State::TimeWait && !self.header_in.is_held();
        if waits && matches!(out.table, TableChange::None | TableChange::Waits) {
            self.receive_window.queue.shrink();
            out.deadline = Some(self.header_in.state_deadline);
            out.table = TableChange::Waits;
        }
    }

    /// Whether it is open although its handshake is not complete (Fast Open).
    pub(crate) fn is_early(&self) -> bool {
        self.header_in.state == State::SynReceived && self.send_window.state == State::Established
    }

    /// The connection failed: store the error, and end it.
    pub(crate) fn fail(&mut self, error: Error, out: &mut Outbox<'_>, now: Time) {
        if self.is_early() {
            out.table = TableChange::Unfinished { reset: error == Error::Reset, remove: false };
        }
        self.header_in.error = Some(error);
        out.ready |= Readiness::ERROR;
        out.count(
            match error {
                Error::TimedOut => Counter::ConnectionsTimedOut,
                Error::Refused => Counter::ConnectionsRefused,
                _ => Counter::ConnectionsReset,
            },
            1,
        );
        self.enter(Cause::Reset, out, now);
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    /// A million idle connections must fit; every byte here costs a megabyte.
    #[test]
    fn a_pcb_is_small() {
        let sizes = [
            size_of::<HeaderIn>(),
            size_of::<ReceiveWindow>(),
            size_of::<Reassembly>(),
            size_of::<SendWindow>(),
            size_of::<RetransmitQueue>(),
            size_of::<HeaderOut>(),
        ];
        assert!(size_of::<Pcb>() <= 464, "{} bytes: {sizes:?}", size_of::<Pcb>());
    }

    /// See [`Pcb`]: fields that calls leave alone fill two lines, and those of transmissions begin one.
    #[test]
    fn what_one_kind_of_event_leaves_alone_fills_cache_lines() {
        const LINE: usize = 64;
        let receive = |field: usize| Pcb::BEFORE + offset_of!(Pcb, receive_window) + field;
        let send = |field: usize| Pcb::BEFORE + offset_of!(Pcb, send_window) + field;
        let (quiet, busy) = (receive(offset_of!(ReceiveWindow, armed)), send(offset_of!(SendWindow, timer)));
        assert_eq!((quiet % LINE, busy % LINE, busy - quiet), (0, 0, 2 * LINE));
        assert_eq!((Pcb::BEFORE + offset_of!(Pcb, header_out) + offset_of!(HeaderOut, acked)) % LINE, 0);
        // The fields that a call touches are before and after them.
        let touched = [
            receive(offset_of!(ReceiveWindow, queue)),
            receive(offset_of!(ReceiveWindow, ack_deadline)),
            receive(offset_of!(ReceiveWindow, nxt)),
            receive(offset_of!(ReceiveWindow, queued)),
            receive(offset_of!(ReceiveWindow, kept)),
            receive(offset_of!(ReceiveWindow, rare)),
            send(offset_of!(SendWindow, una)),
            send(offset_of!(SendWindow, rtt)),
            send(offset_of!(SendWindow, rare)),
        ];
        assert!(touched.iter().all(|place| !(quiet..busy).contains(place)), "{touched:?} in {quiet}..{busy}");
    }
}
