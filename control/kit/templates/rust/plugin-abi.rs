//! Binary interface (ABI) between plugins and the router.
#![no_std]

pub mod binary;
mod features;

pub use features::Features;
