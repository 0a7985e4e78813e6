//! Levels of a router: what services use there, and which of them fit.

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
use millrace_units::{count, write_size};

use super::worker_use::WorkerUse;
use super::{Decision, Demand, LEVELS, MOST_MOVES, PARTS, Place, USUAL_SIZE};
use crate::ControlError;
use crate::admission::memory;
use crate::admission::permits::excluded;
use crate::admission::time::{WHOLE, Whole, percent, promised};
use crate::model::Model;
use crate::model::placements::{PlacedService, Used};
use crate::principals::processors;
use crate::workers::tsc;

/// Workers of pinned instances, by the name of the instance.
type Pins<'a> = BTreeMap<&'a str, u16>;

/// Packets per second of a service that declares no rate: next to nothing.
const NO_RATE: f64 = 1e-9;

/// Levels of a router, with the shares that principals hold.
pub(super) struct Machine<'m> {
    pub hardware: Hardware,
    pub levels: Levels,
    pub workers: usize,
    /// Cycles per second of a processor.
    pub frequency: f64,
    /// Time of all processors that may be promised, and of it the shares of principals, in parts per million.
    pub processors: (u64, u64),
    /// Shares that principals hold at the workers, in parts per million.
    pub shares: u64,
    /// Memory that may be promised to services, in bytes; `None` without a limit.
    pub memory: Option<u64>,
    /// Reason why no flow is offloaded.
    pub no_cache: Option<&'static str>,
    /// Model with the owners of instances and their allowances; `None` if no allowance counts.
    pub owners: Option<&'m Model>,
}

/// Service that is placed.
pub(super) struct Standing<'a> {
    pub demand: Demand<'a>,
    pub place: Place,
    /// Whether a level is configured, so that the service can't move.
    pub is_pinned: bool,
}

