//! The machine as the router uses it: processors, ports, and the switches between them.

use schemars::JsonSchema;
use serde::Serialize;

/// Processors, ports and switches (*VERA*, section 2.1): what there is for packets to pass.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HardwareView {
    /// The machine's own processors.
    pub cpus: Vec<CpuView>,
    /// The router's processors, the highest level first: with `above` they are a tree, whose leaves are the ports.
    pub processors: Vec<ProcessorView>,
    /// The ports.
    pub ports: Vec<HardwarePortView>,
    /// By which ways packets get from one to the other.
    pub switches: Vec<SwitchView>,
}

/// A processor of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CpuView {
    /// Its number in Linux.
    pub cpu: u32,
    /// Its core: processors with the same one, in the same package, share it.
    pub core: Option<u32>,
    /// Its package.
    pub package: Option<u32>,
    /// The node of memory that is near to it.
    pub node: Option<u32>,
}

/// A processor of the router: a place where packets are treated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProcessorView {
    /// `host`, `worker 0`, `xdp r1`.
    pub name: String,
    /// 0 in the driver, 1 a worker, 2 the host.
    pub level: u8,
    /// The processor that gets what this one leaves to others; none for the highest.
    pub above: Option<String>,
    /// The processors of the machine that it may run on; empty where that is whichever receives the packet.
    pub cpus: String,
    /// What it treats.
    pub treats: String,
    /// Why it treats no flows by itself; none where it does.
    pub why_not: Option<String>,
}

/// A port, as hardware.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HardwarePortView {
    /// Its name.
    pub name: String,
    /// The processor that manages it: what comes in by it goes there first.
    pub processor: String,
    /// The kernel device, if there is one.
    pub device: Option<String>,
    /// The driver of that device, as it calls itself, or the kind of the port.
    pub driver: String,
    /// Where XDP runs: `driver`, `generic` behind it, or `none`.
    pub xdp: &'static str,
    /// How packets get to a worker: `zero-copy` and `copy` (AF_XDP), `ring` (AF_PACKET), `call`, `in-process`.
    pub sockets: &'static str,
    /// Why it works in no better mode; empty when it is the best.
    pub why: String,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// Largest network packet in bytes.
    pub mtu: u32,
    /// Bits per second of its link, as the driver says.
    pub speed: Option<u64>,
    /// The kernel's queueing discipline there, where that is no plain queue: no packet of the router passes it.
    pub queueing_discipline: Option<String>,
    /// XDP features that the driver announces.
    pub features: Vec<&'static str>,
    /// Why no packet can be redirected to it in the driver; none where that works.
    pub why_no_redirects: Option<String>,
}

/// A way between two processors, or from one to a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SwitchView {
    /// `driver redirect`, `socket rings`, `worker rings`, `batch sending`, `kernel hand-over`, `host output`.
    pub name: &'static str,
    /// Where packets come from.
    pub from: String,
    /// Where they get.
    pub to: String,
    /// Whether it works now.
    pub works: bool,
    /// How it works, or why it does not.
    pub how: String,
}
