//! Hardware of a router on a general-purpose machine: the levels offload, worker and host.

mod figures;

use std::fmt::Write as _;

use crate::component::Role;
use crate::hardware::{Hardware, HardwareError, Line};
use crate::norm::Norm;
use crate::placement::Algorithm;

pub use figures::{Crossing, Figures, Ring, Switches};

/// Kind of the processor that runs eBPF variants of plugins. Its cycles are instructions.
pub const OFFLOAD: &str = "offload";
/// Kind of the workers.
pub const WORKER: &str = "worker";
/// Kind of the processors for plugins that run in processes.
pub const PROCESS: &str = "process";
/// Name of the processor of kind [`PROCESS`], which is the level `host`.
pub const HOST: &str = "host";
/// Name of the switch from ports to the offload, as in files of `hardware measure`.
pub const REDIRECT: &str = "XDP redirect";
/// Name of the switch between ports and workers.
pub const SOCKET_RINGS: &str = "socket rings";
/// Name of the switch between workers.
pub const WORKER_RINGS: &str = "worker rings";
/// Name of the switch between workers and plugin processes.
pub const PROCESS_RINGS: &str = "process rings";
/// Name and kind of the processor that stands for the worker of a device, which may be another worker than that of the
/// flow. No service runs there.
const RECEIVER: &str = "receiver";

/// Levels of a router with their capacities.
///
/// Flows are spread over the workers by their hashes, so that the workers are one processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// Offload level; `None` where flows are not offloaded.
    pub offload: Option<OffloadLevel>,
    /// Cycles per second that core leaves at all workers.
    pub worker: f64,
    /// Cycles per second of the processors beside the workers; 0 if there are none.
    pub host: f64,
    /// Number of workers.
    pub workers: usize,
    /// Time that core may use of each worker, as a share of its processor above 0.
    pub core: f64,
    /// Switches between ports and levels.
    pub switches: Switches,
}

/// Capacity of the offload level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadLevel {
    /// Instructions that eBPF variants may take for each packet.
    pub instructions: u32,
    /// Number of eBPF variants that can be loaded.
    pub variants: u32,
}

impl Levels {
    /// Returns the description of the levels. Its processors have the names of the levels.
    ///
    /// # Errors
    /// A capacity is not finite, or the workers have none.
    pub fn hardware(&self) -> Result<Hardware, HardwareError> {
        Hardware::parse(&self.file())
    }

    /// Returns the algorithm for arrivals at the levels: Balanced (VERA, section 4.4.2) over all components that
    /// services share. The largest use by a flow is none of them: each eBPF variant that loads fits by itself.
    #[must_use]
    pub fn algorithm(hardware: &Hardware) -> Algorithm {
        let weight = |role: Role| match role {
            Role::Port | Role::Global | Role::Flow | Role::Total => 0.0,
            Role::Cycles | Role::Switch | Role::Memory | Role::Code => 1.0,
        };
        let weights = hardware.components.iter().map(|component| weight(component.role));
        Algorithm::LeastNorm(Norm::Largest, weights.collect())
    }

    /// Returns the text of the hardware file.
    fn file(&self) -> String {
        let Switches { redirect, sockets, workers, processes } = self.switches;
        let mut file = File::default();
        let mut lowest = "ports";
        if let Some(OffloadLevel { instructions, variants }) = self.offload {
            file.add(&format!(
                "[[processor]]\nname = \"{OFFLOAD}\"\nkind = \"{OFFLOAD}\"\nscheduling = \"static\"\n\
                 cycles-per-packet = {instructions}\ncode-slots = {variants}\n"
            ));
            file.path([lowest, OFFLOAD], redirect.map(|one| (REDIRECT, one.factor, one)));
            lowest = OFFLOAD;
        }
        // Rings of core are full when it uses its whole ceiling at all workers.
        let core = 1.0 / (self.core * self.workers.max(1) as f64);
        let of_core = |one: Crossing, factor| if one.is_timed() { factor } else { one.factor };
        let sockets = sockets.map(|one| (SOCKET_RINGS, of_core(one, core), one));
        match workers.filter(|_| self.workers > 1) {
            Some(one) => {
                file.processor(RECEIVER, RECEIVER, self.worker);
                file.path([lowest, RECEIVER], sockets);
                // Flows have a device of another worker as often as there are others. Both workers take the time.
                let others = 1.0 - 1.0 / self.workers as f64;
                file.processor(WORKER, WORKER, self.worker);
                file.path([RECEIVER, WORKER], Some((WORKER_RINGS, of_core(one, 2.0 * others * core), one)));
            }
            None => {
                file.processor(WORKER, WORKER, self.worker);
                file.path([lowest, WORKER], sockets);
            }
        }
        if self.host > 0.0 {
            file.processor(HOST, PROCESS, self.host);
            let Ring { transfers_per_second, cycles } = processes;
            file.add(&format!(
                "[[switch]]\nname = \"{PROCESS_RINGS}\"\npackets-per-second = {transfers_per_second:?}\n\
                 [[path]]\nfrom = \"{WORKER}\"\nto = \"{HOST}\"\ntransfer = \"packet\"\n\
                 switches = [{{ name = \"{PROCESS_RINGS}\" }}]\nup = [{{ send = {{ packet = {cycles:?} }} }}]\n\
                 down = [{{}}]\n"
            ));
        }
        file.text()
    }
}

