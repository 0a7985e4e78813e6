//! Compiles the kernel programs with clang.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Object files, each with its source, and what is defined for it.
const PROGRAMS: [(&str, &str, &[&str]); 4] = [
    ("level0", "level0", &[]),
    ("level0_alone", "level0", &["-DALONE"]),
    ("source", "source", &[]),
    ("host_output", "host_output", &[]),
];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for program in PROGRAMS {
        if let Err(problem) = compile(program, &out) {
            println!("cargo::error={problem}");
        }
    }
}

fn compile((object, source, defined): (&str, &str, &[&str]), out: &Path) -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let source = format!("bpf/{source}.c");
    let mut command = Command::new(&clang);
    // v3 has atomic additions that return what was there (Linux 5.12).
    command.args([
        "-target",
        target(),
        "-mcpu=v3",
        "-O2",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-c",
        &source,
        "-o",
    ]);
    command.arg(out.join(format!("{object}.o"))).args(defined);
    for directory in system_headers() {
        command.arg("-idirafter").arg(directory);
    }
    let output = command.output().map_err(|error| {
        format!("cannot run {clang} to compile {source}: {error}. Run tools/setup, or set CLANG to its path")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).replace('\n', " | ");
    Err(format!(
        "{clang} failed on {source} (tools/setup installs a clang and the headers that work): {words}"
    ))
}

fn target() -> &'static str {
    match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    }
}

/// Debian keeps <asm/types.h> in a directory per architecture, which clang doesn't search for the bpf target.
fn system_headers() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/usr/include") else { return Vec::new() };
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let names = entries.flatten().map(|entry| entry.path());
    names
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&format!("{architecture}-")) && path.join("asm/types.h").exists()
        })
        .collect()
}
