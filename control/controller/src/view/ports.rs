//! Views of ports and their neighbours.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// Port with its counters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortView {
    /// Name of the port.
    pub name: String,
    /// Kernel device of the port; absent if it has none.
    pub device: Option<String>,
    /// Driver of the port: `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`, `vlan`.
    pub driver: String,
    /// Mode of the driver: `zero-copy`, `native`, `generic`, `ring`, `call`, `in-process`.
    pub mode: String,
    /// Reason for the mode; empty if it is the best mode.
    pub why: String,
    /// State of the link: `up` or `down`.
    pub state: &'static str,
    /// MAC address of the port.
    pub mac: String,
    /// MTU of the port in bytes.
    pub mtu: u16,
    /// Addresses of the port.
    pub addresses: Vec<String>,
    /// Treatment of the port's packets after the router has died: `kernel` or `drop`. Absent without a kernel
    /// device.
    pub on_death: Option<&'static str>,
    /// Reverse-path check of packets from the port: `off`, `strict` or `loose`.
    pub reverse_path: &'static str,
    /// Queueing discipline of the kernel at the port, which the router's packets bypass; absent for a plain
    /// queue.
    pub queueing_discipline: Option<String>,
    /// Maximum number of packets that a worker takes from the port in an iteration.
    pub input_weight: u16,
    /// Weight of sending at the port inside core.
    pub output_weight: u16,
    /// Frames received, including frames that the kernel kept.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames sent by the router.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames received at the port that the offload forwarded.
    pub offloaded_packets: u64,
    /// Frames sent by batch sending instead of the worker's socket.
    pub batched_packets: u64,
    /// Frames that the device dropped on transmit, as counted by the kernel. Frames that the router gave to
    /// the device also count as sent.
    pub device_drops: u64,
    /// Frames received per second since the last request.
    pub rx_rate: f64,
    /// Frames sent per second since the last request.
    pub tx_rate: f64,
    /// Bits received per second since the last request.
    pub rx_bits: f64,
    /// Bits sent per second since the last request.
    pub tx_bits: f64,
    /// Frames passed to the kernel or to the router's own stack.
    pub to_host: u64,
    /// Frames held inside the port and its queue.
    pub held: u64,
    /// Frames dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// Neighbour.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NeighbourView {
    /// Port of the neighbour.
    pub port: String,
    /// IP address of the neighbour.
    pub address: String,
    /// MAC address of the neighbour; absent if it is unknown.
    pub mac: Option<String>,
    /// State of the neighbour, by the kernel's name. At a port without a kernel device: `known` or
    /// `incomplete`.
    pub state: String,
}
