//! Results kept by content: the name of a file is a digest of the program and of the experiment's parameters.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::experiment::Experiment;

/// Result that can't be kept.
#[derive(Debug, thiserror::Error)]
#[error("can't keep the result in {}: {source}", path.display())]
pub struct CacheError {
    /// File of the result.
    path: PathBuf,
    /// Reason.
    source: io::Error,
}

/// Returns the file of a result.
pub fn file(folder: &Path, name: &str, sets: u64, content: &[u8]) -> PathBuf {
    let digest =
        Sha256::new().chain_update(content).chain_update(name).chain_update(sets.to_le_bytes()).finalize();
    let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("{name}-{digest}.json"))
}

/// Reads a result; `None` where there is none that can be read.
pub fn read(file: &Path) -> Option<Experiment> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Writes a result: a reader finds all of it or nothing.
pub fn write(file: &Path, experiment: &Experiment) -> Result<(), CacheError> {
    let failed = |source| CacheError { path: file.to_owned(), source };
    let text = serde_json::to_vec(experiment).map_err(|error| failed(error.into()))?;
    let part = file.with_extension(format!("part-{}", std::process::id()));
    file.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    fs::write(&part, text).and_then(|()| fs::rename(&part, file)).map_err(failed)
}
