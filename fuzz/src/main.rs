//! All fuzz targets in one program. libFuzzer runs the target that `FUZZ_TARGET` names.
#![no_main]

use std::sync::OnceLock;

use millrace_fuzz::TARGETS;

/// Target named by `FUZZ_TARGET`.
static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

/// Looks up the target that `FUZZ_TARGET` names, and gives it an empty input. That loads kernel programs,
/// which may take long on a busy machine; the time limit of inputs doesn't apply to this call. Ends the
/// process if there is no such target.
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

/// Disables huge pages in this process. Each router touches only a few pages of its large tables, and the
/// kernel would clear 2 MB for each of them.
fn without_huge_pages() {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: the call only changes how the kernel backs later mappings.
    if unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) } != 0 {
        eprintln!("huge pages stay enabled: {}", std::io::Error::last_os_error());
    }
}

libfuzzer_sys::fuzz_target!(init: choose(), |data: &[u8]| TARGET.get().expect("chosen")(data));
