//! Commands to the devices of a worker.

use millrace_packet::Pool;
use millrace_port::{Port, PortError};

use super::ReplyTo;
use crate::offloaded_flows::Invalidation;
use crate::ports::DeviceId;
use crate::punt::host_path::HostPath;

/// Function that opens a device. The worker calls it on its own thread, with its packet memory.
pub type OpenDevice = Box<dyn FnOnce(&Pool) -> Result<OpenedDevice, PortError> + Send>;

/// Opened device, with the AF_XDP sockets that control enters into the map of the XDP program.
pub struct OpenedDevice {
    /// Device.
    pub port: Box<dyn Port>,
    /// Receive queue and file descriptor of each AF_XDP socket, for the map of the XDP program.
    pub sockets: Vec<(u32, i32)>,
}

impl OpenedDevice {
    /// Returns the device's report for control.
    pub(crate) fn report(&self) -> DeviceReport {
        DeviceReport { capabilities: self.port.capabilities().clone(), sockets: self.sockets.clone() }
    }
}

/// Report to control about a device that a worker has opened.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Kind and capabilities of the device.
    pub capabilities: millrace_port::Capabilities,
    /// Receive queue and file descriptor of each AF_XDP socket, for the map of the XDP program.
    pub sockets: Vec<(u32, i32)>,
}

/// Command to the devices of a worker.
pub enum DeviceCommand {
    /// Opens a device under the given id.
    Add(DeviceId, OpenDevice, ReplyTo<Result<DeviceReport, PortError>>),
    /// Closes a device; the worker drops packets that wait for it.
    Remove(DeviceId, ReplyTo<()>),
    /// Sets the path by which packets are punted to the kernel.
    SetHostPath(Box<dyn HostPath + Send>),
}

impl DeviceCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // The upcalls that wait in the device are lost. So the upcall counts would never show that the
            // flows' earlier packets have left, and all entries end instead.
            Self::Remove(..) => Invalidation::Entries,
            Self::Add(..) | Self::SetHostPath(_) => Invalidation::Nothing,
        }
    }
}
