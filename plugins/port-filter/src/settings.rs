//! Settings of plugin `port-filter`, and their parser.

use std::fmt;

use millrace_plugin_abi::{PluginError, SettingsReader};
use serde_json::{Map, Value};

use crate::{MOST_RANGES, NAME};

/// Names of the settings.
pub(crate) const NAMES: [&str; 3] = ["ports", "protocol", "cut"];

#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub ranges: Ranges,
    pub protocols: Protocols,
    pub cut: Cut,
}

impl Settings {
    /// Returns these settings with the changes in `given`.
    pub fn with(&self, given: &Map<String, Value>) -> Result<Self, PluginError> {
        PluginError::unless_known(NAME, given, &NAMES)?;
        let reader = SettingsReader::new(NAME, given);
        let mut changed = self.clone();
        if let Some(value) = given.get("ports") {
            let refused = |problem: String| PluginError::setting(NAME, "ports", problem);
            changed.ranges = Ranges::read(value).map_err(refused)?;
        }
        changed.protocols = reader.choice("protocol", &Protocols::NAMES)?.unwrap_or(changed.protocols);
        changed.cut = reader.choice("cut", &Cut::NAMES)?.unwrap_or(changed.cut);
        Ok(changed)
    }
}

/// Protocols whose packets the plugin may drop.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Protocols {
    Tcp,
    Udp,
    #[default]
    Any,
}

impl Protocols {
    pub const NAMES: [(&str, Self); 3] = [("tcp", Self::Tcp), ("udp", Self::Udp), ("any", Self::Any)];
}

/// Treatment of packets with unreadable ports.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cut {
    #[default]
    Drop,
    Pass,
}

impl Cut {
    pub const NAMES: [(&str, Self); 2] = [("drop", Self::Drop), ("pass", Self::Pass)];
}

/// Port range, both ends included.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub first: u16,
    pub last: u16,
}

impl Range {
    #[inline]
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = Self { first: port(first, text)?, last: port(last, text)? };
        if range.first > range.last {
            return Err(format!("range {text} starts above its end; give {last}-{first}"));
        }
        Ok(range)
    }
}

fn port(digits: &str, text: &str) -> Result<u16, String> {
    // Rust's own parser accepts a leading plus sign.
    let valid = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| valid).ok_or_else(|| {
        format!("{text:?} is not a port; give ports from 0 to 65535 and ranges, as in 80,1000-2000")
    })
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// List of up to [`MOST_RANGES`] ranges.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Ranges(Vec<Range>);

impl Ranges {
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.0.iter().copied()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads ranges from a string, a number, or a list of both.
    fn read(value: &Value) -> Result<Self, String> {
        let texts: Vec<String> = match value {
            Value::Array(values) => values.iter().map(text).collect::<Result<_, _>>()?,
            value => vec![text(value)?],
        };
        let text = texts.join(",");
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let count = text.split(',').count();
        if count > MOST_RANGES {
            return Err(format!(
                "{count} ranges given; the limit is {MOST_RANGES}: join ranges, or use a second instance"
            ));
        }
        text.split(',').map(|range| Range::parse(range.trim())).collect::<Result<_, _>>().map(Self)
    }
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("{other} is not a list of ports; give ports as in 80,443,1000-2000")),
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(Range::to_string).collect();
        f.write_str(&texts.join(","))
    }
}
