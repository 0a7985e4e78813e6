//! Offloaded flows: order, filters, eBPF variants of plugins, faults, and placement.

mod ebpf_variants;
mod faults;
pub mod filters;
mod flows;
mod placement;
