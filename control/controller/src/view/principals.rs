//! Views of principals.

mod machine;

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_config::{
    Bits, ByteRate, CpuLimit, CpuShare, Deadline, LinkReservation, MemoryLimit, QueueLimit,
};
use millrace_pipeline::{PrincipalCounts, PrincipalDrops};
use millrace_principals::Usage;
use schemars::JsonSchema;
use serde::Serialize;

use super::admission::ComponentView;

pub use machine::{ProcessPromiseView, ProcessWindowView, ThreadGroupView};

/// Rate on the wire that a principal has at a port.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum LinkView {
    /// Rate of its own.
    Own(Bits),
    /// Rate and queue of another principal.
    SameAs {
        /// Name of the other principal.
        same_as: String,
    },
}

impl LinkView {
    pub(crate) fn of(link: &LinkReservation) -> Self {
        match link {
            LinkReservation::Own(rate) => Self::Own(*rate),
            LinkReservation::SameAs(other) => Self::SameAs { same_as: (**other).to_owned() },
        }
    }
}

/// Principal with its settings and its usage.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PrincipalView {
    /// Name of the principal.
    pub name: String,
    /// User whose allowances the principal counts for.
    pub owner: Option<String>,
    /// Reserved processor time, of one processor.
    pub cpu: Option<CpuShare>,
    /// Principal that pays for the calls instead.
    pub same_as: Option<String>,
    /// Weight among the principals without reserved processor time; absent for a principal that has some.
    pub weight: Option<u32>,
    /// Largest processor time, of one processor.
    pub cpu_limit: Option<CpuLimit>,
    /// Longest time that a packet waits for the principal's share of the processor.
    pub deadline: Option<Deadline>,
    /// Largest size of the packets of a flow that wait for the processor; absent for the default.
    pub queue: Option<QueueLimit>,
    /// Reserved rates on the wire, by port.
    pub link: BTreeMap<String, LinkView>,
    /// Largest memory of processes, sandboxed instances, flow state and waiting packets together.
    pub memory: Option<MemoryLimit>,
    /// Largest rate of reads from each block device, and of writes to it.
    pub disk: Option<ByteRate>,
    /// Largest number of processes and threads.
    pub processes: Option<u32>,
    /// Names of commands or systemd units whose running processes belong to the principal, too.
    pub process: Vec<String>,
    /// Usage since the group was created.
    pub usage: PrincipalUsageView,
    /// Control group of the principal.
    #[serde(flatten)]
    pub group: PrincipalGroupView,
}

/// Control group of a principal.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PrincipalGroupView {
    /// Reason why the principal has no control group, or why its group doesn't limit the memory of a plugin's
    /// processes; `null` without such a reason.
    pub obstacle: Option<String>,
    /// Directories of the principal's control group, one for each hierarchy. A process joins the principal by
    /// writing its process id to `cgroup.procs` in each of them.
    pub directories: Vec<String>,
}

/// Usage of a principal: of its control group since the group's creation, and at the workers. A value is absent
/// if the machine doesn't measure it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PrincipalUsageView {
    /// Processor time in seconds.
    pub cpu_seconds: Option<f64>,
    /// Time in seconds during which the processor limit kept processes from running, summed over processors.
    pub throttled_seconds: Option<f64>,
    /// Memory of processes, in bytes.
    pub memory: Option<u64>,
    /// Flow state at the workers, in bytes.
    pub flow_state: u64,
    /// Packets that wait for the processor at the workers, in queues or in suspended calls, in bytes.
    pub waiting: u64,
    /// Packets under way to the workers that own the egress ports, in bytes.
    pub handover: u64,
    /// Memory of sandboxed instances at the workers, in bytes, while the principal alone pays for them.
    pub plugin_memory: u64,
    /// Number of times that a flow got no state, or the memory of an instance might not grow, because the principal
    /// had no memory left at a worker.
    pub memory_refusals: u64,
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
    /// Packets lost, by cause.
    pub drops: PrincipalDropsView,
}

impl PrincipalUsageView {
    pub(crate) fn of(usage: &Usage, counts: &PrincipalCounts, drops: PrincipalDropsView) -> Self {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        Self {
            cpu_seconds: seconds(usage.cpu),
            throttled_seconds: seconds(usage.throttled),
            memory: usage.memory,
            flow_state: counts.state_bytes,
            waiting: counts.waiting_bytes,
            handover: counts.handover_bytes,
            plugin_memory: counts.plugin_bytes,
            memory_refusals: counts.memory_refusals,
            memory_peak: usage.memory_peak,
            oom_kills: usage.oom_kills,
            disk_read: usage.disk_read,
            disk_written: usage.disk_written,
            processes: usage.tasks,
            drops,
        }
    }
}

