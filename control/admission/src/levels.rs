//! Hardware of a router on a general-purpose machine: the levels offload, worker and host.

use std::fmt::Write as _;

use crate::component::Role;
use crate::hardware::{Hardware, HardwareError};
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

/// Packets per second that the ring between a worker and a process carries, as assumed: a tenth of what the ring itself
/// carried in `bench levels`.
pub const RING_RATE: u32 = 10_000_000;
/// Cycles per packet that a worker spends to exchange it with a process on another processor: the largest figure
/// that `bench cpu --case process` accepts.
const RING_CYCLES: u32 = 300;

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
            let _ = write!(text, "[[switch]]\nname = \"ring\"\npackets-per-second = {RING_RATE}\n");
            let rest = format!(
                "switches = [{{ name = \"ring\" }}]\nup = [{{ send = {{ packet = {RING_CYCLES} }} }}]\ndown = [{{}}]\n"
            );
            text += &path(WORKER, HOST, &rest);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impact::Candidate;
    use crate::request::{Class, Cycles, Needs, Request, Stream};

    const ALL: Levels =
        Levels { offload: Some(OffloadLevel { instructions: 200, variants: 4 }), worker: 1e9, host: 2e9 };

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
