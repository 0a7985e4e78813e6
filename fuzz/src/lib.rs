//! Fuzz targets: one module for each target.

mod configuration;
mod connections;
mod decoders;
mod ebpf_variants;
mod input;
mod interface;
mod netlink;
mod offload;
mod plugin_verdicts;
mod router;
mod wasm_plugin;

/// Name of a fuzz target, and its function, which takes an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by name. `tools/fuzz` reads the names here. Each target has a folder in `corpus/`.
pub const TARGETS: [Target; 9] = [
    ("configuration", configuration::run),
    ("connections", connections::run),
    ("decoders", decoders::run),
    ("interface", interface::run),
    ("netlink", netlink::run),
    ("offload", offload::run),
    ("plugin_verdicts", plugin_verdicts::run),
    ("router", router::run),
    ("wasm_plugin", wasm_plugin::run),
];