/// Promises to core and to all principals that pay for bindings, beside what the workers delivered. Percentages are of one
/// processor.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PromisesView {
    /// Promises, one for each principal.
    pub promises: Vec<PromiseView>,
    /// Processor time of core, one for each port that received packets.
    pub core_inputs: Vec<CoreInputView>,
    /// Processor time of core by function; empty unless `core` is `share` or `share-by-function`.
    pub core_functions: Vec<CoreFunctionView>,
    /// Reserved rates on the wire, one for each principal and port.
    pub links: Vec<LinkPromiseView>,
    /// Processor time of processes, one for each control group of a principal or plugin that had any.
    pub processes: Vec<ProcessPromiseView>,
    /// Control groups of the router's threads; none without principals.
    pub thread_groups: Vec<ThreadGroupView>,
}

/// Processor time of core for the packets that a port received. The time of `core` beyond all ports is that of
/// sending, timers and idle polls.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CoreInputView {
    /// Name of the port.
    pub port: String,
    /// Processor time used since the counters were cleared, in seconds.
    pub used_seconds: f64,
    /// Processor time over the last 1, 10 and 60 s.
    pub windows: Vec<CoreInputWindowView>,
}

/// Processor time of core over a window: for the packets of a port, or for a function.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct CoreInputWindowView {
    /// Length of the window in seconds; shorter than asked for after a start.
    pub seconds: f64,
    /// Processor time, in percent of one processor.
    pub used: f64,
}

/// Processor time of a function of core: of receiving at a port, of forwarding, or of sending at a port. The time of
/// `core` beyond all functions is that of timers and idle polls.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CoreFunctionView {
    /// Function: `input`, `forwarding` or `output`.
    pub function: &'static str,
    /// Name of the port; absent for forwarding.
    pub port: Option<String>,
    /// Processor time used since the counters were cleared, in seconds.
    pub used_seconds: f64,
    /// Processor time over the last 1, 10 and 60 s.
    pub windows: Vec<CoreInputWindowView>,
}

/// Rate on the wire that a principal reserved at a port, beside what the port's scheduler sent for it. Counters
/// are at most about one second old, and start when the queue of the principal is added.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LinkPromiseView {
    /// Name of the principal.
    pub principal: String,
    /// Name of the port.
    pub port: String,
    /// Reserved rate in bit/s, with the overhead of the link.
    pub promised: u64,
    /// Bytes sent on the wire, with the overhead of the link.
    pub sent_wire_bytes: u64,
    /// Number of packets that wait in the queue.
    pub waiting: u64,
    /// Number of packets that the queue dropped.
    pub dropped: u64,
    /// Longest time, in microseconds, in which the port's longest packet leaves, if the packets don't exceed the
    /// rate; `null` if the scheduler has no rate.
    pub longest_promised: Option<u64>,
    /// Longest time that a packet has waited in the queue, in microseconds, at most about one second ago.
    pub longest_wait: u64,
    /// Principals that share the rate, and whose packets are in the same queue: the promise is one to all of them.
    pub shared_with: Vec<String>,
    /// Rates over the last 1, 10 and 60 s.
    pub windows: Vec<LinkWindowView>,
}

/// Rate of a principal at a port over a window.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct LinkWindowView {
    /// Length of the window in seconds; shorter than asked for after a start.
    pub seconds: f64,
    /// Rate in bit/s on the wire, with the overhead of the link.
    pub delivered: u64,
    /// Rate due to the principal in bit/s: the reserved rate while its packets waited, less the longest promised wait
    /// whenever packets began to wait.
    pub entitled: u64,
    /// Part of the reserved rate in bit/s that the principal left, because it had no packets.
    pub idle: u64,
    /// Whether the principal got the rate that was due, to 1 % and two packets.
    #[serde(rename = "kept")]
    pub is_kept: bool,
    /// Number of packets that the queue dropped.
    pub dropped: u64,
}

