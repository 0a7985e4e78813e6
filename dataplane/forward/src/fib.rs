//! The forwarding information base: what to do with a packet, by its destination.

mod routes;
mod shared;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{NextHops, RouteTable};
use routes::Routes;
pub use shared::{FibChange, FibMemory, FibReader, SharedFib};

/// The number of a route. Flow records keep it: the same route to many prefixes has one number. A number is used
/// again once no prefix has the route any more.
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

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Forward(hops) => {
                let hops: Vec<_> = hops.iter().map(ToString::to_string).collect();
                return write!(f, "forward {}", hops.join(", "));
            }
            Self::Local => "local",
            Self::Kernel => "kernel",
            Self::Broadcast => "broadcast",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        };
        f.write_str(name)
    }
}

/// Routes of both families. Belongs to one worker, which changes it between two batches.
#[derive(Debug, Default)]
pub struct Fib {
    v4: RouteTable<u32>,
    v6: RouteTable<u128>,
    routes: Routes,
}

impl Fib {
    /// Without routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the route to `prefix`, whose host bits don't count. Returns the one it replaces.
    pub fn insert(&mut self, prefix: IpNet, route: Route) -> Option<Route> {
        let (number, _) = self.routes.number(route);
        self.routes.acquire(number);
        let old = match prefix {
            IpNet::V4(net) => self.v4.insert(net.network().to_bits(), net.prefix_len(), number),
            IpNet::V6(net) => self.v6.insert(net.network().to_bits(), net.prefix_len(), number),
        };
        old.map(|number| self.release(number))
    }

    /// Removes the route to exactly `prefix` and returns it.
    pub fn remove(&mut self, prefix: IpNet) -> Option<Route> {
        let number = match prefix {
            IpNet::V4(net) => self.v4.remove(net.network().to_bits(), net.prefix_len()),
            IpNet::V6(net) => self.v6.remove(net.network().to_bits(), net.prefix_len()),
        }?;
        Some(self.release(number))
    }

    fn release(&mut self, number: u32) -> Route {
        let route = self.routes.release(number);
        let epoch = self.routes.close_epoch();
        self.routes.quiesced(epoch);
        route
    }

    /// The route to exactly `prefix`.
    pub fn get(&self, prefix: IpNet) -> Option<&Route> {
        let number = match prefix {
            IpNet::V4(net) => self.v4.get(net.network().to_bits(), net.prefix_len()),
            IpNet::V6(net) => self.v6.get(net.network().to_bits(), net.prefix_len()),
        }?;
        Some(self.route(RouteIndex(number)))
    }

    /// The number of the route with the longest prefix of `destination`.
    #[inline]
    pub fn lookup4(&self, destination: Ipv4Addr) -> Option<RouteIndex> {
        self.v4.lookup(destination.to_bits()).map(RouteIndex)
    }

    /// The number of the route with the longest prefix of `destination`.
    #[inline]
    pub fn lookup6(&self, destination: Ipv6Addr) -> Option<RouteIndex> {
        self.v6.lookup(destination.to_bits()).map(RouteIndex)
    }

    /// The number of the route with the longest prefix of `destination`.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<RouteIndex> {
        match destination {
            IpAddr::V4(address) => self.lookup4(address),
            IpAddr::V6(address) => self.lookup6(address),
        }
    }

    /// The route of that number.
    ///
    /// # Panics
    /// When no lookup ever returned the number.
    #[inline]
    pub fn route(&self, index: RouteIndex) -> &Route {
        self.routes.route(index.0)
    }

    /// The longest prefix of `destination` that has a route, and the route: for explanations.
    pub fn prefix_of(&self, destination: IpAddr) -> Option<(IpNet, &Route)> {
        let (prefix, number) = match destination {
            IpAddr::V4(address) => {
                let (bits, length, number) = self.v4.lookup_prefix(address.to_bits())?;
                (net4(bits, length), number)
            }
            IpAddr::V6(address) => {
                let (bits, length, number) = self.v6.lookup_prefix(address.to_bits())?;
                (net6(bits, length), number)
            }
        };
        Some((prefix, self.route(RouteIndex(number))))
    }

    /// All routes: IPv4 first, by address, then shorter prefixes first.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, &Route)> {
        let v4 = self.v4.iter().map(|(bits, length, number)| (net4(bits, length), number));
        let v6 = self.v6.iter().map(|(bits, length, number)| (net6(bits, length), number));
        v4.chain(v6).map(|(prefix, number)| (prefix, self.route(RouteIndex(number))))
    }

    /// How many prefixes have a route.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many different routes there are.
    pub fn distinct(&self) -> usize {
        self.routes.len()
    }
}

