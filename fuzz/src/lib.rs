//! What the fuzz targets call: one module for each journey under test. Decoders are called by their targets alone.

pub mod configuration;
pub mod driver;
pub mod input;
pub mod interface;
pub mod netlink;
pub mod plugin_verdicts;
pub mod router;
