//! Packets that a benchmark sends through the pipeline: IP version and number of flows.

use std::fmt;

use millrace_units::count;
use serde::{Deserialize, Serialize};

use crate::family::Family;

/// Packets of one IP version in a number of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    pub family: Family,
    pub flows: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.family, count(self.flows, "flow"))
    }
}
