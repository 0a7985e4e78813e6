//! Placement of services: chooses the level at which an instance with a declared load runs.

pub(crate) mod figures;
pub(crate) mod loads;
mod machine;
mod refusal;
mod room;
pub(crate) mod set;

use std::collections::BTreeMap;

use millrace_admission::impact::Impact;
use millrace_admission::levels::{PROCESS, WORKER};
use millrace_admission::placement::online::Promises;
use millrace_config::{Admission, Principal, Router, Service, ServiceLevel};
use millrace_plugin_abi::{DeclaredCycles, DeclaredNeeds, Plugin, Runtime};
use millrace_units::BitRate;

use self::machine::{Held, HeldLink, Machine, Standing, cost};
use self::room::Described;
use super::time::WHOLE;
use crate::ControlError;
use crate::flows::flow_cache::why_no_cache;
use crate::model::permits::excluded_for;
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
    /// Whether no allowance counts.
    pub is_free: bool,
}

impl<'a> Demand<'a> {
    /// Returns the service of an instance whose plugin keeps its runtime.
    pub fn of(instance: &'a str, plugin: &'a dyn Plugin, service: Service) -> Self {
        Self { instance, plugin, runtime: plugin.runtime(), service, owner: None, is_free: false }
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
    let machine = Machine::of(model, no_cache)?;
    let others = model.placements.services.iter().filter(|placed| placed.instance != demand.instance);
    // Other services of the plugin cost as much as its version that is to be placed.
    let other = |placed: &PlacedService| (placed.plugin != demand.plugin.name()).then_some(placed.plugin);
    let plugin = |placed| other(placed).map(|name| model.plugins.plugin_named(name)).transpose();
    let placed = others.map(|placed| Ok((placed, plugin(placed)?)));
    let placed = placed.collect::<Result<Vec<_>, ControlError>>()?;
    let placed: Vec<Standing<'_>> = placed
        .iter()
        .map(|(placed, plugin)| {
            let is_pinned = placed.service.pin().is_some();
            let plugin = plugin.as_deref().unwrap_or(demand.plugin);
            let demand = Demand::of(&placed.instance, plugin, placed.service);
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

/// Places the services of a plugin that gets another version with other declared costs: at their levels, or at others if
/// these have no room. Returns the services as they were before, and whether levels have changed.
///
/// # Errors
/// A service fits nowhere with the costs of the new version. Nothing has changed then.
pub(crate) fn place_version(
    model: &mut Model,
    plugin: &dyn Plugin,
    no_cache: Option<&'static str>,
) -> Result<(Vec<PlacedService>, bool), ControlError> {
    let before = model.placements.services.clone();
    if declared(&*model.plugins.plugin_named(plugin.name())?) == declared(plugin) {
        return Ok((before, false));
    }
    let mut has_moved = false;
    for placed in before.iter().filter(|placed| placed.plugin == plugin.name()) {
        let at = |level| {
            let service = Service { level, ..placed.service };
            let demand = Demand { is_free: true, ..Demand::of(&placed.instance, plugin, service) };
            decide(model, demand, no_cache)
        };
        match at(Some(placed.level)).or_else(|_| at(placed.service.level)) {
            Ok(mut decision) => {
                decision.placed.service = placed.service;
                has_moved |= decision.placed.level != placed.level;
                has_moved |= decision.carry_out(&mut model.placements);
            }
            Err(error) => {
                model.placements.services = before;
                let version = plugin.version();
                let text =
                    format!("plugin {}: version {version} declares other costs: {error}", plugin.name());
                return Err(ControlError::conflict(text));
            }
        }
    }
    Ok((before, has_moved))
}

/// Returns what a plugin declares for its instances.
fn declared(plugin: &dyn Plugin) -> (Vec<Option<DeclaredCycles>>, DeclaredNeeds, bool) {
    let cycles = [WORKER, PROCESS].map(|kind| plugin.declared_cycles(kind)).into();
    (cycles, plugin.declared_needs(), plugin.ebpf_variant().is_some())
}

/// Chooses other levels for services at levels that allowances of their owners exclude, if these are not configured and
/// another level has room. Returns the services that move, at their new places.
pub(crate) fn obey_allowances(model: &mut Model, no_cache: Option<&'static str>) -> Vec<PlacedService> {
    let is_excluded = |placed: &&PlacedService| {
        placed.service.pin().is_none() && excluded_for(model, &placed.instance, placed.level).is_some()
    };
    let excluded = model.placements.services.iter().filter(is_excluded);
    let names: Vec<String> = excluded.map(|placed| placed.instance.clone()).collect();
    let before = model.placements.services.clone();
    for name in names {
        let Some(service) = model.placements.service(&name).map(|placed| placed.service) else { continue };
        // Without room at a permitted level, it stays: an allowance takes nothing away.
        drop(place(model, &name, Some(service), no_cache));
    }
    let moved = |placed: &&PlacedService| {
        let earlier = before.iter().find(|one| one.instance == placed.instance);
        earlier.is_some_and(|earlier| earlier.level != placed.level)
    };
    model.placements.services.iter().filter(moved).cloned().collect()
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

/// Returns the components of the levels beside the workers: the measured switches and, if there are services, all others.
pub(super) fn levels(model: &Model, services: &[PlacedService]) -> Vec<ComponentView> {
    let Ok(machine) = Machine::of(model, planned_cache(model)) else { return Vec::new() };
    let of_service = |placed: &PlacedService| {
        Some((format!("instance {}", placed.instance), impact(&machine, model, placed)?))
    };
    let of_link = |link: &HeldLink| {
        let impact = machine.link(link)?.choices.pop()?.impact;
        Some((format!("{} at port {}", link.principal, link.port), impact))
    };
    let impacts: Vec<(String, Impact)> =
        services.iter().filter_map(of_service).chain(machine.held.links.iter().filter_map(of_link)).collect();
    let view = |Described { component, name, unit, capacity, whole, .. }| {
        let claims = impacts.iter().filter_map(|(by, impact)| {
            let amount = impact.of(component).number() * capacity;
            (amount > 0.0).then(|| ClaimView { by: by.clone(), amount })
        });
        let claims: Vec<_> = claims.collect();
        let promised = claims.iter().map(|claim| claim.amount).sum();
        ComponentView { component: name, unit, whole, promised, left: None, claims }.complete()
    };
    let described = machine.room.described().into_iter();
    described.filter(|one| one.is_measured || !services.is_empty()).map(view).collect()
}

/// Returns what a placed service uses. It stays where it is when an allowance changes.
fn impact(machine: &Machine<'_>, model: &Model, placed: &PlacedService) -> Option<Impact> {
    let plugin = model.plugins.plugin_named(placed.plugin).ok()?;
    let demand = Demand::of(&placed.instance, &*plugin, placed.service);
    // A tried move between worker and host leaves the plugin its runtime.
    let runtime = match (placed.level, demand.runtime) {
        (ServiceLevel::Host, Runtime::Trusted) => Runtime::Process,
        (ServiceLevel::Worker, Runtime::Process) => Runtime::Trusted,
        (_, runtime) => runtime,
    };
    let demand = Demand { runtime, is_free: true, ..demand };
    Some(machine.candidate(demand, Some(placed.level)).ok()?.choices.pop()?.impact)
}

/// Checks that the switches carry the rates that these principals reserve, beside the services. What was promised
/// before may stay.
///
/// # Errors
/// Names the first principal whose rate is too much, with the switch that lacks.
pub(crate) fn check_links(model: &Model, principals: &[Principal]) -> Result<(), ControlError> {
    let before = Held::of(model, &model.principals).links;
    let held = Held::of(model, principals);
    check_switches(model, (&model.router, &model.admission), held, &before).map_err(|(_, problem)| problem)
}

/// Checks that services and reserved rates fit with other settings of the router or of admission.
///
/// # Errors
/// Names the first principal or service beyond this.
pub(crate) fn check_settings(
    model: &Model,
    router: &Router,
    admission: &Admission,
) -> Result<(), ControlError> {
    let held = || Held::of(model, &model.principals);
    check_services(model, (router, admission), held())?;
    check_switches(model, (router, admission), held(), &[]).map_err(|(_, problem)| problem)
}

/// Checks that the services fit beside the shares of these principals, of which `pays` selects those that pay at the
/// workers. The sums over all workers must fit: this checks the single workers of pinned services.
///
/// # Errors
/// Names the first service that would lack something.
pub(super) fn check_pinned(
    model: &Model,
    principals: &[Principal],
    pays: impl Fn(&str) -> bool,
) -> Result<(), ControlError> {
    if model.placements.services.iter().all(|placed| placed.service.worker.is_none()) {
        return Ok(());
    }
    let shares = principals.iter().filter(|one| pays(&one.name)).filter_map(Principal::reserved_cpu);
    let workers = shares.map(|share| u64::from(share.ppm())).sum();
    let held = Held { workers, ..Held::of(model, principals) };
    check_services(model, (&model.router, &model.admission), held)
}

/// Checks that no service lacks something with these settings and promises to principals, unless it did before.
fn check_services(model: &Model, settings: (&Router, &Admission), held: Held) -> Result<(), ControlError> {
    let before = lacks(model, (&model.router, &model.admission), Held::of(model, &model.principals));
    let new = lacks(model, settings, held).into_iter().find(|(instance, _)| !before.contains_key(instance));
    match new {
        None => Ok(()),
        Some((instance, lack)) => Err(ControlError::conflict(format!(
            "instance {instance:?} would lack {lack}: free or move it first, or reserve less for principals"
        ))),
    }
}

/// Returns the services for which these settings and promises leave too little, with what they lack.
fn lacks<'m>(model: &'m Model, settings: (&Router, &Admission), held: Held) -> BTreeMap<&'m str, String> {
    let Ok(machine) = Machine::with(model, settings, held, planned_cache(model)) else {
        return BTreeMap::new();
    };
    let plugin = |placed: &'m PlacedService| model.plugins.plugin_named(placed.plugin).ok();
    let placed = model.placements.services.iter().filter_map(|placed| Some((placed, plugin(placed)?)));
    let placed: Vec<_> = placed.collect();
    let demands = placed.iter().map(|(one, plugin)| Demand::of(&one.instance, &**plugin, one.service));
    let mut promises = machine.promises(demands);
    let mut lacks = BTreeMap::new();
    for (one, _) in &placed {
        let Some(used) = impact(&machine, model, one) else { continue };
        if let Some(lack) = promises.utilization().lack(&used) {
            lacks.insert(&*one.instance, machine.room.lack(lack));
        }
        promises.hold(machine.room.alone(&one.instance, used), 0, false);
    }
    lacks
}

/// Returns the first reserved rate of the configured principals that the switches can't carry: the name of its
/// principal and port, and the problem.
pub(crate) fn excessive_link(model: &Model) -> Option<((String, String), ControlError)> {
    let held = Held::of(model, &model.principals);
    let checked = check_switches(model, (&model.router, &model.admission), held, &[]);
    checked.err()
}

/// Checks that the switches carry rates of principals beside the services. Rates of `before` stay, whatever they use.
fn check_switches(
    model: &Model,
    settings: (&Router, &Admission),
    held: Held,
    before: &[HeldLink],
) -> Result<(), ((String, String), ControlError)> {
    if held.links.is_empty() {
        return Ok(());
    }
    let Ok(machine) = Machine::with(model, settings, held, planned_cache(model)) else { return Ok(()) };
    let mut promises = Promises::new(&machine.room.hardware.components);
    for placed in &model.placements.services {
        if let Some(mut used) = impact(&machine, model, placed) {
            used.sums.retain(|(component, _)| machine.room.is_switch(*component));
            let used = machine.room.alone(&placed.instance, used);
            promises.hold(used, 0, false);
        }
    }
    // What stays comes first, so that a new rate is refused, and no old one.
    let stays = |link: &&HeldLink| before.contains(link);
    let (old, new): (Vec<_>, Vec<_>) = machine.held.links.iter().partition(stays);
    for link in old.into_iter().chain(new) {
        let Some(candidate) = machine.link(link) else { continue };
        let lack = candidate.choices.first().and_then(|choice| promises.utilization().lack(&choice.impact));
        if let Some(lack) = lack.filter(|_| !stays(&link)) {
            let HeldLink { principal, port, rate } = link;
            let problem = format!(
                "principal {principal:?}: link {port} = {}: packets of this rate lack {}: reserve less, or free or \
                 move instances",
                BitRate(*rate as f64),
                machine.room.lack(lack)
            );
            return Err(((principal.clone(), port.clone()), ControlError::conflict(problem)));
        }
        promises.hold(candidate, 0, false);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
