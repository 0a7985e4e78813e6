//! The prefix lengths that are in use.

/// Ascending lengths, of which few are common: up to [`FEW`] stand in the structure itself, so that a lookup needs no
/// access of its own to read them.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    few: [u8; FEW],
    number: u8,
    /// All of them when there are more.
    many: Box<[u8]>,
    /// How many prefixes have each.
    prefixes: Vec<u32>,
}

const FEW: usize = 15;

impl Lengths {
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.few.get(..usize::from(self.number)).unwrap_or(&self.many)
    }

    /// Whether reading them takes an access to memory of its own.
    #[inline]
    pub fn are_many(&self) -> bool {
        usize::from(self.number) > FEW
    }

    /// A prefix of this length came; whether it is the first.
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

    /// A prefix of this length went; whether it was the last.
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
        // At most 129.
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
