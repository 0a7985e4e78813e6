//! Declarations of plugins (manifest, settings, maps), and their limits.

pub(crate) mod declared;
pub(crate) mod limits;
pub(crate) mod manifest;
pub(crate) mod maps;
pub(crate) mod settings;
pub(crate) mod settings_refusal;
pub(crate) mod settings_schema;
pub(crate) mod with_companion;
