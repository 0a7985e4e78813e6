//! An address of a device.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

/// An address the kernel has on a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostAddress {
    /// The device.
    pub ifindex: u32,
    /// The address itself.
    pub address: IpAddr,
    /// Length of the connected prefix, in bits.
    pub prefix_length: u8,
    /// The far address of a point-to-point link.
    pub peer: Option<IpAddr>,
    /// The directed broadcast address, where one was set.
    pub broadcast: Option<Ipv4Addr>,
    /// The kernel's scope: 0 universe, 253 link, 254 host.
    pub scope: u8,
    /// IPv6: duplicate address detection is not finished, or it found a duplicate.
    pub tentative: bool,
}

impl HostAddress {
    /// The address with its prefix length, host bits kept.
    pub fn net(&self) -> IpNet {
        IpNet::new_assert(self.address, self.prefix_length)
    }
}
