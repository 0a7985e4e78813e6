//! Known flows: each variant treats packets as the general path does.

mod counters;
mod express;
pub(crate) mod flow_table;
mod offloaded_flows;
mod workers;
