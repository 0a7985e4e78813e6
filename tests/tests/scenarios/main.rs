//! A router's process on real interfaces: hosts, links and traffic of a Linux machine, in network namespaces.
//!
//! Every test builds what it needs, starts the binary as people do, and checks the conservation law when its traffic has
//! stopped. Tests take turns. They need root; without it, or without a program that a test uses, it says so and is
//! skipped, unless the environment variable `CI` is `true`.

mod bad_input;
mod batches;
mod capture;
mod certificates;
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
mod filters;
mod garbage;
mod hardware;
mod host_output;
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
mod remembered;
mod remote;
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
mod troubles;
mod wanted_routes;
mod workers;
