//! Plugins, instances and bindings.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::values::quantity::{Size, Time};
use crate::values::{Named, Text, is_default};

/// Plugin file to load at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plugin {
    /// Absolute path of the file, a WebAssembly module or a shared object; a signature file may be beside it.
    pub file: PathBuf,
    /// Whether a signed plugin may be older than a version that was loaded before. Default `false`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_downgrade: bool,
}

/// Settings of all plugin files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Plugins {
    /// Trusted public keys, as `millrace plugin keygen` or `minisign -G` print them: `RW` and 54 more
    /// characters. A plugin signed with one of them is loaded.
    pub keys: Vec<String>,
    /// Whether plugins without a signature by one of the keys are loaded. Default `allow` without keys, and
    /// `refuse` with keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsigned: Option<Unsigned>,
    /// Directory that caches compiled plugins, or `none`. Default: `/var/cache/millrace/plugins` for root,
    /// else `millrace/plugins` in the user's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// Whether shared objects are loaded as plugins: they are trusted with the whole router.
    pub shared_objects: SharedObjects,
    /// Number of consecutive calls of a sandboxed function within its slice, after which it runs on the
    /// worker's stack, where calls can't be suspended. 0: never. Default 1024.
    pub short_calls: u32,
    /// Time that a call of a sandboxed plugin runs before it is suspended, 10 us to 10 ms. Default 50 us.
    pub slice: Time<10, 10_000>,
    /// Memory of an instance of a sandboxed plugin, at each worker: 1 MiB to 1 GiB. Default 4 MiB.
    pub memory: Size<{ 1 << 20 }, { 1 << 30 }>,
    /// Number of faults of an instance within `fault-window` that cause quarantine: 1 to 1,000. Default 8.
    pub faults: u32,
    /// Time for which faults count, 1 s to 24 h. Default 60 s.
    pub fault_window: Time<1_000_000, 86_400_000_000>,
    /// Directory of persistent state (versions of plugins, instances in quarantine), or `none`. Default:
    /// `/var/lib/millrace` for root, else `millrace` in the user's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Time that a call may run or sleep on a worker before the watchdog ends the router: 100 ms to 60 s, or
    /// `0s` for no watchdog. Default 1 s.
    #[schemars(with = "String")]
    pub watchdog: Watchdog,
}

impl Default for Plugins {
    fn default() -> Self {
        let (keys, unsigned, cache, shared_objects, state, watchdog) = Default::default();
        Self {
            keys,
            unsigned,
            cache,
            shared_objects,
            short_calls: 1024,
            slice: Time::clamped(50),
            memory: Size::clamped(4 << 20),
            faults: 8,
            fault_window: Time::clamped(60_000_000),
            state,
            watchdog,
        }
    }
}

/// Time that a call of an instance may take before the watchdog ends the router: 100 ms to 60 s, or 0 for no
/// watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Time<0, 60_000_000>")]
pub struct Watchdog(Time<0, 60_000_000>);

impl Default for Watchdog {
    fn default() -> Self {
        Self(Time::clamped(1_000_000))
    }
}

impl Watchdog {
    /// Returns the time as a duration; zero for no watchdog.
    pub fn duration(self) -> Duration {
        self.0.duration()
    }
}

impl TryFrom<Time<0, 60_000_000>> for Watchdog {
    type Error = String;

    fn try_from(time: Time<0, 60_000_000>) -> Result<Self, String> {
        match time.microseconds() {
            0 | 100_000.. => Ok(Self(time)),
            _ => Err(format!("\"{time}\" is out of range: 100ms to 60s, or 0s for no watchdog")),
        }
    }
}

/// Treatment of unsigned plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unsigned {
    /// Unsigned plugins are loaded.
    Allow,
    /// Unsigned plugins are refused.
    Refuse,
}

/// Treatment of plugins that are shared objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharedObjects {
    /// Shared objects are loaded.
    Allow,
    /// Shared objects are refused.
    #[default]
    Refuse,
}

/// Plugin instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Instance {
    /// Name of the plugin.
    pub plugin: Named,
    /// Name of the instance.
    pub name: Named,
    /// Settings of the instance, as the plugin's manual page lists them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
}

/// Binding of an instance to flows at a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bind {
    /// Name of the instance.
    pub instance: Named,
    /// Name of the gate.
    pub gate: Named,
    /// Filter of packets for the instance. Empty: all packets.
    pub filter: Text<millrace_classify::FilterExpression>,
    /// Priority: of several matching filters, the highest wins. Default 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// Treatment of packets at which the instance fails, and during the pause after that. Default `drop`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_fault: OnFault,
    /// Total time that a call of the instance may take before it counts as a fault, 1 us to 1 s. Default 1
    /// ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Time per packet of a call, which applies if the sum is below `budget`. A call always has 50 us. No
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_budget: Option<Budget>,
}

/// Treatment of packets at which an instance fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFault {
    /// The packets are dropped.
    #[default]
    Drop,
    /// The packets continue as if the instance had let them pass.
    Bypass,
}

/// Time that a call may take: 1 us to 1 s.
pub type Budget = Time<1, 1_000_000>;
