//! When the bytes in flight were first sent, for RACK (RFC 8985) and the round-trip samples of slow start, without a
//! record for each segment.
//!
//! New bytes are sent in the order of their sequence numbers, so the times of first transmission rise with them, and
//! the flight consists of *slices* of bytes sent at nearly the same time: within 1/32 of the smoothed round-trip time,
//! and a quarter of the least. (The smoothed one alone, after a minute without an answer, would make one slice of
//! everything sent in seconds, and partial arrivals would say nothing about the rest.) If there are more than
//! [`SLICES`], pairs of them are merged, so that recent transmissions are always distinguished. The newest slice is
//! kept inline, the older ones on the heap: a sender with more than one slice in flight allocates once, and frees the
//! memory when it is idle.
//!
//! Called by `output` when new bytes were sent and by the acknowledgement step when SND.UNA moved. A slice has two
//! times: bytes that arrived count as sent at its beginning, and bytes that may be lost as sent at its end. What may
//! never happen: a byte that counts as sent earlier than it was when loss detection examines it.

use crate::tick::{is_before, since};
use wire::SeqNumber;

/// Most older slices kept.
const SLICES: usize = 64;

/// When the first and the last of some bytes were sent; microseconds modulo 2^32.
#[derive(Clone, Copy, Debug)]
struct SendTimes {
    first: u32,
    last: u32,
}

/// Bytes up to `right`, not included.
#[derive(Clone, Copy, Debug)]
struct Slice {
    right: SeqNumber,
    left_at: SendTimes,
}

/// A ring of slices, oldest at `head`.
#[derive(Debug)]
struct Older {
    slices: [Slice; SLICES],
    head: u8,
    len: u8,
}

impl Older {
    fn new() -> Box<Older> {
        Box::new(Older {
            slices: [Slice { right: SeqNumber(0), left_at: SendTimes { first: 0, last: 0 } }; SLICES],
            head: 0,
            len: 0,
        })
    }

    #[inline]
    fn get(&self, i: u8) -> Slice {
        self.slices[usize::from(self.head.wrapping_add(i)) % SLICES]
    }

    fn push(&mut self, slice: Slice) {
        self.slices[usize::from(self.head.wrapping_add(self.len)) % SLICES] = slice;
        self.len += 1;
    }

    /// Merges pairs. Newer slices lie further on, so each is read before its place is written.
    #[cold]
    fn compact(&mut self) {
        for i in 0..self.len / 2 {
            let (old, new) = (self.get(2 * i), self.get(2 * i + 1));
            let left_at = SendTimes { first: old.left_at.first, last: new.left_at.last };
            self.slices[usize::from(self.head.wrapping_add(i)) % SLICES] = Slice { right: new.right, left_at };
        }
        self.len /= 2;
    }

    #[inline]
    fn pop(&mut self) {
        self.head = self.head.wrapping_add(1) % SLICES as u8;
        self.len -= 1;
    }

    /// Number of slices, from the oldest on, for which `before` holds; it must be false for all slices after the first
    /// for which it is.
    fn partition_point(&self, before: impl Fn(Slice) -> bool) -> u8 {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let mid = (low + high) / 2;
            if before(self.get(mid)) { low = mid + 1 } else { high = mid }
        }
        low
    }
}

/// See the module documentation. Sixteen bytes inline.
#[derive(Debug)]
pub(crate) struct SendLog {
    /// When the newest slice was sent.
    newest: SendTimes,
    older: Option<Box<Older>>,
}

impl SendLog {
    /// Nothing in flight.
    pub(crate) const fn new() -> Self {
        SendLog { newest: SendTimes { first: 0, last: 0 }, older: None }
    }

    /// A SYN was sent at `now`, and nothing else.
    #[inline(always)]
    pub(crate) fn of_syn(now: u32) -> Self {
        SendLog { newest: SendTimes { first: now, last: now }, older: None }
    }

    /// New bytes were sent at `now`, from `from` on (SND.NXT before them), with `una` as SND.UNA; slices shorter than
    /// `width` microseconds are not distinguished. True if heap memory was allocated.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-4
    //# For each data segment sent, the sender MUST store its most recent transmission time with a timestamp whose
    //# granularity is finer than 1/4 of the minimum RTT of the connection.
    #[inline]
    pub(crate) fn sent(&mut self, una: SeqNumber, from: SeqNumber, now: u32, width: u32) -> bool {
        if una == from {
            self.sent_alone(now);
            return false;
        }
        if since(now, self.newest.first) <= width {
            self.newest.last = self.newest.last.wrapping_add(since(now, self.newest.last));
            return false;
        }
        self.begin_slice(from, now)
    }

