//! Compiles eBPF programs for build scripts, with the C headers that the programs share: `include/helpers.h`,
//! and `include/ebpf_variant.h` for eBPF variants of plugins. The running router uses no code of this crate.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Name and text of each shared header. The text is embedded, because the checkout may have moved since the
/// build.
const HEADERS: [(&str, &str); 2] = [
    ("ebpf_variant.h", include_str!("../include/ebpf_variant.h")),
    ("helpers.h", include_str!("../include/helpers.h")),
];

/// Compiles the C file `source` to the object file `object`. `options`: options for clang in addition to the
/// common ones. The environment variable `CLANG` names the clang to run instead of `clang` in `PATH`.
///
/// # Errors
/// A message of one line: clang can't be run, the headers can't be written, or clang fails on the source.
pub fn compile(source: &Path, object: &Path, options: &[&str]) -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let headers = object.with_file_name("include");
    write_headers(&headers)
        .map_err(|error| format!("cannot write the headers to {}: {error}", headers.display()))?;
    let mut command = Command::new(&clang);
    // The eBPF instruction set v3 has atomic additions that return the old value (Linux 5.12).
    command.args(["-target", target(), "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
    command.arg("-I").arg(headers).args(options).arg("-c").arg(source).arg("-o").arg(object);
    for directory in system_headers() {
        command.arg("-idirafter").arg(directory);
    }
    let name = source.display();
    let output = command.output().map_err(|error| {
        format!("cannot run {clang} to compile {name}: {error}. Run tools/setup, or set CLANG to its path")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).replace('\n', " | ");
    Err(format!("{clang} failed on {name} (tools/setup installs a clang and the headers that work): {words}"))
}

/// Compiles the eBPF variant of a plugin, for its build script: `source` to `variant.o` in cargo's `OUT_DIR`.
///
/// # Errors
/// The errors of [`compile`], or `OUT_DIR` is not set.
pub fn compile_variant(source: &str) -> Result<(), String> {
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: call this from a build script")?;
    compile(Path::new(source), &PathBuf::from(out).join("variant.o"), &[])
}

fn write_headers(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    HEADERS.iter().try_for_each(|(name, text)| fs::write(directory.join(name), text))
}

fn target() -> &'static str {
    match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    }
}

/// Returns the directories that hold <asm/types.h> on a Debian system. Debian has one directory per
/// architecture, and clang does not search it for the target bpf.
fn system_headers() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/usr/include") else { return Vec::new() };
    let architecture =
        env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_else(|_| std::env::consts::ARCH.to_owned());
    let names = entries.flatten().map(|entry| entry.path());
    names
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&format!("{architecture}-")) && path.join("asm/types.h").exists()
        })
        .collect()
}
