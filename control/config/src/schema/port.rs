//! Ports.

use std::path::PathBuf;

use ipnet::IpNet;
use millrace_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OnDeath;
use super::scheduler::Scheduler;
use crate::values::{InputWeight, Named, Text, VlanIds, is_default};

/// Port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// Name of the port.
    pub name: Named,
    /// Kernel device of the port. For kinds `device` (the default) and sub-interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Kind of the port. Default `device`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kind: PortKind,
    /// Driver that accesses the kernel device. Default `auto`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub driver: Device,
    /// VLAN id, or outer and inner id, of a sub-interface of `device` with addresses, ARP and ND of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanIds>,
    /// Addresses with the prefix length of their subnet; only for ports without a kernel device, and
    /// sub-interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub address: Vec<Text<IpNet>>,
    /// MAC address, for ports without a kernel device. Default: made from the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Text<MacAddr>>,
    /// Largest network packet in bytes, 68 to 65,535, for ports without a kernel device. Default 1,500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Treatment of the port's packets when the router dies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_death: Option<OnDeath>,
    /// File whose frames a `pcap` port receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
    /// File that a `pcap` port writes sent frames to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// Whether `input` is played as fast as it can be read instead of at the recorded times.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fast: bool,
    /// Impairment of the port, for tests and labs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impair: Option<Impair>,
    /// File that records all frames of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// Reverse path check: whether the route to a packet's source must use its incoming port. Default `off`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reverse_path: ReversePath,
    /// Maximum number of packets taken from the port per iteration, 1 to 256; under overload, ports are
    /// served in proportion to their weights. Default 256.
    #[schemars(with = "u16")]
    #[serde(default, skip_serializing_if = "is_default")]
    pub input_weight: InputWeight,
    /// Scheduler of the port. Default: none, packets are sent at once in FIFO order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
}

/// Mode of the reverse path check (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReversePath {
    /// No check.
    #[default]
    Off,
    /// The route to the source must use the port on which the packet arrived.
    Strict,
    /// A route to the source must exist.
    Loose,
}

/// Kind of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    /// Kernel device.
    #[default]
    Device,
    /// TAP device that the router creates.
    Tap,
    /// Capture files.
    Pcap,
    /// Memory, for replay and tests.
    Memory,
}

/// Driver that accesses a kernel device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Device {
    /// First that works of AF_XDP in native mode, AF_XDP in generic mode, AF_PACKET.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// AF_XDP, in native mode if the driver supports it.
    #[serde(rename = "af_xdp")]
    AfXdp,
    /// AF_XDP in generic mode.
    #[serde(rename = "af_xdp-generic")]
    AfXdpGeneric,
    /// AF_PACKET rings.
    #[serde(rename = "af_packet")]
    AfPacket,
}

/// Impairment of the frames of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Impair {
    /// Delay in milliseconds.
    pub delay_ms: f64,
    /// Maximum random deviation from the delay, in milliseconds.
    pub jitter_ms: f64,
    /// Share of frames that is lost, 0 to 1.
    pub loss: f64,
    /// Share of frames that is duplicated, 0 to 1.
    pub duplicate: f64,
    /// Share of frames that overtakes others, 0 to 1.
    pub reorder: f64,
    /// Share of frames in which one bit is flipped, 0 to 1.
    pub corrupt: f64,
    /// Seed of the random decisions: the same seed gives the same decisions.
    pub seed: u64,
}
