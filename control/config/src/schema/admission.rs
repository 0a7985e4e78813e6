//! Admission: how much of the router's resources may be promised.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::allowance::Allowance;
use super::principal::MemoryLimit;
use crate::values::share::PromisedPart;

/// How much of the router's resources principals may reserve. Reservations beyond it are refused. The rest stays
/// free for traffic without a reservation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Admission {
    /// Part of the processor time that `core-ceiling` leaves at the workers, and of all processors, 1 % to 100 %.
    /// Default 100 %.
    pub cpu: PromisedPart,
    /// Part of the rate of each port's scheduler, 1 % to 100 %. Default 100 %.
    pub link: PromisedPart,
    /// Largest sum of the principals' `memory`. A principal without `memory` counts nothing. Default: unlimited.
    pub memory: Option<MemoryLimit>,
    /// What single users may request of it. Default: admins everything, others nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowance: Vec<Allowance>,
}

impl Admission {
    /// Returns the settings that allow what either of two settings allows, with the allowances of `other`.
    pub(crate) fn looser(&self, other: &Self) -> Self {
        let larger =
            |one: PromisedPart, other: PromisedPart| if one.ppm() < other.ppm() { other } else { one };
        let memory = self.memory.zip(other.memory);
        Self {
            cpu: larger(self.cpu, other.cpu),
            link: larger(self.link, other.link),
            memory: memory.map(|(one, other)| if one.bytes() < other.bytes() { other } else { one }),
            allowance: other.allowance.clone(),
        }
    }
}

impl Default for Admission {
    fn default() -> Self {
        let whole = PromisedPart::clamped(1_000_000);
        Self { cpu: whole, link: whole, memory: None, allowance: Vec::new() }
    }
}
