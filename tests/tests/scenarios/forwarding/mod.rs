//! Filters, counters, traces, captures, and control-plane policing.

mod capture;
pub mod control_plane;
mod counters;
mod filters;
mod firewall;
mod gates;
pub mod packet_traces;
