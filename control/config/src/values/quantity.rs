//! Rates, sizes and times of a configuration: text with a unit.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use millrace_units::{read_rate, read_size, read_time, write_rate, write_size, write_time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::form::{read_written, written_value};

/// Rate in bits per second, written as `64kbit`, `1.5mbit` or `10gbit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits(pub u64);

/// Size of `LEAST` to `MOST` bytes, written as `1538B` or `64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size<const LEAST: u64, const MOST: u64>(u64);

/// Size of a queue, a quantum or a burst, which fits into 32 bits.
pub type QueueSize = Size<0, { u32::MAX as u64 }>;

impl<const LEAST: u64, const MOST: u64> Size<LEAST, MOST> {
    /// Largest size in bytes.
    pub const MOST: u64 = MOST;

    /// Returns the size of `bytes` bytes, clamped to the range.
    pub const fn clamped(bytes: u64) -> Self {
        Self(clamp(bytes, LEAST, MOST))
    }

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the size in bytes, at most `u32::MAX`.
    pub fn bytes_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

/// Time of `LEAST` to `MOST` microseconds, written as `50us`, `10ms` or `30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time<const LEAST: u64, const MOST: u64>(u64);

impl<const LEAST: u64, const MOST: u64> Time<LEAST, MOST> {
    /// Returns the time of `microseconds`, clamped to the range.
    pub const fn clamped(microseconds: u64) -> Self {
        Self(clamp(microseconds, LEAST, MOST))
    }

    /// Returns the time in microseconds.
    pub const fn microseconds(self) -> u64 {
        self.0
    }

    /// Returns the time as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

/// Works like [`Ord::clamp`], but can be used in constants.
const fn clamp(number: u64, least: u64, most: u64) -> u64 {
    match number {
        _ if number < least => least,
        _ if number > most => most,
        _ => number,
    }
}

/// Implements the text form of a number with a unit.
macro_rules! quantity {
    ([$($generics:tt)*] $name:ty, $range:expr, $read:path, $write:path, $expected:literal) => {
        impl<$($generics)*> FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $read(text, $range).map(Self).map_err(|error| error.to_string())
            }
        }

        impl<$($generics)*> fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&$write(self.0))
            }
        }

        written_value!([$($generics)*] $name, $expected);
    };
}

quantity!([] Bits, 1..=1_000_000_000_000_000, read_rate, write_rate, "a rate such as \"10mbit\"");
quantity!(
    [const LEAST: u64, const MOST: u64] Size<LEAST, MOST>,
    LEAST..=MOST, read_size, write_size, "a size such as \"64KiB\""
);
quantity!(
    [const LEAST: u64, const MOST: u64] Time<LEAST, MOST>,
    LEAST..=MOST, read_time, write_time, "a time such as \"10ms\""
);

/// Reads a number of processor cycles: finite, and at least 0.
pub(crate) fn cycles<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let cycles = Option::<f64>::deserialize(deserializer)?;
    match cycles.filter(|cycles| !cycles.is_finite() || *cycles < 0.0) {
        Some(wrong) => Err(D::Error::invalid_value(Unexpected::Float(wrong), &"a finite number, 0 or more")),
        // -0 becomes 0.
        None => Ok(cycles.map(f64::abs)),
    }
}

/// Average length of a queue: a size, or a number of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Size in bytes, written with a unit.
    Bytes(QueueSize),
    /// Number of packets, written without a unit.
    Packets(u32),
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().parse() {
            Ok(packets) => Ok(Self::Packets(packets)),
            Err(_) => text.parse().map(Self::Bytes),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(size) => size.fmt(f),
            Self::Packets(packets) => packets.fmt(f),
        }
    }
}

impl JsonSchema for Length {
    fn schema_name() -> Cow<'static, str> {
        "Length".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "integer"]})
    }

    fn inline_schema() -> bool {
        true
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(size) => size.serialize(serializer),
            Self::Packets(packets) => packets.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_written(deserializer, "a size such as \"4KiB\", or a number of packets")
    }
}

/// Service curve in text form: `RATE`, or `RATE TIME RATE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurveText {
    /// Rate of the first slope.
    pub first: Bits,
    /// Duration of the first slope, in microseconds; 0 for a curve with a single slope.
    pub micros: u64,
    /// Rate of the second slope.
    pub then: Bits,
}

impl CurveText {
    /// Returns the curve with a single slope.
    #[must_use]
    pub const fn flat(rate: Bits) -> Self {
        Self { first: rate, micros: 0, then: rate }
    }
}

impl FromStr for CurveText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        match parts[..] {
            [rate] => rate.parse().map(Self::flat),
            [first, time, then] => {
                Ok(Self { first: slope(first)?, micros: micros(time)?, then: then.parse()? })
            }
            _ => Err(format!(
                "{text:?} is no service curve: write a rate such as \"1mbit\", or RATE TIME RATE such as \
                 \"1mbit 10ms 64kbit\""
            )),
        }
    }
}

/// Reads the first slope of a curve. It may be 0: then no service is guaranteed during the first slope.
fn slope(text: &str) -> Result<Bits, String> {
    if read_rate(text, 0..=0) == Ok(0) { Ok(Bits(0)) } else { text.parse() }
}

/// Reads the duration of the first slope of a curve, up to an hour.
fn micros(text: &str) -> Result<u64, String> {
    Ok(text.parse::<Time<0, 3_600_000_000>>()?.microseconds())
}

impl fmt::Display for CurveText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, micros, then } = self;
        match micros {
            0 => write!(f, "{then}"),
            micros => write!(f, "{first} {} {then}", write_time(*micros)),
        }
    }
}

written_value!([] CurveText, "a service curve such as \"1mbit\" or \"1mbit 10ms 64kbit\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_units_are_refused_with_the_unit_named() {
        for (text, hint) in [
            ("rate = 5", "has no unit: write \"5mbit\""),
            ("rate = \"50\"", "has no unit: write \"50mbit\""),
            ("size = 1538", "has no unit: write \"1538B\""),
            ("time = 1.5", "has no unit: write \"1.5ms\""),
            ("rate = \"0bit\"", "the rate must be 1bit to 1000000gbit, not \"0bit\""),
            ("time = \"11s\"", "the time must be 1ms to 10s, not \"11s\""),
            ("size = \"5GiB\"", "the size must be 0B to 4294967295B, not"),
        ] {
            #[derive(serde::Deserialize)]
            struct Quantities {
                #[serde(default)]
                _rate: Option<Bits>,
                #[serde(default)]
                _size: Option<QueueSize>,
                #[serde(default)]
                _time: Option<Time<1_000, 10_000_000>>,
            }
            let text = format!("_{text}");
            let error = toml::from_str::<Quantities>(&text).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn rates_have_a_unit() {
        for (text, bits, written) in [
            ("64kbit", 64_000, "64kbit"),
            ("1.5mbit", 1_500_000, "1500kbit"),
            ("10Gbit", 10_000_000_000, "10gbit"),
            ("999bit", 999, "999bit"),
        ] {
            let rate: Bits = text.parse().unwrap();
            assert_eq!((rate.0, rate.to_string().as_str()), (bits, written));
            assert_eq!(written.parse(), Ok(rate));
        }
        for wrong in ["", "fast", "1tbit", "mbit", "-1mbit", "nan"] {
            assert!(wrong.parse::<Bits>().unwrap_err().contains("is no rate"), "{wrong}");
        }
        for wrong in ["0bit", "2000000gbit"] {
            assert!(wrong.parse::<Bits>().unwrap_err().contains("the rate must be"), "{wrong}");
        }
    }
}
