//! Path of the repository, with its examples and data.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the root of the repository: the path that cargo sets at run time, else the path at build time. The
/// latter may belong to another clone with the same target directory.
pub fn repository() -> PathBuf {
    let room =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root = room.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(Path::new(env!("CARGO_MANIFEST_DIR"))).to_owned()
}
