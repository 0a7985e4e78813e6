//! Allowances: how much of the router's resources a user may request.

use std::collections::BTreeMap;

use millrace_units::remedy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;
use super::api::Role;
use super::principal::{CpuShare, MemoryLimit, Principal};
use super::service::ServiceLevel;
use crate::values::Named;
use crate::values::quantity::Bits;

/// What each of the named users, and each user of the named roles, may request and hold at most. If several
/// allowances concern a user, all of them apply. An admin whom no allowance concerns may request everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Allowance {
    /// Name of the allowance.
    pub name: Named,
    /// Users, named as in the audit log: `"alice"`, `"token ci"`, `"instance nat"`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<String>,
    /// Roles: the allowance concerns each of their users. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub role: Vec<Role>,
    /// Levels at which instances and flows of the user may run. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub level: Vec<ServiceLevel>,
    /// Processors on which they may run, named as in `show hardware`: `"host"`, `"worker 0"`, `"xdp wan"`. A binding
    /// runs on all workers. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processor: Vec<String>,
    /// Largest sum of the `cpu` of the user's principals. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuShare>,
    /// Largest sums of the rates that the user's principals reserve, by port. At other ports, they reserve nothing.
    /// Default: unlimited at all ports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub link: BTreeMap<String, Bits>,
    /// Largest sum of the `memory` of the user's principals. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryLimit>,
    /// Largest number of the user's principals, 0 to 10,000. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10_000))]
    pub principals: Option<u32>,
}

impl Allowance {
    /// Largest value of `principals`.
    pub const MOST_PRINCIPALS: u32 = 10_000;

    /// Whether the allowance concerns a user with a role.
    #[must_use]
    pub fn concerns(&self, user: &str, role: Option<Role>) -> bool {
        self.user.iter().any(|one| one == user) || role.is_some_and(|role| self.role.contains(&role))
    }

    /// Whether instances and flows may run at a level.
    #[must_use]
    pub fn has_level(&self, level: ServiceLevel) -> bool {
        self.level.is_empty() || self.level.contains(&level)
    }

    /// Whether instances and flows may run on a processor.
    #[must_use]
    pub fn has_processor(&self, processor: &str) -> bool {
        self.processor.is_empty() || self.processor.iter().any(|one| one == processor)
    }

    /// Returns the first key that names a port or processor which the router lacks, with the problem and the remedy.
    #[must_use]
    pub fn unknown<'p>(
        &self,
        ports: impl Iterator<Item = &'p str> + Clone,
        workers: usize,
    ) -> Option<(&'static str, String)> {
        let wrong = |noun: &str, name: &str, known: &[String]| {
            let others = known.iter().map(String::as_str);
            format!("allowance {:?}: no {noun} is named {name:?}{}", &*self.name, remedy(noun, name, others))
        };
        let known: Vec<String> = ports.clone().map(str::to_owned).collect();
        if let Some(port) = self.link.keys().find(|port| !known.contains(port)) {
            return Some(("link", wrong("port", port, &known)));
        }
        let own = (0..workers).map(|number| format!("worker {number}")).chain(["host".to_owned()]);
        let known: Vec<String> = own.chain(ports.map(|port| format!("xdp {port}"))).collect();
        let unknown = self.processor.iter().find(|one| !known.contains(one))?;
        Some(("processor", wrong("processor", unknown, &known)))
    }
}

impl Config {
    /// Gives each principal without an owner, and each instance, the owner that it has in `running`. Returns the
    /// names of the principals and instances that got another owner.
    pub fn keep_owners(&mut self, running: &Self) -> Vec<String> {
        let mut kept = Vec::new();
        for one in self.principal.iter_mut().filter(|one| one.owner.is_none()) {
            let known = running.principal.iter().find(|known| known.name == one.name);
            one.owner = known.and_then(|known| known.owner.clone());
            kept.extend(one.owner.is_some().then(|| one.name.to_string()));
        }
        for one in &mut self.instance {
            let Some(known) = running.instance.iter().find(|known| known.name == one.name) else { continue };
            if (&one.owner, one.owner_role) != (&known.owner, known.owner_role) {
                (one.owner, one.owner_role) = (known.owner.clone(), known.owner_role);
                kept.push(one.name.to_string());
            }
        }
        kept
    }
}

impl Principal {
    /// Whether a user owns the principal.
    #[must_use]
    pub fn belongs_to(&self, user: &str) -> bool {
        self.owner.as_deref() == Some(user)
    }
}
