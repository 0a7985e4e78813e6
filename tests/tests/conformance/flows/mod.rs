//! Known flows: the flow table, the fast path, the offload and several workers treat packets as the general
//! path does.

mod counters;
mod express;
pub(crate) mod flow_table;
mod offloaded_flows;
mod workers;
