//! Temporary directory of a benchmark.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::BenchError;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Temporary directory for files of a benchmark. Dropping it removes the directory.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Result<Self, BenchError> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millrace-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).map_err(BenchError::system(format!("make {}", path.display())))?;
        Ok(Self(path))
    }

    /// Returns the path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in the directory; returns its path.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<String, BenchError> {
        let path = self.file(name);
        fs::write(&path, bytes).map_err(BenchError::system(format!("write {}", path.display())))?;
        Ok(path.display().to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Ignore errors: remaining files are in the system's directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
