//! Placement of services: chooses the level at which an instance with a declared load runs.

pub(crate) mod loads;
mod machine;
pub(crate) mod ring;
mod worker_use;

use millrace_admission::impact::Choice;
use millrace_admission::levels::HOST;
use millrace_config::{Service, ServiceLevel};
use millrace_plugin_abi::{Plugin, Runtime};

use self::machine::{Machine, Standing, cost};
use super::time::WHOLE;
use crate::ControlError;
use crate::flows::flow_cache::why_no_cache;
use crate::model::placements::{Owner, PlacedService, Placements, Used};
use crate::model::{Model, PortPlan};
use crate::view::{ClaimView, ComponentView};

/// Size of packets of a service that declares none, in bytes.
const USUAL_SIZE: u32 = 1_538;
/// Largest number of services that move to make room for another.
const MOST_MOVES: usize = 2;
/// Parts per million in a whole processor.
const PARTS: f64 = WHOLE as f64;

/// Levels in the order of the distance from the ports.
pub(crate) const LEVELS: [ServiceLevel; 3] =
    [ServiceLevel::Offload, ServiceLevel::Worker, ServiceLevel::Host];

/// Place of a service, and the moves that make room for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    pub placed: PlacedService,
    /// Instances that move, with their new places.
    pub moves: Vec<(String, Place)>,
}

/// Level of a service, and what it uses there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub level: ServiceLevel,
    used: Used,
}

/// Service to place.
#[derive(Clone, Copy)]
pub(crate) struct Demand<'a> {
    /// Name of the instance.
    pub instance: &'a str,
    pub plugin: &'a dyn Plugin,
    /// Runtime that the plugin has, or gets by a move.
    pub runtime: Runtime,
    pub service: Service,
    /// Owner of a new instance; that of a known instance is in the model.
    pub owner: Option<&'a Owner>,
}

impl<'a> Demand<'a> {
    /// Returns the service of an instance whose plugin keeps its runtime.
    pub fn of(instance: &'a str, plugin: &'a dyn Plugin, service: Service) -> Self {
        Self { instance, plugin, runtime: plugin.runtime(), service, owner: None }
    }

    /// Returns the service of a new instance with an owner.
    pub fn owned_by(self, owner: Option<&'a Owner>) -> Self {
        Self { owner, ..self }
    }
}

/// Chooses the level of a service on a router. `no_cache` is the reason why no flow is offloaded. A service of the
/// same name that is placed already doesn't count.
///
/// # Errors
/// The service is invalid, its level is impossible for its plugin, an allowance of its owner excludes the level, or no
/// level has room.
pub(crate) fn decide(
    model: &Model,
    demand: Demand<'_>,
    no_cache: Option<&'static str>,
) -> Result<Decision, ControlError> {
    decide_on(&Machine::of(model, no_cache)?, model, demand)
}

fn decide_on(machine: &Machine<'_>, model: &Model, demand: Demand<'_>) -> Result<Decision, ControlError> {
    let others = model.placements.services.iter().filter(|placed| placed.instance != demand.instance);
    let placed = others.map(|placed| Ok((placed, model.plugins.plugin_named(placed.plugin)?)));
    let placed = placed.collect::<Result<Vec<_>, ControlError>>()?;
    let placed: Vec<Standing<'_>> = placed
        .iter()
        .map(|(placed, plugin)| {
            let is_pinned = placed.service.pin().is_some();
            let demand = Demand::of(&placed.instance, &**plugin, placed.service);
            Standing { demand, place: Place { level: placed.level, used: placed.used }, is_pinned }
        })
        .collect();
    machine.decide(&placed, demand)
}

/// Refuses a service for an instance whose packets a placement already pins to a level.
///
/// # Errors
/// Names the placement, and how to remove it.
pub(crate) fn refuse_placed(
    model: &Model,
    instance: &str,
    service: Option<Service>,
) -> Result<(), ControlError> {
    match service.and(model.placements.pin(instance)) {
        None => Ok(()),
        Some(_) => Err(ControlError::conflict(format!(
            "instance {instance:?} has a placement, which decides its level: remove it first with \
             `place \"instance {instance}\" auto`"
        ))),
    }
}

