//! Tests of the repository itself: paths in documents, the lists of cases with their tests, the test runner,
//! and the set-up.

mod advisories;
mod cases;
mod links;
mod runner;
mod setup;
mod subjects;
mod wording;

use std::fs;
use std::path::{Path, PathBuf};

use millrace_testkit::repository;

/// Folders that contain no source files of the project.
const NO_SOURCES: [&str; 4] = ["target", "out", "corpus", "artifacts"];

/// Returns all files of the repository, by their paths from its root.
fn files() -> Vec<PathBuf> {
    let root = repository();
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    found.sort();
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository").flatten() {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let is_hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
        if is_hidden || NO_SOURCES.contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            found.push(path.strip_prefix(root).expect("a path below the root").to_owned());
        }
    }
}

/// Returns the text of a file of the repository.
fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
