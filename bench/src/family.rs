//! IP version.

use std::fmt;

use serde::{Deserialize, Serialize};

/// IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::V4 { "IPv4" } else { "IPv6" })
    }
}

impl From<Family> for millrace_packet::Family {
    fn from(family: Family) -> Self {
        if family == Family::V4 { Self::V4 } else { Self::V6 }
    }
}
