//! A record of a ring, from its bytes.
//!
//! The layout is that of `perf_event_open(2)` for the fields that [`super::CpuSampler`] asks for: process and thread, period,
//! chain of functions. The parser of perf-event2 refuses a sample with an empty chain at its end, as all samples of user code are.

/// A sample (`PERF_RECORD_SAMPLE`).
const SAMPLE: u32 = 9;
/// Records that the ring had no room for (`PERF_RECORD_LOST`), and samples likewise (`PERF_RECORD_LOST_SAMPLES`).
const LOST: u32 = 2;
const LOST_SAMPLES: u32 = 13;
/// Addresses from here on are marks between the parts of a chain (`PERF_CONTEXT_MAX`).
const MARKS: u64 = 4095_u64.wrapping_neg();

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RingRecord {
    /// A CPU was interrupted.
    Sample {
        /// The process of the thread that ran; 0 is the idle threads'.
        process: u32,
        /// Nanoseconds or cache misses since the last one.
        period: u64,
        /// Addresses in the kernel, the innermost function first; empty if user code ran.
        chain: Vec<u64>,
    },
    /// So many were lost.
    Lost(u64),
    /// Something else.
    Nothing,
}

impl RingRecord {
    /// Of a record of this type, without its header. `None`: it is shorter than it says.
    pub(super) fn parse(kind: u32, bytes: &[u8]) -> Option<RingRecord> {
        Some(match kind {
            SAMPLE => {
                let process = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
                let (period, length) = (word(bytes, 1)?, word(bytes, 2)?);
                let chain: Option<Vec<u64>> = (0..length).map(|index| word(bytes, 3 + index as usize)).collect();
                RingRecord::Sample { process, period, chain: chain?.into_iter().filter(|word| *word < MARKS).collect() }
            }
            LOST => RingRecord::Lost(word(bytes, 1)?),
            LOST_SAMPLES => RingRecord::Lost(word(bytes, 0)?),
            _ => RingRecord::Nothing,
        })
    }
}

/// The word of 64 bits at this place.
fn word(bytes: &[u8], index: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(8 * index..)?.get(..8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Process 7 and thread 8, then these words.
    fn sample(words: &[u64]) -> Vec<u8> {
        let ids = [7_u32, 8].into_iter().flat_map(u32::to_ne_bytes);
        ids.chain(words.iter().flat_map(|word| word.to_ne_bytes())).collect()
    }

    #[test]
    fn a_sample_has_its_process_period_and_chain_without_marks() {
        let kernel_mark = 128_u64.wrapping_neg();
        let bytes = sample(&[100_270, 3, kernel_mark, 0xffff_ffff_8100_0130, 0xffff_ffff_8100_0044]);
        let chain = vec![0xffff_ffff_8100_0130, 0xffff_ffff_8100_0044];
        assert_eq!(RingRecord::parse(9, &bytes), Some(RingRecord::Sample { process: 7, period: 100_270, chain }));
        assert_eq!(RingRecord::parse(9, &bytes[..bytes.len() - 1]), None, "cut off");
    }

    #[test]
    fn user_code_has_an_empty_chain() {
        let wanted = RingRecord::Sample { process: 7, period: 5, chain: Vec::new() };
        assert_eq!(RingRecord::parse(9, &sample(&[5, 0])), Some(wanted));
        assert_eq!(RingRecord::parse(9, &sample(&[5, u64::MAX])), None, "longer than memory");
    }

    #[test]
    fn losses_are_counted_and_the_rest_says_nothing() {
        let words = |words: [u64; 2]| words.into_iter().flat_map(u64::to_ne_bytes).collect::<Vec<u8>>();
        assert_eq!(RingRecord::parse(2, &words([3, 40])), Some(RingRecord::Lost(40)));
        assert_eq!(RingRecord::parse(13, &words([40, 0])), Some(RingRecord::Lost(40)));
        assert_eq!(RingRecord::parse(5, &[]), Some(RingRecord::Nothing), "throttled");
    }
}
