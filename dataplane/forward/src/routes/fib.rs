//! Forwarding information base (FIB): the route of a packet, by its destination.

mod routes;
mod shared;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::NextHops;
pub use shared::{FibChange, FibMemory, FibReader, SharedFib};

/// Route number, which flow records hold. Equal routes of several prefixes share a number, or each prefix has
/// its own number. A number is reused only after no prefix has the route any more.
pub use millrace_units::NextHopIndex as RouteIndex;

/// Treatment of packets to a prefix.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Route {
    /// Send to a next hop.
    Forward(NextHops),
    /// Deliver to the router itself.
    Local,
    /// Punt to the host's kernel, because only the kernel can handle the packet.
    Kernel,
    /// Broadcast address of a connected network.
    Broadcast,
    /// Drop silently.
    Blackhole,
    /// Drop, and answer "host unreachable".
    Unreachable,
    /// Drop, and answer "prohibited".
    Prohibit,
}

impl Route {
    /// Returns the name of the route's kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Forward(_) => "forward",
            Self::Local => "local",
            Self::Kernel => "kernel",
            Self::Broadcast => "broadcast",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        let Self::Forward(hops) = self else { return Ok(()) };
        let hops: Vec<_> = hops.iter().map(ToString::to_string).collect();
        write!(f, " {}", hops.join(", "))
    }
}

fn net4(bits: u32, length: u8) -> IpNet {
    Ipv4Net::new_assert(Ipv4Addr::from_bits(bits), length).into()
}

fn net6(bits: u128, length: u8) -> IpNet {
    Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), length).into()
}
