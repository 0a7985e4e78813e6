//! Declarations: what plugins declare of themselves (manifest, settings, maps), and limits of both.

pub(crate) mod declared;
pub(crate) mod halves;
pub(crate) mod limits;
pub(crate) mod manifest;
pub(crate) mod maps;
pub(crate) mod settings;
pub(crate) mod settings_refusal;
