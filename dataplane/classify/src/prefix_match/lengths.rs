//! Prefix lengths in use.

/// Prefix lengths in use, in ascending order. Up to [`FEW`] lengths are in this structure, so a lookup needs
/// no further access for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    few: [u8; FEW],
    number: u8,
    /// All lengths, if there are more than [`FEW`].
    many: Box<[u8]>,
    /// Number of prefixes of each length.
    prefixes: Vec<u32>,
}

const FEW: usize = 15;

impl Lengths {
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.few.get(..usize::from(self.number)).unwrap_or(&self.many)
    }

    /// Whether reading the lengths takes a further memory access.
    #[inline]
    pub fn are_many(&self) -> bool {
        usize::from(self.number) > FEW
    }

    /// Counts an added prefix of this length. Returns whether it is the only one.
    pub fn add(&mut self, length: u8) -> bool {
        match self.as_slice().binary_search(&length) {
            Ok(place) => {
                self.prefixes[place] += 1;
                false
            }
            Err(place) => {
                let mut lengths = self.as_slice().to_vec();
                lengths.insert(place, length);
                self.set(lengths);
                self.prefixes.insert(place, 1);
                true
            }
        }
    }

    /// Counts a removed prefix of this length. Returns whether it was the only one.
    pub fn remove(&mut self, length: u8) -> bool {
        let Ok(place) = self.as_slice().binary_search(&length) else { return false };
        self.prefixes[place] -= 1;
        if self.prefixes[place] > 0 {
            return false;
        }
        let mut lengths = self.as_slice().to_vec();
        lengths.remove(place);
        self.set(lengths);
        self.prefixes.remove(place);
        true
    }

    fn set(&mut self, lengths: Vec<u8>) {
        // The number fits into a byte: there are at most 129 lengths.
        self.number = lengths.len() as u8;
        if let Some(few) = self.few.get_mut(..lengths.len()) {
            few.copy_from_slice(&lengths);
            self.many = Box::default();
        } else {
            self.many = lengths.into();
        }
    }

    pub fn heap(&self) -> usize {
        self.many.len() + self.prefixes.capacity() * size_of::<u32>()
    }
}
