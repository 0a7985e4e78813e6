//! Components of a router: those of its levels, and those that the levels share: time of all processors, memory, and time
//! of each worker.

use std::collections::BTreeSet;

use millrace_admission::component::{Component, Role};
use millrace_admission::hardware::Hardware;
use millrace_admission::impact::{Candidate, Choice, Impact};
use millrace_admission::levels::{HOST, Levels, PROCESS_RINGS, WORKER, WORKER_RINGS};
use millrace_admission::part::Part;
use millrace_admission::placement::Algorithm;
use millrace_admission::utilization_vector::Lack;
use millrace_units::write_size;

use super::PARTS;
use crate::ControlError;
use crate::model::placements::Used;

/// Number of components that all levels share. The single workers follow them.
const SHARED: usize = 2;
/// Parts per million of a processor that are errors of rounding.
const ROUNDING: f64 = 1e-3;

/// Components of a router with their capacities.
pub(super) struct Room {
    /// Levels, with the additional components behind their own.
    pub hardware: Hardware,
    pub levels: Levels,
    /// Algorithm of arrivals. It weighs the components of the levels.
    pub algorithm: Algorithm,
    /// Cycles per second of a processor.
    frequency: f64,
    /// Time of all processors that may be promised, in parts per million of one.
    processors: u64,
    /// Memory that may be promised, in bytes; `None` without a limit.
    memory: Option<u64>,
    /// Index of the first additional component.
    first: usize,
}

/// Component of a level, as users see it.
pub(super) struct Described {
    pub component: usize,
    pub name: String,
    pub unit: &'static str,
    /// Amount of the whole component.
    pub capacity: f64,
    /// Amount that may be promised; `None` without a limit.
    pub whole: Option<f64>,
    /// Whether it was measured, and so is shown without services, too.
    pub is_measured: bool,
}

impl Room {
    /// Returns the components of levels on processors of `frequency` cycles per second.
    ///
    /// # Errors
    /// A capacity is impossible.
    pub fn new(
        levels: Levels,
        frequency: f64,
        processors: u64,
        memory: Option<u64>,
    ) -> Result<Self, ControlError> {
        let mut hardware = levels
            .hardware()
            .map_err(|error| ControlError::conflict(format!("no service can be placed: {error}")))?;
        let algorithm = Levels::algorithm(&hardware);
        let first = hardware.components.len();
        let component = |name: &str, role, limit: Part| Component { name: name.to_owned(), role, limit };
        let of_memory = if memory.is_some() { Part::WHOLE } else { Part::UNBOUNDED };
        hardware.components.push(component("processors", Role::Cycles, Part::WHOLE));
        hardware.components.push(component("memory", Role::Memory, of_memory));
        let workers = (0..levels.workers).map(|worker| format!("worker {worker}"));
        hardware.components.extend(workers.map(|name| component(&name, Role::Cycles, Part::WHOLE)));
        Ok(Self { hardware, levels, algorithm, frequency, processors, memory, first })
    }

    /// Returns the components with their limits. Only the workers to which services are pinned limit anything beside
    /// all workers together.
    pub fn components(&self, pinned: &BTreeSet<u16>) -> Vec<Component> {
        let mut components = self.hardware.components.clone();
        for (number, worker) in components.iter_mut().skip(self.first + SHARED).enumerate() {
            if !pinned.iter().any(|pin| usize::from(*pin) == number) {
                worker.limit = Part::UNBOUNDED;
            }
        }
        components
    }

    /// Returns the processor time of an impact.
    pub fn used(&self, impact: &Impact) -> Used {
        let of = |name: &str, cycles: f64| {
            let share = self.hardware.component(name).map_or(0.0, |component| impact.of(component).number());
            (share * self.time(cycles) - ROUNDING).ceil() as u64
        };
        let (worker, host) = (of(WORKER, self.levels.worker), of(HOST, self.levels.host));
        Used { worker, host, ..Used::default() }
    }

    /// Adds the additional components to the impact of a service, and counts its time in whole parts per million, as
    /// it is shown. Packets for a pinned service cross between workers once more.
    pub fn complete(&self, impact: Impact, worker: Option<u16>, memory: u64) -> Impact {
        let used = Used { memory, ..self.used(&impact) };
        let time = [WORKER, HOST].map(|name| self.hardware.component(name));
        let Impact { mut sums, flow } = impact;
        sums.retain(|(component, _)| !time.contains(&Some(*component)));
        for (component, part) in sums.iter_mut().filter(|_| worker.is_some()) {
            let name = self.hardware.components.get(*component).map_or("", |one| &one.name);
            if unit_name(name).0 == WORKER_RINGS {
                *part = part.plus(*part).unwrap_or(Part::LARGEST);
            }
        }
        sums.extend(self.parts(used, worker, 0));
        Impact { sums, flow }
    }

