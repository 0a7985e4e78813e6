//! Levels of a router: what services use there, and which of them fit.

use std::collections::{BTreeMap, BTreeSet};

use millrace_admission::impact::{Candidate, Choice};
use millrace_admission::levels::{Levels, OFFLOAD, OffloadLevel, PROCESS, Switches, WORKER};
use millrace_admission::placement::online::{Promises, Refused, ServiceId};
use millrace_admission::request::{Class, Cycles, Needs, Request, Stream};
use millrace_config::{Admission, Principal, Router, Service, ServiceLevel};
use millrace_offload::VARIANTS;
use millrace_pipeline::EBPF_VARIANT_LIMIT;
use millrace_plugin_abi::{Plugin, Runtime};

use super::refusal::{largest, refusal};
use super::room::Room;
use super::{Decision, Demand, LEVELS, MOST_MOVES, PARTS, Place, USUAL_SIZE};
use crate::ControlError;
use crate::admission::memory;
use crate::admission::time::{WHOLE, Whole};
use crate::model::permits::excluded;
use crate::model::placements::{PlacedService, Used};
use crate::model::schedulers::links::links;
use crate::model::{Model, PortPlan};
use crate::principals::processors;
use crate::workers::tsc;

/// Packets per second of a service that declares no rate: next to nothing.
const NO_RATE: f64 = 1e-9;

/// Levels of a router, with the promises to principals.
pub(super) struct Machine<'m> {
    pub room: Room,
    pub held: Held,
    /// Reason why no flow is offloaded.
    pub no_cache: Option<&'static str>,
    /// Model with the owners of instances and their allowances; `None` if no allowance counts.
    pub owners: Option<&'m Model>,
}

/// Promises to principals.
#[derive(Default)]
pub(super) struct Held {
    /// Shares of all principals, in parts per million of a processor.
    pub processors: u64,
    /// Shares of the principals that pay at the workers, in parts per million of a processor.
    pub workers: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Rates at ports with devices.
    pub links: Vec<HeldLink>,
}

/// Rate that a principal reserves at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldLink {
    pub principal: String,
    pub port: String,
    /// Bits per second.
    pub rate: u64,
}

/// Service that is placed.
pub(super) struct Standing<'a> {
    pub demand: Demand<'a>,
    pub place: Place,
    /// Whether a level is configured, so that the service can't move.
    pub is_pinned: bool,
}

impl Standing<'_> {
    fn name(&self) -> &str {
        self.demand.instance
    }
}

impl Held {
    /// Returns the promises of a model to these principals.
    pub fn of(model: &Model, principals: &[Principal]) -> Self {
        let sum = |counts: &dyn Fn(&Principal) -> bool| {
            let shares = principals.iter().filter(|one| counts(one)).filter_map(Principal::reserved_cpu);
            shares.map(|share| u64::from(share.ppm())).sum()
        };
        let ports = model.ports.iter().filter(|plan| plan.is_kernel()).map(|plan| &*plan.config.name);
        let reserved = |port: &str| {
            let links = links(principals, port).reserved.into_iter();
            let held = |(principal, rate)| HeldLink { principal, port: port.to_owned(), rate };
            links.map(|link| (link.name, link.rate)).map(held).collect::<Vec<_>>()
        };
        Self {
            processors: sum(&|_| true),
            workers: sum(&|one| model.pays(&one.name)),
            memory: memory::promised(principals),
            links: ports.flat_map(reserved).collect(),
        }
    }
}

impl<'m> Machine<'m> {
    pub fn of(model: &'m Model, no_cache: Option<&'static str>) -> Result<Self, ControlError> {
        let held = Held::of(model, &model.principals);
        Self::with(model, (&model.router, &model.admission), held, no_cache)
    }

    /// Returns the machine of a model with other settings and promises.
    pub fn with(
        model: &'m Model,
        (router, admission): (&Router, &Admission),
        held: Held,
        no_cache: Option<&'static str>,
    ) -> Result<Self, ControlError> {
        let (frequency, figures) = (tsc::frequency() as f64, model.placements.figures);
        let whole = Whole::of(router, admission);
        let beside = processors().saturating_sub(router.workers);
        let offload = OffloadLevel { instructions: EBPF_VARIANT_LIMIT, variants: VARIANTS as u32 };
        let offload = figures.offload.map_or(offload, |known| known.within(offload));
        // Other ports have no rings, and no XDP programs.
        let switches = match model.ports.iter().any(PortPlan::is_kernel) {
            true => figures.switches,
            false => Switches { redirect: None, sockets: None, ..figures.switches },
        };
        let levels = Levels {
            offload: no_cache.is_none().then_some(offload),
            worker: whole.of_workers() as f64 / PARTS * frequency,
            host: admission.cpu.of(beside as u64 * WHOLE) as f64 / PARTS * frequency,
            workers: router.workers,
            core: f64::from(router.core_ceiling.ppm()) / PARTS,
            switches,
        };
        let memory = memory::limit(admission, &figures);
        let room = Room::new(levels, frequency, whole.of_processors(), memory)?;
        Ok(Self { room, held, no_cache, owners: Some(model) })
    }

