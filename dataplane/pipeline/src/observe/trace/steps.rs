//! Steps of a traced packet: what the stages record for a [`Mark`].

use millrace_forward::Route;
use millrace_packet::{DropReason, Packet};
use millrace_plugin::{EMPTY_PATH, End, Group, Refusal, Stop, Taken, Watch};
use millrace_units::{Instant, QueueId};
use millrace_wire::MacAddr;

use super::event::{FlowFound, RouteTaken, StageOutcome, TraceEnd, TraceStep, Waits};
use super::pieces::Pick;
use super::probe::Mark;
use super::tracer::Tracer;
use crate::classify::ClassifyCounts;
use crate::egress::ports::PortTable;
use crate::forward::alive;
use crate::forward::filter_route::{FilterRoute, is_filter};
use crate::forward::route::NO_ROUTE;
use crate::ingress::parse::parse_again;
use crate::observe::Observation;
use crate::router::Router;
use crate::work::{Fate, Work};

impl Observation {
    /// Records that a traced packet continues after a wait, or to be classified again. Returns its mark; `None`
    /// if the batch is not one traced packet.
    #[inline]
    pub(crate) fn note_resumed(&mut self, work: &Work, now: Instant) -> Option<Mark> {
        match &*work.packets {
            [packet] if self.trace.is_some() && packet.trace != 0 => {
                self.write_resumed(packet.trace, now);
                Some(Mark(packet.trace))
            }
            _ => None,
        }
    }

    #[cold]
    fn write_resumed(&mut self, mark: u16, now: Instant) {
        if let Some(tracer) = &mut self.trace {
            tracer.restart();
            tracer.write(mark, TraceStep::GoesOn, now);
        }
    }

    /// Records a step of a packet.
    pub(crate) fn write(&mut self, mark: u16, step: TraceStep, now: Instant) {
        if let Some(tracer) = &mut self.trace {
            tracer.write(mark, step, now);
        }
    }

    /// Records a packet's entry into a queue.
    pub(super) fn write_queued(&mut self, mark: u16, step: TraceStep, now: Instant) {
        if let Some(tracer) = &mut self.trace {
            tracer.write_queued(mark, step, now);
        }
    }

    /// Records the end of a journey.
    fn end(&mut self, mark: u16, end: TraceEnd, now: Instant) {
        self.write(mark, TraceStep::End(end), now);
        self.gone();
    }

    /// Begins the journey of a packet in a batch that was just read.
    pub(super) fn begin(&mut self, work: &mut Work, place: usize, pick: Pick, now: Instant) {
        work.complete(place);
        let packet = work.packets.at_mut(place);
        let Some(tracer) = &mut self.trace else { return };
        tracer.enter();
        match pick {
            Pick::Chosen => tracer.write_arrived(packet, now),
            Pick::Marked => tracer.write(packet.trace, TraceStep::TakenOver, now),
        }
        // The batch was read before the packet was selected, so the packet is parsed again to measure the
        // cost. Only parsed packets have a hash.
        if packet.hash != 0 {
            tracer.restart();
            std::hint::black_box(parse_again(packet));
            tracer.write(packet.trace, TraceStep::Parsed(work.candidate(place)), now);
        }
    }

    fn gone(&mut self) {
        if let Some(tracer) = &mut self.trace {
            tracer.leave();
        }
    }

    fn note_dropped(&mut self, mark: u16) {
        if let Some(tracer) = &mut self.trace {
            tracer.dropped = mark;
        }
    }

    /// Records the drop of a traced packet.
    #[cold]
    pub(crate) fn trace_dropped(&mut self, packet: &Packet, reason: DropReason) {
        let now = self.drop_log.now();
        self.end(packet.trace, TraceEnd::Dropped(reason), now);
        self.note_dropped(packet.trace);
    }

    /// Records the take-over of a packet for the kernel from the worker that decided its fate.
    #[cold]
    pub(crate) fn trace_for_kernel(&mut self, packet: &Packet, now: Instant) {
        if let Some(tracer) = &mut self.trace {
            tracer.enter();
            tracer.write(packet.trace, TraceStep::TakenOver, now);
        }
    }

