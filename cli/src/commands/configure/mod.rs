//! Commands for whole configurations: `init`, `check`, `apply`, `diff`, `save` and the revisions.

pub(super) mod check;
pub(super) mod configuration;
pub(super) mod init;
