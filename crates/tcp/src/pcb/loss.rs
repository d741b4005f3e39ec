//! The sender's record of losses: which bytes of the flight are lost, which of them were retransmitted and when, and
//! how many bytes are in the network.
//!
//! The flight, from SND.UNA to SND.NXT, has three regions. Above `lost_edge` every byte was sent once (its time is in
//! the send log) and, unless it is SACKed, counts as under way: times of first transmission rise with the sequence
//! number, so those that RACK declares lost lie below one edge. From `high_rxt` (RFC 6675's HighRxt) to that edge,
//! bytes not SACKed are lost and wait for retransmission. Below `high_rxt` all bytes not SACKed were retransmitted;
//! each such run has its own time here, because a retransmission can be lost, too.
//!
//! One box per connection, allocated when the first acknowledgement in disorder arrives or the first timer expires; the
//! send side keeps it from then on. Bounded: the scoreboard has a limit, and runs sent together are one run, of which
//! there are at most [`MAX_RESENT`].

mod too_large;

use std::collections::VecDeque;

use wire::SeqNumber;

use super::Totals;
use super::send_log::SendLog;
use crate::congestion::Prr;
use crate::rack::{DeliveredSegment, Rack};
use crate::sack::Scoreboard;
use crate::tick::{is_before, not_before, since};
use crate::undo::Undo;

pub(crate) use too_large::{Flight, Sizes};

/// Most runs of retransmitted bytes that are distinguished; no more are retransmitted until some have arrived.
pub(crate) const MAX_RESENT: usize = 512;

/// Bytes `[left, right)` that were sent again, from `first` to `last`; as in the send log, bytes that arrived count as
/// sent at `first`, and bytes that may be lost as sent at `last`.
#[derive(Clone, Copy, Debug)]
struct Resent {
    left: SeqNumber,
    right: SeqNumber,
    first: u32,
    last: u32,
    /// The retransmission was lost as well.
    lost: bool,
}

impl Resent {
    fn len(&self) -> u32 {
        bytes(self.left, self.right)
    }

    fn if_delivered(&self) -> DeliveredSegment {
        DeliveredSegment { at: self.first, end: self.right }
    }

    fn if_lost(&self) -> DeliveredSegment {
        DeliveredSegment { at: self.last, end: self.right }
    }
}

/// Bytes from `left` to `right`, 0 if `right` is before.
fn bytes(left: SeqNumber, right: SeqNumber) -> u32 {
    (right - left).max(0) as u32
}

/// A tail loss probe whose effect is not yet known (RFC 8985 section 7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailLossProbe {
    left: SeqNumber,
    /// TLP.end_seq.
    pub(crate) right: SeqNumber,
    at: u32,
    /// TLP.is_retrans: it was old data, not new.
    pub(crate) again: bool,
}

/// Whether the last time-out was genuine (F-RTO, RFC 5682).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FrtoState {
    /// No doubt: it was, or it does not matter.
    #[default]
    None,
    /// The first acknowledgement after it is awaited.
    FirstAck,
    /// The retransmission has arrived: new data is sent next, and the following acknowledgement decides.
    NewData,
}

/// The bytes delivered by one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes acknowledged or SACKed for the first time.
    pub(crate) bytes: u32,
    /// The latest of their transmissions that were the only one.
    pub(crate) first: Option<DeliveredSegment>,
    /// The latest of their transmissions that were retransmissions.
    pub(crate) again: Option<DeliveredSegment>,
    /// Start of the lowest bytes, sent only once, that arrived after bytes sent later.
    pub(crate) reordered: Option<SeqNumber>,
    /// Something arrived that was sent only once, and before recovery began.
    pub(crate) original: bool,
}

