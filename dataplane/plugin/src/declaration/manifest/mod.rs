//! Manifest of a plugin file: parses and checks it.
//!
//! `docs/plugin-abi.md` lists the keys. WebAssembly modules and shared objects have the same manifest.

mod check;
mod cost;
mod keys;

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_plugin_abi::binary::{ABI_VERSION, DEFAULT_WINDOW};
use millrace_plugin_abi::{Features, MapShape, NotOffered, Position, RequestKinds, StateScope};
use serde_json::{Map, Value};

use check::check;
pub use cost::{ANY_KIND, Cost, KindCost};
use keys::{capabilities, check_known, features, maps, needed, optional, positions, scope};

/// Maximum bytes of a manifest.
pub const MOST_MANIFEST: usize = 64 * 1024;
/// Maximum bytes of state that a plugin keeps for each flow.
pub const MOST_FLOW_STATE: u16 = 256;
/// Maximum bytes of an instance's service state, which is common to all flows.
pub const MOST_SERVICE_STATE: u16 = 4096;
/// Maximum number of contexts of an instance at a worker.
pub const MOST_CONTEXTS: u8 = 16;
/// Maximum number of characters of a plugin's name.
pub const MOST_NAME: usize = 64;

/// Reason that a manifest was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Manifest longer than [`MOST_MANIFEST`].
    #[error("the manifest has {0} bytes; the limit is {MOST_MANIFEST}")]
    TooLarge(usize),
    /// Text that is no JSON object.
    #[error("the manifest is not a JSON object: {0}")]
    NotAnObject(String),
    /// Unknown key.
    #[error("the manifest has the unknown key {key:?}{remedy}")]
    UnknownKey {
        /// The key as written.
        key: String,
        /// Hint with the nearest known key, or with all keys.
        remedy: String,
    },
    /// Missing mandatory key.
    #[error("the manifest lacks the mandatory key {0:?}")]
    Missing(&'static str),
    /// Value of the wrong type or out of range.
    #[error("the manifest's {key:?}: {problem}")]
    Value {
        /// The key.
        key: &'static str,
        /// Description of the problem and of the expected value.
        problem: String,
    },
    /// Plugin built for another version of the plugin interface, with that version.
    #[error("built for version {0} of the plugin interface, this router has {ABI_VERSION}: rebuild it")]
    WrongAbi(u32),
    /// Required features that this router doesn't offer.
    #[error(transparent)]
    Features(#[from] NotOffered),
}

/// State that a plugin keeps, as the plugin declares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeclaredState {
    /// Whether each flow has a state of its own, or both directions of a connection share one.
    pub scope: StateScope,
    /// Bytes of state for each flow or connection, up to [`MOST_FLOW_STATE`].
    pub flow: u16,
    /// Bytes of state common to all flows, up to [`MOST_SERVICE_STATE`].
    pub service: u16,
    /// Version of the saved state's format.
    pub version: u32,
}

/// Calls of a plugin's instances, as the plugin declares them.
#[derive(Clone, PartialEq, Debug)]
pub struct DeclaredCalls {
    /// Number of contexts of an instance at each worker, 1 to [`MOST_CONTEXTS`]. Each context is a copy of the
    /// instance with a call of its own.
    pub contexts: u8,
    /// Interval between two calls of `millrace_periodic`; `None` without such calls.
    pub period: Option<Duration>,
    /// Declared cost of calls; `None` if the plugin declares none.
    pub cost: Option<Cost>,
}

/// Checked manifest.
#[derive(Clone, PartialEq, Debug)]
pub struct Manifest {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin, `major.minor.patch`.
    pub version: String,
    /// One-line summary of the plugin.
    pub summary: String,
    /// Positions whose gates accept the plugin's instances; at least one.
    pub positions: Vec<Position>,
    /// Required interface features: those under `features`, and those that other keys and capabilities imply.
    pub features: Features,
    /// Requested capabilities, by the names of
    /// [`HOST_FUNCTIONS`](millrace_plugin_abi::binary::HOST_FUNCTIONS).
    pub capabilities: Vec<&'static str>,
    /// Control messages, each with a line of help.
    pub messages: BTreeMap<String, String>,
    /// JSON Schema of the settings; `None` if the plugin takes none.
    pub settings: Option<Map<String, Value>>,
    /// Bytes of each packet that the plugin sees, up to
    /// [`MOST_WINDOW`](millrace_plugin_abi::binary::MOST_WINDOW).
    pub window: u16,
    /// State that the plugin keeps.
    pub state: DeclaredState,
    /// Maps that the plugin's instances own and write, up to [`MOST_MAPS`](millrace_plugin_abi::MOST_MAPS).
    pub maps: Vec<MapShape>,
    /// Names of the plugin's counters, up to [`MOST_COUNTERS`](millrace_plugin_abi::binary::MOST_COUNTERS).
    pub counters: Vec<String>,
    /// File name of the host companion's module, in the folder of the plugin; `None` without a companion.
    pub host_companion: Option<String>,
    /// Calls of the plugin's instances.
    pub calls: DeclaredCalls,
}

