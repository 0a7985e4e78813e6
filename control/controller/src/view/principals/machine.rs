//! Views of control groups: of the router's threads, and of processes.

use schemars::JsonSchema;
use serde::Serialize;

/// Control group of threads of the router: `workers`, or `control` with all others.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ThreadGroupView {
    /// Name of the group.
    pub group: String,
    /// Number of threads; `null` without the group.
    pub threads: Option<u64>,
    /// Weight among the groups beside it; a principal has 100 by default.
    pub weight: Option<u16>,
    /// Processor time since the group's creation, in seconds; `null` if the machine doesn't measure it.
    pub cpu_seconds: Option<f64>,
    /// Directories of the group, one for each hierarchy.
    pub directories: Vec<String>,
    /// Reason why the group doesn't exist, or why threads are not in it; `null` without such a reason.
    pub obstacle: Option<String>,
}

/// Promise to the processes of a principal, or of a plugin that several principals pay for, beside the processor time
/// that they got. Percentages are of one processor.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProcessPromiseView {
    /// Name of the control group: that of the principal, or `plugin=NAME`.
    pub group: String,
    /// Principals whose processes are there.
    pub principals: Vec<String>,
    /// Promised processor time, in percent: the reserved share, or the share by weight of what reserved shares leave
    /// while all principals' processes need theirs; `null` for a plugin.
    pub promised: Option<f64>,
    /// Whether the share is reserved.
    #[serde(rename = "reserved")]
    pub is_reserved: bool,
    /// Largest processor time, in percent; `null` without a limit.
    pub limit: Option<f64>,
    /// Number of processes and threads.
    pub processes: Option<u64>,
    /// Processor time since the group's creation, in seconds.
    pub used_seconds: f64,
    /// Processor time over the last 1, 10 and 60 s.
    pub windows: Vec<ProcessWindowView>,
}

/// Processor time of processes over a window, in percent of one processor.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ProcessWindowView {
    /// Length of the window in seconds; shorter than asked for after a start.
    pub seconds: f64,
    /// Processor time that the processes got.
    pub delivered: f64,
    /// Part of the promised share that the processes did not use; `null` without a promise.
    pub idle: Option<f64>,
    /// Time during which the limit kept them from running, summed over processors; `null` if the machine doesn't
    /// measure it.
    pub throttled: Option<f64>,
}
