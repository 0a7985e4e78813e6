//! Memory of large tables: zeroed slices in huge pages, and prefetching.
//!
//! Tables that are looked up once per packet live here, so that the crates that search them can forbid unsafe code.

mod huge_slice;
mod prefetch;
mod zeroable;

pub use huge_slice::{HUGE_PAGE, HugeSlice, MemoryError};
pub use prefetch::{prefetch, prefetch_slice_element};
pub use zeroable::Zeroable;
