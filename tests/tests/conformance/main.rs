//! Conformance cases: packets in, packets out, each named after its id in the list of cases.
//!
//! Each module has the cases of a group: `v4.rs` those of V4, and so on. The crate's own description explains
//! how to add a case. Deliberate deviations from recommendations of RFCs are in `docs/decisions.md`.

mod arp;
mod broadcast;
mod counters;
mod driver_flows;
mod ethernet;
mod express;
mod filters;
mod flow_table;
mod forwarding;
mod fragment;
mod header_chains;
mod icmp_error;
mod ipv6;
mod lookup;
mod martian;
mod multicast;
mod nd;
mod options;
mod overload;
mod own_address;
mod plugins;
mod queue_gates;
mod random;
mod security;
mod short_messages;
mod tiny_fragments;
mod trace;
mod ttl;
mod unreachable;
mod v4;
mod workers;
mod writing_plugins;
