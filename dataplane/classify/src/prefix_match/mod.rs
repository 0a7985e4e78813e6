//! Longest prefix match, as a part that can be chosen: the match function of an address level of the filter table's DAG.
//!
//! Three ways of it, one trait: [`Patricia`], [`BinarySearchOnLengths`] and [`TreeBitmap`]. [`AnyMatch`] is the one of
//! them that a configuration names. A value is a number below [`NONE`]; prefixes may be added and removed at any time.

mod accesses;
mod binary_search_on_lengths;
mod bits;
mod chosen;
mod lengths;
mod patricia;
#[cfg(test)]
mod tests;
mod tree_bitmap;

pub use accesses::{Accesses, Count, NotCounted};
pub use binary_search_on_lengths::BinarySearchOnLengths;
pub use bits::{AddressBits, Prefix};
pub use chosen::{AnyMatch, PrefixMatchKind};
pub use patricia::Patricia;
pub use tree_bitmap::TreeBitmap;

/// No value.
pub const NONE: u32 = u32::MAX;

/// A set of prefixes with a value each, of which the longest that holds an address is found.
pub trait PrefixMatch<A: AddressBits> {
    /// Adds a prefix; the value that it had before, if it was there.
    ///
    /// # Panics
    /// When the value is [`NONE`].
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32>;

    /// Removes a prefix; its value, if it was there.
    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32>;

    /// The value of exactly this prefix.
    fn get(&self, prefix: Prefix<A>) -> Option<u32>;

    /// The value of the longest prefix that holds the address. Each access to memory that depends on one before is
    /// counted, a hash probe as one.
    fn lookup(&self, address: A, count: &mut impl Count) -> Option<u32>;

    /// The value of the longest prefix that is shorter than this one and covers it.
    fn above(&self, prefix: Prefix<A>) -> Option<u32>;

    /// Every prefix that this one covers, itself included, with its value.
    fn within(&self, prefix: Prefix<A>, found: &mut dyn FnMut(Prefix<A>, u32));

    /// How many prefixes there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes behind the structure, itself not counted.
    fn heap(&self) -> usize;
}
