//! Plugins that are replaced by other versions of themselves.

use std::collections::BTreeMap;

use millrace_plugin::Inherited;
use millrace_plugin_abi::Plugin;
use millrace_units::count;
use schemars::JsonSchema;
use serde::Serialize;

use crate::upgrade::Succeeded;

/// What became of a plugin that was replaced by another version.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UpgradeView {
    /// The plugin.
    pub name: &'static str,
    /// The version that it had.
    pub from: &'static str,
    /// The version that it has.
    pub to: &'static str,
    /// Its instances, which are of the new version now.
    pub instances: Vec<String>,
    /// Bytes of state that they took over, at all workers.
    pub state: u64,
    /// What was lost of what they knew, instance by instance.
    pub lost: Vec<String>,
    /// What came of the trial, if there was one.
    pub shadow: Option<ShadowView>,
}

impl UpgradeView {
    pub(crate) fn new(from: &dyn Plugin, to: &dyn Plugin) -> Self {
        let (name, from, to) = (to.name(), from.version(), to.version());
        Self { name, from, to, instances: Vec::new(), state: 0, lost: Vec::new(), shadow: None }
    }

    /// Notes what became of what an instance knew.
    pub(crate) fn add(&mut self, Succeeded { name: instance, inherited, of_flows }: &Succeeded) {
        let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
        for of_worker in inherited {
            match of_worker {
                Inherited::Bytes(bytes) => self.state += *bytes as u64,
                Inherited::Nothing => {}
                Inherited::Lost(why) => *lost.entry(why).or_default() += 1,
            }
        }
        let all = inherited.len();
        self.lost.extend(lost.into_iter().map(|(why, workers)| match workers {
            some if some == all => format!("{instance}: {why}"),
            some => format!("{instance}, at {some} of {}: {why}", count(all, "worker")),
        }));
        self.lost.extend(of_flows.iter().map(|why| format!("{instance}: {why}")));
    }
}

/// What came of the trial of a new version on copies of packets.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ShadowView {
    /// Packets that both versions had.
    pub packets: u64,
    /// Packets of these that they treated differently.
    pub different: u64,
    /// The first of those, in a sentence.
    pub first: Option<String>,
    /// What the new version did wrong.
    pub fault: Option<String>,
}

impl ShadowView {
    /// Whether the new version did as the old one.
    pub(crate) fn is_clean(&self) -> bool {
        self.different == 0 && self.fault.is_none()
    }
}

impl std::fmt::Display for ShadowView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.different, count(self.packets, "packet"))?;
        let said = self.first.iter().chain(&self.fault);
        said.into_iter().try_for_each(|text| write!(f, "; {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_said_once_for_all_workers() {
        let (name, from, to) = ("p", "1.0.0", "1.0.1");
        let (instances, lost) = (Vec::new(), Vec::new());
        let mut view = UpgradeView { name, from, to, instances, state: 0, lost, shadow: None };
        let gone = |why: &str| Inherited::Lost(why.into());
        let succeeded = |name: &str, inherited: &[Inherited], of_flows: Option<&str>| Succeeded {
            name: name.to_owned(),
            inherited: inherited.to_vec(),
            of_flows: of_flows.map(str::to_owned),
        };
        view.add(&succeeded("a", &[gone("it is pausing"), gone("it is pausing")], None));
        let mixed = [Inherited::Bytes(5), gone("it is pausing"), Inherited::Bytes(4), gone("no")];
        view.add(&succeeded("b", &mixed, None));
        view.add(&succeeded("c", &[Inherited::Nothing], Some("its flows")));
        let lost = [
            "a: it is pausing",
            "b, at 1 of 4 workers: it is pausing",
            "b, at 1 of 4 workers: no",
            "c: its flows",
        ];
        assert_eq!((view.lost, view.state), (lost.map(str::to_owned).to_vec(), 9));
    }
}
