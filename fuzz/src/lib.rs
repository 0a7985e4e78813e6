//! The fuzz targets: one module for each journey under test.

mod configuration;
mod decoders;
mod driver;
mod driver_forms;
mod input;
mod interface;
mod netlink;
mod plugin_verdicts;
mod router;
mod wasm_plugin;

/// A target: its name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by name. `tools/fuzz` reads the names here; each has a folder in `corpus/`.
pub const TARGETS: [Target; 8] = [
    ("configuration", configuration::run),
    ("decoders", decoders::run),
    ("driver", driver::run),
    ("interface", interface::run),
    ("netlink", netlink::run),
    ("plugin_verdicts", plugin_verdicts::run),
    ("router", router::run),
    ("wasm_plugin", wasm_plugin::run),
];
