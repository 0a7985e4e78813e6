//! Plugins, their instances, and what these are bound to.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::quantity::{Size, Time};
use crate::values::{Named, Text, is_default};

/// A plugin that is a file, loaded at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plugin {
    /// The file, by its whole path: a WebAssembly module or a shared object. Its signature, if it has one, stands beside it.
    pub file: PathBuf,
    /// Load it also when it is signed and older than one that was loaded before. Default `false`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub allow_downgrade: bool,
}

/// What holds for all plugins that are files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Plugins {
    /// Public keys, as `millrace plugin keygen` or `minisign -G` show them: `RW` and 54 more characters. What is signed
    /// with one of them is loaded.
    pub keys: Vec<String>,
    /// Whether plugins are loaded that are not signed with one of the keys. Default `allow` without keys, and `refuse`
    /// with keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsigned: Option<Unsigned>,
    /// The directory that keeps compiled plugins, or `none`. Default: `/var/cache/millrace/plugins` for root, else
    /// `millrace/plugins` in the user's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// Whether plugins are loaded that are shared objects: they are trusted with the whole router.
    pub shared_objects: SharedObjects,
    /// Calls in a row that have to end within their slice before a function of a contained plugin is called on the worker's
    /// stack, on which it can't be stopped and gone on with. 0: never. Default 1024.
    pub short_calls: u32,
    /// Time that a call of a sandboxed plugin runs before others get their turn, 10 us to 10 ms. Default 50 us.
    pub slice: Time<10, 10_000>,
    /// Memory of an instance of a sandboxed plugin, at each worker: 1 MiB to 1 GiB. Default 4 MiB.
    pub memory: Size<{ 1 << 20 }, { 1 << 30 }>,
    /// So many faults of an instance within `fault-window` bring quarantine: 1 to 1,000. Default 8.
    pub faults: u32,
    /// Time for which faults count, 1 s to 24 h. Default 60 s.
    pub fault_window: Time<1_000_000, 86_400_000_000>,
    /// The directory in which the router remembers what has to outlive it: versions of plugins, and instances in quarantine; or
    /// `none`. Default: `/var/lib/millrace` for root, else `millrace` in the user's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Time that a call of an instance may run or sleep on a worker before the router is ended for it: 100 ms to 60 s, or `0s` for
    /// no watchdog. Default 1 s.
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

/// Time that a call of an instance may take before the router is ended for it: 100 ms to 60 s, or 0 for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Time<0, 60_000_000>")]
pub struct Watchdog(Time<0, 60_000_000>);

impl Default for Watchdog {
    fn default() -> Self {
        Self(Time::clamped(1_000_000))
    }
}

impl Watchdog {
    /// The same as a duration; zero: for ever.
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

/// What is done with plugins that nobody signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unsigned {
    /// They are loaded.
    Allow,
    /// They are not.
    Refuse,
}

/// What is done with plugins that are shared objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharedObjects {
    /// They are loaded.
    Allow,
    /// They are not.
    #[default]
    Refuse,
}

/// A plugin instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Instance {
    /// The plugin's name.
    #[schemars(with = "String")]
    pub plugin: Named,
    /// The instance's own name.
    #[schemars(with = "String")]
    pub name: Named,
    /// Its settings, as the plugin's manual page lists them.
    #[serde(default)]
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
}

/// Which flows an instance gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bind {
    /// The instance's name.
    #[schemars(with = "String")]
    pub instance: Named,
    /// The gate's name.
    #[schemars(with = "String")]
    pub gate: Named,
    /// Which packets. Empty: all.
    #[schemars(with = "String")]
    pub filter: Text<millrace_classify::FilterExpression>,
    /// Of several filters that match, the highest priority wins. Default 0.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i32,
    /// What becomes of packets that the instance fails at, and while it pauses after that. Default `drop`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub on_fault: OnFault,
    /// Time that a call of the instance may take in all before it counts as a fault, 1 us to 1 s. Default 1 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The same for each packet of a call, if that is less. A call always has 50 us. No default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_budget: Option<Budget>,
}

/// What becomes of packets that an instance fails at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFault {
    /// They are dropped.
    #[default]
    Drop,
    /// They go on, as if the instance had let them pass.
    Bypass,
}

/// Time that a call may take: 1 us to 1 s.
pub type Budget = Time<1, 1_000_000>;
