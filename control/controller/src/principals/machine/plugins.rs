//! Control groups of plugins whose processes no single principal with a group pays for: each has a group of its own,
//! with the sum of its payers' parts.
//!
//! A payer divides its weight and its limits evenly among its groups, so that all of them together have no more than
//! the principal: a process belongs to one group only, and the kernel can't divide it among payers.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use millrace_config::Principal;
use millrace_plugin_process::ProcessGroup;
use millrace_principals::{CpuLimit, CpuWeight, Limits, RouterGroup};

use crate::principals::held::{Held, create};
use crate::principals::limits::{Parts, slowdown};

/// Groups of plugins, by the name of the plugin.
#[derive(Debug, Default)]
pub(in crate::principals) struct PluginGroups {
    groups: BTreeMap<String, Held>,
    /// Plugins without a group, with the reason.
    refused: BTreeMap<String, String>,
    /// Number of groups of each payer.
    parts: Parts,
}

impl PluginGroups {
    /// Creates, changes and removes groups, so that each plugin `wanted` has its group with these limits of its
    /// payers. Logs a refusal once: the processes of the plugin then stay where they are.
    pub fn follow(&mut self, router: Option<&RouterGroup>, wanted: &BTreeMap<&str, PayerParts>) {
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
            // A group without its limits would give the plugin more than its payers have.
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

    /// Returns the number of groups of each payer.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Sets the number of groups of each payer.
    pub fn set_parts(&mut self, parts: Parts) {
        self.parts = parts;
    }

    /// Applies the disk limits to devices that have appeared.
    pub fn limit_devices(&mut self, devices: &[String]) {
        self.groups.values_mut().for_each(|held| held.limit_devices(devices));
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

/// Parts of the payers of a plugin in its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::principals) struct PayerParts {
    /// Parts of principals.
    pub principals: Vec<Limits>,
    /// Part of bindings without a principal.
    pub default: Option<Limits>,
}

/// Returns the limits of a plugin's group: the sum of its payers' parts. A resource that is unlimited for one of its
/// principals has no limit. Bindings without a principal lift no limit: they add a weight.
fn sum(payers: &PayerParts) -> Limits {
    let weight = |one: &Limits| u32::from(one.cpu_weight.unwrap_or(CpuWeight::DEFAULT).get());
    let weight = payers.principals.iter().chain(&payers.default).map(weight).sum::<u32>();
    let weight = CpuWeight::new(weight.clamp(1, CpuWeight::MOST.into()) as u16).ok();
    let bytes = |of: fn(&Limits) -> Option<NonZeroU64>| {
        let mut sum = payers.principals.iter().map(|one| of(one).map(NonZeroU64::get));
        sum.try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?))).and_then(NonZeroU64::new)
    };
    let mut cpu = payers.principals.iter().map(|one| one.cpu_limit.map(CpuLimit::ppm));
    let cpu = cpu.try_fold(0_u32, |sum, ppm| Some(sum.saturating_add(ppm?)));
    Limits {
        cpu_weight: weight.filter(|weight| *weight != CpuWeight::DEFAULT),
        cpu_limit: cpu.filter(|ppm| *ppm > 0).and_then(|ppm| CpuLimit::new(ppm.min(CpuLimit::MOST)).ok()),
        memory: bytes(|one| one.memory),
        disk: bytes(|one| one.disk),
        // Each process of a plugin has its own limit.
        processes: None,
    }
}

/// Payers of each plugin that has a group of its own, because no single principal with a group pays for it.
/// `payers`: payers by the name of the plugin.
pub(crate) fn shared<'a, 'p, P: Ord>(
    payers: &'p BTreeMap<&'a str, BTreeSet<P>>,
    has_group: impl Fn(&P) -> bool,
) -> BTreeMap<&'a str, &'p BTreeSet<P>> {
    let is_shared = |set: &BTreeSet<P>| set.len() != 1 || !set.iter().all(&has_group);
    payers.iter().filter(|(_, set)| is_shared(set)).map(|(plugin, set)| (*plugin, set)).collect()
}

/// Returns the number of groups of each payer of these plugins: one for each plugin, and for a principal
/// its own one.
pub(in crate::principals) fn parts<'a, P: Ord + 'a>(
    shared: impl Iterator<Item = &'a BTreeSet<P>>,
    name: impl Fn(&P) -> String,
) -> Parts {
    let mut parts = Parts::new();
    for payer in shared.flatten().map(name) {
        let own = u32::from(payer != Principal::DEFAULT);
        *parts.entry(payer).or_insert(own) += 1;
    }
    parts
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

    fn sum_of(principals: &[Limits], default: Option<Limits>) -> Limits {
        sum(&PayerParts { principals: principals.to_vec(), default })
    }

    #[test]
    fn group_of_a_plugin_has_the_sum_of_its_principals() {
        let (one, other) = (limits(300, Some(50_000), Some(100)), limits(40, Some(100_000), Some(23)));
        assert_eq!(sum_of(&[one, other], None), limits(340, Some(150_000), Some(123)));
        assert_eq!(
            sum_of(&[limits(9_999, None, Some(1)), limits(9_999, Some(50_000), None)], None),
            limits(10_000, None, None)
        );
        assert_eq!(sum_of(&[], Some(Limits::default())), Limits::default());
    }

    #[test]
    fn binding_without_a_principal_lifts_no_limit() {
        let (one, default) = (limits(300, Some(50_000), Some(100)), Limits::default());
        assert_eq!(sum_of(&[one], Some(default)), limits(400, Some(50_000), Some(100)));
        assert_eq!(sum_of(&[one], Some(limits(25, None, None))), limits(325, Some(50_000), Some(100)));
    }

    #[test]
    fn only_plugins_without_a_single_payer_with_a_group_have_a_group() {
        let payers = [("one", vec![1]), ("two", vec![1, 2]), ("default", vec![0]), ("both", vec![0, 1])];
        let payers: BTreeMap<&str, BTreeSet<u32>> =
            payers.into_iter().map(|(plugin, ids)| (plugin, ids.into_iter().collect())).collect();
        let shared = shared(&payers, |id| *id > 0);
        assert_eq!(shared.keys().copied().collect::<Vec<_>>(), ["both", "default", "two"]);
        let name = |id: &u32| ["default", "a", "b"][*id as usize].to_owned();
        let parts = parts(shared.into_values(), name);
        let expected = [("a", 3), ("b", 2), ("default", 2)];
        assert_eq!(parts, expected.map(|(name, parts)| (name.to_owned(), parts)).into());
    }
}
