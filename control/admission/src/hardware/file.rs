//! Schema of a hardware file.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::error::Fault;

/// Number above 0.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub struct Positive(pub f64);

impl TryFrom<f64> for Positive {
    type Error = Fault;

    fn try_from(value: f64) -> Result<Self, Fault> {
        if value.is_finite() && value > 0.0 {
            Ok(Self(value))
        } else {
            Err(Fault::Number { value, need: "a finite number above 0" })
        }
    }
}

/// Number of at least 0.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "f64")]
pub struct NotNegative(pub f64);

impl TryFrom<f64> for NotNegative {
    type Error = Fault;

    fn try_from(value: f64) -> Result<Self, Fault> {
        if value.is_finite() && value >= 0.0 {
            Ok(Self(value))
        } else {
            Err(Fault::Number { value, need: "a finite number of at least 0" })
        }
    }
}

/// Finite number. Linear fits of measurements can have a slightly negative part per packet.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "f64")]
pub struct Finite(pub f64);

impl TryFrom<f64> for Finite {
    type Error = Fault;

    fn try_from(value: f64) -> Result<Self, Fault> {
        if value.is_finite() {
            Ok(Self(value))
        } else {
            Err(Fault::Number { value, need: "a finite number" })
        }
    }
}

/// Share of a component that may be promised: a number, or `unbounded`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Limit {
    /// Share of the component, 1 for all of it.
    Share(f64),
    /// `unbounded`.
    Word(String),
}

/// Whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub name: String,
    pub packet: PacketFile,
    #[serde(default)]
    pub port: Vec<PortFile>,
    #[serde(default)]
    pub switch: Vec<SwitchFile>,
    #[serde(default)]
    pub processor: Vec<ProcessorFile>,
    #[serde(default)]
    pub path: Vec<PathFile>,
    #[serde(default)]
    pub provisioning: BTreeMap<Spanned<String>, Spanned<Limit>>,
}

/// Table `packet`, in bytes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketFile {
    pub minimum: Spanned<Positive>,
    pub maximum: Spanned<Positive>,
    pub header: Positive,
    #[serde(default)]
    pub overhead: NotNegative,
}

/// Entry of `port`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortFile {
    pub name: Spanned<String>,
    pub count: Positive,
    #[serde(default)]
    pub half_duplex: bool,
    #[serde(default)]
    pub packet_ns: NotNegative,
    pub byte_ns: Positive,
}

/// Entry of `switch`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SwitchFile {
    pub name: Spanned<String>,
    pub bits_per_second: Option<Positive>,
    pub packets_per_second: Option<Positive>,
}

/// Way in which a processor's cycles are shared out.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// By the worst case of each packet.
    Static,
    /// By averages.
    Dynamic,
    /// Global services by their worst case at line rate, others by averages.
    Mixed,
}

/// Entry of `processor`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProcessorFile {
    pub name: Spanned<String>,
    pub kind: String,
    #[serde(default)]
    pub machine: Option<String>,
    pub scheduling: Spanned<Scheduling>,
    pub cycles_per_packet: Option<Positive>,
    pub cycles_per_second: Option<Positive>,
    pub line_rate: Option<Positive>,
    #[serde(default)]
    pub environment_cycles: NotNegative,
    pub memory_bytes: Option<Positive>,
    pub code_slots: Option<Positive>,
}

/// Entry of `path`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PathFile {
    pub(super) from: Spanned<String>,
    pub(super) to: Spanned<String>,
    #[serde(default)]
    pub(super) switches: Vec<Crossing>,
    pub(super) transfer: Transfer,
    #[serde(default)]
    pub(super) up: Vec<Spanned<Modes>>,
    #[serde(default)]
    pub(super) down: Vec<Spanned<Modes>>,
}

/// Bytes that a packet needs on a path.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Transfer {
    /// The packet, in one transfer.
    Packet,
    /// Its header with overhead first, then the whole packet with overhead if the service reads it.
    HeaderFirst,
}

/// Switch on a path.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossing {
    pub name: Spanned<String>,
    #[serde(default = "one")]
    pub factor: Positive,
}

fn one() -> Positive {
    Positive(1.0)
}

/// Cost of one transfer of up to a number of bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Modes {
    pub(super) up_to_bytes: Option<Positive>,
    #[serde(default)]
    pub(super) send: Linear<NotNegative>,
    #[serde(default)]
    pub(super) receive: Linear<NotNegative>,
    #[serde(default)]
    pub(super) time_ns: Linear<Finite>,
}

/// Cost per packet and per byte.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear<T> {
    #[serde(default)]
    pub packet: T,
    #[serde(default)]
    pub byte: T,
}

impl Modes {
    /// Whether the mode is for transfers of this size.
    #[must_use]
    pub fn carries(&self, bytes: f64) -> bool {
        self.up_to_bytes.is_none_or(|most| bytes <= most.0)
    }

    /// Cycles of the sender for a transfer.
    #[must_use]
    pub fn send_cycles(&self, bytes: f64) -> f64 {
        self.send.packet.0 + self.send.byte.0 * bytes
    }

    /// Cycles of the receiver for a transfer.
    #[must_use]
    pub fn receive_cycles(&self, bytes: f64) -> f64 {
        self.receive.packet.0 + self.receive.byte.0 * bytes
    }

    /// Seconds on the switches for a transfer.
    #[must_use]
    pub fn seconds(&self, bytes: f64) -> f64 {
        (self.time_ns.packet.0 + self.time_ns.byte.0 * bytes) * 1e-9
    }
}
