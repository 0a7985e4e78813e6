//! Hardware of a router on a general-purpose machine: the levels offload, worker and host.

use std::fmt::Write as _;

use crate::component::Role;
use crate::hardware::{End, Hardware, HardwareError};
use crate::norm::Norm;
use crate::placement::Algorithm;

/// Kind of the processor that runs eBPF variants of plugins. Its cycles are instructions.
pub const OFFLOAD: &str = "offload";
/// Kind of the workers.
pub const WORKER: &str = "worker";
/// Kind of the processors for plugins that run in processes.
pub const PROCESS: &str = "process";
/// Name of the processor of kind [`PROCESS`], which is the level `host`.
pub const HOST: &str = "host";

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
    /// Ring between the workers and the host.
    pub ring: Ring,
}

/// Capacity and cost of the ring between a worker and the processes of plugins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ring {
    /// Transfers per second that the ring carries: two for each packet, there and back.
    pub transfers_per_second: f64,
    /// Cycles that the worker spends to exchange a packet.
    pub cycles: f64,
}

impl Ring {
    /// Figures of a machine that was not measured: a tenth of what the ring itself carried in `bench levels`, and the
    /// largest cost that `bench cpu --case process` accepts.
    pub const ASSUMED: Self = Self { transfers_per_second: 10_000_000.0, cycles: 300.0 };

    /// Returns the figures of a hardware file for packets of `bytes`, on a machine with `frequency` cycles per second;
    /// `None` if the file describes no ring to processes.
    ///
    /// # Errors
    /// The text is no hardware file.
    pub fn of_file(text: &str, bytes: f64, frequency: f64) -> Result<Option<Self>, HardwareError> {
        let hardware = Hardware::parse(text)?;
        let is_ring = |path: &&crate::hardware::Path| {
            let kind = |index: usize| hardware.processors.get(index).map(|one| &*one.kind);
            let from = match path.from {
                End::Processor(index) => kind(index),
                End::Port(_) => None,
            };
            (from, kind(path.to)) == (Some(WORKER), Some(PROCESS))
        };
        let seconds = hardware.paths.iter().find(is_ring).and_then(|path| path.seconds(bytes));
        let measured = |seconds| Self { transfers_per_second: 2.0 / seconds, cycles: seconds * frequency };
        Ok(seconds.filter(|seconds| *seconds > 0.0).map(measured))
    }
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
        let mut text = String::from(
            "name = \"this machine\"\n\
             [packet]\nminimum = 64\nmaximum = 65536\nheader = 64\n\
             [provisioning]\n\"ports.in\" = \"unbounded\"\n\"ports.out\" = \"unbounded\"\n\
             [[port]]\nname = \"ports\"\ncount = 1\nbyte-ns = 0.01\n",
        );
        let path = |from: &str, to: &str, rest: &str| {
            format!("[[path]]\nfrom = \"{from}\"\nto = \"{to}\"\ntransfer = \"packet\"\n{rest}")
        };
        // Writing to a string can't fail.
        let mut lowest = "ports";
        if let Some(OffloadLevel { instructions, variants }) = self.offload {
            let _ = write!(
                text,
                "[[processor]]\nname = \"{OFFLOAD}\"\nkind = \"{OFFLOAD}\"\nscheduling = \"static\"\n\
                 cycles-per-packet = {instructions}\ncode-slots = {variants}\n{}",
                path(lowest, OFFLOAD, "")
            );
            lowest = OFFLOAD;
        }
        let dynamic = |name: &str, kind: &str, cycles: f64| {
            format!(
                "[[processor]]\nname = \"{name}\"\nkind = \"{kind}\"\nscheduling = \"dynamic\"\n\
                 cycles-per-second = {cycles:?}\n"
            )
        };
        text += &dynamic(WORKER, WORKER, self.worker);
        text += &path(lowest, WORKER, "");
        if self.host > 0.0 {
            text += &dynamic(HOST, PROCESS, self.host);
            let Ring { transfers_per_second, cycles } = self.ring;
            let _ =
                write!(text, "[[switch]]\nname = \"ring\"\npackets-per-second = {transfers_per_second:?}\n");
            let rest = format!(
                "switches = [{{ name = \"ring\" }}]\nup = [{{ send = {{ packet = {cycles:?} }} }}]\ndown = [{{}}]\n"
            );
            text += &path(WORKER, HOST, &rest);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Line, Measured};
    use crate::impact::Candidate;
    use crate::request::{Class, Cycles, Needs, Request, Stream};

    const ALL: Levels = Levels {
        offload: Some(OffloadLevel { instructions: 200, variants: 4 }),
        worker: 1e9,
        host: 2e9,
        ring: Ring::ASSUMED,
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
    fn ring_has_the_figures_of_a_measured_machine() {
        let measured = Measured {
            name: "m".to_owned(),
            processors: 2,
            workers: 1,
            cycles_per_second: 2e9,
            core_ceiling: 0.5,
            process_rings: Some(Line { packet: 100.0, byte: 0.0 }),
            ..Measured::default()
        };
        let text = measured.written().unwrap();
        let ring = Ring::of_file(&text, 1_538.0, 2e9).unwrap().unwrap();
        assert!(
            (ring.transfers_per_second - 2e7).abs() < 1.0 && (ring.cycles - 200.0).abs() < 1e-6,
            "{ring:?}"
        );
        let share = |ring| {
            let hardware = Levels { ring, ..ALL }.hardware().unwrap();
            hardware.component("ring.packets").is_some()
        };
        assert!(share(ring));
        let bare = Measured { process_rings: None, ..measured };
        assert_eq!(Ring::of_file(&bare.written().unwrap(), 64.0, 2e9).unwrap(), None);
        assert!(Ring::of_file("name = 1", 64.0, 2e9).unwrap_err().to_string().contains("name"));
    }

    #[test]
    fn service_at_the_host_uses_the_worker_for_its_ring() {
        let hardware = ALL.hardware().unwrap();
        let cycles = Cycles { packet: 1_000.0, ..Cycles::default() };
        let kinds = [(PROCESS, cycles), (OFFLOAD, Cycles { packet: 50.0, ..cycles })];
        let request = Request {
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
        };
        let candidate = Candidate::of(&hardware, &request).unwrap();
        let share = |choice: usize, name: &str| {
            let component = hardware.component(name).unwrap();
            candidate.choices[choice].impact.of(component).number()
        };
        assert_eq!((share(0, "offload.flow"), share(0, "offload.code")), (0.25, 0.25));
        assert_eq!((share(0, "worker"), share(0, "host")), (0.0, 0.0), "offloaded packets reach no worker");
        assert_eq!((share(1, "host"), share(1, "worker"), share(1, "ring.packets")), (0.05, 0.03, 0.02));
    }
}
