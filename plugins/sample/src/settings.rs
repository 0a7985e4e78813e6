//! Settings of plugin `sample`, and their parser.

use millrace_plugin_abi::{PluginError, SettingsReader};
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
    /// Returns the settings of a new instance. The router has already replaced the name of the port by its
    /// number.
    pub fn new(given: &Map<String, Value>) -> Result<Self, PluginError> {
        let reader = SettingsReader::new(NAME, given);
        let problem = "it is missing; give the name of a port, as in to=probe";
        let to = reader.port("to")?.ok_or_else(|| PluginError::setting(NAME, "to", problem))?;
        Self { to, one_in: 1, mode: Mode::Every, seed: 1 }.with(reader)
    }

    /// Returns these settings with the changes in a message's arguments. The port can't change.
    pub fn changed(self, arguments: &Map<String, Value>) -> Result<Self, PluginError> {
        let reader = SettingsReader::new(NAME, arguments);
        reader.check_changes(&["one-in", "mode", "seed"])?;
        self.with(reader)
    }

    /// Returns these settings with the changes in `reader`.
    fn with(self, reader: SettingsReader<'_>) -> Result<Self, PluginError> {
        Ok(Self {
            to: self.to,
            one_in: reader.number("one-in", 1..=u32::MAX.into())?.map_or(self.one_in, |number| number as u32),
            mode: reader.choice("mode", &Mode::NAMES)?.unwrap_or(self.mode),
            seed: reader.number("seed", 1..=u64::MAX)?.unwrap_or(self.seed),
        })
    }
}

/// Method of choosing copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Every,
    Random,
}

impl Mode {
    pub const NAMES: [(&str, Self); 2] = [("every", Self::Every), ("random", Self::Random)];
}
