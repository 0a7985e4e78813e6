//! Isolation of principals on the machine level: the kernel's control groups.
//!
//! [`Machine`] finds the controllers of this machine, in hierarchies of version 1 or 2.
#![deny(unsafe_code)]

mod controller;
mod directory;
mod error;
mod files;
mod machine;
mod name;

#[cfg(test)]
mod test_support;

pub use controller::{Controller, Obstacle, Version};
pub use directory::REMOVAL;
pub use error::GroupError;
pub use machine::{ControllerState, Machine, Place};