    /// Returns a candidate that uses this time and memory, `beside` parts per million of the processors besides, and
    /// has no other place.
    pub fn fixed(&self, name: &str, used: Used, worker: Option<u16>, beside: u64) -> Candidate {
        self.alone(name, Impact { sums: self.parts(used, worker, beside), flow: None })
    }

    /// Returns a candidate with an impact, and no other place.
    pub fn alone(&self, name: &str, impact: Impact) -> Candidate {
        let processor = self.hardware.processor(WORKER);
        let choices = processor.map(|processor| Choice { processor, impact }).into_iter().collect();
        Candidate { name: name.to_owned(), choices }
    }

    fn parts(&self, used: Used, worker: Option<u16>, beside: u64) -> Vec<(usize, Part)> {
        let part = |component: Option<usize>, amount: f64, whole: f64| {
            Some((component.filter(|_| amount > 0.0)?, Part::at_least(amount / whole)))
        };
        let (workers, count) = (self.time(self.levels.worker), self.levels.workers.max(1) as f64);
        let at_workers = used.worker as f64;
        let of_worker = |number: usize| {
            let amount = match worker {
                None => at_workers / count,
                Some(pin) if usize::from(pin) == number => at_workers,
                Some(_) => 0.0,
            };
            part(Some(self.first + SHARED + number), amount, workers / count)
        };
        let component = |name| self.hardware.component(name);
        let all = used.worker.saturating_add(used.host).saturating_add(beside) as f64;
        let shared = [
            part(component(WORKER), at_workers, workers),
            part(component(HOST), used.host as f64, self.time(self.levels.host)),
            part(Some(self.first), all, self.processors as f64),
            self.memory.and_then(|whole| part(Some(self.first + 1), used.memory as f64, whole as f64)),
        ];
        shared.into_iter().chain((0..self.levels.workers).map(of_worker)).flatten().collect()
    }

    /// Returns the time of cycles per second, in parts per million of a processor.
    fn time(&self, cycles: f64) -> f64 {
        cycles / self.frequency * PARTS
    }

    /// Whether a component is a switch.
    pub fn is_switch(&self, component: usize) -> bool {
        self.hardware.components.get(component).is_some_and(|one| one.role == Role::Switch)
    }

    /// Returns the missing amount of a component with its name.
    pub fn lack(&self, Lack { component, missing }: Lack) -> String {
        let name = self.hardware.components.get(component).map_or("-", |one| unit_name(&one.name).0);
        match self.memory.filter(|_| component == self.first + 1) {
            Some(whole) => {
                format!("{} of {name}", write_size((missing.number() * whole as f64).round() as u64))
            }
            None => format!("{missing} of {name}"),
        }
    }

    /// Whether a component is the memory.
    pub fn is_memory(&self, component: usize) -> bool {
        component == self.first + 1
    }

    /// Returns the components of the levels beside the workers.
    pub fn described(&self) -> Vec<Described> {
        let variants = self.levels.offload.map_or(0.0, |level| f64::from(level.variants));
        let own = [
            (HOST, "host", "%", self.time(self.levels.host) / PARTS * 100.0),
            ("offload.code", "offload", "eBPF variants", variants),
        ];
        let own = own.into_iter().filter_map(|(component, name, unit, capacity)| {
            let component = self.hardware.component(component)?;
            let whole = Some(capacity);
            Some(Described { component, name: name.to_owned(), unit, capacity, whole, is_measured: false })
        });
        let switches = (0..self.first).filter(|index| self.is_switch(*index)).filter_map(|component| {
            let known = self.hardware.components.get(component)?;
            let (name, unit) = unit_name(&known.name);
            let switch = self.hardware.switches.iter().find(|switch| switch.name == name)?;
            let capacity = match unit {
                "bit/s" => switch.bits?,
                "transfers/s" => switch.packets?,
                _ => 100.0,
            };
            let whole = Some(known.limit.number() * capacity).filter(|whole| whole.is_finite());
            let is_measured = name != PROCESS_RINGS;
            Some(Described { component, name: name.to_owned(), unit, capacity, whole, is_measured })
        });
        own.chain(switches).collect()
    }
}

/// Returns the name of a switch without the unit of its component, and the unit.
fn unit_name(component: &str) -> (&str, &'static str) {
    match (component.strip_suffix(".packets"), component.strip_suffix(".bits")) {
        (Some(name), _) => (name, "transfers/s"),
        (_, Some(name)) => (name, "bit/s"),
        (None, None) => (component, "%"),
    }
}