fn net4(bits: u32, length: u8) -> IpNet {
    Ipv4Net::new_assert(Ipv4Addr::from_bits(bits), length).into()
}

fn net6(bits: u128, length: u8) -> IpNet {
    Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), length).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NextHop;
    use millrace_units::PortId;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn via(gateway: &str) -> Route {
        Route::Forward(NextHops::single(NextHop::new(PortId(1), Some(gateway.parse().unwrap()))))
    }

    #[test]
    fn many_prefixes_share_one_route_and_its_number_returns() {
        let mut fib = Fib::new();
        for third in 0..200u8 {
            fib.insert(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, third, 0), 24).into(), via("10.9.0.1"));
        }
        assert_eq!((fib.len(), fib.distinct()), (200, 1));
        let index = fib.lookup4(Ipv4Addr::new(10, 0, 7, 7)).unwrap();
        assert_eq!(fib.lookup4(Ipv4Addr::new(10, 0, 8, 8)), Some(index));
        for third in 0..200u8 {
            let prefix = Ipv4Net::new_assert(Ipv4Addr::new(10, 0, third, 0), 24).into();
            assert_eq!(fib.remove(prefix), Some(via("10.9.0.1")));
        }
        assert_eq!((fib.len(), fib.distinct()), (0, 0));
        fib.insert(net("0.0.0.0/0"), Route::Blackhole);
        assert_eq!(fib.lookup4(Ipv4Addr::LOCALHOST), Some(index), "the number is used again");
    }

    /// FW-01: nested prefixes, each added and removed.
    #[test]
    fn the_longest_prefix_wins_at_each_step() {
        let mut fib = Fib::new();
        let nested =
            ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.128/25", "10.1.1.129/32"];
        let address = IpAddr::from([10, 1, 1, 129]);
        for (number, prefix) in nested.iter().enumerate() {
            assert_eq!(fib.insert(net(prefix), via(&format!("10.9.0.{number}"))), None);
            assert_eq!(fib.prefix_of(address), Some((net(prefix), &via(&format!("10.9.0.{number}")))));
        }
        for (number, prefix) in nested.iter().enumerate().rev() {
            assert_eq!(fib.prefix_of(address).unwrap().0, net(prefix));
            assert_eq!(fib.remove(net(prefix)), Some(via(&format!("10.9.0.{number}"))));
        }
        assert_eq!(fib.prefix_of(address), None);
    }

    #[test]
    fn replacing_returns_the_old_route() {
        let mut fib = Fib::new();
        assert_eq!(fib.insert(net("2001:db8::/32"), Route::Local), None);
        assert_eq!(fib.insert(net("2001:db8::5/32"), Route::Prohibit), Some(Route::Local));
        assert_eq!(fib.get(net("2001:db8::/32")), Some(&Route::Prohibit));
        assert_eq!((fib.len(), fib.distinct()), (1, 1));
    }

    #[test]
    fn iteration_is_by_address_and_length() {
        let mut fib = Fib::new();
        let ordered =
            ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "10.0.0.128/25", "11.0.0.0/8", "::/0", "fe80::/10"];
        for prefix in ordered.iter().rev() {
            fib.insert(net(prefix), Route::Blackhole);
        }
        let found: Vec<_> = fib.iter().map(|(prefix, _)| prefix.to_string()).collect();
        assert_eq!(found, ordered);
    }
}
