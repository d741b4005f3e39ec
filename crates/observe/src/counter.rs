//! Counters: their list, the block of counters of a thread or cell, and snapshots that can be added.
//!
//! A [`Counters`] block is meant to have **one writer**: then an increment is a plain load and store of a line that
//! never leaves the writer's cache. Readers take a [`CounterSnapshot`] at any time and add the blocks of all threads or
//! cells; the sum is exact when the writers are at rest. Work by any thread is counted in
//! [`PerThreadCounters`](crate::PerThreadCounters). A block that several threads write, rarely, is made with
//! [`Counters::shared`] and uses a locked add. Writing to a single-writer block from two threads at once loses counts,
//! like the unsynchronised statistics of historical stacks, but is not undefined behaviour.

use core::fmt;
use core::iter;
use core::ops::{Add, AddAssign, Sub, SubAssign};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sync::Atomic;

use crate::DropReason;

declare! {
    /// All counters except drops, which are counted by [`DropReason`].
    #[non_exhaustive]
    pub enum Counter {
        FramesIn "Frames taken from a device."
        FramesOut "Frames given to a device."
        RxBatches "Non-empty batches taken from a receive queue."
        ConnectionsPrefetched "Connections for which a receive thread asked the processor before the segments of a batch were processed."
        ChecksumsVerified "Transport checksums computed over received packets."
        ChecksumsOffloaded "Transport checksums that a device verified, or that were left to a device."

        AddressesLearned "Station addresses that a bridge learned."
        AddressesMoved "Station addresses that a bridge learned again behind another port."
        AddressesRefused "Frames whose source a bridge did not learn because the table, or its port's share of it, was full."

        ArpRequestsIn "ARP requests received."
        ArpRepliesIn "ARP replies received."
        ArpRequestsOut "ARP requests sent."
        ArpRepliesOut "ARP replies sent."
        NeighbourSolicitsIn "Neighbour solicitations received."
        NeighbourAdvertsIn "Neighbour advertisements received."
        NeighbourSolicitsOut "Neighbour solicitations sent."
        NeighbourAdvertsOut "Neighbour advertisements sent."
        RouterAdvertsIn "Router advertisements received and processed."
        RouterSolicitsOut "Router solicitations sent."
        RedirectsIn "Redirects received and followed."
        GroupQueriesIn "Queries for multicast groups received (RFC 3376, RFC 3810)."
        ListenerReportsOut "Reports of multicast memberships sent (RFC 3376, RFC 3810)."
        AddressesDuplicate "Addresses under test that another station has (RFC 4862, RFC 5227)."
        AddressConflicts "Times another station claimed an address in use here (RFC 5227)."
        NeighboursResolved "Neighbours whose link address became known."
        NeighboursFailed "Neighbours that did not answer."

        PacketsIn "IP packets received that passed the header checks."
        FragmentsIn "IP fragments received."
        FragmentsOut "IP fragments sent."
        PacketsReassembled "IP packets reassembled from fragments."
        PacketsFragmented "IP packets cut into fragments."

        IcmpIn "ICMP messages received."
        IcmpOut "ICMP messages sent."
        IcmpEchoRequestsIn "ICMP echo requests received."
        IcmpEchoRepliesOut "ICMP echo replies sent."
        IcmpErrorsIn "ICMP errors received."
        IcmpErrorsOut "ICMP errors sent."
        PathMtuUpdates "Times a path's maximum transmission unit was lowered."

        DatagramsIn "UDP datagrams delivered to a socket."
        DatagramsOut "UDP datagrams sent."

        SegmentsIn "TCP segments received that passed the header checks."
        SegmentsOut "TCP segments sent, a super-segment counting once."
        DataBytesIn "Bytes of TCP data accepted in sequence."
        DataBytesOut "Bytes of TCP data sent for the first time."
        FastPathIn "Segments handled by header prediction."
        SlowPathIn "Segments handled by the full RFC 9293 section 3.10.7 procedure."
        OutOfOrderAtEntry "Segments with data whose sequence number was not the next expected on entry to TCP."
        ChecksumsInside "Segments with data whose checksum was to be checked after their connection had been released, and could not wait."
        OutOfOrderQueued "Segments put into the reassembly queue."
        DuplicateDataIn "Segments with data that had been received before, wholly or in part."
        PureAcksIn "Segments received that only acknowledge."
        PureAcksOut "Segments sent that only acknowledge."
        AcksDelayed "Acknowledgements delayed, to be sent with data if possible."
        DelayedAckTimeouts "Acknowledgements sent because the delay ran out."
        DupAcksIn "Duplicate acknowledgements received (RFC 5681 section 2)."
        DupAcksOut "Duplicate acknowledgements sent."
        ChallengeAcksOut "Challenge acknowledgements sent (RFC 5961)."
        ChallengeAcksLimited "Challenge acknowledgements withheld by the rate limit."
        WindowUpdatesOut "Segments sent that only change the window."
        ZeroWindowsIn "Times the peer closed its window."
        ZeroWindowsOut "Times we closed our window."
        WindowProbesOut "Zero-window probes sent."
        KeepAlivesOut "Keep-alive probes sent."
        Retransmits "Segments sent again, for any reason."
        RetransmittedBytes "Bytes of TCP data sent again."
        FastRetransmits "Times fast retransmit or RACK started loss recovery."
        Timeouts "Retransmission time-outs."
        TailLossProbes "Tail loss probes sent (RFC 8985)."
        SpuriousRetransmits "Retransmissions found to have been unnecessary (DSACK, Eifel, F-RTO)."
        SacksIn "Segments received with SACK blocks."
        SacksOut "Segments sent with SACK blocks."
        DsacksIn "Duplicate SACK blocks received (RFC 2883)."
        SackReneges "Times the peer reneged on data that it had selectively acknowledged."
        CongestionEvents "Times the congestion window was reduced."
        EcnEchoesIn "Segments received that report congestion marks on our data (RFC 3168, RFC 9768)."
        EcnMarksIn "Segments received with a congestion mark."
        UndoneReductions "Reductions of the congestion window undone because nothing was lost (D-SACK, Eifel)."
        ReordersSeen "Times reordering was inferred from acknowledgements."
        RttSamples "Round-trip time samples taken."
        ResetsIn "Valid resets received."
        ResetsOut "Resets sent."
        SynsIn "SYN segments received by listeners."
        SynAcksOut "SYN-ACK segments sent, retransmissions included."
        SynCookiesOut "SYN cookies sent."
        SynCookiesIn "Connections completed by a valid SYN cookie."

        ConnectionsOpened "Connections opened actively."
        ConnectionsAccepted "Connections that entered an accept queue."
        ConnectionsEstablished "Connections that reached ESTABLISHED."
        ConnectionsClosed "Connections that ended in an orderly way."
        ConnectionsReset "Connections that ended in a reset, sent or received."
        ConnectionsTimedOut "Connections that ended in a time-out."
        BlackHoles "Connections whose segments were made smaller because large ones seemed to be lost."
        MtuProbesOut "Segments sent to probe whether the path carries their size (RFC 8899)."
        MtuRaises "Times a connection's segments were made larger because such a probe arrived."
        ReassemblyPruned "Out-of-order queues given up because memory was short."
        OrphansReset "Connections reset because there were too many without a user."
        TimeWaitsCut "Connections that were not kept in TIME-WAIT because there were too many."
        ConnectionsRefused "Active opens answered with a reset."
        TimeWaitEntered "Connections that entered TIME-WAIT."
        TimeWaitReused "Connections in TIME-WAIT taken over by a new SYN."
        RoomTurns "Times a connection that waited for room in a device was given its turn."
        TimersFired "Entries of timer wheels that fired; the connection may have found nothing due."
        PanicsContained "Panics that ended a connection or lost a piece of work, but not the process."
        HandlerPanics "Connections reset because their handler panicked."

        FaultsCorrupted "Frames in which a fault injector changed bits."
        FaultsForged "Frames whose payload a fault injector changed under a checksum that stays correct."
        FaultsTruncated "Frames whose end a fault injector cut off."
        FaultsPadded "Frames to which a fault injector appended bytes."
        FaultsMarked "Packets that a fault injector marked with congestion experienced."
        FaultsDuplicated "Frames that a fault injector duplicated."
    }
}

