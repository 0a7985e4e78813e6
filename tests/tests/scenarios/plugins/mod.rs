//! Plugins: loading, traffic, upgrades, quarantine, and limits of resources.

mod contexts;
mod executables;
pub mod files;
mod functions;
pub mod host_companions;
mod live_traffic;
mod memory;
mod monitors;
mod moves;
mod quarantine;
mod shared_objects;
mod signatures;
mod texts;
mod version_record;
