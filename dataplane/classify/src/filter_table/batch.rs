//! A batch of packets parted by family: tables keep filters of the two apart.

use millrace_packet::Family;

use crate::Candidate;

/// Packets that tables look up at once.
pub(super) const LANES: usize = 32;

/// The numbers of the packets of each family in a batch.
pub(super) struct ByFamily {
    numbers: [[u8; LANES]; 2],
    counts: [usize; 2],
}

impl ByFamily {
    /// The packets of a batch of up to [`LANES`].
    #[inline(always)]
    pub fn of(candidates: &[Candidate]) -> Self {
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
    pub fn v4(&self) -> &[u8] {
        &self.numbers[0][..self.counts[0].min(LANES)]
    }

    /// Those of IPv6.
    #[inline(always)]
    pub fn v6(&self) -> &[u8] {
        &self.numbers[1][..self.counts[1].min(LANES)]
    }
}
