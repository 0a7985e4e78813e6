//! Constant-bandwidth servers (Abeni and Buttazzo, "Integrating Multimedia Applications in Hard Real-Time
//! Systems", 1998) under earliest deadline first, with hard reservations: a server whose budget is used up gets
//! the processor only when nothing else wants it, until its deadline.

use std::time::Duration;

use millrace_memory::{prefetch_slice_element, prefetch_whole_element};
use millrace_units::{Cycles, Instant};

use super::settings::{CpuShare, WHOLE};
use crate::arena::NONE;
use crate::heap::Heap;
use crate::slots::Slots;

/// Share of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServerShare {
    /// Parts per million of the processor.
    Absolute(u32),
    /// Weight in the capacity that absolute shares leave.
    Weight(u32),
}

#[derive(Clone, Copy, Debug)]
struct Server {
    share: ServerShare,
    period: Duration,
    /// Cycles left until the deadline; negative after a slice that was too long.
    budget: i64,
    deadline: Instant,
}

/// Capacity that servers with weights divide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct WeightedCapacity {
    /// Parts per million of the processor.
    pub parts: u32,
    /// Sum of the weights.
    pub weights: u64,
}

impl WeightedCapacity {
    /// Returns a share, if all principals with weights have work: a millionth of a processor is 2^40. 1 at least.
    pub fn share(&self, share: CpuShare) -> u64 {
        let share = match share {
            CpuShare::Absolute(parts) => u128::from(parts) << 40,
            CpuShare::Weight(weight) => {
                (u128::from(self.parts) << 40) * u128::from(weight) / u128::from(self.weights.max(1))
            }
        };
        u64::try_from(share).unwrap_or(u64::MAX).max(1)
    }
}

/// Constant-bandwidth servers, by number of their principal.
#[derive(Debug)]
pub(super) struct Servers {
    servers: Slots<Server>,
    /// Position of each backlogged server in `ready` or `idle`; [`NONE`] without backlog.
    positions: Vec<u32>,
    /// Backlogged servers with a budget, by deadline.
    ready: Heap,
    /// Backlogged servers without a budget, by deadline.
    idle: Heap,
    /// Position of each server without a budget in `exhausted`.
    exhausted_positions: Vec<u32>,
    /// Servers without a budget, backlogged or not, by deadline: then they get a new budget.
    exhausted: Heap,
    /// Server that got the processor on idle time; [`NONE`] if no server did.
    on_idle_time: u32,
    /// Cycles per second of the processor.
    pub frequency: u64,
    pub weighted: WeightedCapacity,
}

impl Servers {
    /// Creates servers at a processor of `frequency` cycles per second.
    pub fn new(frequency: u64) -> Self {
        Self {
            servers: Slots::default(),
            positions: Vec::new(),
            ready: Heap::default(),
            idle: Heap::default(),
            exhausted_positions: Vec::new(),
            exhausted: Heap::default(),
            on_idle_time: NONE,
            frequency,
            weighted: WeightedCapacity::default(),
        }
    }

    /// Adds servers without backlog up to number `server`, so that later calls allocate nothing.
    pub fn reserve(&mut self, server: u32) {
        while self.servers.len() <= server as usize {
            self.servers.push(Server {
                share: ServerShare::Weight(1),
                period: Duration::ZERO,
                budget: 0,
                deadline: Instant::ZERO,
            });
            self.positions.push(NONE);
            self.exhausted_positions.push(NONE);
        }
        for heap in [&mut self.ready, &mut self.idle, &mut self.exhausted] {
            heap.reserve(self.servers.len());
        }
    }

    /// Sets share and period of a server. The budget stays until the deadline.
    pub fn set(&mut self, server: u32, share: ServerShare, period: Duration) {
        let slot = &mut self.servers[server];
        (slot.share, slot.period) = (share, period);
    }

    /// Returns the cycles of a server's share in a period, and the period.
    pub fn pace(&self, server: u32) -> (i64, Duration) {
        (self.full_budget(server), self.servers[server].period)
    }

