//! Settings of plugin `syn-monitor`, and their parser.

use std::time::Duration;

use millrace_plugin_abi::{PluginError, SettingsReader, settings_of};
use serde_json::{Map, Value, json};

use crate::NAME;

/// Description of an integer setting: name, minimum, maximum, default, and text for users.
type Number = (&'static str, u64, u64, u64, &'static str);

const THRESHOLD: Number = (
    "threshold",
    0,
    1_000_000_000,
    1_000,
    "half-open connection attempts per second above which the alarm is raised; 0: no alarm",
);
const INTERVAL: Number = ("interval-ms", 100, 60_000, 1_000, "length of an interval in milliseconds");
const PREFIX: Number = ("prefix", 0, 32, 32, "prefix length by which IPv4 destinations are grouped");
const PREFIX6: Number = ("prefix6", 0, 128, 128, "prefix length by which IPv6 destinations are grouped");
const DESTINATIONS: Number =
    ("destinations", 1, 4_096, 256, "number of destinations that are counted separately");
const ALL: [Number; 5] = [THRESHOLD, INTERVAL, PREFIX, PREFIX6, DESTINATIONS];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// Half-open connection attempts per second above which the alarm is raised; 0 for no alarm.
    pub threshold: u64,
    pub interval: Duration,
    pub prefix: u8,
    pub prefix6: u8,
    pub destinations: usize,
}

impl Settings {
    /// Returns the settings of a new instance.
    pub fn new(given: &Map<String, Value>) -> Result<Self, PluginError> {
        let reader = SettingsReader::new(NAME, given);
        let or_default = |number: Number| Ok(read(reader, number)?.unwrap_or(number.3));
        Ok(Self {
            threshold: or_default(THRESHOLD)?,
            interval: Duration::from_millis(or_default(INTERVAL)?),
            prefix: or_default(PREFIX)? as u8,
            prefix6: or_default(PREFIX6)? as u8,
            destinations: or_default(DESTINATIONS)? as usize,
        })
    }

    /// Returns these settings with the changes in a message's arguments.
    pub fn changed(self, arguments: &Map<String, Value>) -> Result<Self, PluginError> {
        let reader = SettingsReader::new(NAME, arguments);
        reader.check_changes(&[THRESHOLD.0, INTERVAL.0])?;
        Ok(Self {
            threshold: read(reader, THRESHOLD)?.unwrap_or(self.threshold),
            interval: read(reader, INTERVAL)?.map_or(self.interval, Duration::from_millis),
            ..self
        })
    }

    pub fn read(&self) -> Value {
        json!({
            "threshold": self.threshold,
            "interval-ms": self.interval.as_millis() as u64,
            "prefix": self.prefix,
            "prefix6": self.prefix6,
            "destinations": self.destinations,
        })
    }
}

fn read(reader: SettingsReader<'_>, (name, least, most, ..): Number) -> Result<Option<u64>, PluginError> {
    reader.number(name, least..=most)
}

/// Returns the JSON Schema of the settings.
pub(crate) fn schema() -> Map<String, Value> {
    let property = |(name, least, most, default, what): Number| {
        let described = json!({ "type": "integer", "minimum": least, "maximum": most, "default": default,
            "description": what });
        (name.to_owned(), described)
    };
    settings_of(ALL.map(property).into_iter().collect(), &[])
}
