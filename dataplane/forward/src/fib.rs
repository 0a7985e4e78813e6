//! The forwarding information base: what to do with a packet, by its destination.

mod routes;
mod shared;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::NextHops;
pub use shared::{FibChange, FibMemory, FibReader, SharedFib};

/// The number of a route. Flow records keep it: the same route to many prefixes has one number, or each of them has one of its
/// own. A number is used again once no prefix has the route any more.
pub use millrace_units::NextHopIndex as RouteIndex;

/// What to do with packets to a prefix.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Route {
    /// Send to a next hop.
    Forward(NextHops),
    /// Addressed to the router itself.
    Local,
    /// Only the host's kernel can do it.
    Kernel,
    /// A broadcast address of a connected network.
    Broadcast,
    /// Drop silently.
    Blackhole,
    /// Drop, and answer that the host can't be reached.
    Unreachable,
    /// Drop, and answer that it is prohibited.
    Prohibit,
}

impl Route {
    /// The name of its kind.
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
