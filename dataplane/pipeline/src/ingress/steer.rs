//! Distribution of packets among several workers: hand-over to other workers, and take-over from them.
//!
//! The owner of a device receives its packets, learns its neighbours, fills its queues and punts its packets
//! to the kernel. The owner of a flow takes its packets through the stages from classify on.
//!
//! All workers share the seed of the flow hash, so they agree on the owner and the next hop of a flow.
//! Packets of a flow pass one receiver, one owner and one sender, and the rings between these keep their
//! order. Each worker has its own flow table, instances, held packets and limits. Neighbour discovery for a
//! port without a kernel stays at the receiver, and control sends the neighbours that it learns to the other
//! workers. A packet without an empty parcel is dropped as
//! [`HandoverFull`](millrace_packet::DropReason::HandoverFull).
//!
//! Workers count packets handed over and taken over, and never clear these counters. Their difference is the
//! number of packets between workers.

use millrace_forward::NO_ADJACENCY;
use millrace_packet::{BATCH_SIZE, DropReason, FlowKey, Packet};
use millrace_units::Instant;
use millrace_wire::{EtherType, Protocol};

use crate::classify::Classifier;
use crate::handover::{Errand, Handed, Transport};
use crate::observe::trace::Pick;
use crate::parse::parse;
use crate::ports::{DeviceId, PortTable};
use crate::router::Router;
use crate::router::scratch::Scratch;
use crate::work::{Alike, Fate, Work};

impl Classifier {
    /// Parses a packet that another worker has parsed before.
    fn read_again(&mut self, mut packet: Packet, handed: &Handed<'_>, work: &mut Work) {
        let index = work.packets.len();
        let ether_type = match packet.network().first().map(|first| first >> 4) {
            Some(6) => EtherType::IPV6,
            _ => EtherType::IPV4,
        };
        work.fates[index] = Fate::Forward;
        work.paths[index] = millrace_units::PathId(0);
        work.adjacencies[index] = NO_ADJACENCY;
        match parse(&mut packet, ether_type) {
            Ok(mut parsed) => {
                let Transport { protocol, ports, tcp_flags } = handed.transport;
                (parsed.key.source_port, parsed.key.destination_port) = ports;
                (parsed.key.protocol, parsed.varying.tcp_flags) = (protocol, tcp_flags);
                packet.exceptions = handed.exceptions;
                (work.hashes[index], packet.hash) = self.flows.hashes(&parsed.key);
                self.flows.prefetch(work.hashes[index]);
                work.set_key(index, parsed.key);
                work.varying[index] = parsed.varying;
            }
            Err(reason) => work.fates[index] = Fate::Drop(reason),
        }
        // Never fails: a call takes at most a batch of packets.
        let _ = work.packets.push(packet);
    }
}

impl Router {
    /// Returns whether this worker owns the device.
    #[inline]
    pub(crate) fn has(&self, device: DeviceId) -> bool {
        self.handover.as_ref().is_none_or(|handover| handover.owns(device))
    }

    /// Hands over packets whose flows other workers own.
    pub(crate) fn steer(&mut self, work: &mut Work) {
        let Some(handover) = &mut self.handover else { return };
        work.alike = Alike::No;
        for index in 0..work.packets.len() {
            let packet = work.packets.at(index);
            if !work.fates[index].is_open() {
                continue;
            }
            let Some(owner) = handover.owner_of_flow(packet.hash) else { continue };
            work.complete(index);
            let packet = work.packets.at(index);
            if !is_neighbour_message(packet, &work.keys[index], &self.ports) {
                let transport = Transport::of(&work.keys[index], work.varying[index].tcp_flags);
                work.fates[index] = match handover.put(owner, Errand::Flow, packet, transport, &[]) {
                    true => Fate::HandedOver,
                    false => Fate::Drop(DropReason::HandoverFull),
                };
            }
        }
    }

