//! Views of host companions of plugins.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Host companion of an instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HostCompanionView {
    /// Name of the companion's plugin.
    pub plugin: &'static str,
    /// Version of the companion's plugin.
    pub version: &'static str,
    /// Health of the companion: `well`, `pausing` after a fault, or `quarantined` after repeated faults.
    pub health: &'static str,
    /// Number of faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Text of the last fault.
    pub last_fault: Option<String>,
    /// Number of times that a call was suspended at the end of its slice.
    pub suspensions: u64,
    /// Messages from the instance at the workers to the companion.
    pub up: MessagesView,
    /// Messages from the companion to the instance at the workers.
    pub down: MessagesView,
}

/// Counters of messages between an instance at the workers and its companion, in one direction.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct MessagesView {
    /// Messages sent.
    pub sent: u64,
    /// Messages received. A message to the workers counts once for each worker.
    pub heard: u64,
    /// Messages lost because the queue was full or the receiver was paused.
    pub lost: u64,
}