    /// Lets an exhausted server pay for its debt with its present share, after a change from another pace.
    pub fn keep_debt(&mut self, server: u32, (budget, period): (i64, Duration), now: Instant) {
        let (new_budget, new_period) = self.pace(server);
        if !self.is_exhausted(server) || (budget, period) == (new_budget, new_period) {
            return;
        }
        let slot = &mut self.servers[server];
        // The cycles that the server would get until its deadline, at the old pace.
        let [old, new] = [budget, new_budget].map(|cycles| u128::from(cycles.unsigned_abs().max(1)));
        let cycles = slot.deadline.since(now).as_nanos().saturating_mul(old) / period.as_nanos().max(1);
        let left = cycles.saturating_mul(new_period.as_nanos()) / new;
        slot.deadline = now + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        let deadline = slot.deadline.as_nanos();
        self.postpone(server, deadline);
    }

    /// Forgets the budget of a server without backlog, for a new principal under an old number.
    pub fn reset(&mut self, server: u32) {
        if self.is_exhausted(server) {
            self.exhausted.remove(&mut self.exhausted_positions, server);
        }
        (self.servers[server].budget, self.servers[server].deadline) = (0, Instant::ZERO);
    }

    /// Returns the cycles that a server has used beyond its budget: as many as it waits for.
    pub fn debt(&self, server: u32, now: Instant) -> u64 {
        if !self.is_exhausted(server) {
            return 0;
        }
        let Server { period, budget, deadline, .. } = self.servers[server];
        let left = deadline.since(now).as_nanos().saturating_sub(1);
        let periods = u64::try_from(left / period.as_nanos().max(1)).unwrap_or(u64::MAX);
        let postponed = self.full_budget(server).unsigned_abs().saturating_mul(periods);
        budget.min(0).unsigned_abs().saturating_add(postponed)
    }

    /// Sets the debt of a server without backlog, in cycles. Without debt, the server starts anew.
    pub fn set_debt(&mut self, server: u32, cycles: u64, now: Instant) {
        self.reset(server);
        if cycles > 0 {
            let budget = self.full_budget(server);
            let slot = &mut self.servers[server];
            (slot.budget, slot.deadline) = (budget, now + slot.period);
            self.charge(server, cycles);
        }
    }

    /// Adds a server to the backlogged ones.
    pub fn join(&mut self, server: u32, now: Instant) {
        if self.is_exhausted(server) {
            let deadline = self.servers[server].deadline.as_nanos();
            self.idle.push(&mut self.positions, deadline, server);
            return;
        }
        let full = self.full_budget(server);
        let slot = &mut self.servers[server];
        // The old budget until the old deadline would be more than the share: start a new period.
        let left = slot.deadline.since(now);
        let earned = i128::from(full) * left.as_nanos() as i128;
        if i128::from(slot.budget) * slot.period.as_nanos() as i128 >= earned {
            (slot.budget, slot.deadline) = (full, now + slot.period);
        }
        self.ready.push(&mut self.positions, slot.deadline.as_nanos(), server);
    }

    /// Removes a server from the backlogged ones. An exhausted server stays so until its deadline.
    pub fn leave(&mut self, server: u32) {
        match self.is_exhausted(server) {
            true => self.idle.remove(&mut self.positions, server),
            false => self.ready.remove(&mut self.positions, server),
        }
    }

