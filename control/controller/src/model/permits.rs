//! Levels and processors that allowances permit.

use millrace_config::{Allowance, ServiceLevel};
use millrace_units::here;

use crate::model::placements::Owner;
use crate::model::{Model, PortPlan};

/// Level at which an instance runs, and the only worker that runs it, if it is pinned to one.
pub(crate) type PlaceAt = (ServiceLevel, Option<u16>);

/// Checks that an allowance permits a level and all its processors. `what` names the subject in the error.
pub(crate) fn permits(
    model: &Model,
    allowance: &Allowance,
    what: &str,
    (level, worker): PlaceAt,
) -> Result<(), String> {
    if !allowance.has_level(level) {
        let known = allowance.level.iter().map(|level| level.name());
        return Err(format!("{what} runs at the level {}; {}", level.name(), here("level", known)));
    }
    match processors(model, level, worker).find(|one| !allowance.has_processor(one)) {
        None => Ok(()),
        Some(other) => {
            let known = allowance.processor.iter().map(String::as_str);
            Err(format!("{what} runs on the processor {other:?}; {}", here("processor", known)))
        }
    }
}

/// Returns the reason why the allowances of an instance's owner exclude a level; `None` if they permit it.
pub(crate) fn excluded_for(model: &Model, instance: &str, level: ServiceLevel) -> Option<String> {
    let owner = model.placements.owners.get(instance)?;
    excluded(model, owner, (level, model.placements.worker_of(instance)))
}

/// Returns the reason why the allowances of an owner exclude a level; `None` if they permit it.
pub(crate) fn excluded(model: &Model, owner: &Owner, at: PlaceAt) -> Option<String> {
    let Owner { user, role } = owner;
    let mut all = model.admission.allowance.iter().filter(|one| one.concerns(user, *role));
    let refusing = all.find(|one| permits(model, one, "", at).is_err())?;
    Some(format!("allowance {:?} of {user} excludes it", &*refusing.name))
}

/// Returns the names of the processors of a level; of the level `worker`, only `worker` if it is given.
fn processors(
    model: &Model,
    level: ServiceLevel,
    worker: Option<u16>,
) -> Box<dyn Iterator<Item = String> + '_> {
    match (level, worker) {
        (ServiceLevel::Host, _) => Box::new(std::iter::once("host".to_owned())),
        (ServiceLevel::Worker, Some(worker)) => Box::new(std::iter::once(format!("worker {worker}"))),
        (ServiceLevel::Worker, None) => {
            Box::new((0..model.router.workers).map(|worker| format!("worker {worker}")))
        }
        (ServiceLevel::Offload, _) => {
            let ports = model.ports.iter().filter(|plan| plan.is_kernel());
            Box::new(ports.map(|plan: &PortPlan| format!("xdp {}", plan.settings.name)))
        }
    }
}
