//! Tests of the example plugins and the templates. They build for both runtimes, export the plugin interface,
//! and work as described.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Folder, Module, Native, ack, build, repository};
use millrace_kit::{Format, KitError, Language, Options, new};
use millrace_plugin_abi::binary::{HOST_FUNCTIONS, export, verdict};
use serde_json::{Value, json};

fn example(name: &str) -> PathBuf {
    repository().join("examples/plugins").join(name)
}

/// Parses a manifest, and checks that it names this plugin.
fn manifest(bytes: &[u8], name: &str) -> Value {
    let manifest: Value = serde_json::from_slice(bytes).unwrap();
    assert_eq!((&manifest["abi"], &manifest["name"]), (&json!(1), &json!(name)));
    for key in ["version", "summary"] {
        assert!(manifest[key].is_string(), "{name}: {key}");
    }
    assert!(!manifest["positions"].as_array().unwrap().is_empty());
    manifest
}

/// Checks that a module exports the required functions, and imports only functions that its manifest
/// requests.
fn check_module(file: &Path, name: &str) {
    let module = Module::read(file);
    let manifest = manifest(&module.manifest, name);
    for needed in [export::MEMORY].iter().chain(&export::REQUIRED) {
        assert!(module.exports.contains(*needed), "{name} doesn't export {needed}: {:?}", module.exports);
    }
    let capabilities = manifest["capabilities"].as_array().cloned().unwrap_or_default();
    let granted =
        |capability: &Option<&str>| capability.is_none_or(|name| capabilities.contains(&json!(name)));
    let known = HOST_FUNCTIONS.iter().filter(|(_, capability)| granted(capability));
    let known: BTreeSet<_> = known.map(|(function, _)| format!("millrace.{function}")).collect();
    assert!(module.imports.is_subset(&known), "{name} imports {:?}", module.imports);
}

/// Builds a module and checks it, then builds a shared object and loads it.
fn built_both_ways(project: &Path, name: &str) -> Option<Native> {
    let folder = Folder::new(name);
    if let Some(module) = build(project, Format::Wasm, &folder.0) {
        assert_eq!(module.file, folder.0.join(format!("{name}.wasm")));
        check_module(&module.file, name);
    }
    let object = build(project, Format::Native, &folder.0)?;
    assert_eq!(object.file, folder.0.join(format!("{name}.so")));
    let plugin = Native::load(&object.file);
    manifest(&plugin.manifest(), name);
    assert_eq!(plugin.abi(), 1);
    Some(plugin)
}