/// Admits a service of an instance that exists, with the moves that make room for it; `None` removes it. Returns
/// whether the level of an instance has changed.
///
/// # Errors
/// The errors of [`decide`].
pub(crate) fn place(
    model: &mut Model,
    instance: &str,
    service: Option<Service>,
    no_cache: Option<&'static str>,
) -> Result<bool, ControlError> {
    let level = |model: &Model| model.placements.service(instance).map(|placed| placed.level);
    let before = level(model);
    let Some(service) = service else {
        model.placements.remove_service(instance);
        return Ok(before.is_some());
    };
    let plugin = model.plugins.plugin_of(instance)?;
    let decision = decide(model, Demand::of(instance, &*plugin, service), no_cache)?;
    Ok(decision.carry_out(&mut model.placements) || before != level(model))
}

/// Admits a service of a configuration at the start, like [`place`]. A service to which lowered allowances leave no
/// level starts as if there were none: they take away nothing that ran.
///
/// # Errors
/// The errors of [`decide`].
pub(crate) fn place_configured(
    model: &mut Model,
    instance: &str,
    service: Service,
    no_cache: Option<&'static str>,
) -> Result<(), ControlError> {
    let plugin = model.plugins.plugin_of(instance)?;
    let demand = Demand::of(instance, &*plugin, service);
    let decision = decide_on(&Machine::of(model, no_cache)?.at_start(demand), model, demand)?;
    decision.carry_out(&mut model.placements);
    Ok(())
}

impl Decision {
    /// Records the decision in the placements. Returns whether another instance moves.
    pub fn carry_out(self, placements: &mut Placements) -> bool {
        placements.put(self.placed);
        for (name, Place { level, used }) in &self.moves {
            for placed in placements.services.iter_mut().filter(|placed| placed.instance == *name) {
                (placed.level, placed.used) = (*level, *used);
            }
        }
        !self.moves.is_empty()
    }
}

/// Returns the reason why no flow is offloaded with the configured settings; `None` where flows may be.
pub(crate) fn planned_cache(model: &Model) -> Option<&'static str> {
    why_no_cache(model.ports.iter().any(PortPlan::is_kernel), model.router.offloaded_flows)
}

/// Returns the components of the levels beside the workers; none without services.
pub(super) fn levels(model: &Model, services: &[PlacedService]) -> Vec<ComponentView> {
    if services.is_empty() {
        return Vec::new();
    }
    let Ok(machine) = Machine::of(model, planned_cache(model)) else { return Vec::new() };
    // A service stays where it is when an allowance changes.
    let machine = Machine { owners: None, ..machine };
    let impacts: Vec<_> = services
        .iter()
        .filter_map(|placed| Some((placed, choice(&machine, model, placed)?.impact)))
        .collect();
    let levels = &machine.levels;
    let variants = levels.offload.map_or(0.0, |level| f64::from(level.variants));
    let host = levels.host / machine.frequency * 100.0;
    let described = [
        (HOST, "host", "%", host),
        ("ring.packets", "ring", "transfers/s", levels.ring.transfers_per_second),
        ("offload.code", "offload", "eBPF variants", variants),
    ];
    let view = |(name, component, unit, whole): (&str, &str, &'static str, f64)| {
        let index = machine.hardware.component(name)?;
        let claims = impacts.iter().filter_map(|(placed, impact)| {
            let amount = impact.of(index).number() * whole;
            let by = format!("instance {}", placed.instance);
            (amount > 0.0).then_some(ClaimView { by, amount })
        });
        let claims: Vec<_> = claims.collect();
        let promised = claims.iter().map(|claim| claim.amount).sum();
        let component = ComponentView {
            component: component.to_owned(),
            unit,
            whole: Some(whole),
            promised,
            left: None,
            claims,
        };
        Some(component.complete())
    };
    described.into_iter().filter_map(view).collect()
}

/// Returns the place of a service with its impact.
fn choice(machine: &Machine<'_>, model: &Model, placed: &PlacedService) -> Option<Choice> {
    let plugin = model.plugins.plugin_named(placed.plugin).ok()?;
    let demand = Demand::of(&placed.instance, &*plugin, placed.service);
    machine.candidate(demand, Some(placed.level)).ok()?.choices.pop()
}

#[cfg(test)]
mod tests;
