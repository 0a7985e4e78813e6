//! Services: instances with a declared load, for which the router keeps room.

use millrace_units::count;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::is_default;
use crate::values::quantity::{Size, cycles};

/// Declared load of an instance, and the level at which the instance treats packets. The router admits the instance
/// only where the load fits, and keeps room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Service {
    /// Packets per second on average, for all bindings of the instance together. Default 0: no load is declared.
    #[serde(skip_serializing_if = "is_default")]
    pub rate: u32,
    /// Size of packets on average, 64 to 65,536 bytes. Default 1,538 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size<64, 65_536>>,
    /// Processor cycles per packet, at least 0. Default: as declared by the plugin's manifest.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "cycles")]
    #[schemars(range(min = 0.0))]
    pub packet: Option<f64>,
    /// Processor cycles per byte, at least 0. Default: as declared by the plugin's manifest.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "cycles")]
    #[schemars(range(min = 0.0))]
    pub byte: Option<f64>,
    /// Level of the instance. Default: the router chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<ServiceLevel>,
    /// Worker that treats all packets of the instance, by its number from 0 on. The level is `worker` then. Default:
    /// each worker treats the packets of its flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
}

impl Service {
    /// Size of packets of a service that declares none, in bytes.
    pub const USUAL_SIZE: u64 = 1_538;

    /// Returns the level to which the service is pinned, by itself or by its worker.
    #[must_use]
    pub fn pin(&self) -> Option<ServiceLevel> {
        self.level.or(self.worker.map(|_| ServiceLevel::Worker))
    }

    /// Returns the problem of the worker with the level, or with the number of workers of the router.
    #[must_use]
    pub fn worker_problem(&self, workers: usize) -> Option<String> {
        let worker = self.worker?;
        match self.level {
            Some(level) if level != ServiceLevel::Worker => Some(format!(
                "worker {worker} excludes the level {}: give the worker or the level",
                level.name()
            )),
            _ if usize::from(worker) < workers => None,
            _ => Some(format!(
                "there is no worker {worker}: the router has {}, numbered from 0 on",
                count(workers, "worker")
            )),
        }
    }
}

/// Level at which an instance treats packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceLevel {
    /// The eBPF variant of the plugin treats packets of offloaded flows.
    Offload,
    /// The workers treat all packets.
    Worker,
    /// Processes beside the workers treat all packets.
    Host,
}

impl ServiceLevel {
    /// Returns the name of the level.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offload => "offload",
            Self::Worker => "worker",
            Self::Host => "host",
        }
    }
}
