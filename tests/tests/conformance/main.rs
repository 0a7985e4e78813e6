//! Conformance cases: packets in, packets out, each named after its id in the list of cases.
//!
//! Each module contains the cases of one group: `ipv4/v4.rs` contains the cases V4. The crate's own description
//! explains how to add a case. Deliberate deviations from recommendations of RFCs are in `docs/decisions.md`.

mod filters;
mod flows;
mod ipv4;
mod ipv6;
mod link;
mod lookup;
mod plugins;
mod security;
mod trace;
