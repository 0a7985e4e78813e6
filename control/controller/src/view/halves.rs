//! Host companions of plugins as people see them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// The host companion of an instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HostCompanionView {
    /// Its plugin.
    pub plugin: &'static str,
    /// The version of that.
    pub version: &'static str,
    /// `well`, `pausing` after a fault, or `quarantined` after many.
    pub health: &'static str,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What happened last.
    pub last_fault: Option<String>,
    /// How often it was stopped in the middle, for others to have their turn.
    pub suspensions: u64,
    /// Messages that the half at the workers sent.
    pub up: MessagesView,
    /// Messages that it sent itself.
    pub down: MessagesView,
}

/// Messages from one half to the other.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct MessagesView {
    /// Sent.
    pub sent: u64,
    /// Heard, by the instance of each worker.
    pub heard: u64,
    /// Lost: too many waited, or who should hear was pausing.
    pub lost: u64,
}
