//! Admission: no promise is made that cannot be kept. Each change of a principal, a binding, a filter or a
//! scheduler is checked against what the router may promise of each component: the processors, the workers, the
//! rates of the ports, and memory.

pub(crate) mod allowances;
mod components;
pub(crate) mod memory;
pub(crate) mod services;
pub(crate) mod shares;
pub(crate) mod time;

pub(crate) use components::{view, view_with};

use millrace_config::Config;

use crate::ControlError;

/// Checks that a router on this machine can keep all promises of a configuration, except for rates of ports.
///
/// # Errors
/// Names the first principal that asks for too much, with its position in the file.
pub(crate) fn check(config: &Config) -> Result<(), ControlError> {
    shares::check_shares(config, true)?;
    memory::check_memory_of(config)
}

/// Works like [`check`] for a router that may run on another machine.
pub(crate) fn check_elsewhere(config: &Config) -> Result<(), ControlError> {
    shares::check_shares(config, false)?;
    memory::check_memory_of(config)
}
