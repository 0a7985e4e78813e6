//! State common to all flows of an instance, in memory of a fixed size. The router keeps the memory when the
//! plugin restarts after a fault, and hands it to the instance's successor.

/// Memory of the state: zeroed at first, and at a constant address.
#[derive(Debug, Default)]
pub(crate) struct ServiceState {
    /// Words, which align the memory for every structure.
    words: Box<[u64]>,
    bytes: usize,
    /// Whether the router wrote the state and the plugin has not seen it yet.
    pub is_news: bool,
}

impl ServiceState {
    pub fn new(bytes: u16) -> Self {
        let bytes = usize::from(bytes);
        Self { words: vec![0; bytes.div_ceil(8)].into(), bytes, is_news: false }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the state is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the address; null if the state is empty.
    pub fn address(&mut self) -> *mut u8 {
        if self.is_empty() { std::ptr::null_mut() } else { self.words.as_mut_ptr().cast() }
    }

    /// Overwrites the state by `from`, which has the same length.
    #[inline]
    pub fn write(&mut self, from: &[u8]) {
        let (whole, rest) = from.as_chunks::<8>();
        for (word, bytes) in self.words.iter_mut().zip(whole) {
            *word = u64::from_ne_bytes(*bytes);
        }
        if let Some(last) = self.words.get_mut(whole.len()) {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
            *last = u64::from_ne_bytes(bytes);
        }
    }

    /// Copies the state into `to`, which has the same length.
    pub fn read(&self, to: &mut [u8]) {
        for (to, word) in to.chunks_mut(8).zip(&self.words) {
            to.iter_mut().zip(word.to_ne_bytes()).for_each(|(place, byte)| *place = byte);
        }
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(&mut bytes);
        bytes
    }

    /// Takes over the state of another instance if the lengths are equal.
    pub fn adopt(&mut self, from: &[u8]) {
        if from.len() == self.bytes && !self.is_empty() {
            self.write(from);
            self.is_news = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn written_state_is_read_back(bytes in prop::collection::vec(any::<u8>(), 0..40), other in 0..40usize) {
            let mut state = ServiceState::new(bytes.len() as u16);
            prop_assert_eq!(state.to_vec(), vec![0; bytes.len()]);
            state.write(&bytes);
            prop_assert_eq!(&state.to_vec(), &bytes);
            prop_assert_eq!(state.address().is_null(), bytes.is_empty());
            state.adopt(&vec![7; other]);
            let adopted = if other == bytes.len() { vec![7; other] } else { bytes };
            prop_assert_eq!(state.to_vec(), adopted);
        }
    }
}
