//! Bytes in shared memory, which both sides access as atomic words only.
//!
//! Bytes have the order of the machine, so the bytes of a word are in memory in their order.

use core::sync::atomic::AtomicU64;

/// Reads bytes from words on. Reads no more words than there are.
#[inline]
pub fn load(words: &[AtomicU64], to: &mut [u8]) {
    use core::sync::atomic::Ordering::Relaxed;
    let (whole, rest) = to.as_chunks_mut::<8>();
    let (first, others) = words.split_at_checked(whole.len()).unwrap_or((words, &[]));
    for (bytes, word) in whole.iter_mut().zip(first) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    if let Some(word) = others.first() {
        rest.iter_mut().zip(word.load(Relaxed).to_ne_bytes()).for_each(|(place, byte)| *place = byte);
    }
}

/// Writes bytes to words on, and zeros to the rest of the last word. Writes no more words than there are.
#[inline]
pub fn store(words: &[AtomicU64], from: &[u8]) {
    use core::sync::atomic::Ordering::Relaxed;
    let (whole, rest) = from.as_chunks::<8>();
    let (first, others) = words.split_at_checked(whole.len()).unwrap_or((words, &[]));
    for (bytes, word) in whole.iter().zip(first) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
    if let (Some(word), false) = (others.first(), rest.is_empty()) {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
        word.store(u64::from_ne_bytes(bytes), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stored_bytes_are_loaded(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let words: Vec<_> = (0..12).map(|_| AtomicU64::new(u64::MAX)).collect();
            store(&words, &bytes);
            let mut read = vec![0; bytes.len()];
            load(&words, &mut read);
            prop_assert_eq!(read, bytes);
        }
    }
}
