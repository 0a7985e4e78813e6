//! What plugins and the router say to each other.
#![no_std]

pub mod binary;
mod features;

pub use features::Features;
