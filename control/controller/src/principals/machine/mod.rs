//! Machine level of isolation: control groups of the router's threads and of plugins, processes that principals name,
//! and the processor time of all groups.

mod named;
mod plugins;
mod threads;
mod times;

pub(in crate::principals) use named::NamedProcesses;
pub(in crate::principals) use plugins::{PayerParts, PluginGroups, parts, shared};
pub(crate) use threads::{ThreadGroups, WorkerThreads};
pub(crate) use times::ProcessTimes;