/// The result of [`Loss::detect`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detected {
    /// More is lost than was known.
    pub(crate) newly: bool,
    /// Something will be lost if it does not arrive within the reordering window.
    pub(crate) waiting: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) board: Scoreboard,
    pub(crate) rack: Rack,
    pub(crate) prr: Prr,
    pub(crate) undo: Undo,
    /// RecoveryPoint: SND.NXT when recovery began.
    pub(crate) recover: SeqNumber,
    /// Below this, bytes not SACKed were retransmitted.
    high_rxt: SeqNumber,
    /// Below this, bytes neither SACKed nor retransmitted are lost.
    lost_edge: SeqNumber,
    /// Below this, an acknowledgement may belong to any of several transmissions (Karn's rule).
    ambiguous: SeqNumber,
    /// Sorted by sequence number, disjoint.
    resent: VecDeque<Resent>,
    /// Bytes of `resent` that are under way, and that are lost again.
    under_way: u32,
    lost_again: u32,
    /// No run under way is older.
    oldest: u32,
    pub(crate) probe: Option<TailLossProbe>,
    pub(crate) totals: Totals,
    /// Duplicate acknowledgements not yet used up.
    pub(crate) duplicates: u16,
    /// The first unacknowledged segment must be retransmitted regardless of the window.
    pub(crate) resend_first: bool,
    /// Probes of recovery since the last arrival.
    pub(crate) probes: u8,
    /// Time of the last retransmission.
    pub(crate) last_resent: u32,
    /// When an overtaken segment was first seen, while reordering is allowed for.
    pub(crate) overtaken: Option<u32>,
    pub(crate) doubt: FrtoState,
}

impl Loss {
    /// Nothing is lost of a flight that begins at `una`.
    pub(crate) fn new(una: SeqNumber) -> Box<Loss> {
        Box::new(Loss {
            board: Scoreboard::new(),
            rack: Rack::default(),
            prr: Prr::default(),
            undo: Undo::default(),
            recover: una - 1,
            high_rxt: una,
            lost_edge: una,
            ambiguous: una,
            resent: VecDeque::new(),
            under_way: 0,
            lost_again: 0,
            oldest: 0,
            probe: None,
            totals: Totals::default(),
            duplicates: 0,
            resend_first: false,
            probes: 0,
            last_resent: 0,
            overtaken: None,
            doubt: FrtoState::None,
        })
    }

    /// After a time without disorder: all sequence numbers start again at `una`.
    pub(crate) fn begin(&mut self, una: SeqNumber) {
        self.high_rxt = una;
        self.lost_edge = una;
        self.ambiguous = una;
        self.overtaken = None;
        self.rack.forget_deliveries();
        self.drop_resent();
    }

    fn drop_resent(&mut self) {
        self.resent.clear();
        self.under_way = 0;
        self.lost_again = 0;
    }

    /// Estimate of the bytes in the network (pipe; RFC 6675 section 4 with losses as RACK detects them).
    //= https://www.rfc-editor.org/rfc/rfc6675#section-4
    //# This routine traverses the sequence space from HighACK to HighData and MUST set the "pipe" variable to an
    //# estimate of the number of octets that are currently in transit between the TCP sender and the TCP receiver.
    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
    //# SACK-enabled connections using RACK-TLP loss detection [RFC8985] or other loss detection algorithms MUST
    //# calculate inflight by starting with SND.NXT - SND.UNA, subtracting out bytes SACKed in the scoreboard,
    //# subtracting out bytes marked lost in the scoreboard, and adding bytes in the scoreboard that have been
    //# retransmitted since they were last marked lost.
    pub(crate) fn pipe(&self, una: SeqNumber, nxt: SeqNumber) -> u32 {
        let edge = self.lost_edge.max(una);
        let sacked_above = self.board.sacked_bytes() - self.board.sacked_below(edge);
        bytes(edge, nxt).saturating_sub(sacked_above) + self.under_way
    }