impl Manifest {
    /// Parses and checks a manifest.
    ///
    /// # Errors
    /// [`ManifestError`] for the first problem. The interface version is checked first, then the features: a
    /// plugin for a later router may have keys that this router doesn't know.
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        if json.len() > MOST_MANIFEST {
            return Err(ManifestError::TooLarge(json.len()));
        }
        let keys: Map<String, Value> =
            serde_json::from_slice(json).map_err(|error| ManifestError::NotAnObject(error.to_string()))?;
        let abi: u32 = needed(&keys, "abi")?;
        if abi != ABI_VERSION {
            return Err(ManifestError::WrongAbi(abi));
        }
        let declared = features(&optional::<Vec<String>>(&keys, "features")?.unwrap_or_default())?;
        check_known(&keys)?;
        let mut manifest = Self {
            features: declared,
            name: needed(&keys, "name")?,
            version: needed(&keys, "version")?,
            summary: needed(&keys, "summary")?,
            positions: positions(&needed::<Vec<String>>(&keys, "positions")?)?,
            capabilities: capabilities(&optional::<Vec<String>>(&keys, "capabilities")?.unwrap_or_default())?,
            messages: optional(&keys, "messages")?.unwrap_or_default(),
            settings: optional(&keys, "settings")?,
            window: optional(&keys, "window")?.unwrap_or(DEFAULT_WINDOW),
            state: DeclaredState {
                scope: scope(&keys)?,
                flow: optional(&keys, "flow-state")?.unwrap_or_default(),
                service: optional(&keys, "service-state")?.unwrap_or_default(),
                version: optional(&keys, "state-version")?.unwrap_or_default(),
            },
            maps: maps(&keys)?,
            counters: optional(&keys, "counters")?.unwrap_or_default(),
            host_companion: optional(&keys, "host-companion")?,
            calls: DeclaredCalls {
                contexts: optional(&keys, "contexts")?.unwrap_or(1),
                period: optional::<u32>(&keys, "period")?.map(|millis| Duration::from_millis(millis.into())),
                cost: keys.get("cost").map(Cost::read).transpose()?,
            },
        };
        check(&manifest)?;
        manifest.features = declared.and(manifest.implied());
        Ok(manifest)
    }

    /// Returns the features that the manifest's keys and capabilities imply.
    fn implied(&self) -> Features {
        let of_capabilities = self.capabilities.iter().map(|name| Features::of_capability(name));
        let of_keys = [
            Features::FLOW_STATE.when(self.state.flow > 0),
            Features::CONNECTIONS.when(self.state.scope == StateScope::Connection),
            Features::SERVICE_STATE.when(self.state.service > 0),
            Features::SAVED_STATE.when(self.state.version > 0),
            Features::COUNTERS.when(!self.counters.is_empty()),
            Features::MAPS.when(!self.maps.is_empty()),
            Features::TIMERS.when(self.calls.period.is_some()),
            Features::HOST_COMPANION.when(self.host_companion.is_some()),
        ];
        of_capabilities.chain(of_keys).fold(Features::NONE, Features::and)
    }

    /// Whether the plugin requests a capability. It has the capability `request` if it may make any kind of
    /// request.
    pub fn has_capability(&self, name: &str) -> bool {
        let asks_for = |name| self.capabilities.contains(&name);
        asks_for(name) || name == RequestKinds::ALL && self.requests() != RequestKinds::default()
    }

    /// Returns the kinds of requests that the plugin may make to control.
    pub fn requests(&self) -> RequestKinds {
        RequestKinds::of(&self.capabilities)
    }
}

#[cfg(test)]
mod tests;
