//! Temporary folder for tests.

use std::fs;
use std::path::PathBuf;

/// Folder that is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-store-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
