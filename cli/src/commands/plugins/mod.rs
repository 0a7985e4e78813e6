//! Commands for plugin files, and for plugins of the running router.

pub(super) mod inspect;
pub(super) mod plugin;
pub(super) mod workbench;
