//! Placement of all services of a configuration as one set (VERA, section 4.4.3): by Balanced, with moves of placed
//! services for refused ones, and by prices if services are refused still.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_admission::component::Component;
use millrace_admission::impact::Candidate;
use millrace_admission::placement::improve::improve;
use millrace_admission::placement::{Placement, Problem, prices};
use millrace_config::{Service, ServiceLevel};
use millrace_plugin_abi::Plugin;

use super::machine::{Machine, Standing};
use super::refusal::largest;
use super::{Demand, LEVELS};
use crate::ControlError;
use crate::model::Model;
use crate::model::placements::PlacedService;

/// Service of a configuration.
pub(crate) struct Configured<'c> {
    /// Name of the instance.
    pub instance: &'c str,
    pub service: Service,
    pub plugin: Arc<dyn Plugin>,
}

/// Places the services of a configuration. A service to which lowered allowances leave no level starts as if there were
/// none: they take away nothing that ran. Returns, for each service, its place, or the reason of its refusal.
///
/// # Errors
/// The router can place no service.
pub(crate) fn place_set(
    model: &Model,
    configured: &[Configured<'_>],
    no_cache: Option<&'static str>,
) -> Result<Vec<Result<PlacedService, ControlError>>, ControlError> {
    let machine = Machine::of(model, no_cache)?;
    let demands: Vec<Demand<'_>> = configured.iter().map(|one| at_start(&machine, one)).collect();
    let candidate = |demand: &Demand<'_>| {
        machine.check_worker(*demand)?;
        machine.candidate(*demand, demand.service.pin())
    };
    let candidates: Vec<_> = demands.iter().map(candidate).collect();
    let problem = problem(&machine, &demands, &candidates);
    let placement = placed(&problem, &machine);
    let mut results = Vec::new();
    for ((demand, candidate), choice) in demands.iter().zip(candidates).zip(&placement.choices) {
        results.push(candidate.and_then(|candidate| {
            let place = choice.and_then(|choice| machine.place(candidate.choices.get(choice)?));
            match place {
                Some(place) => Ok(machine.placed(*demand, place)),
                None => Err(refused(&machine, &demands, (&problem, &placement), *demand)),
            }
        }));
    }
    Ok(results)
}

/// Returns the demand of a service that starts.
fn at_start<'a>(machine: &Machine<'_>, configured: &'a Configured<'_>) -> Demand<'a> {
    let Configured { instance, service, plugin } = configured;
    let demand = Demand::of(instance, &**plugin, *service);
    let mut levels = LEVELS.into_iter().filter(|level| service.pin().is_none_or(|pin| pin == *level));
    let is_permitted = levels.any(|level: ServiceLevel| machine.impossible(level, demand).is_none());
    Demand { is_free: !is_permitted, ..demand }
}

/// Returns the problem of all services beside the promises to principals. Services that can't run at all have no
/// choice.
fn problem(
    machine: &Machine<'_>,
    demands: &[Demand<'_>],
    candidates: &[Result<Candidate, ControlError>],
) -> Problem {
    let promises = machine.promises(demands.iter().copied());
    let pinned: BTreeSet<u16> = demands.iter().filter_map(|demand| demand.service.worker).collect();
    let held = promises.utilization().used();
    let components = machine.room.components(&pinned).into_iter().zip(held).map(|(component, used)| {
        let limit = component.limit;
        let is_bounded = limit.number().is_finite();
        Component { limit: if is_bounded { limit.less(*used) } else { limit }, ..component }
    });
    let none = |demand: &Demand<'_>| Candidate { name: demand.instance.to_owned(), choices: Vec::new() };
    let candidates = candidates.iter().zip(demands);
    Problem {
        components: components.collect(),
        processors: machine.room.hardware.processors.iter().map(|processor| processor.name.clone()).collect(),
        candidates: candidates
            .map(|(candidate, demand)| candidate.as_ref().map_or_else(|_| none(demand), Clone::clone))
            .collect(),
    }
}

/// Places the services: first those that have a single choice.
fn placed(problem: &Problem, machine: &Machine<'_>) -> Placement {
    let mut order: Vec<usize> = (0..problem.candidates.len()).collect();
    let choices = |index: &usize| problem.candidates.get(*index).map_or(0, |one| one.choices.len());
    order.sort_by_key(|index| choices(index) > 1);
    let mut placement = problem.nothing();
    for index in &order {
        let candidate = problem.candidates.get(*index);
        let choose = |candidate| machine.room.algorithm.choose(&placement.utilization, candidate);
        if let Some(choice) = candidate.and_then(choose) {
            placement.put(problem, *index, choice);
        }
    }
    improve(problem, &mut placement);
    let able = order.iter().filter(|index| choices(index) > 0).count();
    if placement.count() < able {
        let priced = prices::place(problem).placement;
        if priced.count() > placement.count() {
            return priced;
        }
    }
    placement
}

/// Returns the error for a service without room beside the placed ones.
fn refused(
    machine: &Machine<'_>,
    demands: &[Demand<'_>],
    (problem, placement): (&Problem, &Placement),
    demand: Demand<'_>,
) -> ControlError {
    let mut promises = machine.promises(demands.iter().copied());
    for ((other, candidate), choice) in demands.iter().zip(&problem.candidates).zip(&placement.choices) {
        let place = choice.and_then(|choice| machine.place(candidate.choices.get(choice)?));
        if let Some(place) = place {
            machine.hold(&mut promises, &Standing { demand: *other, place, is_pinned: true });
        }
    }
    let candidate = |rate| {
        let service = Service { rate, ..demand.service };
        machine.candidate(Demand { service, ..demand }, service.pin())
    };
    match candidate(demand.service.rate) {
        Err(error) => error,
        Ok(wanted) => {
            let fits = |candidate: &Candidate| {
                candidate.choices.iter().any(|choice| promises.utilization().fits(&choice.impact))
            };
            let most = largest(demand.service.rate, |rate| candidate(rate).is_ok_and(|one| fits(&one)));
            machine.refusal(demand, &promises.refusal(&wanted), most)
        }
    }
}
