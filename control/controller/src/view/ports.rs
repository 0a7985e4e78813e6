//! Ports, and their neighbours.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// A port and its counters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortView {
    /// Its name.
    pub name: String,
    /// The kernel device below, if there is one.
    pub device: Option<String>,
    /// `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`, `vlan`.
    pub driver: String,
    /// How the driver works here: `zero-copy`, `native`, `generic`, `ring`, `call`, `in-process`.
    pub mode: String,
    /// Why it works in no better mode; empty when it is the best.
    pub why: String,
    /// `up` or `down`.
    pub state: &'static str,
    /// Its MAC address.
    pub mac: String,
    /// Largest network packet in bytes.
    pub mtu: u16,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// `kernel` or `drop`: what happens to its packets when the router has died.
    pub on_death: Option<&'static str>,
    /// `off`, `strict` or `loose`: whether the way back to a packet's source is looked at.
    pub reverse_path: &'static str,
    /// The kernel's queueing discipline there, where that is no plain queue: no packet of the router passes it.
    pub queueing_discipline: Option<String>,
    /// Packets that are taken from it in a round, at most.
    pub input_weight: u16,
    /// Frames received, those that the kernel kept included.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames sent by the router.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Of the frames received, those that the driver forwarded by itself.
    pub driver_packets: u64,
    /// Of the frames sent, those that a worker sent in batches, past its socket.
    pub batched_packets: u64,
    /// Frames that the device did not send although it was given them, by the router, where they count as sent, or the kernel; as the kernel counts.
    pub device_drops: u64,
    /// Frames received per second since the last look.
    pub rx_rate: f64,
    /// Frames sent per second since the last look.
    pub tx_rate: f64,
    /// Bits received per second since the last look.
    pub rx_bits: f64,
    /// Bits sent per second since the last look.
    pub tx_bits: f64,
    /// Frames that the kernel or the router's own stack got.
    pub to_host: u64,
    /// Frames that wait inside the port and its queue.
    pub held: u64,
    /// Frames dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// A neighbour.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NeighbourView {
    /// The port it is behind.
    pub port: String,
    /// Its address.
    pub address: String,
    /// Its MAC address, if known.
    pub mac: Option<String>,
    /// The state: the kernel's word for it, or `own`.
    pub state: String,
}
