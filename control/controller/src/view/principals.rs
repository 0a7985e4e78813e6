//! Views of principals.

use std::time::Duration;

use millrace_config::{ByteRate, CpuLimit, CpuShare, MemoryLimit};
use millrace_principals::Usage;
use schemars::JsonSchema;
use serde::Serialize;

/// Principal with its settings and its usage.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PrincipalView {
    /// Name of the principal.
    pub name: String,
    /// Reserved processor time, of one processor.
    pub cpu: Option<CpuShare>,
    /// Weight among the principals without reserved processor time; absent for a principal that has some.
    pub weight: Option<u32>,
    /// Largest processor time, of one processor.
    pub cpu_limit: Option<CpuLimit>,
    /// Largest memory.
    pub memory: Option<MemoryLimit>,
    /// Largest rate of reads from each block device, and of writes to it.
    pub disk: Option<ByteRate>,
    /// Largest number of processes and threads.
    pub processes: Option<u32>,
    /// Usage since the group was created.
    pub usage: PrincipalUsageView,
    /// Directories of the principal's control group, one for each hierarchy. A process joins the principal by
    /// writing its process id to `cgroup.procs` in each of them.
    pub directories: Vec<String>,
}

/// Usage of a principal's control group since its creation. A value is absent if the machine doesn't measure
/// it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PrincipalUsageView {
    /// Processor time in seconds.
    pub cpu_seconds: Option<f64>,
    /// Time in seconds during which the processor limit kept processes from running, summed over processors.
    pub throttled_seconds: Option<f64>,
    /// Memory in use, in bytes.
    pub memory: Option<u64>,
    /// Largest memory so far, in bytes.
    pub memory_peak: Option<u64>,
    /// Processes that the kernel killed because of the memory limit.
    pub oom_kills: Option<u64>,
    /// Bytes read from block devices.
    pub disk_read: Option<u64>,
    /// Bytes written to block devices.
    pub disk_written: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
}

impl PrincipalUsageView {
    pub(crate) fn of(usage: &Usage) -> Self {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        Self {
            cpu_seconds: seconds(usage.cpu),
            throttled_seconds: seconds(usage.throttled),
            memory: usage.memory,
            memory_peak: usage.memory_peak,
            oom_kills: usage.oom_kills,
            disk_read: usage.disk_read,
            disk_written: usage.disk_written,
            processes: usage.tasks,
        }
    }
}
