//! Longest prefix match of configurable kinds: the match function of the address levels in the filter table's
//! DAG.
//!
//! The trait [`PrefixMatch`] has three implementations: [`Patricia`], [`BinarySearchOnLengths`] and
//! [`TreeBitmap`]. [`AnyMatch`] uses the configured one of them. Prefixes may be added and removed at any
//! time. Each prefix has a value, a number below [`NONE`].

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

/// Number that stands for no value.
pub const NONE: u32 = u32::MAX;

/// Set of prefixes, each with a value. A lookup finds the longest prefix that contains an address.
pub trait PrefixMatch<A: AddressBits> {
    /// Adds a prefix, or changes its value. Returns its previous value; `None` for a new prefix.
    ///
    /// # Panics
    /// If the value is [`NONE`].
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32>;

    /// Removes a prefix, and returns its value; `None` if it was not in the set.
    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32>;

    /// Returns the value of this prefix; `None` if it is not in the set.
    fn get(&self, prefix: Prefix<A>) -> Option<u32>;

    /// Returns the value of the longest prefix that contains the address; `None` if no prefix does. `count`
    /// counts each dependent memory access; a probe of the hash table counts as one.
    fn lookup(&self, address: A, count: &mut impl Count) -> Option<u32>;

    /// Returns the value of the longest prefix of the set that covers `prefix` and is shorter than `prefix`;
    /// `None` if there is none.
    fn above(&self, prefix: Prefix<A>) -> Option<u32>;

    /// Calls `found` for every prefix of the set that `prefix` covers, including itself.
    fn within(&self, prefix: Prefix<A>, found: &mut dyn FnMut(Prefix<A>, u32));

    /// Returns the number of prefixes.
    fn len(&self) -> usize;

    /// Whether the set is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the heap memory in bytes.
    fn heap(&self) -> usize;
}
