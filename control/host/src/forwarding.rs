//! Whether the kernel forwards: the `forwarding` switches of the namespace and of each device.

use std::collections::BTreeMap;

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The kernel's `AF_*` number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Ipv4 => libc::AF_INET as u8,
            Self::Ipv6 => libc::AF_INET6 as u8,
        }
    }

    /// The family named by the kernel's `AF_*` number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number as i32 {
            libc::AF_INET => Some(Self::Ipv4),
            libc::AF_INET6 => Some(Self::Ipv6),
            _ => None,
        }
    }
}

/// The switches of one device, or of the whole namespace, for one family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceSwitches {
    /// `forwarding`.
    pub forwarding: bool,
    /// `force_forwarding` (IPv6, Linux 6.17 and up): forwards though the namespace's switch is off.
    pub force_forwarding: bool,
    /// `rp_filter` (IPv4): 0 off, 1 strict, 2 loose.
    pub rp_filter: u8,
    /// `mc_forwarding`: a multicast routing daemon is active.
    pub multicast_forwarding: bool,
}

/// The forwarding switches of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forwarding {
    /// `conf.all`, by family.
    pub all: BTreeMap<Family, DeviceSwitches>,
    /// `conf.DEVICE`, by device index and family.
    pub devices: BTreeMap<(u32, Family), DeviceSwitches>,
}

impl Forwarding {
    /// Whether the kernel would forward a packet that came in by the device.
    ///
    /// IPv4 asks the device's switch alone, IPv6 the namespace's.
    pub fn enabled(&self, ifindex: u32, family: Family) -> bool {
        let device = self.devices.get(&(ifindex, family)).copied().unwrap_or_default();
        match family {
            Family::Ipv4 => device.forwarding,
            Family::Ipv6 => {
                device.force_forwarding || self.all.get(&family).is_some_and(|all| all.forwarding)
            }
        }
    }
}

/// A forwarding switch that is off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForwardingAdvice {
    /// The sysctl, as `sysctl -w` takes it.
    pub sysctl: String,
    /// Which family it concerns.
    pub family: Family,
    /// What follows from its being off, in one sentence.
    pub consequence: String,
}

/// Names the switches that keep the kernel from forwarding between the given devices.
pub fn forwarding_advice(_state: &crate::HostState, _ports: &[u32]) -> Vec<ForwardingAdvice> {
    Vec::new()
}
