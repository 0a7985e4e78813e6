//! What programs for the kernel share: the notation of `include/helpers.h`, the frame of a plugin's form for the driver
//! (`include/form.h`), and how build scripts compile them with clang. Nothing of it is in the router when it runs.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The shared headers, by name. Their text is kept, not their place: a checkout may move while what was built stays.
const HEADERS: [(&str, &str); 2] =
    [("form.h", include_str!("../include/form.h")), ("helpers.h", include_str!("../include/helpers.h"))];

/// Compiles the C file `source` to the object file `object`, with `options` for clang beside those that all programs have.
/// The environment variable `CLANG` says which clang, if not the one of the path.
///
/// # Errors
/// In a sentence of one line: there is no clang, or what it says of the source.
pub fn compile(source: &Path, object: &Path, options: &[&str]) -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let headers = object.with_file_name("include");
    write_headers(&headers)
        .map_err(|error| format!("cannot write the headers to {}: {error}", headers.display()))?;
    let mut command = Command::new(&clang);
    // v3 has atomic additions that return what was there (Linux 5.12).
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

/// What the build script of a plugin with a form does: compiles `source` to `form.o` in the directory that cargo gives it.
///
/// # Errors
/// As [`compile`].
pub fn compile_form(source: &str) -> Result<(), String> {
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: call this from a build script")?;
    compile(Path::new(source), &PathBuf::from(out).join("form.o"), &[])
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

/// Debian keeps <asm/types.h> in a directory per architecture, which clang doesn't search for the bpf target.
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