    /// Chooses the level of a service beside others.
    pub fn decide(&self, placed: &[Standing<'_>], demand: Demand<'_>) -> Result<Decision, ControlError> {
        self.check_worker(demand)?;
        let candidate = self.candidate(demand, demand.service.pin())?;
        let demands = placed.iter().map(|standing| standing.demand).chain([demand]);
        let mut promises = self.promises(demands);
        let known: BTreeMap<ServiceId, &Standing<'_>> =
            placed.iter().map(|standing| (self.hold(&mut promises, standing), standing)).collect();
        let fits = |rate: u32| {
            let service = Service { rate, ..demand.service };
            let candidate = self.candidate(Demand { service, ..demand }, service.pin()).ok()?;
            self.admitted(promises.clone(), candidate)
        };
        let Some((place, moves)) = fits(demand.service.rate) else {
            let most = largest(demand.service.rate, |rate| fits(rate).is_some());
            return Err(self.refusal(demand, &promises.refusal(&candidate), most));
        };
        let moves = moves.into_iter().filter_map(|(id, place)| {
            let standing = known.get(&id)?;
            Some((standing.name().to_owned(), self.with_memory(place, standing.demand.plugin)))
        });
        Ok(Decision { placed: self.placed(demand, place), moves: moves.collect() })
    }

    /// Returns the error for a service without room. `most` is the largest rate that fits.
    pub fn refusal(&self, demand: Demand<'_>, refused: &Refused, most: u32) -> ControlError {
        refusal(&self.room, demand, |level| self.impossible(level, demand), refused, most)
    }

    /// Refuses a worker that the router lacks, or that excludes the level.
    pub fn check_worker(&self, demand: Demand<'_>) -> Result<(), ControlError> {
        match demand.service.worker_problem(self.room.levels.workers) {
            None => Ok(()),
            Some(problem) => Err(ControlError::invalid(format!("instance {:?}: {problem}", demand.instance))),
        }
    }

    /// Returns a service at a place.
    pub fn placed(&self, demand: Demand<'_>, place: Place) -> PlacedService {
        let Demand { instance, plugin, service, .. } = demand;
        let Place { level, used } = self.with_memory(place, plugin);
        PlacedService { instance: instance.to_owned(), plugin: plugin.name(), service, level, used }
    }

    /// Returns the declared memory of the instances of a service, in bytes: one at each worker, or one at the host. A
    /// packet that is offloaded needs none.
    fn memory_of(&self, level: ServiceLevel, plugin: &dyn Plugin) -> u64 {
        let instances = match level {
            ServiceLevel::Offload => 0,
            ServiceLevel::Worker => self.room.levels.workers,
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
    ) -> Option<(Place, Vec<(ServiceId, Place)>)> {
        let admitted = promises.admit(candidate, false, &self.room.algorithm, MOST_MOVES).ok()?;
        let place = |id: ServiceId| {
            let (_, candidate, choice) = promises.services().find(|(known, ..)| *known == id)?;
            self.place(candidate.choices.get(choice)?)
        };
        let moves = admitted.moves.iter().filter_map(|(id, _)| Some((*id, place(*id)?)));
        Some((place(admitted.id)?, moves.collect()))
    }

    /// Returns the place of a choice, without its memory.
    pub fn place(&self, choice: &Choice) -> Option<Place> {
        Some(Place { level: self.level(choice)?, used: self.room.used(&choice.impact) })
    }

    /// Returns the promises to principals, of a router that is to run these services.
    pub fn promises<'a>(&self, demands: impl Iterator<Item = Demand<'a>>) -> Promises {
        let pinned: BTreeSet<u16> = demands.filter_map(|demand| demand.service.worker).collect();
        let mut promises = Promises::new(&self.room.components(&pinned));
        let Held { processors, workers, memory, links } = &self.held;
        let used = Used { worker: *workers, memory: *memory, host: 0 };
        let shares = self.room.fixed("principals", used, None, processors.saturating_sub(*workers));
        for candidate in std::iter::once(shares).chain(links.iter().filter_map(|link| self.link(link))) {
            promises.hold(candidate, 0, false);
        }
        promises
    }

    /// Adds a placed service to promises.
    pub fn hold(&self, promises: &mut Promises, standing: &Standing<'_>) -> ServiceId {
        let Standing { demand, place, is_pinned } = standing;
        let found = |demand: Demand<'_>, pin: Option<ServiceLevel>| {
            let candidate = self.candidate(demand, pin).ok()?;
            let choice = candidate.choices.iter().position(|one| self.level(one) == Some(place.level))?;
            Some((candidate, choice))
        };
        if let Some((candidate, choice)) = found(*demand, is_pinned.then_some(place.level)) {
            return promises.hold(candidate, choice, !is_pinned);
        }
        // An allowance, its plugin or the router has changed, so that it would be refused now. It keeps what it was
        // promised.
        let unlimited = Demand { is_free: true, ..*demand };
        let (candidate, choice) = found(unlimited, Some(place.level))
            .unwrap_or_else(|| (self.room.fixed(demand.instance, place.used, demand.service.worker, 0), 0));
        promises.hold(candidate, choice, false)
    }

