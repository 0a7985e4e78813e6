//! Tests of the rules in ARCHITECTURE.md, GLOSSARY.md and CONTRIBUTING.md. No room imports a room above it or
//! beside it. The glossary's paths exist, every source file begins with its description, and library rooms
//! neither print nor exit. `fitness` measures the structure of rooms.

mod circles;
mod fitness;
mod items;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};

/// Floors of rooms, found by their folder. In a folder, `*` stands for any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Floor {
    /// `foundation/*`; the number orders the rooms of this floor.
    Foundation(u8),
    /// Room of the packet path. Such rooms never import each other.
    Dataplane,
    /// `dataplane/pipeline`, which joins the rooms of the packet path.
    Pipeline,
    /// `plugins/*`.
    Plugin,
    /// Control room below the controller. Such rooms never import each other.
    Control,
    /// `control/confine`, which other control rooms may import.
    Confine,
    /// `control/controller`.
    Controller,
    /// `control/api`.
    Api,
    /// `lab`, which talks to the operating system and imports no room above foundation.
    Lab,
    /// `testkit`: helpers for tests of any room.
    Testkit,
    /// `bench`.
    Bench,
    /// `reproduce`.
    Reproduce,
    /// `cli` and `tests`, which no room imports.
    Top,
}

use Floor::{
    Api, Bench, Confine, Control, Controller, Dataplane, Foundation, Lab, Pipeline, Plugin, Reproduce,
    Testkit, Top,
};

const FLOORS: &[(&str, Floor)] = &[
    // Build scripts import this room.
    ("foundation/bpf", Foundation(0)),
    ("foundation/units", Foundation(0)),
    ("foundation/wire", Foundation(1)),
    ("foundation/memory", Foundation(1)),
    ("foundation/packet", Foundation(2)),
    ("foundation/plugin-abi", Foundation(3)),
    // Interface for plugin authors: these rooms import the plugin ABI, and nothing else of the foundation.
    ("sdk/process", Foundation(4)),
    ("sdk/rust", Foundation(5)),
    ("dataplane/pipeline", Pipeline),
    ("dataplane/*", Dataplane),
    ("plugins/*", Plugin),
    ("control/confine", Confine),
    ("control/controller", Controller),
    ("control/api", Api),
    ("control/*", Control),
    ("lab", Lab),
    ("testkit", Testkit),
    ("bench", Bench),
    ("reproduce", Reproduce),
    ("cli", Top),
    ("tests", Top),
];

/// Returns the floor of a room's folder; `None` for a room without a line in the table.
fn floor(room: &str) -> Option<Floor> {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(folder) => room.strip_prefix(folder).is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
        None => room == pattern,
    };
    FLOORS.iter().find(|(pattern, _)| matches(pattern)).map(|&(_, floor)| floor)
}

/// Dependency between rooms: `from` imports `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Arrow {
    from: String,
    to: String,
    /// Whether only the tests of `from` import `to`.
    only_tests: bool,
}

/// Returns the reason why a dependency is not allowed; `None` when it is allowed.
fn objection(arrow: &Arrow) -> Option<String> {
    let Arrow { from, to, only_tests } = arrow;
    let Some(source) = floor(from) else { return Some(format!("{from} has no floor: add it to the table")) };
    let Some(target) = floor(to) else { return Some(format!("{to} has no floor: add it to the table")) };
    if allowed(source, target) || (*only_tests && target == Testkit) {
        return None;
    }
    Some(format!("{from} must not import {to}: a {source:?} room doesn't look at a {target:?} room"))
}

fn allowed(from: Floor, to: Floor) -> bool {
    match (from, to) {
        (Foundation(high), Foundation(low)) => low < high,
        (_, Foundation(_)) => true,
        (Foundation(_) | Dataplane | Plugin | Lab | Confine, _) => false,
        (Pipeline, to) => to == Dataplane,
        (Control, to) => matches!(to, Dataplane | Pipeline | Confine),
        (Controller, to) => matches!(to, Dataplane | Pipeline | Plugin | Confine | Control),
        (Api, to) => matches!(to, Dataplane | Pipeline | Plugin | Confine | Control | Controller),
        (Testkit, to) => !matches!(to, Testkit | Bench | Reproduce | Top),
        (Bench, to) => !matches!(to, Bench | Reproduce | Top),
        (Reproduce, to) => !matches!(to, Reproduce | Top),
        (Top, to) => to != Top,
    }
}

