//! Figures of this machine, from the hardware file in the state directory.

use std::path::Path;

use millrace_admission::levels::Figures;

use super::USUAL_SIZE;
use crate::workers::tsc;

/// Name of the hardware file in the state directory.
pub(super) const HARDWARE_FILE: &str = "hardware.toml";

/// Returns the figures of this machine as `hardware measure` has described them in the state directory. Without such a
/// file, or with an invalid one, returns the assumed figures.
pub(crate) fn known_figures(state: Option<&Path>) -> Figures {
    let Some(file) = state.map(|state| state.join(HARDWARE_FILE)) else { return Figures::ASSUMED };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Figures::ASSUMED,
        Err(error) => return assumed(&file, &error),
    };
    match Figures::of_file(&text, f64::from(USUAL_SIZE), tsc::frequency() as f64) {
        Ok(figures) => figures,
        Err(error) => assumed(&file, &error),
    }
}

fn assumed(file: &Path, error: &dyn std::error::Error) -> Figures {
    tracing::warn!(
        "{}: {error}: services are placed with assumed figures; measure again with `millrace hardware measure`",
        file.display()
    );
    Figures::ASSUMED
}
