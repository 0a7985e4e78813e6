//! Instances of plugins.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{BindingView, HostCompanionView};

/// A plugin instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InstanceView {
    /// Its name.
    pub name: String,
    /// Its number, by which plugins send packets to it.
    pub number: u16,
    /// Its plugin.
    pub plugin: &'static str,
    /// Its settings.
    pub settings: Value,
    /// `well`, `pausing` after a fault, or `quarantined` after many.
    pub health: &'static str,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What happened last.
    pub last_fault: Option<String>,
    /// How often it was stopped in the middle, for others to have their turn.
    pub suspensions: u64,
    /// Packets that it dropped, by its own reasons.
    pub drops: BTreeMap<u8, u64>,
    /// Its plugin's own counters, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Its host companion; nothing where its plugin has none.
    pub host_companion: Option<HostCompanionView>,
    /// The lowest level at which its packets are treated: `xdp` where its form for the driver is loaded there, `worker` otherwise.
    pub level: &'static str,
    /// Why it is not in the driver, where it isn't.
    pub why_worker: Option<String>,
    /// Packets that its bindings got.
    pub packets: u64,
    /// The same per second, since the last time that somebody asked.
    pub packet_rate: f64,
    /// Where it is bound.
    pub bindings: Vec<BindingView>,
}

/// An instance in quarantine, because a call of it has ended the router.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HeldView {
    /// Its name.
    pub instance: String,
    /// Its plugin.
    pub plugin: String,
    /// When it happened: date and time, UTC.
    pub since: String,
    /// What happened.
    pub why: String,
    /// Whether this router has an instance of that name.
    pub is_here: bool,
}

/// An instance that was let out of quarantine.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReleaseView {
    /// Its name.
    pub instance: String,
    /// Whether this router has it, so that it runs now.
    pub is_here: bool,
}
