//! Packets that wait for the processor, and the principals that pay for it.

use std::time::Duration;

use millrace_plugin::Waiting;
use millrace_schedule::FlowNumber;
use millrace_schedule::cpu::{
    CpuPrincipal, CpuQueueLimits, CpuQueues, CpuScheduleError, CpuScheduler, CpuSchedulerSettings,
};
use millrace_units::{Cycles, Instant, PathId, PrincipalId};

/// Limits of all packets of a worker that wait for the processor.
const LIMITS: CpuQueueLimits = CpuQueueLimits { packets: 1 << 14, bytes: 1 << 25, flows: 1 << 12 };
/// Maximum number of packets in a slice.
const MOST_IN_SLICE: u64 = 64;

/// Settings of a principal at a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrincipalSettings {
    /// Share of the processor.
    pub cpu: CpuPrincipal,
    /// Maximum number of bytes that wait in a flow queue.
    pub queue: u32,
}

/// Counters of a principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrincipalCounts {
    /// Processor time used.
    pub used: Cycles,
    /// Time during which the principal had work, summed over workers.
    pub backlogged: Duration,
    /// Times that the limit stopped the principal.
    pub throttled: u64,
    /// Packets that got the processor.
    pub packets: u64,
    /// Packets that wait for the processor.
    pub waiting: u32,
    /// Bytes of these packets.
    pub waiting_bytes: u64,
    /// Packets dropped because too many waited.
    pub dropped: u64,
}

impl PrincipalCounts {
    /// Returns the cycles used since earlier counters, and the seconds with work. A principal that was removed
    /// and added again starts from zero.
    pub fn since(&self, earlier: &Self) -> (u64, f64) {
        match self.used >= earlier.used && self.backlogged >= earlier.backlogged {
            true => (self.used.0 - earlier.used.0, (self.backlogged - earlier.backlogged).as_secs_f64()),
            false => (self.used.0, self.backlogged.as_secs_f64()),
        }
    }
}

/// Principal of a worker.
#[derive(Debug)]
struct Known {
    id: PrincipalId,
    /// Moving average of the cycles of a packet.
    cost: u64,
    packets: u64,
}

/// Principals of a worker: their shares of the processor, and the packets that wait for it.
#[derive(Debug)]
pub(crate) struct ForProcessor {
    pub scheduler: CpuScheduler,
    queues: CpuQueues<Waiting>,
    /// Principals in ascending order of ids.
    principals: Vec<Known>,
    /// Packets that have begun to wait. Scratch memory.
    pub arrived: Vec<Waiting>,
}

