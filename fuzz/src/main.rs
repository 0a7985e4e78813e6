//! Fuzz targets in one program: `FUZZ_TARGET` names the target that libFuzzer drives.
#![no_main]

use std::sync::OnceLock;

use millrace_fuzz::TARGETS;

/// Target named by `FUZZ_TARGET`.
static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

/// Looks `FUZZ_TARGET` up and gives the target an empty input. Loading kernel programs may take long on a
/// busy machine, and the time limit of inputs doesn't hold for this call. Ends the process where there is no
/// such target.
fn choose() {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let Some((_, run)) = TARGETS.iter().find(|(own, _)| *own == name) else {
        let names: Vec<&str> = TARGETS.iter().map(|(own, _)| *own).collect();
        eprintln!("FUZZ_TARGET {name:?}: no such target; targets: {}", names.join(", "));
        std::process::exit(2);
    };
    run(&[]);
    TARGET.get_or_init(|| *run);
}

libfuzzer_sys::fuzz_target!(init: choose(), |data: &[u8]| TARGET.get().expect("chosen")(data));
