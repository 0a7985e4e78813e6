//! Service state: bytes common to all flows of an instance, in memory of a fixed size. The router keeps them
//! when the plugin restarts after a fault, and hands them to the instance's successor.

/// Memory of a service state: zeroed at first, at a constant address.
#[derive(Debug, Default)]
pub(crate) struct ServiceState {
    /// Words of 8 bytes, so the memory is aligned for every structure.
    words: Box<[u64]>,
    bytes: usize,
    /// Whether the router has written a state that the plugin hasn't received yet.
    pub is_news: bool,
}

impl ServiceState {
    pub fn new(bytes: u16) -> Self {
        let bytes = usize::from(bytes);
        Self { words: vec![0; bytes.div_ceil(8)].into(), bytes, is_news: false }
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the size is 0: the plugin declares no service state.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the address of the memory; null if the size is 0.
    pub fn address(&mut self) -> *mut u8 {
        if self.is_empty() { std::ptr::null_mut() } else { self.words.as_mut_ptr().cast() }
    }

    /// Overwrites the state with `from`, which must have the same length.
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

    /// Copies the state into `to`, which must have the same length.
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

    /// Overwrites the state with that of another instance, if both have the same length.
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