    /// [`SendLog::sent`] where nothing else is in flight.
    #[inline(always)]
    pub(crate) fn sent_alone(&mut self, now: u32) {
        self.newest = SendTimes { first: now, last: now };
        if let Some(older) = &mut self.older {
            older.len = 0;
        }
    }

    fn begin_slice(&mut self, from: SeqNumber, now: u32) -> bool {
        let fresh = self.older.is_none();
        let older = self.older.get_or_insert_with(Older::new);
        if usize::from(older.len) == SLICES {
            older.compact();
        }
        older.push(Slice { right: from, left_at: self.newest });
        self.newest = SendTimes { first: now, last: now };
        fresh
    }

    /// SND.UNA has moved to `una`; returns the first transmission time of the slice of the byte before it.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, una: SeqNumber) -> u32 {
        if self.older.is_none() { self.newest.first } else { self.acknowledge_older(una) }
    }

    #[inline(never)]
    fn acknowledge_older(&mut self, una: SeqNumber) -> u32 {
        let Some(older) = &mut self.older else { return self.newest.first };
        while older.len > 0 {
            let oldest = older.get(0);
            if oldest.right.gt(una) {
                return oldest.left_at.first;
            }
            older.pop();
            if oldest.right == una {
                return oldest.left_at.first;
            }
        }
        self.newest.first
    }

    /// The first transmission time of the slice of the byte `seq`, which is in flight.
    #[inline(always)]
    pub(crate) fn time_of(&self, seq: SeqNumber) -> u32 {
        match &self.older {
            Some(older) if older.len > 0 => self.time_of_older(older, seq),
            _ => self.newest.first,
        }
    }

    fn time_of_older(&self, older: &Older, seq: SeqNumber) -> u32 {
        let i = older.partition_point(|slice| slice.right.le(seq));
        if i < older.len { older.get(i).left_at.first } else { self.newest.first }
    }

    /// When the newest bytes were sent.
    pub(crate) fn newest(&self) -> u32 {
        self.newest.last
    }

    /// The end of the bytes certainly sent at or before `limit`; at least `una`, at most `nxt`.
    pub(crate) fn sent_by(&self, limit: u32, una: SeqNumber, nxt: SeqNumber) -> SeqNumber {
        if !is_before(limit, self.newest.last) {
            return nxt;
        }
        let Some(older) = &self.older else { return una };
        match older.partition_point(|slice| !is_before(limit, slice.left_at.last)) {
            0 => una,
            i => older.get(i - 1).right.max(una),
        }
    }

    /// The ends of the slices between `una` and SND.NXT, except the newest.
    pub(crate) fn edges(&self, una: SeqNumber) -> impl Iterator<Item = SeqNumber> + '_ {
        let older = self.older.as_deref();
        let edges = (0..older.map_or(0, |older| older.len)).filter_map(move |i| older.map(|older| older.get(i).right));
        edges.filter(move |edge| edge.gt(una))
    }

    /// The first and the last transmission time of the bytes up to `right`, all of one slice.
    pub(crate) fn span_of(&self, right: SeqNumber) -> (u32, u32) {
        let older = self.older.as_deref();
        let slice = older.and_then(|older| {
            let i = older.partition_point(|slice| slice.right.lt(right));
            (i < older.len).then(|| older.get(i))
        });
        let span = slice.map_or(self.newest, |slice| slice.left_at);
        (span.first, span.last)
    }

    /// Whether heap memory is held.
    pub(crate) fn is_spilled(&self) -> bool {
        self.older.is_some()
    }

    /// Frees heap memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        if self.older.as_ref().is_some_and(|older| older.len == 0) {
            self.older = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNA: SeqNumber = SeqNumber(u32::MAX - 499);

    fn at(offset: u32) -> SeqNumber {
        UNA + offset
    }

    #[test]
    fn one_slice_needs_no_heap_and_two_are_told_apart() {
        let mut log = SendLog::new();
        assert!(!log.sent(UNA, UNA, 1000, 10));
        assert!(!log.sent(UNA, at(100), 1010, 10), "within the width of the slice");
        assert!(!log.is_spilled());
        assert!(log.sent(UNA, at(200), 1020, 10));
        assert!(!log.sent(UNA, at(700), 2000, 10));
        assert_eq!([0, 199, 200, 699, 700, 900].map(|o| log.time_of(at(o))), [1000, 1000, 1020, 1020, 2000, 2000]);
        let nxt = at(1000);
        let ends = [1009, 1010, 1019, 1020, 1999, 2000].map(|limit| log.sent_by(limit, UNA, nxt));
        assert_eq!(ends, [UNA, at(200), at(200), at(700), at(700), nxt]);
        assert_eq!(log.acknowledge(at(100)), 1000);
        assert_eq!(log.acknowledge(at(200)), 1000);
        assert_eq!(log.acknowledge(at(201)), 1020);
        assert_eq!(log.acknowledge(nxt), 2000);
        log.shrink();
        assert!(!log.is_spilled());
    }

    #[test]
    fn a_full_log_tells_apart_what_left_lately() {
        let mut log = SendLog::new();
        for i in 0..=64 {
            log.sent(UNA, at(10 * i), 1000 * i, 1);
        }
        assert_eq!([5, 19, 639, 640].map(|o| log.time_of(at(o))), [0, 1000, 63_000, 64_000], "64, and the newest");
        for i in 65..200 {
            log.sent(UNA, at(10 * i), 1000 * i, 1);
        }
        assert_eq!([5, 1979, 1980, 1999].map(|o| log.time_of(at(o))), [0, 197_000, 198_000, 199_000]);
        assert!(log.time_of(at(639)) < 63_000, "what is old is told apart less well");
        assert_eq!(log.sent_by(198_999, UNA, at(2000)), at(1990));
        assert_eq!(log.sent_by(199_000, UNA, at(2000)), at(2000));
    }

    /// The flight, with a record for each byte beside the log.
    struct Flight {
        log: SendLog,
        truth: Vec<u32>,
        una: usize,
        now: u32,
    }

    impl Flight {
        fn new() -> Flight {
            Flight { log: SendLog::new(), truth: Vec::new(), una: 0, now: u32::MAX - 2000 }
        }

        /// After `gap`, `len` bytes are sent, and then `acked` bytes acknowledged: the transmission time of the last of
        /// these, and that by the log.
        fn step(&mut self, (len, gap, acked): (u32, u32, u32), width: u32) -> Option<(u32, u32)> {
            self.now = self.now.wrapping_add(gap);
            self.log.sent(at(self.una as u32), at(self.truth.len() as u32), self.now, width);
            self.truth.resize(self.truth.len() + len as usize, self.now);
            let target = (self.una + acked as usize).min(self.truth.len());
            if target == self.una {
                return None;
            }
            self.una = target;
            Some((self.truth[target - 1], self.log.acknowledge(at(target as u32))))
        }
    }

    proptest! {
        /// For any flight: no byte counts as sent later than it was when it arrives, nor earlier when it may be lost,
        /// and the latest transmissions are distinguished.
        #[test]
        fn a_full_log_errs_on_the_safe_side(
            steps in prop::collection::vec((1u32..50, 0u32..300, 0u32..30), 100..400),
            width in 0u32..100,
        ) {
            let mut flight = Flight::new();
            for step in steps {
                if let Some((sent, told)) = flight.step(step, width) {
                    prop_assert!(!is_before(sent, told));
                }
                let Flight { log, truth, una, now } = &flight;
                let (first, nxt) = (at(*una as u32), at(truth.len() as u32));
                for (i, &sent) in truth.iter().enumerate().skip(*una) {
                    prop_assert!(!is_before(sent, log.time_of(at(i as u32))), "{i} had left by {sent}");
                    prop_assert!(log.sent_by(sent.wrapping_sub(1), first, nxt).le(at(i as u32)), "{i} had not left");
                }
                prop_assert!(*una == truth.len() || since(*now, log.time_of(nxt - 1)) <= width);
            }
        }

        /// Compared with a record per byte: delivered bytes never count as sent later than they were, nor earlier by
        /// more than the width; and no byte counts as sent by a time before it was.
        //= https://www.rfc-editor.org/rfc/rfc8985#section-4
        //= type=test
        //# For each data segment sent, the sender MUST store its most recent transmission time with a timestamp whose
        //# granularity is finer than 1/4 of the minimum RTT of the connection.
        #[test]
        fn agrees_with_a_record_per_byte(
            steps in prop::collection::vec((1u32..50, 0u32..300, 0u32..60), 1..60),
            width in 0u32..100,
        ) {
            let mut flight = Flight::new();
            for step in steps {
                if let Some((sent, told)) = flight.step(step, width) {
                    prop_assert!(!is_before(sent, told) && since(sent, told) <= width);
                }
                let Flight { log, truth, una, .. } = &flight;
                let (first, nxt) = (at(*una as u32), at(truth.len() as u32));
                for (i, &sent) in truth.iter().enumerate().skip(*una) {
                    let told = log.time_of(at(i as u32));
                    prop_assert!(!is_before(sent, told) && since(sent, told) <= width, "{i} left at {sent}, not {told}");
                    prop_assert!(log.sent_by(sent.wrapping_sub(1), first, nxt).le(at(i as u32)), "{i} had not left");
                    prop_assert!(log.sent_by(told.wrapping_add(width), first, nxt).gt(at(i as u32)), "{i} had left");
                }
            }
        }
    }
}
