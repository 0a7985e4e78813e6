//! What the fuzz targets call: one module per crate under test, one function per decoder.

/// The wire formats; their property tests call the same functions.
#[path = "../../foundation/wire/tests/exercise/mod.rs"]
pub mod wire;
