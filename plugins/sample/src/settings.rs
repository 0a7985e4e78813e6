//! The settings of plugin `sample`, and how they are read.

use millrace_plugin_abi::PluginError;
use millrace_units::PortId;
use serde_json::{Map, Value};

use crate::NAME;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub to: PortId,
    pub one_in: u32,
    pub mode: Mode,
    pub seed: u64,
}

impl Settings {
    /// The settings of a new instance. The port comes as its number.
    pub fn new(given: &Map<String, Value>) -> Result<Self, PluginError> {
        let mut others = given.clone();
        let to = match others.remove("to") {
            Some(value) => value.as_u64().and_then(|number| u16::try_from(number).ok()).ok_or_else(|| {
                refuse("to", format!("{value} is no port; give the name of one, as in to=probe"))
            })?,
            None => {
                return Err(refuse("to", "it is missing; give the name of a port, as in to=probe".into()));
            }
        };
        let default = Self { to: PortId(to), one_in: 1, mode: Mode::Every, seed: 1 };
        default.with(&others)
    }

    /// These settings, changed where `given` says something. The port stays.
    pub fn with(self, given: &Map<String, Value>) -> Result<Self, PluginError> {
        PluginError::unless_known(NAME, given, &["one-in", "mode", "seed"])?;
        let mut changed = self;
        if let Some(value) = given.get("one-in") {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            changed.one_in = number.filter(|number| *number > 0).ok_or_else(|| {
                refuse("one-in", format!("{value} is no whole number of 1 to {}", u32::MAX))
            })?;
        }
        if let Some(value) = given.get("mode") {
            let found = Mode::NAMES.into_iter().find(|(name, _)| value.as_str() == Some(name));
            let (_, mode) =
                found.ok_or_else(|| refuse("mode", format!("{value} is not known; give every or random")))?;
            changed.mode = mode;
        }
        if let Some(value) = given.get("seed") {
            changed.seed = value
                .as_u64()
                .filter(|seed| *seed > 0)
                .ok_or_else(|| refuse("seed", format!("{value} is no whole number of 1 to {}", u64::MAX)))?;
        }
        Ok(changed)
    }
}

fn refuse(setting: &str, problem: String) -> PluginError {
    PluginError::setting(NAME, setting, problem)
}

/// How copies are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Every,
    Random,
}

impl Mode {
    const NAMES: [(&str, Self); 2] = [("every", Self::Every), ("random", Self::Random)];

    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}
