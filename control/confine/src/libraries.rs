//! Folders in which a dynamic loader looks for shared libraries.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Folders of libraries on usual systems.
const FOLDERS: [&str; 10] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/gnu/store",
    "/nix/store",
];
/// List of all libraries, which `ldconfig` writes.
const CACHE: &str = "/etc/ld.so.cache";
/// Files that a loader reads beside libraries: of glibc, and of musl.
pub(crate) const LISTS: [&str; 3] = [CACHE, "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path"];

/// Returns the folders of the system's shared libraries. Some may not exist.
pub(crate) fn folders() -> BTreeSet<PathBuf> {
    let cache = fs::read(CACHE).unwrap_or_default();
    FOLDERS.into_iter().map(PathBuf::from).chain(listed(&cache)).collect()
}

/// Returns the folders of the paths in the list of `ldconfig`, where each path ends with a zero. The list also has
/// numbers, whose bytes may look like a path in `/`: that is no folder of libraries.
fn listed(cache: &[u8]) -> impl Iterator<Item = PathBuf> {
    let paths = cache.split(|byte| *byte == 0).filter(|text| text.starts_with(b"/"));
    let folders = paths.filter_map(|path| Path::new(OsStr::from_bytes(path)).parent());
    folders.filter(|folder| folder.parent().is_some()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_libraries_names_their_folders_and_never_the_root() {
        let cache =
            b"glibc-ld.so.cache1.1\0/\0\0\0/\x12\0\0/proc\0liba.so\0/opt/a/lib/liba.so\0/lib/libc.so.6\0";
        let folders: Vec<_> = listed(cache).collect();
        assert_eq!(folders, [Path::new("/opt/a/lib"), Path::new("/lib")]);
    }

    #[test]
    fn folders_hold_the_libraries_of_this_program() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let loaded = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let known = folders();
        let is_known = |path: &Path| known.iter().any(|folder| path.starts_with(folder));
        for library in loaded.filter(|path| path.contains(".so")) {
            let path = fs::canonicalize(library).unwrap();
            assert!(is_known(Path::new(library)) || is_known(&path), "{library}");
        }
    }
}
