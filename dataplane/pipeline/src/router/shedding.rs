//! Shedding: a worker whose core work exceeds its share drops plain packets at reception, so that packets with
//! a promise find room in the receive rings.

use millrace_packet::{BATCH_SIZE, DropReason};
use millrace_plugin::PaidStages;
use millrace_plugin_abi::Position;
use millrace_port::Port;
use millrace_units::{Cycles, Instant};

use crate::ingress::steer::steer;
use crate::observe::trace::Pick;
use crate::pending::core_functions::Reception;
use crate::ports::DeviceId;
use crate::router::Router;
use crate::router::journey::proceed;
use crate::router::slices::core_cycles;
use crate::work::{Fate, Work};

/// Reception of a worker that is overloaded.
pub(crate) struct Shedding<'a> {
    router: &'a mut Router,
}

impl<'a> Shedding<'a> {
    pub fn of(router: &'a mut Router) -> Self {
        Self { router }
    }

    /// Takes further batches from a device that had a full one, if the worker is overloaded. Adds the number of
    /// packets to `received`. Returns whether the last batch was full.
    pub fn receive_more(
        &mut self,
        (id, device): (DeviceId, &mut dyn Port),
        work: &mut Work,
        received: &mut usize,
        now: Instant,
    ) -> bool {
        let weight = self.router.ports.input_weight(id);
        for _ in 0..self.router.pending.further_batches() {
            work.packets.set_limit(weight);
            device.receive(&self.router.pool, now, &mut work.packets);
            work.packets.set_limit(BATCH_SIZE);
            let count = work.packets.len();
            if count > 0 {
                *received += count;
                self.process(id, work, now);
            }
            if count < weight {
                return false;
            }
        }
        true
    }

    /// Takes a batch through all stages. Drops the packets to be shed if core has used more than its share, and
    /// the device or another function of core more than its part of it.
    #[inline]
    pub fn process(&mut self, device: DeviceId, work: &mut Work, now: Instant) {
        match self.router.pending.reception_of(device) {
            Reception::Whole => self.router.process(device, work, now),
            sheds => self.process_in_steps(device, work, (sheds == Reception::Shed, now)),
        }
    }

    /// Takes a batch through all stages as [`Router::process`] does, except the packets to be shed, and counts the
    /// time of forwarding if core measures it.
    #[cold]
    fn process_in_steps(&mut self, device: DeviceId, work: &mut Work, (sheds, now): (bool, Instant)) {
        let packets = work.packets.len();
        self.router.arrive(device, work, now);
        let begun = self.router.pending.measures_core().then(|| core_cycles(&self.router.gates)).flatten();
        match sheds {
            false => proceed(self.router, work, now),
            true => self.shed(work, now),
        }
        if let Some(begun) = begun
            && let Some(end) = core_cycles(&self.router.gates)
            && let Some(waiting) = self.router.pending.for_processor.get_mut()
        {
            waiting.core.count_forwarding(Cycles(end.saturating_sub(begun)), packets);
        }
    }

    /// Takes a batch through the stages from classify on, except the packets to be shed. A batch with traced packets
    /// passes whole.
    fn shed(&mut self, work: &mut Work, now: Instant) {
        let Self { router } = self;
        if let Some(tracer) = &mut router.observation.trace
            && !tracer.passes(work.packets.len())
        {
            return router.journey_watched(work, Pick::Chosen, now);
        }
        if let Some(handover) = &router.handover {
            steer(&router.classifier.flows, handover, &router.ports, work);
        }
        self.shed_in_journey(work, now);
    }

    /// Runs the stages from classify on as [`Router::journey`] does, except for the packets to be shed.
    fn shed_in_journey(&mut self, work: &mut Work, now: Instant) {
        let Self { router } = self;
        router.gates.groups.begin();
        let shed = router.classification().classify_or_shed(work, now);
        if let Some(waiting) = router.pending.for_processor.get_mut().filter(|_| shed > 0) {
            waiting.core.counts.shed += shed;
            let shed = (0..work.packets.len())
                .filter(|index| matches!(work.fates[*index], Fate::Drop(DropReason::CoreCeiling)));
            let stages = PaidStages::of(router.gates.plugins());
            let payers = shed.filter_map(|index| stages.owners(work.paths[index]).next());
            payers.for_each(|payer| waiting.note_shed(payer));
        }
        work.note_keys();
        router.settle_from(work, (Position::Early, 0), (), now);
        router.disposal().dispose(work, (), now);
        router.follow_up(now);
        router.classification().keep_flows(now, false);
    }

    /// Runs the stages from classify on for packets of another worker. Drops the packets to be shed if core has
    /// used more than its share.
    #[inline]
    pub fn journey(&mut self, work: &mut Work, now: Instant) {
        match self.router.pending.must_shed() {
            false => self.router.journey(work, now),
            true => self.shed_in_journey(work, now),
        }
    }
}
