//! Simulated caches, which count the memory reads of lookups.
//!
//! The first cache has 32 KiB and the last one 512 KiB. Both are eight-way, evict the least recently used
//! line, and don't prefetch. The simulated caches differ from the machine's, but they are the same for all
//! tables, for all sizes, and in every run. A read without a known address, such as an unsuccessful probe of
//! a hash map, counts as a hit.

use millrace_classify::prefix_match::Count;

/// Size of a cache line in bytes.
const LINE: usize = 64;
/// Number of lines per cache set.
const WAYS: usize = 8;

/// Size of the first cache in bytes.
const FIRST: usize = 32 << 10;
const LAST: usize = 512 << 10;

/// Both caches, and the counts since the last [`Caches::take_counts`].
#[derive(Debug)]
pub(super) struct Caches {
    first: Cache,
    last: Cache,
    counts: Counts,
}

/// Counts of memory accesses in lookups.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    /// Number of dependent accesses: each waits for the result of the previous one.
    pub accesses: u64,
    /// Number of lines that missed in the first cache.
    pub first_misses: u64,
    /// Number of lines that missed in both caches.
    pub last_misses: u64,
}

impl Caches {
    pub fn new() -> Self {
        Self { first: Cache::of(FIRST), last: Cache::of(LAST), counts: Counts::default() }
    }

    /// Returns the counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn touch<P: ?Sized>(&mut self, place: &P) {
        let start = std::ptr::from_ref(place).cast::<u8>().addr();
        let end = start + size_of_val(place).max(1);
        for line in start / LINE..end.div_ceil(LINE) {
            if !self.first.touch(line) {
                self.counts.first_misses += 1;
                self.counts.last_misses += u64::from(!self.last.touch(line));
            }
        }
    }
}

impl Count for Caches {
    fn access(&mut self, accesses: u32) {
        self.counts.accesses += u64::from(accesses);
    }

    fn read<P: ?Sized>(&mut self, place: &P) {
        self.access(1);
        self.touch(place);
    }

    fn read_lines<P: ?Sized>(&mut self, place: &P) {
        self.access(size_of_val(place).div_ceil(LINE) as u32);
        self.touch(place);
    }
}

/// Cache as a list of sets. Each set lists its lines, the most recently used first.
#[derive(Debug)]
struct Cache {
    sets: Vec<[usize; WAYS]>,
}

impl Cache {
    fn of(bytes: usize) -> Self {
        Self { sets: vec![[usize::MAX; WAYS]; bytes / LINE / WAYS] }
    }

    /// Uses a line; returns whether the cache held it.
    fn touch(&mut self, line: usize) -> bool {
        let sets = self.sets.len();
        let set = &mut self.sets[line % sets];
        let place = set.iter().position(|other| *other == line);
        set[..=place.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = line;
        place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_hits_lines_that_fit_and_misses_others() {
        let mut caches = Caches::new();
        let lines = vec![[0_u8; LINE]; 2 * FIRST / LINE];
        let all = |caches: &mut Caches, lines: &[[u8; LINE]]| {
            lines.iter().for_each(|line| caches.read(line));
            caches.take_counts()
        };
        let half = &lines[..lines.len() / 4];
        all(&mut caches, half);
        let again = all(&mut caches, half);
        assert_eq!((again.accesses, again.first_misses), (half.len() as u64, 0));
        all(&mut caches, &lines);
        let again = all(&mut caches, &lines);
        // Cyclic reads of twice the cache's size miss: the cache evicts each line before it is read again.
        assert!(again.first_misses >= lines.len() as u64 && again.last_misses == 0, "{again:?}");
    }

    #[test]
    fn all_lines_of_a_place_are_read() {
        let mut caches = Caches::new();
        let places = vec![[0_u8; LINE]; 4];
        caches.read_lines(&places[..]);
        caches.access(3);
        let counts = caches.take_counts();
        // The memory may start within a cache line, so it may span one more line.
        assert!(counts.accesses == 7 && (4..=5).contains(&counts.last_misses), "{counts:?}");
    }
}