/// Promise to a principal, beside what the workers delivered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PromiseView {
    /// Name of the principal, `core` for the workers' own work, or `control` for packets to the router itself.
    pub principal: String,
    /// Number of bindings that the principal pays for, with the filters that give it to packets.
    pub bindings: usize,
    /// Promised processor time, in percent: the reserved share, or the share by weight when all others need
    /// theirs.
    pub promised: f64,
    /// Whether the share is reserved.
    #[serde(rename = "reserved")]
    pub is_reserved: bool,
    /// Largest processor time, in percent; `null` without a limit.
    pub limit: Option<f64>,
    /// Processor time used since the start, in seconds.
    pub used_seconds: f64,
    /// Number of times that the limit stopped the principal.
    pub throttled: u64,
    /// Number of packets that got the processor.
    pub packets: u64,
    /// Number of packets that wait for the processor.
    pub waiting: u64,
    /// Bytes of these packets.
    pub waiting_bytes: u64,
    /// Number of packets that the workers dropped: the sum of `drops` without `link_queue`. Those of `core`
    /// include the packets of all principals that were shed.
    pub dropped: u64,
    /// Packets lost, by cause.
    pub drops: PrincipalDropsView,
    /// Deadlines at the processor.
    #[serde(flatten)]
    pub deadlines: DeadlinesView,
    /// Processor time over the last 1, 10 and 60 s.
    pub windows: Vec<PromiseWindowView>,
}

/// Deadlines of a principal at the processor.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct DeadlinesView {
    /// Number of slices that began within the deadline of their first packet; 0 without a deadline.
    #[serde(rename = "deadlines_met")]
    pub met: u64,
    /// Number of slices that began later.
    #[serde(rename = "deadlines_missed")]
    pub missed: u64,
    /// Longest time, in microseconds, from the arrival of a slice's first packet to the end of its call, if the
    /// packets need no more than the share; `null` without a deadline.
    pub longest_promised: Option<u64>,
    /// Longest such time so far, in microseconds; 0 without a deadline.
    pub longest_wait: u64,
}

/// Packets that a principal lost, by cause.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct PrincipalDropsView {
    /// Number of packets dropped because too many waited for the processor.
    pub cpu_queue: u64,
    /// Number of packets dropped because the principal had no memory left at the worker.
    pub memory: u64,
    /// Number of packets shed because core was overloaded and at its share.
    pub core_ceiling: u64,
    /// Number of packets for which the rings to the worker that owns the egress port had no room.
    pub handover: u64,
    /// Number of packets that the queues of the principal at ports dropped, at most about one second ago.
    pub link_queue: u64,
}

impl PrincipalDropsView {
    pub(crate) fn of(drops: &PrincipalDrops, link_queue: u64) -> Self {
        let PrincipalDrops { queue, memory, core_ceiling, handover } = *drops;
        Self { cpu_queue: queue, memory, core_ceiling, handover, link_queue }
    }
}

/// Processor time of a principal over a window, in percent of one processor.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct PromiseWindowView {
    /// Length of the window in seconds; shorter than asked for after a start.
    pub seconds: f64,
    /// Part of the window in which the principal had work, in percent.
    pub wanted: f64,
    /// Processor time due to the principal: its promised share of the time in which it had work.
    pub entitled: f64,
    /// Processor time that the principal got.
    pub delivered: f64,
    /// Whether the principal got what was due, to 1 % and two slices.
    #[serde(rename = "kept")]
    pub is_kept: bool,
    /// Part of the promised share that the principal left, because it had no work.
    pub idle: f64,
    /// Time that the hypervisor took from all processors.
    pub steal: f64,
    /// Number of slices that began within the deadline of their first packet.
    pub deadlines_met: u64,
    /// Number of slices that began later.
    pub deadlines_missed: u64,
    /// Packets lost, by cause.
    pub drops: PrincipalDropsView,
}

/// Reservation for the flows of a filter, after a change or as it would be.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReservationView {
    /// Name of the principal.
    pub principal: String,
    /// Changes, as commands.
    pub changes: Vec<String>,
    /// Resources that principals can still reserve afterwards.
    pub left: LeftView,
    /// Granted deadline; absent if none was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DeadlineView>,
    /// Each component as it would be afterwards; absent if the reservation was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentView>,
}

/// Granted deadline of the packets of a reservation.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct DeadlineView {
    /// Longest time in the router, in microseconds, if no more packets arrive than asked for. It is at most the
    /// deadline that was asked for.
    pub bound: u64,
    /// Part of the deadline at the processor, in microseconds; absent without processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<u64>,
    /// Part of the deadline at the link, in microseconds; absent without a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<u64>,
}

/// Resources that principals can still reserve.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LeftView {
    /// Processor time of the workers, in percent of one processor.
    pub cpu: f64,
    /// Rates on the wire, at the ports of the reservation.
    pub link: BTreeMap<String, Bits>,
}
