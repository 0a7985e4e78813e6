//! Commands to the ports of a router.

use millrace_port::PortError;
use millrace_units::PortId;

use super::{DeviceReport, OpenDevice, ReplyTo};
use crate::driver_flows::Invalidation;
use crate::ingress::host_output::HostSettings;
use crate::ports::PortSettings;

/// Command to a port.
pub enum PortCommand {
    /// Adds a port or changes its settings.
    Set(PortId, PortSettings),
    /// Opens the device that receives the host output of a port.
    AddHostOutput(PortId, HostSettings, OpenDevice, ReplyTo<Result<DeviceReport, PortError>>),
    /// Changes the settings of a port's host output.
    SetHostOutput(PortId, HostSettings),
    /// Closes the device of a port's host output, after the worker has taken the packets that wait there.
    RemoveHostOutput(PortId, ReplyTo<()>),
}

impl PortCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // Flow records depend on the stack and the input checks of a port.
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
