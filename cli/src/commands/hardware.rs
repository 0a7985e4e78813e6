//! The command `hardware`: measurement of this machine for `admission simulate`.

use std::path::{Path, PathBuf};

use millrace_admission::hardware::{Hardware, Measured};
use millrace_bench::hardware::{Machine, Missing, Parts, measure};
use millrace_repository::state_directory_at;
use millrace_units::count;
use serde_json::json;

use super::bench::with_options;
use crate::arguments::{DEFAULT_SOCKET, HardwareAction};
use crate::output::{Failure, show, write_file};

/// Name of the hardware file in the state directory.
const FILE: &str = "hardware.toml";

/// Measures this machine, and writes a hardware file.
pub fn hardware(action: &HardwareAction, socket: &Path, json: bool) -> Result<(), Failure> {
    let HardwareAction::Measure { out, workers } = action;
    let file = file(out.as_deref(), socket)?;
    let workers = workers.map(usize::from);
    let core_ceiling = f64::from(millrace_config::Router::default().core_ceiling.ppm()) / 1e6;
    let machine = with_options(|options| measure(options, Parts { workers, core_ceiling }))?;
    let text = machine.measured.written().map_err(|error| {
        Failure::new(format!("the measured figures make no hardware, so no file was written: {error}"))
    })?;
    write_file("hardware", &file, &text)?;
    let value = json!({"file": file, "hardware": text, "missing": machine.missing});
    show(&value, json, || summary(&machine, &text));
    Ok(())
}

/// Returns the path of the hardware file, and creates the state directory if the file belongs there.
fn file(out: Option<&Path>, socket: &Path) -> Result<PathBuf, Failure> {
    if let Some(out) = out {
        return Ok(out.to_owned());
    }
    let directory = state_directory_at(socket, Path::new(DEFAULT_SOCKET))
        .ok_or_else(|| Failure::new("there is no state directory here: name a file with --out"))?;
    std::fs::create_dir_all(&directory)
        .map_err(|error| Failure::new(format!("can't create {}: {error}", directory.display())))?;
    Ok(directory.join(FILE))
}

/// Returns the processors and switches of the written file, and the missing entries.
fn summary(machine: &Machine, text: &str) -> String {
    let Measured { processors, cycles_per_second, .. } = machine.measured;
    let cycles = cycles_per_second / 1e6;
    let mut lines =
        vec![format!("{} of {cycles:.0} million cycles per second", count(processors, "processor"))];
    // `written` has parsed the text.
    if let Ok(hardware) = Hardware::parse(text) {
        let of = |names: Vec<&str>| names.join(", ");
        lines.push(format!("levels: {}", of(hardware.processors.iter().map(|one| &*one.name).collect())));
        lines.push(format!("switches: {}", of(hardware.switches.iter().map(|one| &*one.name).collect())));
    }
    lines.extend(machine.missing.iter().map(|Missing { entry, why }| format!("left out: {entry}: {why}")));
    lines.join("\n") + "\n"
}