/// Hardware file in the making.
#[derive(Default)]
struct File {
    provisioning: String,
    entries: String,
}

impl File {
    fn add(&mut self, entry: &str) {
        self.entries += entry;
    }

    fn processor(&mut self, name: &str, kind: &str, cycles: f64) {
        self.add(&format!(
            "[[processor]]\nname = \"{name}\"\nkind = \"{kind}\"\nscheduling = \"dynamic\"\n\
             cycles-per-second = {cycles:?}\n"
        ));
    }

    /// Adds a path, and its switch with a name and the factor of its times and rates.
    fn path(&mut self, [from, to]: [&str; 2], crossing: Option<(&str, f64, Crossing)>) {
        if let Some((name, _, Crossing { bits, packets, limit, .. })) = crossing {
            self.add(&format!("[[switch]]\nname = \"{name}\"\n"));
            let rates = [(bits, "bits"), (packets, "packets")].into_iter();
            let rates: Vec<_> = rates.filter_map(|(rate, unit)| Some((rate?, unit))).collect();
            let limit = if limit.is_finite() { format!("{limit:?}") } else { "\"unbounded\"".to_owned() };
            // Writing to a string can't fail.
            for (rate, unit) in &rates {
                let _ = writeln!(self.entries, "{unit}-per-second = {rate:?}");
                let _ = writeln!(self.provisioning, "\"{name}.{unit}\" = {limit}");
            }
            if rates.is_empty() {
                let _ = writeln!(self.provisioning, "\"{name}\" = {limit}");
            }
        }
        self.add(&format!("[[path]]\nfrom = \"{from}\"\nto = \"{to}\"\ntransfer = \"packet\"\n"));
        if let Some((name, factor, Crossing { up, down, .. })) = crossing {
            let time = |Line { packet, byte }: Line| {
                format!("{{ time-ns = {{ packet = {packet:?}, byte = {byte:?} }} }}")
            };
            let (up, down) = (time(up), time(down));
            self.add(&format!(
                "switches = [{{ name = \"{name}\", factor = {factor:?} }}]\nup = [{up}]\ndown = [{down}]\n"
            ));
        }
    }

