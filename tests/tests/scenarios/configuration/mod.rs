//! Configurations: changes, saving, lists, and configured routes.

pub mod changes;
mod lists;
mod saving;
mod wanted_routes;
mod worker_threads;
