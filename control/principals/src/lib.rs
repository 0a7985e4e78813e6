//! Isolation of principals on the machine level: the kernel's control groups and the scheduling of threads.
//!
//! [`Machine`] finds the controllers of this machine, in hierarchies of version 1 or 2. A [`RouterGroup`] is
//! the control group of one running router, below the group in which the router was started. It contains a
//! [`Group`] for each principal. A group has [`Limits`] and reports its [`Usage`]. It holds either processes
//! of a principal, which [`Launch`] starts, or threads of the router itself ([`Members`]). [`ThreadSettings`]
//! bind threads to processors and set their scheduling policy. [`isolation`] lists, for `millrace doctor`,
//! the isolation that this machine can give.
//!
//! ```text
//! OWN                          group in which the router was started, one per hierarchy
//! └─ millrace-NAME             RouterGroup, locked by the running router
//!    ├─ router                 version 2: all processes of the router
//!    │  └─ THREADS             Group with threads of the router
//!    └─ PRINCIPAL              Group with processes of a principal
//! ```
//!
//! Version 2 forbids processes in a group that distributes resources to child groups. So the router moves its
//! own processes to the group `router` first, and back at the end. Version 1 has no such rule; there `router`
//! only contains the groups of threads.
//!
//! All functions block for the time of a few system calls; [`Group::remove`] and [`RouterGroup::remove`] try for
//! [`REMOVAL`]. The kernel's description of the files:
//! `Documentation/admin-guide/cgroup-v1/` and `Documentation/admin-guide/cgroup-v2.rst`.
#![deny(unsafe_code)]

mod controller;
mod directory;
mod error;
mod files;
mod group;
mod isolation;
mod launch;
mod limits;
mod machine;
mod member;
mod name;
mod processes;
mod processor_times;
mod router_group;
mod thread;

#[cfg(test)]
mod test_support;

pub use controller::{Controller, Obstacle, Version};
pub use directory::REMOVAL;
pub use error::GroupError;
pub use group::{Group, Members, RealtimeShare, Usage, block_devices};
pub use isolation::{Finding, Verdict, isolation};
pub use launch::Launch;
pub use limits::{CpuLimit, CpuWeight, LimitError, Limits};
pub use machine::{ControllerState, Machine, Place};
pub use member::Member;
pub use processes::Process;
pub use processor_times::{ProcessorTimes, processor_times, read_processor_times};
pub use router_group::RouterGroup;
pub use thread::{Policy, Processor, ThreadError, ThreadSettings, keep_off, let_on, other_threads};
