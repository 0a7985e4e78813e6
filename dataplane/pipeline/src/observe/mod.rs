//! Observation: captures, traces, explanations, logs of drops, and snapshots of counters.

pub(crate) mod capture;
pub(crate) mod drop_log;
pub(crate) mod event;
pub(crate) mod explain;
#[cfg(test)]
pub(crate) mod filter_consumers;
pub(crate) mod snapshot;
pub(crate) mod trace;
