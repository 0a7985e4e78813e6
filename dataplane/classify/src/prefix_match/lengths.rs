//! Prefix lengths in use.

/// Ascending prefix lengths. Up to [`FEW`] lengths are in the structure itself, so that a lookup reads them
/// without another access.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    few: [u8; FEW],
    number: u8,
    /// All lengths, when there are more than [`FEW`].
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

    /// Whether a read of the lengths is an additional memory access.
    #[inline]
    pub fn are_many(&self) -> bool {
        usize::from(self.number) > FEW
    }

    /// Counts an added prefix of this length; returns whether it is the first.
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

    /// Counts a removed prefix of this length; returns whether it was the last.
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
        // The result is at most 129.
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
