//! Comparing all words of a cache line at once, by the widest vectors that the processor has.
//!
//! Code that compares many lines is written once, as an [`Operation`], for any kind of [`Vectors`], and built for each
//! of them. [`with_widest`] looks once what the processor has, and runs the one that was built for it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
mod tests;

pub use portable::{Portable, equal_shorts};

/// The words of a cache line.
pub type Words = [u32; 16];

/// A way to compare the words of a cache line. To have one is to know that the processor can do it.
pub trait Vectors: Copy {
    /// A bit for each of `words` that is `wanted`, not counting the bits of `low`. `wanted` has none of these.
    fn equal_above(self, words: &Words, wanted: u32, low: u32) -> u32;

    /// Of the first word that is `wanted`, not counting the bits of `low`, those bits; 0 when there is none. `wanted`
    /// has none of these bits, and `low` is one less than a power of two.
    fn first_low(self, words: &Words, wanted: u32, low: u32) -> u32;

    /// A bit for each of `words` that is below `limit`.
    fn below(self, words: &Words, limit: u32) -> u32;
}

/// What can be done by any kind of vectors. Its `run`, and what that calls on its way, must be `inline(always)`: only
/// what is built into the caller is built for the caller's kind.
pub trait Operation {
    /// What comes of it.
    type Output;

    /// Does it.
    fn run<V: Vectors>(self, vectors: V) -> Self::Output;
}

/// Runs `operation` by the widest vectors that this processor has.
#[inline(always)]
pub fn with_widest<O: Operation>(operation: O) -> O::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(vectors) = avx512::Avx512::detect() {
            return vectors.run(operation);
        }
        if let Some(vectors) = avx2::Avx2::detect() {
            return vectors.run(operation);
        }
    }
    operation.run(Portable)
}

/// Runs an operation by each kind of vectors that this processor has, `make` making it anew each time: for tests that
/// hold them against each other. The portable one is the first.
pub fn with_each<O: Operation>(mut make: impl FnMut() -> O) -> Vec<O::Output> {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut outputs = vec![make().run(Portable)];
    #[cfg(target_arch = "x86_64")]
    {
        outputs.extend(avx2::Avx2::detect().map(|vectors| vectors.run(make())));
        outputs.extend(avx512::Avx512::detect().map(|vectors| vectors.run(make())));
    }
    outputs
}
