//! Commands to the devices of a worker.

use millrace_packet::Pool;
use millrace_port::{Port, PortError};

use super::ReplyTo;
use crate::offloaded_flows::Invalidation;
use crate::ports::DeviceId;
use crate::punt::host_path::HostPath;

/// Function that opens a device, on the worker's thread and with its packet memory.
pub type OpenDevice = Box<dyn FnOnce(&Pool) -> Result<OpenedDevice, PortError> + Send>;

/// Opened device, with the sockets that control needs.
pub struct OpenedDevice {
    /// Device.
    pub port: Box<dyn Port>,
    /// AF_XDP sockets for the map of the XDP program: receive queue and file descriptor of each.
    pub sockets: Vec<(u32, i32)>,
}

impl OpenedDevice {
    /// Returns the report for control.
    pub(crate) fn report(&self) -> DeviceReport {
        DeviceReport { capabilities: self.port.capabilities().clone(), sockets: self.sockets.clone() }
    }
}

/// Report of a worker on a device that it opened.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Kind and capabilities of the device.
    pub capabilities: millrace_port::Capabilities,
    /// AF_XDP sockets for the map of the XDP program: receive queue and file descriptor of each.
    pub sockets: Vec<(u32, i32)>,
}

/// Command to the devices of a worker.
pub enum DeviceCommand {
    /// Opens a device under this id.
    Add(DeviceId, OpenDevice, ReplyTo<Result<DeviceReport, PortError>>),
    /// Closes a device; the worker drops packets that wait for it.
    Remove(DeviceId, ReplyTo<()>),
    /// Sets the path by which packets are punted to the kernel.
    SetHostPath(Box<dyn HostPath + Send>),
}

impl DeviceCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // Upcalls in the device are lost with it, so no count shows when its flows may be offloaded
            // again.
            Self::Remove(..) => Invalidation::Entries,
            Self::Add(..) | Self::SetHostPath(_) => Invalidation::Nothing,
        }
    }
}