fn statistics(name: &str) {
    let Some(plugin) = built_both_ways(&example(name), name) else { return };
    assert!(plugin.init(r#"{"by-protocol": 3}"#).unwrap_err().contains("give true or false"));
    assert!(plugin.init(r#"{"colour": 3}"#).unwrap_err().contains("no such setting"));
    plugin.init("{}").unwrap();
    assert_eq!(plugin.packets(&[1, 2, 3]), [(verdict::PASS, 0); 3]);
    let read = r#"{"total":{"packets":3,"bytes":156},"protocols":{"17":{"packets":3,"bytes":156}}}"#;
    assert_eq!(plugin.control("read", "{}").unwrap(), read);
    assert!(plugin.control("read", r#"{"a": 1}"#).is_err());
    assert!(plugin.control("count", "{}").unwrap_err().contains("unknown message"));
    let zero = r#"{"total":{"packets":0,"bytes":0},"protocols":{}}"#;
    assert_eq!(plugin.control("reset", "{}").unwrap(), zero);
}

fn port_filter(name: &str) {
    let Some(plugin) = built_both_ways(&example(name), name) else { return };
    for ports in ["\"1,2,3,4,5,6\"", "\"9-5\"", "\"http\"", "65536", "\"80,\"", "\"1-2-3\"", "true"] {
        assert!(plugin.init(&format!(r#"{{"ports": {ports}}}"#)).is_err(), "{ports}");
    }
    plugin.init(r#"{"ports": "80,1000-2000"}"#).unwrap();
    let (pass, port, cut) = ((verdict::PASS, 0), (verdict::DROP, 0), (verdict::DROP, 1));
    assert_eq!(plugin.packets(&[79, 80, 1000, 2000, 2001, 80]), [pass, port, port, port, pass, cut]);
    let read = r#"{"ports":"80,1000-2000","packets":6,"dropped":4}"#;
    assert_eq!(plugin.control("read", "{}").unwrap(), read);
    assert!(plugin.control("set", r#"{"ports": "81", "cut": "pass"}"#).is_err());
    plugin.control("set", r#"{"ports": 79}"#).unwrap();
    assert_eq!(plugin.packets(&[79, 80, 1000]), [port, pass, cut]);
}

#[test]
fn statistics_in_rust_builds_and_counts() {
    statistics("statistics-rs");
}

#[test]
fn statistics_in_c_builds_and_counts() {
    statistics("statistics-c");
}

#[test]
fn port_filter_in_rust_builds_and_drops() {
    port_filter("port-filter-rs");
}

#[test]
fn port_filter_in_c_builds_and_drops() {
    port_filter("port-filter-c");
}

#[test]
fn sample_in_c_builds_and_chooses() {
    let Some(plugin) = built_both_ways(&example("sample-c"), "sample-c") else { return };
    for wrong in [
        "{}",
        r#"{"one-in": 2}"#,
        r#"{"to": 65536}"#,
        r#"{"to": "probe"}"#,
        r#"{"to": 3, "one-in": 0}"#,
        r#"{"to": 3, "one-in": 4294967296}"#,
        r#"{"to": 3, "mode": "odd"}"#,
        r#"{"to": 3, "seed": 0}"#,
        r#"{"to": 3, "sed": 1}"#,
    ] {
        assert!(plugin.init(wrong).is_err(), "{wrong}");
    }
    plugin.init(r#"{"to": 3, "one-in": 2, "mode": "every", "seed": 7}"#).unwrap();
    let mut frames = vec![ack(1, &[0; 20]); 5];
    let said = plugin.frames(&mut frames, &mut []);
    let said: Vec<_> = said.iter().map(|packet| (packet.verdict, packet.target)).collect();
    let (used, sent) = ((verdict::CONSUME, 0), (verdict::PORT, 3));
    assert_eq!(said, [used, sent, used, sent, used]);
    let read = r#"{"copies":5,"sent":2,"sent_bytes":148}"#;
    assert_eq!(plugin.control("read", "{}").unwrap(), read);
    plugin.init(r#"{"to": 3, "one-in": 2, "mode": "random", "seed": 18446744073709551615}"#).unwrap();
    assert_eq!(plugin.control("reset", "{}").unwrap(), r#"{"copies":0,"sent":0,"sent_bytes":0}"#);
    let mut sent = 0;
    for _ in 0..200 {
        sent += plugin.frames(&mut frames, &mut []).iter().filter(|packet| packet.target == 3).count();
    }
    assert!((400..600).contains(&sent), "{sent} of 1000");
    assert!(plugin.control("read", r#"{"a": 1}"#).is_err());
    assert!(plugin.control("send", "{}").is_err());
}

#[test]
fn ack_monitor_in_c_builds_and_counts() {
    let Some(plugin) = built_both_ways(&example("ack-monitor-c"), "ack-monitor-c") else { return };
    assert!(plugin.init(r#"{"worst": 3}"#).unwrap_err().contains("no setting"));
    plugin.init("{}").unwrap();
    let last = u32::MAX;
    let mut frames: Vec<_> = [last, last, last, last, 5, 5, last].map(|number| ack(number, &[])).into();
    // The plugin counts neither of these segments as a duplicate acknowledgment: one has data, and the header
    // of the other is truncated, so the plugin can't read it.
    frames.extend([ack(5, &[1]), ack(5, &[])[..40].to_vec()]);
    let mut state = [0_u64; 2];
    let said = plugin.frames(&mut frames, &mut state);
    assert!(said.iter().all(|packet| packet.verdict == verdict::PASS));
    // Without flow state, the plugin does not follow the flow.
    plugin.frames(&mut frames[..1], &mut []);
    plugin.flow_ended(&mut state);
    let read = r#"{"acks":9,"duplicates":4,"fast":1,"flows":1,"ended":1,"most_duplicates":4}"#;
    assert_eq!(plugin.control("read", "{}").unwrap(), read);
    let zero = r#"{"acks":0,"duplicates":0,"fast":0,"flows":0,"ended":0,"most_duplicates":0}"#;
    assert_eq!(plugin.control("reset", "{}").unwrap(), zero);
    assert!(plugin.control("read", r#"{"a": 1}"#).is_err());
    assert!(plugin.control("ack", "{}").is_err());
}

/// Builds an executable, and checks that it serves a router only.
fn check_executable(project: &Path, name: &str) {
    let folder = Folder::new(&format!("{name}-executable"));
    let Some(executable) = build(project, Format::Executable, &folder.0) else { return };
    assert_eq!(executable.file, folder.0.join(format!("{name}.elf")));
    let ran = Command::new(&executable.file).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1));
    assert!(said.contains("only the router starts this program"), "{said}");
}

/// Checks that the project of a template builds unchanged, and works as described.
fn template(name: &str, language: Language) {
    let folder = Folder::new(&format!("template-{language}"));
    let project = folder.0.join(name);
    new(name, language, &project).unwrap();
    check_executable(&project, name);
    let Some(plugin) = built_both_ways(&project, name) else { return };
    for wrong in [r#"{"longset": 50}"#, r#"{"longest": 50, "more": 1}"#, r#"{"longest": "x"}"#] {
        let refused = plugin.init(wrong).unwrap_err();
        assert!(refused.contains("longest"), "{refused}");
    }
    plugin.init(r#"{"longest": 50}"#).unwrap();
    assert_eq!(plugin.packets(&[80, 80]), [(verdict::DROP, 0), (verdict::PASS, 0)]);
    let counted = r#"{"packets":2,"dropped":1}"#;
    assert_eq!(plugin.control("read", "{}").unwrap(), counted);
    // The next version takes over the counters.
    let manifest: Value = serde_json::from_slice(&plugin.manifest()).unwrap();
    assert_eq!(manifest["state-version"], 1);
    let saved = plugin.save().unwrap();
    assert_eq!(saved, [2_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat());
    plugin.packets(&[80]);
    assert_ne!(plugin.control("read", "{}").unwrap(), counted);
    plugin.restore(&saved, 1).unwrap();
    assert_eq!(plugin.control("read", "{}").unwrap(), counted);
    assert!(plugin.restore(&saved, 2).is_err() && plugin.restore(&saved[..9], 1).is_err());
    assert_eq!(plugin.control("read", "{}").unwrap(), counted);
}

#[test]
fn a_new_project_in_rust_builds_and_works() {
    template("first-one", Language::Rust);
}

#[test]
fn a_new_project_in_c_builds_and_works() {
    template("first-two", Language::C);
}

#[test]
fn compiler_output_is_shown_unchanged() {
    let folder = Folder::new("mistake");
    let project = folder.0.join("mistake");
    new("mistake", Language::C, &project).unwrap();
    std::fs::write(project.join("plugin.c"), "int32_t millrace_init(void) { return wrong; }\n").unwrap();
    let options = Options { target: Some(folder.0.join("target")), ..Options::default() };
    match millrace_kit::build(&project, Format::Native, &options, &mut |_| {}) {
        Err(KitError::Compiler { output, .. }) => {
            assert!(output.contains("plugin.c:1:") && output.contains("error"), "{output}");
        }
        Err(error @ KitError::Missing { .. }) => {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{error}");
            println!("skipped: {error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!project.join("mistake.so").exists());
}
