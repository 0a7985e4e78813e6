//! Steps of a traced packet: what the stages record for a [`Mark`].

use millrace_forward::Route;
use millrace_packet::Packet;
use millrace_plugin::EMPTY_PATH;
use millrace_units::Instant;
use millrace_wire::MacAddr;

use crate::classify::ClassifyCounts;
use crate::forward::alive;
use crate::forward::filter_route::FilterRoute;
use crate::observe::trace::{FlowFound, RouteTaken, TraceEnd, TraceStep, Waits};
use crate::route_number::{NO_ROUTE, is_filter};
use crate::router::Router;
use crate::work::{Fate, Work};

impl Router {
    /// Records the result of the flow lookup of the only packet of a batch. `before`: the counters before the
    /// lookup.
    #[cold]
    pub(crate) fn write_classified(&mut self, mark: u16, work: &Work, before: ClassifyCounts, now: Instant) {
        let step = self.classified(work, before);
        self.observation.write(mark, step, now);
    }

    fn classified(&self, work: &Work, before: ClassifyCounts) -> TraceStep {
        let now = self.classifier.counts;
        let found = match () {
            () if now.misses > before.misses => FlowFound::Miss,
            () if now.reclassified > before.reclassified => FlowFound::Reclassified,
            () if now.rerouted > before.rerouted => FlowFound::Rerouted,
            () if now.checked > before.checked => FlowFound::Checked,
            () if now.hits > before.hits => FlowFound::Hit,
            () => FlowFound::NotAsked,
        };
        let flow = work.flows[0].filter(|_| self.classifier.remembers());
        let bindings = match work.paths[0] {
            EMPTY_PATH => 0,
            path => self.gates.plugins().stages(path).count().min(255) as u8,
        };
        TraceStep::Classified {
            found,
            bindings,
            in_driver: flow.is_some_and(|flow| {
                self.driver.as_ref().is_some_and(|driver| driver.has(flow, &work.keys[0]))
            }),
        }
    }

    /// Records the route of the only packet of a batch.
    #[cold]
    pub(crate) fn write_routed(&mut self, mark: u16, work: &Work, now: Instant) {
        let taken = self.route_taken(work);
        self.observation.write(mark, TraceStep::Routed(taken), now);
    }

    fn route_taken(&self, work: &Work) -> RouteTaken {
        let (packet, key) = (work.packets.at(0), &work.keys[0]);
        if packet.is_framed {
            return RouteTaken::Framed(packet.out_port);
        }
        if packet.next_hop == NO_ROUTE {
            return RouteTaken::None;
        }
        let hops = match self.gates.routes().route(packet.next_hop) {
            Some(FilterRoute::Drop) => return RouteTaken::Ends("drop"),
            Some(FilterRoute::Reject) => return RouteTaken::Ends("reject"),
            Some(FilterRoute::Host) => return RouteTaken::Ends("host"),
            Some(FilterRoute::Forward(hops)) => hops,
            None => match self.forwarding.fib.route(packet.next_hop) {
                Route::Forward(hops) => hops,
                other => return RouteTaken::Ends(other.kind()),
            },
        };
        let hop = alive(hops, packet.hash, &self.ports);
        let noted = work.fates[0] == Fate::Queue;
        let mac = match work.fates[0] {
            Fate::Queue => packet.data().first_chunk().map(|mac| MacAddr(*mac)),
            Fate::Forward => Some(work.destinations[0]),
            _ => None,
        };
        RouteTaken::Sent {
            by_filter: is_filter(packet.next_hop),
            hops: hops.len() as u8,
            port: hop.port,
            neighbour: hop.neighbour(key.destination()),
            mac,
            noted,
        }
    }