    /// Bytes that are lost and not sent again since.
    pub(crate) fn lost(&self, una: SeqNumber) -> u32 {
        let from = self.high_rxt.max(una);
        let waiting = bytes(from, self.lost_edge);
        let sacked = self.board.sacked_below(self.lost_edge).saturating_sub(self.board.sacked_below(from));
        waiting.saturating_sub(sacked) + self.lost_again
    }

    /// Bytes that are lost, sent again since or not.
    pub(crate) fn lost_in_all(&self, una: SeqNumber) -> u32 {
        bytes(una, self.lost_edge).saturating_sub(self.board.sacked_below(self.lost_edge))
    }

    /// Retransmitted bytes in flight.
    pub(crate) fn resent_bytes(&self) -> u32 {
        self.under_way
    }

    /// Whether any lost byte, retransmitted or not, has not arrived.
    pub(crate) fn any_lost(&self, una: SeqNumber) -> bool {
        self.lost_edge.gt(una) && self.board.hole_from(una, self.lost_edge).is_some()
    }

    /// The lost bytes to send again next, at most `mss` of them.
    pub(crate) fn next_lost(&self, una: SeqNumber, mss: u32) -> Option<(SeqNumber, SeqNumber)> {
        let (left, right) = if self.lost_again > 0 {
            self.resent.iter().find(|run| run.lost).map(|run| (run.left, run.right))
        } else if self.resent.len() >= MAX_RESENT {
            None
        } else {
            self.board.hole_from(self.high_rxt.max(una), self.lost_edge)
        }?;
        Some((left, left + bytes(left, right).min(mss)))
    }

    /// When the segment at `una` was last sent, if it was retransmitted or probed.
    pub(crate) fn first_left_again(&self, una: SeqNumber) -> Option<u32> {
        let resent = self.resent.front().filter(|run| run.left.le(una) && run.right.gt(una)).map(|run| run.last);
        let probed = self.probe.filter(|probe| probe.left.le(una) && probe.right.gt(una)).map(|probe| probe.at);
        probed.or(resent)
    }

    /// The end of the first segment of the flight: at most `mss` bytes, none of them SACKed.
    pub(crate) fn first_end(&self, una: SeqNumber, nxt: SeqNumber, mss: u32) -> SeqNumber {
        let right = self.board.hole_from(una, nxt).map_or(nxt, |(_, right)| right);
        una + bytes(una, right).min(mss)
    }

    /// The transmission time recorded at `now`: not before that of the last retransmission ([`not_before`]).
    #[cold]
    pub(crate) fn leaves_at(&self, now: u32) -> u32 {
        if self.under_way > 0 { not_before(now, self.last_resent) } else { now }
    }

    /// `[left, right)` was sent again at `now`; runs within `width` of each other count as one.
    pub(crate) fn sent_again(&mut self, left: SeqNumber, right: SeqNumber, now: u32, width: u32) {
        self.take_resent(left, right);
        self.last_resent = now;
        if self.under_way == 0 || is_before(now, self.oldest) {
            self.oldest = now;
        }
        self.under_way += bytes(left, right);
        //= https://www.rfc-editor.org/rfc/rfc6675#section-5
        //# If any of the data octets sent in (C.1) are below HighData, HighRxt MUST be set to the highest sequence
        //# number of the retransmitted segment unless NextSeg () rule (4) was invoked for this retransmission.
        self.high_rxt = self.high_rxt.max(right);
        let at = self.resent.partition_point(|run| run.left.lt(left));
        let before = at.checked_sub(1).and_then(|i| self.resent.get_mut(i));
        match before {
            Some(run) if run.right == left && !run.lost && since(now, run.first) <= width => {
                run.right = right;
                run.last = now;
            }
            _ => self.resent.insert(at, Resent { left, right, first: now, last: now, lost: false }),
        }
    }

