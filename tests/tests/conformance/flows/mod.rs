//! Known flows: each variant treats packets as the general path does.

mod counters;
mod driver_flows;
mod express;
mod flow_table;
mod workers;
