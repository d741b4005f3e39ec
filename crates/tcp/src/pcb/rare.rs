//! The flag word of the fast lane: rare states of a connection, one byte for each side.
//!
//! The lane would ask a dozen questions for each segment and each call, all of which nearly always have the same
//! answer: is the state ESTABLISHED, is no loss repaired, has neither side closed, does the user read as usual? Each
//! side keeps the answers as bits of one byte, in the part whose lock protects what they are made of. The lane compares
//! the bytes with zero. Where the parts have locks of their own a step reads the byte of the side that it holds.
//!
//! Two of the answers are stored here alone: that the user has closed, and that segments have timestamps. The others
//! repeat fields. What may never happen: a byte that differs from what it repeats. So only `recomputed` defines the
//! bits; code that changes such a field notes it here; and in debug builds the lane recomputes the byte wherever it
//! relies on it.

use super::receive_window::{Fin, WindowAdvertised};
use super::{ReadMode, ReceiveWindow, RecoveryMode, RetransmitQueue, SendWindow};
use crate::state::State;
use crate::window_rule::WindowRule;

/// Bits of one side; see the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rare(u8);

impl Rare {
    /// The state is not ESTABLISHED.
    const STATE: Rare = Rare(1);
    /// The user has closed: a FIN follows the data. Or the peer has: its FIN was seen.
    const CLOSING: Rare = Rare(2);
    /// Send side: a loss is suspected or repaired.
    const DISORDER: Rare = Rare(4);
    /// Send side: the connection has limits of its own ([`Shaping`](super::Shaping)).
    const SHAPED: Rare = Rare(8);
    /// Receive side: segments have no timestamps.
    const NO_TIMESTAMPS: Rare = Rare(4);
    /// Receive side: the user is notified of every arrival, or reads no more.
    const READING: Rare = Rare(16);
    /// Receive side: there is an urgent mark.
    const URGENT: Rare = Rare(32);
    /// Receive side: no data has arrived yet, or none was acknowledged.
    const BEGINNING: Rare = Rare(64);
    /// Receive side: the window follows another rule than Linux's, or is not scaled.
    const WINDOW: Rare = Rare(128);

    /// Bits that do not matter for a segment without data.
    const OF_DATA: u8 = Rare::READING.0 | Rare::URGENT.0 | Rare::BEGINNING.0 | Rare::WINDOW.0;

    /// The byte of a send side that is being made, in CLOSED.
    pub(crate) fn of_new_sender(shaped: bool) -> Rare {
        Rare(Rare::STATE.0 | Rare::SHAPED.when(shaped))
    }

    /// The byte of a receive side that is being made, in `state`.
    pub(crate) fn of_new_receiver(state: State) -> Rare {
        let rest = Rare::NO_TIMESTAMPS.0 | Rare::BEGINNING.0 | Rare::WINDOW.0;
        Rare(rest | Rare::STATE.when(state != State::Established))
    }

    /// The state is `state` now.
    #[inline]
    pub(crate) fn note_state(&mut self, state: State) {
        self.set(Rare::STATE, state != State::Established);
    }

    #[inline(always)]
    fn set(&mut self, bit: Rare, on: bool) {
        self.0 = self.0 & !bit.0 | bit.when(on);
    }

    /// Whether nothing is rare: the lane takes the side's segments and calls.
    #[inline(always)]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether nothing is rare that concerns a segment without data.
    #[inline(always)]
    pub(crate) fn is_only_of_data(self) -> bool {
        self.0 & !Rare::OF_DATA == 0
    }

    /// The bits of both sides.
    #[inline(always)]
    pub(crate) fn or(self, other: Rare) -> Rare {
        Rare(self.0 | other.0)
    }

    #[inline(always)]
    fn has(self, bit: Rare) -> bool {
        self.0 & bit.0 != 0
    }

    #[inline(always)]
    fn when(self, holds: bool) -> u8 {
        if holds { self.0 } else { 0 }
    }
}

