//! Comparison of all words of a cache line at once, with the widest vectors of the processor.
//!
//! Code that compares many lines is written once, as an [`Operation`] for any kind of [`Vectors`]. The
//! compiler builds it for each kind. [`with_widest`] detects the processor's vectors once, and runs the
//! matching build.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
mod tests;

pub use portable::{Portable, equal_shorts};

/// The 16 words of a cache line.
pub type Words = [u32; 16];

/// Kind of vector instructions that compare the words of a cache line. A value of such a type proves that the
/// processor has the instructions.
pub trait Vectors: Copy {
    /// Returns a word whose bit n is set if word n of `words` equals `wanted`. The comparison ignores the
    /// bits that are set in `low`; `wanted` must have none of these bits.
    fn equal_above(self, words: &Words, wanted: u32, low: u32) -> u32;

    /// Finds the first word that equals `wanted` in all bits but those of `low`, and returns the word's `low`
    /// bits; 0 if there is none. `wanted` must have none of the `low` bits, and `low` is a power of two minus
    /// one.
    fn first_low(self, words: &Words, wanted: u32, low: u32) -> u32;

    /// Returns a word whose bit n is set if word n of `words` is below `limit`.
    fn below(self, words: &Words, limit: u32) -> u32;
}

/// Operation that is built for each kind of vectors. `run` and all functions that it calls must be
/// `inline(always)`, because the compiler uses the kind's instructions only in inlined code.
pub trait Operation {
    /// Result of the operation.
    type Output;

    /// Runs the operation.
    fn run<V: Vectors>(self, vectors: V) -> Self::Output;
}

/// Declares a type whose values prove that the processor has the named features, and the build of an
/// operation for these features.
#[cfg(target_arch = "x86_64")]
macro_rules! proof {
    ($(#[$doc:meta])* $name:ident: $($feature:tt),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name(());

        impl $name {
            /// Returns the proof; `None` if this processor lacks the features.
            #[inline]
            pub fn detect() -> Option<Self> {
                let has = $(is_x86_feature_detected!($feature))&&+;
                has.then_some(Self(()))
            }

            /// Runs the build of the operation for these features.
            #[inline(always)]
            pub fn run<O: super::Operation>(self, operation: O) -> O::Output {
                $(#[target_feature(enable = $feature)])+
                fn built<O: super::Operation>(vectors: $name, operation: O) -> O::Output {
                    operation.run(vectors)
                }
                // SAFETY: `self` proves that the processor has the enabled features.
                unsafe { built(self, operation) }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
use proof;

/// Runs `operation` with the widest vectors of this processor.
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

/// Runs an operation with each kind of vectors that this processor has, so that tests can compare the
/// results. `make` makes the operation for each run. The first result is that of the portable kind.
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
