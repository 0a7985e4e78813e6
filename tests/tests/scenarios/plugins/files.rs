//! Plugin sources, and builds of plugins as plugin authors make them.

use std::fs;
use std::path::PathBuf;

use millrace_testkit::{Line, Millrace, run_to_end};

/// Creates a plugin and builds it; `change` edits its source. Returns the path of the module.
pub fn build(line: &Line, name: &str, change: impl FnOnce(String) -> String) -> PathBuf {
    build_for(line, "wasm", name, change)
}

/// Works as [`build`], for a runtime: `wasm`, `native` or `executable`.
pub fn build_for(line: &Line, runtime: &str, name: &str, change: impl FnOnce(String) -> String) -> PathBuf {
    let folder = line.file(name);
    let path = folder.display().to_string();
    let new = run_to_end(&line.r, &["plugin", "new", name, "--lang", "c", "--dir", &path]);
    assert_eq!(new.code, Some(0), "{new:?}");
    let source = folder.join("plugin.c");
    let text = change(fs::read_to_string(&source).unwrap());
    fs::write(&source, text).unwrap();
    let built = run_to_end(&line.r, &["plugin", "build", &path, "--runtime", runtime]);
    // Some tests build a plugin that the router refuses.
    assert!(
        built.code == Some(0) || built.stderr.contains("built, but the router would refuse it"),
        "{built:?}"
    );
    let extension = match runtime {
        "native" => "so",
        "executable" => "elf",
        other => other,
    };
    folder.join(format!("{name}.{extension}"))
}

/// Builds a plugin from a C source. `keys` are further manifest keys beside name and version.
pub fn build_source(line: &Line, name: &str, version: &str, keys: &str, source: &str) -> String {
    build_source_for(line, "wasm", (name, version), keys, source)
}

/// Works as [`build_source`], for a runtime: `wasm`, `native` or `executable`.
pub fn build_source_for(
    line: &Line,
    runtime: &str,
    (name, version): (&str, &str),
    keys: &str,
    source: &str,
) -> String {
    let folder = format!("{name}-{}", version.replace('.', "-"));
    let whole = format!(
        "#include \"millrace.h\"\n\
         MILLRACE_PLUGIN(\"{{\\\"abi\\\":1,\\\"name\\\":\\\"{name}\\\",\\\"version\\\":\\\"{version}\\\",\"\n\
         \"\\\"summary\\\":\\\"A test.\\\",{}}}\");\n\
         {source}",
        keys.replace('"', "\\\"")
    );
    build_for(line, runtime, &folder, |_| whole).display().to_string()
}

/// Keys of the manifest of [`COUNTER`] beside name and version.
pub const COUNTER_KEYS: &str = r#""positions":["early","late"],"messages":{"read":"the counter"}"#;

/// Returns the number `key` from an instance's answer to `read`.
pub fn read(router: &Millrace, instance: &str, key: &str) -> u64 {
    router.json(&["control", instance, "read"])[key].as_u64().unwrap()
}

/// Source of a plugin that counts packets, answers `read`, and hands its count over at upgrades.
pub const COUNTER: &str = r#"
static uint64_t packets;

int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    (void)settings, (void)bytes;
    return 0;
}

void millrace_packets(struct millrace_call *call) {
    packets += call->count;
}

int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    (void)name, (void)name_bytes, (void)arguments, (void)bytes;
    char memory[128];
    struct millrace_text text = {memory, sizeof memory, 0, false};
    millrace_add(&text, "{\"packets\":");
    millrace_add_number(&text, packets);
    millrace_add(&text, "}");
    return millrace_reply_text(&text);
}

int32_t millrace_save(void) { return millrace_reply(&packets, sizeof packets); }

int32_t millrace_restore(const uint8_t *state, size_t bytes, uint32_t version) {
    (void)version;
    if (bytes != sizeof packets)
        return millrace_fail("that is no count");
    memcpy(&packets, state, bytes);
    return 0;
}
"#;
