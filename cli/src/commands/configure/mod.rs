//! Commands for whole configurations: of this machine, of a file, of the running router.

pub(super) mod check;
pub(super) mod configuration;
pub(super) mod init;
