//! Ports.

use std::path::PathBuf;

use ipnet::IpNet;
use millrace_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OnDeath;
use super::scheduler::Scheduler;
use crate::values::{InputWeight, Named, OutputWeight, Text, VlanIds, is_default};

/// Port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// Name of the port.
    pub name: Named,
    /// Kernel device of the port. Only for ports of kind `device` (the default) and sub-interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Kind of the port. Default `device`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kind: PortKind,
    /// Driver that accesses the kernel device. Default `auto`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub driver: Device,
    /// VLAN id of a sub-interface of `device`, or outer and inner VLAN id. The sub-interface has its own
    /// addresses, ARP and neighbour discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanIds>,
    /// Addresses with the prefix length of their subnet. Only for ports without a kernel device, and for
    /// sub-interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub address: Vec<Text<IpNet>>,
    /// MAC address of a port without a kernel device. Default: derived from the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Text<MacAddr>>,
    /// MTU in bytes of a port without a kernel device, 68 to 65,535. Default 1,500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Treatment of the port's packets after the router has died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_death: Option<OnDeath>,
    /// Capture file whose frames a `pcap` port receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
    /// Capture file to which a `pcap` port writes the frames that it sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// Whether to play `input` as fast as possible, instead of at the recorded times.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fast: bool,
    /// Impairment of the port's frames, for tests and labs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impair: Option<Impair>,
    /// File that records all frames received and sent by the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// Reverse-path check: whether a packet's source address must have a route, or a route that leads to this
    /// port. Default `off`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reverse_path: ReversePath,
    /// Maximum number of packets that a worker takes from the port in an iteration, 1 to 256. Under overload,
    /// the worker serves its ports in proportion to these numbers. Default 256.
    #[schemars(with = "u16")]
    #[serde(default, skip_serializing_if = "is_default")]
    pub input_weight: InputWeight,
    /// Weight of sending at the port inside core with `core = "share-by-function"`, 1 to 256. Default 256.
    #[schemars(with = "u16")]
    #[serde(default, skip_serializing_if = "is_default")]
    pub output_weight: OutputWeight,
    /// Scheduler of the port. Default: none; the port sends packets at once, in FIFO order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
}

/// Mode of the reverse-path check (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReversePath {
    /// No check.
    #[default]
    Off,
    /// The route to the source must lead to the port at which the packet arrived.
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
    /// Capture files in pcap or pcapng format.
    Pcap,
    /// Memory, for replay and tests.
    Memory,
}

/// Driver that accesses a kernel device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Device {
    /// The first of these that works: AF_XDP in native mode, AF_XDP in generic mode, AF_PACKET.
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
    /// Share of frames that are lost, 0 to 1.
    pub loss: f64,
    /// Share of frames that are duplicated, 0 to 1.
    pub duplicate: f64,
    /// Share of frames that overtake others, 0 to 1.
    pub reorder: f64,
    /// Share of frames in which one bit is flipped, 0 to 1.
    pub corrupt: f64,
    /// Seed of the random decisions. The same seed leads to the same decisions.
    pub seed: u64,
}