    /// Removes `[left, right)` from the retransmitted runs; returns the latest transmission of any of it.
    fn take_resent(&mut self, left: SeqNumber, right: SeqNumber) -> Option<DeliveredSegment> {
        let mut i = self.resent.partition_point(|run| run.right.le(left));
        let mut latest: Option<DeliveredSegment> = None;
        while let Some(run) = self.resent.get(i).copied().filter(|run| run.left.lt(right)) {
            let cut = Resent { left: run.left.max(left), right: run.right.min(right), ..run };
            let gone = if run.lost { &mut self.lost_again } else { &mut self.under_way };
            *gone -= cut.len();
            see(&mut latest, cut.if_delivered());
            self.resent.remove(i);
            for rest in [Resent { right: cut.left, ..run }, Resent { left: cut.right, ..run }] {
                if rest.len() > 0 {
                    self.resent.insert(i, rest);
                    i += 1;
                }
            }
        }
        latest
    }

    /// Bytes `[left, right)`, which were not SACKed, have arrived; `fack` is one past the highest byte that had before.
    pub(crate) fn deliver(
        &mut self,
        log: &SendLog,
        (left, right): (SeqNumber, SeqNumber),
        fack: Option<SeqNumber>,
        delivery: &mut Delivery,
    ) {
        delivery.bytes += bytes(left, right);
        if left.lt(self.high_rxt)
            && let Some(sent) = self.take_resent(left, right)
        {
            see(&mut delivery.again, sent);
        }
        let first = left.max(self.high_rxt).max(self.ambiguous);
        if first.ge(right) {
            return;
        }
        if let Some(probe) = self.probe.filter(|probe| probe.again && probe.right.gt(first) && probe.left.lt(right)) {
            see(&mut delivery.again, DeliveredSegment { at: probe.at, end: probe.right.min(right) });
            return;
        }
        see(&mut delivery.first, DeliveredSegment { at: log.time_of(right - 1), end: right });
        if fack.is_some_and(|fack| right.le(fack)) {
            delivery.reordered = Some(delivery.reordered.map_or(first, |low| if first.lt(low) { first } else { low }));
        }
        delivery.original |= first.lt(self.recover);
    }

    /// The acknowledgement of everything below `ack` has arrived, while SND.UNA is still `una`: returns the newly
    /// delivered bytes.
    pub(crate) fn deliver_up_to(&mut self, log: &SendLog, una: SeqNumber, ack: SeqNumber) -> Delivery {
        let mut delivery = Delivery::default();
        let fack = self.board.highest();
        let mut from = una;
        while let Some((left, right)) = self.board.hole_from(from, ack) {
            self.deliver(log, (left, right), fack, &mut delivery);
            from = right;
        }
        // Runs below a SACKed range that is now acknowledged.
        self.take_resent(una, ack);
        delivery
    }

    /// RACK_detect_loss (RFC 8985 section 6.2, step 5) at `now`, with this reordering window.
    pub(crate) fn detect(&mut self, log: &SendLog, una: SeqNumber, nxt: SeqNumber, now: u32, window: u32) -> Detected {
        self.rack.forget_what_is_too_old(now);
        let Some(newest) = self.rack.newest() else { return Detected::default() };
        let overdue = self.rack.overdue(window, now);
        let mut found = self.detect_resent(newest, window, now);
        let mut earlier = log.sent_by(newest.at.wrapping_sub(1), una, nxt);
        if newest.end.gt(una) && newest.end.le(nxt) && log.time_of(newest.end - 1) == newest.at {
            earlier = earlier.max(newest.end);
        }
        let edge = if is_before(overdue, newest.at) { log.sent_by(overdue, una, nxt).min(earlier) } else { earlier };
        let from = self.lost_edge.max(self.high_rxt).max(una);
        found.newly |= self.board.hole_from(from, edge).is_some();
        self.lost_edge = self.lost_edge.max(edge);
        found.waiting |= self.board.hole_from(from.max(edge), earlier).is_some();
        found
    }

