//! Device and port numbers.

use millrace_pipeline::DeviceId;
use millrace_units::PortId;

/// Device and its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub device: DeviceId,
    pub port: PortId,
}

impl Place {
    pub const fn numbered(number: u16) -> Self {
        Self { device: DeviceId(number), port: PortId(number) }
    }
}
