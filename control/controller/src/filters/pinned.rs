//! Bindings of instances that are pinned to a worker. A packet takes its whole path at one worker, so that its path
//! has no two instances that are pinned to different workers.

use millrace_classify::{CompiledExpression, overlap};
use millrace_config::Service;
use millrace_plugin::Gate;
use millrace_plugin_abi::Position;

use crate::ControlError;
use crate::model::Model;

/// Checks a binding of an instance that is pinned to a worker.
///
/// # Errors
/// The gate lets copies wait, which have no worker; or the filter matches packets of an instance that is pinned to
/// another worker, at another gate.
pub(crate) fn check(
    model: &Model,
    (instance, worker): (&str, u16),
    gate: &Gate,
    filter: &CompiledExpression,
) -> Result<(), ControlError> {
    if gate.position == Position::Queue {
        return Err(ControlError::conflict(format!(
            "instance {instance:?} is pinned to worker {worker}, but copies pass gate {:?} at the worker that made \
             them: bind the instance at another position, or move it with `instance move {instance} --worker auto`",
            gate.name
        )));
    }
    for (_, bound) in model.plugins.bindings_by_age().filter(|(_, bound)| bound.gate != gate.id) {
        let Some(other) = bound.action.instance().map(|id| model.plugins.instance_name(id)) else { continue };
        let Some(elsewhere) = model.placements.worker_of(other).filter(|other| *other != worker) else {
            continue;
        };
        let pairs = filter.alternatives().iter().map(|one| (one, bound.compiled.alternatives()));
        let mut pairs = pairs.flat_map(|(one, others)| others.iter().map(move |other| (one, other)));
        if other != instance && pairs.any(|(one, other)| overlap(one, other)) {
            return Err(ControlError::conflict(format!(
                "instance {instance:?} is pinned to worker {worker}, but instance {other:?}, which is pinned to worker \
                 {elsewhere}, gets some of the same packets at gate {:?}: pin both to the same worker",
                model.plugins.gate_name(bound.gate)
            )));
        }
    }
    Ok(())
}

/// Checks all bindings of an instance that gets a load and level. Returns whether another worker runs it then.
///
/// # Errors
/// The errors of [`check`].
pub(crate) fn check_move(model: &Model, instance: &str, to: Option<Service>) -> Result<bool, ControlError> {
    let worker = to.and_then(|service| service.worker);
    let is_moved = model.placements.worker_of(instance) != worker;
    if let Some(worker) = worker.filter(|_| is_moved) {
        check_all(model, instance, worker)?;
    }
    Ok(is_moved)
}

/// Checks all bindings of an instance that is to be pinned to a worker.
fn check_all(model: &Model, instance: &str, worker: u16) -> Result<(), ControlError> {
    let id = model.plugins.instance(instance)?;
    let own = model.plugins.bindings_by_age().filter(|(_, bound)| bound.action.instance() == Some(id));
    for (_, bound) in own {
        let gate = model.plugins.gate(model.plugins.gate_name(bound.gate))?;
        check(model, (instance, worker), gate, &bound.compiled)?;
    }
    Ok(())
}
