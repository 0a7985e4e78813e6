//! Calls and packets that wait for the processor, and the principals that pay for them.

use millrace_units::{Cycles, Instant, PrincipalId, QueueId};

use crate::execution::calls::{Calls, CycleClock, DriverCharge, Grant, InLine, InLineCharge};
use crate::execution::instances::Instances;
use crate::execution::waiting::{PassedOn, Place, Served, Waiting, WaitingRoom};
use crate::execution::worker_plugins::WorkerPlugins;
use crate::principal_memory::PrincipalMemory;

/// Handle of the CPU scheduler's driver on the calls of a worker.
pub struct Payers<'a> {
    calls: &'a mut Calls,
}

impl<'a> Payers<'a> {
    /// Returns the handle on the calls of a worker's instances.
    #[inline]
    pub fn of<T>(plugins: &'a mut WorkerPlugins<T>) -> Self {
        Self { calls: &mut plugins.calls }
    }

    /// Returns the memory of the principals of a worker, to change it.
    #[inline]
    pub fn memory<T>(plugins: &'a mut WorkerPlugins<T>) -> &'a mut PrincipalMemory {
        &mut plugins.calls.memory
    }

    /// Sets the queue of a principal at ports; 0 for none. No verdict puts packets of other principals into it.
    pub fn set_queue(&mut self, principal: PrincipalId, queue: QueueId) {
        self.calls.ports.set_queue(principal, queue);
    }

    /// From now on, a CPU scheduler divides the processor. Before, the worker calls each instance at once.
    /// `clock` measures the processor time of the instances that principals pay for.
    pub fn schedule(&mut self, clock: CycleClock) {
        self.calls.is_scheduled = true;
        self.calls.meter.clock = Some(clock);
    }

    /// Sets the principal that has the processor; `None` for the core work of the worker. Packets at a stage
    /// with another payer wait, see [`take_waiting`](Self::take_waiting).
    #[inline]
    pub fn set_running(&mut self, principal: Option<PrincipalId>) {
        self.calls.running = principal;
    }

    /// Notes that packets of `stage` run from its queue, the first of which began to wait at a time; `None` for packets
    /// of a call that is resumed. They wait again at each later stage with a queue, and at each stage in `occupied`:
    /// there, earlier packets of their flow wait. Stages are given by [`PaidStage::order`](crate::PaidStage::order).
    #[inline]
    pub fn begin_turn(&mut self, stage: Option<(Place, Instant)>, occupied: impl Iterator<Item = u32>) {
        self.calls.turn = stage.map(|(place, _)| place);
        self.calls.waiting.since = stage.map(|(_, arrival)| arrival);
        self.calls.occupied.clear();
        self.calls.occupied.extend(occupied);
        self.calls.meter.start();
    }

    /// Notes that packets continue at an [entry](Waiting::entry); `None` once they have passed the stage.
    #[inline]
    pub fn enter(&mut self, entry: Option<(Place, PassedOn)>) {
        self.calls.entry = entry.filter(|(_, passed_on)| passed_on.is_passed());
    }

    /// Grants the running principal processor time from now on. Its instances may read it.
    #[inline]
    pub fn grant(&mut self, grant: Grant) {
        self.calls.meter.grant(grant);
    }

    /// Notes that no packets from queues run any more. Returns the earliest time at which one of the packets began to
    /// wait for the processor whose calls have ended, or were handed over to another process.
    #[inline]
    pub fn end_turn(&mut self) -> Option<Instant> {
        self.calls.turn = None;
        self.calls.meter.stop();
        self.calls.occupied.clear();
        self.calls.waiting.since.take()
    }

    /// Moves the packets that have begun to wait for the processor to the end of `waiting`.
    #[inline]
    pub fn take_waiting(&mut self, waiting: &mut Vec<Waiting>) {
        waiting.append(&mut self.calls.waiting.for_processor);
    }

    /// Gives each charge for calls in line to `settle`. Where that returns `true`, packets of the principal wait from now
    /// on also before instances whose calls could run in line.
    pub fn settle_in_line(&mut self, settle: impl FnMut(InLineCharge) -> bool) {
        self.calls.in_line.settle(settle);
    }

    /// Charges time that core used for packets which instances of a principal have made, as the time of calls in line.
    /// Nobody pays without a CPU scheduler.
    pub fn charge_made(&mut self, payer: PrincipalId, used: Cycles) {
        if self.calls.is_scheduled {
            self.calls.in_line.add(InLineCharge { payer, used, packets: 0 });
        }
    }

    /// Takes the charges for eBPF variants.
    pub fn take_in_driver(&mut self) -> impl Iterator<Item = DriverCharge> {
        self.calls.in_line.take_in_driver()
    }

    /// Lets packets wait for a principal although their calls could run in line, until
    /// [`keep_held_back`](Self::keep_held_back) ends that.
    pub fn hold_back(&mut self, payer: PrincipalId) {
        self.calls.in_line.hold_back(payer);
    }

    /// Ends that wait for the principals for which `still` returns `false`. Call this only when none of their packets
    /// waits, so that later ones don't overtake them.
    pub fn keep_held_back(&mut self, still: impl FnMut(&PrincipalId) -> bool) {
        self.calls.in_line.retain(still);
    }

    /// Takes the calls of other processes that have ended.
    pub fn take_served(&mut self) -> impl Iterator<Item = Served> {
        self.calls.waiting.served.drain(..)
    }

    /// Lets the calls that a removed principal has paid for continue without a payer, and forgets its earlier ones.
    pub fn forget(&mut self, payer: PrincipalId) {
        self.calls.in_line.forget(payer);
        self.calls.ports.set_queue(payer, QueueId(0));
        self.calls.waiting.forget_payer(payer);
        self.calls.instances.forget_payer(payer);
    }
}

/// Questions about the calls and packets of a worker that wait for the processor.
pub struct Paid<'a> {
    waiting: &'a WaitingRoom,
    instances: &'a Instances,
    in_line: &'a InLine,
}

