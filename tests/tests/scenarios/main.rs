//! Scenarios: a router process on real interfaces in network namespaces, with hosts, links and traffic.
//!
//! Every test builds its topology and starts the binary as users do. When its traffic has stopped, it checks
//! that no packet is unaccounted. Tests run one at a time. They need root. A test that lacks root, or a
//! program that it uses, prints the reason and is skipped. If the environment variable `CI` is `true`, it
//! fails instead.

mod api;
mod cli;
mod configuration;
mod faults;
mod forwarding;
mod groups;
mod kernel;
mod offload;
mod overload;
mod plugins;
mod ports;
mod principals;
mod reservations;
mod schedulers;
mod shares;
mod support;
