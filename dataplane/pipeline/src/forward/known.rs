//! Makes packets with a known adjacency into finished frames, without a route or neighbour lookup.

use millrace_forward::{Adjacency, AdjacencyTable, Exit, NO_ADJACENCY};
use millrace_packet::{BATCH_SIZE, Exceptions, Packet};
use millrace_plugin::EMPTY_PATH;
use millrace_units::{Amount, PortId};

use crate::route_number::{NO_ROUTE, is_filter};
use crate::work::{Accounts, Fate, Work};

/// Makes the open packets of a batch ready to leave by the adjacencies of their flows, and adds them to
/// [`Leaving`](crate::work::Leaving). Packets that need the general path stay open. Returns whether no packet
/// stays open.
pub(crate) fn leave_known(adjacencies: &mut AdjacencyTable, work: &mut Work) -> bool {
    let Work { packets, fates, adjacencies: numbers, leaving, .. } = work;
    let count = packets.len().min(BATCH_SIZE);
    let mut all = true;
    // Adjacency, port and exit of the previous packet. The next packet reuses them if it has the same
    // adjacency. The amount counts the packets so far with the same accounts.
    let (mut last, mut port, mut exit) = (NO_ADJACENCY, PortId::NONE, Exit::NONE);
    let (mut accounts, mut amount) = ((NO_ROUTE, EMPTY_PATH), Amount::default());
    for ((packet, fate), number) in packets.iter_mut().zip(&mut fates[..count]).zip(&numbers[..count]) {
        if !fate.is_open() {
            continue;
        }
        if *number == last
            && let Some((own, length)) = leaves_like(&exit, port, packet)
        {
            if own != accounts {
                leaving.add(port, accounts, std::mem::take(&mut amount));
                accounts = own;
            }
            amount += Amount::packet(length);
        } else if let Some(adjacency) = adjacencies.get_mut(*number)
            && leaves_by(adjacency, packet)
        {
            leaving.add(port, accounts, std::mem::replace(&mut amount, Amount::packet(packet.len())));
            accounts = (packet.next_hop, packet.counts_for);
            (last, port, exit) = (*number, adjacency.port, adjacency.exit());
        } else {
            all = false;
            continue;
        }
        *fate = Fate::Queue;
    }
    leaving.add(port, accounts, amount);
    all
}

/// Makes a packet ready to leave by an adjacency, unless an instance has redirected the packet or the packet
/// has exceptions. Returns whether the packet is ready.
fn leaves_by(adjacency: &mut Adjacency, packet: &mut Packet) -> bool {
    let is_sent_on =
        packet.exceptions == Exceptions::NONE && !is_filter(packet.next_hop) && adjacency.takes(packet);
    if is_sent_on && has_hops_left(packet) {
        packet.out_port = adjacency.port;
        adjacency.rewrite(packet);
        return true;
    }
    false
}

/// Returns whether TTL or hop limit allow another hop. A plugin may have lowered them.
fn has_hops_left(packet: &Packet) -> bool {
    let network = packet.network();
    let place = match network.first() {
        Some(first) if first >> 4 == 4 => 8,
        _ => 7,
    };
    network.get(place).is_some_and(|hops| *hops > 1)
}

/// Makes a packet ready to leave by the exit of the previous packet. Returns the accounts and length of the
/// packet; `None` if the exit does not accept it.
#[inline(always)]
fn leaves_like(exit: &Exit, port: PortId, packet: &mut Packet) -> Option<(Accounts, usize)> {
    let start = exit.start(packet)?;
    let accounts = (start.annotations.next_hop, start.annotations.counts_for);
    let is_sent_on =
        start.annotations.exceptions == Exceptions::NONE && !is_filter(accounts.0) && exit.is_whole(&start);
    if !is_sent_on {
        return None;
    }
    start.annotations.out_port = port;
    exit.rewrite(start.bytes);
    Some((accounts, start.length))
}
