//! Journey of host output: packets that the kernel sends out of a port with a scheduler.

use millrace_packet::Packet;
use millrace_plugin::EMPTY_PATH;
use millrace_plugin_abi::Position;
use millrace_units::{Instant, PortId, QueueId};
use millrace_wire::ethernet::{self, Frame};
use millrace_wire::{EtherType, MacAddr, vlan};

use crate::parse::ROUTER;
use crate::ports::host_output::{HostFilters, HostSettings};
use crate::router::Router;
use crate::work::{Fate, Work};

impl Router {
    /// Puts a batch of frames that the kernel sends by `port` into the port's queues, and leaves `work`
    /// empty. Frames that can't be parsed go to the default queue.
    pub(crate) fn take_host_output(
        &mut self,
        port: PortId,
        settings: HostSettings,
        work: &mut Work,
        now: Instant,
    ) {
        self.observation.totals.received =
            self.observation.totals.received.wrapping_add(work.packets.len() as u64);
        self.observation.totals.from_host += work.packets.len() as u64;
        work.begin();
        let mac = self.ports.get(port).map_or(MacAddr::ZERO, |entry| entry.settings.mac);
        let mut ingress = self.ingress();
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            (packet.port, packet.out_port, packet.is_framed) = (ROUTER, port, true);
            if let Some(queue) = take_mark(packet, settings.mark, mac) {
                packet.queue = queue;
            }
            match ether_type(packet) {
                Some(ether_type) => ingress.read(work, index, ether_type, now),
                None => work.fates[index] = Fate::Queue,
            }
            if !work.fates[index].is_open() {
                work.fates[index] = Fate::Queue;
            }
        }
        self.classification().classify(work, now);
        let from = match settings.filters {
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

/// Replaces the mark of a frame by the port's MAC address, and returns the queue whose number stands behind it. Returns
/// `None` for a frame without the mark.
fn take_mark(packet: &mut Packet, mark: [u8; 4], MacAddr(mac): MacAddr) -> Option<QueueId> {
    let [_, _, _, _, _, _, source @ .., _, _] = packet.data_mut().first_chunk_mut::<14>()?;
    let [first, second, third, fourth, queue @ ..] = *source;
    if [first, second, third, fourth] != mark {
        return None;
    }
    *source = mac;
    Some(QueueId(u16::from_ne_bytes(queue)))
}

/// Sets the network offset of a frame, and returns its EtherType; `None` if its headers can't be read.
fn ether_type(packet: &mut Packet) -> Option<EtherType> {
    let frame = Frame::new_checked(packet.data()).ok()?;
    let stack = vlan::Stack::parse(frame.ether_type(), frame.payload()).ok()?;
    packet.set_network(ethernet::HEADER_LEN + stack.len);
    Some(stack.ether_type)
}

#[cfg(test)]
mod tests {
    use millrace_packet::Pool;

    use super::*;

    #[test]
    fn mark_is_replaced_by_the_address_of_the_port() {
        let pool = Pool::new(2).unwrap();
        let (mark, mac) = ([2, 0xaa, 0xbb, 0xcc], MacAddr([2, 0, 0, 0, 0, 7]));
        let frame = |source: [u8; 6]| [&[0xff; 6][..], &source, &[8, 0, 1, 2, 3]].concat();
        let [high, low] = 0x1234_u16.to_ne_bytes();
        let mut packet = pool.packet_from(&frame([2, 0xaa, 0xbb, 0xcc, high, low])).unwrap();
        assert_eq!(take_mark(&mut packet, mark, mac), Some(QueueId(0x1234)));
        assert_eq!(packet.data(), frame([2, 0, 0, 0, 0, 7]));
        assert_eq!(take_mark(&mut packet, mark, mac), None);
        assert_eq!(packet.data(), frame([2, 0, 0, 0, 0, 7]));
        let mut short = pool.packet_from(&[2, 0xaa, 0xbb, 0xcc]).unwrap();
        assert_eq!(take_mark(&mut short, mark, mac), None);
    }
}
