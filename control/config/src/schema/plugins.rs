//! Plugins, instances and bindings.

use std::path::PathBuf;
use std::time::Duration;

use millrace_units::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::api::Role;
use super::service::Service;
use crate::values::quantity::{Size, Time};
use crate::values::{Named, Text, is_default};

/// Plugin file to load at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plugin {
    /// Absolute path of the file: a WebAssembly module, a shared object or an executable. A signature file may
    /// be beside it.
    pub file: PathBuf,
    /// Whether to load a signed plugin even if a newer version was loaded before. Default `false`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_downgrade: bool,
    /// Runtime of a shared object. A WebAssembly module always runs in its sandbox, and an executable in
    /// processes. Default `process`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub runtime: ObjectRuntime,
}

/// Runtime of a plugin that is a shared object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectRuntime {
    /// Each instance runs in a confined process of its own.
    #[default]
    Process,
    /// The instances run at the workers of the router, and can access the whole router.
    InProcess,
}

/// Settings that apply to all plugin files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Plugins {
    /// Trusted public keys, as printed by `millrace plugin keygen` or `minisign -G`: `RW` and 54 more
    /// characters. A plugin signed with one of these keys is loaded.
    pub keys: Vec<String>,
    /// Whether to load plugins that none of the keys has signed. Default: `allow` without keys, and `refuse`
    /// with keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsigned: Option<Unsigned>,
    /// Directory that caches compiled plugins, or `none`. Default: `/var/cache/millrace/plugins` for root,
    /// else `millrace/plugins` in the user's cache directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// Whether to load shared objects and executables as plugins. In the runtime `in-process`, the code of a
    /// shared object has full access to the router.
    pub shared_objects: SharedObjects,
    /// Number of consecutive calls of a sandboxed function that must end within their slice before the
    /// function runs on the worker's stack. Calls on that stack can't be suspended. 0: never. Default 1,024.
    pub short_calls: u32,
    /// Running time after which a call of a sandboxed plugin is suspended, 10 us to 10 ms. Default 50 us.
    pub slice: Time<10, 10_000>,
    /// Memory of an instance of a sandboxed plugin at each worker, 1 MiB to 1 GiB. Default 4 MiB.
    pub memory: Size<{ 1 << 20 }, { 1 << 30 }>,
    /// Number of faults within `fault-window` that put an instance into quarantine, 1 to 1,000. Default 8.
    pub faults: u32,
    /// Time window in which faults of an instance are counted, 1 s to 24 h. Default 60 s.
    pub fault_window: Time<1_000_000, 86_400_000_000>,
    /// Directory of persistent state (versions of plugins, instances in quarantine), or `none`. Default:
    /// `/var/lib/millrace` for root, else `millrace` in the user's state directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Time for which a call may run or sleep on a worker before the watchdog ends the router, 100 ms to 60
    /// s. `0s` turns the watchdog off. Default 1 s.
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

/// Time for which a call of an instance may run or sleep before the watchdog ends the router, 100 ms to 60 s.
/// 0 turns the watchdog off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Time<0, 60_000_000>")]
pub struct Watchdog(Time<0, 60_000_000>);

impl Default for Watchdog {
    fn default() -> Self {
        Self(Time::clamped(1_000_000))
    }
}

impl Watchdog {
    /// Returns the time as a duration; zero if the watchdog is off.
    pub fn duration(self) -> Duration {
        self.0.duration()
    }
}

impl TryFrom<Time<0, 60_000_000>> for Watchdog {
    type Error = String;

    fn try_from(time: Time<0, 60_000_000>) -> Result<Self, String> {
        match time.microseconds() {
            0 | 100_000.. => Ok(Self(time)),
            _ => Err(format!("the time must be 100ms to 60s, or 0s for no watchdog, not \"{time}\"")),
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

/// Treatment of plugins that are shared objects or executables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharedObjects {
    /// Shared objects are loaded.
    Allow,
    /// Shared objects are refused.
    #[default]
    Refuse,
}

/// Instance of a plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Instance {
    /// Name of the plugin.
    pub plugin: Named,
    /// Name of the instance.
    pub name: Named,
    /// Settings of the instance, which the plugin's manual page lists.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
    /// Declared load of the instance, and its level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// User who created the instance, named as in the audit log. The service runs only at levels that the allowances
    /// of this user permit. Default: nobody. A running instance keeps its owner, whatever a file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Role of the owner: allowances of the role count, too. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_role: Option<Role>,
}

/// Binding of an instance to flows at a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bind {
    /// Name of the instance.
    pub instance: Named,
    /// Name of the gate.
    pub gate: Named,
    /// Filter of the packets for the instance. An empty filter matches all packets.
    pub filter: Text<millrace_classify::FilterExpression>,
    /// Priority; of several filters that match, the highest priority wins. Default 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// Treatment of packets when the instance's call fails, and during the following pause. Default `drop`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_fault: OnFault,
    /// Principal that pays for the calls of the instance, with its share of the processor. Default: `default`
    /// for plugins that were loaded from files. The router calls built-in plugins at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<Named>,
    /// Time limit of a call as a whole, however many packets it has, 1 us to 1 s. A longer call is a fault.
    /// Default 100 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Time limit of a call per packet, 1 us to 1 s: a call with N packets may take N times as long, but at
    /// most `budget`. A call always gets at least one `slice`. No default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_budget: Option<Budget>,
    /// Whether packets wait in a queue of their own before the instance, also when they come from an earlier
    /// instance of the same principal. Default `false`: they run on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub queue: bool,
    /// Weight of this queue among the queues of a flow, 1 to 100. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_weight: Option<u32>,
}

impl Bind {
    /// Weight of a queue without `queue-weight`.
    pub const USUAL_QUEUE_WEIGHT: u32 = 1;
    /// Greatest weight of a queue.
    pub const MOST_QUEUE_WEIGHT: u32 = 100;

    /// Returns the weight of the queue that a binding with these settings has; `None` without a queue.
    ///
    /// # Errors
    /// A weight without a queue, or outside of 1 to 100.
    pub fn stage_queue(queue: bool, weight: Option<u32>) -> Result<Option<u16>, Message> {
        let setting = || Message::from("").key("queue-weight");
        match (queue, weight.unwrap_or(Self::USUAL_QUEUE_WEIGHT)) {
            (false, _) if weight.is_some() => {
                Err(setting().text(" needs a queue: set ").key("queue").text(" to true as well"))
            }
            (false, _) => Ok(None),
            (true, weight @ 1..=Self::MOST_QUEUE_WEIGHT) => Ok(Some(weight as u16)),
            (true, wrong) => {
                let range = format!(" must be 1 to {}, not {wrong}", Self::MOST_QUEUE_WEIGHT);
                Err(setting().text(range))
            }
        }
    }
}

/// Treatment of packets when the call of an instance fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFault {
    /// The packets are dropped.
    #[default]
    Drop,
    /// The packets continue as if the instance had passed them.
    Bypass,
}

/// Time limit of a call, 1 us to 1 s.
pub type Budget = Time<1, 1_000_000>;
