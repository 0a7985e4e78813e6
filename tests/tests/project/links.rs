//! Paths in documents (in links, backticks and table cells), and the headings that links refer to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{files, read};

/// Extensions of file names by which a path in a document is recognised.
const ENDINGS: [&str; 12] =
    ["rs", "toml", "md", "c", "h", "py", "json", "sh", "service", "html", "js", "txt"];
/// Prefixes of paths outside the repository: build output, and a user's own plugin.
const NOT_OURS: [&str; 2] = ["out/", "tests/plugin.rs"];

/// Returns the lines of a document outside code blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_block = false;
    let is_prose = |(_, line): &(usize, &str)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    };
    (1..).zip(text.lines()).filter(is_prose).collect()
}

/// Returns the links of a line into the repository, with their anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.filter(|link| !link.contains(':'))
}

/// Returns the paths that a document names outside code blocks, each with the number of its line.
fn paths(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let links = links(line).filter(|link| !link.starts_with('#'));
        let links = links.map(|link| link.split('#').next().unwrap_or(link));
        let codes = line.split('`').skip(1).step_by(2).filter(|code| is_path(code));
        found.extend(links.chain(codes).map(|path| (number, path.trim_end_matches('/').to_owned())));
    }
    found
}

/// Returns the anchors that a document's links refer to: line number, path (empty for the document itself)
/// and anchor.
fn anchors(text: &str) -> Vec<(usize, String, String)> {
    let split = |(number, line)| {
        let named = links(line).filter_map(|link| link.split_once('#'));
        named.map(move |(path, anchor)| (number, path.to_owned(), anchor.to_owned())).collect::<Vec<_>>()
    };
    prose(text).into_iter().flat_map(split).collect()
}

/// Returns the anchors of a document's headings, as GitHub makes them. Letters in lower case, digits, hyphens
/// and underscores stay, blanks become hyphens, and a repeated heading gets a number.
fn headings(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !(1..=6).contains(&level) || !(title.is_empty() || title.starts_with(' ')) {
            continue;
        }
        let slug = slug(title);
        let earlier = seen.entry(slug.clone()).or_default();
        found.push(if *earlier == 0 { slug } else { format!("{slug}-{earlier}") });
        *earlier += 1;
    }
    found
}

/// Returns the anchor of a heading. A link in the heading counts as its text.
fn slug(title: &str) -> String {
    let mut pieces = title.split("](");
    let mut words = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        words.push_str(piece.split_once(')').map_or(piece, |(_, rest)| rest));
    }
    let letters = words.trim().trim_end_matches('#').trim_end().chars();
    let letters = letters.filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    letters.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Whether a file has an anchor: a heading in a document, or a line number in a source file.
fn has_anchor(file: &Path, text: &str, anchor: &str) -> bool {
    if file.extension().is_some_and(|ending| ending == "md") {
        return headings(text).iter().any(|heading| heading == anchor);
    }
    let line = anchor.strip_prefix('L').and_then(|line| line.parse::<usize>().ok());
    line.is_some_and(|line| (1..=text.lines().count()).contains(&line))
}

/// Whether a code span is the path of a source file, as opposed to a command, an API route or a path on a
/// machine.
fn is_path(code: &str) -> bool {
    let ending = code.rsplit('.').next().unwrap_or_default();
    let is_plain = code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    is_plain && code.contains('/') && !code.starts_with(['/', '.']) && ENDINGS.contains(&ending)
}

/// Whether a path in `document` exists: relative to the root, relative to the document, or as the end of
/// another path.
fn exists(files: &[PathBuf], document: &Path, path: &str) -> bool {
    let beside = document.parent().unwrap_or(Path::new("")).join(path);
    let beside = normal(&beside);
    path.is_empty()
        || NOT_OURS.iter().any(|start| path.starts_with(start))
        || files
            .iter()
            .any(|file| file.ends_with(path) || file.starts_with(path) || file.starts_with(&beside))
}

/// Returns a path with its `..` resolved.
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
fn every_anchor_in_a_document_exists() {
    let files = files();
    let mut gone = Vec::new();
    for document in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "md")) {
        for (number, path, anchor) in anchors(&read(document)) {
            let beside = normal(&document.parent().unwrap_or(Path::new("")).join(&path));
            let named = if path.is_empty() { document } else { &beside };
            // Missing paths are left to the test of paths.
            if files.contains(named) && !has_anchor(named, &read(named), &anchor) {
                gone.push(format!("{}:{number}: {path}#{anchor}", document.display()));
            }
        }
    }
    assert!(gone.is_empty(), "anchors that don't exist:\n{}", gone.join("\n"));
}

#[test]
fn anchors_are_made_of_headings_by_the_rules_of_github() {
    let text = "# `[api]`: Who may ask?\n## Names\n### [Names](a.md#b), and_more\n```\n# no heading\n```\n## Names\n#none\n\
                ## What `--on-death` does  ##\n## Größe & Maß\n";
    let expected =
        ["api-who-may-ask", "names", "names-and_more", "names-1", "what---on-death-does", "größe--maß"];
    assert_eq!(headings(text), expected);
    assert!(
        has_anchor(Path::new("a.md"), text, "names-1") && !has_anchor(Path::new("a.md"), text, "names-2")
    );
    assert!(
        has_anchor(Path::new("a.rs"), "one\ntwo\n", "L2")
            && !has_anchor(Path::new("a.rs"), "one\ntwo\n", "L3")
    );
}

#[test]
fn anchors_are_found_in_links_outside_code_blocks() {
    let text = "See [a](#here), [b](docs/b.md#there), [c](c.md), [d](https://x.org/#e).\n```\n[f](#g)\n```\n";
    let expected = [(1, "", "here"), (1, "docs/b.md", "there")];
    assert_eq!(
        anchors(text),
        expected.map(|(line, path, anchor)| (line, path.to_owned(), anchor.to_owned()))
    );
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
fn path_is_found_from_the_root_beside_its_document_or_by_its_end() {
    let files = ["docs/a.md", "room/src/wire/udp.rs"].map(PathBuf::from);
    let document = Path::new("docs/a.md");
    for path in ["room/src/wire/udp.rs", "wire/udp.rs", "room/src", "../room", "a.md"] {
        assert!(exists(&files, document, path), "{path}");
    }
    for path in ["room/src/wire/tcp.rs", "ire/udp.rs", "../a.md", "b.md"] {
        assert!(!exists(&files, document, path), "{path}");
    }
}
