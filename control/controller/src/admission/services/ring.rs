//! Figures of the ring between workers and plugin processes.

use std::path::Path;

use millrace_admission::levels::Ring;

use super::USUAL_SIZE;
use crate::workers::tsc;

/// Name of the hardware file in the state directory.
pub(super) const HARDWARE_FILE: &str = "hardware.toml";

/// Returns the ring to plugin processes as `hardware measure` has described it in the state directory. Without such a
/// file, or with an invalid one, returns the assumed figures.
pub(crate) fn known_ring(state: Option<&Path>) -> Ring {
    let Some(file) = state.map(|state| state.join(HARDWARE_FILE)) else { return Ring::ASSUMED };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ring::ASSUMED,
        Err(error) => return assumed(&file, &error),
    };
    match Ring::of_file(&text, f64::from(USUAL_SIZE), tsc::frequency() as f64) {
        Ok(ring) => ring.unwrap_or(Ring::ASSUMED),
        Err(error) => assumed(&file, &error),
    }
}

fn assumed(file: &Path, error: &dyn std::error::Error) -> Ring {
    tracing::warn!(
        "{}: {error}: services are placed with assumed figures; measure again with `millrace hardware measure`",
        file.display()
    );
    Ring::ASSUMED
}
