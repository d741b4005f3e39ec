//! A histogram with log-linear buckets: exact up to 32, then 32 buckets per octave, so that a quantile is off by less
//! than 1/32 of its value over the whole range of `u64`. Recording is a shift, an add and a store; nothing allocates
//! after construction. One owner records; histograms of several threads are merged afterwards.

/// Sub-bucket bits: 2^5 buckets per octave.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Values below `SUB` have a bucket each; each of the 59 octaves above has `SUB` buckets.
const BUCKETS: usize = SUB + (64 - SUB_BITS as usize) * SUB;

/// Distribution of a `u64` quantity (nanoseconds, bytes, queue lengths: the unit is the caller's).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

#[inline]
fn bucket_of(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    // `value >> shift` lies in SUB..2*SUB, so octave 0 above the exact range starts at bucket SUB.
    (shift as usize) * SUB + (value >> shift) as usize
}

/// Smallest and largest value of a bucket.
fn bounds(bucket: usize) -> (u64, u64) {
    if bucket < SUB {
        return (bucket as u64, bucket as u64);
    }
    let shift = bucket / SUB - 1;
    let low = ((bucket % SUB + SUB) as u64) << shift;
    (low, low + ((1 << shift) - 1))
}

impl Histogram {
    /// An empty histogram; allocates its 15 KiB of buckets here and nothing later.
    pub fn new() -> Histogram {
        Histogram { buckets: vec![0; BUCKETS].into_boxed_slice(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Adds one observation.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Adds `n` equal observations.
    #[inline]
    pub fn record_many(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.buckets[bucket_of(value)] += n;
        self.count += n;
        self.sum += u128::from(value) * u128::from(n);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all observations of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (a, b) in self.buckets.iter_mut().zip(&other.buckets) {
            *a += b;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets every observation and keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// How many observations there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether there is no observation.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The smallest observation, exact; 0 if there is none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest observation, exact; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The sum of all observations, exact.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The mean; 0 if there is no observation.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The smallest value that at least the fraction `q` of observations do not exceed, to 1/32 of its value (reported
    /// as the middle of its bucket, within the exact minimum and maximum). `q` is clamped to 0..=1; 0 if there is no
    /// observation.
    pub fn quantile(&self, q: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let q = if q.is_nan() { 0.0 } else { q.clamp(0.0, 1.0) };
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        // The ends are known exactly; a bucket's middle would be a worse answer.
        if rank == 1 {
            return self.min;
        }
        if rank == self.count {
            return self.max;
        }
        let mut seen = 0;
        for (i, &n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= rank {
                let (low, high) = bounds(i);
                return (low + (high - low) / 2).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// The buckets that hold something: smallest value, largest value, observations; ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|&(_, &n)| n != 0).map(|(i, &n)| {
            let (low, high) = bounds(i);
            (low, high, n)
        })
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_whole_range() {
        let mut expected = 0u64;
        for i in 0..BUCKETS {
            let (low, high) = bounds(i);
            assert_eq!(low, expected, "bucket {i} does not follow its neighbour");
            assert_eq!((bucket_of(low), bucket_of(high)), (i, i));
            assert!(high - low <= low / SUB as u64, "bucket {i} is too wide");
            expected = high.wrapping_add(1);
        }
        assert_eq!(expected, 0, "the last bucket ends at u64::MAX");
    }

    #[test]
    fn quantiles_are_within_one_bucket() {
        let mut h = Histogram::new();
        (1..=100_000u64).for_each(|v| h.record(v));
        for q in [0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999] {
            let (got, want) = (h.quantile(q) as f64, q * 100_000.0);
            assert!((got - want).abs() <= want / SUB as f64 + 1.0, "q {q}: {got} for {want}");
        }
        assert_eq!((h.quantile(0.0), h.quantile(1.0), h.quantile(f64::NAN)), (1, 100_000, 1));
        assert_eq!((h.count(), h.mean()), (100_000, 50_000.5));
    }

    #[test]
    fn small_values_are_exact() {
        let mut h = Histogram::new();
        [0, 3, 3, 7, 31].into_iter().for_each(|v| h.record(v));
        assert_eq!((h.quantile(0.2), h.quantile(0.5), h.quantile(0.8), h.max()), (0, 3, 7, 31));
        assert_eq!(h.iter().collect::<Vec<_>>(), [(0, 0, 1), (3, 3, 2), (7, 7, 1), (31, 31, 1)]);
    }

    #[test]
    fn merge_equals_recording_everything_in_one() {
        let (mut a, mut b, mut all) = (Histogram::new(), Histogram::new(), Histogram::new());
        for v in 0..1_000u64 {
            let v = v * v * 977;
            if v % 2 == 0 { &mut a } else { &mut b }.record(v);
            all.record(v);
        }
        a.merge(&b);
        assert_eq!(a, all);
        a.clear();
        assert_eq!(a, Histogram::new());
        assert_eq!((a.min(), a.max(), a.quantile(0.5), a.mean()), (0, 0, 0, 0.0));
    }
}
