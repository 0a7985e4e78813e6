//! Granted deadline of a flow: its share of each resource, and the time in which a resource serves a packet.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::resource::Unit;

/// Deadline that was granted to a flow. It stays as it is while other flows come and go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// Promised longest time in the router.
    pub deadline: Duration,
    /// Least mean time between packets.
    pub interval: Duration,
    /// Number of packets that may arrive at once.
    pub burst: u32,
    /// Resources in the order of the request.
    pub stages: Vec<GrantedStage>,
}

/// Share of a resource that serves a flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantedStage {
    /// Name of the resource.
    pub resource: String,
    /// Unit of the resource.
    pub unit: Unit,
    /// Work of a packet, in cycles or bits.
    pub work: u64,
    /// Share, in parts per million or bits per second.
    pub share: u64,
    /// Time in which the share does the work of a packet, or the shortest period of the resource's server:
    /// the granted deadline of a single packet.
    pub time: Duration,
    /// Longest time that the packet waits for other work that nothing pre-empts.
    pub blocking: Duration,
    /// Flow that owns and pays the share; `None` for the flow itself.
    pub owner: Option<String>,
}

impl GrantedStage {
    /// Returns the share that the flow itself holds; 0 for the share of another flow.
    pub fn held(&self) -> u64 {
        if self.owner.is_none() { self.share } else { 0 }
    }

    /// Returns the granted time in nanoseconds.
    pub(super) fn nanoseconds(&self) -> u64 {
        nanoseconds(self.time)
    }
}

impl Grant {
    /// Returns the stage at a resource.
    pub fn stage(&self, resource: &str) -> Option<&GrantedStage> {
        self.stages.iter().find(|stage| stage.resource == resource)
    }

    /// Returns the stages whose shares the flow itself holds.
    pub(super) fn own(&self) -> impl Iterator<Item = &GrantedStage> {
        self.stages.iter().filter(|stage| stage.owner.is_none())
    }

    /// Returns the time for the shares that the flow itself holds, per packet of a burst, in nanoseconds.
    pub(super) fn own_time(&self) -> u64 {
        let others: u64 = self.stages.iter().fold(0, |sum, stage| {
            let shared = if stage.owner.is_some() { stage.nanoseconds() } else { 0 };
            sum.saturating_add(shared).saturating_add(nanoseconds(stage.blocking))
        });
        nanoseconds(self.deadline).saturating_sub(others) / u64::from(self.burst.max(1))
    }
}

/// Returns a duration in nanoseconds, at most the greatest `u64`.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
