//! Shares of the processor that principals have at the workers.

use std::collections::BTreeMap;

use millrace_config::{CoreOrder, CpuScheduler, Principal, Shed};
use millrace_pipeline::{CONTROL_PART, CoreDivision, CoreSettings, PrincipalCommand, PrincipalSettings};
use millrace_schedule::cpu::{CpuPrincipal, CpuSchedulerKind, CpuSchedulerSettings, CpuShare};
use millrace_units::{Cycles, PrincipalId, QueueId};

use crate::ControlError;
use crate::error::Steps;
use crate::model::Model;
use crate::model::principals::PrincipalIds;
use crate::principals::rounds::Rounds;
use crate::workers::Workers;
use crate::workers::tsc;

/// Parts per million in a whole processor.
const WHOLE: u64 = 1_000_000;

/// Settings that the workers have. A router whose bindings nobody pays for has none.
#[derive(Debug, Default)]
pub(crate) struct WorkerShares {
    scheduler: Option<CpuSchedulerSettings>,
    core: CoreSettings,
    /// Settings of each principal with an equal part of its share at each worker.
    told: BTreeMap<PrincipalId, PrincipalSettings>,
    rounds: Rounds,
}

impl WorkerShares {
    /// Gives the workers the shares of all principals of the model. Call this before the workers get a
    /// binding that a principal pays for, and after each change of principals.
    ///
    /// # Errors
    /// A worker doesn't answer, or refuses a setting.
    pub fn follow(&mut self, model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
        let is_needed = model.plugins.binding_registry().payers().next().is_some();
        if self.scheduler.is_none() && model.principals.is_empty() && !is_needed {
            return Ok(());
        }
        let scheduler = (scheduler_settings(model), core_settings(model));
        let wanted = principal_settings(model, workers.len() as u64, scheduler.0.capacity);
        if self.told == wanted && self.scheduler == Some(scheduler.0) && self.core == scheduler.1 {
            return Ok(());
        }
        let mut steps = Steps::default();
        steps.note(self.rounds.end(&self.told, workers))?;
        let gone: Vec<PrincipalId> =
            self.told.keys().filter(|id| !wanted.contains_key(*id)).copied().collect();
        for id in gone {
            steps.note(workers.tell(|| PrincipalCommand::Remove(id)))?;
            self.told.remove(&id);
        }
        // A capacity that shrinks takes effect after the shares that shrink with it.
        let shrinks = self.scheduler.is_some_and(|told| told.capacity > scheduler.0.capacity);
        if !shrinks {
            steps.note(self.configure(scheduler, workers))?;
        }
        let mut changed: Vec<_> =
            wanted.into_iter().filter(|(id, settings)| self.told.get(id) != Some(settings)).collect();
        // Shares that shrink come first, because the others may need what they leave.
        changed.sort_by_key(|(id, settings)| reserved(settings) > self.told.get(id).map_or(0, reserved));
        for (id, settings) in changed {
            let answers = steps.note(workers.ask(|reply| PrincipalCommand::Set(id, settings, reply)))?;
            let mut answers = answers.into_iter().flatten();
            answers.try_for_each(|answer| answer.map_err(|error| refused(&error, model, id)))?;
            self.told.insert(id, settings);
        }
        steps.note(self.configure(scheduler, workers))?;
        steps.end()
    }

    /// Divides the shares over several workers by the work there. Returns whether anybody has a share to
    /// divide. Call this about every 10 ms if so.
    ///
    /// # Errors
    /// A worker takes no commands.
    pub fn divide(&mut self, model: &Model, workers: &mut Workers) -> Result<bool, ControlError> {
        let registry = model.plugins.binding_registry();
        let Some(scheduler) = self.scheduler.filter(|_| workers.len() > 1) else { return Ok(false) };
        let payers = || self.told.iter().filter(|(id, _)| registry.paid_by(**id) > 0);
        if payers().next().is_none() {
            return Ok(false);
        }
        self.rounds.next(payers(), &scheduler, workers)?;
        Ok(true)
    }

    fn configure(
        &mut self,
        (wanted, core): (CpuSchedulerSettings, CoreSettings),
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        if self.scheduler == Some(wanted) && self.core == core {
            return Ok(());
        }
        let mut steps = Steps::default();
        let answers = steps.note(workers.ask(|reply| PrincipalCommand::Configure(wanted, core, reply)))?;
        answers
            .into_iter()
            .flatten()
            .collect::<Result<(), _>>()
            .map_err(|error| ControlError::System(error.to_string()))?;
        (self.scheduler, self.core) = (Some(wanted), core);
        steps.end()
    }