impl SendWindow {
    /// The byte as it must be. The FIN in flight has no bit of its own, because a FIN in flight is also queued.
    pub(crate) fn recomputed(&self) -> Rare {
        let bits = Rare::STATE.when(self.state != State::Established)
            | Rare::CLOSING.when(self.fin_queued())
            | Rare::DISORDER.when(self.mode != RecoveryMode::Open)
            | Rare::SHAPED.when(self.shaping.is_some());
        Rare(bits)
    }

    /// It has limits of its own from now on.
    pub(super) fn note_shaped(&mut self) {
        self.rare.set(Rare::SHAPED, true);
    }

    /// Nothing is rare on the send side.
    #[inline(always)]
    pub(crate) fn is_usual(&self) -> bool {
        debug_assert_eq!(self.rare, self.recomputed());
        self.rare.is_empty()
    }

    /// Whether the user sends no more: a FIN follows the data.
    #[inline(always)]
    pub(crate) fn fin_queued(&self) -> bool {
        self.rare.has(Rare::CLOSING)
    }

    /// Whether the FIN waits to be sent, after all data and within the peer's window, and nothing else is rare.
    #[inline]
    pub(crate) fn only_fin_waits(&self, queue: &RetransmitQueue) -> bool {
        self.rare.0 & !Rare::STATE.0 == Rare::CLOSING.0
            && !self.fin_sent
            && queue.len == self.flight()
            && self.right_edge().gt(self.nxt)
    }

    /// The user sends no more.
    pub(crate) fn queue_fin(&mut self) {
        self.rare.set(Rare::CLOSING, true);
    }

    /// Sets the recovery state.
    pub(crate) fn set_mode(&mut self, mode: RecoveryMode) {
        self.mode = mode;
        self.rare.set(Rare::DISORDER, mode != RecoveryMode::Open);
    }
}

impl ReceiveWindow {
    /// Whether segments have timestamps.
    #[inline(always)]
    pub(crate) fn timestamps(&self) -> bool {
        !self.rare.has(Rare::NO_TIMESTAMPS)
    }

    /// Sets whether segments have timestamps.
    pub(crate) fn set_timestamps(&mut self, on: bool) {
        self.rare.set(Rare::NO_TIMESTAMPS, !on);
    }

    /// The byte as it must be.
    pub(crate) fn recomputed(&self) -> Rare {
        let bits = Rare::STATE.when(self.state != State::Established)
            | Rare::CLOSING.when(self.fin != Fin::Ahead)
            | Rare::NO_TIMESTAMPS.when(!self.timestamps())
            | Rare::READING.when(self.reading != ReadMode::AtLowWater)
            | Rare::URGENT.when(self.urgent_valid)
            | Rare::BEGINNING.when(self.is_beginning())
            | Rare::WINDOW.when(self.rule != WindowRule::Linux || self.shift == 0);
        Rare(bits)
    }

    /// A field that the byte repeats may have changed.
    pub(crate) fn note_rare(&mut self) {
        self.rare = self.recomputed();
    }

    /// Data has arrived, or a segment without SYN was sent.
    #[inline]
    pub(super) fn note_beginning(&mut self) {
        self.rare.set(Rare::BEGINNING, self.is_beginning());
    }

    #[inline]
    fn is_beginning(&self) -> bool {
        self.bytes_received == 0 || self.advertised != WindowAdvertised::Data
    }

    /// The two ends have agreed on the window's shift.
    #[inline]
    pub(crate) fn set_shift(&mut self, shift: u8) {
        self.shift = shift;
        self.rare.set(Rare::WINDOW, self.rule != WindowRule::Linux || shift == 0);
    }

    /// The peer's FIN was seen.
    #[inline]
    pub(super) fn note_closing(&mut self) {
        self.rare.set(Rare::CLOSING, true);
    }

    /// Nothing is rare on the receive side.
    #[inline(always)]
    pub(crate) fn is_usual(&self) -> bool {
        debug_assert_eq!(self.rare, self.recomputed());
        self.rare.is_empty()
    }
}
