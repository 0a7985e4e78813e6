//! Tests that the code in `docs/plugins.md` builds unchanged, and that a C plugin of several files builds.

use std::fs;
use std::path::Path;

use millrace_kit::{Format, Language, new};
use millrace_plugin_abi::binary::verdict;

use crate::support::{Folder, Native, build, repository};

/// Returns the first code block of `docs/plugins.md` in a language.
fn code(language: &str) -> String {
    let text = fs::read_to_string(repository().join("docs/plugins.md")).unwrap();
    let (_, behind) = text.split_once(&format!("\n```{language}\n")).unwrap();
    behind.split_once("\n```").unwrap().0.to_owned() + "\n"
}

fn loaded(project: &Path) -> Option<Native> {
    let result = project.parent().unwrap();
    build(project, Format::Wasm, result);
    Some(Native::load(&build(project, Format::Native, result)?.file))
}

#[test]
fn the_plugin_in_rust_works() {
    let folder = Folder::new("document-rust");
    let project = folder.0.join("first");
    new("first", Language::Rust, &project).unwrap();
    fs::write(project.join("src/lib.rs"), code("rust")).unwrap();
    let Some(plugin) = loaded(&project) else { return };
    plugin.init(r#"{"longest": 50}"#).unwrap();
    assert_eq!(plugin.packets(&[80, 80]), [(verdict::DROP, 0), (verdict::PASS, 0)]);
    assert_eq!(plugin.control("read", "{}").unwrap(), r#"{"packets":2}"#);
}

#[test]
fn the_plugin_in_c_works_also_with_a_second_file() {
    let folder = Folder::new("document-c");
    let project = folder.0.join("second");
    new("second", Language::C, &project).unwrap();
    fs::write(project.join("plugin.c"), code("c")).unwrap();
    fs::create_dir(project.join("src")).unwrap();
    let more = "#include \"../millrace.h\"\n\
        int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {\n\
        (void)arguments, (void)bytes;\n\
        char *copy = millrace_allocate(name_bytes);\n\
        if (!copy) return millrace_fail(\"there is no memory\");\n\
        memcpy(copy, name, name_bytes);\n\
        return millrace_reply(copy, name_bytes); }\n";
    fs::write(project.join("src/control.c"), more).unwrap();
    let Some(plugin) = loaded(&project) else { return };
    plugin.init("{}").unwrap();
    assert_eq!(plugin.packets(&[80, 80]), [(verdict::PASS, 0); 2]);
    assert_eq!(plugin.control("echo", "{}").unwrap(), "echo");
}