    /// Returns the promises to core and control, and to the principals that pay for bindings.
    pub fn promised(&self, model: &Model, workers: usize) -> Vec<(PrincipalId, Promised)> {
        let Some(scheduler) = self.scheduler else { return Vec::new() };
        let registry = model.plugins.binding_registry();
        let payers = || self.told.iter().filter(|(id, _)| registry.paid_by(**id) > 0);
        let percent = |ppm: f64| ppm * workers as f64 / 10_000.0;
        let taken: u32 = payers().map(|(_, settings)| reserved(settings)).sum();
        let weights: u64 = payers().map(|(_, settings)| u64::from(weight(settings))).sum();
        let rest = f64::from(scheduler.capacity.saturating_sub(taken));
        let promise = |(id, settings): (&PrincipalId, &PrincipalSettings)| {
            let share = match settings.cpu.share {
                CpuShare::Absolute(share) => f64::from(share),
                CpuShare::Weight(weight) => rest * f64::from(weight) / weights as f64,
            };
            let promised = Promised {
                share: percent(share),
                is_reserved: reserved(settings) > 0,
                limit: settings.cpu.limit.map(|limit| percent(limit.into())),
                most: f64::from(scheduler.capacity) / 10_000.0,
                frequency: scheduler.frequency,
                slice: scheduler.quantum.0 as f64 / scheduler.frequency as f64,
            };
            (*id, promised)
        };
        let core = WHOLE as f64 - f64::from(scheduler.capacity);
        let built_in = |share: f64| Promised {
            share: percent(share),
            is_reserved: true,
            limit: None,
            most: share / 10_000.0,
            frequency: scheduler.frequency,
            slice: scheduler.quantum.0 as f64 / scheduler.frequency as f64,
        };
        let control = built_in(core / CONTROL_PART as f64);
        payers()
            .map(promise)
            .chain([(PrincipalId::CORE, built_in(core)), (PrincipalId::CONTROL, control)])
            .collect()
    }
}

/// Promise to a principal that pays for bindings. Percentages are of one processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promised {
    /// Share in percent: reserved, or by its weight when all others need theirs.
    pub share: f64,
    /// Whether the share is reserved.
    pub is_reserved: bool,
    /// Upper limit in percent.
    pub limit: Option<f64>,
    /// Largest share at one worker in percent.
    pub most: f64,
    /// Cycles per second of the accounts.
    pub frequency: u64,
    /// Length of a slice in seconds.
    pub slice: f64,
}

impl Promised {
    /// Returns the share in percent, up to the limit.
    pub fn share_within_limit(&self) -> f64 {
        self.limit.map_or(self.share, |limit| self.share.min(limit))
    }

    /// Returns the duration of cycles, in seconds.
    pub fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / self.frequency as f64
    }
}

fn weight(settings: &PrincipalSettings) -> u32 {
    match settings.cpu.share {
        CpuShare::Absolute(_) => 0,
        CpuShare::Weight(weight) => weight,
    }
}

fn refused(error: &impl std::fmt::Display, model: &Model, id: PrincipalId) -> ControlError {
    ControlError::conflict(format!("principal {:?}: {error}", model.principal_ids.name(id)))
}

fn core_settings(model: &Model) -> CoreSettings {
    CoreSettings {
        order: match model.router.core {
            CoreOrder::First => millrace_pipeline::CoreOrder::First,
            CoreOrder::Share | CoreOrder::ShareByInput | CoreOrder::ShareByFunction => {
                millrace_pipeline::CoreOrder::Share
            }
        },
        division: match model.router.core {
            CoreOrder::First => CoreDivision::Undivided,
            CoreOrder::Share => CoreDivision::ByLoad,
            CoreOrder::ShareByInput => CoreDivision::ByInput,
            CoreOrder::ShareByFunction => CoreDivision::ByFunction,
        },
        forwarding_weight: model.router.forwarding_weight,
        shed: match model.router.shed {
            Shed::Nothing => millrace_pipeline::Shed::Nothing,
            Shed::NewFlows => millrace_pipeline::Shed::NewFlows,
            Shed::Plain => millrace_pipeline::Shed::Plain,
            Shed::ByWeight => millrace_pipeline::Shed::ByWeight,
        },
    }
}

