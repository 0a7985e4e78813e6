//! Placement of services: chooses the level at which an instance with a declared load runs.

pub(crate) mod loads;
pub(crate) mod ring;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use millrace_admission::hardware::Hardware;
use millrace_admission::impact::{Candidate, Choice, Impact};
use millrace_admission::levels::{HOST, Levels, OFFLOAD, OffloadLevel, PROCESS, WORKER};
use millrace_admission::part::Part;
use millrace_admission::placement::Algorithm;
use millrace_admission::placement::online::{Promises, Refused, ServiceId};
use millrace_admission::request::{Class, Cycles, Needs, Request, Stream};
use millrace_config::{Service, ServiceLevel};
use millrace_offload::VARIANTS;
use millrace_pipeline::EBPF_VARIANT_LIMIT;
use millrace_plugin_abi::{Plugin, Runtime};
use millrace_units::count;

use super::time::{WHOLE, Whole, percent, promised};
use crate::ControlError;
use crate::flows::flow_cache::why_no_cache;
use crate::model::placements::{PlacedService, Placements, Used};
use crate::model::{Model, PortPlan};
use crate::principals::processors;
use crate::view::{ClaimView, ComponentView};
use crate::workers::tsc;

/// Size of packets of a service that declares none, in bytes.
const USUAL_SIZE: u32 = 1_538;
/// Packets per second of a service that declares no rate: next to nothing.
const NO_RATE: f64 = 1e-9;
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

/// Level of a service, and the processor time that it uses there.
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
}

impl<'a> Demand<'a> {
    /// Returns the service of an instance whose plugin keeps its runtime.
    pub fn of(instance: &'a str, plugin: &'a dyn Plugin, service: Service) -> Self {
        Self { instance, plugin, runtime: plugin.runtime(), service }
    }
}