fn root() -> PathBuf {
    PathBuf::from("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifest(path: &Path) -> toml::Table {
    read(path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the folders of the workspace's crates, relative to its root.
fn rooms() -> Vec<String> {
    let workspace = manifest(&root().join("Cargo.toml"));
    let members = workspace["workspace"]["members"].as_array().expect("workspace.members is a list");
    let mut rooms: Vec<String> =
        members.iter().flat_map(|member| expand(member.as_str().expect("a member is a path"))).collect();
    rooms.sort();
    rooms
}

/// Returns the folders of a workspace member: `control/*` becomes the folders in `control` that have a
/// manifest.
fn expand(member: &str) -> Vec<String> {
    let Some(folder) = member.strip_suffix("/*") else { return vec![member.to_owned()] };
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names =
        entries.map(|entry| entry.expect("a folder can be listed").file_name().into_string().expect("UTF-8"));
    names
        .map(|name| format!("{folder}/{name}"))
        .filter(|room| root().join(room).join("Cargo.toml").exists())
        .collect()
}

/// Returns all dependencies in one manifest. `names` maps the name of a crate to its room.
fn arrows(room: &str, manifest: &toml::Table, names: &[(String, String)]) -> Vec<Arrow> {
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    let mut found = Vec::new();
    for (key, only_tests) in
        [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
    {
        let dependencies = tables.iter().filter_map(|table| table.get(key)?.as_table()).flatten();
        for (alias, value) in dependencies {
            let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(alias);
            if let Some((_, to)) = names.iter().find(|(name, _)| name == package) {
                found.push(Arrow { from: room.to_owned(), to: to.clone(), only_tests });
            }
        }
    }
    found
}

fn all_arrows() -> Vec<Arrow> {
    let manifests: Vec<(String, toml::Table)> = rooms()
        .into_iter()
        .map(|room| (room.clone(), manifest(&root().join(room).join("Cargo.toml"))))
        .collect();
    let names: Vec<(String, String)> = manifests
        .iter()
        .map(|(room, table)| (table["package"]["name"].as_str().expect("a name").to_owned(), room.clone()))
        .collect();
    manifests.iter().flat_map(|(room, table)| arrows(room, table, &names)).collect()
}

/// Returns every Rust file of the repository.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = rooms().iter().map(|room| root().join(room)).collect();
    folders.push(root().join("fuzz"));
    folders.push(root().join("examples"));
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder can be listed").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !matches!(name, "target" | "corpus" | "artifacts") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Whether a file contains only tests: by its name (`tests.rs`, `test_…`, `…_test.rs`), or because it is in a
/// folder `tests`.
fn is_test_module(path: &Path) -> bool {
    let in_tests = path.parent().is_some_and(|folder| folder.ends_with("tests"));
    let by_name = |name: &str| name == "tests.rs" || name.starts_with("test_") || name.ends_with("_test.rs");
    in_tests || path.file_name().and_then(|name| name.to_str()).is_some_and(by_name)
}

/// Returns the numbered lines of a file up to its inline test module, without comment lines. A declaration of
/// a test module in another file does not end the lines.
fn code_without_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_module = |index: usize| {
        text.lines().nth(index + 1).is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    };
    text.lines()
        .enumerate()
        .take_while(move |(index, line)| !line.starts_with("#[cfg(test)]") || !is_module(*index))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(index, line)| (index + 1, line))
}

#[test]
fn every_arrow_between_rooms_runs_down() {
    let arrows = all_arrows();
    assert!(
        arrows.len() > 20,
        "only {} arrows were found: the manifests are not read as they should",
        arrows.len()
    );
    let objections: Vec<String> = arrows.iter().filter_map(objection).collect();
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

#[test]
fn every_room_has_a_floor() {
    let unknown: Vec<String> = rooms().into_iter().filter(|room| floor(room).is_none()).collect();
    assert!(unknown.is_empty(), "rooms without a floor in the table: {unknown:?}");
}

#[test]
fn a_fabricated_arrow_up_or_sideways_is_detected() {
    for (from, to) in [
        ("foundation/units", "foundation/wire"),
        ("foundation/wire", "foundation/packet"),
        ("foundation/packet", "dataplane/port"),
        ("dataplane/port", "dataplane/classify"),
        ("dataplane/forward", "dataplane/pipeline"),
        ("dataplane/pipeline", "control/config"),
        ("dataplane/pipeline", "plugins/statistics"),
        ("plugins/statistics", "dataplane/plugin"),
        ("plugins/statistics", "plugins/null"),
        ("control/host", "control/config"),
        ("control/config", "control/controller"),
        ("control/controller", "control/api"),
        ("lab", "dataplane/port"),
        ("bench", "cli"),
        ("dataplane/port", "nowhere"),
    ] {
        let arrow = Arrow { from: from.to_owned(), to: to.to_owned(), only_tests: false };
        assert!(objection(&arrow).is_some(), "{from} -> {to} was not noticed");
    }
}

#[test]
fn only_tests_may_import_the_testkit() {
    let arrow = |only_tests| Arrow { from: "dataplane/port".into(), to: "testkit".into(), only_tests };
    assert!(objection(&arrow(true)).is_none());
    assert!(objection(&arrow(false)).is_some());
}

#[test]
fn fabricated_manifest_yields_its_arrows() {
    let text = "[dependencies]\nmillrace-api.workspace = true\nserde.workspace = true\n\
                [dev-dependencies]\nkit = { package = \"millrace-testkit\", path = \"x\" }\n\
                [target.'cfg(unix)'.dependencies]\nmillrace-wire.workspace = true\n";
    let names = [
        ("millrace-api", "control/api"),
        ("millrace-testkit", "testkit"),
        ("millrace-wire", "foundation/wire"),
    ]
    .map(|(name, room)| (name.to_owned(), room.to_owned()));
    let found = arrows("dataplane/port", &text.parse().expect("TOML"), &names);
    let pairs: Vec<(&str, bool)> = found.iter().map(|arrow| (arrow.to.as_str(), arrow.only_tests)).collect();
    assert_eq!(pairs, [("control/api", false), ("foundation/wire", false), ("testkit", true)]);
}

/// Returns the paths in the second column of the glossary's table.
fn glossary_paths(text: &str) -> Vec<String> {
    let cells = text.lines().filter_map(|line| line.strip_prefix('|')?.split('|').nth(1));
    let path = |cell: &str| Some(cell.trim().strip_prefix('`')?.strip_suffix('`')?.to_owned());
    cells.filter_map(path).collect()
}

#[test]
fn the_glossarys_paths_exist() {
    let paths = glossary_paths(&read(&root().join("GLOSSARY.md")));
    assert!(!paths.is_empty(), "GLOSSARY.md has no line of the form | term | `path` | meaning |");
    let gone: Vec<&String> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(gone.is_empty(), "GLOSSARY.md names paths that don't exist: {gone:?}");
}

#[test]
fn glossary_line_yields_its_path() {
    let text =
        "| term | path | meaning |\n|---|---|---|\n| gate | `dataplane/plugin/src/gate.rs` | a place |\n";
    assert_eq!(glossary_paths(text), ["dataplane/plugin/src/gate.rs"]);
}

#[test]
fn every_source_file_begins_with_its_description() {
    // For a `tests.rs`, the file beside it has the description. Attributes of a crate may precede its
    // description.
    let described = |path: &Path| {
        let text = read(path);
        let mut lines = text.lines().skip_while(|line| line.starts_with("#![") || line.is_empty());
        is_test_module(path) || lines.next().is_some_and(|line| line.starts_with("//!"))
    };
    let bare: Vec<String> =
        sources().iter().filter(|path| !described(path)).map(|path| relative(path)).collect();
    assert!(bare.is_empty(), "files that don't begin with a `//!` comment: {bare:#?}");
}

#[test]
fn nothing_unfinished_is_left_in_the_sources() {
    let words =
        [concat!("todo", "!("), concat!("unimpl", "emented!("), concat!("FIX", "ME"), concat!("XX", "X:")];
    let mut found = Vec::new();
    for path in sources() {
        let text = read(&path);
        found.extend(words.iter().filter(|word| text.contains(**word)).map(|word| (relative(&path), *word)));
    }
    assert!(found.is_empty(), "unfinished: {found:#?}");
}

#[test]
fn library_rooms_neither_print_nor_exit() {
    let words = ["println!(", "print!(", "process::exit("];
    let mut found = Vec::new();
    for room in rooms().iter().filter(|room| !matches!(floor(room), Some(Top | Testkit | Bench))) {
        let folder = root().join(room).join("src");
        for path in sources().iter().filter(|path| path.starts_with(&folder) && !is_test_module(path)) {
            let text = read(path);
            let lines =
                code_without_tests(&text).filter(|(_, line)| words.iter().any(|word| line.contains(word)));
            found.extend(lines.map(|(number, line)| format!("{}:{number}: {}", relative(path), line.trim())));
        }
    }
    assert!(found.is_empty(), "rooms below the command line that print or exit: {found:#?}");
}
