//! Execution at a worker: bindings, instances, calls, and packets that wait for instances.

pub(crate) mod binding;
pub(crate) mod bindings;
pub(crate) mod calls;
pub(crate) mod change;
pub(crate) mod classify;
pub(crate) mod direction;
pub(crate) mod ended_stages;
pub(crate) mod health;
pub(crate) mod instances;
pub(crate) mod paid_stages;
pub(crate) mod payers;
pub(crate) mod pulse;
pub(crate) mod recheck;
pub(crate) mod succession;
pub(crate) mod waiting;
pub(crate) mod worker_plugins;