    /// Returns what the packets of a reserved rate use: the switches on their way, if they have the usual size.
    pub fn link(&self, HeldLink { principal, rate, .. }: &HeldLink) -> Option<Candidate> {
        let bytes = f64::from(USUAL_SIZE);
        let input = Stream { packets_per_second: *rate as f64 / (bytes * 8.0), bytes, bytes_maximum: None };
        let cycles = [(WORKER.to_owned(), Cycles::default())].into();
        let request = request(principal, Needs { cycles, ..Needs::default() }, input, input);
        let mut candidate = Candidate::of(&self.room.hardware, &request).ok()?;
        for choice in &mut candidate.choices {
            choice.impact.sums.retain(|(component, _)| self.room.is_switch(*component));
        }
        Some(candidate)
    }

    /// Returns the possible places of a service with their impacts; only `pin` if it is given.
    pub fn candidate(
        &self,
        demand: Demand<'_>,
        pin: Option<ServiceLevel>,
    ) -> Result<Candidate, ControlError> {
        let Demand { instance, plugin, service, .. } = demand;
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
        let leave = input.packets_per_second * plugin.declared_needs().output;
        let needs = Needs { cycles, code_slots: self.room.levels.workers as f64, ..Needs::default() };
        let request = request(instance, needs, input, Stream { packets_per_second: leave, ..input });
        let found = Candidate::of(&self.room.hardware, &request);
        let mut candidate = found.map_err(|error| ControlError::invalid(error.to_string()))?;
        for choice in &mut candidate.choices {
            let level = LEVELS.into_iter().find(|level| self.is_at(choice.processor, *level));
            let memory = level.map_or(0, |level| self.memory_of(level, plugin));
            let impact = std::mem::take(&mut choice.impact);
            choice.impact = self.room.complete(impact, service.worker, memory);
        }
        Ok(candidate)
    }

    /// Returns the reason why a service can't run at a level, or must not; `None` if it can.
    pub fn impossible(&self, level: ServiceLevel, demand: Demand<'_>) -> Option<String> {
        let owner = |model: &'m Model| model.placements.owners.get(demand.instance);
        let excluded = self.owners.filter(|_| !demand.is_free).and_then(|model| {
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
            ServiceLevel::Host if self.room.levels.host <= 0.0 => {
                Some("no processor is left beside the workers".to_owned())
            }
            ServiceLevel::Worker | ServiceLevel::Host => None,
        }
    }

    fn level(&self, choice: &Choice) -> Option<ServiceLevel> {
        LEVELS.into_iter().find(|level| self.is_at(choice.processor, *level))
    }

    fn is_at(&self, processor: usize, level: ServiceLevel) -> bool {
        self.room.hardware.processors.get(processor).is_some_and(|one| one.name == level.name())
    }
}

fn request(name: &str, needs: Needs, input: Stream, output: Stream) -> Request {
    Request {
        name: name.to_owned(),
        class: Class::PerFlow,
        port: None,
        plugin: None,
        on: Vec::new(),
        user: None,
        needs,
        input,
        output: Some(output),
    }
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
