//! A batch of packets parted by family: tables keep filters of the two apart.

use millrace_packet::Family;

use crate::Candidate;

/// Packets that tables look up at once.
pub(super) const LANES: usize = 32;

/// Looks packets up a batch at a time: `find` is given the packets of a batch, the places of what is found, and the numbers of
/// those packets that are of a family.
#[inline(always)]
pub(super) fn by_family<F>(
    candidates: &[Candidate],
    found: &mut [F],
    mut find: impl FnMut(Family, &[Candidate], &mut [F], &[u8]),
) {
    for (candidates, found) in candidates.chunks(LANES).zip(found.chunks_mut(LANES)) {
        let numbers = ByFamily::of(&candidates[..candidates.len().min(found.len())]);
        for (family, numbers) in [(Family::V4, numbers.v4()), (Family::V6, numbers.v6())] {
            if !numbers.is_empty() {
                find(family, candidates, found, numbers);
            }
        }
    }
}

/// The numbers of the packets of each family in a batch.
struct ByFamily {
    numbers: [[u8; LANES]; 2],
    counts: [usize; 2],
}

impl ByFamily {
    /// The packets of a batch of up to [`LANES`].
    #[inline(always)]
    fn of(candidates: &[Candidate]) -> Self {
        let mut parted = Self { numbers: [[0; LANES]; 2], counts: [0; 2] };
        for (number, candidate) in (0..).zip(candidates) {
            let family = usize::from(candidate.key.family() == Family::V6);
            parted.numbers[family][parted.counts[family] % LANES] = number;
            parted.counts[family] += 1;
        }
        parted
    }

    /// Those of IPv4.
    #[inline(always)]
    fn v4(&self) -> &[u8] {
        &self.numbers[0][..self.counts[0].min(LANES)]
    }

    /// Those of IPv6.
    #[inline(always)]
    fn v6(&self) -> &[u8] {
        &self.numbers[1][..self.counts[1].min(LANES)]
    }
}
