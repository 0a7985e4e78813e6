//! The express way without a flow table: where no filter is bound, the route to its destination alone says how a plain packet
//! leaves, and a route by one gateway says the same for all of them.
//!
//! What the general way checks of a packet's addresses is passed over where it could object to nothing; a packet of which
//! that can't be told at a glance, or whose route leads to no adjacency, takes the general way, which also finds
//! out what adjacency a route leads to. A number is void once something has changed that the adjacency depends on, and forgotten when
//! the number of the route gets another meaning.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::FixedState;
use millrace_forward::{AdjacencyTable, Exit, NO_ADJACENCY, Route, is_ordinary4, is_ordinary6};
use millrace_packet::{BATCH_SIZE, Exceptions, Family};
use millrace_plugin::EMPTY_PATH;
use millrace_units::{Amount, NextHopIndex, PortId};

use crate::accounts::ROUTES;
use crate::ahead::Addresses;
use crate::parse::ROUTER;
use crate::ports::{PortTable, ReversePath};
use crate::route::NO_ROUTE;
use crate::router::Router;
use crate::work::{Alike, Fate, Work};

/// The router's own addresses, to which no packet may pretend to belong.
#[derive(Debug)]
pub(crate) struct OwnAddresses {
    addresses: HashSet<IpAddr, FixedState>,
    /// A bit for each hash of an address that is there (Bloom, 1970, with one hash).
    marks: u64,
}

impl OwnAddresses {
    pub fn new(seed: u64) -> Self {
        Self { addresses: HashSet::with_hasher(FixedState::with_seed(seed)), marks: 0 }
    }

    pub fn insert(&mut self, address: IpAddr) {
        self.addresses.insert(address);
        self.marks |= mark(address);
    }

    pub fn remove(&mut self, address: &IpAddr) {
        if self.addresses.remove(address) {
            self.marks = self.addresses.iter().fold(0, |marks, address| marks | mark(*address));
        }
    }

    #[inline]
    pub fn contains(&self, address: &IpAddr) -> bool {
        match *address {
            IpAddr::V4(address) => self.contains4(address),
            IpAddr::V6(address) => self.contains6(address),
        }
    }

    /// The same for IPv4.
    #[inline(always)]
    pub fn contains4(&self, address: Ipv4Addr) -> bool {
        self.is_marked(word4(address)) && self.is_there(address.into())
    }

    /// The same for IPv6.
    #[inline(always)]
    pub fn contains6(&self, address: Ipv6Addr) -> bool {
        self.is_marked(word6(address)) && self.is_there(address.into())
    }

    /// Whether an address of that word may be there.
    #[inline(always)]
    fn is_marked(&self, word: u64) -> bool {
        self.marks >> bit_of(word) & 1 != 0
    }

    #[cold]
    #[inline(never)]
    fn is_there(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }
}

/// One bit of 64, that depends on the address.
fn mark(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => 1 << bit_of(word4(address)),
        IpAddr::V6(address) => 1 << bit_of(word6(address)),
    }
}

#[inline(always)]
fn word4(address: Ipv4Addr) -> u64 {
    u32::from_ne_bytes(address.octets()).into()
}

#[inline(always)]
fn word6(address: Ipv6Addr) -> u64 {
    let bits = u128::from_ne_bytes(address.octets());
    bits as u64 ^ (bits >> 64) as u64
}

