//! Records the compiler's version, on which instruction counts depend.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=RUSTC");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(compiler).arg("--version").output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned()).unwrap_or_default();
    let version = if said.is_empty() { "an unknown compiler" } else { &said };
    println!("cargo::rustc-env=MILLRACE_COMPILER={version}");
}
