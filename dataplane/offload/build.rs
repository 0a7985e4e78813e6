//! Build script that compiles the kernel programs with clang.

use std::env;
use std::path::{Path, PathBuf};

/// Object files, each with its source file and its preprocessor definitions.
const PROGRAMS: [(&str, &str, &[&str]); 5] = [
    ("level0", "level0", &[]),
    ("level0_alone", "level0", &["-DALONE"]),
    ("source", "source", &[]),
    ("send", "send", &[]),
    ("host_output", "host_output", &[]),
];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (object, source, defined) in PROGRAMS {
        let (source, object) = (format!("bpf/{source}.c"), out.join(format!("{object}.o")));
        if let Err(problem) = millrace_bpf::compile(Path::new(&source), &object, defined) {
            println!("cargo::error={problem}");
        }
    }
}
