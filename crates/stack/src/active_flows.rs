//! An estimate of the flows that a receive thread has in use, which says whether the caches hold their connections.
//!
//! A thread with many connections asks the processor for those of a batch, and of its users' events, before it uses them. That
//! gains much if most are in use, because no cache has them; if most are idle, the caches have those in use, and asking for them costs
//! 6 to 8 % of a request. So the thread counts the flows of its latest runs of segments, not its connections.
//!
//! It counts by a bit for each mark modulo their number, and concludes from the bits that are set (linear counting: Whang, Vander-Zanden
//! and Taylor 1990). The bits are in the caches, no connection is touched, and a thread with few connections does not count.

use wire::FlowMark;

/// Connections that the caches near the processor are taken to hold, with what a segment of each touches besides: about 1 KiB
/// each.
pub(crate) const CACHED: u32 = 512;

/// Runs of segments after which the flows are counted, and counted anew. So many that connections which take turns with a few
/// runs each are seen to be many.
const RUNS: u32 = 2048;

const WORDS: usize = 32;

/// Bits that [`CACHED`] flows set on average: *m* (1 - e^(-*n*/*m*)) of *m* for *n* flows.
const SET_BY_CACHED: u32 = 453;

/// See the module documentation. Of one receive thread.
pub(crate) struct ActiveFlows {
    seen: [u64; WORDS],
    /// Runs until the flows are counted.
    left: u32,
    few: bool,
}

impl Default for ActiveFlows {
    /// Not counted yet: as if many were in use.
    fn default() -> Self {
        ActiveFlows { seen: [0; WORDS], left: RUNS, few: false }
    }
}

impl ActiveFlows {
    /// Segments of these flows have arrived, in a batch.
    #[inline]
    pub(crate) fn note(&mut self, marks: impl Iterator<Item = FlowMark>) {
        let mut latest = None;
        for mark in marks {
            if latest == Some(mark) {
                continue;
            }
            latest = Some(mark);
            let bit = mark.get().wrapping_mul(0x9e37_79b9) >> (u32::BITS - (64 * WORDS).ilog2());
            self.seen[bit as usize / 64] |= 1 << (bit % 64);
            self.left -= 1;
            if self.left == 0 {
                self.count();
            }
        }
    }

    #[cold]
    fn count(&mut self) {
        let set: u32 = self.seen.iter().map(|word| word.count_ones()).sum();
        (self.seen, self.left, self.few) = ([0; WORDS], RUNS, set <= SET_BY_CACHED);
    }

    /// The number of connections that a cell may have, and the caches still be taken to hold those in use: any, if few are.
    #[inline]
    pub(crate) fn cached(&self) -> usize {
        if self.few { usize::MAX } else { CACHED as usize }
    }

    /// Whether so few flows were in use when they were last counted that the caches hold their connections.
    #[inline]
    pub(crate) fn are_few(&self) -> bool {
        self.few
    }
}

#[cfg(test)]
mod tests {
    use wire::FourTuple;
    use wire::rss::Toeplitz;

    use super::*;

    /// The marks of so many flows with one service, of clients with `ports` ports each.
    fn marks(flows: u32, ports: u32, hash: &Toeplitz) -> Vec<FlowMark> {
        let tuple = |n: u32| FourTuple {
            local_addr: [10, 9, 1, 1].into(),
            remote_addr: [10, 9, 0, 1 + (n / ports) as u8].into(),
            local_port: 5001,
            remote_port: 1024 + (n % ports) as u16,
        };
        (0..flows).map(|n| FlowMark::of(hash.hash_tcp(&tuple(n)), &tuple(n))).collect()
    }

    /// Whether they are few, after `runs` runs of each in turn with `segments` segments, for two counts.
    fn are_few(marks: &[FlowMark], runs: usize, segments: usize) -> bool {
        let mut flows = ActiveFlows::default();
        // Runs of one flow are separated by runs of another.
        let pairs = marks.chunks(2).flat_map(|pair| pair.repeat(runs));
        let turn: Vec<_> = pairs.flat_map(|mark| std::iter::repeat_n(mark, segments)).collect();
        let mut left = 3 * RUNS as usize * segments;
        while left > 0 {
            let now = turn.len().min(left);
            turn[..now].chunks(path::VECTOR_LEN).for_each(|batch| flows.note(batch.iter().copied()));
            left -= now;
        }
        assert_eq!(flows.cached(), if flows.are_few() { usize::MAX } else { 512 });
        flows.are_few()
    }

    #[test]
    fn flows_that_the_caches_hold_are_few_and_more_are_not() {
        for hash in [Toeplitz::default(), Toeplitz::new(&wire::rss::MICROSOFT_KEY)] {
            for (flows, few) in [(1_u32, true), (64, true), (450, true), (600, false), (1024, false), (16_384, false)] {
                for ports in [16_384, flows.div_ceil(7)] {
                    assert_eq!(are_few(&marks(flows, ports, &hash), 1, 1), few, "{flows} flows");
                }
            }
        }
    }

    /// A sender of much data has segments of one connection follow one another.
    #[test]
    fn segments_of_a_run_count_once_and_some_runs_of_a_flow_do_not_hide_the_others() {
        let marks = marks(4096, 16_384, &Toeplitz::default());
        assert!(!are_few(&marks, 1, 40));
        assert!(!are_few(&marks, 3, 2));
        assert!(are_few(&marks[..64], 3, 40));
    }

    #[test]
    fn they_are_taken_to_be_many_until_they_were_counted_and_are_counted_anew() {
        let marks = marks(4096, 16_384, &Toeplitz::default());
        let mut flows = ActiveFlows::default();
        let mut note = |from: usize, of: usize, runs: u32| {
            (0..runs as usize).for_each(|n| flows.note([marks[from + n % of]].into_iter()));
            flows.are_few()
        };
        assert!(!note(0, 2, RUNS - 1), "they were not counted yet");
        assert!(note(1, 1, 1));
        assert!(note(0, 4096, RUNS - 1), "the next count is not yet");
        assert!(!note(4000, 1, 1));
        assert!(note(0, 64, RUNS));
    }
}
