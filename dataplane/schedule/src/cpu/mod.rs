//! CPU scheduler of a worker: decides which principal gets the processor next.
//!
//! A principal owns a share of the processor time that the core work of the worker leaves. A share is
//! absolute (parts per million of one processor), or a weight among the principals without an absolute share.
//! The capacity is the processor time that core leaves at its ceiling. The scheduler divides whatever core
//! leaves in proportion to the shares, and absolute shares add up to the capacity at most. So each absolute
//! share is delivered whenever core stays below its ceiling, and a principal may use what others leave idle.
//!
//! The scheduler chooses in this order:
//!
//! 1. principals with a deadline, earliest deadline first, each as far as its constant-bandwidth server allows;
//! 2. all other principals in proportion to their shares: absolute shares by WF2Q+ under each kind, weights by
//!    start-time fair queueing, WF2Q+ or stride scheduling;
//! 3. principals with a deadline whose budget is used up, on otherwise idle time.
//!
//! Below it, the flows of a principal take turns, and the stages of a flow before which packets wait:
//! [`CpuQueues`]. Beside it, principals take turns at plugin processes by the same shares: [`CpuTurns`].
//!
//! The kind `edf` gives every principal a constant-bandwidth server. The caller reports measured cycles after
//! each slice, so a slice that took too long leaves a debt. Virtual time stands still during core work. The
//! scheduler is pure: the caller passes the time, which never goes back.

mod account;
mod chain;
mod fair_share;
mod flow_queue;
mod flow_queues;
mod level;
mod limit;
mod scheduler;
mod server;
mod settings;
mod shares;
mod stage_queues;
mod turns;

pub use account::{CpuAccount, CpuDrop, CpuFlowAccount};
pub use flow_queues::CpuQueues;
pub use scheduler::CpuScheduler;
pub use settings::{
    CpuPrincipal, CpuQueueLimits, CpuScheduleError, CpuSchedulerKind, CpuSchedulerSettings, CpuShare,
};
pub use stage_queues::CpuStage;
pub use turns::CpuTurns;

#[cfg(test)]
mod tests;