/// The counters of every segment, in the order in which a block keeps them. The first seven are one cache line, with
/// [`Counters::shared`] before them; the next eight are another one. The rest follow in order of declaration.
const FREQUENT: [Counter; 15] = [
    Counter::SegmentsIn,
    Counter::SegmentsOut,
    Counter::DataBytesIn,
    Counter::DataBytesOut,
    Counter::FastPathIn,
    Counter::PureAcksIn,
    Counter::PureAcksOut,
    Counter::FramesIn,
    Counter::RxBatches,
    Counter::PacketsIn,
    Counter::ChecksumsVerified,
    Counter::ChecksumsOffloaded,
    Counter::AcksDelayed,
    Counter::RttSamples,
    Counter::TimersFired,
];

/// Bytes at the beginning of a block, two cache lines, in which nearly every segment counts.
pub const FREQUENT_BYTES: usize = size_of::<AtomicU64>() * (1 + FREQUENT.len());

/// The place of each counter in a block, by its index.
const PLACES: [u8; Counter::COUNT] = {
    let mut places = [u8::MAX; Counter::COUNT];
    let (mut next, mut index) = (0, 0);
    while next < FREQUENT.len() {
        places[FREQUENT[next].index()] = next as u8;
        next += 1;
    }
    while index < Counter::COUNT {
        if places[index] == u8::MAX {
            places[index] = next as u8;
            next += 1;
        }
        index += 1;
    }
    places
};

