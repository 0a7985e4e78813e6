//! Scratch directories of unit tests, with files like those of the kernel.

use std::fs;
use std::path::{Path, PathBuf};

/// Directory for a test. Dropping it removes the directory.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory with files, given by path and text.
    pub fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("principals-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let scratch = Self(path);
        files.iter().for_each(|(file, text)| scratch.write(file, text));
        scratch
    }

    /// Writes a file, and creates its directory.
    pub fn write(&self, file: &str, text: &str) {
        let path = self.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns a path in the directory.
    pub fn join(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
