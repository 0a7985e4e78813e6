//! Take-over of packets from other workers.

use millrace_packet::{BATCH_SIZE, DropReason};
use millrace_units::{Cycles, Instant};

use crate::handover::{Errand, Handed};
use crate::ingress::steer::read_handed;
use crate::observe::trace::Pick;
use crate::router::Router;
use crate::router::shedding::Shedding;
use crate::router::slices::core_cycles;
use crate::work::Work;

impl Router {
    /// Takes packets over from worker `from`: a batch, and further ones if this worker is overloaded. Returns
    /// their number.
    pub(crate) fn take_over(&mut self, from: usize, work: &mut Work, now: Instant) -> usize {
        let begun = self.pending.measures_core().then(|| core_cycles(&self.gates)).flatten();
        let first = self.take_over_batch(from, work, now);
        let (mut sum, mut latest) = (first, first);
        for _ in 0..self.pending.further_batches() {
            if latest < BATCH_SIZE {
                break;
            }
            latest = self.take_over_batch(from, work, now);
            sum += latest;
        }
        self.pending.note_batches(first == BATCH_SIZE, latest == BATCH_SIZE);
        if sum > 0
            && let Some(begun) = begun
            && let Some(end) = core_cycles(&self.gates)
            && let Some(waiting) = self.pending.for_processor.get_mut()
        {
            waiting.core.count_taken_over(Cycles(end.saturating_sub(begun)), sum);
        }
        sum
    }

    /// Takes a batch over from worker `from`, and runs the errand of each packet. Returns the number of
    /// packets.
    fn take_over_batch(&mut self, from: usize, work: &mut Work, now: Instant) -> usize {
        let Some(mut handover) = self.handover.take() else { return 0 };
        let mut count = 0;
        work.begin();
        while count < BATCH_SIZE
            && let Some(handed) = handover.next(from, &self.pool)
        {
            count += 1;
            self.observation.totals.taken += 1;
            self.unpack(handed, work, now);
        }
        self.handover = Some(handover);
        if !work.packets.is_empty() {
            self.arrivals.0.note(&work.packets);
            self.arrivals.1 = None;
            match self.observation.trace {
                None => Shedding::of(self).journey(work, now),
                Some(_) => self.journey_watched(work, Pick::Marked, now),
            }
        }
        count
    }

    fn unpack(&mut self, mut handed: Handed<'_>, work: &mut Work, now: Instant) {
        let Some(mut packet) = handed.packet.take() else {
            self.observation.totals.dropped += 1;
            return self.ports.count_drop(handed.port, DropReason::NoMemory);
        };
        (packet.port, packet.out_port) = (handed.port, handed.out_port);
        packet.trace = handed.trace;
        match handed.errand {
            Errand::Transmit => {
                (packet.hash, packet.queue) = (handed.hash, handed.queue);
                packet.next_hop = handed.next_hop;
                let (words, _) = handed.counts_for.as_chunks();
                let words = words.iter().map(|word| u64::from_le_bytes(*word));
                packet.counts_for = self.gates.plugins_mut().paths.account_of(words);
                if packet.trace != 0 {
                    self.observation.trace_taken_over(&packet, &self.ports, now);
                }
                self.queueing().queue_here(packet, now);
            }
            Errand::Host => {
                if packet.trace != 0 {
                    self.observation.trace_for_kernel(&packet, now);
                }
                // The kernel needs the whole frame. A frame that doesn't fit is copied once more.
                packet.gather();
                // Control pays for the way to the kernel.
                self.pending.for_processor.end_rest();
                self.punt.for_kernel.push(packet);
            }
            Errand::Flow => read_handed(&self.classifier.flows, packet, &handed, work),
        }
    }
}