/// One block of counters, cache padded so that two blocks never share a line (nor an adjacent pair of lines).
#[repr(C, align(128))]
pub struct Counters {
    shared: bool,
    /// By [`PLACES`].
    events: [AtomicU64; Counter::COUNT],
    drops: [AtomicU64; DropReason::COUNT],
}

impl Counters {
    /// A block for one writer at a time; increments are a load and a store.
    pub const fn new() -> Counters {
        Counters::with_sharing(false)
    }

    /// A block that several threads may write; increments are atomic additions.
    pub const fn shared() -> Counters {
        Counters::with_sharing(true)
    }

    const fn with_sharing(shared: bool) -> Counters {
        Counters {
            shared,
            events: [const { AtomicU64::new(0) }; Counter::COUNT],
            drops: [const { AtomicU64::new(0) }; DropReason::COUNT],
        }
    }

    #[inline]
    fn event(&self, counter: Counter) -> &AtomicU64 {
        &self.events[usize::from(PLACES[counter.index()])]
    }

    #[inline]
    fn bump(&self, word: &AtomicU64, n: u64) {
        if self.shared {
            word.fetch_add(n, Relaxed);
        } else {
            add_in_two_steps(word, n);
        }
    }

    /// Counts `n` events.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        self.bump(self.event(counter), n);
    }

    /// Counts one event.
    #[inline]
    pub fn increment(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts one dropped packet.
    #[inline]
    pub fn count_drop(&self, reason: DropReason) {
        self.count_drops(reason, 1);
    }

    /// Counts `n` packets dropped for the same reason.
    #[inline]
    pub fn count_drops(&self, reason: DropReason, n: u64) {
        self.bump(&self.drops[reason.index()], n);
    }

    /// The value of one counter.
    #[inline]
    pub fn get(&self, counter: Counter) -> u64 {
        self.event(counter).load(Relaxed)
    }

    /// How many packets were dropped for this reason.
    #[inline]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason.index()].load(Relaxed)
    }

    /// All values now. Exact when the writers are at rest; otherwise each is a value that its counter had at some
    /// moment.
    pub fn snapshot(&self) -> CounterSnapshot {
        CounterSnapshot {
            events: core::array::from_fn(|index| self.get(Counter::ALL[index])),
            drops: core::array::from_fn(|i| self.drops[i].load(Relaxed)),
        }
    }

    /// The sum of many blocks, as reported by a stack of many threads or cells.
    pub fn fold<'a>(blocks: impl IntoIterator<Item = &'a Counters>) -> CounterSnapshot {
        let mut total = CounterSnapshot::default();
        for block in blocks {
            total.absorb(block);
        }
        total
    }
}

/// Adds by a load and a store: exact while one thread at a time counts in the word. Of two that do so at once, the count of
/// one may be lost. Atomic operations all the same, so that it is no data race.
///
/// Generic, so that models run it.
#[inline(always)]
pub fn add_in_two_steps(word: &impl Atomic<u64>, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// Values of all counters and drop reasons at one moment, or a sum or difference of such.
#[derive(Clone, PartialEq, Eq)]
pub struct CounterSnapshot {
    events: [u64; Counter::COUNT],
    drops: [u64; DropReason::COUNT],
}

impl CounterSnapshot {
    /// The value of one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.events[counter.index()]
    }

    /// How many packets were dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason.index()]
    }

    /// How many packets were dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Every counter with its name, zero or not, in order of declaration; drop reasons follow, under their own names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counters().map(|(c, n)| (c.name(), n)).chain(self.drops().map(|(r, n)| (r.name(), n)))
    }

    /// Every counter with its value.
    pub fn counters(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().map(|&c| (c, self.get(c)))
    }

    /// Every drop reason with its value.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.dropped(r)))
    }

    /// Adds the present values of a live block.
    pub fn absorb(&mut self, block: &Counters) {
        let events = Counter::ALL.iter().map(|counter| block.event(*counter));
        for (sum, word) in self.words_mut().zip(events.chain(&block.drops)) {
            *sum = sum.wrapping_add(word.load(Relaxed));
        }
    }

    fn words(&self) -> impl Iterator<Item = &u64> {
        self.events.iter().chain(&self.drops)
    }

    fn words_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.events.iter_mut().chain(&mut self.drops)
    }
}

