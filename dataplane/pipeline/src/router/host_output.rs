//! Journey of host output: packets that the kernel sends out of a port with a scheduler.

use millrace_packet::Packet;
use millrace_plugin::EMPTY_PATH;
use millrace_plugin_abi::Position;
use millrace_units::{Instant, PortId};
use millrace_wire::ethernet::{self, Frame};
use millrace_wire::{EtherType, vlan};

use crate::parse::ROUTER;
use crate::ports::host_output::HostFilters;
use crate::router::Router;
use crate::work::{Fate, Work};

impl Router {
    /// Puts a batch of frames that the kernel sends by `port` into the port's queues, and leaves `work`
    /// empty. Frames that can't be parsed go to the default queue.
    pub(crate) fn take_host_output(
        &mut self,
        port: PortId,
        filters: HostFilters,
        work: &mut Work,
        now: Instant,
    ) {
        self.observation.totals.received =
            self.observation.totals.received.wrapping_add(work.packets.len() as u64);
        self.observation.totals.from_host += work.packets.len() as u64;
        work.begin();
        let mut ingress = self.ingress();
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            (packet.port, packet.out_port, packet.is_framed) = (ROUTER, port, true);
            match ether_type(packet) {
                Some(ether_type) => ingress.read(work, index, ether_type, now),
                None => work.fates[index] = Fate::Queue,
            }
            if !work.fates[index].is_open() {
                work.fates[index] = Fate::Queue;
            }
        }
        self.classification().classify(work, now);
        let from = match filters {
            HostFilters::Queue => {
                // Bindings at skipped gates must not account for the packet.
                for index in 0..work.packets.len() {
                    let path = work.paths[index];
                    if path != EMPTY_PATH {
                        work.paths[index] = self.gates.plugins_mut().paths.part_at(path, Position::Queue);
                    }
                }
                Position::Queue
            }
            HostFilters::All => Position::Early,
        };
        self.travel_from(work, from, 0, now);
        self.follow_up(now);
        self.classification().keep_flows(now, false);
    }
}

/// Sets the network offset of a frame, and returns its EtherType; `None` if its headers can't be read.
fn ether_type(packet: &mut Packet) -> Option<EtherType> {
    let frame = Frame::new_checked(packet.data()).ok()?;
    let stack = vlan::Stack::parse(frame.ether_type(), frame.payload()).ok()?;
    packet.set_network(ethernet::HEADER_LEN + stack.len);
    Some(stack.ether_type)
}
