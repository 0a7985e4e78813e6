//! Set of small integers with a fast rank operation. The rank of an integer is the number of smaller members.

/// Set of integers below `64 * W`.
///
/// The set stores, for each word, the number of members in the words before it. So a rank counts bits in one
/// word only: counting is slow, because the portable instruction set has no population count.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct BitSet<const W: usize> {
    words: [u64; W],
    before: [u16; W],
}

impl<const W: usize> Default for BitSet<W> {
    fn default() -> Self {
        Self { words: [0; W], before: [0; W] }
    }
}

impl<const W: usize> BitSet<W> {
    #[inline]
    pub fn contains(&self, member: usize) -> bool {
        self.words[member / 64] >> (member % 64) & 1 != 0
    }

    /// Returns the members below 64, as the bits of a word.
    #[inline]
    pub fn first_word(&self) -> u64 {
        self.words[0]
    }

    /// Returns the number of members smaller than `member`.
    #[inline]
    pub fn rank(&self, member: usize) -> usize {
        let smaller = self.words[member / 64] & ((1 << (member % 64)) - 1);
        usize::from(self.before[member / 64]) + smaller.count_ones() as usize
    }

    /// Iterates over the members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(64 * at + bit)
            })
        })
    }

    /// Adds a member that is not in the set yet.
    pub fn insert(&mut self, member: usize) {
        self.words[member / 64] |= 1 << (member % 64);
        self.before[member / 64 + 1..].iter_mut().for_each(|count| *count += 1);
    }

    /// Removes a member that is in the set.
    pub fn remove(&mut self, member: usize) {
        self.words[member / 64] &= !(1 << (member % 64));
        self.before[member / 64 + 1..].iter_mut().for_each(|count| *count -= 1);
    }
}
