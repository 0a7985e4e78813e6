//! Principals: owners of resources, such as a user or a service.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::Named;
use crate::values::quantity::{Size, Time};
use crate::values::share::{ByteRate, ProcessorShare};

/// Reserved share of a processor: at least 0.1 %.
pub type CpuShare = ProcessorShare<1_000>;
/// Limit of processor time: at least 1 %, which is the kernel's minimum.
pub type CpuLimit = ProcessorShare<10_000>;
/// Size limit of a flow's queue of waiting packets: 2 KiB to 32 MiB.
pub type QueueLimit = Size<2_048, { 32 << 20 }>;
/// Deadline of a principal: 100 µs to 10 s.
pub type Deadline = Time<100, 10_000_000>;
/// Limit of memory: 4 KiB to 1,024 TiB.
pub type MemoryLimit = Size<4_096, { 1 << 50 }>;

/// Owner of resources. At the workers, the calls of plugin instances that a principal pays for get its share
/// of the processor. The kernel limits the processes that `millrace exec` starts for a principal, by control
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
    /// Longest time that a packet waits for its share of the processor, 100 us to 10 s. The workers serve
    /// principals with a deadline before all others, each up to its share. It needs `cpu`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// Largest size of the packets of a flow that wait for the processor, 2 KiB to 32 MiB. Further packets of
    /// the flow are dropped as `principal_queue_full`. Default 256 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
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
    /// Name of the principal of bindings that name none.
    pub const DEFAULT: &str = "default";
    /// Largest size of a flow's queue without `queue`, in bytes.
    pub const USUAL_QUEUE: u64 = 256 << 10;
    /// Weight of a principal without `weight`.
    pub const USUAL_WEIGHT: u32 = 100;
    /// Largest weight.
    pub const MOST_WEIGHT: u32 = 10_000;
    /// Largest limit of `processes`: the largest process id of the kernel.
    pub const MOST_PROCESSES: u32 = 4_194_304;
}
