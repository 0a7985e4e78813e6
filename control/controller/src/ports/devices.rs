//! Devices of the ports.

use std::collections::HashMap;

use millrace_pipeline::DeviceId;
use millrace_port::Capabilities;
use millrace_units::PortId;

use crate::follow::host_output::HostOutput;
use crate::ports::device::KernelDevice;
use crate::routes::PortsByDevice;

/// Devices of all ports.
#[derive(Default)]
pub(crate) struct Devices {
    /// Kernel devices, by port.
    pub kernel: HashMap<PortId, KernelDevice>,
    /// Host outputs that catch the kernel's own packets, by egress port.
    pub host_outputs: HashMap<PortId, HostOutput>,
    /// Capabilities of devices.
    pub capabilities: HashMap<DeviceId, Capabilities>,
}

impl Devices {
    /// Returns the ports by the indexes of their kernel devices.
    pub fn by_index(&self) -> PortsByDevice {
        self.kernel.iter().map(|(port, device)| (device.ifindex, *port)).collect()
    }
}
