//! Binary interface (ABI) between plugins and the router.
#![no_std]

extern crate alloc;

pub mod binary;
mod features;
pub mod process;

pub use features::Features;
