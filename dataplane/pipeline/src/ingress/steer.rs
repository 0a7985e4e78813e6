//! Distribution of packets among several workers.
//!
//! The owner of a device receives its packets, learns its neighbours, fills its queues and punts its packets
//! to the kernel. The owner of a flow runs the stages from classify on for the flow's packets.
//!
//! All workers share the seed of the hashes, so they agree on the owner and the next hop of a flow. Both directions of a
//! connection have the same owner, and an ICMP error has that of the packet that it quotes. Each packet of a flow
//! passes the same receiver, the same owner and the same sender, and the rings between them keep the packets in order. Each worker has its own flow table, instances, held packets and limits.
//! Neighbour discovery for a port without a kernel stack stays at the receiver, and control sends the learned
//! neighbours to the other workers. If no parcel has room for a packet, it is dropped as
//! [`HandoverFull`](millrace_packet::DropReason::HandoverFull).
//!
//! An instance may be pinned to a worker. The owner of a flow with such an instance on its path hands the packets
//! over to that worker, which runs the stages from classify on. So these packets have one more worker on their
//! way, always the same one.
//! Both directions of a connection meet there only if the instance is on the paths of both.
//!
//! Packets that plugins make, and packets that they classify again after a rewrite, stay at their worker.
//!
//! Workers count packets handed over and taken over, and never clear these counters. Their difference is the
//! number of packets between workers.

use millrace_classify::FlowTable;
use millrace_connection::quoted_flow;
use millrace_forward::NO_ADJACENCY;
use millrace_packet::{Exceptions, FlowKey, Packet};
use millrace_plugin::Paths;
use millrace_plugin_abi::PacketConnection;
use millrace_wire::Protocol;

use crate::handover::{Handed, Handover, Transport};
use crate::parse::{ether_type_of, parse};
use crate::ports::PortTable;
use crate::work::{Alike, Fate, Work};

/// Hands packets over to the workers that own their flows. Packets of this worker's own flows stay in the
/// batch.
pub(crate) fn steer(flows: &FlowTable, handover: &Handover, ports: &PortTable, work: &mut Work) {
    work.reading.alike = Alike::No;
    for index in 0..work.packets.len() {
        if !work.fates[index].is_open() {
            continue;
        }
        let key = work.reading.nears[index].key4().unwrap_or(work.keys[index]);
        let key = quoted_flow_of(work.packets.at(index), &key).unwrap_or(key);
        let Some(owner) = handover.owner_of(flows.connection_hash(&key)) else { continue };
        work.complete(index);
        let packet = work.packets.at(index);
        if !is_neighbour_message(packet, &work.keys[index], ports) {
            work.fates[index] = Fate::HandOver(owner as u16);
        }
    }
}

/// Returns the flow key of the packet that an ICMP error quotes; `None` for other packets. The later fragments of a message
/// show no type.
#[inline]
fn quoted_flow_of(packet: &Packet, key: &FlowKey) -> Option<FlowKey> {
    let is_message = matches!(Protocol(key.protocol), Protocol::ICMP | Protocol::ICMPV6);
    let is_readable = is_message && !packet.exceptions.contains(Exceptions::FRAGMENT);
    is_readable.then(|| quoted_flow(key.protocol, packet.transport()))?
}

/// Hands packets over to the workers to which instances on their paths are pinned.
#[cold]
pub(crate) fn steer_pinned(paths: &Paths, work: &mut Work) {
    for index in 0..work.packets.len() {
        if work.fates[index].is_open()
            && let Some(worker) = paths.worker(work.paths[index])
        {
            work.fates[index] = Fate::HandOver(worker);
        }
    }
}

/// Parses a packet that another worker has parsed before.
pub(crate) fn read_handed(flows: &FlowTable, mut packet: Packet, handed: &Handed<'_>, work: &mut Work) {
    let index = work.packets.len();
    work.fates[index] = Fate::Forward;
    work.paths[index] = millrace_units::PathId(0);
    work.adjacencies[index] = NO_ADJACENCY;
    // A flow without a record has no state, whatever the place held before.
    work.states.flows[index] = 0;
    work.states.set_connection(index, PacketConnection::default());
    (packet.queue, packet.tag) = (handed.queue, handed.tag);
    (packet.passes, packet.is_framed) = (handed.passes, handed.is_framed);
    let ether_type = ether_type_of(&packet);
    match parse(&mut packet, ether_type) {
        Ok(mut parsed) => {
            let Transport { protocol, ports, tcp_flags } = handed.transport;
            (parsed.key.source_port, parsed.key.destination_port) = ports;
            (parsed.key.protocol, parsed.varying.tcp_flags) = (protocol, tcp_flags);
            packet.exceptions = handed.exceptions;
            (work.hashes[index], packet.hash) = flows.hashes(&parsed.key);
            flows.prefetch(work.hashes[index]);
            work.set_key(index, parsed.key);
            work.varying[index] = parsed.varying;
        }
        Err(reason) => work.fates[index] = Fate::Drop(reason),
    }
    // Can't fail: a call takes at most a batch of packets.
    let _ = work.packets.push(packet);
}

/// Returns whether a packet is a neighbour discovery message at a port without a kernel stack, which the
/// device's owner handles.
fn is_neighbour_message(packet: &Packet, key: &FlowKey, ports: &PortTable) -> bool {
    Protocol(key.protocol) == Protocol::ICMPV6
        && packet.transport().first().is_some_and(|kind| (133..=137).contains(kind))
        && ports.get(packet.port).is_some_and(|entry| !entry.is_kernel())
}