    /// Carries out the fate of the first packet left in a batch, and records the result. `note`: index of the
    /// packet's other fields in `work`.
    pub(crate) fn dispose_traced(&mut self, work: &mut Work, note: usize, now: Instant) {
        let (mark, fate) = (work.packets.at(0).trace, work.fates[note]);
        match fate {
            Fate::Refuse(error, _) => self.observation.write(mark, TraceStep::Refused(error), now),
            Fate::Hold(neighbour) => {
                let waits = Waits::Neighbour(work.packets.at(0).out_port, neighbour);
                self.observation.write(mark, TraceStep::Waits(waits), now);
            }
            Fate::Kept(_) => self.observation.write(mark, TraceStep::Waits(Waits::Instance), now),
            Fate::Again => self.observation.write(mark, TraceStep::Again, now),
            Fate::Consumed => self.observation.end(mark, TraceEnd::Consumed, now),
            Fate::HandedOver => {
                self.observation.write(mark, TraceStep::HandedOver, now);
                self.observation.gone();
            }
            _ => {}
        }
        let leaves = matches!(fate, Fate::Forward | Fate::Queue);
        let queued = leaves.then(|| self.ports.queue_of(work.packets.at(0)));
        let (handed, to_host) = (self.observation.totals.handed, self.observation.totals.to_host);
        self.observation.note_dropped(0);
        self.dispose_first(work, note..note + 1, now);
        if fate == Fate::Own && self.observation.totals.to_host > to_host {
            self.observation.end(mark, TraceEnd::Own, now);
        } else if leaves && self.observation.totals.handed > handed {
            (0..self.observation.totals.handed - handed).for_each(|_| self.observation.gone());
            self.observation.write(mark, TraceStep::HandedOver, now);
        } else if let Some(step) =
            queued.filter(|_| self.observation.trace.as_ref().is_none_or(|tracer| tracer.dropped != mark))
        {
            self.observation.write_queued(mark, step, now);
        }
    }

    /// Records the take-over of a finished frame, which enters the queue of its egress port here.
    #[cold]
    pub(crate) fn trace_taken_over(&mut self, packet: &Packet, now: Instant) {
        let step = self.ports.queue_of(packet);
        let Some(tracer) = &mut self.observation.trace else { return };
        tracer.enter();
        tracer.write(packet.trace, TraceStep::TakenOver, now);
        tracer.write_queued(packet.trace, step, now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_forward::SharedFib;
    use millrace_packet::{DropReason, Pool};
    use millrace_units::PortId;

    use super::*;
    use crate::observe::trace::{TraceOrder, Tracer, trace};
    use crate::parse::tags::Tags;
    use crate::ports::{DeviceId, PortSettings, ReversePath, Stack};

    #[test]
    fn what_the_kernel_refuses_is_dropped_and_not_given_to_it() {
        let (pool, fib) = (Pool::new(64).unwrap(), SharedFib::new().unwrap());
        let mut packets: Vec<Packet> = (0..3).map(|_| pool.packet_from(&[0; 60]).unwrap()).collect();
        let mut router = Router::new(pool, fib.reader(), 1).unwrap();
        let settings = PortSettings {
            name: "p".into(),
            device: DeviceId(0),
            tags: Tags::NONE,
            stack: Stack::Kernel { ifindex: 7 },
            mac: MacAddr::ZERO,
            mtu: 1500,
            up: true,
            forwards4: true,
            forwards6: true,
            reverse_path: ReversePath::Off,
            input_weight: 256,
            addresses: Vec::new(),
        };
        router.ports.set(PortId(0), settings);
        let order = TraceOrder { filter: None, every: 1, count: 10, time: Duration::MAX };
        let (sink, mut source) = trace(1, order);
        router.observation.trace = Some(Box::new(Tracer::new(sink, 0, 1, Instant::ZERO)));
        for (mark, packet) in [4, 0, 6].into_iter().zip(&mut packets) {
            (packet.trace, packet.port) = (mark, PortId(0));
        }
        router.punt.for_kernel = packets;
        router.for_the_kernel(|_, frames| {
            assert_eq!(frames.len(), 3);
            2
        });
        let ends: Vec<_> =
            std::iter::from_fn(|| source.next_event()).map(|event| (event.mark, event.step)).collect();
        let is_right = matches!(
            ends[..],
            [
                (4, TraceStep::End(TraceEnd::Host)),
                (6, TraceStep::End(TraceEnd::Dropped(DropReason::HostRefused)))
            ]
        );
        assert!(is_right, "{ends:?}");
    }
}
