//! Records those steps of a traced packet for which no tables of other stages are needed.

use millrace_packet::{DropReason, Packet};
use millrace_plugin::{End, Group, Refusal, Stop, Taken, Watch};
use millrace_units::{Instant, QueueId};

use super::event::{StageOutcome, TraceEnd, TraceStep};
use super::probe::Mark;
use super::selection::Pick;
use super::tracer::Tracer;
use crate::observe::Observation;
use crate::parse::parse_again;
use crate::ports::PortTable;
use crate::work::Work;

impl Observation {
    /// Records that a traced packet continues after a wait, or is about to be classified again. Returns its
    /// trace number; `None` unless the batch is a single traced packet.
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
    pub(crate) fn write_queued(&mut self, mark: u16, step: TraceStep, now: Instant) {
        if let Some(tracer) = &mut self.trace {
            tracer.write_queued(mark, step, now);
        }
    }

    /// Records the end of a journey.
    pub(crate) fn end(&mut self, mark: u16, end: TraceEnd, now: Instant) {
        self.write(mark, TraceStep::End(end), now);
        self.gone();
    }

    /// Records the first steps of a packet at index `place` of a batch that was just read.
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
        // cycles. A packet without a hash was not parsed at all.
        if packet.hash != 0 {
            tracer.restart();
            std::hint::black_box(parse_again(packet));
            tracer.write(packet.trace, TraceStep::Parsed(work.candidate(place)), now);
        }
    }

    pub(crate) fn gone(&mut self) {
        if let Some(tracer) = &mut self.trace {
            tracer.leave();
        }
    }

    pub(crate) fn note_dropped(&mut self, mark: u16) {
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

    /// Records that this worker has taken over a packet for the kernel from the worker that decided its fate.
    #[cold]
    pub(crate) fn trace_for_kernel(&mut self, packet: &Packet, now: Instant) {
        if let Some(tracer) = &mut self.trace {
            tracer.enter();
            tracer.write(packet.trace, TraceStep::TakenOver, now);
        }
    }

    /// Records that this worker has taken over a finished frame, which enters the queue of its egress port
    /// here.
    #[cold]
    pub(crate) fn trace_taken_over(&mut self, packet: &Packet, ports: &PortTable, now: Instant) {
        let Some(tracer) = &mut self.trace else { return };
        tracer.enter();
        tracer.write(packet.trace, TraceStep::TakenOver, now);
        tracer.write_queued(packet.trace, ports.queue_of(packet), now);
    }

    /// Records the fragmentation of a traced packet. The journey of each fragment ends separately.
    #[cold]
    pub(crate) fn trace_fragmented(&mut self, mark: u16, fragments: usize, now: Instant) {
        if let Some(tracer) = &mut self.trace {
            tracer.write_fragmented(mark, fragments, now);
        }
    }

    /// Records how the journeys of packets for the kernel end. The kernel took the first `taken` packets and
    /// refused the rest.
    #[cold]
    pub(crate) fn trace_handed_back(&mut self, packets: &[Packet], taken: usize) {
        let now = self.drop_log.now();
        for (place, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.trace != 0) {
            let end = if place < taken { TraceEnd::Host } else { TraceEnd::Dropped(DropReason::HostRefused) };
            self.end(packet.trace, end, now);
        }
    }

    /// Records that a packet for the kernel was handed over to the owner of its ingress device.
    #[cold]
    pub(crate) fn trace_handed_over(&mut self, mark: u16) {
        self.write(mark, TraceStep::HandedOver, self.drop_log.now());
        self.gone();
    }
}

impl PortTable {
    /// Returns the [`TraceStep::Queued`] of a packet that enters the queue of its egress port.
    pub(crate) fn queue_of(&self, packet: &Packet) -> TraceStep {
        let entry = self.get(packet.out_port);
        let leaf = self.leaf(packet.out_port, packet.queue);
        let scheduler = entry.and_then(|entry| entry.scheduler.as_ref()).filter(|_| leaf.is_some());
        let before = match scheduler {
            Some(scheduler) => scheduler.backlog(packet).map_or(0, |(_, backlog)| backlog.packets),
            None => entry.map_or(0, |entry| entry.queue.len() as u32),
        };
        TraceStep::Queued { port: packet.out_port, leaf, before }
    }
}

/// Observer of the gates that records the treatment of the only packet of a group.
pub(crate) struct GateWriter<'a> {
    tracer: &'a mut Tracer,
    mark: u16,
    /// Queue of the packet before the next binding.
    queue: QueueId,
    /// Number of directions that instances have given so far.
    directed: usize,
    now: Instant,
}

impl<'a> GateWriter<'a> {
    /// Returns an observer for `packet`, whose trace number is `mark`.
    pub fn new(tracer: &'a mut Tracer, mark: u16, packet: &Packet, now: Instant) -> Self {
        Self { tracer, mark, queue: packet.queue, directed: 0, now }
    }
}

impl Watch for GateWriter<'_> {
    fn after(&mut self, group: &Group<'_>, at: Stop, refusal: Option<Refusal>) {
        let outcome = outcome(group, refusal, &mut self.queue, &mut self.directed);
        self.tracer.write(
            self.mark,
            TraceStep::Gate { gate: at.gate, binding: at.binding, outcome, charged: at.charged },
            self.now,
        );
    }
}

/// Returns the treatment that a binding has given to the only packet of a group.
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
            Taken::End(End::Reject) => StageOutcome::Dropped(DropReason::Plugin),
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
