//! Cycles per packet of an instance's calls, on a logarithmic scale.

/// Parts of an octave: a percentile is at most 12.5 % too large or too small.
const PARTS: usize = 4;
/// Number of octaves; calls with more cycles per packet are counted in the last part.
const OCTAVES: usize = 40;
const BUCKETS: usize = PARTS * OCTAVES;

/// Histogram of cycles per packet of completed calls. Each packet of a call counts with the mean of its call, so that it needs no
/// reading of the clock for each packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CostHistogram {
    packets: Box<[u64; BUCKETS]>,
    /// Number of calls.
    calls: u64,
    /// Cycles of all calls.
    cycles: u64,
}

impl Default for CostHistogram {
    fn default() -> Self {
        Self { packets: Box::new([0; BUCKETS]), calls: 0, cycles: 0 }
    }
}

impl CostHistogram {
    /// Counts a call with packets that took `cycles` together.
    #[inline]
    pub fn record(&mut self, cycles: u64, packets: u64) {
        if packets == 0 {
            return;
        }
        if let Some(count) = self.packets.get_mut(bucket(cycles / packets)) {
            *count += packets;
        }
        self.calls += 1;
        self.cycles = self.cycles.wrapping_add(cycles);
    }

    /// Adds the counts of another worker or context.
    pub fn add(&mut self, other: &Self) {
        self.packets.iter_mut().zip(other.packets.iter()).for_each(|(sum, count)| *sum += count);
        self.calls += other.calls;
        self.cycles = self.cycles.wrapping_add(other.cycles);
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// Returns the number of calls with packets.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the cycles of all calls with packets.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Returns the cycles per packet that `percent` percent of the packets don't exceed, as the middle of a bucket;
    /// `None` without packets.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<f64> {
        let all = self.packets();
        let rank = u128::from(all) * u128::from(percent.min(100));
        let rank = u64::try_from(rank.div_ceil(100)).unwrap_or(all).max(1);
        let mut below = 0;
        let reaches = |count: &u64| {
            below += count;
            below >= rank
        };
        self.packets.iter().position(reaches).filter(|_| all > 0).map(middle)
    }
}

/// Returns the bucket of a number of cycles. Numbers below [`PARTS`] have a bucket each.
#[inline]
fn bucket(cycles: u64) -> usize {
    let parts = PARTS as u64;
    if cycles < parts {
        return cycles as usize;
    }
    let octave = cycles.ilog2();
    let part = (cycles >> (octave - PARTS.ilog2())) - parts;
    // The first octave with parts begins at PARTS itself.
    let index = (octave - PARTS.ilog2() + 1) as usize * PARTS + part as usize;
    index.min(BUCKETS - 1)
}

/// Returns the middle of a bucket in cycles.
fn middle(index: usize) -> f64 {
    let (octave, part) = (index / PARTS, index % PARTS);
    if octave == 0 {
        return part as f64;
    }
    let width = 2_f64.powi(octave as i32 - 1);
    // A bucket contains whole numbers only.
    width * (PARTS + part) as f64 + (width - 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_near_those_of_a_sorted_list(
            calls in proptest::collection::vec((0..5_000_000_u64, 1..64_u64), 1..50), percent in 1..=100_u64,
        ) {
            let (mut histogram, mut all) = (CostHistogram::default(), Vec::new());
            for (cycles, packets) in &calls {
                histogram.record(*cycles, *packets);
                all.extend((0..*packets).map(|_| cycles / packets));
            }
            all.sort_unstable();
            let rank = (all.len() as u64 * percent).div_ceil(100).max(1) as usize;
            let (exact, found) = (all[rank - 1] as f64, histogram.percentile(percent).unwrap());
            prop_assert!((found - exact).abs() <= 0.125 * exact, "{found}, not {exact}");
            prop_assert_eq!(histogram.packets(), all.len() as u64);
            prop_assert_eq!(histogram.calls(), calls.len() as u64);
        }

        #[test]
        fn sum_of_histograms_is_the_histogram_of_all_calls(
            calls in proptest::collection::vec((any::<u64>(), 0..64_u64), 0..50),
        ) {
            let (mut one, mut other, mut all) =
                (CostHistogram::default(), CostHistogram::default(), CostHistogram::default());
            for (place, (cycles, packets)) in calls.iter().enumerate() {
                all.record(*cycles, *packets);
                if place % 2 == 0 { one.record(*cycles, *packets) } else { other.record(*cycles, *packets) }
            }
            one.add(&other);
            prop_assert_eq!(one, all);
        }
    }

    #[test]
    fn histogram_without_packets_has_no_percentile() {
        let mut histogram = CostHistogram::default();
        histogram.record(5, 0);
        assert_eq!((histogram.percentile(50), histogram.calls()), (None, 0));
    }
}