impl<'m> Machine<'m> {
    pub fn of(model: &'m Model, no_cache: Option<&'static str>) -> Result<Self, ControlError> {
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
            memory: memory::left(&model.principals, &model.admission),
            no_cache,
            owners: Some(model),
        })
    }

    /// Returns the machine for a service that starts: without allowances if they permit none of its levels.
    pub fn at_start(self, demand: Demand<'_>) -> Self {
        let pin = demand.service.pin();
        let mut levels = LEVELS.into_iter().filter(|level| pin.is_none_or(|pin| pin == *level));
        let is_permitted = levels.any(|level| self.impossible(level, demand).is_none());
        Self { owners: self.owners.filter(|_| is_permitted), ..self }
    }

    /// Chooses the level of a service beside others.
    pub fn decide(&self, placed: &[Standing<'_>], demand: Demand<'_>) -> Result<Decision, ControlError> {
        if let Some(problem) = demand.service.worker_problem(self.workers) {
            return Err(ControlError::invalid(format!("instance {:?}: {problem}", demand.instance)));
        }
        let left = self.memory.map(|whole| {
            placed.iter().fold(whole, |left, standing| left.saturating_sub(standing.place.used.memory))
        });
        let candidate = self.with_room(self.candidate(demand, demand.service.pin())?, demand, left)?;
        let mut promises = self.held();
        let mut names = BTreeMap::new();
        for standing in placed {
            names.insert(self.hold(&mut promises, standing), standing.demand.instance);
        }
        let pinned = placed.iter().map(|standing| standing.demand).chain([demand]);
        let pins: Pins<'_> = pinned.filter_map(|one| Some((one.instance, one.service.worker?))).collect();
        let algorithm = Levels::algorithm(&self.hardware);
        let fits = |rate: u32| {
            let service = Service { rate, ..demand.service };
            let candidate = self.candidate(Demand { service, ..demand }, service.pin()).ok()?;
            let candidate = self.with_room(candidate, demand, left).ok()?;
            self.admitted(promises.clone(), candidate, &algorithm, &pins)
        };
        let Some((place, moves)) = fits(demand.service.rate) else {
            let refused = promises.refusal(&candidate);
            let most = largest(demand.service.rate, |rate| fits(rate).is_some());
            let fullest = self.fullest(promises, candidate, &pins);
            return Err(self.refusal(demand, (&refused, fullest), most));
        };
        let plugins = placed.iter().map(|standing| (standing.demand.instance, standing.demand.plugin));
        let plugins: BTreeMap<&str, &dyn Plugin> = plugins.collect();
        let moves = moves.into_iter().filter_map(|(id, place)| {
            let name = *names.get(&id)?;
            Some((name.to_owned(), self.with_memory(place, *plugins.get(name)?)))
        });
        let place = self.with_memory(place, demand.plugin);
        let Demand { instance, plugin, service, .. } = demand;
        let Place { level, used } = place;
        let placed =
            PlacedService { instance: instance.to_owned(), plugin: plugin.name(), service, level, used };
        Ok(Decision { placed, moves: moves.collect() })
    }

    /// Leaves out the places of a service for whose instances too little memory is left, in bytes.
    fn with_room(
        &self,
        mut candidate: Candidate,
        Demand { instance, plugin, .. }: Demand<'_>,
        left: Option<u64>,
    ) -> Result<Candidate, ControlError> {
        let Some(left) = left else { return Ok(candidate) };
        let needed = |choice: &Choice| self.level(choice).map_or(0, |level| self.memory_of(level, plugin));
        let least = candidate.choices.iter().map(needed).min().unwrap_or(0);
        candidate.choices.retain(|choice| needed(choice) <= left);
        if !candidate.choices.is_empty() {
            return Ok(candidate);
        }
        let [least, lack, left] = [least, least - left, left].map(write_size);
        Err(ControlError::conflict(format!(
            "instance {instance:?}: plugin {} declares {least} of memory for its instances, but of what admission promises \
             {left} are left: {lack} are missing; reserve less for principals, or promise more with `admission set \
             memory=SIZE`",
            plugin.name()
        )))
    }

    /// Returns the declared memory of the instances of a service, in bytes: one at each worker, or one at the host. A
    /// packet that is offloaded needs none.
    fn memory_of(&self, level: ServiceLevel, plugin: &dyn Plugin) -> u64 {
        let instances = match level {
            ServiceLevel::Offload => 0,
            ServiceLevel::Worker => self.workers,
            ServiceLevel::Host => 1,
        };
        (plugin.declared_needs().memory * instances as f64).ceil() as u64
    }

    fn with_memory(&self, Place { level, used }: Place, plugin: &dyn Plugin) -> Place {
        Place { level, used: Used { memory: self.memory_of(level, plugin), ..used } }
    }

    /// Admits a service. Returns its place and the moves of others; `None` if it fits nowhere.
    fn admitted(
        &self,
        mut promises: Promises,
        candidate: Candidate,
        algorithm: &Algorithm,
        pins: &Pins<'_>,
    ) -> Option<(Place, Vec<(ServiceId, Place)>)> {
        let before = self.worker_use(&promises, pins);
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
        if self.worker_use(&promises, pins).exceeds(&before) {
            return None;
        }
        let moves = admitted.moves.iter().filter_map(|(id, _)| Some((*id, place(*id)?)));
        Some((place(admitted.id)?, moves.collect()))
    }

    /// Returns the use of single workers by promises.
    fn worker_use(&self, promises: &Promises, pins: &Pins<'_>) -> WorkerUse {
        let mut used = WorkerUse::new(self.workers, self.levels.worker / self.frequency * PARTS);
        for (_, candidate, choice) in promises.services() {
            let Some(choice) = candidate.choices.get(choice) else { continue };
            used.add(pins.get(&*candidate.name).copied(), self.used(&choice.impact).worker);
        }
        used
    }

    /// Returns the worker that would lack the most with a candidate at the workers, and its missing part in percent.
    fn fullest(&self, mut promises: Promises, candidate: Candidate, pins: &Pins<'_>) -> Option<(u16, f64)> {
        let is_there = |choice: &Choice| self.level(choice) == Some(ServiceLevel::Worker);
        let choice = candidate.choices.iter().position(is_there)?;
        promises.hold(candidate, choice, false);
        self.worker_use(&promises, pins).fullest()
    }

    /// Returns the promises to principals.
    fn held(&self) -> Promises {
        let mut promises = Promises::new(&self.hardware.components);
        let shares = Used { worker: self.shares, ..Used::default() };
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
    pub fn candidate(
        &self,
        demand: Demand<'_>,
        pin: Option<ServiceLevel>,
    ) -> Result<Candidate, ControlError> {
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
        let input = Stream {
            packets_per_second: if service.rate == 0 { NO_RATE } else { f64::from(service.rate) },
            bytes: f64::from(service.size.map_or(USUAL_SIZE, |size| size.bytes_u32())),
            bytes_maximum: None,
        };
        let leave = input.packets_per_second * demand.plugin.declared_needs().output;
        let request = Request {
            name: instance.to_owned(),
            class: Class::PerFlow,
            port: None,
            plugin: None,
            on: Vec::new(),
            user: None,
            needs: Needs { cycles, code_slots: self.workers as f64, ..Needs::default() },
            input,
            output: Some(Stream { packets_per_second: leave, ..input }),
        };
        Candidate::of(&self.hardware, &request).map_err(|error| ControlError::invalid(error.to_string()))
    }

    /// Returns the reason why a service can't run at a level, or must not; `None` if it can.
    fn impossible(&self, level: ServiceLevel, demand: Demand<'_>) -> Option<String> {
        let owner = |model: &'m Model| model.placements.owners.get(demand.instance);
        let excluded = self.owners.and_then(|model| {
            let owner = demand.owner.or_else(|| owner(model))?;
            excluded(model, owner, (level, demand.service.worker))
        });
        excluded.or_else(|| self.unable(level, demand))
    }

    /// Returns the reason why instances of a plugin can't run at a level; `None` if they can.
    fn unable(&self, level: ServiceLevel, Demand { plugin, runtime, .. }: Demand<'_>) -> Option<String> {
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
        let (worker, host) = (of(WORKER, self.levels.worker), of(HOST, self.levels.host));
        Used { worker, host, ..Used::default() }
    }

    /// Returns the error for a service without room, with what each level lacks, and the largest rate that fits.
    fn refusal(
        &self,
        demand: Demand<'_>,
        (refused, fullest): (&Refused, Option<(u16, f64)>),
        most: u32,
    ) -> ControlError {
        let Demand { instance, service, .. } = demand;
        let mut text =
            format!("instance {instance:?}: no room for {} per second", count(service.rate, "packet"));
        // Writing to a string can't fail.
        for level in LEVELS.into_iter().filter(|level| service.pin().is_none_or(|pin| pin == *level)) {
            let processor = self.hardware.processor(level.name());
            let lack = refused.lacks.iter().find(|(index, _)| Some(*index) == processor);
            let is_full = level == ServiceLevel::Worker && (lack.is_none() || service.worker.is_some());
            let why = match (lack, self.impossible(level, demand), fullest.filter(|_| is_full)) {
                (_, Some(why), _) => why,
                (_, None, Some((worker, missing))) => format!("lacks {missing:.2} % of worker {worker}"),
                (Some((_, lack)), None, None) => {
                    let component = self.hardware.components.get(lack.component);
                    format!("lacks {} of {}", lack.missing, component.map_or("-", |one| &one.name))
                }
                (None, None, None) => {
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
pub(super) fn described(levels: &Levels) -> Result<Hardware, ControlError> {
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
pub(super) fn cost(level: ServiceLevel, demand: Demand<'_>) -> Result<Cycles, ControlError> {
    let Demand { instance, plugin, service, .. } = demand;
    if level == ServiceLevel::Offload {
        return Ok(Cycles { packet: f64::from(EBPF_VARIANT_LIMIT), ..Cycles::default() });
    }
    let declared = plugin.declared_cycles(kind(level));
    // A call may have a single packet.
    let packet = service.packet.or(declared.map(|cycles| cycles.call + cycles.packet));
    let byte = service.byte.or(declared.map(|cycles| cycles.byte)).unwrap_or_default();
    let fixed = declared.map_or(0.0, |cycles| cycles.fixed);
    match packet {
        Some(packet) => Ok(Cycles { fixed, packet, byte, ..Cycles::default() }),
        None if service.rate == 0 => Ok(Cycles { fixed, byte, ..Cycles::default() }),
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