impl ForProcessor {
    /// Creates queues without principals. `seed` keys the hash of flows.
    pub fn new(settings: CpuSchedulerSettings, seed: u64) -> Self {
        Self {
            queues: CpuQueues::new(LIMITS, settings.quantum, seed),
            scheduler: CpuScheduler::new(settings),
            principals: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// Adds a principal, or changes its settings.
    ///
    /// # Errors
    /// When a setting is invalid, or the absolute shares exceed the capacity.
    pub fn set(
        &mut self,
        id: PrincipalId,
        settings: PrincipalSettings,
        now: Instant,
    ) -> Result<(), CpuScheduleError> {
        match self.principals.binary_search_by_key(&id, |known| known.id) {
            Ok(_) => self.scheduler.change(id, settings.cpu, now)?,
            Err(place) => {
                self.scheduler.add(id, settings.cpu)?;
                // A first packet alone, since its cost is not known.
                let Cycles(cost) = self.scheduler.settings().quantum;
                self.principals.insert(place, Known { id, cost, packets: 0 });
            }
        }
        self.queues.set(id, settings.queue);
        Ok(())
    }

    /// Removes a principal. Returns its waiting packets, flow by flow in the order of arrival.
    pub fn remove(&mut self, id: PrincipalId) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        self.queues.remove(id, |packet| waiting.push(packet));
        // Unknown principals have nothing to remove.
        let _ = self.scheduler.remove(id);
        self.principals.retain(|known| known.id != id);
        waiting
    }

    /// Takes all packets that wait for a principal out of its queues, flow by flow in the order of arrival.
    pub fn drain(&mut self, id: PrincipalId, out: &mut Vec<Waiting>) {
        while self.queues.is_backlogged(id) {
            self.queues.take(id, |_| true, |packet| out.push(packet));
            self.queues.charge(id, Cycles(0));
        }
    }

    /// Queues a packet. Its principal has work from now on.
    ///
    /// # Errors
    /// The packet, if too many wait, or it has no known principal.
    pub fn push(&mut self, waiting: Waiting, now: Instant) -> Result<(), Waiting> {
        let Some(payer) = waiting.payer else { return Err(waiting) };
        // Flows of several principals may have the same hash.
        let flow = FlowNumber(waiting.packet.hash ^ payer.0.wrapping_mul(0x9E37_79B1));
        let length = waiting.packet.len() as u32;
        self.queues.push(payer, flow, (waiting, length), now).map_err(|(waiting, _)| waiting)?;
        self.scheduler.wake(payer, now);
        Ok(())
    }

    /// Takes packets of one flow at one stage for a slice of the principal, and gives them to `out`. Returns
    /// their number. With `alone`, takes one packet.
    pub fn take(&mut self, id: PrincipalId, alone: bool, mut out: impl FnMut(Waiting)) -> u64 {
        let most = match self.known(id) {
            Some(known) if !alone => {
                (self.scheduler.settings().quantum.0 / known.cost.max(1)).clamp(1, MOST_IN_SLICE)
            }
            _ => 1,
        };
        let (mut place, taken) = (None, std::cell::Cell::new(0));
        self.queues.take(
            id,
            |next| taken.get() < most && *place.get_or_insert(next.place) == next.place,
            |waiting| {
                taken.set(taken.get() + 1);
                out(waiting);
            },
        );
        taken.get()
    }

    /// Charges a slice with this number of packets to a principal.
    pub fn charge(&mut self, id: PrincipalId, (used, packets): (Cycles, u64), now: Instant) {
        self.scheduler.charge(id, used, now);
        self.queues.charge(id, used);
        if let Some(upcoming) = self.scheduler.prefetch_upcoming() {
            self.queues.prefetch(upcoming);
        }
        if let Some(known) = self.known_mut(id).filter(|_| packets > 0) {
            known.packets += packets;
            known.cost = (known.cost * 7 + used.0 / packets) / 8;
        }
    }

    /// Whether no packet waits, and no principal has a call or an event that is due.
    #[inline]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.queues.is_empty()
            && !self.scheduler.has_work()
            && self.scheduler.next_event().is_none_or(|event| event > now)
    }

    /// Whether packets wait for the principal.
    pub fn is_backlogged(&self, id: PrincipalId) -> bool {
        self.queues.is_backlogged(id)
    }

    /// Returns the number of waiting packets.
    pub fn len(&self) -> usize {
        self.queues.len() + self.arrived.len()
    }

    /// Returns the principals.
    pub fn ids(&self) -> impl Iterator<Item = PrincipalId> {
        self.principals.iter().map(|known| known.id)
    }

    /// Returns the paths of the waiting packets: of their stages, and of the bindings that count them.
    pub fn paths(&self) -> impl Iterator<Item = PathId> {
        self.queues.iter().flat_map(|waiting| [waiting.place.path, waiting.packet.counts_for])
    }

    /// Returns the counters of each principal at `now`.
    pub fn counts(&self, now: Instant) -> impl Iterator<Item = (PrincipalId, PrincipalCounts)> {
        self.principals.iter().map(move |known| {
            let (waiting, waiting_bytes, dropped) = self.queues.load(known.id);
            let account = self.scheduler.account(known.id, now).unwrap_or_default();
            let counts = PrincipalCounts {
                used: account.used,
                backlogged: account.backlogged,
                throttled: account.throttled,
                packets: known.packets,
                waiting,
                waiting_bytes,
                dropped,
            };
            (known.id, counts)
        })
    }

    /// Returns the time at which a principal next gets the processor: `now` if one has work.
    #[inline]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        if self.scheduler.has_work() { Some(now) } else { self.scheduler.next_event() }
    }

    fn known(&self, id: PrincipalId) -> Option<&Known> {
        self.principals.get(self.principals.binary_search_by_key(&id, |known| known.id).ok()?)
    }

    fn known_mut(&mut self, id: PrincipalId) -> Option<&mut Known> {
        let place = self.principals.binary_search_by_key(&id, |known| known.id).ok()?;
        self.principals.get_mut(place)
    }
}