/// Hashes an address word to a bit index, 0 to 63.
#[inline(always)]
fn bit_of(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

/// How packets leave by routes, and what a batch looks up.
#[derive(Debug)]
pub(crate) struct Bare {
    /// Numbers of adjacencies, IPv4 and IPv6, by the numbers of routes.
    adjacencies: Vec<[u32; 2]>,
    v4: Addresses<Ipv4Addr>,
    v6: Addresses<Ipv6Addr>,
}

impl Default for Bare {
    fn default() -> Self {
        Self {
            adjacencies: Vec::with_capacity(ROUTES as usize),
            v4: Addresses::new(Ipv4Addr::UNSPECIFIED),
            v6: Addresses::new(Ipv6Addr::UNSPECIFIED),
        }
    }
}

impl Bare {
    /// The number of a route gets another meaning.
    pub fn forget(&mut self, route: NextHopIndex) {
        if let Some(numbers) = self.adjacencies.get_mut(route.index()) {
            *numbers = [NO_ADJACENCY; 2];
        }
    }

    /// All of them do, or numbers of adjacencies begin anew.
    pub fn forget_all(&mut self) {
        self.adjacencies.clear();
    }

    fn note(&mut self, route: NextHopIndex, family: Family, number: u32) {
        if route.0 >= ROUTES {
            return;
        }
        if self.adjacencies.len() <= route.index() {
            self.adjacencies.resize(route.index() + 1, [NO_ADJACENCY; 2]);
        }
        self.adjacencies[route.index()][place(family)] = number;
    }
}

#[inline(always)]
fn place(family: Family) -> usize {
    usize::from(family == Family::V6)
}

/// Whose packets a port takes without a look at where they come from.
#[derive(Clone, Copy)]
struct Arrival {
    port: PortId,
    v4: bool,
    v6: bool,
}

impl Arrival {
    fn at(ports: &PortTable, port: PortId) -> Self {
        let entry = ports.get(port).filter(|entry| entry.settings.reverse_path == ReversePath::Off);
        let forwards = |family| entry.is_some_and(|entry| entry.forwards(family));
        Self { port, v4: forwards(Family::V4), v6: forwards(Family::V6) }
    }
}

impl Router {
    /// Makes the plain packets of a batch ready to leave that their destination says all of; whether those were all.
    pub(crate) fn leave_bare(&mut self, work: &mut Work) -> bool {
        if self.gates.is_bound() {
            return false;
        }
        let is_plain = work.alike == Alike::Plain4 && work.aside == 0 && self.ask_all4(work);
        if !is_plain {
            self.ask_bare(work);
        }
        work.leaving.begin();
        let Self { bare: Bare { v4, v6, adjacencies: numbers }, fib, adjacencies, .. } = self;
        v4.look_up(|addresses, numbers| fib.lookup4_batch(addresses, numbers));
        if is_plain {
            return send_all4(v4.all_found(), (numbers, adjacencies), work) == work.packets.len();
        }
        v6.look_up(|addresses, numbers| fib.lookup6_batch(addresses, numbers));
        let sent = send::<false>(v4.found(), Family::V4, (numbers, adjacencies), work)
            + send::<false>(v6.found(), Family::V6, (numbers, adjacencies), work);
        sent + work.aside == work.packets.len()
    }

    /// Asks for the routes of all packets of a batch that came in by one port as [plain ones](Alike::Plain4), if nothing else can be said
    /// of any; whether so.
    #[inline]
    fn ask_all4(&mut self, work: &Work) -> bool {
        let Self { bare, ports, own_addresses, .. } = self;
        let count = work.packets.len().min(BATCH_SIZE);
        let arrival = work.packets.first().map(|packet| Arrival::at(ports, packet.port));
        let mut is_said = arrival.is_some_and(|arrival| arrival.v4);
        bare.v4.ask_all(work.nears[..count].iter().map(|near| {
            let (source, destination) = near.addresses4();
            is_said &= is_ordinary4(source) & is_ordinary4(destination) && !own_addresses.contains4(source);
            destination
        }));
        is_said
    }

    /// Asks for the routes of packets that nothing else can be said of.
    #[inline]
    fn ask_bare(&mut self, work: &Work) {
        let Self { bare, ports, own_addresses, .. } = self;
        bare.v4.clear();
        bare.v6.clear();
        let mut arrival = Arrival { port: ROUTER, v4: false, v6: false };
        for (index, packet) in (0..BATCH_SIZE as u16).zip(work.packets.iter()) {
            let place = usize::from(index);
            if !work.fates[place].is_open() || packet.exceptions != Exceptions::NONE {
                continue;
            }
            if packet.port != arrival.port {
                arrival = Arrival::at(ports, packet.port);
            }
            let near = work.nears[place];
            if near.is_v4() {
                let (source, destination) = near.addresses4();
                let is_ordinary = arrival.v4 && is_ordinary4(source) && is_ordinary4(destination);
                if is_ordinary && !own_addresses.contains4(source) {
                    bare.v4.push(index, destination);
                }
            } else if let (IpAddr::V6(source), IpAddr::V6(destination)) =
                (work.keys[place].source(), work.keys[place].destination())
            {
                let is_ordinary = arrival.v6 && is_ordinary6(source) && is_ordinary6(destination);
                if is_ordinary && !own_addresses.contains6(source) {
                    bare.v6.push(index, destination);
                }
            }
        }
    }

    /// Notes with a route how a packet left by it, if all others to its gateway leave alike.
    pub(crate) fn note_bare(&mut self, route: NextHopIndex, family: Family, number: u32) {
        if !self.classifier.remembers()
            && let Route::Forward(hops) = self.fib.route(route)
            && hops.len() == 1
            && hops.iter().all(|hop| hop.gateway.is_some())
        {
            self.bare.note(route, family, number);
        }
    }
}

/// Makes those packets of a family ready to leave whose routes lead to adjacencies; how many. Of [`PLAIN`](Alike::Plain) ones nothing is
/// looked at again.
#[inline(always)]
fn send<const PLAIN: bool>(
    found: impl Iterator<Item = (usize, Option<NextHopIndex>)>,
    family: Family,
    (numbers, adjacencies): (&[[u32; 2]], &mut AdjacencyTable),
    work: &mut Work,
) -> usize {
    let (mut sent, mut amount) = (0, Amount::default());
    // The route that the last packet has left by, with what the next ones need of its adjacency.
    let (mut last, mut port, mut exit) = (NO_ROUTE, PortId::NONE, Exit::NONE);
    let Work { packets, fates, leaving, .. } = work;
    let count = packets.len().min(BATCH_SIZE);
    let (packets, fates) = (&mut packets[..count], &mut fates[..count]);
    for (index, route) in found {
        let Some(route) = route else { continue };
        let packet = &mut packets[index];
        if route == last
            && packet.port != port
            && let Some(start) = if PLAIN { exit.start_plain(packet) } else { exit.start(packet) }
        {
            (start.annotations.next_hop, start.annotations.out_port) = (route, port);
            exit.rewrite(start.bytes);
            amount += Amount::packet(start.length);
        } else {
            let Some(numbers) = numbers.get(route.index()) else { continue };
            let Some(adjacency) = adjacencies.get_mut(numbers[place(family)]) else { continue };
            if adjacency.port == packet.port || !adjacency.takes(packet) {
                continue;
            }
            adjacency.rewrite(packet);
            let before = std::mem::replace(&mut amount, Amount::packet(packet.len()));
            leaving.add(port, (last, EMPTY_PATH), before);
            (last, port, exit) = (route, adjacency.port, adjacency.exit());
            (packet.next_hop, packet.out_port) = (route, port);
        }
        fates[index] = Fate::Queue;
        sent += 1;
    }
    leaving.add(port, (last, EMPTY_PATH), amount);
    sent
}

/// The same for a batch of nothing but plain packets of IPv4.
#[inline(never)]
fn send_all4(
    found: &[Option<NextHopIndex>],
    tables: (&[[u32; 2]], &mut AdjacencyTable),
    work: &mut Work,
) -> usize {
    send::<true>(found.iter().copied().enumerate(), Family::V4, tables, work)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn own_addresses_are_those_of_a_set(steps in prop::collection::vec((any::<bool>(), 0_u8..40, any::<bool>()), 0..200)) {
            let (mut own, mut twin) = (OwnAddresses::new(7), HashSet::new());
            let address = |number: u8, v6| match v6 {
                false => IpAddr::from([10, 0, number, 1]),
                true => IpAddr::from([0xfd00, 0, 0, u16::from(number), 0, 0, 0, 1]),
            };
            for (add, number, v6) in steps {
                let address = address(number, v6);
                if add {
                    own.insert(address);
                    twin.insert(address);
                } else {
                    own.remove(&address);
                    twin.remove(&address);
                }
            }
            for number in 0..40 {
                for v6 in [false, true] {
                    let address = address(number, v6);
                    prop_assert_eq!(own.contains(&address), twin.contains(&address));
                }
            }
        }
    }
}