impl Default for CounterSnapshot {
    fn default() -> CounterSnapshot {
        CounterSnapshot { events: [0; Counter::COUNT], drops: [0; DropReason::COUNT] }
    }
}

impl AddAssign<&CounterSnapshot> for CounterSnapshot {
    fn add_assign(&mut self, other: &CounterSnapshot) {
        for (a, b) in self.words_mut().zip(other.words()) {
            *a = a.wrapping_add(*b);
        }
    }
}

impl SubAssign<&CounterSnapshot> for CounterSnapshot {
    fn sub_assign(&mut self, other: &CounterSnapshot) {
        for (a, b) in self.words_mut().zip(other.words()) {
            *a = a.wrapping_sub(*b);
        }
    }
}

impl Add for CounterSnapshot {
    type Output = CounterSnapshot;
    fn add(mut self, other: CounterSnapshot) -> CounterSnapshot {
        self += &other;
        self
    }
}

impl Sub for CounterSnapshot {
    type Output = CounterSnapshot;
    /// The counts between the snapshot `earlier` and this one.
    fn sub(mut self, earlier: CounterSnapshot) -> CounterSnapshot {
        self -= &earlier;
        self
    }
}

impl iter::Sum for CounterSnapshot {
    fn sum<I: Iterator<Item = CounterSnapshot>>(snapshots: I) -> CounterSnapshot {
        snapshots.fold(CounterSnapshot::default(), Add::add)
    }
}

impl fmt::Debug for CounterSnapshot {
    /// Prints only values other than zero: most are zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().filter(|&(_, n)| n != 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_reads_back() {
        let block = Counters::new();
        block.add(Counter::SegmentsIn, 3);
        block.increment(Counter::SegmentsIn);
        block.count_drop(DropReason::NoRoute);
        let seen = block.snapshot();
        assert_eq!((seen.get(Counter::SegmentsIn), seen.dropped(DropReason::NoRoute)), (4, 1));
        assert_eq!(seen.dropped_total(), 1);
        assert_eq!(seen.iter().filter(|&(_, n)| n != 0).count(), 2);
        assert_eq!(format!("{block:?}"), r#"{"segments-in": 4, "no-route": 1}"#);
    }

    #[test]
    fn blocks_fold_and_snapshots_subtract() {
        let blocks = [Counters::new(), Counters::shared()];
        blocks[0].add(Counter::FramesIn, 5);
        let before = Counters::fold(&blocks);
        blocks[1].add(Counter::FramesIn, 7);
        blocks[1].count_drops(DropReason::NoBuffer, 2);
        let after = Counters::fold(&blocks);
        assert_eq!(after.get(Counter::FramesIn), 12);
        let between = after.clone() - before.clone();
        assert_eq!((between.get(Counter::FramesIn), between.dropped(DropReason::NoBuffer)), (7, 2));
        assert_eq!(before + between, after);
        let summed: CounterSnapshot = blocks.iter().map(Counters::snapshot).sum();
        assert_eq!(summed, after);
    }

    #[test]
    fn shared_block_loses_nothing() {
        let block = Counters::shared();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| block.increment(Counter::PacketsIn)));
            }
        });
        assert_eq!(block.get(Counter::PacketsIn), 40_000);
    }

    /// The counters of one segment are on one line, for each kind of segment: data, an acknowledgement, or one that is
    /// sent.
    #[test]
    fn every_counter_has_a_place_and_a_segment_counts_on_one_line() {
        let block = Counters::new();
        (0..).zip(Counter::ALL).for_each(|(n, counter)| block.add(*counter, n));
        assert!((0..).zip(Counter::ALL).all(|(n, counter)| block.get(*counter) == n), "two counters share a place");
        let line = |counter| (std::ptr::from_ref(block.event(counter)).addr() - std::ptr::from_ref(&block).addr()) / 64;
        assert!(FREQUENT[..7].iter().all(|counter| line(*counter) == 0));
        assert!(FREQUENT[7..].iter().all(|counter| line(*counter) == 1));
    }

    #[test]
    fn blocks_do_not_share_lines() {
        assert_eq!(align_of::<Counters>(), 128);
        assert_eq!(size_of::<Counters>() % 128, 0);
    }
}
