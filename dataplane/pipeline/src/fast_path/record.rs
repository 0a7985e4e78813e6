//! Adjacencies of forwarded packets, recorded so that later packets take the fast path.

use millrace_classify::FlowIndex;
use millrace_forward::{Adjacency, NeighbourKey, Route};
use millrace_packet::{Exceptions, Family, FlowKey, Packet};
use millrace_plugin_abi::Position;
use millrace_units::NextHopIndex;
use millrace_wire::{EtherType, MacAddr};

use super::FastPath;
use crate::forward::routing::alive;
use crate::parse::ROUTER;
use crate::ports::link_header;
use crate::route_number::is_filter;
use crate::work::{Fate, Work};

impl FastPath<'_> {
    /// Records the adjacencies of this batch's forwarded packets: in their flow records, or by route number
    /// if there is no flow table.
    pub fn note_adjacencies(&mut self, work: &Work) {
        for (index, packet) in work.packets.iter().enumerate() {
            let is_sent_on = work.fates[index] == Fate::Forward
                && packet.exceptions == Exceptions::NONE
                && packet.port != ROUTER
                && packet.port != packet.out_port
                && !is_filter(packet.next_hop);
            if !is_sent_on {
                continue;
            }
            let (key, destination) = (&work.keys[index], work.destinations[index]);
            if !self.classifier.remembers() {
                if let Some(number) = self.adjacency_of(packet, key, destination) {
                    self.note_bare(packet.next_hop, key.family(), number);
                }
            } else if let Some(flow) = work.flows[index] {
                self.note_adjacency(packet, key, flow, destination);
            }
        }
    }

    /// Records the adjacency of a forwarded packet in its flow record. Does nothing if the record is
    /// outdated, has a valid adjacency, or has instances at gates of position `queue`.
    fn note_adjacency(&mut self, packet: &Packet, key: &FlowKey, flow: FlowIndex, destination: MacAddr) {
        let answer = self.classifier.flows.record(flow).answer;
        let is_right = answer.generation == self.classifier.changes.current()
            && answer.next_hop == packet.next_hop
            && !self.gates.plugins().has_stages(answer.path, Position::Queue);
        if !is_right || self.forwarding.adjacencies.get_mut(answer.adjacency).is_some() {
            return;
        }
        if let Some(number) = self.adjacency_of(packet, key, destination) {
            self.classifier.flows.answer_mut(flow).adjacency = number;
        }
    }

    /// Returns the number of the adjacency by which a packet leaves, according to the route in its
    /// annotations.
    fn adjacency_of(&mut self, packet: &Packet, key: &FlowKey, destination: MacAddr) -> Option<u32> {
        let out = self.ports.get(packet.out_port).filter(|out| out.is_here)?;
        let Route::Forward(hops) = self.forwarding.fib.route(packet.next_hop) else { return None };
        let neighbour = alive(hops, packet.hash, self.ports).neighbour(key.destination());
        let neighbour = NeighbourKey { port: packet.out_port, address: neighbour };
        let ether_type = if key.family() == Family::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let made = || {
            let header = link_header(&out.settings, destination, ether_type);
            Adjacency::new(packet.out_port, out.settings.mtu, key.family(), header)
        };
        self.forwarding.adjacencies.intern(neighbour, key.family(), made)
    }

    /// Records the adjacency of a route, if the route has a single next hop with a gateway.
    fn note_bare(&mut self, route: NextHopIndex, family: Family, number: u32) {
        if !self.classifier.remembers()
            && let Route::Forward(hops) = self.forwarding.fib.route(route)
            && hops.len() == 1
            && hops.iter().all(|hop| hop.gateway.is_some())
        {
            self.forwarding.bare.note(route, family, number);
        }
    }
}