    /// Whether no server is backlogged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() & self.idle.is_empty()
    }

    /// Whether each server has a budget.
    #[inline]
    pub fn is_replenished(&self) -> bool {
        self.exhausted.is_empty()
    }

    /// Whether the server is backlogged.
    pub fn contains(&self, server: u32) -> bool {
        self.positions.get(server as usize).is_some_and(|position| *position != NONE)
    }

    /// Whether a server has a budget, or gets one when it is backlogged.
    pub fn has_budget(&self, server: u32) -> bool {
        !self.is_exhausted(server)
    }

    /// Whether a backlogged server has a budget.
    pub fn is_one_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the server with a budget and the earliest deadline.
    #[inline]
    pub fn next(&mut self) -> Option<u32> {
        self.on_idle_time = NONE;
        self.ready.first().map(|(_, server)| server)
    }

    /// Returns the server without a budget and with the earliest deadline.
    #[inline]
    pub fn next_on_idle_time(&mut self) -> Option<u32> {
        let (_, server) = self.idle.first()?;
        self.on_idle_time = server;
        Some(server)
    }

    /// Returns up to two servers that get the processor soon, and prefetches them; [`NONE`] for others: one with a
    /// budget, and one that gets a budget soon.
    #[inline]
    pub fn prefetch_upcoming(&mut self) -> [u32; 2] {
        let upcoming = [self.ready.take_risen(), self.exhausted.take_risen()];
        upcoming.iter().for_each(|server| self.prefetch(*server));
        upcoming
    }

    #[inline]
    fn prefetch(&self, server: u32) {
        prefetch_whole_element(self.servers.all(), server as usize);
        prefetch_slice_element(&self.positions, server as usize);
        prefetch_slice_element(&self.exhausted_positions, server as usize);
    }

    /// Charges cycles to a server. Service on idle time costs no budget.
    pub fn charge(&mut self, server: u32, cycles: u64) {
        let is_exhausted = self.is_exhausted(server);
        if is_exhausted && self.on_idle_time == server {
            return;
        }
        let slot = &mut self.servers[server];
        slot.budget = slot.budget.saturating_sub_unsigned(cycles);
        if slot.budget > 0 {
            return;
        }
        self.pay_debt(server);
        let deadline = self.servers[server].deadline.as_nanos();
        if is_exhausted {
            self.postpone(server, deadline);
            return;
        }
        if self.contains(server) {
            self.ready.remove(&mut self.positions, server);
            self.idle.push(&mut self.positions, deadline, server);
        }
        self.exhausted.push(&mut self.exhausted_positions, deadline, server);
    }

    /// Postpones the deadline by the periods whose budgets only pay for the debt of a server. So each
    /// exhausted server is replenished once, however great its debt.
    fn pay_debt(&mut self, server: u32) {
        let full = self.full_budget(server);
        let slot = &mut self.servers[server];
        let periods = slot.budget.unsigned_abs() / full.unsigned_abs();
        slot.budget %= full;
        slot.deadline += slot.period.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX));
    }

    /// Puts an exhausted server in order after its deadline changed.
    fn postpone(&mut self, server: u32, deadline: u64) {
        self.exhausted.update(&mut self.exhausted_positions, deadline, server);
        if self.contains(server) {
            self.idle.update(&mut self.positions, deadline, server);
        }
    }

    /// Gives a new budget to each exhausted server whose deadline has passed.
    #[inline]
    pub fn replenish(&mut self, now: Instant) {
        while self.exhausted.first_key() <= now.as_nanos() && !self.exhausted.is_empty() {
            let Some((_, server)) = self.exhausted.first() else { return };
            self.replenish_one(server, now);
        }
    }

    fn replenish_one(&mut self, server: u32, now: Instant) {
        let full = self.full_budget(server);
        let slot = &mut self.servers[server];
        let period = slot.period.as_nanos().max(1) as u64;
        let periods = 1 + now.since(slot.deadline).as_nanos() as u64 / period;
        let earned = full.saturating_mul(i64::try_from(periods).unwrap_or(i64::MAX));
        slot.budget = slot.budget.saturating_add(earned).min(full);
        slot.deadline += Duration::from_nanos(period.saturating_mul(periods));
        let (budget, deadline) = (slot.budget, slot.deadline.as_nanos());
        if budget <= 0 {
            self.postpone(server, deadline);
            return;
        }
        let is_backlogged = self.contains(server);
        self.exhausted.remove(&mut self.exhausted_positions, server);
        self.prefetch(self.exhausted.risen());
        if is_backlogged {
            self.idle.remove(&mut self.positions, server);
            self.ready.push(&mut self.positions, deadline, server);
        }
    }

    /// Returns the time in nanoseconds at which the next server gets a new budget; the greatest `u64` if none
    /// is exhausted.
    #[inline]
    pub fn next_event(&self) -> u64 {
        self.exhausted.first_key()
    }

    fn is_exhausted(&self, server: u32) -> bool {
        self.exhausted_positions.get(server as usize).is_some_and(|position| *position != NONE)
    }

    /// Returns the cycles of a server's share in a period, at least 1.
    fn full_budget(&self, server: u32) -> i64 {
        let Server { share, period, .. } = self.servers[server];
        let parts = match share {
            ServerShare::Absolute(parts) => u64::from(parts) << 12,
            ServerShare::Weight(weight) => {
                ((u64::from(self.weighted.parts) * u64::from(weight)) << 12) / self.weighted.weights.max(1)
            }
        };
        let Cycles(cycles) = Cycles::in_time(period, self.frequency);
        let budget = u128::from(cycles) * u128::from(parts) / (u128::from(WHOLE) << 12);
        i64::try_from(budget).unwrap_or(i64::MAX).max(1)
    }
}