fn scheduler_settings(model: &Model) -> CpuSchedulerSettings {
    let frequency = tsc::frequency();
    let slice = model.fixed.plugins.slice.microseconds();
    CpuSchedulerSettings {
        kind: match model.router.cpu_scheduler {
            CpuScheduler::StartTimeFair => CpuSchedulerKind::StartTimeFair,
            CpuScheduler::WorstCaseFair => CpuSchedulerKind::WorstCaseFair,
            CpuScheduler::Stride => CpuSchedulerKind::Stride,
            CpuScheduler::EarliestDeadline => CpuSchedulerKind::EarliestDeadline,
        },
        quantum: Cycles((frequency / 1_000_000 * slice).max(1)),
        frequency,
        capacity: (WHOLE - u64::from(model.router.core_ceiling.ppm())) as u32,
    }
}

/// Returns the settings of each principal at a worker, also of the principals of services, which have the admitted time.
/// A principal that pays for no binding reserves nothing there.
///
/// A transaction may need more than the capacity between two of its steps. All shares are scaled down then.
fn principal_settings(
    model: &Model,
    workers: u64,
    capacity: u32,
) -> BTreeMap<PrincipalId, PrincipalSettings> {
    let registry = model.plugins.binding_registry();
    let share = |id: PrincipalId, reserved: u64| match reserved == 0 || registry.paid_by(id) == 0 {
        true => 0,
        false => (reserved / workers).max(1),
    };
    let placed = model.placements.services.iter().filter(|placed| placed.has_principal());
    let admitted: BTreeMap<&str, u64> = placed.map(|one| (&*one.instance, one.used.worker)).collect();
    // A service that has lost its load pays until its bindings have another payer.
    let services = model.principal_ids.services();
    let services =
        services.map(|(instance, id)| (id, None, admitted.get(instance).copied().unwrap_or_default()));
    let configured = model.principals.iter().filter_map(|one| {
        let reserved = one.reserved_cpu().map_or(0, |cpu| u64::from(cpu.ppm()));
        Some((model.principal_ids.id(&one.name)?, Some(one), reserved))
    });
    let shares: Vec<_> = configured.chain(services).map(|(id, one, all)| (id, one, share(id, all))).collect();
    let sum: u64 = shares.iter().map(|(.., share)| share).sum();
    let mut all = BTreeMap::from([(PrincipalIds::DEFAULT, settings(None, 0, workers))]);
    for (id, one, share) in shares {
        let scaled = share * u64::from(capacity) / sum.max(u64::from(capacity));
        let link_queue = one.map_or(QueueId(0), |one| model.schedulers.queue_of_principal(&one.name));
        all.insert(id, PrincipalSettings { link_queue, ..settings(one, scaled as u32, workers) });
    }
    all
}

/// Returns the settings of a principal, except its queue at ports. `share` is in parts per million of one processor, or 0
/// for a share by weight. `None` stands for `default` and for the principal of a service.
fn settings(principal: Option<&Principal>, share: u32, workers: u64) -> PrincipalSettings {
    let weight = principal.and_then(|one| one.weight).unwrap_or(Principal::USUAL_WEIGHT);
    let limit = principal.and_then(|one| one.cpu_limit);
    let queue = principal.and_then(|one| one.queue);
    let limit = limit.map(|limit| (u64::from(limit.ppm()) / workers).clamp(1, u64::from(u32::MAX)) as u32);
    PrincipalSettings {
        cpu: CpuPrincipal {
            share: if share > 0 { CpuShare::Absolute(share) } else { CpuShare::Weight(weight) },
            limit: limit.map(|limit| limit.max(share)).filter(|limit| u64::from(*limit) < WHOLE),
            deadline: principal
                .and_then(|one| one.deadline)
                .filter(|_| share > 0)
                .map(|time| time.duration()),
        },
        queue: queue.map_or(Principal::USUAL_QUEUE as u32, |queue| queue.bytes_u32()),
        link_queue: QueueId(0),
    }
}

fn reserved(settings: &PrincipalSettings) -> u32 {
    match settings.cpu.share {
        CpuShare::Absolute(share) => share,
        CpuShare::Weight(_) => 0,
    }
}
