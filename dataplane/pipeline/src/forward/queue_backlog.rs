//! Backlog in front of a packet at its egress port, for instances that request it.

use millrace_packet::Packet;
use millrace_plugin_abi::{Backlogs, QueueBacklog};
use millrace_units::QueueId;

use crate::forward::routing::Routing;

impl Backlogs for Routing<'_> {
    fn of(&self, packet: &Packet) -> Option<QueueBacklog> {
        let (_, hop) = self.next_hop(packet.next_hop, packet.hash)?;
        let port = hop.port;
        let entry = self.ports.get(port).filter(|entry| entry.is_here)?;
        match entry.scheduler.as_ref().filter(|scheduler| scheduler.takes_packets()) {
            Some(scheduler) => {
                let (queue, backlog) = scheduler.backlog(packet)?;
                let (packets, bytes) = (backlog.packets, backlog.bytes.into());
                Some(QueueBacklog { port, queue, of_flow: backlog.of_flow, packets, bytes })
            }
            None => Some(QueueBacklog {
                port,
                queue: QueueId(0),
                of_flow: false,
                packets: entry.queue.len() as u32,
                bytes: entry.queue_bytes,
            }),
        }
    }
}
