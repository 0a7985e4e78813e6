//! The settings of plugin `syn-monitor`, and how they are read.

use std::time::Duration;

use millrace_plugin_abi::PluginError;
use serde_json::{Map, Value, json};

use crate::NAME;

/// A whole number: its name, its least, its greatest and its default value, and what it is.
type Number = (&'static str, u64, u64, u64, &'static str);

const THRESHOLD: Number = (
    "threshold",
    0,
    1_000_000_000,
    1_000,
    "attempts a second that may stay half-open before there is an alarm; 0: no alarm",
);
const INTERVAL: Number = ("interval-ms", 100, 60_000, 1_000, "milliseconds of an interval");
const PREFIX: Number = ("prefix", 0, 32, 32, "bits of IPv4 destinations that are counted together");
const PREFIX6: Number = ("prefix6", 0, 128, 128, "bits of IPv6 destinations that are counted together");
const DESTINATIONS: Number = ("destinations", 1, 4_096, 256, "destinations that are told apart");
const ALL: [Number; 5] = [THRESHOLD, INTERVAL, PREFIX, PREFIX6, DESTINATIONS];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// Attempts a second.
    pub threshold: u64,
    pub interval: Duration,
    pub prefix: u8,
    pub prefix6: u8,
    pub destinations: usize,
}

impl Settings {
    /// The settings of a new instance.
    pub fn new(given: &Map<String, Value>) -> Result<Self, PluginError> {
        PluginError::unless_known(NAME, given, &ALL.map(|(name, ..)| name))?;
        let or_default = |number: Number| Ok(read(given, number)?.unwrap_or(number.3));
        Ok(Self {
            threshold: or_default(THRESHOLD)?,
            interval: Duration::from_millis(or_default(INTERVAL)?),
            prefix: or_default(PREFIX)? as u8,
            prefix6: or_default(PREFIX6)? as u8,
            destinations: or_default(DESTINATIONS)? as usize,
        })
    }

    /// These settings, changed where `given` says something that can be changed.
    pub fn with(self, given: &Map<String, Value>) -> Result<Self, PluginError> {
        PluginError::unless_known(NAME, given, &[THRESHOLD.0, INTERVAL.0])?;
        if given.is_empty() {
            return Err(PluginError::setting(NAME, "set", "nothing to set; give threshold or interval-ms"));
        }
        Ok(Self {
            threshold: read(given, THRESHOLD)?.unwrap_or(self.threshold),
            interval: read(given, INTERVAL)?.map_or(self.interval, Duration::from_millis),
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

fn read(given: &Map<String, Value>, number: Number) -> Result<Option<u64>, PluginError> {
    let (name, least, most, ..) = number;
    let Some(value) = given.get(name) else { return Ok(None) };
    let wrong =
        || PluginError::setting(NAME, name, format!("{value} is no whole number of {least} to {most}"));
    value.as_u64().filter(|number| (least..=most).contains(number)).map(Some).ok_or_else(wrong)
}

/// The JSON Schema of the settings.
pub(crate) fn schema() -> Map<String, Value> {
    let property = |(name, least, most, default, what): Number| {
        let described = json!({ "type": "integer", "minimum": least, "maximum": most, "default": default,
            "description": what });
        (name.to_owned(), described)
    };
    let properties: Map<String, Value> = ALL.map(property).into_iter().collect();
    let schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    schema.as_object().cloned().unwrap_or_default()
}
