//! Scenarios: a router's process on real interfaces, with hosts, links and traffic of a Linux machine in
//! network namespaces.
//!
//! Every test builds its topology, starts the binary as users do, and checks conservation when its traffic
//! has stopped. Tests run one at a time. They need root. Without root, or without a program that it uses, a
//! test prints the reason and is skipped, unless the environment variable `CI` is `true`.

mod bad_input;
mod batches;
mod capture;
mod certificates;
mod churn;
mod clients;
mod clocks;
mod commands;
mod configuration;
mod control_plane;
mod counters;
mod crashes;
mod dashboard;
mod death;
mod driver_faults;
mod driver_filters;
mod driver_flows;
mod driver_forms;
mod drivers;
mod events;
mod faults;
mod fib;
mod filters;
mod garbage;
mod hardware;
mod host_output;
mod hygiene;
mod interface;
mod kernel;
mod lab;
mod limits;
mod links;
mod lists;
mod memory;
mod monitors;
mod neighbours;
mod operations;
mod operator;
mod own_ports;
mod placement;
mod plugin_files;
mod plugin_functions;
mod plugin_halves;
mod plugin_memory;
mod plugin_words;
mod plugins;
mod policy;
mod reference;
mod remembered;
mod remote;
mod reservations;
mod routing_daemon;
mod scheduler_changes;
mod schedulers;
mod seeing;
mod service;
mod shared_objects;
mod shell;
mod shutdown;
mod soak;
mod strangers;
mod support;
mod traces;
mod troubles;
mod wanted_routes;
mod workers;
