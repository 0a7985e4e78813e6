//! Views of plugin upgrades.

use std::collections::BTreeMap;

use millrace_plugin::Inherited;
use millrace_plugin_abi::Plugin;
use millrace_units::count;
use schemars::JsonSchema;
use serde::Serialize;

/// Outcome of a plugin upgrade.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UpgradeView {
    /// Name of the plugin.
    pub name: &'static str,
    /// Old version.
    pub from: &'static str,
    /// New version.
    pub to: &'static str,
    /// Names of the plugin's instances. All of them run the new version now.
    pub instances: Vec<String>,
    /// Bytes of state handed over, summed over all workers.
    pub state: u64,
    /// Reasons for lost state, by instance.
    pub lost: Vec<String>,
    /// Result of the trial; absent without a trial.
    pub shadow: Option<ShadowView>,
}

impl UpgradeView {
    pub(crate) fn new(from: &dyn Plugin, to: &dyn Plugin) -> Self {
        let (name, from, to) = (to.name(), from.version(), to.version());
        Self { name, from, to, instances: Vec::new(), state: 0, lost: Vec::new(), shadow: None }
    }

    /// Adds the results of an instance's state hand-over, one for each worker. If the flow state of the
    /// instance is lost, also adds the reason, which is `of_flows`.
    pub(crate) fn add(&mut self, instance: &str, inherited: &[Inherited], of_flows: Option<&str>) {
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
        self.lost.extend(of_flows.into_iter().map(|why| format!("{instance}: {why}")));
    }
}

/// Result of a trial, in which the new version ran on copies of packets.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ShadowView {
    /// Packets that both versions processed.
    pub packets: u64,
    /// Packets that the versions treated differently.
    pub different: u64,
    /// Packets that only the old version got. If the new version runs in a process, these are mostly packets that
    /// arrived during its calls.
    pub skipped: u64,
    /// Packets that the process of the new version had not answered at the time limit of its call, or at the end of the
    /// trial.
    pub unanswered: u64,
    /// Description of the first difference.
    pub first: Option<String>,
    /// Fault of the new version; absent if it had none.
    pub fault: Option<String>,
}

impl ShadowView {
    /// Whether the trial found neither a difference nor a fault.
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
    fn lost_state_is_reported_once_for_all_workers() {
        let (name, from, to) = ("p", "1.0.0", "1.0.1");
        let (instances, lost) = (Vec::new(), Vec::new());
        let mut view = UpgradeView { name, from, to, instances, state: 0, lost, shadow: None };
        let gone = |why: &str| Inherited::Lost(why.into());
        view.add("a", &[gone("it is pausing"), gone("it is pausing")], None);
        let mixed = [Inherited::Bytes(5), gone("it is pausing"), Inherited::Bytes(4), gone("no")];
        view.add("b", &mixed, None);
        view.add("c", &[Inherited::Nothing], Some("its flows"));
        let lost = [
            "a: it is pausing",
            "b, at 1 of 4 workers: it is pausing",
            "b, at 1 of 4 workers: no",
            "c: its flows",
        ];
        assert_eq!((view.lost, view.state), (lost.map(str::to_owned).to_vec(), 9));
    }
}
