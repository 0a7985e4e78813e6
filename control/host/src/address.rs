//! Address of a device.

use std::net::IpAddr;

use ipnet::IpNet;

/// Address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Returns the kernel's `AF_*` number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Ipv4 => libc::AF_INET as u8,
            Self::Ipv6 => libc::AF_INET6 as u8,
        }
    }

    /// Returns the family of an address.
    pub const fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// Returns the family with the kernel's `AF_*` number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number as i32 {
            libc::AF_INET => Some(Self::Ipv4),
            libc::AF_INET6 => Some(Self::Ipv6),
            _ => None,
        }
    }
}

/// Address that the kernel has on a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostAddress {
    /// Index of the device.
    pub ifindex: u32,
    /// IP address.
    pub address: IpAddr,
    /// Length of the connected prefix, in bits.
    pub prefix_length: u8,
    /// Address of the other end of a point-to-point link; `None` for other links.
    pub peer: Option<IpAddr>,
    /// Whether duplicate address detection is unfinished or found a duplicate (IPv6).
    pub tentative: bool,
}

impl HostAddress {
    /// Returns the identity of the address: device, address and prefix length.
    pub(crate) fn key(&self) -> (u32, IpAddr, u8) {
        (self.ifindex, self.address, self.prefix_length)
    }

    /// Returns the address with its prefix length, host bits kept.
    pub fn net(&self) -> IpNet {
        IpNet::new_assert(self.address, self.prefix_length)
    }
}
