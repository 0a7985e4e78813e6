//! Options of an AF_PACKET port.

use std::os::fd::OwnedFd;

use millrace_wire::MacAddr;

use crate::PortError;

/// Options of an AF_PACKET port.
#[derive(Debug)]
pub struct Options {
    /// Name of the device, for messages.
    pub device: String,
    /// Index of the device in the calling thread's network namespace.
    pub ifindex: u32,
    /// MAC address of the device.
    pub mac: MacAddr,
    /// MTU of the device: largest network-layer packet, in bytes.
    pub mtu: u16,
    /// Maximum length of the segments of a GSO packet (a frame longer than the MTU), in network-layer bytes.
    /// Default: the MTU. If this is the smallest MTU of all ports, senders get no "packet too big" errors.
    pub segment_mtu: u16,
    /// Number of frames in the receive ring: a power of two, 64 to 32,768. Default: 4,096, which takes 8 MiB
    /// at an MTU of 1,500. Rings that would take more than 64 MiB are shortened.
    pub ring_size: u32,
    /// eBPF socket filter. The port receives only frames that the filter accepts. Default: no filter, so all
    /// frames.
    pub filter: Option<OwnedFd>,
    /// Whether the port completes transport checksums that look partial although the kernel doesn't report
    /// them as partial: see [`partial_checksum`](crate::partial_checksum). Checksums that the kernel reports
    /// as partial are always completed. Default: yes.
    pub partial_checksums: bool,
}

impl Options {
    const MIN_RING: u32 = 64;
    const MAX_RING: u32 = 1 << 15;

    /// Returns the default options for a device.
    pub fn new(device: impl Into<String>, ifindex: u32, mac: MacAddr, mtu: u16) -> Self {
        Self {
            device: device.into(),
            ifindex,
            mac,
            mtu,
            segment_mtu: mtu,
            ring_size: 4096,
            filter: None,
            partial_checksums: true,
        }
    }

    pub(super) fn check(&self) -> Result<(), PortError> {
        let (size, min, max) = (self.ring_size, Self::MIN_RING, Self::MAX_RING);
        if size.is_power_of_two() && (min..=max).contains(&size) {
            return Ok(());
        }
        Err(PortError::RingSize { device: self.device.clone(), ring: "receive", size, min, max })
    }
}
