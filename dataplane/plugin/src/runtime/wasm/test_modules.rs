//! Test modules: small plugins in the WebAssembly text format.

/// Returns the text of a plugin with `body` in its module and `keys` (such as `, "window": 4`) in its
/// manifest. The plugin may write packets unless `keys` list capabilities.
///
/// The text adds each mandatory export that `body` lacks. By default, packets pass; reserved memory begins at
/// 1,024 and is never released.
pub(crate) fn text(keys: &str, body: &str) -> String {
    let writes = if keys.contains("capabilities") { "" } else { r#", "capabilities": ["packet-write"]"# };
    let manifest = format!(
        r#"{{"abi": 1, "name": "test", "version": "1.0.0", "summary": "For tests.", "positions": ["late"]{keys}{writes}}}"#
    );
    let manifest = manifest.replace('"', "\\\"");
    // Imports must precede all other parts of a module.
    let (imports, rest): (Vec<_>, Vec<_>) =
        body.lines().partition(|line| line.trim_start().starts_with("(import"));
    let (imports, body) = (imports.join("\n"), rest.join("\n"));
    let unless =
        |name: &str, text: &'static str| if body.contains(&format!("\"{name}\"")) { "" } else { text };
    let memory = unless("memory", r#"(memory (export "memory") 4)"#);
    let abi = unless("millrace_abi", r#"(func (export "millrace_abi") (result i32) i32.const 1)"#);
    let reserve = unless(
        "millrace_reserve",
        r#"(global $reserved (mut i32) (i32.const 1024))
           (func (export "millrace_reserve") (param $bytes i32) (result i32)
             global.get $reserved
             (global.set $reserved
               (i32.and (i32.add (i32.add (global.get $reserved) (local.get $bytes)) (i32.const 7)) (i32.const -8))))"#,
    );
    let release = unless("millrace_release", r#"(func (export "millrace_release") (param i32 i32))"#);
    let init = unless(
        "millrace_init",
        r#"(func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)"#,
    );
    let packets = unless("millrace_packets", r#"(func (export "millrace_packets") (param i32))"#);
    format!(
        "(module (@custom \"millrace.manifest\" \"{manifest}\")\n{imports}\n{memory}\n{abi}\n{reserve}\n{release}\n{init}\n{packets}\n{body})"
    )
}

/// Returns a plugin whose module contains `body`.
pub(crate) fn module(body: &str) -> Vec<u8> {
    module_with("", body)
}

/// Returns a plugin whose manifest contains `keys` and whose module contains `body`.
pub(crate) fn module_with(keys: &str, body: &str) -> Vec<u8> {
    let text = text(keys, body);
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}
