//! CPU scheduler: principals, their choice and their accounts.

use std::time::Duration;

use millrace_memory::prefetch_whole_element;
use millrace_units::{Cycles, Instant, PrincipalId};

use super::account::{CpuAccount, Principal};
use super::level::{Debt, Level, discipline, level};
use super::limit::Limit;
use super::server::{ServerShare, Servers, WeightedCapacity};
use super::settings::{
    CpuPrincipal, CpuScheduleError, CpuSchedulerKind, CpuSchedulerSettings, CpuShare, MOST_PRINCIPALS, WHOLE,
};
use super::shares::{ShareLevel, Shares};
use crate::arena::NONE;
use crate::heap::Heap;
use crate::slots::Slots;

/// Time that a principal may use ahead of its share without waiting, in quanta. Its last slice and that of another one
/// alone bring it two ahead.
const MOST_AHEAD: u64 = 4;
/// Period of servers without a deadline, under the kind `edf`.
const PERIOD: Duration = Duration::from_millis(10);

/// CPU scheduler of a worker.
#[derive(Debug)]
pub struct CpuScheduler {
    settings: CpuSchedulerSettings,
    principals: Slots<Option<Principal>>,
    shares: Shares,
    servers: Servers,
    throttled: Heap,
    throttled_positions: Vec<u32>,
    /// Sum of absolute shares, in parts per million.
    reserved: u32,
    /// Sum of all weights.
    weights: u64,
    /// Number of principals that compete for the processor.
    listed: u32,
    is_quiet: bool,
}

impl CpuScheduler {
    /// Creates a scheduler without principals.
    pub fn new(settings: CpuSchedulerSettings) -> Self {
        let (discipline, Cycles(quantum)) = (discipline(settings.kind), settings.quantum);
        let mut scheduler = Self {
            principals: Slots::default(),
            shares: Shares::new(discipline, quantum),
            servers: Servers::new(settings.frequency.max(1)),
            throttled: Heap::default(),
            throttled_positions: Vec::new(),
            reserved: 0,
            weights: 0,
            listed: 0,
            is_quiet: true,
            settings,
        };
        scheduler.divide();
        scheduler
    }

    /// Returns the settings.
    pub fn settings(&self) -> &CpuSchedulerSettings {
        &self.settings
    }

    /// Changes the settings. All principals keep their debts.
    ///
    /// # Errors
    /// When the capacity is below the absolute shares.
    pub fn set(&mut self, settings: CpuSchedulerSettings, now: Instant) -> Result<(), CpuScheduleError> {
        if settings.capacity < self.reserved {
            let (capacity, reserved) = (settings.capacity, self.reserved);
            return Err(CpuScheduleError::Capacity { capacity, reserved });
        }
        let numbers = 0..self.principals.len() as u32;
        let known = numbers.filter(|number| self.principals[*number].is_some());
        // All debts before the first change: virtual time moves when the last member leaves.
        let debts: Vec<Debt> = known.map(|number| self.debt(number, now)).collect();
        for Debt { number, level, .. } in &debts {
            if self.level_under(settings.kind, *number) != *level && self.is_listed(*number) {
                self.delist(*number);
            }
        }
        self.settings = settings;
        self.shares.set_discipline(discipline(settings.kind), settings.quantum.0);
        self.servers.frequency = settings.frequency.max(1);
        self.divide();
        for debt in debts {
            if self.level(debt.number) != debt.level {
                self.enter_level(debt, now);
            }
            self.renew_limit(debt.number, now);
        }
        self.note_quiet();
        Ok(())
    }

    /// Adds a principal without backlog.
    ///
    /// # Errors
    /// When the number is in use or too great, or a setting is invalid.
    pub fn add(&mut self, id: PrincipalId, settings: CpuPrincipal) -> Result<(), CpuScheduleError> {
        let PrincipalId(number) = id;
        if number >= MOST_PRINCIPALS {
            return Err(CpuScheduleError::Id(number));
        }
        if self.principal(id).is_some() {
            return Err(CpuScheduleError::Duplicate(number));
        }
        settings.check(self.settings.capacity.saturating_sub(self.reserved), self.reserved)?;
        self.reserve(number);
        self.shares.reset(number);
        self.count(&settings);
        self.principals[number] = Some(Principal {
            settings,
            limit: self.limit(&settings),
            work_since: None,
            is_throttled: false,
            account: CpuAccount::default(),
        });
        self.place(number, &settings);
        self.divide();
        Ok(())
    }

