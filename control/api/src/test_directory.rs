//! Temporary directories of tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// Temporary directory, removed when dropped.
pub(crate) struct TestDirectory(pub PathBuf);

impl TestDirectory {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("millrace-api-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
