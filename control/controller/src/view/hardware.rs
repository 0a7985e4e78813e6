//! Views of the machine as the router uses it: processors, ports, and the switches between them.

use schemars::JsonSchema;
use serde::Serialize;

/// Processors, ports and switches (*VERA*, section 2.1) that packets can pass.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HardwareView {
    /// Processors of the machine.
    pub cpus: Vec<CpuView>,
    /// Processors of the router, the highest level first. With `above` they form a tree whose leaves are the
    /// ports.
    pub processors: Vec<ProcessorView>,
    /// Ports.
    pub ports: Vec<HardwarePortView>,
    /// Switches between processors and ports.
    pub switches: Vec<SwitchView>,
}

/// Processor of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CpuView {
    /// Number of the processor in Linux.
    pub cpu: u32,
    /// Core of the processor. Processors with the same core in the same package share it.
    pub core: Option<u32>,
    /// Package of the processor.
    pub package: Option<u32>,
    /// Nearest NUMA node of the processor.
    pub node: Option<u32>,
}

/// Processor of the router, which processes packets at one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcessorView {
    /// Name of the processor: `host`, `worker 0`, `xdp r1`.
    pub name: String,
    /// Level of the processor: 0 offload, 1 worker, 2 host.
    pub level: u8,
    /// Processor that gets the packets that this one does not process; absent for the highest.
    pub above: Option<String>,
    /// Machine processors that may run it; empty where any processor that receives the packet does.
    pub cpus: String,
    /// Packets that it processes.
    pub treats: String,
    /// Reason why it processes no flows by itself; absent where it does.
    pub why_not: Option<String>,
}

/// Port, as hardware.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HardwarePortView {
    /// Name of the port.
    pub name: String,
    /// Processor that manages the port: packets that arrive at the port go there first.
    pub processor: String,
    /// Kernel device of the port, if there is one.
    pub device: Option<String>,
    /// Name of the device's driver, or the kind of the port.
    pub driver: String,
    /// Mode of XDP: `driver`, `generic` behind the driver, or `none`.
    pub xdp: &'static str,
    /// Path of packets to a worker: `zero-copy` and `copy` (AF_XDP), `ring` (AF_PACKET), `call`,
    /// `in-process`.
    pub sockets: &'static str,
    /// Reason why the port works in no better mode; empty in the best mode.
    pub why: String,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// Largest network packet in bytes.
    pub mtu: u32,
    /// Speed of the link in bits per second, as the driver reports it.
    pub speed: Option<u64>,
    /// Queueing discipline of the kernel at the port, if it is no plain queue: packets of the router bypass
    /// it.
    pub queueing_discipline: Option<String>,
    /// XDP features that the driver announces.
    pub features: Vec<&'static str>,
    /// Reason why the offload can redirect no packets to the port; absent where it can.
    pub why_no_redirects: Option<String>,
}

/// Path of packets between two processors, or from a processor to a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SwitchView {
    /// Name of the path: `driver redirect`, `socket rings`, `worker rings`, `batch sending`, `kernel
    /// hand-over`, `host output`.
    pub name: &'static str,
    /// Origin of the packets.
    pub from: String,
    /// Destination of the packets.
    pub to: String,
    /// Whether the path works at present.
    pub works: bool,
    /// Mode of the path, or the reason why it does not work.
    pub how: String,
}
