//! Schedulers: rates, queues, changes, reservations, and host output.

mod changes;
mod errors;
mod host_output;
mod live_traffic;
mod reservations;
mod user_packets;