    /// The same for retransmitted bytes.
    fn detect_resent(&mut self, newest: DeliveredSegment, window: u32, now: u32) -> Detected {
        let mut found = Detected::default();
        // By age and not by time, because times wrap after an hour.
        if self.under_way == 0 || since(now, newest.at) > since(now, self.oldest) {
            return found;
        }
        let mut oldest = None;
        for run in self.resent.iter_mut().filter(|run| !run.lost) {
            if self.rack.is_overdue(run.if_lost(), window, now) {
                run.lost = true;
                self.under_way -= run.len();
                self.lost_again += run.len();
                found.newly = true;
                continue;
            }
            found.waiting |= self.rack.overtook(run.if_lost(), now);
            if oldest.is_none_or(|oldest| since(now, run.last) > since(now, oldest)) {
                oldest = Some(run.last);
            }
        }
        self.oldest = oldest.unwrap_or(self.oldest);
        found
    }

    /// The whole flight is lost, and nothing of it retransmitted.
    //= https://www.rfc-editor.org/rfc/rfc6675#section-5.1
    //# If an RTO occurs during loss recovery as specified in this document, RecoveryPoint MUST be set to HighData.
    pub(crate) fn lose_everything(&mut self, una: SeqNumber, nxt: SeqNumber) {
        self.ambiguous = self.ambiguous.max(self.high_rxt).max(una);
        if let Some(probe) = self.probe.take().filter(|probe| probe.again) {
            self.ambiguous = self.ambiguous.max(probe.right);
        }
        self.drop_resent();
        self.high_rxt = una;
        self.lost_edge = nxt;
        self.recover = nxt;
        self.doubt = FrtoState::None;
        self.duplicates = 0;
        self.resend_first = true;
    }

    /// Whether any byte at or above `end` is lost.
    pub(crate) fn more_lost_than(&self, end: SeqNumber) -> bool {
        self.lost_edge.gt(end) && self.board.hole_from(end, self.lost_edge).is_some()
    }

    /// Only `[una, end)` is lost, the beginning of the flight; recovery lasts until the whole flight has arrived.
    pub(crate) fn lose_first(&mut self, una: SeqNumber, end: SeqNumber, nxt: SeqNumber) {
        self.lose_everything(una, nxt);
        self.lost_edge = end;
    }

    /// Nothing was lost after all: everything counts as under way.
    pub(crate) fn lose_nothing(&mut self, una: SeqNumber) {
        self.ambiguous = self.ambiguous.max(self.high_rxt);
        self.drop_resent();
        self.high_rxt = una;
        self.lost_edge = una;
        self.resend_first = false;
        self.rack.forget_deliveries();
    }

    /// SACK information is no longer relied upon. A repeated report does not mean that the bytes have just arrived.
    pub(crate) fn forget_board(&mut self) {
        if let Some(highest) = self.board.highest() {
            self.ambiguous = self.ambiguous.max(highest);
        }
        self.board.clear();
    }

    /// The peer reneged (RFC 2018 section 8): all bytes SACKed or retransmitted below the lost edge must be sent again.
    pub(crate) fn renege(&mut self, una: SeqNumber) {
        self.forget_board();
        self.ambiguous = self.ambiguous.max(self.high_rxt);
        self.drop_resent();
        self.high_rxt = una;
    }

    /// `[left, right)` is sent as a tail loss probe: `again` if it is old data.
    pub(crate) fn probe_sent(&mut self, (left, right): (SeqNumber, SeqNumber), now: u32, again: bool) {
        self.probe = Some(TailLossProbe { left, right, at: now, again });
    }

    /// Frees heap memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        self.board.shrink();
        if self.resent.is_empty() {
            self.resent = VecDeque::new();
        }
    }
}

/// Keep the later of two transmissions.
fn see(slot: &mut Option<DeliveredSegment>, sent: DeliveredSegment) {
    if slot.is_none_or(|known| sent.is_after(known)) {
        *slot = Some(sent);
    }
}
