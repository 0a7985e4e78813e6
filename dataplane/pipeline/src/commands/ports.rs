//! Commands to the ports of a router.

use millrace_port::PortError;
use millrace_units::PortId;

use super::{DeviceReport, OpenDevice, ReplyTo};
use crate::driver_flows::Invalidation;
use crate::host_output::HostSettings;
use crate::ports::PortSettings;

/// Command to a port.
pub enum PortCommand {
    /// Adds a port or changes its settings.
    Set(PortId, PortSettings),
    /// Opens the device that takes the kernel's own output by a port.
    AddHostOutput(PortId, HostSettings, OpenDevice, ReplyTo<Result<DeviceReport, PortError>>),
    /// Changes the settings of that output.
    SetHostOutput(PortId, HostSettings),
    /// Closes that device after the worker has taken the packets that wait there.
    RemoveHostOutput(PortId, ReplyTo<()>),
}

impl PortCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // A flow record says who answers for a port, and which packets may come in by it.
            Self::Set(..) => Invalidation::Records,
            Self::AddHostOutput(..) | Self::SetHostOutput(..) | Self::RemoveHostOutput(..) => {
                Invalidation::Nothing
            }
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::SetHostOutput(..) => true,
            Self::Set(..) | Self::AddHostOutput(..) | Self::RemoveHostOutput(..) => false,
        }
    }
}
