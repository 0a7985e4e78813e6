//! Path of the repository, with its examples and data.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the root of the repository. The path that cargo sets at run time takes precedence: the path from
/// the build may be another clone with the same target directory.
pub fn repository() -> PathBuf {
    let room =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root = room.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(Path::new(env!("CARGO_MANIFEST_DIR"))).to_owned()
}
