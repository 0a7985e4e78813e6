//! Ports, links, drivers and workers.

mod batches;
mod drivers;
mod hardware;
pub mod links;
mod own_ports;
mod workers;
