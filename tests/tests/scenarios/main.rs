//! Scenarios: a router process on real interfaces in network namespaces, with hosts, links and traffic.
//!
//! Every test builds its topology, starts the binary as users do, and checks conservation when its traffic
//! has stopped. Tests run one at a time. They need root. Without root, or without a program that it uses, a
//! test prints the reason and is skipped, unless the environment variable `CI` is `true`.

mod api;
mod cli;
mod configuration;
mod faults;
mod forwarding;
mod kernel;
mod offload;
mod plugins;
mod ports;
mod schedulers;
mod support;
