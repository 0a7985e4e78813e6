//! The fuzz targets, in one program: FUZZ_TARGET names the one that libFuzzer drives.
#![no_main]

use std::sync::OnceLock;

use millrace_fuzz::TARGETS;

/// The target that FUZZ_TARGET names.
static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

/// Looks FUZZ_TARGET up; ends the process where it names no target.
fn choose() {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let Some((_, run)) = TARGETS.iter().find(|(own, _)| *own == name) else {
        let names: Vec<&str> = TARGETS.iter().map(|(own, _)| *own).collect();
        eprintln!("FUZZ_TARGET {name:?}: no such target; targets: {}", names.join(", "));
        std::process::exit(2);
    };
    TARGET.get_or_init(|| *run);
}

libfuzzer_sys::fuzz_target!(init: choose(), |data: &[u8]| TARGET.get().expect("chosen")(data));
