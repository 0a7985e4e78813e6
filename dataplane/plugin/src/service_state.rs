//! State of an instance that is common to all its flows: memory of a fixed size that the router keeps when the plugin begins
//! anew after a fault, and hands to the instance that takes its place.

/// The memory: zeros at first, and in one place as long as it lives.
#[derive(Debug, Default)]
pub(crate) struct ServiceState {
    /// Words, so that it is aligned like every structure.
    words: Box<[u64]>,
    bytes: usize,
    /// Whether it was written by another than the plugin, which has not seen it yet.
    pub is_news: bool,
}

impl ServiceState {
    pub fn new(bytes: u16) -> Self {
        let bytes = usize::from(bytes);
        Self { words: vec![0; bytes.div_ceil(8)].into(), bytes, is_news: false }
    }

    /// How many bytes it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where it stands; null when there is none.
    pub fn address(&mut self) -> *mut u8 {
        if self.is_empty() { std::ptr::null_mut() } else { self.words.as_mut_ptr().cast() }
    }

    /// Takes what stands in `from`, which is as long.
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

    /// Puts it into `to`, which is as long.
    pub fn read(&self, to: &mut [u8]) {
        for (to, word) in to.chunks_mut(8).zip(&self.words) {
            to.iter_mut().zip(word.to_ne_bytes()).for_each(|(place, byte)| *place = byte);
        }
    }

    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(&mut bytes);
        bytes
    }

    /// Takes what another instance kept, if that is as long.
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
        fn what_is_written_is_read(bytes in prop::collection::vec(any::<u8>(), 0..40), other in 0..40usize) {
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
