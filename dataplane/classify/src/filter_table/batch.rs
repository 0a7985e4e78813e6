//! Lookup of a batch, split by address family: tables store the filters of each family separately.

use millrace_packet::Family;

use super::groups::Found;
use super::key::Key;
use crate::Candidate;

/// Maximum number of packets that are looked up together.
pub(super) const LANES: usize = 32;

/// Looks up packets in chunks of [`LANES`]. Calls `find` for each chunk, once for each family that has
/// packets in it. `find` gets the chunk's packets, the slots for their results, and the indexes of the
/// packets of the family.
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

/// Looks up the packets of a chunk whose indexes are in `numbers`. `search` finds the filter for each
/// packet's key, and `result` converts the found filter into a result of the table.
#[inline(always)]
pub(super) fn find_some<const W: usize, F>(
    candidates: &[Candidate],
    found: &mut [F],
    numbers: &[u8],
    search: impl FnOnce(&[Key<W>], &mut [Found]),
    result: impl Fn(&Found) -> F,
) {
    let mut keys = [Key::ZERO; LANES];
    let mut slots = [Found::NONE; LANES];
    let count = numbers.len();
    for (key, number) in keys.iter_mut().zip(numbers) {
        *key = Key::of(&candidates[usize::from(*number)]);
    }
    search(&keys[..count], &mut slots[..count]);
    for (slot, number) in slots.iter().zip(numbers) {
        found[usize::from(*number)] = result(slot);
    }
}

/// Indexes of the packets of each family in a chunk.
struct ByFamily {
    numbers: [[u8; LANES]; 2],
    counts: [usize; 2],
}

impl ByFamily {
    /// Sorts up to [`LANES`] packets by family.
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

    /// Returns the indexes of the IPv4 packets.
    #[inline(always)]
    fn v4(&self) -> &[u8] {
        &self.numbers[0][..self.counts[0].min(LANES)]
    }

    /// Returns the indexes of the IPv6 packets.
    #[inline(always)]
    fn v6(&self) -> &[u8] {
        &self.numbers[1][..self.counts[1].min(LANES)]
    }
}