    /// Changes the settings of a principal. It keeps its account and its debt.
    ///
    /// # Errors
    /// When no principal has the number, or a setting is invalid.
    pub fn change(
        &mut self,
        id: PrincipalId,
        settings: CpuPrincipal,
        now: Instant,
    ) -> Result<(), CpuScheduleError> {
        let PrincipalId(number) = id;
        let Some(old) = self.principal(id).map(|principal| principal.settings) else {
            return Err(CpuScheduleError::Unknown(number));
        };
        let reserved = self.reserved - old.reserved();
        settings.check(self.settings.capacity.saturating_sub(reserved), reserved)?;
        let (debt, pace) = (self.debt(number, now), self.servers.pace(number));
        let moves = level(self.settings.kind, &settings) != debt.level;
        if moves && self.is_listed(number) {
            self.delist(number);
        }
        self.uncount(&old);
        self.count(&settings);
        if let Some(principal) = &mut self.principals[number] {
            principal.settings = settings;
        }
        self.place(number, &settings);
        self.divide();
        match moves {
            true => self.enter_level(debt, now),
            false => self.servers.keep_debt(number, pace, now),
        }
        self.renew_limit(number, now);
        self.note_quiet();
        Ok(())
    }

    /// Removes a principal. Returns its account.
    ///
    /// # Errors
    /// When no principal has the number.
    pub fn remove(&mut self, id: PrincipalId) -> Result<CpuAccount, CpuScheduleError> {
        let PrincipalId(number) = id;
        let Some(principal) = self.principal(id).copied() else {
            return Err(CpuScheduleError::Unknown(number));
        };
        if self.is_listed(number) {
            self.delist(number);
        }
        if principal.is_throttled {
            self.throttled.remove(&mut self.throttled_positions, number);
        }
        self.uncount(&principal.settings);
        self.principals[number] = None;
        self.servers.reset(number);
        self.divide();
        self.note_quiet();
        Ok(principal.account)
    }

    /// Notes that a principal has work. An unknown principal is ignored.
    #[inline]
    pub fn wake(&mut self, id: PrincipalId, now: Instant) {
        if self.principal(id).is_some_and(|principal| principal.work_since.is_none()) {
            self.begin_work(id, now);
        }
    }

    /// Notes that a known principal without work has some.
    fn begin_work(&mut self, id: PrincipalId, now: Instant) {
        let Some(principal) = self.principal_mut(id) else { return };
        principal.work_since = Some(now);
        principal.account.periods += 1;
        if !principal.is_throttled {
            self.enlist(id.0, now);
        }
        self.is_quiet = false;
    }

    /// Notes that a principal has no more work. An unknown principal is ignored.
    #[inline]
    pub fn sleep(&mut self, id: PrincipalId, now: Instant) {
        let Some(principal) = self.principal_mut(id) else { return };
        let Some(since) = principal.work_since.take() else { return };
        principal.account.backlogged += now.since(since);
        if !principal.is_throttled {
            self.delist(id.0);
        }
        self.note_quiet();
    }

    /// Returns the principal that gets the processor next; `None` if no principal may run now.
    #[inline]
    pub fn next(&mut self, now: Instant) -> Option<PrincipalId> {
        self.servers.replenish(now);
        while self.throttled.first_key() <= now.as_nanos()
            && let Some((_, number)) = self.throttled.first()
        {
            self.release(number, now);
        }
        self.note_quiet();
        let number = self.servers.next().or_else(|| self.shares.next());
        number.or_else(|| self.servers.next_on_idle_time()).map(PrincipalId)
    }

    /// Charges a slice that ended at `now` to a principal. Time of a principal without work is free, except for its
    /// limit, while nobody competes for the processor. An unknown principal is ignored.
    #[inline]
    pub fn charge(&mut self, id: PrincipalId, used: Cycles, now: Instant) {
        let (PrincipalId(number), Cycles(cycles), frequency) = (id, used, self.settings.frequency);
        let Some(principal) = self.principal_mut(id) else { return };
        principal.account.used += used;
        let (is_throttled, is_asleep) = (principal.is_throttled, principal.work_since.is_none());
        let until = principal.limit.as_mut().and_then(|limit| limit.charge(used, frequency, now));
        match self.level(number) {
            _ if is_asleep && self.listed == 0 => {}
            Level::Server if is_asleep && !is_throttled => {
                // Its budget may be that of a period that is long over.
                self.servers.join(number, now);
                self.servers.charge(number, cycles);
                self.servers.leave(number);
            }
            Level::Server => self.servers.charge(number, cycles),
            Level::Share(level) => self.shares.charge(level, number, cycles),
        }
        match until {
            Some(until) if is_throttled => {
                self.throttled.update(&mut self.throttled_positions, until.as_nanos(), number);
            }
            Some(until) => self.throttle(number, until),
            None => {}
        }
        self.note_quiet();
    }

