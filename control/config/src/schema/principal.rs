//! Principals: owners of resources, such as a user or a service.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::Named;
use crate::values::quantity::Size;
use crate::values::share::{ByteRate, ProcessorShare};

/// Reserved share of a processor: at least 0.1 %.
pub type CpuShare = ProcessorShare<1_000>;
/// Limit of processor time: at least 1 %, which is the kernel's minimum.
pub type CpuLimit = ProcessorShare<10_000>;
/// Limit of memory: 4 KiB to 1,024 TiB.
pub type MemoryLimit = Size<4_096, { 1 << 50 }>;

/// Owner of resources. The kernel limits the processes that `millrace exec` starts for a principal, by control
/// groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Principal {
    /// Name of the principal.
    pub name: Named,
    /// Processor time reserved for the principal while others need it too, of one processor: `"5 %"`. All
    /// principals together reserve at most 100 % of each processor. Default: a share by `weight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuShare>,
    /// Weight among the principals without `cpu`, which share the rest of the processor time: 1 to 10,000.
    /// Default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub weight: Option<u32>,
    /// Largest processor time, also while processors are idle, of one processor: `"20 %"`. Not below `cpu`.
    /// Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<CpuLimit>,
    /// Largest memory, including the page cache of the principal's files. The kernel kills a process that
    /// needs more. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryLimit>,
    /// Largest rate of reads from each block device, and of writes to it: `"2 MB/s"`. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteRate>,
    /// Largest number of processes and threads: 1 to 4,194,304. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_194_304))]
    pub processes: Option<u32>,
}

impl Principal {
    /// Weight of a principal without `weight`.
    pub const USUAL_WEIGHT: u32 = 100;
    /// Largest weight.
    pub const MOST_WEIGHT: u32 = 10_000;
    /// Largest limit of `processes`: the largest process id of the kernel.
    pub const MOST_PROCESSES: u32 = 4_194_304;
}