impl<'a> Paid<'a> {
    /// Returns the handle on the calls of a worker's instances.
    #[inline]
    pub fn of<T>(plugins: &'a WorkerPlugins<T>) -> Self {
        let Calls { waiting, instances, in_line, .. } = &plugins.calls;
        Self { waiting, instances, in_line }
    }

    /// Returns the memory of the principals of a worker.
    #[inline]
    pub fn memory<T>(plugins: &'a WorkerPlugins<T>) -> &'a PrincipalMemory {
        &plugins.calls.memory
    }

    /// Whether packets have begun to wait for the processor, or a principal pays for a call or is held back.
    #[inline]
    pub fn wants_processor(&self) -> bool {
        !self.in_line.is_empty() || !self.waiting.for_processor.is_empty() || self.waiting.has_payers()
    }

    /// Returns the time of all calls in line so far, in cycles. It wraps around.
    #[inline]
    pub fn time_in_line(&self) -> u64 {
        self.in_line.total()
    }

    /// Whether packets of a principal wait although their calls could run in line.
    #[inline]
    pub fn holds_back(&self, payer: PrincipalId) -> bool {
        self.in_line.holds_back(payer)
    }

    /// Returns the principals that pay for suspended calls, for calls that can begin, or for packets that wait
    /// first for the end of another one's call.
    pub fn payers(&self) -> impl Iterator<Item = PrincipalId> + use<'a> {
        self.waiting.payers()
    }

    /// Returns the principal that pays for the call whose end `payer` waits for. An instance makes one call at
    /// a time, so `payer` gives it the processor until its call ends; the other principal pays.
    #[inline]
    pub fn blocker_of(&self, payer: PrincipalId) -> Option<PrincipalId> {
        self.waiting.blocker_of(payer)
    }

    /// Whether the worker has a call to resume when the principal has the processor, or the principal waits
    /// for another one's call.
    #[inline]
    pub fn has_call_of(&self, principal: PrincipalId) -> bool {
        self.waiting.has_call_of(principal)
    }

    /// Whether another process runs a call of an instance or a shadow.
    #[inline]
    pub fn awaits(&self) -> bool {
        self.waiting.awaits() || self.instances.awaits()
    }
}
