//! Memory of large tables: zeroed slices in huge pages, prefetching, and comparison of the words of a cache
//! line.
//!
//! The unsafe code of packet-path tables is in this crate, so that the crates that search the tables can
//! forbid unsafe code.

mod compare;
mod huge_slice;
mod prefetch;
mod zeroable;

pub use compare::{Operation, Portable, Vectors, Words, equal_shorts, with_each, with_widest};
pub use huge_slice::{HUGE_PAGE, HugeSlice, MemoryError};
pub use prefetch::{prefetch, prefetch_at, prefetch_slice_element, prefetch_whole_element};
pub use zeroable::Zeroable;