/// Chooses the level of a service on a router. `no_cache` is the reason why no flow is offloaded. A service of the
/// same name that is placed already doesn't count.
///
/// # Errors
/// The service is invalid, its level is impossible for its plugin, or no level has room.
pub(crate) fn decide(
    model: &Model,
    demand: Demand<'_>,
    no_cache: Option<&'static str>,
) -> Result<Decision, ControlError> {
    let machine = Machine::of(model, no_cache)?;
    let others = model.placements.services.iter().filter(|placed| placed.instance != demand.instance);
    let placed = others.map(|placed| Ok((placed, model.plugins.plugin_named(placed.plugin)?)));
    let placed = placed.collect::<Result<Vec<_>, ControlError>>()?;
    let placed: Vec<Standing<'_>> = placed
        .iter()
        .map(|(placed, plugin)| {
            let is_pinned = placed.service.level.is_some();
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

/// Returns the processor time that the placed services of a router use.
pub(crate) fn used(model: &Model) -> Used {
    model.placements.services.iter().fold(Used::default(), |sum, PlacedService { used, .. }| Used {
        worker: sum.worker.saturating_add(used.worker),
        host: sum.host.saturating_add(used.host),
    })
}

/// Returns the place of a service with its impact.
fn choice(machine: &Machine, model: &Model, placed: &PlacedService) -> Option<Choice> {
    let plugin = model.plugins.plugin_named(placed.plugin).ok()?;
    let demand = Demand::of(&placed.instance, &*plugin, placed.service);
    machine.candidate(demand, Some(placed.level)).ok()?.choices.pop()
}

/// Levels of a router, with the shares that principals hold.
struct Machine {
    hardware: Hardware,
    levels: Levels,
    workers: usize,
    /// Cycles per second of a processor.
    frequency: f64,
    /// Time of all processors that may be promised, and of it the shares of principals, in parts per million.
    processors: (u64, u64),
    /// Shares that principals hold at the workers, in parts per million.
    shares: u64,
    /// Reason why no flow is offloaded.
    no_cache: Option<&'static str>,
}

/// Service that is placed.
struct Standing<'a> {
    demand: Demand<'a>,
    place: Place,
    /// Whether a level is configured, so that the service can't move.
    is_pinned: bool,
}

impl Machine {
    fn of(model: &Model, no_cache: Option<&'static str>) -> Result<Self, ControlError> {
        let (router, frequency) = (&model.router, tsc::frequency() as f64);
        let whole = Whole::of(router, &model.admission);
        let beside = processors().saturating_sub(router.workers);
        let offload = OffloadLevel { instructions: EBPF_VARIANT_LIMIT, variants: VARIANTS as u32 };
        let levels = Levels {
            offload: no_cache.is_none().then_some(offload),
            worker: whole.of_workers() as f64 / PARTS * frequency,
            host: model.admission.cpu.of(beside as u64 * WHOLE) as f64 / PARTS * frequency,
            ring: model.placements.ring,
        };
        Ok(Self {
            hardware: described(&levels)?,
            levels,
            workers: router.workers,
            frequency,
            processors: (whole.of_processors(), promised(model, |_| true)),
            shares: promised(model, |one| model.pays(&one.name)),
            no_cache,
        })
    }

    /// Chooses the level of a service beside others.
    fn decide(&self, placed: &[Standing<'_>], demand: Demand<'_>) -> Result<Decision, ControlError> {
        let candidate = self.candidate(demand, demand.service.level)?;
        let mut promises = self.held();
        let mut names = BTreeMap::new();
        for standing in placed {
            names.insert(self.hold(&mut promises, standing), standing.demand.instance);
        }
        let algorithm = Levels::algorithm(&self.hardware);
        let fits = |rate: u32| {
            let service = Service { rate, ..demand.service };
            let candidate = self.candidate(Demand { service, ..demand }, service.level).ok()?;
            self.admitted(promises.clone(), candidate, &algorithm)
        };
        let Some((place, moves)) = fits(demand.service.rate) else {
            let refused = promises.refusal(&candidate);
            let most = largest(demand.service.rate, |rate| fits(rate).is_some());
            return Err(self.refusal(demand, &refused, most));
        };
        let moves = moves.into_iter().filter_map(|(id, place)| Some((names.get(&id)?.to_string(), place)));
        let Demand { instance, plugin, service, .. } = demand;
        let Place { level, used } = place;
        let placed =
            PlacedService { instance: instance.to_owned(), plugin: plugin.name(), service, level, used };
        Ok(Decision { placed, moves: moves.collect() })
    }

    /// Admits a service. Returns its place and the moves of others; `None` if it fits nowhere.
    fn admitted(
        &self,
        mut promises: Promises,
        candidate: Candidate,
        algorithm: &Algorithm,
    ) -> Option<(Place, Vec<(ServiceId, Place)>)> {
        let admitted = promises.admit(candidate, false, algorithm, MOST_MOVES).ok()?;
        let place = |id: ServiceId| {
            let (_, candidate, choice) = promises.services().find(|(known, ..)| *known == id)?;
            let choice = candidate.choices.get(choice)?;
            Some(Place { level: self.level(choice)?, used: self.used(&choice.impact) })
        };
        let used = promises.services().filter_map(|(_, candidate, choice)| candidate.choices.get(choice));
        // The shares are among the promises; here, all shares count, and not only those at the workers.
        let services = used.map(|choice| self.used(&choice.impact)).map(|used| used.worker + used.host);
        let (whole, shares) = self.processors;
        if services.sum::<u64>().saturating_sub(self.shares).saturating_add(shares) > whole {
            return None;
        }
        let moves = admitted.moves.iter().filter_map(|(id, _)| Some((*id, place(*id)?)));
        Some((place(admitted.id)?, moves.collect()))
    }

    /// Returns the promises to principals.
    fn held(&self) -> Promises {
        let mut promises = Promises::new(&self.hardware.components);
        let shares = Used { worker: self.shares, host: 0 };
        promises.hold(self.fixed("principals", shares), 0, false);
        promises
    }

    /// Adds a placed service to promises.
    fn hold(&self, promises: &mut Promises, standing: &Standing<'_>) -> ServiceId {
        let Standing { demand, place, is_pinned } = standing;
        let candidate = self.candidate(*demand, is_pinned.then_some(place.level));
        let is_it = |choice: &Choice| self.level(choice) == Some(place.level);
        let found = candidate.ok().and_then(|candidate| {
            let choice = candidate.choices.iter().position(is_it)?;
            Some((candidate, choice))
        });
        match found {
            Some((candidate, choice)) => promises.hold(candidate, choice, !is_pinned),
            // Its plugin or the router has changed, so that it would be refused now. It keeps what it was promised.
            None => promises.hold(self.fixed(demand.instance, place.used), 0, false),
        }
    }

    /// Returns a candidate that uses this processor time, and has no other place.
    fn fixed(&self, name: &str, used: Used) -> Candidate {
        let part = |name: &str, used: u64, cycles: f64| {
            let part = used as f64 / PARTS * self.frequency / cycles;
            Some((self.hardware.component(name).filter(|_| used > 0)?, Part::at_least(part)))
        };
        let sums = [part(WORKER, used.worker, self.levels.worker), part(HOST, used.host, self.levels.host)];
        let impact = Impact { sums: sums.into_iter().flatten().collect(), flow: None };
        let processor = self.hardware.processor(WORKER);
        let choices = processor.map(|processor| Choice { processor, impact }).into_iter().collect();
        Candidate { name: name.to_owned(), choices }
    }

    /// Returns the possible places of a service with their impacts; only `pin` if it is given.
    fn candidate(&self, demand: Demand<'_>, pin: Option<ServiceLevel>) -> Result<Candidate, ControlError> {
        let Demand { instance, service, .. } = demand;
        let named = |problem: String| ControlError::conflict(format!("instance {instance:?}: {problem}"));
        let mut cycles = BTreeMap::new();
        let mut reasons = Vec::new();
        for level in LEVELS.into_iter().filter(|level| pin.is_none_or(|pin| pin == *level)) {
            match self.impossible(level, demand) {
                Some(why) => reasons.push(format!("level {}: {why}", level.name())),
                None => drop(cycles.insert(kind(level).to_owned(), cost(level, demand)?)),
            }
        }
        if cycles.is_empty() {
            return Err(named(reasons.join("; ")));
        }
        let request = Request {
            name: instance.to_owned(),
            class: Class::PerFlow,
            port: None,
            plugin: None,
            on: Vec::new(),
            user: None,
            needs: Needs { cycles, code_slots: self.workers as f64, ..Needs::default() },
            input: Stream {
                packets_per_second: if service.rate == 0 { NO_RATE } else { f64::from(service.rate) },
                bytes: f64::from(service.size.map_or(USUAL_SIZE, |size| size.bytes_u32())),
                bytes_maximum: None,
            },
            output: None,
        };
        Candidate::of(&self.hardware, &request).map_err(|error| ControlError::invalid(error.to_string()))
    }

    /// Returns the reason why instances of a plugin can't run at a level; `None` if they can.
    fn impossible(&self, level: ServiceLevel, Demand { plugin, runtime, .. }: Demand<'_>) -> Option<String> {
        let in_process = matches!(runtime, Runtime::Process | Runtime::Executable);
        let movable = match runtime {
            Runtime::Process | Runtime::Trusted => "; `instance move` moves it",
            _ => "",
        };
        match level {
            ServiceLevel::Offload if plugin.ebpf_variant().is_none() => {
                Some("its plugin has no eBPF variant".to_owned())
            }
            ServiceLevel::Offload => self.no_cache.map(|why| format!("no flow is offloaded: {why}")),
            ServiceLevel::Worker if in_process => Some(format!("its plugin runs in processes{movable}")),
            ServiceLevel::Host if !in_process => Some(format!("its plugin is {}{movable}", runtime.text())),
            ServiceLevel::Host if self.levels.host <= 0.0 => {
                Some("no processor is left beside the workers".to_owned())
            }
            ServiceLevel::Worker | ServiceLevel::Host => None,
        }
    }

    fn level(&self, choice: &Choice) -> Option<ServiceLevel> {
        let name = &self.hardware.processors.get(choice.processor)?.name;
        LEVELS.into_iter().find(|level| level.name() == name)
    }

    /// Returns the processor time of an impact.
    fn used(&self, impact: &Impact) -> Used {
        let of = |name: &str, cycles: f64| {
            let share = self.hardware.component(name).map_or(0.0, |component| impact.of(component).number());
            (share * cycles / self.frequency * PARTS).ceil() as u64
        };
        Used { worker: of(WORKER, self.levels.worker), host: of(HOST, self.levels.host) }
    }

    /// Returns the error for a service without room, with what each level lacks, and the largest rate that fits.
    fn refusal(&self, demand: Demand<'_>, refused: &Refused, most: u32) -> ControlError {
        let Demand { instance, service, .. } = demand;
        let mut text =
            format!("instance {instance:?}: no room for {} per second", count(service.rate, "packet"));
        // Writing to a string can't fail.
        for level in LEVELS.into_iter().filter(|level| service.level.is_none_or(|pin| pin == *level)) {
            let processor = self.hardware.processor(level.name());
            let lack = refused.lacks.iter().find(|(index, _)| Some(*index) == processor);
            let why = match (lack, self.impossible(level, demand)) {
                (_, Some(why)) => why,
                (Some((_, lack)), None) => {
                    let component = self.hardware.components.get(lack.component);
                    format!("lacks {} of {}", lack.missing, component.map_or("-", |one| &one.name))
                }
                (None, None) => {
                    format!("lacks time of the {} % of all processors", percent(self.processors.0))
                }
            };
            let _ = write!(text, "; level {}: {why}", level.name());
        }
        let remedy = match most {
            0 => "free or move other instances".to_owned(),
            most => {
                format!("{} per second would fit; or free or move other instances", count(most, "packet"))
            }
        };
        ControlError::conflict(format!("{text}: {remedy}"))
    }
}

/// Returns the hardware of levels.
fn described(levels: &Levels) -> Result<Hardware, ControlError> {
    levels.hardware().map_err(|error| ControlError::conflict(format!("no service can be placed: {error}")))
}

/// Returns the kind of the processors of a level, as manifests and hardware files name it.
fn kind(level: ServiceLevel) -> &'static str {
    match level {
        ServiceLevel::Offload => OFFLOAD,
        ServiceLevel::Worker => WORKER,
        ServiceLevel::Host => PROCESS,
    }
}

/// Returns the cycles of a service at a level; at the offload, instructions.
fn cost(level: ServiceLevel, demand: Demand<'_>) -> Result<Cycles, ControlError> {
    let Demand { instance, plugin, service, .. } = demand;
    if level == ServiceLevel::Offload {
        return Ok(Cycles { packet: f64::from(EBPF_VARIANT_LIMIT), ..Cycles::default() });
    }
    let declared = plugin.declared_cycles(kind(level));
    // A call may have a single packet.
    let packet = service.packet.or(declared.map(|cycles| cycles.call + cycles.packet));
    let byte = service.byte.or(declared.map(|cycles| cycles.byte)).unwrap_or_default();
    match packet {
        Some(packet) => Ok(Cycles { packet, byte, ..Cycles::default() }),
        None if service.rate == 0 => Ok(Cycles { byte, ..Cycles::default() }),
        None => Err(ControlError::invalid(format!(
            "instance {instance:?}: the manifest of plugin {} declares no cost: give the cycles per packet, too",
            plugin.name()
        ))),
    }
}

/// Returns the largest rate up to `most` that fits. If a rate fits, each lower rate does.
fn largest(most: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests;
