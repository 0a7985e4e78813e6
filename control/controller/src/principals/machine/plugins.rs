//! Control groups of plugins whose processes no single principal with a group pays for: each has a group of its own,
//! with the sum of its payers' weights and limits.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use millrace_plugin_process::ProcessGroup;
use millrace_principals::{CpuLimit, CpuWeight, Limits, RouterGroup};

use crate::principals::held::{Held, create};
use crate::principals::limits::slowdown;

/// Groups of plugins, by the name of the plugin.
#[derive(Debug, Default)]
pub(in crate::principals) struct PluginGroups {
    groups: BTreeMap<String, Held>,
    /// Plugins without a group, with the reason.
    refused: BTreeMap<String, String>,
}

impl PluginGroups {
    /// Creates, changes and removes groups, so that each plugin `wanted` has its group with these limits of its
    /// payers. Logs a refusal once: the processes of the plugin then stay where they are.
    pub fn follow(&mut self, router: Option<&RouterGroup>, wanted: &BTreeMap<&str, Vec<Limits>>) {
        self.groups.retain(|plugin, _| wanted.contains_key(&**plugin));
        self.refused.retain(|plugin, _| wanted.contains_key(&**plugin));
        let Some(router) = router else { return self.end() };
        for (plugin, payers) in wanted {
            if let Err(error) = self.set(router, plugin, sum(payers)) {
                let before = self.refused.insert((*plugin).to_owned(), error.clone());
                if before.as_ref() != Some(&error) {
                    tracing::warn!(plugin, "the processes of the plugin have no control group: {error}");
                }
            }
        }
    }

    fn set(&mut self, router: &RouterGroup, plugin: &str, limits: Limits) -> Result<(), String> {
        if !self.groups.contains_key(plugin) {
            let mut held = create(router, &name_of(plugin)).map_err(|error| error.to_string())?;
            // Without its limits, the group would be none.
            held.set(limits, false).map_err(|error| error.to_string())?;
            self.groups.insert(plugin.to_owned(), held);
        }
        let Some(held) = self.groups.get_mut(plugin) else { return Ok(()) };
        if held.limits != limits {
            held.set(limits, false).map_err(|error| error.to_string())?;
        }
        held.processes.set_patience(slowdown(&held.limits));
        self.refused.remove(plugin);
        Ok(())
    }

    /// Returns the group of a plugin.
    pub fn of(&self, plugin: &str) -> Option<Arc<ProcessGroup>> {
        self.groups.get(plugin).map(|held| held.processes.clone())
    }

    /// Returns the groups with their plugins.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Held)> {
        self.groups.iter().map(|(plugin, held)| (&**plugin, held))
    }

    /// Removes all groups. Their processes continue in the group in which the router was started.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}

/// Returns the name of a plugin's group. No principal has such a name.
pub(crate) fn name_of(plugin: &str) -> String {
    format!("plugin={plugin}")
}

/// Returns the sum of limits. A resource that is unlimited for one payer has no limit.
fn sum(payers: &[Limits]) -> Limits {
    let weight = |one: &Limits| u32::from(one.cpu_weight.unwrap_or(CpuWeight::DEFAULT).get());
    let weight = payers.iter().map(weight).sum::<u32>().clamp(1, CpuWeight::MOST.into());
    let bytes = |of: fn(&Limits) -> Option<NonZeroU64>| {
        let mut sum = payers.iter().map(|one| of(one).map(NonZeroU64::get));
        sum.try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?))).and_then(NonZeroU64::new)
    };
    let mut cpu = payers.iter().map(|one| one.cpu_limit.map(CpuLimit::ppm));
    let cpu = cpu.try_fold(0_u32, |sum, ppm| Some(sum.saturating_add(ppm?)));
    Limits {
        cpu_weight: CpuWeight::new(weight as u16).ok().filter(|weight| *weight != CpuWeight::DEFAULT),
        cpu_limit: cpu.and_then(|ppm| CpuLimit::new(ppm.min(CpuLimit::MOST)).ok()),
        memory: bytes(|one| one.memory),
        disk: bytes(|one| one.disk),
        // Each process of a plugin has its own limit.
        processes: None,
    }
}

/// Limits of the payers, by the name of the plugin.
pub(crate) fn shared<'a, P: Ord + 'a>(
    payers: impl Iterator<Item = (&'a str, &'a BTreeSet<P>)>,
    limits: impl Fn(&P) -> Option<Limits>,
) -> BTreeMap<&'a str, Vec<Limits>> {
    let limits_of = |set: &BTreeSet<P>| {
        let all: Vec<_> = set.iter().map(&limits).collect();
        // The group of a single payer holds the processes.
        let has_group = matches!(all[..], [Some(_)]);
        (!has_group).then(|| all.into_iter().map(Option::unwrap_or_default).collect())
    };
    payers.filter_map(|(plugin, set)| Some((plugin, limits_of(set)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(weight: u16, cpu: Option<u32>, memory: Option<u64>) -> Limits {
        Limits {
            cpu_weight: Some(CpuWeight::new(weight).unwrap()),
            cpu_limit: cpu.map(|ppm| CpuLimit::new(ppm).unwrap()),
            memory: memory.and_then(NonZeroU64::new),
            ..Limits::default()
        }
    }

    #[test]
    fn group_of_a_plugin_has_the_sum_of_its_payers() {
        let both = sum(&[limits(300, Some(50_000), Some(100)), limits(40, Some(100_000), Some(23))]);
        assert_eq!(both, limits(340, Some(150_000), Some(123)));
        // The default principal has the default weight, and no limits.
        assert_eq!(sum(&[limits(300, Some(50_000), Some(100)), Limits::default()]), limits(400, None, None));
        assert_eq!(
            sum(&[limits(9_999, None, Some(1)), limits(9_999, Some(50_000), None)]),
            limits(10_000, None, None)
        );
        assert_eq!(sum(&[Limits::default()]), Limits::default());
    }

    #[test]
    fn only_plugins_without_a_single_payer_with_a_group_have_a_group() {
        let payers = [("one", vec![1]), ("two", vec![1, 2]), ("default", vec![0]), ("both", vec![0, 1])];
        let payers: BTreeMap<&str, BTreeSet<u32>> =
            payers.into_iter().map(|(plugin, ids)| (plugin, ids.into_iter().collect())).collect();
        let weight = |id: &u32| (*id > 0).then(|| limits(*id as u16, None, None));
        let shared = shared(payers.iter().map(|(plugin, set)| (*plugin, set)), weight);
        assert_eq!(shared.keys().copied().collect::<Vec<_>>(), ["both", "default", "two"]);
        assert_eq!(sum(&shared["two"]), limits(3, None, None));
        assert_eq!(sum(&shared["both"]), limits(101, None, None));
        assert_eq!(sum(&shared["default"]), Limits::default());
    }
}