    /// Records the fragmentation of a traced packet. The journey of each fragment ends separately.
    #[cold]
    pub(crate) fn trace_fragmented(&mut self, mark: u16, fragments: usize, now: Instant) {
        if let Some(tracer) = &mut self.trace {
            tracer.write_fragmented(mark, fragments, now);
        }
    }

    /// Ends the traces of packets punted to the kernel, which took the first `taken` packets and refused the
    /// others.
    #[cold]
    pub(crate) fn trace_handed_back(&mut self, packets: &[Packet], taken: usize) {
        let now = self.drop_log.now();
        for (place, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.trace != 0) {
            let end = if place < taken { TraceEnd::Host } else { TraceEnd::Dropped(DropReason::HostRefused) };
            self.end(packet.trace, end, now);
        }
    }

    /// Records the hand-over of a packet for the kernel to the owner of its ingress device.
    #[cold]
    pub(crate) fn trace_handed_over(&mut self, mark: u16) {
        self.write(mark, TraceStep::HandedOver, self.drop_log.now());
        self.gone();
    }
}

impl PortTable {
    /// Returns the step of a packet's entry into the queue of its egress port.
    pub(super) fn queue_of(&self, packet: &Packet) -> TraceStep {
        let entry = self.get(packet.out_port);
        let scheduler = entry.and_then(|entry| entry.scheduler.as_ref());
        let (leaf, before) = match scheduler.filter(|scheduler| scheduler.takes_packets()) {
            Some(scheduler) => {
                let leaf: QueueId = scheduler.leaf_for(packet.queue);
                (Some(leaf), scheduler.backlog(packet).map_or(0, |(_, backlog)| backlog.packets))
            }
            None => (None, entry.map_or(0, |entry| entry.queue.len() as u32)),
        };
        TraceStep::Queued { port: packet.out_port, leaf, before }
    }
}

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

/// Recorder of the stages' results for the only packet of a group.
pub(crate) struct GateWriter<'a> {
    tracer: &'a mut Tracer,
    mark: u16,
    /// Queue chosen by an earlier stage.
    queue: QueueId,
    /// Number of directions that stages have set so far.
    directed: usize,
    now: Instant,
}

impl<'a> GateWriter<'a> {
    /// Returns a recorder of the steps of `packet`, whose mark is `mark`.
    pub fn new(tracer: &'a mut Tracer, mark: u16, packet: &Packet, now: Instant) -> Self {
        Self { tracer, mark, queue: packet.queue, directed: 0, now }
    }
}

impl Watch for GateWriter<'_> {
    fn after(&mut self, group: &Group<'_>, at: Stop, refusal: Option<Refusal>) {
        let outcome = outcome(group, refusal, &mut self.queue, &mut self.directed);
        self.tracer.write(self.mark, TraceStep::Gate(at.gate, at.binding, outcome), self.now);
    }
}

/// Returns the result of a stage for the only packet of a group.
fn outcome(
    group: &Group<'_>,
    refusal: Option<Refusal>,
    queue: &mut QueueId,
    directed: &mut usize,
) -> StageOutcome {
    if refusal.is_some() {
        return StageOutcome::Dropped(DropReason::Filter);
    }
    if group.members.is_empty()
        && let Some((_, taken)) = group.taken.last()
    {
        return match taken {
            Taken::End(End::Drop(reason)) => StageOutcome::Dropped(*reason),
            Taken::End(End::Consume) => StageOutcome::Consumed,
            Taken::End(End::Classify) => StageOutcome::Again,
            Taken::Keep(_) => StageOutcome::Kept,
        };
    }
    if group.directed.len() > *directed
        && let Some((_, direction)) = group.directed.last()
    {
        *directed = group.directed.len();
        return StageOutcome::Sent(*direction);
    }
    let now = group.packets.first().map_or(*queue, |packet| packet.queue);
    if now != *queue {
        *queue = now;
        return StageOutcome::Queue(now);
    }
    StageOutcome::Passed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_forward::SharedFib;
    use millrace_packet::Pool;
    use millrace_units::PortId;

    use super::*;
    use crate::egress::ports::{DeviceId, PortSettings, ReversePath, Stack};
    use crate::ingress::tags::Tags;
    use crate::observe::trace::{TraceOrder, trace};

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
