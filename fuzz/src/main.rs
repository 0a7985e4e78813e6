//! The fuzz targets, in one program: FUZZ_TARGET names the one that libFuzzer drives.
#![no_main]

use std::sync::OnceLock;

use millrace_fuzz::TARGETS;

/// The target that FUZZ_TARGET names.
static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

/// Looks FUZZ_TARGET up, and gives the target an empty input, for which the time limit of inputs doesn't hold: what is loaded once, as
/// programs of the kernel, may take long on a busy machine. Ends the process where there is no such target.
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
