//! How an AF_PACKET port is to be opened.

use std::os::fd::OwnedFd;

use millrace_wire::MacAddr;

use crate::PortError;

/// How an AF_PACKET port is to be opened.
#[derive(Debug)]
pub struct Options {
    /// The device's name, for messages.
    pub device: String,
    /// The device's index in the calling thread's network namespace.
    pub ifindex: u32,
    /// The device's MAC address.
    pub mac: MacAddr,
    /// The device's MTU: largest network-layer packet, in bytes.
    pub mtu: u16,
    /// Network-layer bytes of the segments that a super-frame (longer than the MTU) is cut into, at most. Default: the
    /// MTU; the smallest MTU of all ports spares the sender a detour by "packet too big".
    pub segment_mtu: u16,
    /// Frames that the receive ring holds: a power of two, 64 to 32,768. Default: 4,096, which takes 8 MiB at an MTU of
    /// 1,500. Rings that would take more than 64 MiB are made shorter.
    pub ring_size: u32,
    /// An eBPF socket filter: the port receives only what it accepts. Default: none, everything.
    pub filter: Option<OwnedFd>,
    /// Whether transport checksums that look partial are completed also where the kernel does not say that they are:
    /// see [`partial_checksum`](crate::partial_checksum). Those that it says so of are always completed. Default: yes.
    pub partial_checksums: bool,
}

impl Options {
    const MIN_RING: u32 = 64;
    const MAX_RING: u32 = 1 << 15;

    /// The defaults for a device.
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
