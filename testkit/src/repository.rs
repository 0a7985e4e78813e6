//! Where the repository is, and with it its examples and data.

use std::env;
use std::path::{Path, PathBuf};

/// Where the repository is. Cargo says so to what it runs; compiled in is where it was when this was built, which may have
/// been another clone with the same target directory.
pub fn repository() -> PathBuf {
    let room =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root = room.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(Path::new(env!("CARGO_MANIFEST_DIR"))).to_owned()
}