    /// Returns principals that get the processor soon, if known, and prefetches them. To be called after each slice.
    #[inline]
    pub fn prefetch_upcoming(&mut self) -> [Option<PrincipalId>; 2] {
        let upcoming = match self.settings.kind {
            CpuSchedulerKind::EarliestDeadline => self.servers.prefetch_upcoming(),
            _ => self.shares.prefetch_upcoming(),
        };
        upcoming.iter().for_each(|number| prefetch_whole_element(self.principals.all(), *number as usize));
        upcoming.map(|number| (number != NONE).then_some(PrincipalId(number)))
    }

    /// Whether some principal with work may run now.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.shares.is_empty() || !self.servers.is_empty()
    }

    /// Whether no principal has work, and none must wait.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    fn note_quiet(&mut self) {
        self.is_quiet = self.is_at_rest();
    }

    pub(super) fn is_at_rest(&self) -> bool {
        let Self { shares, servers, throttled, .. } = self;
        shares.is_empty() & servers.is_empty() & throttled.is_empty() & servers.is_replenished()
    }

    /// Returns the time at which a principal that must wait may run again, if one has to wait.
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        let first = self.throttled.first_key().min(self.servers.next_event());
        (first != u64::MAX).then(|| Instant::from_nanos(first))
    }

    /// Returns the account of a principal at `now`.
    pub fn account(&self, id: PrincipalId, now: Instant) -> Option<CpuAccount> {
        let principal = self.principal(id)?;
        let lasting = principal.work_since.map_or(Duration::ZERO, |since| now.since(since));
        let CpuAccount { backlogged, .. } = principal.account;
        Some(CpuAccount { backlogged: backlogged + lasting, ..principal.account })
    }

    /// Returns the share of a principal as if all had work: a millionth of a processor is 2^40. 1 at least.
    pub fn share(&self, id: PrincipalId) -> u64 {
        self.principal(id).map_or(1, |principal| self.servers.weighted.share(principal.settings.share))
    }

    /// Whether a principal gets the processor once it has work: its limit allows it, and its server has a budget, or
    /// nobody else has work.
    pub fn can_run(&self, id: PrincipalId) -> bool {
        let Some(principal) = self.principal(id) else { return false };
        let has_budget = || self.level(id.0) != Level::Server || self.servers.has_budget(id.0);
        let is_idle = || self.shares.is_empty() && !self.servers.is_one_ready();
        !principal.is_throttled && (has_budget() || is_idle())
    }

    /// Whether a principal may use no more time without waiting for the processor: it is beyond its limit, or others
    /// compete, and it is more than four quanta ahead of its share.
    pub fn is_ahead(&self, id: PrincipalId) -> bool {
        let Some(principal) = self.principal(id) else { return false };
        let others_compete = self.listed > u32::from(self.is_listed(id.0));
        let most = self.settings.quantum.0.saturating_mul(MOST_AHEAD);
        let is_beyond = || match self.level(id.0) {
            Level::Server => !self.servers.has_budget(id.0),
            // Servers come first.
            Level::Share(level) => self.servers.is_one_ready() || self.shares.ahead(level, id.0) > most,
        };
        principal.is_throttled || others_compete && is_beyond()
    }

    #[inline]
    fn principal(&self, PrincipalId(number): PrincipalId) -> Option<&Principal> {
        self.principals.find(number)?.as_ref()
    }

    #[inline]
    fn principal_mut(&mut self, PrincipalId(number): PrincipalId) -> Option<&mut Principal> {
        self.principals.find_mut(number)?.as_mut()
    }

    #[inline]
    fn level(&self, number: u32) -> Level {
        self.level_under(self.settings.kind, number)
    }

    fn level_under(&self, kind: CpuSchedulerKind, number: u32) -> Level {
        self.principals[number]
            .map_or(Level::Share(ShareLevel::Weighted), |principal| level(kind, &principal.settings))
    }

    fn debt(&self, number: u32, now: Instant) -> Debt {
        let level = self.level(number);
        let cycles = match level {
            Level::Server => self.servers.debt(number, now),
            Level::Share(level) => self.shares.debt(level, number),
        };
        Debt { number, level, cycles }
    }

    /// Sets the debt of a principal that its level doesn't list.
    fn set_debt(&mut self, Debt { number, level, cycles }: Debt, now: Instant) {
        match level {
            Level::Server => self.servers.set_debt(number, cycles, now),
            Level::Share(level) => self.shares.set_debt(level, number, cycles),
        }
    }

    /// Moves the debt of a principal from its old level to its present one, and lists it there if it competes.
    fn enter_level(&mut self, debt: Debt, now: Instant) {
        self.set_debt(Debt { cycles: 0, ..debt }, now);
        self.set_debt(Debt { level: self.level(debt.number), ..debt }, now);
        if self.is_listed(debt.number) {
            self.enlist(debt.number, now);
        }
    }

    /// Whether a principal competes for the processor.
    fn is_listed(&self, number: u32) -> bool {
        self.principals[number]
            .is_some_and(|principal| principal.work_since.is_some() && !principal.is_throttled)
    }

    #[inline]
    fn enlist(&mut self, number: u32, now: Instant) {
        self.listed += 1;
        match self.level(number) {
            Level::Server => self.servers.join(number, now),
            Level::Share(level) => self.shares.join(level, number),
        }
    }

    #[inline]
    fn delist(&mut self, number: u32) {
        self.listed -= 1;
        match self.level(number) {
            Level::Server => self.servers.leave(number),
            Level::Share(level) => self.shares.leave(level, number),
        }
    }

    fn throttle(&mut self, number: u32, until: Instant) {
        if self.is_listed(number) {
            self.delist(number);
        }
        if let Some(principal) = &mut self.principals[number] {
            principal.is_throttled = true;
            principal.account.throttled += 1;
        }
        self.throttled.push(&mut self.throttled_positions, until.as_nanos(), number);
    }

    fn release(&mut self, number: u32, now: Instant) {
        self.throttled.remove(&mut self.throttled_positions, number);
        if let Some(principal) = &mut self.principals[number] {
            principal.is_throttled = false;
        }
        if self.is_listed(number) {
            self.enlist(number, now);
        }
    }

    /// Makes room for a principal, so that scheduling allocates nothing.
    fn reserve(&mut self, number: u32) {
        while self.principals.len() <= number as usize {
            self.principals.push(None);
            self.throttled_positions.push(NONE);
        }
        self.throttled.reserve(self.principals.len());
        self.shares.reserve(number);
        self.servers.reserve(number);
    }

    /// Applies the settings to the limit of a principal. It keeps waiting only as long as the new limit asks.
    fn renew_limit(&mut self, number: u32, now: Instant) {
        let CpuSchedulerSettings { quantum, frequency, .. } = self.settings;
        let Some(principal) = &mut self.principals[number] else { return };
        principal.limit = match (principal.limit, principal.settings.limit) {
            (Some(old), Some(parts)) => Some(old.changed(parts, quantum, frequency, now)),
            (_, parts) => parts.map(|parts| Limit::new(parts, quantum, frequency)),
        };
        if !principal.is_throttled {
            return;
        }
        match principal.limit.and_then(|limit| limit.wait(now)) {
            Some(until) => {
                self.throttled.update(&mut self.throttled_positions, until.as_nanos(), number);
            }
            None => self.release(number, now),
        }
    }

    fn limit(&self, settings: &CpuPrincipal) -> Option<Limit> {
        let CpuSchedulerSettings { quantum, frequency, .. } = self.settings;
        settings.limit.map(|parts| Limit::new(parts, quantum, frequency))
    }

    fn count(&mut self, settings: &CpuPrincipal) {
        match settings.share {
            CpuShare::Absolute(parts) => self.reserved += parts,
            CpuShare::Weight(weight) => self.weights += u64::from(weight),
        }
    }

    fn uncount(&mut self, settings: &CpuPrincipal) {
        match settings.share {
            CpuShare::Absolute(parts) => self.reserved -= parts,
            CpuShare::Weight(weight) => self.weights -= u64::from(weight),
        }
    }

    /// Sets the weight of an unlisted principal in each structure that may order it.
    fn place(&mut self, number: u32, settings: &CpuPrincipal) {
        let share = match settings.share {
            CpuShare::Absolute(parts) => {
                self.shares.set_absolute(number, parts);
                ServerShare::Absolute(parts)
            }
            CpuShare::Weight(weight) => {
                self.shares.set_weight(number, weight);
                ServerShare::Weight(weight)
            }
        };
        self.servers.set(number, share, settings.deadline.unwrap_or(PERIOD));
    }

    /// Gives the capacity without reservations to the principals with weights.
    fn divide(&mut self) {
        let parts = self.settings.capacity.min(WHOLE).saturating_sub(self.reserved);
        self.shares.set_share_of_weights(parts);
        self.servers.weighted = WeightedCapacity { parts, weights: self.weights };
    }
}