    /// Takes a batch over from another worker. Returns the number of packets.
    pub(crate) fn take_over(&mut self, from: usize, work: &mut Work, now: Instant) -> usize {
        let Some(mut handover) = self.handover.take() else { return 0 };
        let mut count = 0;
        work.begin();
        while count < BATCH_SIZE
            && let Some(handed) = handover.next(from)
        {
            count += 1;
            self.observation.totals.taken += 1;
            self.unpack(&handed, work, now);
        }
        self.handover = Some(handover);
        if !work.packets.is_empty() {
            self.arrivals.0.note(&work.packets);
            self.arrivals.1 = None;
            match self.observation.trace {
                None => self.journey(work, now),
                Some(_) => self.journey_watched(work, Pick::Marked, now),
            }
        }
        count
    }

    fn unpack(&mut self, handed: &Handed<'_>, work: &mut Work, now: Instant) {
        let Some(mut packet) = self.pool.packet_from(handed.bytes) else {
            self.observation.totals.dropped += 1;
            return self.ports.count_drop(handed.port, DropReason::NoMemory);
        };
        packet.set_network(handed.network);
        (packet.port, packet.out_port) = (handed.port, handed.out_port);
        packet.trace = handed.trace;
        match handed.errand {
            Errand::Transmit => {
                (packet.hash, packet.queue) = (handed.hash, handed.queue);
                packet.next_hop = handed.next_hop;
                let (words, _) = handed.counts_for.as_chunks();
                let words = words.iter().map(|word| u64::from_le_bytes(*word));
                packet.counts_for = self.gates.plugins_mut().account_of(words);
                if packet.trace != 0 {
                    self.trace_taken_over(&packet, now);
                }
                self.queue_here(packet, now);
            }
            Errand::Host => {
                if packet.trace != 0 {
                    self.observation.trace_for_kernel(&packet, now);
                }
                self.punt.for_kernel.push(packet);
            }
            Errand::Flow => self.classifier.read_again(packet, handed, work),
        }
    }

    /// Puts a finished frame into the queue of its `out_port`, here or at the worker that owns the port's
    /// device.
    pub(crate) fn queue_where_it_belongs(&mut self, packet: Packet, now: Instant) {
        let device = self.ports.get(packet.out_port).map(|out| out.settings.device);
        let Self { handover, gates, scratch: Scratch { handed_filters: filters, .. }, .. } = self;
        let (Some(device), Some(handover)) = (device, handover) else {
            return self.drop_packet(packet, DropReason::PortDown);
        };
        if handover.owns(device) {
            return self.queue_here(packet, now);
        }
        filters.clear();
        filters.extend(gates.plugins().bindings_of(packet.counts_for));
        match handover.put_to_device(device, Errand::Transmit, &packet, filters) {
            true => self.observation.totals.handed += 1,
            false => self.drop_packet(packet, DropReason::HandoverFull),
        }
    }

    /// Hands packets for the kernel over to the owners of their ingress devices.
    pub(crate) fn hand_over_hosts(&mut self) {
        let packets = std::mem::take(&mut self.punt.for_kernel);
        for packet in packets {
            let device = self.ports.get(packet.port).map(|entry| entry.settings.device);
            match (device, &mut self.handover) {
                (Some(device), Some(handover)) if !handover.owns(device) => {
                    match handover.put_to_device(device, Errand::Host, &packet, &[]) {
                        true => {
                            self.observation.totals.handed += 1;
                            if packet.trace != 0 {
                                self.observation.trace_handed_over(packet.trace);
                            }
                        }
                        false => self.drop_packet(packet, DropReason::HandoverFull),
                    }
                }
                _ => self.punt.for_kernel.push(packet),
            }
        }
    }
}

/// Returns whether a packet is neighbour discovery for a port without a kernel, which the device's owner
/// handles.
fn is_neighbour_message(packet: &Packet, key: &FlowKey, ports: &PortTable) -> bool {
    Protocol(key.protocol) == Protocol::ICMPV6
        && packet.transport().first().is_some_and(|kind| (133..=137).contains(kind))
        && ports.get(packet.port).is_some_and(|entry| !entry.is_kernel())
}
