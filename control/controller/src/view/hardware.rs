//! Views of the hardware model: processors, ports, and the switches between them.

use schemars::JsonSchema;
use serde::Serialize;

/// Model of the hardware: processors, ports and switches on the paths of packets (*VERA*, section 2.1).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HardwareView {
    /// Processors (CPUs) of the machine.
    pub cpus: Vec<CpuView>,
    /// Processors of the router, the highest level first. Their `above` fields form a tree, whose leaves are
    /// the ports.
    pub processors: Vec<ProcessorView>,
    /// Ports.
    pub ports: Vec<HardwarePortView>,
    /// Switches between processors and ports.
    pub switches: Vec<SwitchView>,
}

/// Processor (CPU) of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CpuView {
    /// Number of the processor in Linux.
    pub cpu: u32,
    /// Number of the core. Processors with the same package and core are hardware threads of one core.
    pub core: Option<u32>,
    /// Number of the package (socket).
    pub package: Option<u32>,
    /// Number of the NUMA node.
    pub node: Option<u32>,
}

/// Processor of the router: the part of the router that treats packets at one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcessorView {
    /// Name of the processor: `host`, `worker 0`, `xdp r1`.
    pub name: String,
    /// Level of the processor: 0 offload, 1 worker, 2 host.
    pub level: u8,
    /// Name of the processor to which this processor punts packets; absent for the highest one.
    pub above: Option<String>,
    /// CPUs on which the processor may run, such as `0-3`. Empty if it runs on the CPU that receives the
    /// packet.
    pub cpus: String,
    /// Description of the packets that the processor treats.
    pub treats: String,
    /// Reason why the processor treats no flows by itself; absent if it does.
    pub why_not: Option<String>,
}

/// Port of the router in the hardware model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HardwarePortView {
    /// Name of the port.
    pub name: String,
    /// Name of the processor that gets the port's packets first.
    pub processor: String,
    /// Kernel device of the port, if there is one.
    pub device: Option<String>,
    /// Name of the device's driver, or the kind of the port.
    pub driver: String,
    /// XDP mode: `native` (in the driver), `generic` (behind the driver), or `none`.
    pub xdp: &'static str,
    /// Transfer of packets to a worker: `zero-copy` or `copy` (AF_XDP), `ring` (AF_PACKET), `call` or
    /// `in-process`.
    pub sockets: &'static str,
    /// Reason for the mode; empty if it is the best mode.
    pub why: String,
    /// Number of receive queues in use.
    pub rx_queues: u32,
    /// Number of transmit queues in use.
    pub tx_queues: u32,
    /// MTU of the port in bytes.
    pub mtu: u32,
    /// Link speed in bits per second, as the driver reports it; absent if it doesn't.
    pub speed: Option<u64>,
    /// Queueing discipline of the kernel at the port, which the router's packets bypass; absent for a plain
    /// queue.
    pub queueing_discipline: Option<String>,
    /// Names of the XDP features that the driver announces.
    pub features: Vec<&'static str>,
    /// Reason why the offload can't redirect packets to the port; absent if it can.
    pub why_no_redirects: Option<String>,
}

/// Switch: connection that carries packets between two processors, or from a processor to a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SwitchView {
    /// Name of the switch: `XDP redirect`, `socket rings`, `worker rings`, `batch sending`, `kernel
    /// hand-over` or `host output`.
    pub name: &'static str,
    /// Name of the processor from which packets come.
    pub from: String,
    /// Name of the processor or port to which packets go.
    pub to: String,
    /// Whether the switch works at present.
    pub works: bool,
    /// Mode of the switch, or the reason why it does not work.
    pub how: String,
}
