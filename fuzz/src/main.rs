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
    without_huge_pages();
    run(&[]);
    TARGET.get_or_init(|| *run);
}

/// Disables huge pages in this process: each router touches few pages of its large tables, and the kernel
/// would clear 2 MB for each of them.
fn without_huge_pages() {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: the call changes how the kernel backs later mappings, no memory.
    if unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) } != 0 {
        eprintln!("huge pages stay enabled: {}", std::io::Error::last_os_error());
    }
}

libfuzzer_sys::fuzz_target!(init: choose(), |data: &[u8]| TARGET.get().expect("chosen")(data));
