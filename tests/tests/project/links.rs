//! Paths in documents: in links, in backticks, in cells of tables.

use std::path::{Path, PathBuf};

use super::{files, read};

/// Endings of files that documents name.
const ENDINGS: [&str; 12] =
    ["rs", "toml", "md", "c", "h", "py", "json", "sh", "service", "html", "js", "txt"];
/// First folders of paths that are no paths of the repository: what a build leaves, and a user's own plugin.
const NOT_OURS: [&str; 2] = ["out/", "tests/plugin.rs"];

/// Paths that a document names, each with the number of its line. Code blocks are left out.
fn paths(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let links = links.filter(|link| !link.contains(':') && !link.starts_with('#'));
            let links = links.map(|link| link.split('#').next().unwrap_or(link));
            let codes = line.split('`').skip(1).step_by(2).filter(|code| is_path(code));
            found.extend(links.chain(codes).map(|path| (number, path.trim_end_matches('/').to_owned())));
        }
    }
    found
}

/// Whether a piece of code is the path of a source file, not a command, a route of the API or a path of a machine.
fn is_path(code: &str) -> bool {
    let ending = code.rsplit('.').next().unwrap_or_default();
    let is_plain = code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    is_plain && code.contains('/') && !code.starts_with(['/', '.']) && ENDINGS.contains(&ending)
}

/// Whether a path that `document` names exists: from the root, beside the document, or as the end of a path.
fn exists(files: &[PathBuf], document: &Path, path: &str) -> bool {
    let beside = document.parent().unwrap_or(Path::new("")).join(path);
    let beside = normal(&beside);
    path.is_empty()
        || NOT_OURS.iter().any(|start| path.starts_with(start))
        || files
            .iter()
            .any(|file| file.ends_with(path) || file.starts_with(path) || file.starts_with(&beside))
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut parts = Vec::new();
    for part in path.components() {
        if part.as_os_str() == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.iter().collect()
}

#[test]
fn every_path_in_a_document_exists() {
    let files = files();
    let mut gone = Vec::new();
    for document in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "md")) {
        let named = paths(&read(document));
        let absent = named.iter().filter(|(_, path)| !exists(&files, document, path));
        gone.extend(absent.map(|(number, path)| format!("{}:{number}: {path}", document.display())));
    }
    assert!(gone.is_empty(), "paths that don't exist:\n{}", gone.join("\n"));
}

#[test]
fn paths_are_found_in_links_code_and_cells_of_tables() {
    let text = "| promise | `bench driver`, [`bench/src/flood.rs`](bench/src/flood.rs#L3) | x |\n\
                See `wire/src/udp.rs`, `GET /status`, `a/b`, [there](https://x.org/y.rs) and [here](#below).\n\
                ```\ncp `no/such.rs`\n```\n| `docs/a.md` |\n";
    let found: Vec<(usize, String)> = paths(text);
    let expected =
        [(1, "bench/src/flood.rs"), (1, "bench/src/flood.rs"), (2, "wire/src/udp.rs"), (6, "docs/a.md")];
    assert_eq!(found, expected.map(|(number, path)| (number, path.to_owned())));
}

#[test]
fn a_path_exists_from_the_root_beside_its_document_or_by_its_end() {
    let files = ["docs/a.md", "room/src/wire/udp.rs"].map(PathBuf::from);
    let document = Path::new("docs/a.md");
    for path in ["room/src/wire/udp.rs", "wire/udp.rs", "room/src", "../room", "a.md"] {
        assert!(exists(&files, document, path), "{path}");
    }
    for path in ["room/src/wire/tcp.rs", "ire/udp.rs", "../a.md", "b.md"] {
        assert!(!exists(&files, document, path), "{path}");
    }
}
