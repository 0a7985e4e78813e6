//! Ports.

use std::path::PathBuf;

use ipnet::IpNet;
use millrace_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OnDeath;
use crate::scheduler::Scheduler;
use crate::values::{InputWeight, Named, Text, VlanIds, is_default};

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// Its name, by which everything else speaks of it.
    #[schemars(with = "String")]
    pub name: Named,
    /// The kernel device below. For kinds `device` (the default) and sub-interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What the port is. Default `device`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub kind: PortKind,
    /// How the kernel device is used. Default `auto`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub driver: Device,
    /// VLAN id, or outer and inner id, of a sub-interface of `device` with addresses, ARP and ND of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanIds>,
    /// Addresses with the prefix length of their subnet; only for ports without a kernel device, and sub-interfaces.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub address: Vec<Text<IpNet>>,
    /// MAC address, for ports without a kernel device. Default: made from the name.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Text<MacAddr>>,
    /// Largest network packet in bytes, 68 to 65,535, for ports without a kernel device. Default 1,500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// What happens to the port's packets when the router has died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_death: Option<OnDeath>,
    /// File whose frames a `pcap` port receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
    /// File that a `pcap` port sends to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// Plays `input` as fast as it can be read, not at the recorded times.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub fast: bool,
    /// Makes the port worse, for tests and labs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impair: Option<Impair>,
    /// File that records all frames of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// Whether the way back to a packet's source must lead by the port that it came in by. Default `off`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub reverse_path: ReversePath,
    /// Packets that are taken from the port in a round, at most, 1 to 256: where not all that comes can be taken, ports are served
    /// in these proportions. Default 256.
    #[serde(default)]
    #[schemars(with = "u16")]
    #[serde(skip_serializing_if = "is_default")]
    pub input_weight: InputWeight,
    /// In which order and at which rates it sends. Default: at once, first in first out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
}

/// Whether the way back to a packet's source is looked at (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReversePath {
    /// It is not.
    #[default]
    Off,
    /// The route to the source must lead by the port that the packet came in by.
    Strict,
    /// There must be some route to the source.
    Loose,
}

/// What a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    /// A kernel device.
    #[default]
    Device,
    /// A TAP device that the router makes.
    Tap,
    /// Capture files.
    Pcap,
    /// Memory, for replay and tests.
    Memory,
}

/// How a kernel device is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Device {
    /// The best that works: AF_XDP in the driver, AF_XDP behind it, AF_PACKET.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// AF_XDP, in the driver if it can.
    #[serde(rename = "af_xdp")]
    AfXdp,
    /// AF_XDP behind the driver.
    #[serde(rename = "af_xdp-generic")]
    AfXdpGeneric,
    /// AF_PACKET rings.
    #[serde(rename = "af_packet")]
    AfPacket,
}

/// What an impaired port does to its frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Impair {
    /// Delay in milliseconds.
    pub delay_ms: f64,
    /// Random addition to the delay, up to so many milliseconds.
    pub jitter_ms: f64,
    /// Part of the frames that is lost, 0 to 1.
    pub loss: f64,
    /// Part that comes twice, 0 to 1.
    pub duplicate: f64,
    /// Part that overtakes the others, 0 to 1.
    pub reorder: f64,
    /// Part in which one bit is flipped, 0 to 1.
    pub corrupt: f64,
    /// Seed of the random decisions: the same seed does the same again.
    pub seed: u64,
}
