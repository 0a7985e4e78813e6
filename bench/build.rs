//! Records the compiler's version, since instruction counts depend on it. Translates the plugins of the
//! benchmarks from WebAssembly text to modules.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Plugins of the benchmarks. For each: name of the module, name of its WebAssembly text in `plugins`, and
/// additional keys of its manifest.
const PLUGINS: [(&str, &str, &str); 9] = [
    ("nothing", "nothing", ""),
    ("writes", "nothing", r#""capabilities": ["packet-write"],"#),
    ("calls-back", "calls-back", r#""capabilities": ["packet-read", "packet-write"],"#),
    ("loops", "loops", ""),
    ("traps", "traps", ""),
    ("grows", "grows", ""),
    ("burns", "burns", r#""window": 64,"#),
    ("counter", "counter", r#""messages": {"read": "packets", "begun": "flows"}, "flow-state": 8,"#),
    ("large", "large", ""),
];
/// Number of functions of the large plugin. With this number, its module has a size of 100 KB.
const FUNCTIONS: usize = 840;

fn main() {
    println!("cargo::rerun-if-env-changed=RUSTC");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=plugins");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(compiler).arg("--version").output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned()).unwrap_or_default();
    let version = if said.is_empty() { "an unknown compiler" } else { &said };
    println!("cargo::rustc-env=MILLRACE_COMPILER={version}");
    let output = std::env::var("OUT_DIR").expect("cargo names the output directory");
    for (name, body, keys) in PLUGINS {
        let module =
            wat::parse_str(text(&read(body), keys)).unwrap_or_else(|error| panic!("{name}: {error}"));
        fs::write(Path::new(&output).join(format!("{name}.wasm")), module)
            .expect("the output directory is writable");
    }
}

fn read(name: &str) -> String {
    fs::read_to_string(format!("plugins/{name}.wat"))
        .unwrap_or_else(|error| panic!("plugins/{name}.wat: {error}"))
}

/// Returns the text of a module with `body` and a manifest with `keys`.
fn text(body: &str, keys: &str) -> String {
    let manifest = format!(
        r#"{{{keys} "abi": 1, "name": "bench", "version": "1.0.0", "summary": "For benches.", "positions": ["late"]}}"#
    );
    let body = body.replace("FUNCTIONS", &(0..FUNCTIONS).map(function).collect::<String>());
    let manifest = manifest.replace('"', "\\\"");
    format!("(module (@custom \"millrace.manifest\" \"{manifest}\")\n{body}\n{})", read("frame"))
}

/// Returns the text of a function of the large plugin, which gets the index `number + 1` in the module. Each
/// function calls the next one, up to eight functions deep.
fn function(number: usize) -> String {
    let is_last = number % 8 == 7 || number + 1 == FUNCTIONS;
    let result = match is_last {
        true => "(local.get $sum)".to_owned(),
        false => format!("(call {} (local.get $from) (local.get $sum))", number + 2),
    };
    let text = read("large-function").replace("OFFSET", &(8192 + number * 8).to_string());
    text.replace("NUMBER", &number.to_string()).replace("RESULT", &result)
}
