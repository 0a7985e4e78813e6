//! Backlog before a packet at its egress port, for instances that request it.

use millrace_forward::Route;
use millrace_packet::Packet;
use millrace_plugin_abi::{Backlogs, QueueBacklog};
use millrace_units::{PortId, QueueId};

use crate::forward::alive;
use crate::forward::fib::Fib;
use crate::forward::filter_route::{FilterRoute, FilterRoutes};
use crate::ports::PortTable;
use crate::route_number::NO_ROUTE;

/// Tables that determine the queue of a packet.
pub(crate) struct Queues<'a> {
    pub ports: &'a PortTable,
    pub fib: &'a Fib,
    pub routes: &'a FilterRoutes,
}

impl Queues<'_> {
    /// Returns the egress port of a packet by its route; `None` if the route does not forward.
    fn way(&self, packet: &Packet) -> Option<PortId> {
        if packet.next_hop == NO_ROUTE {
            return None;
        }
        match self.routes.route(packet.next_hop) {
            Some(FilterRoute::Forward(hops)) => Some(hops.select(0).port),
            Some(_) => None,
            None => match self.fib.route(packet.next_hop) {
                Route::Forward(hops) => Some(alive(hops, packet.hash, self.ports).port),
                _ => None,
            },
        }
    }
}

impl Backlogs for Queues<'_> {
    fn of(&self, packet: &Packet) -> Option<QueueBacklog> {
        let port = self.way(packet)?;
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
