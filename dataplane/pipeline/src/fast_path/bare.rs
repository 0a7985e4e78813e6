//! Fast path without a flow table, used while no filter is bound. The route alone determines the egress port
//! and link header of a plain packet. Both are the same for all packets of a route with a single gateway.
//!
//! A packet takes this path only if a quick test proves that no address check of the general path would
//! refuse it, and if its route has an adjacency. Otherwise it takes the general path, which records the
//! adjacency of the route. The number of a recorded adjacency becomes invalid when a change affects the
//! adjacency. When a route number gets another route, the recorded adjacency is discarded.

use std::net::IpAddr;

use millrace_forward::{AdjacencyTable, Exit, is_ordinary4, is_ordinary6};
use millrace_packet::{BATCH_SIZE, Exceptions, Family};
use millrace_plugin::EMPTY_PATH;
use millrace_units::{Amount, NextHopIndex, PortId};

use crate::forward::bare::{Bare, place};
use crate::forward::tables::ForwardingTables;
use crate::parse::ROUTER;
use crate::ports::{PortTable, ReversePath};
use crate::route_number::NO_ROUTE;
use crate::work::{Alike, Fate, Work};

/// Ingress port of packets. For each address family, states whether the port forwards packets without a
/// reverse path check.
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

/// Makes the plain packets of a batch ready to leave by the adjacencies of their routes. To be called only
/// while no filter is bound. Returns whether all packets of the batch are ready, except those
/// [aside](Work::aside).
pub(crate) fn leave_bare(tables: &mut ForwardingTables, ports: &PortTable, work: &mut Work) -> bool {
    let is_plain = work.reading.alike == Alike::Plain4 && work.aside == 0 && ask_all4(tables, ports, work);
    if !is_plain {
        ask_bare(tables, ports, work);
    }
    work.leaving.begin();
    let ForwardingTables { bare: Bare { v4, v6, adjacencies: numbers }, fib, adjacencies, .. } = tables;
    v4.look_up(|addresses, numbers| fib.prefixes.lookup4_batch(addresses, numbers));
    if is_plain {
        return send_all4(v4.all_found(), (numbers, adjacencies), work) == work.packets.len();
    }
    v6.look_up(|addresses, numbers| fib.prefixes.lookup6_batch(addresses, numbers));
    let sent = send::<false>(v4.found(), Family::V4, (numbers, adjacencies), work)
        + send::<false>(v6.found(), Family::V6, (numbers, adjacencies), work);
    sent + work.aside == work.packets.len()
}

/// Adds the destinations of a batch to the route lookup. All packets must be [plain IPv4
/// packets](Alike::Plain4) with one ingress port. Returns whether no address check can refuse any of them.
#[inline]
fn ask_all4(tables: &mut ForwardingTables, ports: &PortTable, work: &Work) -> bool {
    let ForwardingTables { bare, own_addresses, .. } = tables;
    let count = work.packets.len().min(BATCH_SIZE);
    let arrival = work.packets.first().map(|packet| Arrival::at(ports, packet.port));
    let mut is_said = arrival.is_some_and(|arrival| arrival.v4);
    bare.v4.ask_all(work.reading.nears[..count].iter().map(|near| {
        let (source, destination) = near.addresses4();
        is_said &= is_ordinary4(source) & is_ordinary4(destination) && !own_addresses.contains4(source);
        destination
    }));
    is_said
}

/// Adds the destinations of open packets to the route lookup, except packets that an address check might
/// refuse.
#[inline]
fn ask_bare(tables: &mut ForwardingTables, ports: &PortTable, work: &Work) {
    let ForwardingTables { bare, own_addresses, .. } = tables;
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
        let near = work.reading.nears[place];
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

/// Makes packets of one family ready to leave, if their routes have adjacencies. Returns the number of ready
/// packets. With `PLAIN`, skips the checks that [`PLAIN`](Alike::Plain) packets have already passed.
#[inline(always)]
fn send<const PLAIN: bool>(
    found: impl Iterator<Item = (usize, Option<NextHopIndex>)>,
    family: Family,
    (numbers, adjacencies): (&[[u32; 2]], &mut AdjacencyTable),
    work: &mut Work,
) -> usize {
    let (mut sent, mut amount) = (0, Amount::default());
    // Route of the previous packet, and port and exit of its adjacency. The next packet reuses port and exit
    // if it has the same route.
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

/// Makes the packets of a batch of plain IPv4 packets ready to leave. Returns the number of ready packets.
#[inline(never)]
fn send_all4(
    found: &[Option<NextHopIndex>],
    tables: (&[[u32; 2]], &mut AdjacencyTable),
    work: &mut Work,
) -> usize {
    send::<true>(found.iter().copied().enumerate(), Family::V4, tables, work)
}
