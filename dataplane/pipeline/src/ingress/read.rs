//! Parse stage over a batch, including packets that go through the stages again.

use millrace_packet::{DropReason, Packet};
use millrace_plugin::EMPTY_PATH;
use millrace_units::Instant;
use millrace_wire::EtherType;

use crate::forward::route::{admit, look_up};
use crate::ingress::Ingress;
use crate::parse::{Parsed, ROUTER, ether_type_of, parse};
use crate::route_number::is_filter;
use crate::subject::Subject;
use crate::work::{Fate, Work};

impl Ingress<'_> {
    /// Runs the parse stage for one packet.
    #[inline]
    pub fn read(&mut self, work: &mut Work, index: usize, ether_type: EtherType, now: Instant) {
        let packet = work.packets.at_mut(index);
        match self.parse(packet, ether_type, now) {
            Ok(parsed) => {
                if packet.port != ROUTER && packet.is_link_group() {
                    // A packet to a multicast or broadcast MAC address must not be forwarded. The check
                    // belongs here, because flow records don't contain MAC addresses.
                    work.fates[index] = admit(self.ports, packet, &parsed.key, self.options.martians);
                }
                work.hashes[index] = self.classifier.flows.hash(&parsed.key);
                self.classifier.flows.prefetch(work.hashes[index]);
                work.set_key(index, parsed.key);
                work.varying[index] = parsed.varying;
            }
            Err(reason) => work.fates[index] = Fate::Drop(reason),
        }
    }

    /// Parses a packet. A later fragment gets the ports of its first fragment, and so the same flow key.
    #[inline]
    fn parse(
        &mut self,
        packet: &mut Packet,
        ether_type: EtherType,
        now: Instant,
    ) -> Result<Parsed, DropReason> {
        let mut parsed = parse(packet, ether_type)?;
        if let Some(reason) = self.gates.refuse_hidden(parsed.hides_transport) {
            return Err(reason);
        }
        if parsed.fragment.is_some() {
            self.classifier.join_fragments(packet, &mut parsed, self.gates, now)?;
        }
        packet.hash = self.classifier.flows.hashes(&parsed.key).1;
        Ok(parsed)
    }

    /// Parses packets that the router has made. They have neither a link header nor an ingress port.
    pub fn read_own(&mut self, work: &mut Work, now: Instant) {
        work.begin();
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            packet.port = ROUTER;
            packet.set_network(0);
            let ether_type = ether_type_of(packet);
            self.read(work, index, ether_type, now);
        }
    }

    /// Parses packets that are to be classified again, because a plugin may have changed them.
    pub fn read_again(&mut self, work: &mut Work, now: Instant) {
        work.begin();
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            // The new classification determines the filters that account for the packet.
            packet.counts_for = EMPTY_PATH;
            let ether_type = ether_type_of(packet);
            self.read(work, index, ether_type, now);
        }
    }

    /// Parses copies, and packets that instances have held, and looks up their routes.
    pub fn read_resumed(&mut self, work: &mut Work, now: Instant) {
        work.begin();
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            let ether_type = ether_type_of(packet);
            match self.parse(packet, ether_type, now) {
                Ok(parsed) => (work.keys[index], work.varying[index]) = (parsed.key, parsed.varying),
                Err(reason) => work.fates[index] = Fate::Drop(reason),
            }
            if !is_filter(packet.next_hop) {
                look_up(self.fib, packet, &work.keys[index]);
            }
        }
    }
}