    fn text(&self) -> String {
        format!(
            "name = \"this machine\"\n\
             [packet]\nminimum = 64\nmaximum = 65536\nheader = 64\n\
             [provisioning]\n\"ports.in\" = \"unbounded\"\n\"ports.out\" = \"unbounded\"\n{}\
             [[port]]\nname = \"ports\"\ncount = 1\nbyte-ns = 0.01\n{}",
            self.provisioning, self.entries
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impact::Candidate;
    use crate::request::{Class, Cycles, Needs, Request, Stream};

    const ALL: Levels = Levels {
        offload: Some(OffloadLevel { instructions: 200, variants: 4 }),
        worker: 1e9,
        host: 2e9,
        workers: 1,
        core: 0.5,
        switches: Switches::ASSUMED,
    };

    fn names(levels: Levels) -> Vec<String> {
        levels.hardware().unwrap().components.into_iter().map(|component| component.name).collect()
    }

    #[test]
    fn levels_without_offload_and_host_have_the_worker_alone() {
        assert_eq!(names(Levels { offload: None, host: 0.0, ..ALL }), ["ports.in", "ports.out", "worker"]);
        assert!(Levels { worker: 0.0, ..ALL }.hardware().is_err(), "without cycles");
        assert!(Levels { worker: f64::NAN, ..ALL }.hardware().is_err(), "no number");
    }

    #[test]
    fn service_uses_the_switches_on_its_route() {
        let crossing = |packet, limit| {
            let line = Line { packet, byte: 1.0 };
            Some(Crossing { up: line, down: line, bits: None, packets: None, factor: 1.0, limit })
        };
        let switches = Switches {
            redirect: crossing(100.0, 0.75),
            sockets: crossing(400.0, 1.0),
            workers: crossing(0.0, f64::INFINITY),
            processes: Ring::ASSUMED,
        };
        let share = |workers: usize, level: &str, component: &str| {
            let hardware = Levels { workers, switches, ..ALL }.hardware().unwrap();
            let limits = ["XDP redirect", "socket rings"].map(|name| hardware.component(name).unwrap());
            let limits = limits.map(|component| hardware.components[component].limit.number());
            assert_eq!(limits, [0.75, 1.0]);
            let candidate = Candidate::of(&hardware, &request()).unwrap();
            let processor = hardware.processor(level).unwrap();
            let choice = candidate.choices.iter().find(|choice| choice.processor == processor).unwrap();
            hardware.component(component).map(|component| choice.impact.of(component).number())
        };
        let near = |found: Option<f64>, expected: f64| {
            assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{found:?}, not {expected}");
        };
        // 100,000 packets of 100 bytes, there and back.
        near(share(1, OFFLOAD, "XDP redirect"), 1e5 * 2.0 * 200e-9);
        near(share(1, OFFLOAD, "socket rings"), 0.0);
        near(share(1, HOST, "XDP redirect"), 1e5 * 2.0 * 200e-9);
        near(share(1, HOST, "socket rings"), 1e5 * 2.0 * 500e-9 / 0.5);
        assert_eq!(share(1, HOST, "worker rings"), None, "a single worker");
        // Four workers have twice a processor's time for core, and three of four packets cross between them.
        near(share(4, HOST, "socket rings"), 1e5 * 2.0 * 500e-9 / 2.0);
        near(share(4, HOST, "worker rings"), 1e5 * 2.0 * 100e-9 * 2.0 * 0.75 / 2.0);
    }

    #[test]
    fn switch_with_a_rate_is_full_at_its_rate() {
        let bus = Crossing {
            up: Line::default(),
            down: Line::default(),
            bits: Some(1e9),
            packets: Some(1e6),
            factor: 2.0,
            limit: 0.5,
        };
        let switches = Switches { sockets: Some(bus), ..Switches::ASSUMED };
        let hardware = Levels { switches, ..ALL }.hardware().unwrap();
        let candidate = Candidate::of(&hardware, &request()).unwrap();
        let share = |name: &str| {
            let component = hardware.component(name).unwrap();
            assert_eq!(hardware.components[component].limit.number(), 0.5);
            candidate.choices[1].impact.of(component).number()
        };
        assert_eq!((share("socket rings.bits"), share("socket rings.packets")), (0.32, 0.4));
    }

    /// Returns a service for offload and host: 100,000 packets per second of 100 bytes.
    fn request() -> Request {
        let cycles = Cycles { packet: 1_000.0, ..Cycles::default() };
        let kinds = [(PROCESS, cycles), (OFFLOAD, Cycles { packet: 50.0, ..cycles })];
        Request {
            name: "a".to_owned(),
            class: Class::PerFlow,
            port: None,
            plugin: None,
            on: Vec::new(),
            user: None,
            needs: Needs {
                cycles: kinds.into_iter().map(|(kind, cycles)| (kind.to_owned(), cycles)).collect(),
                code_slots: 1.0,
                ..Needs::default()
            },
            input: Stream { packets_per_second: 100_000.0, bytes: 100.0, bytes_maximum: None },
            output: None,
        }
    }

    #[test]
    fn service_at_the_host_uses_the_worker_for_its_ring() {
        let hardware = ALL.hardware().unwrap();
        let candidate = Candidate::of(&hardware, &request()).unwrap();
        let share = |choice: usize, name: &str| {
            let component = hardware.component(name).unwrap();
            candidate.choices[choice].impact.of(component).number()
        };
        assert_eq!((share(0, "offload.flow"), share(0, "offload.code")), (0.25, 0.25));
        assert_eq!((share(0, "worker"), share(0, "host")), (0.0, 0.0), "offloaded packets reach no worker");
        assert_eq!(
            (share(1, "host"), share(1, "worker"), share(1, "process rings.packets")),
            (0.05, 0.03, 0.02)
        );
    }
}
